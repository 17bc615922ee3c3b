"""Code that names the device of a script: to test it, and to hand it on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import Move, Origin, Where
from gpulint.index.walk import FUNCTIONS, dotted, is_text
from gpulint.script.loops import Loop
from gpulint.script.set_before import is_set_at, means_the_same

if TYPE_CHECKING:
    from gpulint.script.model import Script

_MAYBE_NONE = "torch.accelerator.current_accelerator"


def device_condition(
    script: Script, device: ast.expr | None
) -> tuple[str, tuple[str, ...]]:
    """Code that is true on CUDA: `device.type == "cuda"`, and imports it needs."""
    torch, imports = script.names.torch
    if device is None:
        return f"{torch}.cuda.is_available()", imports
    if script.devices.is_surely_cuda(device):
        return "True", ()
    text = script.text(device)
    if is_torch_device(script, device) and not _others_give(script, device):
        return f'{text}.type == "cuda"', ()
    names = _names_of_devices(script, device)
    if names:
        exact = all(":" not in name for name in names)
        return f'{text} == "cuda"' if exact else f'{text}.startswith("cuda")', ()
    asks = f'{torch}.device({text}).type == "cuda"'
    if may_be_none(script, device):
        return f"{text} is not None and {asks}", imports
    return asks, imports


def _names_of_devices(script: Script, device: ast.expr) -> list[str]:
    """What a device may be if it is a text of the program's own: `"cuda"`, `"cpu"`."""
    values = script.evaluator.values(device)
    names = [value.constant for value in values.known if not value.default]
    texts = [name for name in names if isinstance(name, str)]
    whole = values.complete and len(texts) == len(values.known)
    return texts if whole and isinstance(device, (ast.Name, ast.Attribute)) else []


def may_be_none(script: Script, device: ast.expr) -> bool:
    """Whether a device is None on some path, and the script does not ask first.

    A question counts for nothing under a condition that the use is not under.
    """
    name = dotted(device)
    none = any(_is_none(script, o) for o in script.resolver.origins(device))
    if name is None:  # `config["device"]`, of which it is not looked who asks
        known = script.evaluator.values(device).known
        return none or any(value.constant is None for value in known)
    if not none:
        return False
    scope = script.index.scope(device)
    around = set(script.index.ancestors(device))
    return not any(
        dotted(node) == name
        and _asks(script.index.parent(node), node)
        and script.index.scope(node) is scope
        and around.issuperset(_conditions(script, node))
        for node in script.index.all(type(device))
    )


def _conditions(script: Script, question: ast.AST) -> Iterator[ast.AST]:
    """The statements that decide whether a question is asked at all."""
    below = question
    for above in script.index.ancestors(question):
        if isinstance(above, FUNCTIONS):
            return
        if isinstance(above, (ast.If, ast.While)) and below is not above.test:
            yield above
        below = above


def _asks(above: ast.AST | None, device: ast.AST) -> bool:
    """`device is None`, `if device`, `device or "cpu"`; not `device == "cpu"`."""
    if isinstance(above, ast.Compare):
        sides = (above.left, *above.comparators)
        return any(isinstance(s, ast.Constant) and s.value is None for s in sides)
    if isinstance(above, (ast.If, ast.IfExp)):
        return above.test is device
    return isinstance(above, (ast.UnaryOp, ast.BoolOp))


def _is_none(script: Script, origin: Origin) -> bool:
    """None, or what torch gives where there is no accelerator."""
    if isinstance(origin.node, ast.Constant):
        return origin.node.value is None
    made = origin.call
    return made is not None and (
        script.index.home(made).qualified(made.func) == _MAYBE_NONE
    )


def device_at(script: Script, at: ast.AST, loops: Iterable[Loop]) -> ast.expr | None:
    """The device to which loops move their batches, if it can be named at `at`.

    None when there is no move, several devices, or the name means nothing there: the
    number of a GPU that may be missing, as where `if cuda:` stands before a move.
    """
    moves = [move for move in script.moves_in(loops) if move.device is not None]
    devices = {script.text(m.device): m.device for m in moves if m.device is not None}
    if len(devices) != 1:
        return None
    device = next(iter(devices.values()))
    if any(may_be_missing(script, move) for move in moves):
        return None
    if not script.index.holds(device) and not isinstance(device, ast.Constant):
        return None
    if means_the_same(script, device, at):
        return device if is_set_at(script, device, at) else None
    return _handed(script, at, moves)


def _handed(script: Script, at: ast.AST, moves: Iterable[Move]) -> ast.expr | None:
    """`self.device` of `infer(model, loader, self.device)`, whose loop moves to it.

    The function must be called from where `at` stands alone, and keep its parameter.
    """
    scope = script.index.scope(at)
    found: dict[str, ast.expr] = {}
    for move in moves:
        device, function = move.device, script.index.function(move.call)
        if function is None or not isinstance(device, ast.Name):
            return None
        if any(d.kind != "parameter" for d in script.definitions(device)):
            return None
        calls = script.resolver.calls.callers(function)
        if not calls or any(script.index.scope(call) is not scope for call in calls):
            return None
        for call in calls:
            given, clear = script.resolver.calls.given(call, function, device.id)
            if not clear or len(given) != 1:
                return None
            found[script.text(given[0])] = given[0]
    device = next(iter(found.values()), None) if len(found) == 1 else None
    if device is None or not means_the_same(script, device, at):
        return None
    return device if is_set_at(script, device, at) else None


def is_guarded(script: Script, move: Move) -> bool:
    """Whether a move stands behind a test: `if args.cuda: x = x.cuda()`."""
    for above in script.index.ancestors(move.call):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(above, (ast.If, ast.IfExp)):
            test = ast.unparse(above.test)
            if "__name__" not in test:
                return True
    return False


def may_be_missing(script: Script, move: Move) -> bool:
    """Whether a move may name, behind a test, what a machine without a GPU lacks.

    `if cuda: x = x.to(rank)`, where `torch.device(0)` raises without one.
    """
    if move.device is None or not is_guarded(script, move):
        return False
    return not _names_one(script, move.device)


def _names_one(script: Script, device: ast.expr) -> bool:
    """Whether `torch.device(…)` takes it on every machine: a device, or its name."""
    origins = script.resolver.origins(device)
    return bool(origins) and all(
        o.expression is not None
        and (_makes_device(script, o.expression) or is_text(o.expression))
        for o in origins
    )


def is_torch_device(script: Script, node: ast.expr) -> bool:
    """Whether an expression is proven to be a `torch.device` on every path."""
    origins = script.resolver.origins(node)
    return bool(origins) and all(
        o.expression is not None and _makes_device(script, o.expression)
        for o in origins
    )


def _others_give(script: Script, device: ast.expr) -> bool:
    """Whether callers that are not seen may give a device, perhaps by its name.

    In a package, which others may import, unless it is made right there.
    """
    project, folder = script.index.project, script.source.path.parent
    if project is None or not project.is_file(folder / "__init__.py"):
        return False
    made = script.definitions(device)
    return not made or not all(
        d.value is not None and _makes_device(script, d.value) for d in made
    )


def _makes_device(script: Script, node: ast.expr) -> bool:
    """`torch.device(…)`, `runtime.device()`, or the `device` of a tensor."""
    if isinstance(node, ast.Call):
        name = script.index.qualified(node.func) or ""
        return name == "torch.device" or name.endswith("runtime.device")
    if isinstance(node, ast.Attribute) and node.attr == "device":
        return bool(script.where(node.value) & (Where.HOST | Where.DEVICE))
    return False
