"""What a file hands to Accelerate's `prepare`, and where it uses what comes back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Definition, FileIndex
from gpulint.index.walk import dotted, walk
from gpulint.script.branches import branches_of
from gpulint.script.frameworks.trainer_calls import Maker, names_of
from gpulint.script.loading.loaders import Loader

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

MAX_DEPTH = 4  # of calls that are followed up
_PREPARES = frozenset(["prepare", "prepare_data_loader"])
_SKIPS = frozenset(["skip_first_batches", "enumerate", "tqdm", "iter"])
# Models whose parts lie on several devices, or whose steps another engine makes.
_APART = (
    *("device_map", "dispatch_model", "prepare_pippy"),
    *("megatron", "deepspeed", "torch_xla"),
)


def prepares(call: ast.Call) -> bool:
    """Whether a call is `accelerator.prepare(…)`, by its names."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in _PREPARES:
        return False
    return "accelerator" in (dotted(func.value) or "").lower()


def uses_accelerator(index: FileIndex) -> bool:
    """Whether a file trains with an accelerator, which it may be given by another."""
    return "ccelerator" in index.source.text and any(
        prepares(call) or is_accelerated(call) for call in index.all(ast.Call)
    )


def is_accelerated(call: ast.Call) -> bool:
    """`accelerator.backward(loss)`, by its names."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "backward" or not call.args:
        return False
    return "accel" in (dotted(func.value) or "").lower()


def forks_later(index: FileIndex) -> bool:
    """Whether a file starts several processes by `notebook_launcher`.

    They are forks, which cannot use CUDA where it was asked for before; Accelerate
    starts none for one GPU, and takes no number for granted.
    """
    for call in index.calls_by_name.get("notebook_launcher", ()):
        given = [k.value for k in call.keywords if k.arg == "num_processes"]
        given += call.args[2:3]
        if any(not isinstance(n, ast.Constant) or n.value != 1 for n in given):
            return True
    return False


def prepared_loaders(script: Script, made: ast.Call | None = None) -> Iterator[Loader]:
    """Loaders that this file gives to `prepare`, of the accelerator `made` if any."""
    found: dict[ast.Call, None] = {}
    for call in script.index.all(ast.Call):
        if prepares(call) and _is_of(script, call, made):
            for argument in call.args:
                origins = script.resolver.origins(argument)
                found.update(dict.fromkeys(o.call for o in origins if o.call))
    for made_at in found:
        loaders = script.of(made_at).loaders
        yield from (loader for loader in loaders if loader.call is made_at)


def _is_of(script: Script, call: ast.Call, made: ast.Call | None) -> bool:
    """Whether an accelerator may be the one that a call prepares with."""
    assert isinstance(call.func, ast.Attribute)
    accelerator = call.func.value
    known = [o.call for o in script.resolver.origins(accelerator) if o.call]
    if made is None or made in known:
        return True
    return not known and not _is_of_base(script, accelerator)


def _is_of_base(script: Script, node: ast.expr) -> bool:
    """Whether an attribute is what a package's class has made: a Trainer's own."""
    owner = script.index.owner(node)
    if not isinstance(node, ast.Attribute) or owner is None:
        return False
    classes = script.resolver.classes.bases(owner)
    homes = [script.index.home(known) for known in classes]
    outside = (
        b for c in classes for b in c.bases if script.resolver.classes.named(b) is None
    )
    return any(True for _ in outside) and not any(
        home.attribute_writes.get(node.attr) for home in homes
    )


def is_prepared(script: Script, node: ast.expr) -> bool:
    """Whether an expression surely is what `prepare` gave back."""
    return bool(preparations(script, node))


def preparations(
    script: Script, node: ast.expr, depth: int = 0
) -> tuple[ast.Call, ...]:
    """The calls of `prepare` that an expression comes from; none if it may not."""
    if isinstance(node, ast.Call):
        if prepares(node):
            return (node,)
        name = (dotted(node.func) or "").rpartition(".")[2]
        if name in _SKIPS and node.args:
            return preparations(script, node.args[0], depth)
        return ()
    if not isinstance(node, (ast.Name, ast.Attribute)) or depth > MAX_DEPTH:
        return ()
    found: dict[ast.Call, None] = {}
    kept = []  # where an attribute gets what it was before `prepare`
    for definition in script.definitions(node):
        calls = _of_definition(script, definition, depth)
        if not calls and isinstance(node, ast.Name):
            return ()
        if not calls:
            kept.append(definition.node)
        found.update(dict.fromkeys(calls))
    given = [call for call in found if _given(call, dotted(node))]
    if any(all(_is_beside(script, place, c) for c in given) for place in kept):
        return ()
    return tuple(found)


def _is_beside(script: Script, node: ast.AST, other: ast.AST) -> bool:
    """Whether two places stand in the two branches of one `if`."""
    index = script.index.home(node)
    taken = dict(branches_of(index, node))
    if index is not script.index.home(other):
        return False
    return any(
        taken.get(branch, holds) is not holds
        for branch, holds in branches_of(index, other)
    )


def _of_definition(
    script: Script, definition: Definition, depth: int
) -> tuple[ast.Call, ...]:
    if definition.kind == "assign" and definition.value is not None:
        return preparations(script, definition.value, depth + 1)
    if definition.kind != "parameter":
        return ()
    arguments = script.index.parent(definition.node)
    function = script.index.parent(arguments) if arguments is not None else None
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return ()
    given = script.resolver.calls.arguments(function, definition.name)
    found: dict[ast.Call, None] = {}
    for argument in given or ():
        its = preparations(script.of(argument), argument, depth + 1)
        if not its:
            return ()
        found.update(dict.fromkeys(its))
    return tuple(found)


def _given(call: ast.Call, name: str | None) -> bool:
    """Whether a thing is prepared under its own name: `x = accelerator.prepare(x)`."""
    return any(dotted(argument) == name for argument in call.args)


def fed_by(script: Script, loop: Loop) -> tuple[ast.Call, ...]:
    """The calls of `prepare` that made what a loop iterates; none if not all are."""
    found: dict[ast.Call, None] = {}
    for iterable, _ in loop.items:
        its = preparations(script, iterable)
        if not its or not all(_moves(script, call) for call in its):
            return ()
        found.update(dict.fromkeys(its))
    return tuple(found)


def may_be_fed(script: Script, loop: Loop) -> bool:
    """Whether a loop takes what `prepare` gave back, or may.

    It may in a function that is given a loader and names an accelerator.
    """
    if fed_by(script, loop):
        return True
    if loop.loaders or not _places(script.index):
        return False
    return any(
        isinstance(node, (ast.Name, ast.Attribute))
        and "accelerator" in (dotted(node) or "").lower()
        for node in walk(loop.node)
    )


def _moves(script: Script, call: ast.Call) -> bool:
    """Whether Accelerate moves the batches of what a call prepares."""
    if any(k.arg in ("device_placement", None) for k in call.keywords):
        return False
    return _places(script.index.home(call))


def _places(index: FileIndex) -> bool:
    """Whether the accelerators that a file makes, if any, surely move batches."""
    made = [c for n in names_of(Maker.ACCELERATOR) for c in index.calls.get(n, ())]
    return not any(c.args or any(map(_leaves, c.keywords)) for c in made)


def _leaves(keyword: ast.keyword) -> bool:
    """Whether an argument of `Accelerator` may leave batches on the host."""
    if keyword.arg == "cpu":
        return isinstance(keyword.value, ast.Constant) and bool(keyword.value.value)
    return keyword.arg in ("device_placement", None)


def sends_models(script: Script) -> bool:
    """Whether the file's models and batches go to the device by `prepare`."""
    if "ccelerator" not in script.source.text:
        return False
    return any(prepares(c) and _moves(script, c) for c in script.index.all(ast.Call))


def accelerator_of(script: Script, loop: Loop) -> ast.expr | None:
    """The accelerator that a loop's steps run with, on one device, as written in it."""
    text = script.source.text.lower()
    if any(word in text for word in _APART):
        return None
    calls = loop.backward or fed_by(script, loop)
    if loop.backward and not all(map(is_accelerated, loop.backward)):
        return None
    for call in calls:
        if script.index.scope(call) is script.index.scope(loop.node):
            assert isinstance(call.func, ast.Attribute)
            return call.func.value
    return None
