"""What a step waits for right behind the copies of its batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index import Function, Target, Where
from gpulint.index.walk import walk
from gpulint.script.copying.creations import creation
from gpulint.script.every_step import EveryStep, Part
from gpulint.script.loading.sent import is_cast
from gpulint.script.reaching.evaluated import evaluated_in
from gpulint.script.reads import SHARES
from gpulint.script.training.evaluation import called_module
from gpulint.script.waiting.drained import (
    is_of_samples,
    is_pass,
    is_single,
    runs_modules,
    runs_with,
)
from gpulint.script.waiting.reading import READS, REDUCES, waiting_in
from gpulint.script.waiting.stops import MEASURING, picks_by_values, runs_engine
from gpulint.script.waiting.timed import starts_measure

if TYPE_CHECKING:
    from gpulint.script.copying.transfers import Transfer
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_TRUTHS = frozenset("isnan isinf isfinite".split())
# They take lists: of a tensor, most would give the same one.
_OF_LISTS = frozenset(
    f"torch.{n}" for n in "tensor Tensor FloatTensor LongTensor DoubleTensor".split()
)
_MAKES = frozenset({"torch.tensor", "torch.as_tensor"})
_DETECTOR = re.compile(
    r"torchvision\.models\.detection\.(\w+\.)?"
    r"(\w*(rcnn|retinanet|ssd|ssdlite|fcos)\w*_\w+|\w*(RCNN|RetinaNet|SSD|FCOS))$"
)
_SETS = frozenset("to cuda train requires_grad_ load_state_dict apply".split())
_KEEPS = ("append", "extend")  # a list, also one of losses: `eval_loss.append(loss)`


def is_next_to_wait(script: Script, transfers: Iterable[Transfer]) -> bool:
    """Whether the host may wait for the stream behind the copies, before a model runs.

    By a copy of something else from ordinary memory, such as a tensor made of a list in
    each step: it takes its turn behind the batch's, queued or not. That may be an index
    of NumPy's, a part of the batch that another function moves, or what the model's
    `forward` begins with. Or by a read, as in `if torch.isnan(images).any():`. It may
    well wait where no model is seen to run behind any of the copies. And it should wait
    before it reads a clock: a copy that is queued would count as the model's time.
    """
    found = list(transfers)
    calls = {transfer.call for transfer in found}
    loop = found[0].loop
    parts = list(EveryStep(script, loop).parts())
    by_key = {name for transfer in found for name in [_moved_by_keys(transfer)] if name}
    numbers = [n for n, part in enumerate(parts) if part.node in calls]
    if not numbers:
        return False
    last = parts[numbers[-1]]
    works = False  # the device may be at work on more than the copies
    for part in parts[numbers[-1] + 1 :]:
        call = part.node if isinstance(part.node, ast.Call) else None
        if call is not None and not works and starts_measure(script, call, loop):
            return runs_with(script, part, last)  # else they count as the model's time
        if call is not None and loop.train and runs_engine(script, call):
            return runs_with(script, part, last)
        if call is not None and is_pass(script, call):
            return runs_with(script, part, last) and _begins_with_wait(script, call)
        waits = call is not None and _copies(script, call)
        waits = waits or _sends_more(script, part, loop)
        waits = waits or picks_by_values(script, part.node)
        waits = waits or (not works and _reads(script, part, loop))
        waits = waits or (not works and _asks_for_part(part, by_key))
        if waits and runs_with(script, part, last):
            return True
        if not works and is_of_samples(script, part) and _fetches(script, part.node):
            return True
        works = works or (call is not None and not is_single(script, call))
    return not any(_runs_model(script, part.node) for part in parts[numbers[0] :])


def _moved_by_keys(transfer: Transfer) -> str | None:
    """`data` of `data[key] = data[key].cuda()`, a move of all its parts in turn."""
    source = transfer.source
    if not isinstance(source, ast.Subscript) or not isinstance(source.slice, ast.Name):
        return None
    return source.value.id if isinstance(source.value, ast.Name) else None


def _asks_for_part(part: Part, names: set[str]) -> bool:
    """`data["seconds"].sum().item()`, of what has been moved by its keys."""
    node = part.node
    func = node.func if isinstance(node, ast.Call) else None
    if part.inner or not names or not isinstance(func, ast.Attribute):
        return False
    root: ast.expr = func.value
    while isinstance(root, ast.Call) and isinstance(root.func, ast.Attribute):
        root = root.func.value
    asked = func.attr in READS and isinstance(root, ast.Subscript)
    return asked and isinstance(root.value, ast.Name) and root.value.id in names  # type: ignore[attr-defined]


def _runs_model(script: Script, node: ast.AST) -> bool:
    """Whether a call runs a model, or a method of one that is not known."""
    if not isinstance(node, ast.Call):
        return False
    func = node.func
    if is_pass(script, node) or not isinstance(func, ast.Attribute):
        return is_pass(script, node)
    own = script.resolver.calls.callee(node) is not None
    known = own or func.attr in _SETS or func.attr in _KEEPS
    return not known and bool(node.args) and script.modules.is_module(func.value)


def _begins_with_wait(script: Script, call: ast.Call) -> bool:
    """Whether the `forward` of all models that a call may run waits first of all.

    Torchvision's detectors do: they copy the mean of their pictures from a list.
    """
    made = [o.call for o in script.resolver.origins(called_module(call))]
    if made and all(c is not None and _is_detector(script, c) for c in made):
        return True
    owners = script.resolver.classes.of(called_module(call))
    methods = [script.resolver.classes.methods(o).get("forward") for o in owners]
    return bool(methods) and all(
        method is not None and _waits_first(script, call, method) for method in methods
    )


def _is_detector(script: Script, made: ast.Call) -> bool:
    """`torchvision.models.detection.fasterrcnn_resnet50_fpn(…)`."""
    while isinstance(made.func, ast.Attribute) and made.func.attr in _SETS:
        if not isinstance(made.func.value, ast.Call):
            break
        made = made.func.value  # of `detector(…).to(device)`
    owner = script.resolver.classes.named(made.func)
    bases = script.resolver.classes.bases(owner) if owner is not None else ()
    named = [made.func, *(base for its in bases for base in its.bases)]
    names = (script.index.home(part).qualified(part) or "" for part in named)
    return any(map(_DETECTOR.match, names))


def _waits_first(script: Script, call: ast.Call, method: Function) -> bool:
    its = script.of(method)
    return _copies_first(its, method) or _reads_first(script, call, method)


def _reads_first(script: Script, call: ast.Call, function: Function) -> bool:
    """Whether a `forward` asks what it is given, before it runs a module.

    `max(lengths)` and `int(index.max())`, of what the call gives it on the device.
    """
    for node in evaluated_in(script.of(function), function.body):
        if not isinstance(node, ast.Call):
            continue
        its = script.of(function)
        if its.modules.is_module(called_module(node)):
            return False
        asked = _asked(node) or _judged(its, node) or _counted(its, node)
        name = _part_of(its, asked) if asked is not None else None
        if name is not None:
            given, _ = script.resolver.calls.given(call, function, name)
            if any(script.where(value) == Where.DEVICE for value in given):
                return True
    return False


def _judged(script: Script, call: ast.Call) -> ast.expr | None:
    """`x` of `if x.isnan().any():`, `assert x.max() < 8`, which ask what it holds."""
    above = script.index.parent(call)
    if isinstance(above, ast.Compare):
        above = script.index.parent(above)
    if not isinstance(above, (ast.If, ast.Assert)) or call.args:
        return None
    asked: ast.expr = call
    while isinstance(asked, ast.Call) and isinstance(asked.func, ast.Attribute):
        if asked.func.attr not in REDUCES | _TRUTHS or asked.args:
            return None
        asked = asked.func.value
    return asked if asked is not call else None


def _counted(script: Script, call: ast.Call) -> ast.expr | None:
    """`x` of `x.nonzero()` and `torch.unique(x)`, as large as its values say."""
    func = call.func
    asked: ast.expr | None = None
    name = script.index.qualified(func) or ""
    if name in MEASURING:
        joins = name == "torch.where" and len(call.args) > 1
        asked = call.args[0] if call.args and not joins else None
    elif isinstance(func, ast.Attribute) and func.attr != "where":
        asked = func.value if f"torch.{func.attr}" in MEASURING else None
    while isinstance(asked, ast.Call) and isinstance(asked.func, ast.Attribute):
        if asked.func.attr not in SHARES:
            return None
        asked = asked.func.value
    return asked


def _part_of(script: Script, node: ast.expr) -> str | None:
    """The parameter that a name is, or is a part of: `index = data.batch`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    made = script.definitions(node)
    if made and all(d.kind == "parameter" for d in made):
        return node.id
    value = made[0].value if len(made) == 1 and made[0].kind == "assign" else None
    taken = isinstance(value, (ast.Attribute, ast.Subscript))
    return _part_of(script, value) if taken and value is not None else None


