"""How the options of a DataLoader move into `runtime.loader_kwargs`."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gpulint.index import Target
from gpulint.index.build import last_name
from gpulint.index.calls import TENSOR_METHODS
from gpulint.index.values import LOADER_OPTIONS
from gpulint.index.walk import dotted, walk
from gpulint.script.loading.batch_objects import (
    EXPANDED,
    holds_expanded,
    torch_that_pins,
)
from gpulint.script.loading.device_batches import why_not_pinned
from gpulint.script.loading.loaders import POSITIONS, Loader
from gpulint.script.loading.worker_state import main_guard
from gpulint.script.rewriting.device_code import device_at
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import move_to_spread
from gpulint.script.samples.not_shared import holds_unpicklable

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_REASON = re.compile(
    r"#.*(debug|windows|\bwin\b|notebook|jupyter|colab|kaggle|fork|spawn|pickl|hang|"
    r"deadlock|freez|main process|single process|multi-?process|in[- ]memory|thread|"
    r"shm|shared memory|crash|bug|fail|error|macos|\bmac\b|determinis|reproduc)",
    re.IGNORECASE,
)
DERIVED = "the loader's class may set options of its own"
_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.")


def written_options(loader: Loader) -> dict[str, ast.expr]:
    """Options about workers and pinning as the call itself has them."""
    found: dict[str, ast.expr] = {}
    for keyword in loader.call.keywords:
        if keyword.arg is not None and keyword.arg in LOADER_OPTIONS:
            found[keyword.arg] = keyword.value
    for name, position in POSITIONS.items():
        if name in LOADER_OPTIONS and position < len(loader.call.args):
            found[name] = loader.call.args[position]
    return found


def has_reason(
    script: Script, node: ast.expr, words: re.Pattern[str] = _REASON
) -> bool:
    """Whether a comment at a value, or above it, says why it is so, by such words."""
    source, row = script.source_of(node), node.lineno
    above = source.said(row - 1) if row > 1 else ""
    rows = [source.said(row)]
    if above.lstrip().startswith("#"):
        rows.append(above)
    first = script.index.statement(node).lineno - 1
    while first > 0 and source.said(first).lstrip().startswith("#"):
        rows.append(source.said(first))  # the comment above the whole statement
        first -= 1
    return any(map(words.search, rows))


def takes_any_options(script: Script, loader: Loader) -> bool:
    """Whether the call gets the `**kwargs` of the function around it."""
    return any(
        d.kind == "parameter"
        for keyword in loader.call.keywords
        if keyword.arg is None
        for d in script.definitions(keyword.value)
    )


def fed_by_framework(script: Script, loader: Loader) -> bool:
    """Whether a framework has rules of its own for this loader."""
    if "lightning" in script.frameworks:
        return True
    owner = script.index.owner(loader.call)
    bases = script.resolver.classes.base_names(owner) if owner is not None else set()
    return any(base.startswith(_TRAINERS) for base in bases)


def trains_on_cpu(script: Script) -> bool:
    """Whether the file trains or evaluates, and never asks for an accelerator."""
    runs = any(loop.train or loop.eval for loop in script.loops)
    return runs and not script.steps_on_gpu


def only_read_as_arrays(script: Script, loader: Loader) -> bool:
    """Whether no loop trains or evaluates, and all read arrays of what they get."""
    return bool(loader.loops) and all(
        not (loop.train or loop.eval) and _reads_arrays(script, loop)
        for loop in loader.loops
    )


def feeds_cpu(script: Script, loader: Loader) -> bool:
    """Whether what runs over a loader is known, and none of it asks for a GPU."""
    runs = [loop for loop in loader.loops if loop.train or loop.eval]
    if not runs and all(_is_on_host(script, loop) for loop in loader.loops):
        runs = loader.loops
    if runs and all(_moves_to_host(script.of(loop.node), loop) for loop in runs):
        return True
    files = [script, *(script.of(loop.node) for loop in runs)]
    return bool(runs) and not any(its.steps_on_gpu for its in files)


def _moves_to_host(script: Script, loop: Loop) -> bool:
    """Whether a loop's function is given the CPU by all, and moves its batches there.

    `evaluate(model, loader, "cpu")`, and `x.to(device)` in it; what is only brought
    back to the host (`y.to("cpu")`) may have been computed elsewhere.
    """
    moves = [m for m in script.moves if script.batches.loop_of(m.receiver) is loop]
    named = any(isinstance(move.device, ast.Name) for move in moves)
    return named and all(move.target is Target.CPU for move in moves)


def has_own_iterator(loader: Loader) -> bool:
    """Whether a file derives an iterator from the one of torch that refuses workers."""
    return any(
        (dotted(base) or "").endswith("_SingleProcessDataLoaderIter")
        for index in loader.files
        for owner in index.all(ast.ClassDef)
        for base in owner.bases
    )


def _is_on_host(script: Script, loop: Loop) -> bool:
    """Whether batches are only looked at, or read as arrays."""
    return _reads_arrays(script, loop) or _only_counts(script, loop)


def _reads_arrays(script: Script, loop: Loop) -> bool:
    """`tokens.numpy()` of a batch."""
    its = script.of(loop.node)
    read = [
        call.func.value
        for call in walk(*loop.node.body)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "numpy"
    ]
    return any(its.batches.loop_of(x) is loop for x in read)


def _only_counts(script: Script, loop: Loop) -> bool:
    """Whether a loop only looks at its batches: it calls nothing but torch itself."""
    calls = (n for n in walk(*loop.node.body) if isinstance(n, ast.Call))
    return all(
        last_name(call) in TENSOR_METHODS
        or (script.index.qualified(call.func) or "").startswith(("torch.", "numpy."))
        or (isinstance(call.func, ast.Name) and hasattr(builtins, call.func.id))
        for call in calls
    )


def unpicklable(script: Script, loader: Loader) -> str | None:
    """What spawned workers could not receive: a lambda or a local function."""
    parts: list[tuple[str, ast.expr]] = []
    for name in ("collate_fn", "worker_init_fn", "dataset"):
        parts += [(name, node) for node in loader.argument(name).nodes]
    for name, node in parts:
        for reached in _reached(script, node, 3):
            if isinstance(reached, ast.Lambda):
                return f"`{name}` holds a lambda, which cannot be spawned"
            if not isinstance(reached, (ast.FunctionDef, ast.ClassDef)):
                continue
            if script.index.function(reached) is not None:
                return (
                    f"`{name}` holds a local definition: spawned workers need a global"
                )
            if main_guard(script, reached) is not None:
                return f"`{name}` needs a definition that stands under the main guard"
    return None


def _reached(script: Script, node: ast.AST, depth: int) -> Iterator[ast.AST]:
    """What an argument is made of: origins, their arguments, and theirs."""
    for origin in script.resolver.origins(node):
        yield origin.node
        if not isinstance(origin.node, ast.expr) or depth == 0:
            continue
        for part in walk(origin.node):
            if isinstance(part, ast.Lambda):
                yield part
            if isinstance(part, ast.Call):
                yield from _kept_by(script, part)
            if isinstance(part, ast.Name) and part is not node:
                yield from _reached(script, part, depth - 1)


def _kept_by(script: Script, made: ast.Call) -> Iterator[ast.AST]:
    """The lambda that an object of the project's, such as a transform, keeps."""
    owner = script.resolver.classes.named(made.func)
    if owner is not None:
        kept = holds_unpicklable(owner, script.of(owner).evaluator)
        if isinstance(kept, ast.Lambda):
            yield kept


