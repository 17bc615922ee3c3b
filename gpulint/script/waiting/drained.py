"""Waits that are over before, or only moved by, the reads that a program needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpulint.index import Function, Where
from gpulint.index.build import last_name
from gpulint.index.walk import COMPREHENSIONS, LOOPS, dotted, walk, walk_scope
from gpulint.script.branches import Branches, cover
from gpulint.script.every_step import Part
from gpulint.script.given import is_always_given
from gpulint.script.neighbours import run_together
from gpulint.script.reaching.evaluated import evaluated_in
from gpulint.script.reaching.switches import is_off
from gpulint.script.reads import SHARES
from gpulint.script.training.evaluation import called_module
from gpulint.script.training.step_calls import is_backward, is_step
from gpulint.script.training.training_step import is_loss
from gpulint.script.waiting.reading import REDUCES

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_FETCHES = frozenset("item tolist cpu numpy".split())
DEVICES = frozenset(f"torch.{d}" for d in "cuda mps xpu accelerator".split())
ON_THE_HOST = frozenset(
    "float int bool str repr print len range zip enumerate list math numpy hasattr "
    "getattr isinstance wandb mlflow".split()
)
_SAMPLES = re.compile(r"\.(size\(0\)|shape\[0\])$")
# What a step does beside its models that waits for nothing: lists, scalers, bars, logs.
_QUICK = re.compile(
    r"^(append|extend|scale|scale_loss|astype|set_postfix|set_description)$"
    r"|(?<=[a-z])_$|(^|_)(log|logs|logger|logging|print|display|callbacks?)(_|$)"
)
_OPTIMIZES = re.compile(r"scaler|optimi[sz]er", re.IGNORECASE)
ROUNDS = (*LOOPS, *COMPREHENSIONS)
MAX_CALLS = 2  # of own functions, one in the other


def is_drained(
    script: Script,
    loop: Loop,
    parts: Sequence[Part],
    number: int,
    value: ast.expr,
    reads: Iterable[Part],
) -> bool:
    """Whether a read before a part has waited for all that its value is made of.

    The device works in order: once the host has one result, it has all queued earlier.
    But it waits again for what a pass has queued since, as the copy stands behind it.
    """
    base, part = value, parts[number]
    while isinstance(base, (ast.Attribute, ast.Subscript)) and not _calls(base):
        base = base.value
    if not isinstance(base, ast.Name):
        return False
    made = script.definitions(base)
    if not made or any(d.kind not in ("assign", "augment") for d in made):
        return False
    inside = [d.node for d in made if script.index.inside(d.node, loop.node)]
    before = [
        read
        for read in reads
        if (_is_beside(read, part) or _is_of_round(script, read, part))
        and _stands_before(read.node, part.node)
        and all(_stands_before(n, read.node) for n in inside)
        and not _passes_between(script, parts, read, number)
    ]
    return cover((_ways(script, read) for read in before), part.branches)


def _passes_between(
    script: Script, parts: Sequence[Part], read: Part, number: int
) -> bool:
    """Whether a model runs, forward or backward, between a read and a part.

    Not on the other side of a branch on one of whose sides the read stands.
    """
    others = {(branch, not holds) for branch, holds in read.branches}
    for between in reversed(parts[:number]):
        if between.node is read.node:
            return False
        if others.isdisjoint(between.branches) and (
            isinstance(between.node, ast.Call) and is_pass(script, between.node)
        ):
            return True
    return False


def is_read_again(
    script: Script, parts: Sequence[Part], number: int, reads: Iterable[Part]
) -> bool:
    """Whether a read waits at the same point of the step as one of its parts does.

    No model runs from the part on until the read, or until both of two branches read,
    which would wait for all that the part waits for, and for a few kernels more.
    """
    part = parts[number]
    later = {} if part.inner else {read.node: read for read in reads}
    ways: list[Branches] = []
    for between in parts[number + 1 :] if later else ():
        read = later.get(between.node)
        if read is not None:
            ways.append(_ways(script, read))
            if runs_with(script, read, part) or cover(ways, part.branches):
                return True
        elif isinstance(between.node, ast.Call) and is_pass(script, between.node):
            return False
    return False


def is_all_but_drained(
    script: Script, parts: Sequence[Part], number: int, reads: Iterable[Part]
) -> bool:
    """Whether a read before a part has waited for the step's work but for a loss.

    From the read on no model runs, forward or backward: a loss of what it gave is done
    before the host asks for it.
    """
    part = parts[number]
    earlier = {r.node for r in reads if runs_with(script, r, part)}
    for before in reversed(parts[:number] if earlier else ()):
        if before.node in earlier:
            return True
        if isinstance(before.node, ast.Call) and is_pass(script, before.node):
            return False
    return False


def follows_own_read(script: Script, parts: Sequence[Part], number: int) -> bool:
    """Whether the model that ran last before a part has waited in its `forward`.

    Behind all its layers, such as for the accuracy that it gives beside the loss. Or
    the loss has: `number = matched.sum() if matched.sum() > 0 else batch`.
    """
    for before in reversed(parts[:number]):
        call = before.node
        if not isinstance(call, ast.Call):
            continue
        loss = is_loss(script, called_module(call))
        ends = is_pass(script, call) or (loss and _runs_network(script, call))
        if (ends or loss) and (
            runs_with(script, before, parts[number]) and _ends_with_read(script, call)
        ):
            return True
        if ends:
            return False
    return False


def _ends_with_read(script: Script, call: ast.Call) -> bool:
    owners = script.resolver.classes.of(called_module(call))
    methods = [script.resolver.classes.methods(o).get("forward") for o in owners]
    return bool(methods) and all(
        method is not None and _waits_at_last(script.of(method), method)
        for method in methods
    )


def _waits_at_last(script: Script, function: Function, depth: int = 1) -> bool:
    """Whether a function surely reads a number behind the last module that it runs."""
    waits = False
    for node in evaluated_in(script, function.body):
        if not isinstance(node, ast.Call):
            continue
        inner = script.resolver.calls.callee(node) if depth else None
        if _computes_loss(script, node):
            continue
        if script.modules.is_module(called_module(node)):
            waits = False
        elif (last_name(node) == "item" and not node.args) or _is_tested(script, node):
            waits = True
        elif inner is not None:
            its = script.of(inner)
            again = _waits_at_last(its, inner, depth - 1)
            waits = again or (waits and not runs_modules(its, inner))
    return waits


def _computes_loss(script: Script, call: ast.Call) -> bool:
    """`functional.mse_loss(…)`, a few kernels, and not a module of the project's."""
    name = script.index.qualified(call.func) or ""
    return name.startswith("torch.nn.functional.") and is_loss(script, call.func)


