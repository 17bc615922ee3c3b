"""Where a step of a loop makes the host wait for a value on the device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function, Target, Where
from gpulint.index.walk import dotted, walk
from gpulint.script.branches import Branches, all_of, branches_of
from gpulint.script.every_step import EveryStep, Part, is_latch
from gpulint.script.loading.prepared import sends_models
from gpulint.script.neighbours import run_together
from gpulint.script.training.evaluation import called_module
from gpulint.script.training.losses import differentiated
from gpulint.script.training.training_step import is_loss
from gpulint.script.waiting.drained import (
    follows_hidden_read,
    forced_before,
    is_all_but_drained,
    is_drained,
    is_read_again,
)
from gpulint.script.waiting.members import SAME_PLACE, member_on_device
from gpulint.script.waiting.timed import measures_time

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_SCALARS = frozenset("float int bool str repr format math.isnan math.isfinite".split())
_PHASE = re.compile(r"(^|[._])(phase|mode|stage|split)$")
_PHASES = re.compile(r"(train)|val|test|eval|infer", re.IGNORECASE)
_METER_OF_TIMES = re.compile(r"(?:^|[._])time\.(?:val|value|avg|average|sum|total)$")
_MADE_A_LIST = re.compile(r"not isinstance\(\w+, (list|tuple|\(list, tuple\))\)$")
_READS = frozenset("item tolist cpu".split())  # `numpy` of a GPU's tensor raises
_LOGS = frozenset("add_scalar add_scalars add_histogram set_postfix".split())
SHOWN = 3  # waits named in a message
MAX_NAMES = 3  # between a wait and a test of what it reads
_TENSOR_TESTS = frozenset("torch.equal torch.allclose torch.is_nonzero".split())
_METADATA = "._meta["
_PLAIN = frozenset("str int float bool".split())
_TRUTHS = frozenset("any all isnan isinf isfinite gt lt ge le eq ne".split())
_SAVES = re.compile(r"^(save|savez|dump|imsave|imwrite|savefig|savetxt|to_csv)|^save_")
_ENVIRONMENT = re.compile(r"(^|_)(envs?|environments?|gym)\d*$|_envs?_", re.IGNORECASE)


class Wait(NamedTuple):
    """An expression that waits for `value`.

    `at` is where to show it: the expression, or the f-string that holds it (`ast`
    places what is inside one differently from version to version); the call that leads
    there where it stands in another file. Not `sure`: a call before it may have waited.
    """

    node: ast.expr
    value: ast.expr
    at: ast.expr
    inner: bool
    helper: Function | None
    branches: Branches = ()
    sure: bool = True

    @property
    def rank(self) -> tuple[bool, bool, int, int]:
        """Sort key: inner loops first, then the loop's own body, then the order."""
        outside = self.helper is not None
        return (not self.inner, outside, self.at.lineno, self.at.col_offset)


def named(script: Script, waits: list[Wait]) -> str:
    """The texts of some waits, of many the first, for a message."""
    texts = list(dict.fromkeys(short(script.text(w.node)) for w in waits))
    more = ", …" if len(texts) > SHOWN else ""
    return ", ".join(f"`{t}`" for t in texts[:SHOWN]) + more