def into_loader_kwargs(
    script: Script,
    loader: Loader,
    title: str,
    *,
    was: Mapping[str, ast.expr],
    persistent: bool = False,
) -> tuple[Rewrite | None, str | None]:
    """The rewrite that lets the runtime decide, or the guard that fails.

    `was`: options that the runtime replaces, as they are written in the call.
    """
    call = loader.call
    if loader.derived:
        return None, DERIVED
    if holds_expanded(script, loader):
        return None, EXPANDED
    unpinned = why_not_pinned(script, loader)
    if loader.argument("pin_memory").absent and unpinned is not None:
        return None, unpinned
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None, "arguments are unpacked from a sequence"
    spreads = [k.value for k in call.keywords if k.arg is None]
    replaced = {"persistent_workers"} if persistent else {"num_workers"}
    for spread in spreads:
        for name in sorted(replaced & set(script.evaluator.mapping(spread).items)):
            return None, f"`{name}` is set in `{_text(script, spread)}`"
    given = written_options(loader)
    device = device_at(script, call, loader.loops)
    parts = [script.text(device)] if device is not None else []
    parts += ["train=False"] if loader.train is False else []
    parts += ["persistent=True"] if persistent else []
    if was:
        items = (f'"{name}": {_text(script, node)}' for name, node in was.items())
        parts.append(f"was={{{', '.join(items)}}}")
    for name, node in given.items():
        if name not in was:
            parts.append(f"{name}={_text(script, node)}")
    parts += [f"**{_text(script, spread)}" for spread in spreads]
    runtime, imports = script.names.runtime
    code = f"{runtime}.loader_kwargs({', '.join(parts)})"
    build = move_to_spread(code, LOADER_OPTIONS, tuple(POSITIONS))
    needed = torch_that_pins(script, loader)
    return Rewrite(title, (Replace(call, build),), imports, needed), None


def _text(script: Script, node: ast.expr) -> str:
    """The code of an expression on one line."""
    text = script.text(node)
    return ast.unparse(node) if "\n" in text or "\r" in text else text