def _asked(call: ast.Call) -> ast.expr | None:
    """`x`, which `max(x)`, `int(x.max())` or `x.max().item()` asks for its values."""
    func = call.func
    if isinstance(func, ast.Attribute):
        asked = func.value if func.attr in READS and not call.args else None
    else:
        named = isinstance(func, ast.Name) and func.id in ("max", "min", "int", "float")
        asked = call.args[0] if named and len(call.args) == 1 else None
    if isinstance(asked, ast.Call) and isinstance(asked.func, ast.Attribute):
        asked = asked.func.value if asked.func.attr in REDUCES else None
    return asked if isinstance(asked, (ast.Name, ast.Attribute)) else None


def _copies_first(script: Script, function: Function, depth: int = 1) -> bool:
    """Whether a function copies from the host before it runs a module, in any case."""
    for node in evaluated_in(script, function.body):
        if isinstance(node, ast.Subscript) and _picks_by_list(script, node):
            return True
        if not isinstance(node, ast.Call):
            continue
        if script.modules.is_module(called_module(node)):
            return False
        if _copies(script, node):
            return True
        inner = script.resolver.calls.callee(node) if depth else None
        if inner is None:
            continue
        if _copies_first(script.of(inner), inner, depth - 1):
            return True
        if runs_modules(script.of(inner), inner):
            return False
    return False