def _runs_network(script: Script, call: ast.Call) -> bool:
    """Whether a loss runs modules, such as layers of a network, or is not known."""
    callee = called_module(call)
    made = [o.call for o in script.resolver.origins(callee)]
    names = [script.index.qualified(c.func) or "" for c in made if c is not None]
    known = len(names) == len(made) > 0
    if known and all(name.startswith("torch.nn.") for name in names):
        return False
    owners = script.resolver.classes.of(callee)
    methods = [script.resolver.classes.methods(o).get("forward") for o in owners]
    return not methods or any(
        method is None or runs_modules(script.of(method), method) for method in methods
    )


def _is_tested(script: Script, call: ast.Call) -> bool:
    """`matched.sum() > 0`, which a branch asks for, of what is on the device."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in REDUCES or call.args:
        return False
    above = script.index.parent(call)
    if not isinstance(above, ast.Compare):
        return False
    asks = script.index.parent(above)
    asked = isinstance(asks, (ast.If, ast.IfExp, ast.While)) and asks.test is above
    return asked and script.where(func.value) == Where.DEVICE


def runs_modules(script: Script, function: Function) -> bool:
    """Whether a function itself runs a module."""
    calls = (node for node in walk_scope(function) if isinstance(node, ast.Call))
    return any(script.modules.is_module(called_module(call)) for call in calls)


def follows_stop(
    script: Script,
    parts: Sequence[Part],
    number: int,
    stops: Iterable[Part],
    surely: bool = True,
) -> bool:
    """Whether the host has waited before a part, which reads once, for most of a step.

    From one of the stops on only single operations are queued: in a loop of the step
    from one in the same round, if that runs a model. If not `surely`, also from one
    under a condition, and with more work under others.
    """
    part = parts[number]
    turns = _turning(script, part.node) if part.inner else None
    called = (n for n in walk(turns) if isinstance(n, ast.Call)) if turns else ()
    if part.inner and not any(is_pass(script, call) for call in called):
        return False

    def comes_first(stop: Part) -> bool:
        if turns is None:
            return not surely or runs_with(script, stop, part)
        same = _turning(script, stop.node) is turns
        return same and cover([_ways(script, stop)], part.branches)

    earlier = {stop.node for stop in stops if comes_first(stop)}
    for before in reversed(parts[:number] if earlier else ()):
        if before.node in earlier:
            return True
        call = before.node if isinstance(before.node, ast.Call) else None
        if call is None or _is_little(script, call):
            continue
        if surely or runs_with(script, before, part):
            return False
    return False


def precedes_stop(
    script: Script, parts: Sequence[Part], number: int, stops: Iterable[Part]
) -> bool:
    """Whether the host waits behind a part as long, at one of the stops.

    Between them only single operations are queued.
    """
    part = parts[number]
    if part.inner:
        return False
    later = {stop.node for stop in stops if runs_with(script, stop, part)}
    for behind in parts[number + 1 :] if later else ():
        if behind.node in later:
            return True
        if isinstance(behind.node, ast.Call) and not _is_little(script, behind.node):
            return False
    return False


def _is_little(script: Script, call: ast.Call) -> bool:
    """Whether a call queues one operation at most, or a loss, and no pass."""
    if is_backward(call) or is_step(call):
        return False
    return is_single(script, call) or is_loss(script, call.func)


def is_single(script: Script, call: ast.Call) -> bool:
    """Whether a call queues one operation of torch at most.

    What the project's own functions do is looked at for itself.
    """
    func = call.func
    name = script.index.qualified(func) or ""
    if script.devices.move(call) is not None:
        return True
    if script.resolver.calls.callee(call) is not None or name.startswith("torch."):
        return not is_pass(script, call)
    on_tensor = isinstance(func, ast.Attribute) and Where.DEVICE in script.where(
        func.value
    )
    return on_tensor or not queues(script, call)


def _turning(script: Script, node: ast.AST) -> ast.AST | None:
    """The innermost loop around a node, or comprehension."""
    above = script.of(node).index.ancestors(node)
    return next((a for a in above if isinstance(a, ROUNDS)), None)


def stands_clear(script: Script, parts: Sequence[Part], number: int) -> bool:
    """Whether the step is seen to wait for nothing behind a part, until a model runs.

    Up to the next pass, or the end of the step, no object that is not known is given
    what may be on the device: it may wait as long. Losses do not, nor does a list. In a
    loop inside the step that goes for each of its rounds.
    """
    here = parts[number].node
    around = {here, *walk(here), *script.of(here).index.ancestors(here)}
    turns = _turning(script, here) if parts[number].inner else None
    of_round = set(walk(turns)) if turns is not None else None
    for part in parts[number:]:
        call = part.node
        if call in around or not isinstance(call, ast.Call):
            continue
        if of_round is not None and call not in of_round:
            continue
        if is_pass(script, call) or _OPTIMIZES.search(dotted(call.func) or ""):
            return True
        if not (is_single(script, call) or _is_quick(script, call)):
            return False
    return True


def follows_hidden_read(script: Script, parts: Sequence[Part], number: int) -> bool:
    """Whether a call of an object that is not known may have waited before a part.

    From that call on no model runs. It is given what may be on the device, and a method
    of its name in the program reads: `info = self.engine.summary(outputs)`.
    """
    for before in reversed(parts[:number]):
        call = before.node
        if not isinstance(call, ast.Call):
            continue
        if is_pass(script, call):
            return False
        if runs_with(script, before, parts[number]) and _may_read(script, call):
            return True
    return False


def forced_beside(
    script: Script, parts: Sequence[Part], number: int
) -> Iterator[tuple[ast.Call, ast.Call]]:
    """The `torch.cuda.synchronize()` next to a part, and where the loop shows it.

    Nothing is queued between them: one fetches what the host waits for in the other.
    """
    if parts[number].inner:
        return
    for others in (reversed(parts[:number]), parts[number + 1 :]):
        for other in others:
            call = other.node
            if isinstance(call, ast.Call) and is_synchronize(script, call):
                if runs_with(script, other, parts[number]):
                    yield call, other.call or call
                break
            if queues(script, call) or (
                isinstance(call, ast.Call) and is_pass(script, call)
            ):
                break


def is_synchronize(script: Script, call: ast.Call) -> bool:
    """`torch.cuda.synchronize()` and its kin for other devices."""
    head, _, last = (script.index.qualified(call.func) or "").rpartition(".")
    return last == "synchronize" and head in DEVICES


def _may_read(script: Script, call: ast.Call) -> bool:
    func = call.func
    its = script.of(call)
    if not isinstance(func, ast.Attribute) or its.resolver.calls.callees(call):
        return False
    on_host = Where.PLAIN | Where.HOST
    if not any(its.where(value) & ~on_host for value in call.args):
        return False
    return any(map(_reads, _functions_named(script, func.attr)))


def _is_quick(script: Script, call: ast.Call) -> bool:
    """Whether an unknown call says by its name that it waits for nothing.

    Or a method has the name of some of the program's, none of which reads.
    """
    if _QUICK.search(last_name(call) or "") or is_loss(script, call.func):
        return True
    if any(map(script.modules.is_module, call.args)):
        return True  # `average.update(model)`
    if script.devices.move(call) is not None:
        return True  # reported by itself
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else ""
    named = list(_functions_named(script, name)) if name else []
    return bool(named) and not any(map(_reads, named))


def _functions_named(script: Script, name: str) -> Iterator[ast.FunctionDef]:
    """The program's functions and methods of a name."""
    for index in run_together(script):
        if f"def {name}(" in index.source.text:
            for function in index.all(ast.FunctionDef):
                if function.name == name:
                    yield function


