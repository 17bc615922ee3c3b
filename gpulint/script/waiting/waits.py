"""Where a step of a loop makes the host wait for a value on the device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function, Target, Where
from gpulint.index.walk import dotted, walk, walk_scope
from gpulint.script.branches import Branches
from gpulint.script.every_step import EveryStep, Part
from gpulint.script.training.sides import is_of_evaluation
from gpulint.script.training.step_calls import is_backward, is_step
from gpulint.script.waiting.drained import (
    ROUNDS,
    follows_hidden_read,
    follows_own_read,
    follows_stop,
    forced_beside,
    is_all_but_drained,
    is_drained,
    is_read_again,
    precedes_stop,
    stands_clear,
)
from gpulint.script.waiting.located import is_given_alone, on_device
from gpulint.script.waiting.metric_checks import reads_values
from gpulint.script.waiting.module_parts import is_asked, module_parts
from gpulint.script.waiting.reading import READS, read_on, waiting_in
from gpulint.script.waiting.stops import (
    checks_result,
    joins_ranks,
    measures_size,
    normalizes,
    picks_by_values,
    reads_list,
    steps_engine,
    steps_in_few_bits,
    updates_average,
)
from gpulint.script.waiting.timed import measures_time

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_ASKS_FOR_NONE = re.compile(r"\bis(nan|inf|finite)\(")
_NONE = re.compile(r"nan|inf\b|finite", re.IGNORECASE)
SHOWN = 3  # waits named in a message
MAX_NAMES = 3  # between a wait and a test of what it reads
_ANY = ("any", "all")
_COPIES = frozenset({"tolist", "cpu"})
_FETCHES = _COPIES | {"item"}
_OF_THE_HOST = re.compile(r"torch\.[A-Z][a-z0-9]*Tensor")  # as a type
_SAVES = re.compile(
    r"^(save|savez|dump|imsave|imwrite|savefig|savetxt|to_csv|fromarray)|^save_"
)
_OBSERVES = re.compile(r"_?(get_)?obs(ervations?|erve)?")
_ENVIRONMENT = re.compile(r"(^|_)(envs?|environments?|gym)\d*$|_envs?_", re.IGNORECASE)


class Wait(NamedTuple):
    """An expression that waits for `value`.

    `at` is where to show it: the expression, or the f-string that holds it (`ast`
    places what is inside one differently from version to version); the call that leads
    there where it stands in another file. Not `sure`: another call may wait anyway. Not
    `clear`: nothing tells that no other does.
    """

    node: ast.expr
    value: ast.expr
    at: ast.expr
    inner: bool
    helper: Function | None
    branches: Branches = ()
    sure: bool = True
    clear: bool = True

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


class _Reads(NamedTuple):
    """What the parts of a step read or wait for, in their order."""

    waiting: list[tuple[int, ast.expr, ast.expr]]  # number, what waits, for what
    collected: list[Part]  # needed by the program
    stopping: list[Part]  # without a read
    asking: list[Part]  # those of them that ask the device for what they need
    perhaps: list[Part]  # of what may be on the device


def find_waits(script: Script, loop: Loop) -> list[Wait]:
    """The waits in each step of a training or evaluation loop, worst first.

    None in a loop that waits anyway: one that acts in an environment, or measures
    time around `synchronize()`.
    """
    parts = list(EveryStep(script, loop).parts())
    calls = [p.node for p in parts if isinstance(p.node, ast.Call)]
    if acts(calls) or measures_time(script, calls):
        return []
    found = _among(script, loop, parts)
    for its, of_module in module_parts(script, loop, parts) if loop.train else ():
        found = _among(its, loop, of_module, in_module=True) | found
    return sorted(found.values(), key=lambda w: w.rank)


def _among(
    script: Script, loop: Loop, parts: list[Part], in_module: bool = False
) -> dict[ast.AST, Wait]:
    """The waits among parts that run one after another."""
    reads = _reads(script, loop, parts, in_module)
    found: dict[ast.AST, Wait] = {}
    engines = [part for part in reads.stopping if steps_engine(script, part.node)]
    stayed: list[Part] = []  # not reported, so that nobody takes them away
    for number, node, value in reads.waiting:
        part = parts[number]
        before = [*reads.collected, *stayed]
        over = is_drained(script, loop, parts, number, value, before)
        over = over or is_read_again(script, parts, number, reads.collected)
        over = over or is_all_but_drained(script, parts, number, reads.collected)
        over = over or follows_stop(script, parts, number, reads.stopping)
        over = over or precedes_stop(script, parts, number, reads.asking)
        over = over or follows_own_read(script, parts, number)
        if over:
            stayed.append(part)  # and drains for those behind it
        if over or node in found or _saved(script, node):
            continue
        if loop.train and is_of_evaluation(part.branches):
            continue  # one function trains and evaluates
        at = part.call or _shown(script, node)
        perhaps = is_drained(script, loop, parts, number, value, reads.perhaps)
        perhaps = perhaps or follows_stop(script, parts, number, engines, False)
        sure = not perhaps and not _may_be_over(script, parts, number, reads.perhaps)
        clear = stands_clear(script, parts, number)
        inner = part.inner and not is_given_alone(script, value, loop)
        found[node] = wait = Wait(
            node, value, at, inner, part.helper, part.branches, sure, clear
        )
        for call, at in forced_beside(script, parts, number):
            found[call] = wait._replace(node=call, value=call, at=at, sure=True)
    return found


def _reads(script: Script, loop: Loop, parts: list[Part], in_module: bool) -> _Reads:
    found = _Reads([], [], [], [], [])
    as_called: Script | None = None
    for number, part in enumerate(parts):
        collects = loop.eval and _is_collected(script, part, loop)
        stays = _is_barrier(script, part.node) or updates_average(script, part.node)
        stays = stays or reads_list(script, part.node)
        stays = stays or reads_values(script, part.node)
        stays = stays or steps_in_few_bits(script, part.node)
        if collects or stays:
            found.collected.append(part)
        asks = (measures_size, checks_result, normalizes, steps_in_few_bits)
        if any(ask(script, part.node) for ask in asks):
            found.asking.append(part)
            found.stopping.append(part)
        elif steps_engine(script, part.node) or joins_ranks(script, part.node):
            found.stopping.append(part)
        picks = picks_by_values(script, part.node)
        if picks or _may_read(script, part.node, _FETCHES):
            found.perhaps.append(part)
        for node, value in waiting_in(script, part, loop):
            if part.helper is not None:
                as_called = as_called or _as_called(script, loop, parts)
                if as_called is not script and not on_device(as_called, value, loop):
                    continue
            needed = _ends_loop(script, loop, part, node)
            needed = needed or _asks_to_train(script, node)
            needed = needed or (part.inner and _ends_rounds(script, node))
            needed = needed or (
                in_module
                and is_asked(script, node)
                and not _is_one_of_many(script, part, value)
                and not _looks_for_none(script, node)
            )
            if needed or _is_agreed(script, node, value):
                found.collected.append(part)  # needed, as what an evaluation collects
            else:
                found.waiting.append((number, node, value))
    reported = {node for _, node, _ in found.waiting}
    return found._replace(perhaps=[p for p in found.perhaps if p.node not in reported])


def _may_be_over(
    script: Script, parts: list[Part], number: int, perhaps: list[Part]
) -> bool:
    """Whether another call may wait where a part does, or has waited before it.

    `.item()` behind it says nothing: it can go as well. So can an index of NumPy's, if
    more is changed than the line.
    """
    copies = [
        part
        for part in perhaps
        if _may_read(script, part.node, _COPIES) or picks_by_values(script, part.node)
    ]
    return (
        follows_hidden_read(script, parts, number)
        or is_all_but_drained(script, parts, number, perhaps)
        or is_read_again(script, parts, number, copies)
    )


def _as_called(script: Script, loop: Loop, parts: list[Part]) -> Script:
    """The same file, as if the helpers of a loop were called by its steps alone."""
    inside = (part.helper for part in parts if part.helper is not None)
    helpers = dict.fromkeys([*loop.helpers, *inside])
    around = (loop.node, *helpers)
    known = script.resolver.calls.only
    callers: dict[Function, list[ast.Call]] = {}
    for helper in helpers:
        calls = script.resolver.calls.callers(helper) if helper not in known else []
        mine = [
            call
            for call in calls
            if any(script.index.inside(call, its) for its in around)
        ]
        if mine and len(mine) < len(calls):
            callers[helper] = mine
    return script.called_only_by(callers) if callers else script


def _ends_loop(script: Script, loop: Loop, part: Part, node: ast.AST) -> bool:
    """`value = loss.item()` before `if value < limit: break`: steps wait for that.

    Also what a helper returns, and what decides whether steps are counted until the
    last one. Not what only looks for numbers that are none: `if isnan(value): break`.
    """
    asked = [
        branch.test
        for branch in _branches_in(loop.node.body)
        if isinstance(branch.body[-1], ast.Break)
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
    return any(
        _comes_of(script, test, read, MAX_NAMES)
        or _is_counted(script, test, read, loop)
        for test in compared
    )


def _ends_rounds(script: Script, node: ast.expr) -> bool:
    """`if shift ** 2 < tolerance: break`: an algorithm inside a step ends by it."""
    index = script.of(node).index
    above = index.parent(node)
    while isinstance(above, (ast.Compare, ast.UnaryOp, ast.BoolOp)):
        node, above = above, index.parent(above)
    if isinstance(above, ast.While):
        return above.test is node
    return (
        isinstance(above, ast.If)
        and above.test is node
        and isinstance(above.body[-1], ast.Break)
        and isinstance(index.parent(above), ast.While)
    )


def _branches_in(body: list[ast.stmt]) -> Iterator[ast.If]:
    """The branches of a block, one in the other, without those of loops in it."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield statement
            yield from _branches_in(statement.body)
            yield from _branches_in(statement.orelse)


