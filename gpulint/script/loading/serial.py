"""Whether a loader's samples are surely made by one process, with work for each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Resolver, Target, Value
from gpulint.index.module_search import is_run
from gpulint.index.walk import walk, walk_scope
from gpulint.script.copying.default_device import makes_on_gpu
from gpulint.script.frameworks.trainers import feeds_no_gpu
from gpulint.script.loading.batches_taken import is_read, taken_once
from gpulint.script.loading.changes import everywhere
from gpulint.script.loading.epochs import begun_for_each_batch
from gpulint.script.loading.few_batches import takes_few
from gpulint.script.loading.loader_options import (
    fed_by_framework,
    has_reason,
    unpicklable,
)
from gpulint.script.loading.loaders import Loader
from gpulint.script.loading.reuse import built_again
from gpulint.script.loading.worker_state import why_not_shared
from gpulint.script.neighbours import imported, programs, run_together
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.samples.dataset_size import gives_one_batch
from gpulint.script.samples.datasets import COMPUTES, LOOPS, Work
from gpulint.script.samples.generated import made_by_objects
from gpulint.script.samples.small_samples import are_small_pictures
from gpulint.script.settings.setting_values import comes_from_settings
from gpulint.source import NOTEBOOK

if TYPE_CHECKING:
    from gpulint.script.model import Script


OF_GPUS = re.compile(
    r"cuda|device|\.to\(|backward\(|rainer|\.fit\(|ccelerat|no_grad|model|predict"
)
_STAND_IN = re.compile(r"(?i)mock|dummy|fake")
FEW = 8  # small pictures in a batch
# The first torch whose workers draw numbers of their own from NumPy's global generator.
SEEDS_NUMPY = (1, 9)


def is_serial(loader: Loader) -> bool:
    """Whether 0 or 1 workers are certain and each sample takes work.

    Not for datasets that workers must not touch: open handles, samples on the device.
    """
    return _has_few(loader) and wants_workers(loader)


def _has_few(loader: Loader) -> bool:
    """Whether 0 or 1 workers are certain."""
    workers = loader.argument("num_workers")
    its = [loader.evaluator.values(n) for n in workers.nodes]
    few = workers.absent or all(v.all_in(0, 1) for v in its)
    return few and workers.state != "unknown"


def gains_by_workers(script: Script, loader: Loader) -> bool:
    """Whether a serial loader ought to have workers: samples are made for a GPU."""
    return is_serial(loader) and _may_have_more(script, loader)


def may_gain_by_workers(script: Script, loader: Loader) -> bool:
    """Whether that may be so for a training loader of samples that are not known."""
    return (
        _has_few(loader)
        and _is_usable(loader, Work.UNKNOWN)
        and loader.argument("collate_fn").absent
        and all(loop.train for loop in loader.loops)
        and _may_have_more(script, loader)
    )


def _may_have_more(script: Script, loader: Loader) -> bool:
    if fed_by_framework(script, loader):
        return False
    values = loader.values("num_workers").known
    if any(has_reason(script, v.node) for v in values):
        return False
    if comes_from_settings(script, loader, "num_workers"):
        return False  # GPU901
    if gives_one_batch(loader) or takes_few(script, loader):
        return False  # nothing to make ahead
    if begun_for_each_batch(loader):
        return False  # workers would start in each step
    if (script.training_loops or is_read(script, loader)) and taken_once(
        script, loader
    ):
        return False
    if made_by_objects(script, loader) is not None or makes_on_gpu(script):
        return False  # such as models, or GPUs, which worker processes do not have
    return not feeds_no_gpu(script, loader) and not _is_far_from_gpus(script, loader)


def _is_far_from_gpus(script: Script, loader: Loader) -> bool:
    """Whether a program, with all that it imports, only looks at its samples.

    Nothing of it names a device or trains, and no other file imports it, or it makes
    the loader behind its main guard. A notebook counts alone, whatever else the
    packages do that it imports.
    """
    if script.source.path.suffix == NOTEBOOK:
        return not script.source.has(OF_GPUS) or _moves_to_cpu(script)
    if _is_guarded(script, loader.call):
        own = [script.index, *imported(script, script.index)]
        return not any(index.source.has(OF_GPUS) for index in own)
    if not is_run(script.index) or len(programs(script)) > 1:
        return False
    return not any(index.source.has(OF_GPUS) for index in run_together(script))


def _moves_to_cpu(script: Script) -> bool:
    """Whether all that is moved goes to the CPU, some of it by name: `device = "cpu"`.

    What is only brought back to the host may be what a trainer has computed elsewhere.
    """
    moves = script.moves
    return (
        any(isinstance(move.device, ast.Name) for move in moves)
        and all(move.target is Target.CPU for move in moves)
        and "cuda" not in script.source.text
    )


def _is_guarded(script: Script, call: ast.Call) -> bool:
    """Whether a call, or all calls of its function, stand behind the main guard."""
    function = script.index.function(call)
    calls = [call] if function is None else script.resolver.calls.callers(function)
    return bool(calls) and all(
        script.of(its) is script
        and any(
            isinstance(above, ast.If) and "__name__" in ast.dump(above.test)
            for above in script.index.ancestors(its)
        )
        for its in calls
    )


def wants_workers(loader: Loader) -> bool:
    """Whether each sample takes work that worker processes could do."""
    return _is_usable(loader, Work.SOME)


def _is_usable(loader: Loader, work: Work) -> bool:
    """Whether worker processes could make the samples, which take such work."""
    if loader.decided_by_runtime:
        return False
    dataset = loader.dataset
    usable = dataset.handle is None and dataset.device is None
    works = dataset.work is work and not dataset.same
    return usable and works and not set_later(loader)


def set_later(loader: Loader) -> bool:
    """Whether other code sets the number, on the loader or where it is kept."""
    resolver = loader.evaluator.resolver
    nodes = loader.argument("num_workers").nodes
    kept = {n.attr for n in nodes if isinstance(n, ast.Attribute) and _own(resolver, n)}
    for attribute in everywhere(loader, ast.Attribute):
        if not isinstance(attribute.ctx, ast.Store):
            continue
        if attribute.attr in kept and not _own(resolver, attribute):
            return True
        if attribute.attr == "num_workers":
            made = resolver.origins(attribute.value)
            if any(loader.is_made_by(o.node) for o in made):
                return True
    return False


def _own(resolver: Resolver, node: ast.Attribute) -> bool:
    """Whether an attribute is one of `self`."""
    own = resolver.self_name(resolver.index.scope(node))
    return isinstance(node.value, ast.Name) and node.value.id == own


def declared(loader: Loader) -> bool:
    """Whether the number is an attribute of a class, which objects may replace."""
    evaluator = loader.evaluator
    return any(
        isinstance(evaluator.index.scope(definition.node), ast.ClassDef)
        for node in loader.argument("num_workers").nodes
        if isinstance(node, ast.Attribute)
        for definition in evaluator.resolver.definitions(node)
    )


def loads_alone(loader: Loader, values: tuple[Value, ...]) -> str:
    """What a finding says of a loader with so few workers."""
    reason = loader.dataset.reason or "samples may take work"
    is_clause = reason[0] == "`" or reason[0].isupper() or not loader.dataset.reason
    what = reason if is_clause else f"the dataset {reason}"
    numbers = sorted({str(v.constant) for v in values})
    if not numbers:
        return f"`num_workers` is not set, so the training process loads alone: {what}"
    who = "one process" if numbers == ["1"] else "the training process"
    return f"`num_workers` is {' or '.join(numbers)}, so {who} loads alone: {what}"


def why_no_workers(
    script: Script, loader: Loader, values: tuple[Value, ...]
) -> str | None:
    """The guard that fails for giving a loader workers."""
    dataset = loader.dataset
    if any(v.default for v in values) or declared(loader):
        return "the number is a default that a caller or user may replace"
    if repeats_stream(script, loader):
        return "every worker would yield all samples of the iterable dataset"
    if dataset.mutated:
        return "samples change the dataset, and each worker would change its own copy"
    if not dataset.known or dataset.work is Work.UNKNOWN:
        return "the dataset is not known"
    if dataset.generator is not None:
        return "all workers would have a copy of the dataset's random generator"
    if dataset.placed is not None:
        return "the device that makes the samples is one that a caller may replace"
    if built_again(script, loader):
        return "the loader is built in a loop"
    return unpicklable(script, loader) or why_not_shared(script, loader)


def draws_the_same(script: Script, loader: Loader) -> bool:
    """Whether workers of the project's PyTorch would all draw the same samples.

    By NumPy's global generator, which a PyTorch before 1.9 does not seed in workers.
    """
    drawn = loader.argument("worker_init_fn").absent and any(
        (script.index.home(node).qualified(node.func) or "").startswith("numpy.random.")
        for method in loader.dataset.methods
        for node in walk(method)
        if isinstance(node, ast.Call)
    )
    return drawn and runs_only_before(script, SEEDS_NUMPY)


def is_stand_in(loader: Loader) -> bool:
    """Whether samples are made up, by the name of their class: `MockDataset`."""
    owner = loader.dataset.owner
    return owner is not None and _STAND_IN.search(owner.name) is not None


def may_be_light(loader: Loader) -> bool:
    """Whether samples read no file and run no transform that is known to take long.

    What a loop or some arithmetic takes depends on their sizes: windows of an array
    are made in less time than workers need to hand over the tensors of their batch.
    """
    return loader.dataset.reason.endswith((LOOPS, COMPUTES))


def hands_over_little(script: Script, loader: Loader) -> bool:
    """Whether a batch is a few small pictures: to hand it over takes as long."""
    if not are_small_pictures(script, loader):
        return False
    sizes = loader.values("batch_size")
    numbers = [v.constant for v in sizes.known]
    return sizes.complete and all(isinstance(n, int) and n <= FEW for n in numbers)


def no_copies(script: Script, loader: Loader) -> bool:
    """Whether workers, each with a copy of the dataset, would give other samples."""
    return loader.dataset.mutated or repeats_stream(script, loader)


def repeats_stream(script: Script, loader: Loader) -> bool:
    """Whether every worker would yield all samples of an iterable dataset."""
    return loader.dataset.iterable and not _shards(script, loader.dataset.owner)


def _shards(script: Script, owner: ast.ClassDef | None) -> bool:
    return any(
        owner is None or script.index.inside(call, owner)
        for name, calls in script.index.calls.items()
        if name.endswith("get_worker_info")
        for call in calls
        if not _is_refused(script, call)
    )


def _is_refused(script: Script, call: ast.Call) -> bool:
    """Whether a function goes on in no worker: `assert get_worker_info() is None`.

    Or raises in one: `if info is not None: raise`.
    """
    asked = _tests_for_none(script, call)
    return any(
        isinstance(above, ast.Assert)
        if isinstance(test.ops[0], ast.Is)
        else isinstance(above, ast.If) and isinstance(above.body[-1], ast.Raise)
        for test in asked
        for above in [script.index.parent(test)]
    )


def _tests_for_none(script: Script, call: ast.Call) -> Iterator[ast.Compare]:
    """The tests whether what a call gives is None, of a name that it is given too."""
    function = script.index.scope(call)
    for test in (n for n in walk_scope(function) if isinstance(n, ast.Compare)):
        origins = script.resolver.origins(test.left)
        none = test.comparators[0]
        asked = test.left is call or [o.node for o in origins] == [call]
        if asked and isinstance(none, ast.Constant) and none.value is None:
            yield test