def _reads(function: ast.FunctionDef) -> bool:
    inside = (node for node in walk(function) if isinstance(node, ast.Call))
    return any(last_name(call) in _FETCHES - {"numpy"} for call in inside)


def is_pass(script: Script, call: ast.Call) -> bool:
    """Whether a call runs a model, forward or backward, or an optimizer's step."""
    if is_backward(call) or is_step(call):
        return True
    callee = called_module(call)
    return script.modules.is_module(callee) and not is_loss(script, callee)


def queues(script: Script, node: ast.AST, depth: int = MAX_CALLS) -> bool:
    """Whether an expression may give the device work, other than copies and views.

    A call of the project's own function, so many deep, where something in it does.
    """
    if isinstance(node, ast.Call):
        function = script.resolver.calls.callee(node) if depth > 0 else None
        if function is not None:
            its = script.of(function)
            return any(queues(its, inner, depth - 1) for inner in walk_scope(function))
        return _may_run(script, node)
    if isinstance(node, ast.BinOp):
        return Where.DEVICE in script.where(node)
    if isinstance(node, (ast.AugAssign, ast.UnaryOp, ast.Compare)):
        return any(Where.DEVICE in script.where(n) for n in _operands(node))
    return isinstance(node, ast.Subscript) and Where.DEVICE in script.where(node.slice)