def short(text: str) -> str:
    """A piece of code in one line of a message, cut off where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "…"


def find_waits(script: Script, loop: Loop) -> list[Wait]:
    """The waits in each step of a training or evaluation loop, worst first.

    None in a loop that waits anyway: one that acts in an environment, or measures
    time around `synchronize()`.
    """
    parts = list(EveryStep(script, loop).parts())
    calls = [p.node for p in parts if isinstance(p.node, ast.Call)]
    if acts(calls) or measures_time(script, calls):
        return []
    collected: list[Part] = []
    waiting: list[tuple[int, ast.expr, ast.expr]] = []
    for number, part in enumerate(parts):
        collects = loop.eval and _is_collected(script, part, loop)
        if collects or _is_barrier(script, part.node):
            collected.append(part)
        for node, value in _waiting(script, part, loop):
            if not _waits_in(script, loop, part, value):
                continue
            if _ends_loop(script, loop, part, node):
                collected.append(part)  # needed, as what an evaluation collects
            else:
                waiting.append((number, node, value))
    found: dict[ast.AST, Wait] = {}
    for number, node, value in waiting:
        part = parts[number]
        over = is_drained(script, loop, part, value, collected)
        over = over or is_read_again(script, parts, number, collected)
        over = over or is_all_but_drained(script, parts, number, collected)
        if over or node in found or _saved(script, node):
            continue
        if loop.train and _is_of_evaluation(part.branches):
            continue  # one function trains and evaluates
        at = part.call or _shown(script, node)
        sure = not follows_hidden_read(script, parts, number)
        found[node] = wait = Wait(
            node, value, at, part.inner, part.helper, part.branches, sure
        )
        for call, at in forced_before(script, parts, number):
            found[call] = wait._replace(node=call, value=call, at=at, sure=True)
    return sorted(found.values(), key=lambda w: w.rank)


def _waits_in(script: Script, loop: Loop, part: Part, value: ast.expr) -> bool:
    """Whether a value in a helper is on the device as this loop calls it."""
    if part.helper is None:
        return True
    callers = script.resolver.calls.callers(part.helper)
    mine = [call for call in callers if script.index.inside(call, loop.node)]
    if not mine or len(mine) == len(callers):
        return True
    return on_device(script.called_only_by({part.helper: mine}), value, loop)


def _ends_loop(script: Script, loop: Loop, part: Part, node: ast.AST) -> bool:
    """`value = loss.item()` before `if value < limit: break`: steps wait for that.

    Also what a helper returns. Not what only looks for numbers that are none: `if
    isnan(value): break`.
    """
    asked = [
        branch.test
        for branch in loop.node.body
        if isinstance(branch, ast.If) and isinstance(branch.body[-1], ast.Break)
    ]
    compared = [test for test in asked if isinstance(test, ast.Compare)]
    if not compared:
        return False
    read = {node}
    if part.helper is not None:
        its = script.of(node).index
        if isinstance(its.statement(node), ast.Return):
            calls = script.index.calls_below(loop.node)
            read.update(
                c for c in calls if part.helper in script.resolver.calls.callees(c)
            )
    return any(_comes_of(script, test, read, MAX_NAMES) for test in compared)


def _comes_of(script: Script, value: ast.AST, read: set[ast.AST], depth: int) -> bool:
    """Whether an expression has one of some others in it, by way of names too."""
    parts = list(walk(value))
    if not read.isdisjoint(parts):
        return True
    return depth > 0 and any(
        d.value is not None and _comes_of(script, d.value, read, depth - 1)
        for name in parts
        if isinstance(name, ast.Name)
        for d in script.definitions(name)
    )


def _is_of_evaluation(branches: Branches) -> bool:
    """Whether a part stands behind `if not train:`, or in the `else` of `if train:`."""
    return any(
        isinstance(branch, (ast.If, ast.IfExp))
        and any(
            _asks_for_training(t) is (not holds) for t in all_of(branch.test, holds)
        )
        for branch, holds in branches
    )


def _asks_for_training(test: ast.expr) -> bool | None:
    """True for `training`, False for `not self.training` and `phase == "valid"`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _asks_for_training(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        asked = test.comparators[0]
        said = asked.value if isinstance(asked, ast.Constant) else None
        named = _PHASE.search(dotted(test.left) or "")
        found = _PHASES.match(said) if isinstance(said, str) and named else None
        return None if found is None else found[1] is not None
    name = (dotted(test) or "").rpartition(".")[2]
    return True if name in ("train", "training", "is_train", "is_training") else None


def _waiting(
    script: Script, part: Part, loop: Loop
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Pairs of the waiting expression and what it waits for."""
    node = part.node
    if isinstance(node, ast.Call):
        for value in _called(script, node, loop):
            if on_device(script, value, loop) or _is_beside_loss(script, value, loop):
                yield node, value
                return
        yield from _tested(script, node, loop)
    elif isinstance(node, ast.FormattedValue):
        if on_device(script, node.value, loop):
            yield node.value, node.value
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        if _is_text(node.left):
            right = node.right
            values = right.elts if isinstance(right, ast.Tuple) else [right]
            for value in values:
                if on_device(script, value, loop):
                    yield node, value
                    return
    else:
        yield from _tested(script, node, loop)


def _is_barrier(script: Script, node: ast.AST) -> bool:
    """`dist.barrier()`, for which NCCL waits on the host, for all that is queued."""
    name = script.index.qualified(node.func) if isinstance(node, ast.Call) else None
    return name is not None and name.endswith("distributed.barrier")


def _is_collected(script: Script, part: Part, loop: Loop) -> bool:
    """Whether an evaluation fetches results here, which is not reported."""
    call = part.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    if _read_on(script, call):
        return False  # reported as the read of a number
    move = script.devices.move(call)
    fetches = move is not None and move.target is Target.CPU
    fetches = fetches or (call.func.attr in _READS - {"item"} and not call.args)
    return fetches and on_device(script, call.func.value, loop)


def _called(script: Script, call: ast.Call, loop: Loop) -> Iterator[ast.expr]:
    """The values that a call would wait for, if they are on the device."""
    func = call.func
    name = script.index.qualified(func) or ""
    last = func.attr if isinstance(func, ast.Attribute) else ""
    if isinstance(func, ast.Attribute) and last in _READS and not call.args:
        if last == "item":
            yield bare(func.value)
        elif not loop.eval and not _read_on(script, call):
            yield func.value  # an evaluation collects its outputs on the host
        return
    move = script.devices.move(call)
    if move is not None:
        asked = move.non_blocking  # whether the copy is only queued
        waits = asked is None or (isinstance(asked, ast.Constant) and not asked.value)
        if move.target is Target.CPU and waits and not loop.eval:
            yield move.receiver
        return
    if name in _SCALARS or name == "print" or name in _TENSOR_TESTS or last == "format":
        yield from map(bare, call.args)
        yield from (k.value for k in call.keywords)
    elif last in _LOGS or name == "wandb.log":
        for given in [*call.args, *(k.value for k in call.keywords)]:
            yield from (
                (v for v in given.values) if isinstance(given, ast.Dict) else [given]
            )


def bare(value: ast.expr) -> ast.expr:
    """A value without `.detach()`, `.cpu()` and `.data` at its end."""
    while True:
        if isinstance(value, ast.Attribute) and value.attr == "data":
            value = value.value
        elif (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr in ("detach", "cpu")
            and not value.args
        ):
            value = value.func.value
        else:
            return value


def _read_on(script: Script, call: ast.Call) -> bool:
    """`x.cpu()` in `x.cpu().item()` and `float(x.cpu())`, which count as one wait.

    Also by way of `.data` and `.detach()`.
    """
    parent = script.index.parent(call)
    while isinstance(parent, ast.Attribute) and parent.attr in ("data", "detach"):
        above = script.index.parent(parent)
        detached = parent.attr == "detach" and above is not None
        parent = script.index.parent(above) if detached and above else above
    if isinstance(parent, ast.Attribute):
        return parent.attr == "item"
    if not isinstance(parent, ast.Call) or call not in parent.args:
        return False
    return dotted(parent.func) in ("float", "int", "bool")


def _tested(
    script: Script, node: ast.AST, loop: Loop
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """A truth value of a tensor: `if loss > best:`, `assert x.isfinite().all()`."""
    parent = script.index.parent(node)
    if not isinstance(node, ast.expr) or not isinstance(
        parent, (ast.If, ast.While, ast.Assert, ast.IfExp)
    ):
        return
    if getattr(parent, "test", None) is node:
        for value in _operands(node, parent):
            if not _is_truth(script, value):
                continue
            if any(on_device(script, v, loop) for v in (value, _judged(script, value))):
                yield value, value
                return


def _judged(script: Script, value: ast.expr) -> ast.expr:
    """The `loss` of `torch.isnan(loss).any()` and `loss.isnan()`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in _TRUTHS:
            break
        of_torch = script.index.qualified(value.func) == f"torch.{value.func.attr}"
        if of_torch and not value.args:
            break
        value = value.args[0] if of_torch else value.func.value
    return value


def _is_text(node: ast.expr) -> bool:
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return text or isinstance(node, ast.JoinedStr)


def _operands(test: ast.expr, above: ast.AST | None) -> Iterator[ast.expr]:
    """The values that a test asks in every step."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _operands(value, None)
            if is_latch(test, value, above):
                return
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _operands(test.operand, None)
    else:
        yield test


def _is_truth(script: Script, node: ast.expr) -> bool:
    """Whether a test is a tensor of one truth value, not a container or a flag."""
    if isinstance(node, ast.Compare):
        counts = isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mod)
        compared = [node.left, *node.comparators]
        none = any(isinstance(c, ast.Constant) and c.value is None for c in compared)
        return not (counts or none or any(map(_is_text, compared)))
    if isinstance(node, ast.Call):
        name = script.index.qualified(node.func) or ""
        return name.rpartition(".")[2] in _TRUTHS or (
            isinstance(node.func, ast.Attribute) and node.func.attr in _TRUTHS
        )
    if isinstance(node, ast.Name):
        values = [d.value for d in script.definitions(node)]
        return bool(values) and all(
            isinstance(v, (ast.Compare, ast.Call)) and _is_truth(script, v)
            for v in values
        )
    return False


def on_device(script: Script, value: ast.expr, loop: Loop) -> bool:
    """Whether a value is on the device, a loss that is differentiated included."""
    if isinstance(value, (ast.Constant, ast.JoinedStr, ast.Dict, ast.Starred)):
        return False
    if isinstance(value, ast.BinOp) and _is_text(value.left):
        return False
    if _is_called(script, value) or _is_declared_plain(script, value):
        return False  # the text of a model is its layers
    if _is_of_groups(value) or _is_of_times(value):
        return False
    where = script.where(value)
    if where.device or member_on_device(script, value):
        return True
    if where == Where.HOST and not _calls_model(script, loop):
        return False
    if not where & (Where.UNKNOWN | Where.HOST):
        return False
    batch = _moves_batch(script, loop)
    if Where.HOST in where and (where & (Where.UNKNOWN | Where.DEVICE) or batch):
        return False
    return (batch or _moves_anything(script)) and _of_training(script, value, loop)


def _moves_batch(script: Script, loop: Loop) -> bool:
    return any(its is loop for _, its in script.batch_moves)


def _calls_model(script: Script, loop: Loop) -> bool:
    """Whether a step runs a model, which may move what it is given itself."""
    called = (called_module(c) for c in loop.calls)
    return any(script.modules.is_module(m) and not is_loss(script, m) for m in called)


def _is_called(script: Script, value: ast.expr) -> bool:
    """Whether the file calls what a name stands for, as no tensor is."""
    name = dotted(value) or ""
    calls = script.index.calls_by_name.get(name.rpartition(".")[2], ())
    called = [call.func for call in calls if dotted(call.func) == name]
    if isinstance(value, ast.Name):
        mine = set(script.definitions(value))
        return any(mine & set(script.definitions(func)) for func in called)
    owner = script.index.owner(value)
    return any(script.index.owner(func) is owner for func in called)


def _is_declared_plain(script: Script, value: ast.expr) -> bool:
    """Whether it is a tensor's metadata, or declared as no tensor by its class.

    Or made a list where it is none.
    """
    if _is_made_a_list(script, value):
        return True
    nodes = [value, *(o.expression for o in script.resolver.origins(value))]
    chains = (node for node in nodes if node is not None)
    if any(_METADATA in ast.unparse(node) for node in chains):
        return True  # file names and the like, beside the tensor
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    declared = [
        ast.unparse(field.annotation)
        for index in (run_together(script) if names else ())
        for owner in index.classes.values()
        for field in owner.body
        if isinstance(field, ast.AnnAssign) and dotted(field.target) in names
    ]
    return bool(declared) and all(kind in _PLAIN for kind in declared)


def _is_of_groups(value: ast.expr) -> bool:
    """`optimizer.param_groups[0]["lr"]`, a number but for optimizers in graphs."""
    group = value.value if isinstance(value, ast.Subscript) else None
    its = group.value if isinstance(group, ast.Subscript) else None
    return isinstance(its, ast.Attribute) and its.attr == "param_groups"


def _is_of_times(value: ast.expr) -> bool:
    """`batch_time.avg`: seconds, whatever has brought them together."""
    return _METER_OF_TIMES.search(dotted(value) or "") is not None


def _is_made_a_list(script: Script, value: ast.expr) -> bool:
    """`if not isinstance(lengths, list): lengths = lengths.tolist()` before it."""
    names = [n for n in walk(value) if isinstance(n, ast.Name)]
    reached = [d for n in names for d in script.definitions(n) if d.kind == "assign"]
    tests = (
        ast.unparse(branch.test)
        for d in reached
        for branch, holds in branches_of(script.index, d.node)
        if isinstance(branch, ast.If) and holds
    )
    return any(map(_MADE_A_LIST.match, tests))


def _moves_anything(script: Script) -> bool:
    """Whether this file sends anything to the device: then the model is there."""
    moved = any(move.target is not Target.CPU for move in script.moves)
    return moved or sends_models(script)


def _of_training(script: Script, value: ast.expr, loop: Loop) -> bool:
    """Whether a value is a gradient, or what the loop differentiates."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in SAME_PLACE:
            return False
        value = value.func.value
    if isinstance(value, ast.Attribute) and value.attr == "grad":
        return True
    mine = set(script.definitions(value))
    return any(mine & differentiated(script, call) for call in loop.backward)


def _is_beside_loss(script: Script, value: ast.expr, loop: Loop) -> bool:
    """`parts.mean()` or `parts.item()`, where one call gives `loss` and `parts`.

    Most likely a tensor, as the loss is: enough to say that it waits, not to take it
    for one, as `numpy.mean(…)` has the same methods.
    """
    above = script.index.parent(value)
    name = value
    while isinstance(name, ast.Call) and isinstance(name.func, ast.Attribute):
        if name.func.attr not in SAME_PLACE:
            return False
        name = name.func.value
    reads = isinstance(above, ast.Attribute) and above.attr == "item"
    if (name is value and not reads) or script.where(value) != Where.UNKNOWN:
        return False
    if not (_moves_batch(script, loop) or _moves_anything(script)):
        return False
    beside = {
        its.value
        for call in loop.backward
        for its in differentiated(script, call)
        if its.path
    }
    return any(its.path and its.value in beside for its in script.definitions(name))


def _saved(script: Script, node: ast.expr) -> bool:
    """Whether the value is on its way to a file."""
    return any(
        isinstance(above, ast.Call)
        and _SAVES.search((dotted(above.func) or "").rpartition(".")[2])
        for above in script.index.ancestors(node)
    )


def _shown(script: Script, node: ast.expr) -> ast.expr:
    shown = node
    for above in script.index.ancestors(node):
        if isinstance(above, ast.stmt):
            break
        if isinstance(above, ast.JoinedStr):
            shown = above
    return shown


def acts(calls: list[ast.Call]) -> bool:
    """Whether a loop steps an environment, which needs the action on the host."""
    return any(
        isinstance(c.func, ast.Attribute)
        and c.func.attr == "step"
        and _ENVIRONMENT.search(_holder(c.func.value).rpartition(".")[2])
        for c in calls
    )


def _holder(node: ast.expr) -> str:
    """The name of an object, or of the list that it is one of: `envs[i]`."""
    held = node.value if isinstance(node, ast.Subscript) else node
    return dotted(held) or ""
