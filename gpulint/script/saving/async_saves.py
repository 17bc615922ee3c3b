"""Rewriting `torch.save` so that training goes on while the file is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.script.rewriting.edits import (
    CannotFix,
    Edit,
    InsertBefore,
    ReplaceCode,
    Rewrite,
)
from gpulint.script.saving.checkpoint_paths import ALL_FILES, TOUCHES, Paths
from gpulint.script.saving.checkpoints import Checkpoint
from gpulint.script.saving.path_parts import may_be_same

if TYPE_CHECKING:
    from gpulint.script.model import Script

# What other programs may do with the file, or ends the script before it is written.
_PROGRAMS = ("subprocess.", "os.system", "os.popen", "os.spawn", "sh.", "pexpect.")
_ENDS = ("os._exit", "os.exec", "os.abort", "os.kill", "os.fork")
_HARMLESS = frozenset(["git", "nvidia-smi", "hostname", "mkdir", "whoami", "uname"])
_WAITS = frozenset("barrier wait_for_everyone monitored_barrier rendezvous".split())
_FILES = frozenset(
    ["open", "io.BytesIO", "tempfile.TemporaryFile", "tempfile.NamedTemporaryFile"]
)


def async_save(script: Script, found: Checkpoint) -> Rewrite:
    """Save while training goes on; raises CannotFix where that may be noticed."""
    path = _path(script, found)
    for node in found.way:
        _check_around(script.of(node), node, found)
    for index in dict.fromkeys(script.index.home(node) for node in found.way):
        _check_file(script, index)
    paths = Paths(script, path, found.loop)
    for index in dict.fromkeys(script.index.home(node) for node in found.way):
        _check_searches(script, index, paths)
    name, imports = script.names.runtime
    edits: list[Edit] = [ReplaceCode(found.call.func, f"{name}.async_save")]
    calls = _same_file(script, found.call, path, paths)
    waits = dict.fromkeys(_before(script, call) for call in calls)
    edits += [InsertBefore(x, f"{name}.flush()") for x in waits if x is not None]
    return Rewrite("Write the checkpoint while training goes on", tuple(edits), imports)


def joined(script: Script, rewrites: list[Rewrite]) -> Rewrite:
    """Several such rewrites of one file as one: what it saves itself needs no wait."""
    edits = list(dict.fromkeys(edit for rewrite in rewrites for edit in rewrite.edits))
    saves = [
        script.index.statement(e.node) for e in edits if isinstance(e, ReplaceCode)
    ]
    kept = (
        e for e in edits if not (isinstance(e, InsertBefore) and e.statement in saves)
    )
    return rewrites[0]._replace(edits=tuple(kept))


def _path(script: Script, found: Checkpoint) -> ast.expr:
    call = found.call
    plain = not any(isinstance(a, ast.Starred) for a in call.args)
    if len(call.args) != 2 or call.keywords or not plain:
        raise CannotFix("`torch.save` is called with other arguments than two")
    path = call.args[1]
    for origin in script.resolver.origins(path):
        made = origin.call
        if made is not None and script.index.qualified(made.func) in _FILES:
            raise CannotFix("it is written to an open file")
    return path


def _check_around(script: Script, node: ast.AST, found: Checkpoint) -> None:
    """Refuse where an error of the save is handled, or it is the last thing done."""
    child = node
    for above in script.index.ancestors(node):
        if above is found.loop.node or isinstance(above, ast.FunctionDef):
            return
        if isinstance(above, ast.Try) and child in above.body and above.handlers:
            raise CannotFix("an error of the save is handled here")
        child = above


def _check_file(script: Script, index: FileIndex) -> None:
    for call in index.all(ast.Call):
        name = index.qualified(call.func) or ""
        text = script.text(call.func)
        if name.startswith(_PROGRAMS) and not _is_harmless(call):
            raise CannotFix(f"`{text}` starts a program that may look for the file")
        if name.startswith(_ENDS):
            raise CannotFix(f"`{text}` may end the script before the file is written")
        if last_name(call) in _WAITS:
            raise CannotFix(f"after `{text}` other processes may look for the file")


def _check_searches(script: Script, index: FileIndex, paths: Paths) -> None:
    """Refuse what finds files wherever they are: `os.walk(".")`, `glob("**/*.pt")`."""
    for call in index.all(ast.Call):
        if last_name(call) not in ALL_FILES or paths.runs_before(call):
            continue
        nodes = [*call.args, call.func]
        found = (n for node in nodes for n in ast.walk(node))
        texts = [n.value for n in found if isinstance(n, ast.Constant)]
        words = [t for t in texts if isinstance(t, str)]
        if any(t.startswith(("*", ".")) or "**" in t for t in words):
            raise CannotFix(f"`{script.text(call.func)}` may meet the file")


def _is_harmless(call: ast.Call) -> bool:
    """`subprocess.check_output(["git", "rev-parse", "HEAD"])`."""
    first = call.args[0] if call.args else None
    if isinstance(first, (ast.List, ast.Tuple)) and first.elts:
        first = first.elts[0]
    value = first.value if isinstance(first, ast.Constant) else None
    return isinstance(value, str) and value.split(" ")[0] in _HARMLESS


def _same_file(
    script: Script, save: ast.Call, path: ast.expr, paths: Paths
) -> Iterator[ast.Call]:
    """Calls of `torch.load` and `torch.save` that the file must be in place for."""
    for name, position in TOUCHES.items():
        for call in script.index.calls.get(name, ()):
            if call is save or paths.runs_before(call):
                continue
            its = call.args[position : position + 1]
            if not its or may_be_same(script, its[0], path):
                yield call


def _before(script: Script, load: ast.Call) -> ast.stmt | None:
    """The statement before which to wait; None where that is written already."""
    statement = script.index.statement(load)
    simple = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
    if not isinstance(statement, simple) or isinstance(
        script.index.scope(load), ast.Lambda
    ):
        raise CannotFix("the file is used where no line can stand before")
    return None if _follows_flush(script, statement) else statement


def _follows_flush(script: Script, statement: ast.stmt) -> bool:
    block = script.index.parent(statement)
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(block, name, ())
        if statement in statements:
            before = statements[: statements.index(statement)][-1:]
            calls = (x.value for x in before if isinstance(x, ast.Expr))
            return any(
                isinstance(call, ast.Call)
                and script.index.qualified(call.func) == "gpulint.runtime.flush"
                for call in calls
            )
    return False
