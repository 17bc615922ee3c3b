"""Small constant batches of MindSpore's datasets, and the rates that go with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Value
from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.script.frameworks.ms_context import SET_CONTEXT
from gpulint.script.frameworks.ms_pipelines import OPTIMIZER, Stage
from gpulint.script.rewriting.edits import (
    CannotFix,
    Edit,
    InsertBefore,
    Replace,
    Rewrite,
)
from gpulint.script.rewriting.syntax import code
from gpulint.script.training.larger_batch import is_given_size
from gpulint.script.training.learning_rates import OF_BATCH

if TYPE_CHECKING:
    from gpulint.script.model import Script

LEAST, SMALL = 2, 8  # one sample a batch has reasons of its own
_EVALUATION = re.compile(
    r"eval|valid|(^|_)val(_|$)|test|infer|predict|export", re.IGNORECASE
)
_TRAINING = re.compile(r"train", re.IGNORECASE)
_ACCUMULATES = re.compile(r"accum|grad(ient)?_acc", re.IGNORECASE)
_ALIKE = re.compile(
    r"contrastive|triplet|simclr|moco|nt_?xent|memory_?bank|few_?shot|meta_?learn",
    re.IGNORECASE,
)
_LISTED = re.compile(r"mindspore\.nn\.(?:\w+\.)*\w+_lr$")
TITLE = "Let the runtime choose the batch size, and the learning rate with it"


class SmallBatch(NamedTuple):
    """A small number of samples: the stage, the number, and where it is written."""

    stage: Stage
    size: int
    value: Value


def small_batches(script: Script) -> Iterator[SmallBatch]:
    """The numbers below `SMALL` that training data are batched by, each once."""
    seen: set[ast.AST] = set()
    for stage in script.ms_pipelines.stages:
        if stage.kind != "batch" or _is_for_evaluation(script, stage):
            continue
        values = _for_training(script, stage).values("batch_size")
        if not values.complete or len(values.known) != 1:
            continue
        [value] = values.known
        size = value.constant
        if type(size) is not int or not LEAST <= size < SMALL or value.node in seen:
            continue
        if _has_reason(script) or not script.ms_pipelines.is_trained(stage.call):
            continue
        seen.add(value.node)
        yield SmallBatch(stage, size, value)


def _has_reason(script: Script) -> bool:
    """Whether gradients are accumulated, or a loss compares what is in a batch."""
    text = script.source.text
    return bool(_ACCUMULATES.search(text) or _ALIKE.search(text))


def _is_for_evaluation(script: Script, stage: Stage) -> bool:
    """Whether names around a stage say that it is for evaluation alone."""
    function = script.index.function(stage.call)
    names = _targets(script, stage.call)
    names += [function.name] if function is not None else []
    said = any(map(_EVALUATION.search, names))
    return said and not any(map(_TRAINING.search, names))


def _for_training(script: Script, stage: Stage) -> Stage:
    """The stage as if its function were not called for evaluation."""
    function = script.index.function(stage.call)
    callers = script.resolver.calls.callers(function) if function is not None else []
    kept = [c for c in callers if not _evaluates(script, c)]
    if function is None or not kept or len(kept) == len(callers):
        return stage
    narrowed = script.called_only_by({function: kept})
    return Stage(narrowed, stage.call, stage.kind)


def _evaluates(script: Script, call: ast.Call) -> bool:
    """Whether names that a call's result gets say that it is for evaluation."""
    names = _targets(script, call)
    said = any(map(_EVALUATION.search, names))
    return said and not any(map(_TRAINING.search, names))


def _targets(script: Script, call: ast.Call) -> list[str]:
    targets = getattr(script.index.statement(call), "targets", [])
    return [dotted(target) or "" for target in targets]


