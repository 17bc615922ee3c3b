"""Checkpoints that training waits for: which call saves, and how often."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.branches import all_of, branches_of
from gpulint.script.environments import imports_environments
from gpulint.script.every_step import EveryStep
from gpulint.script.loading.reuse import at_most_once
from gpulint.script.modelling.model_size import weights
from gpulint.script.modelling.networks import takes_large
from gpulint.script.modelling.written_sizes import is_seen_heavy
from gpulint.script.reaching.doubtful import may_never_run
from gpulint.script.reaching.evaluated import is_end
from gpulint.script.reaching.once import holds_once
from gpulint.script.reaching.started import trains_on_gpu
from gpulint.script.runs import holds_runs
from gpulint.script.training.training_step import find_steps

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

SAVES = frozenset(["torch.save", "gpulint.runtime.async_save"])
MAX_CALLERS = 4  # functions between a loop and the call
SMALL = 5_000_000  # weights: 20 MB take no longer than what is printed after an epoch
OFTEN = 50  # steps: a checkpoint is written in about the time of so many
SELDOM = 1000  # steps; who saves more seldom waits for less than a percent of the time
SELDOM_EPOCHS = 10

_STOPS = frozenset({"KeyboardInterrupt", "SystemExit"})  # by whoever runs the program
_END_OF_PASS = frozenset({"StopIteration"})  # over the loader

_BEST = re.compile(r"^(is_|new_)?(best|success|improved)(_so_far)?$")
_MODEL = re.compile(
    r"state_?dict|(^|_)(model|net|network|state|ckpt|checkpoint|snapshot|weights)(_|$)",
    re.IGNORECASE,
)

_COMPARES: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

Rhythm = Literal["step", "epoch"]


class Checkpoint(NamedTuple):
    """A call that saves in a training loop.

    `way` are the calls from the loop to it, itself first, and `loop` is the loop in
    which the last of them stands; it runs once in `every` iterations (None: not
    known), `sometimes` behind a test that differs from one to the next.
    """

    call: ast.Call
    way: tuple[ast.Call, ...]
    loop: Loop
    rhythm: Rhythm
    every: int | None
    sometimes: bool

    @property
    def too_often(self) -> bool:
        """Whether training writes more than it trains: each step, or every few."""
        often = self.every is not None and self.every < OFTEN
        return self.rhythm == "step" and often and not self.sometimes

    @property
    def seldom(self) -> bool:
        """Whether so much lies between two of them that one costs nothing."""
        limit = SELDOM if self.rhythm == "step" else SELDOM_EPOCHS
        return self.every is not None and self.every >= limit


def find_checkpoints(script: Script) -> Iterator[Checkpoint]:
    """The calls of a file that save in a loop which trains on a GPU, in source order.

    Not what is known to be small: a network of few weights. Where only epochs that are
    better than all before are saved, which grow rare, it has to be known to be large.
    """
    found = list(_candidates(script))
    regular = {c.loop.node for c in found if not _is_rare(c)}
    for checkpoint in found:
        its = script.of(checkpoint.loop.node)
        if checkpoint.loop.node in regular or _is_surely_large(its):
            yield checkpoint


def _candidates(script: Script) -> Iterator[Checkpoint]:
    for call in script.index.all(ast.Call):
        saves = is_save(script, call) and _is_of_model(script, call)
        if saves or is_pretrained(script, call):
            ways = list(_ways(script, (call,)))
            found = min(ways, key=_frequency, default=None)
            if found is not None and _is_large(script.of(found.loop.node)):
                yield found


def _is_rare(found: Checkpoint) -> bool:
    return found.sometimes and found.rhythm == "epoch"


def is_save(script: Script, call: ast.Call) -> bool:
    """Whether a call is `torch.save`, or what a fix has made of it."""
    return script.index.qualified(call.func) in SAVES


def _is_of_model(script: Script, call: ast.Call) -> bool:
    """Whether weights are saved, to a file: not a list of losses, not into memory.

    Nor to a file that only hands them to something, and is removed behind that.
    """
    if len(call.args) < 2:
        return bool(call.args) and not call.keywords
    value, path = call.args[:2]
    if _is_removed(script, path):
        return False
    origins = script.resolver.origins(value)
    for origin in script.resolver.origins(path):
        made = origin.call
        if made is not None and script.index.qualified(made.func) == "io.BytesIO":
            return False
    words = [n for o in (value, *(o.node for o in origins)) for n in walk(o)]
    names = {
        n.attr if isinstance(n, ast.Attribute) else n.id
        for n in words
        if isinstance(n, (ast.Attribute, ast.Name))
    }
    return script.modules.is_module(value) or any(map(_MODEL.search, names))


def _is_removed(script: Script, path: ast.expr) -> bool:
    """`path.unlink()` or `os.remove(path)` behind the place, in the same function.

    Not by a handler of errors, nor what has been moved to its own place before.
    """
    name, index = dotted(path), script.index
    if name is None:
        return False

    def is_path(node: ast.expr | None) -> bool:
        if node is None or dotted(node) != name:
            return False
        return script.definitions(node) == script.definitions(path)

    def of_path(word: str) -> Iterator[ast.Call]:
        for call in index.calls_by_name.get(word, ()):
            holder = call.func.value if isinstance(call.func, ast.Attribute) else None
            later = call.lineno > path.lineno and index.scope(call) is index.scope(path)
            if later and any(map(is_path, (holder, *call.args))):
                yield call

    if any(any(of_path(word)) for word in ("replace", "rename", "move")):
        return False
    return any(
        not any(isinstance(a, ast.ExceptHandler) for a in index.ancestors(call))
        for call in (*of_path("unlink"), *of_path("remove"))
        if index.qualified(call.func) == "os.remove" or last_name(call) == "unlink"
    )


def is_pretrained(script: Script, call: ast.Call) -> bool:
    """Whether a call is `model.save_pretrained(…)`, of a package of models."""
    known = last_name(call) == "save_pretrained" and isinstance(
        call.func, ast.Attribute
    )
    if not known or script.resolver.calls.callee(call) is not None:
        return False
    assert isinstance(call.func, ast.Attribute)
    name = ast.unparse(call.func.value).lower()
    return not any(w in name for w in ("token", "processor", "config", "extractor"))


def _frequency(found: Checkpoint) -> tuple[bool, int]:
    return found.rhythm != "step", found.every or 1


def _weights(script: Script) -> list[float | None]:
    """How many weights the model of each step has, or may have at most."""
    return [weights(script, step) for step in find_steps(script)]


def _is_surely_large(script: Script) -> bool:
    """Whether it is known that what is trained is large."""
    sure = (n is not None and SMALL <= n < inf for n in _weights(script))
    return any(sure) or takes_large(script)


def seems_large(script: Script) -> bool:
    """Whether a program is known, or by its texts seen, to have a large network."""
    return is_seen_heavy(script) or _is_surely_large(script)


def _is_large(script: Script) -> bool:
    """Whether a GPU trains something that may be large."""
    if not trains_on_gpu(script):
        return False
    known = _weights(script)
    return not known or any(n is None or n >= SMALL for n in known)


def _ways(script: Script, way: tuple[ast.Call, ...]) -> Iterator[Checkpoint]:
    """The loops that lead to a call, directly or through functions."""
    node = way[-1]
    its = script.of(node)
    if its.is_test or may_never_run(its, node) or _is_handled(its, node, _STOPS):
        return
    around = its.loops_around(node)
    hot = next((x for x in around if x.train or x.eval or x.kind == "epoch"), None)
    if hot is not None:
        found = _in_loop(its, way, hot)
        if found is not None:
            yield found
        return
    function = its.index.function(node)
    if function is None or len(way) > MAX_CALLERS:
        return
    for caller in its.resolver.calls.callers(function):
        if caller not in way:
            yield from _ways(script, (*way, caller))


def _is_handled(script: Script, node: ast.AST, kinds: frozenset[str]) -> bool:
    """Whether a place is where one of these exceptions is handled."""
    handlers = (
        above.type
        for above in script.index.ancestors(node)
        if isinstance(above, ast.ExceptHandler)
    )
    return any(
        dotted(kind) in kinds
        for handled in handlers
        for kind in (handled.elts if isinstance(handled, ast.Tuple) else [handled])
    )


def _in_loop(
    script: Script, way: tuple[ast.Call, ...], loop: Loop
) -> Checkpoint | None:
    if loop.eval or (not loop.batches and imports_environments(script.index)):
        return None
    if loop.kind == "epoch" and holds_runs(script, loop):
        return None
    if at_most_once(script, loop.node):
        return None  # training is over then
    ended = any(_is_handled(script.of(n), n, _END_OF_PASS) for n in way)
    steps = loop in script.step_loops and not ended
    found = Checkpoint(way[0], way, loop, "step" if steps else "epoch", 1, False)
    each = EveryStep(script, loop)
    for node in way:
        its, last = script.of(node), node is way[-1]
        helper = None if last else its.index.function(node)
        for branch, holds in branches_of(its.index, node, loop.node if last else None):
            assert isinstance(branch, (ast.If, ast.IfExp))
            if _runs_once(its, branch, holds, loop):
                return None
            rare = each.rare(branch.test, helper)
            if rare == "never" and holds:
                return None
            if rare == "interval":
                every = _interval(its, branch.test)
                regular = any(True for _ in _modulos(its, branch.test))
                also = not regular and each.varies(branch.test, helper)
                found = found._replace(
                    every=_rarer(found.every, every), sometimes=found.sometimes or also
                )
            elif rare == "varies" or (holds and _keeps_the_best(branch)):
                found = found._replace(sometimes=True)
    return found


def _keeps_the_best(branch: ast.If | ast.IfExp) -> bool:
    """`if stats["loss"][-1] < stats["best"]: stats["best"] = stats["loss"][-1]`."""
    if not isinstance(branch, ast.If):
        return False
    if _BEST.search((dotted(branch.test) or "").rpartition(".")[2]):
        return True  # `if progress.success:`
    compared = {
        ast.unparse(side)
        for test in walk(branch.test)
        if isinstance(test, ast.Compare)
        and all(isinstance(o, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for o in test.ops)
        for side in (test.left, *test.comparators)
    }
    return any(
        isinstance(node, ast.Assign)
        and ast.unparse(node.value) in compared
        and any(ast.unparse(target) in compared for target in node.targets)
        for node in branch.body
    )


def _rarer(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _interval(script: Script, test: ast.expr) -> int | None:
    """The smallest known `n` of `step % n == 0`, also of a name for that test."""
    found = []
    for part in _modulos(script, test):
        its = script.evaluator.values(part.right)
        numbers = (_whole(v.constant) for v in its.known)
        known = [n for n in numbers if n is not None]
        positive = [n for n in known if n > 0]
        if not positive or not its.complete or len(positive) < len(its.known):
            return None
        found += known
    return min(found, default=None)


def _whole(constant: object) -> int | None:
    """A whole number, `1e5` too."""
    if isinstance(constant, float) and constant.is_integer():
        return int(constant)
    return constant if isinstance(constant, int) else None


def _modulos(script: Script, test: ast.expr) -> Iterator[ast.BinOp]:
    """Each `step % n` of a test, or of what its names stand for."""
    nodes = [test]
    for name in walk(test):
        if isinstance(name, ast.Name):
            values = (d.value for d in script.definitions(name) if d.kind == "assign")
            nodes += [v for v in values if v is not None]
    for part in (p for node in nodes for p in walk(node)):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
            yield part


def _runs_once(
    script: Script, branch: ast.If | ast.IfExp, holds: bool, loop: Loop
) -> bool:
    """Whether a branch is for one iteration, or none.

    `step == 0`, `epoch == epochs - 1`, `args.every > 0` where the default is -1. Or the
    branch ends the program: `if killed: save(); sys.exit(0)`.
    """
    if holds and holds_once(script, branch):
        return True
    if holds and isinstance(branch, ast.If) and is_end(script, branch.body[-1]):
        return True
    if holds and any(_fails(script, part) for part in all_of(branch.test)):
        return True
    names = {name.id for name in loop.targets}
    return holds and any(
        isinstance(part, ast.Compare)
        and isinstance(part.ops[0], (ast.Eq, ast.GtE))
        and not any(isinstance(n, ast.Mod) for n in ast.walk(part))
        and not isinstance(part.comparators[0], ast.Constant)
        and any(isinstance(n, ast.Name) and n.id in names for n in walk(part.left))
        for part in all_of(branch.test)
    )


def _fails(script: Script, test: ast.expr) -> bool:
    """Whether a comparison with a number fails for all that is known of a value."""
    compare = (
        _COMPARES.get(type(test.ops[0])) if isinstance(test, ast.Compare) else None
    )
    if compare is None:
        return False
    assert isinstance(test, ast.Compare)
    limit = script.evaluator.constant(test.comparators[0])
    its = script.evaluator.values(test.left)
    values = [v.constant for v in its.known]
    numbers = [v for v in values if isinstance(v, (int, float))]
    known = its.complete and 0 < len(numbers) == len(values)
    if not known or not isinstance(limit, (int, float)) or len(test.ops) > 1:
        return False
    return not any(compare(number, limit) for number in numbers)