def _operands(node: ast.AugAssign | ast.UnaryOp | ast.Compare) -> list[ast.expr]:
    if isinstance(node, ast.AugAssign):
        return [node.value]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    return [node.left, *node.comparators]


def _may_run(script: Script, call: ast.Call) -> bool:
    """Whether a call is given something that may be on the device, or is a model."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in _FETCHES | SHARES:
        return False
    name = script.index.qualified(func) or ""
    if name.partition(".")[0] in ON_THE_HOST:
        return False
    if script.where(call) == Where.PLAIN and script.resolver.calls.callee(call) is None:
        return False  # `x.size(0)`
    given = [*call.args, *(k.value for k in call.keywords)]
    if isinstance(func, ast.Attribute) and Where.DEVICE in script.where(func.value):
        return True
    on_host = Where.PLAIN | Where.HOST
    return script.modules.is_module(func) or any(
        script.where(value) & ~on_host for value in _listed(given)
    )


def _listed(values: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """Some values, and of those that are dicts and lists as written what is in them."""
    for value in values:
        if isinstance(value, ast.Dict):
            yield from _listed(value.values)
        elif isinstance(value, (ast.List, ast.Tuple)):
            yield from _listed(value.elts)
        else:
            yield value


def _calls(node: ast.expr) -> bool:
    """Whether an expression computes an index of its own."""
    return isinstance(node, ast.Subscript) and any(
        isinstance(n, ast.Call) for n in walk(node.slice)
    )


def runs_with(script: Script, read: Part, part: Part) -> bool:
    """Whether a read runs in every step in which a part does."""
    return any_runs_with(script, [read], part)


def any_runs_with(script: Script, reads: Iterable[Part], part: Part) -> bool:
    """Whether one of some reads runs in every step in which a part does.

    In its function, or in one that the step calls beside it.
    """
    ways = (
        _ways(script, read)
        for read in reads
        if _is_beside(read, part) or (part.helper is None and not read.inner)
    )
    return cover(ways, part.branches)


def _is_beside(read: Part, part: Part) -> bool:
    """Whether a read stands in the same function as a part, and in no loop of it."""
    same = read.helper is part.helper and read.call is part.call
    return same and not read.inner


def _is_of_round(script: Script, read: Part, part: Part) -> bool:
    """Whether each round that comes to a part makes a read that stands in a loop.

    Or the read's loop makes a round for each sample of a batch, and ends before.
    """
    if read.helper is not part.helper or read.call is not part.call:
        return False
    around = [_loop_around(script, each) for each in (read, part)]
    if around[0] is around[1]:
        return isinstance(around[0], LOOPS)
    return not part.inner and is_of_samples(script, read)


def _loop_around(script: Script, part: Part) -> ast.AST | None:
    above = script.index.home(part.node).ancestors(part.node)
    return next((a for a in above if isinstance(a, ROUNDS)), None)


def is_of_samples(script: Script, part: Part) -> bool:
    """Whether a part stands in `for i in range(outputs.size(0))`, or of `.shape[0]`."""
    loop = _loop_around(script, part)
    call = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(call, ast.Call) or dotted(call.func) != "range":
        return False
    counts = len(call.args) == 1 and _SAMPLES.search(ast.unparse(call.args[0]))
    return part.inner and bool(counts)


def _ways(script: Script, read: Part) -> Branches:
    """The conditions of a read that may fail.

    Not that of the `else` of an option that is off by default, or of `scaler is None`
    where all callers give one.
    """
    return tuple(
        (branch, holds)
        for branch, holds in read.branches
        if not isinstance(branch, (ast.If, ast.IfExp))
        or not (
            is_always_given(script, branch.test, not holds)
            or (not holds and is_off(script, branch.test))
            or (holds and _asks_for_gpu(script, branch.test))
        )
    )


def _asks_for_gpu(script: Script, test: ast.expr) -> bool:
    """`torch.cuda.is_available()`, where a step may wait for a device."""
    called = test.func if isinstance(test, ast.Call) else None
    name = script.index.home(test).qualified(called) if called is not None else None
    return name == "torch.cuda.is_available"


def _stands_before(node: ast.AST, other: ast.AST) -> bool:
    return _place(node) < _place(other)


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
