"""Rewrites of a rule as text edits, or the reason why they cannot be."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpulint.finding import Effect, Fix, too_old
from gpulint.index.walk import walk
from gpulint.inline_metadata import leaves_out
from gpulint.script.copying.default_device import (
    LAST_OLD_SAMPLERS,
    needs_old_samplers,
)
from gpulint.script.loading.prepared import forks_later
from gpulint.script.reaching.evaluated import leaves
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.rewriting.edits import CannotFix, Rewrite, place_of

if TYPE_CHECKING:
    from gpulint.rule import Rule
    from gpulint.script.model import Script

NOT_LISTED = (
    "the packages that the script lists in its own metadata have no gpulint: add it "
    "there, or use `--runtime vendor`"
)
WITHOUT_TORCH = (
    "the file can be imported where what it trains with is missing, and so may gpulint"
)
# The lowest releases that `gpulint.runtime` works with.
RUNTIME_TORCH = (2, 3)
RUNTIME_PYTHON = (3, 10)
_TRAINING = frozenset(
    "torch transformers lightning pytorch_lightning accelerate tensorflow keras "
    "mindspore".split()
)
_MISSING = re.compile(r"\b(ImportError|ModuleNotFoundError|Exception|BaseException)\b")


def compile_fix(
    script: Script, rule: Rule, rewrite: Rewrite | None, effect: Effect
) -> tuple[Fix | None, str | None]:
    """A rewrite as text edits, or None and the reason why it cannot be."""
    if rewrite is None:
        return None, None
    ours = any(
        i.startswith(("from gpulint", "import gpulint")) for i in rewrite.imports
    )
    if ours and leaves_out(script.source.text, "gpulint"):
        return None, NOT_LISTED
    runtime = any(i in script.names.runtime[1] for i in rewrite.imports)
    if runtime and _is_read_without_torch(script):
        return None, WITHOUT_TORCH
    python = script.releases("python").highest
    if runtime and python is not None and python < RUNTIME_PYTHON:
        wanted, has = (".".join(map(str, v)) for v in (RUNTIME_PYTHON, python))
        return None, f"needs Python {wanted}, the project has {has}"
    if rule.framework == "mindspore":
        return _compiled(script, rewrite, effect)
    needed = rewrite.torch or rule.torch
    if runtime:
        needed = max(needed, RUNTIME_TORCH)
    oldest = script.torch_version or script.newest_torch
    if oldest is not None and oldest < needed:
        return None, too_old(needed, oldest)
    wanted = ".".join(map(str, needed))
    if oldest is None and runs_only_before(script, needed):
        return None, f"needs torch {wanted}, for which an import is too old"
    if needed > LAST_OLD_SAMPLERS and needs_old_samplers(script):
        return None, f"needs torch {wanted}, which cannot shuffle here (GPU508)"
    return _compiled(script, rewrite, effect)


def _is_read_without_torch(script: Script) -> bool:
    """`try: import torch` at the top of a file that goes on without it, or its kin.

    Not where it imports that outside of the `try` as well, or another one instead.
    """
    guarded: set[str] = set()
    needed: set[str] = set()
    for statement in script.index.tree.body:
        if isinstance(statement, ast.Try) and any(map(_goes_on, statement.handlers)):
            guarded |= _frameworks(statement.body)
            needed |= _frameworks([s for h in statement.handlers for s in h.body])
        else:
            needed |= _frameworks([statement])
    return bool(guarded) and not needed


def _frameworks(block: Sequence[ast.stmt]) -> set[str]:
    """The frameworks that statements import: `torch` by `from torch import nn`."""
    found: set[str] = set()
    for statement in block:
        names = []
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            names = [statement.module or ""]
        found |= {name.partition(".")[0] for name in names} & _TRAINING
    return found


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a missing package is caught, and nothing ends the program for it."""
    caught = "ImportError" if handler.type is None else ast.unparse(handler.type)
    if _MISSING.search(caught) is None or any(map(leaves, handler.body)):
        return False
    return not any(isinstance(node, ast.Raise) for node in walk(*handler.body))


def _compiled(
    script: Script, rewrite: Rewrite, effect: Effect
) -> tuple[Fix | None, str | None]:
    try:
        fix = script.compiler.compile(rewrite, effect)
    except CannotFix as error:
        return None, str(error)
    reason = _too_early(script, rewrite, fix)
    return (None, reason) if reason else (fix, None)


def _too_early(script: Script, rewrite: Rewrite, fix: Fix) -> str | None:
    """Why new code at the top level would run before what it needs, or too soon."""
    rows = [
        node.lineno
        for node in map(place_of, rewrite.edits)
        if script.index.function(node) is None
        and not isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    for name, statement in script.names.imported.items():
        if any(row < statement.lineno for row in rows):
            limit = script.source.starts[statement.lineno - 1]
            used = re.compile(rf"(?<![\w.])(?<!import ){name}\b")
            if any(e.start < limit and used.search(e.content) for e in fix.edits):
                return f"`{name}` is imported further down"
    if rows and forks_later(script.index):
        asks = (f"{script.names.torch[0]}.cuda.", f"{script.names.runtime[0]}.")
        if any(word in e.content for e in fix.edits for word in asks):
            return "`notebook_launcher` forks, before which CUDA must be left alone"
    return None