def _is_counted(script: Script, test: ast.AST, read: set[ast.AST], loop: Loop) -> bool:
    """`if count > 50: break`, where a branch that asks for a value counts.

    `if loss.item() < best: count = 0`, `else: count += 1`.
    """
    names = [name for name in walk(test) if isinstance(name, ast.Name)]
    for definition in (d for name in names for d in script.definitions(name)):
        if not script.index.inside(definition.node, loop.node):
            continue
        for above in script.index.ancestors(definition.node):
            if above is loop.node:
                break
            if isinstance(above, ast.If) and not read.isdisjoint(walk(above.test)):
                return True
    return False


def _asks_to_train(script: Script, node: ast.expr) -> bool:
    """`if d_loss.item() > 0.15: d_loss.backward()`: whether a part trains waits for it.

    Or the rest of the step: `if not mask.any(): continue`. Not a test for numbers that
    are none.
    """
    index = script.of(node).index
    test: ast.AST = node
    above = index.parent(node)
    if isinstance(above, (ast.Compare, ast.UnaryOp)):
        test, above = above, index.parent(above)
    if not isinstance(above, ast.If) or above.test is not test:
        return False
    if isinstance(above.body[-1], ast.Continue):
        return _NONE.search(ast.unparse(test)) is None
    below = walk(*above.body, *above.orelse)
    calls = (inner for inner in below if isinstance(inner, ast.Call))
    decides = isinstance(test, ast.Compare) or _asks_a_mask(script, node)
    return decides and any(is_backward(call) or is_step(call) for call in calls)


