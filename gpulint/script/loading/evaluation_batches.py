"""Evaluation loaders with the batch of training, and what they are read for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Value
from gpulint.index.walk import walk
from gpulint.script.loading.loader_options import trains_on_cpu
from gpulint.script.rewriting.edits import CannotFix, Replace, Rewrite
from gpulint.script.samples.small_samples import SMALL, Samples, small_samples
from gpulint.script.settings.setting_values import is_setting, says_why
from gpulint.script.training.batch_size_reasons import evaluates_otherwise, files_of
from gpulint.script.training.larger_batch import is_given_size, names_batch_size
from gpulint.script.training.small_batches import is_chosen, one_number, small_batches
from gpulint.script.training.training_step import loads, stores

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

# What makes a sum of a batch one over its samples, whatever their number.
_BY_SAMPLE = re.compile(
    r"\.sum\(|\* *([\w.]+\.size\(0\)|[\w.]+\.shape\[0\]|len\()|"
    r"reduction\s*=\s*[\"']sum[\"']"
)


class EvaluationBatch(NamedTuple):
    """An evaluation loader, its batch size, and the training loader that shares it."""

    loader: Loader
    training: Loader
    value: Value
    size: int
    samples: Samples


def evaluation_batches(script: Script) -> Iterator[EvaluationBatch]:
    """Loaders of small samples that nothing is differentiated of, each once."""
    if not script.loaders or trains_on_cpu(script):
        return
    sizes: dict[object, Loader] = {}
    for loader in script.loaders:
        if any(loop.train for loop in loader.loops):
            value = one_number(loader)
            if value is not None:
                sizes.setdefault(value.constant, loader)
    if not sizes:
        return
    reported = {batch.value.node for batch in small_batches(script)}
    for loader in script.loaders:
        value = one_number(loader)
        if value is None or value.node in reported or value.constant not in sizes:
            continue
        samples = _small(script, loader, value)
        if samples is not None and isinstance(value.constant, int):
            training = sizes[value.constant]
            yield EvaluationBatch(loader, training, value, value.constant, samples)


def _small(script: Script, loader: Loader, value: Value) -> Samples | None:
    """The samples, if a batch of them is small, and an evaluation on a GPU is seen."""
    size = value.constant
    if not isinstance(size, int) or not 1 < size < SMALL:
        return None
    if is_setting(script, value.node) or is_chosen(script, value.node):
        return None
    loops = loader.loops
    seen = bool(loops) and all(loop.eval and loop.no_grad for loop in loops)
    if not seen or not any(script.of(loop.node).steps_on_gpu for loop in loops):
        return None
    samples = small_samples(script, loader)
    if samples is None or size >= samples.enough or says_why(script, value.node):
        return None
    return None if evaluates_otherwise(script, loader) else samples


def larger_evaluation(script: Script, batch: EvaluationBatch) -> Rewrite:
    """`runtime.batch_size(…, train=False)`; CannotFix where results might change."""
    given = batch.loader.argument("batch_size").direct
    if batch.value.default:
        raise CannotFix("the number is a default that a caller or user may replace")
    if given is None or len(batch.loader.values("batch_size").known) > 1:
        raise CannotFix("the number is not written in the loader's call")
    for loop in batch.loader.loops:
        home = script.index.home(loop.node)
        if not any(not c.args for c in home.calls_by_name.get("eval", ())):
            raise CannotFix("the model is not seen to be in evaluation mode")
        _check_sums(script, loop)
    _check_other_uses(script, batch)
    runtime, imports = script.names.runtime
    edit = Replace(given, lambda text: f"{runtime}.batch_size({text}, train=False)")
    return Rewrite("Let the runtime choose the batch size", (edit,), imports)


def _check_sums(script: Script, loop: Loop) -> None:
    """All that a pass gives must be sums over samples."""
    if len(loop.items) != 1 or loop.node.orelse:
        raise CannotFix("the evaluation loop takes more than the loader's batches")
    known = {target.id for target in loop.targets}
    for node in _statements(loop.node.body):
        if isinstance(node, ast.AugAssign):
            if not isinstance(node.target, ast.Name) or not _sums(script, node):
                raise CannotFix("a metric is added up by batches")
        elif isinstance(node, ast.Assign) and all(map(_is_plain, node.targets)):
            stored = stores(node)
            if (loads(node.value) & stored) - known:
                raise CannotFix("a metric is added up by batches")
            known |= stored
        else:
            raise CannotFix("the evaluation loop does more than to add up")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a block, and of what only sets a context."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _statements(statement.body)
        else:
            yield statement


def _is_plain(target: ast.expr) -> bool:
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return all(isinstance(part, ast.Name) for part in parts)


def _sums(script: Script, added: ast.AugAssign) -> bool:
    """Whether what is added is a sum over the samples of a batch."""
    parts = [added.value]
    for part in walk(added.value):
        if isinstance(part, ast.Name):
            made = (o.expression for o in script.resolver.origins(part))
            parts += [m for m in made if m is not None]
    nodes = [node for part in parts for node in walk(part)]
    if any(isinstance(n, (ast.Div, ast.FloorDiv)) for n in nodes):
        return False
    means = any(isinstance(n, ast.Attribute) and n.attr == "mean" for n in nodes)
    text = " ".join(map(script.text, parts))
    return isinstance(added.op, ast.Add) and not means and bool(_BY_SAMPLE.search(text))


def _check_other_uses(script: Script, batch: EvaluationBatch) -> None:
    """Nothing else may know how large the batches are, or how many."""
    for index in files_of(script, batch.loader):
        for call in index.calls_by_name.get("len", ()):
            origins = (o for a in call.args for o in script.resolver.origins(a))
            if any(origin.node is batch.loader.call for origin in origins):
                raise CannotFix("the number of the batches is asked for")
        for call in index.all(ast.Call):
            if is_given_size(script, call, batch.size, batch.value.node):
                raise CannotFix(f"`{batch.size}` is a size in line {call.lineno} too")
            if names_batch_size(script, call):
                raise CannotFix(f"the batch size is used in line {call.lineno} too")
