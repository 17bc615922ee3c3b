"""Small constant batches of TensorFlow's training, and their learning rates."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Value
from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.script.frameworks.tf_names import name_of
from gpulint.script.frameworks.tf_pipelines import BATCHES
from gpulint.script.frameworks.tf_steps import TRAININGS, fits
from gpulint.script.frameworks.tf_waits import step_loops
from gpulint.script.neighbours import run_together
from gpulint.script.rewriting.edits import CannotFix, InsertBefore, Replace, Rewrite
from gpulint.script.rewriting.syntax import code
from gpulint.script.set_before import is_set_at

if TYPE_CHECKING:
    from gpulint.script.model import Script

SMALL = 32
_FROM_FOLDER = re.compile(r"dataset_from_(directory|array)$")
_FLOWS = frozenset("flow flow_from_directory flow_from_dataframe".split())
_EVALUATES = re.compile(r"(^|_)(val|valid|validation|test|eval|dev)", re.IGNORECASE)
_ROUNDS = frozenset("int round math.ceil math.floor numpy.ceil numpy.floor".split())
_ACCUMULATES = re.compile(r"accum", re.IGNORECASE)
_RULES = {"SGD": "linear", "Adam": "sqrt", "AdamW": "sqrt", "RMSprop": "sqrt"}
TITLE = "Let the machine choose, and scale the learning rate with it"


class SmallBatch(NamedTuple):
    """The number, where it is written, and the call that takes it."""

    size: int
    value: Value
    call: ast.Call


def small_batches(script: Script) -> Iterator[SmallBatch]:
    """Each number of a training once."""
    if script.source.has(_ACCUMULATES):
        return
    seen: set[ast.expr] = set()
    for call, position in _takers(script):
        given = script.evaluator.argument(call, "batch_size", position)
        for node in given.nodes[:1] if given.given else ():
            its = script.evaluator.values(node)
            sizes = {v.constant for v in its.known if type(v.constant) is int}
            if not its.complete or len(sizes) != 1 or len(its.known) != 1:
                continue
            value = its.known[0]
            size = value.constant
            if isinstance(size, int) and 1 < size <= SMALL and value.node not in seen:
                seen.add(value.node)
                yield SmallBatch(size, value, call)


def _takers(script: Script) -> Iterator[tuple[ast.Call, int | None]]:
    """Calls that batch what is trained on, and where their size stands."""
    for call in fits(script):
        if not _has_fixed_steps(script, call):
            yield call, 2
    steps: set[ast.AST] = {loop.node for loop in step_loops(script)}
    for call in script.index.all(ast.Call):
        last = last_name(call)
        folder = bool(_FROM_FOLDER.search(name_of(script, call.func)))
        if last in _FLOWS and _trains_by_name(script, call):
            yield call, None
        elif (last in BATCHES or folder) and _feeds_training(script, call, steps):
            yield call, None if folder else 0


def _has_fixed_steps(script: Script, fit: ast.AST) -> bool:
    """Whether an epoch has a written number of steps, however large the batches are."""
    if not isinstance(fit, ast.Call):
        return False
    given = script.evaluator.argument(fit, "steps_per_epoch")
    return bool(given.nodes) and all(_is_written(script, n) for n in given.nodes)


def _is_written(script: Script, node: ast.expr) -> bool:
    """Whether a number is written, be it as `3306 // 32`: of no name."""
    if type(script.evaluator.constant(node)) is int:
        return True
    made = [origin.expression for origin in script.resolver.origins(node)]
    return all(its is not None and _reckons(script, its) for its in made)


def _reckons(script: Script, node: ast.expr) -> bool:
    """Arithmetic of numbers that stand there."""
    if isinstance(node, ast.Call) and node.args and not node.keywords:
        rounds = script.index.qualified(node.func) in _ROUNDS
        return rounds and all(_reckons(script, given) for given in node.args)
    if isinstance(node, ast.BinOp):
        return _reckons(script, node.left) and _reckons(script, node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _trains_by_name(script: Script, call: ast.Call) -> bool:
    """Whether batches of an image generator are not those of an evaluation."""
    if "ImageDataGenerator" not in script.source.text:
        return False
    if _EVALUATES.search(_name(script, call)):
        return False
    trainings = [
        fit
        for index in run_together(script)
        for name in TRAININGS
        for fit in index.calls_by_name.get(name, ())
    ]
    trainings = [fit for fit in trainings if _takes(script, fit, call)] or trainings
    trained = [_has_fixed_steps(script.of(fit), fit) for fit in trainings]
    return not (trained and all(trained))


def _takes(script: Script, fit: ast.Call, made: ast.Call) -> bool:
    """Whether a training is seen to take the batches that a call gives."""
    taken = [k.value for k in fit.keywords if k.arg in ("x", "generator")]
    return any(
        origin.node is made
        for value in (*fit.args[:1], *taken)
        for origin in script.resolver.origins(value)
    )


def _name(script: Script, call: ast.Call) -> str:
    statement = script.index.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return " ".join(dotted(t) or "" for t in targets)


def _feeds_training(script: Script, call: ast.Call, steps: set[ast.AST]) -> bool:
    """Whether `fit` or a loop of steps takes the batches, through other operations."""
    if _EVALUATES.search(_name(script, call)):
        return False
    if "take" in map(last_name, script.pipelines.behind(call)):
        return False  # a written number of steps
    for use in script.pipelines.final_uses(call):
        home = script.of(use.node)
        own = steps if home is script else {x.node for x in step_loops(home)}
        if use.kind == "fit" and _has_fixed_steps(home, use.node):
            continue
        if use.kind == "for" and use.node not in own:
            continue
        if use.kind == "for" and _ends_by_number(home, use.node):
            continue
        if use.kind in ("fit", "for"):
            return True
    return False


def _ends_by_number(script: Script, node: ast.AST) -> bool:
    """Whether a loop stops at a step, however large its batches: `if n == 9: break`.

    The number is written: one that is made of the size of a batch changes with it.
    """
    return isinstance(node, ast.For) and any(
        isinstance(branch, ast.If)
        and isinstance(branch.body[-1], ast.Break)
        and isinstance(branch.test, ast.Compare)
        and isinstance(branch.test.ops[0], (ast.Eq, ast.GtE, ast.Gt))
        and type(script.evaluator.constant(branch.test.comparators[0])) is int
        for branch in node.body
    )


def larger_batch(script: Script, batch: SmallBatch) -> Rewrite:
    """The number and the learning rate. CannotFix where both cannot be."""
    node = batch.value.node
    if batch.value.default or not isinstance(node, ast.Constant):
        raise CannotFix("the number is a default that a caller or user may replace")
    if not script.index.holds(node):
        raise CannotFix("the number stands in another file")
    statement = script.index.statement(node)
    assigns = isinstance(statement, ast.Assign) and statement.value is node
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Name) or not assigns:
        raise CannotFix("the number has no name that the learning rate could use")
    optimizer, rate = _rate(script)
    if not is_set_at(script, target, optimizer):
        raise CannotFix(f"`{target.id}` is not known where the optimizer is made")
    runtime, imports = script.names.runtime
    size = f"{runtime}.tf.batch_size({batch.size})"
    rule = _RULES[last_name(optimizer)]
    name = script.names.free("learning_rate", "scaled_lr", "batch_learning_rate")
    lines = (
        f"{name} = {runtime}.scaled_lr(\n"
        f"    {script.text(rate)}, batch_size={target.id}, "
        f'base_batch_size={batch.size}, rule="{rule}"\n)'
    )
    edits = (
        Replace(node, code(size)),
        InsertBefore(script.index.statement(optimizer), lines),
        Replace(rate, code(name)),
    )
    return Rewrite(TITLE, edits, imports)


def _rate(script: Script) -> tuple[ast.Call, ast.Constant]:
    """The one optimizer of the file, and its learning rate."""
    found = [
        call
        for call in script.index.all(ast.Call)
        if re.match(r"keras\.optimizers\.\w+$", name_of(script, call.func))
    ]
    if len(found) != 1 or last_name(found[0]) not in _RULES:
        raise CannotFix("there is not one known optimizer")
    rate = script.evaluator.argument(found[0], "learning_rate", 0).direct
    if not isinstance(rate, ast.Constant) or not isinstance(rate.value, float):
        raise CannotFix("the learning rate is not written at the optimizer")
    return found[0], rate