def _looks_for_none(script: Script, node: ast.expr) -> bool:
    """`assert not torch.isnan(x).any()`: a test for numbers that are none.

    Or `if torch.isnan(loss): print(…)`, without which the pass computes the same.
    """
    index = script.of(node).index
    child: ast.AST = node
    above = index.parent(node)
    while isinstance(above, ast.UnaryOp):
        child, above = above, index.parent(above)
    if not isinstance(above, (ast.If, ast.Assert)) or above.test is not child:
        return False
    if isinstance(above, ast.If):
        told = all(isinstance(s, (ast.Expr, ast.Raise)) for s in above.body)
        if above.orelse or not told:
            return False
    return _ASKS_FOR_NONE.search(ast.unparse(child)) is not None


def _asks_a_mask(script: Script, node: ast.expr) -> bool:
    """`mask.any()`, of what is not known to look for numbers that are none."""
    func = node.func if isinstance(node, ast.Call) else None
    if not isinstance(func, ast.Attribute) or func.attr not in _ANY:
        return False
    asked = [func.value, *(d.value for d in script.definitions(func.value) if d.value)]
    return not any(_NONE.search(ast.unparse(its)) for its in asked)


def _is_one_of_many(script: Script, part: Part, value: ast.expr) -> bool:
    """Whether a loop of the step reads element after element of what is there before.

    So that one read before the loop gives all of them: `sizes.tolist()`.
    """
    its = script.of(value).index
    around = next((a for a in its.ancestors(value) if isinstance(a, ROUNDS)), None)
    if not part.inner or around is None or isinstance(around, ast.While):
        return False
    names = [n for n in walk(value) if isinstance(n, ast.Name)]
    made = [d for name in names for d in script.definitions(name)]
    return bool(made) and all(
        d.kind == "for" or not its.inside(d.node, around) for d in made
    )