def _picks_by_list(script: Script, node: ast.Subscript) -> bool:
    """`x[:, self.channels]`, of a list that is made a tensor on the host each time."""
    if not isinstance(node.ctx, ast.Load) or not isinstance(node.slice, ast.Tuple):
        return False
    if script.where(node.value) in (Where.HOST, Where.PLAIN):
        return False
    return any(
        bool(origins)
        and all(isinstance(o.expression, (ast.List, ast.ListComp)) for o in origins)
        for part in node.slice.elts
        if isinstance(part, (ast.Name, ast.Attribute))
        for origins in [script.resolver.origins(part)]
    )


def _sends_more(script: Script, part: Part, loop: Loop) -> bool:
    """Whether another file's function moves a part of the batch, and nothing says so.

    `texts.detach().to(self.device)`, of what the loop hands on as it comes.
    """
    call, its = part.node, script.of(part.node)
    move = its.devices.move(call) if isinstance(call, ast.Call) else None
    if move is None or move.non_blocking is not None or move.target is Target.CPU:
        return False
    root: ast.expr = move.receiver
    while isinstance(root, ast.Call) and isinstance(root.func, ast.Attribute):
        root = root.func.value
    if part.call is None or part.helper is None or not isinstance(root, ast.Name):
        return False
    if any(d.kind != "parameter" for d in its.definitions(root)):
        return False
    given, clear = script.resolver.calls.given(part.call, part.helper, root.id)
    return (
        clear
        and len(given) == 1
        and script.batches.loop_of(given[0]) is loop
        and script.where(given[0]) == Where.HOST
        and call not in {transfer.call for transfer in its.transfers}
    )


def _reads(script: Script, part: Part, loop: Loop) -> bool:
    """Whether a part surely waits for a value."""
    waits = waiting_in(script, part, loop)
    return any(not _may_be_left_out(script, node) for node, _ in waits)


def _fetches(script: Script, node: ast.AST) -> bool:
    """`images[i].cpu()`, which an evaluation that only saves pictures waits for."""
    func = node.func if isinstance(node, ast.Call) else None
    fetches = isinstance(func, ast.Attribute) and func.attr in READS
    return fetches and script.where(func.value) == Where.DEVICE  # type: ignore[union-attr]


def _may_be_left_out(script: Script, node: ast.AST) -> bool:
    """Whether another part of an `and` or `or` decides if an expression is asked."""
    for above in script.of(node).index.ancestors(node):
        if isinstance(above, ast.BoolOp) and node is not above.values[0]:
            return True
        if isinstance(above, ast.stmt):
            break
        node = above
    return False


def _copies(script: Script, call: ast.Call) -> bool:
    """Whether a call copies what surely lies in ordinary memory, and waits.

    Nothing of the batch, which may be queued as well, but what is made anew of its
    lists or cast to a type of the host, and nothing that the device could have made
    itself.
    """
    if _is_written_there(script.of(call), call):
        return True
    move = script.devices.move(call)
    if move is None or move.target is Target.CPU or move.non_blocking is not None:
        return False
    its = script.of(call)
    if its.where(move.receiver) != Where.HOST or creation(its, move.receiver):
        return False
    source = move.receiver
    func = source.func if isinstance(source, ast.Call) and source.args else None
    if func is not None and its.index.qualified(func) in _OF_LISTS:
        return True  # `torch.tensor(batch["labels"]).to(device)`
    if is_cast(its, source):
        return True
    names = (n for n in walk(move.receiver) if isinstance(n, ast.Name))
    return all(its.batches.loop_of(name) is None for name in names)


def _is_written_there(script: Script, call: ast.Call) -> bool:
    """`torch.tensor([0.485, 0.456, 0.406], device=x.device)`, copied from the host."""
    values = call.args[0] if call.args else None
    if not isinstance(values, (ast.List, ast.Tuple)) or not values.elts:
        return False
    makes = script.index.qualified(call.func) in _MAKES
    return makes and script.where(call) == Where.DEVICE
