"""Loaders that a training loop builds anew although nothing in them changes."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function
from gpulint.index.flow import enclosing_function
from gpulint.index.walk import walk
from gpulint.script.branches import branches_of
from gpulint.script.invariants import names_in
from gpulint.script.loading.reuse import dataset_change, runs_once
from gpulint.script.loops import Loop
from gpulint.script.rewriting.edits import InsertBefore, Remove, Rewrite

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

MAX_DEPTH = 2


class Rebuilt(NamedTuple):
    """A loader, the loop that builds it, and the call there that leads to it.

    `step`: it is built in every step, not in every epoch; `over`: where it is iterated.
    """

    loader: Loader
    loop: Loop
    site: ast.Call
    step: bool
    over: ast.AST


def find_rebuilt(script: Script, loader: Loader) -> Rebuilt | None:
    """The loop that builds a loader, if each of its iterations builds the same one."""
    for site, way in _sites(script, loader):
        loop = script.loop_of(site)
        if loop is None or branches_of(script.index, site, loop.node):
            continue
        if _is_handled(script, site, loop):
            continue  # as when the last one has no more batches
        over = _iterated(script, loader, loop)
        if over is None or not _stays(script, loader, loop, site, way):
            continue
        step = isinstance(over, ast.Call)
        if step or (_has_workers(loader) and not runs_once(script, loader)):
            return Rebuilt(loader, loop, site, step, over)
    return None


def _is_handled(script: Script, site: ast.AST, loop: Loop) -> bool:
    """Whether a place of a loop is what an exception leads to."""
    return any(
        isinstance(above, ast.ExceptHandler) and script.index.inside(above, loop.node)
        for above in script.index.ancestors(site)
    )


def _sites(
    script: Script, loader: Loader
) -> Iterator[tuple[ast.Call, tuple[Function, ...]]]:
    """Calls in loops that build the loader, and the functions in between."""
    todo: list[tuple[ast.Call, tuple[Function, ...]]] = [(loader.call, ())]
    for site, way in todo:
        if script.loop_of(site) is not None:
            yield site, way
            continue
        function = script.index.function(site)
        if function is None or len(way) >= MAX_DEPTH:
            continue
        if branches_of(script.index, site, function):
            continue
        callers = script.resolver.calls.callers(function)
        todo += [(c, (function, *way)) for c in callers if script.index.holds(c)]


def _has_workers(loader: Loader) -> bool:
    workers = loader.argument("num_workers")
    return workers.given and not loader.values("num_workers").all_in(0, None)


# Where it is iterated


def _iterated(script: Script, loader: Loader, loop: Loop) -> ast.AST | None:
    """The pass over the loader that an iteration makes: a loop, or `next(iter(…))`.

    Not where epochs lie in between: an iteration is a whole run of training then.
    """
    if loop.train:
        return _asked(script, loader, loop)
    for over in loader.loops:
        if over.parent is loop:
            return over.node
        if over.parent is None and over.function is not None:
            callers = script.resolver.calls.callers(over.function)
            near = [c for c in callers if script.index.holds(c)]
            if any(script.loop_of(call) is loop for call in near):
                return over.node
    return None


def _asked(script: Script, loader: Loader, loop: Loop) -> ast.AST | None:
    """`next(iter(loader))` in a training step."""
    for call in script.index.calls.get("iter", ()):
        inside = bool(call.args) and script.loop_of(call) is loop
        if inside and any(
            loader.is_made_by(o.node) for o in script.resolver.origins(call.args[0])
        ):
            return call
    return None


# Whether anything changes


def _stays(
    script: Script,
    loader: Loader,
    loop: Loop,
    site: ast.Call,
    way: tuple[Function, ...],
) -> bool:
    """Whether the loop gives the loader the same dataset and options each time."""
    if _begins_a_run(script, loop):
        return False
    if dataset_change(script, loader, loop.node) is not None:
        return False
    return all(_same(script, name, loop, site, way) for name in _names(loader))


def _begins_a_run(script: Script, loop: Loop) -> bool:
    """Whether each iteration makes an optimizer: a fold, task or seed."""
    for name, calls in script.index.calls.items():
        if name.startswith("torch.optim.") and "lr_scheduler" not in name:
            for call in calls:
                inside = script.index.inside(call, loop.node)
                if inside or script.index.function(call) in loop.helpers:
                    return True
    return False


def _same(
    script: Script,
    name: ast.expr,
    loop: Loop,
    site: ast.Call,
    way: tuple[Function, ...],
) -> bool:
    """Whether a name has one value in all iterations of a loop."""
    head = _head(name)
    if not isinstance(head, ast.Name):
        return False
    definitions = script.definitions(head)
    if not definitions and hasattr(builtins, head.id):
        return True
    if not way:
        return script.invariants.holds(name, loop)
    function = script.index.function(name)
    if function is not None and script.resolver.self_name(function) == head.id:
        made_anew = any(step.name == "__init__" for step in way)
        attribute = name if isinstance(name, ast.Attribute) else None
        return (
            attribute is not None
            and not made_anew
            and script.invariants.is_constant_attribute(attribute)
        )
    if not definitions:
        return head.id in script.index.imports
    if definitions[0].kind != "parameter":
        return script.invariants.is_constant_name(head.id, definitions)
    owner = enclosing_function(script.index, definitions[0])
    if len(way) > 1 or owner is not way[0] or len(definitions) > 1:
        return False
    return _same_argument(script, definitions[0].name, loop, site, way[0])


def _head(name: ast.expr) -> ast.expr:
    """`args` of `args.data.size`."""
    while isinstance(name, ast.Attribute):
        name = name.value
    return name


def _same_argument(
    script: Script, name: str, loop: Loop, site: ast.Call, function: Function
) -> bool:
    position = script.resolver.calls.position(function, name)
    given = script.evaluator.argument(site, name, position)
    if given.absent:
        return True
    if not given.given or given.direct is None:
        return False
    return all(script.invariants.holds(part, loop) for part in names_in(given.direct))


# Rewriting


def before_the_loop(
    script: Script, rebuilt: Rebuilt
) -> tuple[Rewrite | None, str | None]:
    """The statement that builds the loader moved before the loop, or why not."""
    loader, loop = rebuilt.loader, rebuilt.loop
    statement = script.index.statement(loader.call)
    if rebuilt.site is not loader.call:
        return None, "another function builds the loader"
    if not isinstance(statement, ast.Assign) or statement.value is not loader.call:
        return None, "the loader is not just kept under a name"
    target = statement.targets[0]
    if len(statement.targets) > 1 or not isinstance(target, ast.Name):
        return None, "the loader is not just kept under a name"
    if statement not in loop.node.body or len(loop.node.body) < 2:
        return None, "the loader is not built in the body of the loop itself"
    flow = script.resolver.flow(script.index.scope(statement))
    deleted = {n.id for n in script.index.all(ast.Name) if isinstance(n.ctx, ast.Del)}
    again = len(flow.definitions.get(target.id, [])) != 1 or target.id in deleted
    if again or target.id in flow.outer:
        return None, f"`{target.id}` has other values as well"
    if loop.parent is not None or loop.node.orelse:
        return None, "a loop stands around it"
    if not _plain(script, loader):
        return None, "the loader has a sampler or workers that would live on"
    if not all(_is_there(script, name) for name in _names(loader)):
        return None, "not all that it is made of is there before the loop"
    code = _dedented(script, statement)
    edits = (InsertBefore(loop.node, code), Remove(statement))
    return Rewrite(f"Build `{target.id}` once, before the loop", edits), None


def _given(loader: Loader) -> list[ast.expr]:
    return [*loader.call.args, *(k.value for k in loader.call.keywords)]


def _names(loader: Loader) -> list[ast.expr]:
    return [name for part in _given(loader) for name in names_in(part)]


def _plain(script: Script, loader: Loader) -> bool:
    """Whether a second pass over a loader is like the first one over a new one."""
    if loader.derived:
        return False
    for name in ("sampler", "batch_sampler", "persistent_workers"):
        argument = loader.argument(name)
        off = argument.given and loader.values(name).all_in(False, None)
        if not (argument.absent or off):
            return False
    calls = [
        node
        for part in _given(loader)
        for node in walk(part)
        if isinstance(node, ast.Call)
    ]
    return not calls and not _changed_later(script, loader)


def _changed_later(script: Script, loader: Loader) -> bool:
    """Whether an attribute of the loader is set."""
    return any(
        not isinstance(node.ctx, ast.Load)
        and any(loader.is_made_by(o.node) for o in script.resolver.origins(node.value))
        for node in script.index.all(ast.Attribute)
    )


def _is_there(script: Script, name: ast.expr) -> bool:
    head = _head(name)
    imported = isinstance(head, ast.Name) and head.id in script.index.imports
    return imported or bool(script.definitions(head))


def _dedented(script: Script, statement: ast.stmt) -> str:
    """The text of a statement as it stands at the margin."""
    first, *rest = script.text(statement).replace("\r\n", "\n").split("\n")
    row = script.source_of(statement).line(statement.lineno)
    indent = row[: len(row) - len(row.lstrip())]
    return "\n".join([first, *(line.removeprefix(indent) for line in rest)])