def larger_batch(script: Script, batch: SmallBatch) -> Rewrite:
    """`runtime.ms.batch_size` and the rates with it; CannotFix: neither."""
    if batch.value.default:
        raise CannotFix("the number is a default that a caller or user may replace")
    node = batch.value.node
    if not script.index.holds(node) or not isinstance(node, ast.Constant):
        raise CannotFix("the number stands in another file")
    for call in script.index.all(ast.Call):
        if call is not batch.stage.call and is_given_size(
            script, call, batch.size, node
        ):
            raise CannotFix(f"the number is written in line {call.lineno} too")
    if _device_comes_later(script, node):
        raise CannotFix("the device is set later, and the size depends on it")
    runtime, imports = script.names.runtime
    size = _name_of(script, batch)
    edits: list[Edit] = [Replace(node, lambda text: f"{runtime}.ms.batch_size({text})")]
    optimizer, rate = _rate(script)
    options = f"batch_size={size}, base_batch_size={batch.size}"
    scaled = f"{runtime}.ms.scaled_lr({script.text(rate)}, {options})"
    statement = script.index.statement(optimizer)
    if isinstance(statement, ast.Assign) and statement.value is optimizer:
        name = script.names.free("scaled_lr", "gpulint_lr")
        edits.append(InsertBefore(statement, f"{name} = {scaled}"))
        scaled = name
    edits.append(Replace(rate, code(scaled)))
    return Rewrite(TITLE, tuple(edits), imports)


def _device_comes_later(script: Script, node: ast.Constant) -> bool:
    """Whether the device may be set after a number is computed."""
    index = script.index
    names = (*SET_CONTEXT, "mindspore.set_device")
    calls = [c for n in names for c in index.calls.get(n, ()) if _sets_device(c)]
    calls += [
        c for n, its in index.calls.items() if n.endswith("ms.setup") for c in its
    ]
    if index.function(node) is None:
        return any(index.function(c) or c.lineno > node.lineno for c in calls)
    return any(index.function(c) and c.lineno > node.lineno for c in calls)


def _sets_device(call: ast.Call) -> bool:
    if last_name(call) != "set_context":
        return True
    return any(k.arg in ("device_target", "device_id", None) for k in call.keywords)


def _name_of(script: Script, batch: SmallBatch) -> str:
    """How the size is called where optimizers are made, or the helper's call again."""
    statement = script.index.statement(batch.value.node)
    plain = isinstance(statement, ast.Assign) and statement.value is batch.value.node
    if plain and script.index.scope(statement) is script.index.tree:
        assert isinstance(statement, ast.Assign)
        [target, *others] = statement.targets
        if isinstance(target, ast.Name) and not others:
            written = script.resolver.flow(script.index.tree).definitions
            if len(written.get(target.id, ())) == 1:
                return target.id
    return f"{script.names.runtime[0]}.ms.batch_size({batch.size})"


def _rate(script: Script) -> tuple[ast.Call, ast.expr]:
    """The one optimizer of the file, and its learning rate."""
    calls = [
        call
        for name, its in script.index.calls.items()
        if OPTIMIZER.match(name)
        for call in its
    ]
    if len(calls) != 1:
        raise CannotFix("there is not one optimizer in the file")
    rate = script.evaluator.argument(calls[0], "learning_rate", 1).direct
    if rate is None:
        raise CannotFix("the learning rate is not written in the optimizer's call")
    names = [dotted(n) or "" for n in ast.walk(rate) if isinstance(n, ast.expr)]
    if any(map(OF_BATCH.search, names)):
        raise CannotFix("the learning rate is computed from the batch size")
    number = script.evaluator.constant(rate)
    if type(number) not in (int, float) and not _is_list_by_length(script, rate):
        raise CannotFix("the learning rate is not a number")
    if "\n" in script.text(rate):
        raise CannotFix("the learning rate is written on several lines")
    return calls[0], rate


def _is_list_by_length(script: Script, rate: ast.expr) -> bool:
    """Whether rates are those of `nn.cosine_decay_lr` and its kin, by the data."""
    origins = script.resolver.origins(rate)
    made = [o.call for o in origins if o.call is not None]
    names = [script.index.qualified(m.func) or "" for m in made]
    listed = len(made) == len(origins) and all(map(_LISTED.match, names))
    return bool(names) and listed and "get_dataset_size" in script.source.text