def _is_agreed(script: Script, node: ast.expr, value: ast.expr) -> bool:
    """`bool(flag.item())` of what the ranks have agreed on: what they do depends on it.

    `flag` is made of a number of the host's in the same function, and reduced there.
    """
    its = script.of(node)
    above = its.index.parent(node)
    asks = isinstance(above, (ast.Compare, ast.UnaryOp, ast.If, ast.IfExp))
    asks = asks or (isinstance(above, ast.Call) and dotted(above.func) == "bool")
    if not asks or not isinstance(value, ast.Name):
        return False
    made = [origin.call for origin in its.resolver.origins(value)]
    if not made or not all(
        call is not None and its.index.qualified(call.func) == "torch.tensor"
        for call in made
    ):
        return False
    return any(
        isinstance(call, ast.Call)
        and (dotted(call.func) or "").endswith("all_reduce")
        and any(isinstance(a, ast.Name) and a.id == value.id for a in call.args)
        for call in walk_scope(its.index.scope(node))
    )


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


def _is_barrier(script: Script, node: ast.AST) -> bool:
    """`dist.barrier()`, for which NCCL waits on the host, for all that is queued."""
    name = script.index.qualified(node.func) if isinstance(node, ast.Call) else None
    return name is not None and name.endswith("distributed.barrier")


def _is_collected(script: Script, part: Part, loop: Loop) -> bool:
    """Whether an evaluation fetches results here, which is not reported."""
    call = part.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    if read_on(script, call):
        return False  # reported as the read of a number
    move = script.devices.move(call)
    fetches = move is not None and move.target is Target.CPU
    fetches = fetches or (call.func.attr in READS - {"item"} and not call.args)
    return fetches and on_device(script, call.func.value, loop)


def _may_read(script: Script, node: ast.AST, names: frozenset[str]) -> bool:
    """`z.detach().cpu()` of what is not known to be on the device, nor elsewhere.

    And `z.type(torch.ByteTensor)`, of the host as well.
    """
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    source = node.func.value
    if node.func.attr == "type" and len(node.args) == 1:
        to_host = _OF_THE_HOST.fullmatch(script.index.qualified(node.args[0]) or "")
        return to_host is not None and script.where(source) is not Where.HOST
    if node.func.attr not in names or node.args:
        return False
    its = script.where(source)
    return Where.UNKNOWN in its or (Where.HOST | Where.DEVICE) in its


def _saved(script: Script, node: ast.expr) -> bool:
    """Whether the value is on its way to a file.

    Also by a name: `image = output.cpu().numpy()`, `Image.fromarray(image)`.
    """
    if any(map(_saves, script.index.ancestors(node))):
        return True
    its = script.of(node).index
    statement = its.statement(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    calls = (c for name in names for c in its.calls_given.get(name, ()) if _saves(c))
    return _is_copy(node) and any(its.scope(c) is its.scope(node) for c in calls)


def _saves(node: ast.AST) -> bool:
    """`numpy.save(…)`, `image.save(…)`, `Image.fromarray(…)`."""
    called = _holder(node.func) if isinstance(node, ast.Call) else ""
    return _SAVES.search(called.rpartition(".")[2]) is not None


def _is_copy(node: ast.expr) -> bool:
    """`output.cpu()`, of more than one number as far as that tells."""
    func = node.func if isinstance(node, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr == "cpu"


def _shown(script: Script, node: ast.expr) -> ast.expr:
    shown = node
    for above in script.index.ancestors(node):
        if isinstance(above, ast.stmt):
            break
        if isinstance(above, ast.JoinedStr):
            shown = above
    return shown


def acts(calls: list[ast.Call]) -> bool:
    """Whether a loop steps an environment, which needs the action on the host.

    Or asks it what is seen: `env.get_obs()`.
    """
    return any(
        isinstance(c.func, ast.Attribute)
        and (c.func.attr == "step" or _OBSERVES.fullmatch(c.func.attr))
        and _ENVIRONMENT.search(_holder(c.func.value).rpartition(".")[2])
        for c in calls
    )


def _holder(node: ast.expr) -> str:
    """The name of an object, or of the list that it is one of: `envs[i]`."""
    held = node.value if isinstance(node, ast.Subscript) else node
    return dotted(held) or ""
