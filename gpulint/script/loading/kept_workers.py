"""Whether workers could live on from one epoch to the next without a difference."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.script.given import values_given
from gpulint.script.loading.loader_options import has_reason
from gpulint.script.loading.reuse import (
    built_again,
    dataset_change,
    kept_iterator,
    runs_once,
)
from gpulint.script.loading.worker_state import changing_variable
from gpulint.script.training.trials import trains_little

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

# The first torch whose persistent workers bear pinned memory.
KEEPS_SINCE = (1, 8)
KEEPS_LATER = "the project runs with a PyTorch before 1.8, whose workers cannot stay"


def stays_the_same(script: Script, loader: Loader) -> bool:
    """Whether workers that live on would see what new ones see."""
    loops = [(script.of(loop.node), loop) for loop in loader.loops]
    if loops and all(trains_little(its, loop) for its, loop in loops):
        return False
    if runs_once(script, loader) or kept_iterator(script, loader) is not None:
        return False
    if changing_variable(script, loader) is not None:
        return False
    return dataset_change(script, loader) is None


def starts_workers_anew(script: Script, loader: Loader) -> bool:
    """Whether a loader has workers, or may be given some, and ends them with a pass."""
    if loader.runtime_call is not None:
        return _ends_by_runtime(loader.runtime_call)
    if not loader.argument("num_workers").given:
        return False
    known = values_given(script, loader.values("num_workers").known)
    if known and all(value.constant in (0, None) for value in known):
        return False  # none where nothing else is asked for
    return ends_workers(script, loader)


def ends_workers(script: Script, loader: Loader) -> bool:
    """Whether workers that a loader may have end with each pass."""
    if loader.runtime_call is not None:
        return _ends_by_runtime(loader.runtime_call)
    kept = loader.argument("persistent_workers")
    if kept.absent:
        return True
    off = kept.given and loader.values("persistent_workers").all_in(False)
    return off and not any(has_reason(script, node) for node in kept.nodes)


def _ends_by_runtime(call: ast.Call) -> bool:
    """`loader_kwargs(device)`, not told to keep workers, nor to have none."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    number = given.get("num_workers")
    if None in given or (isinstance(number, ast.Constant) and not number.value):
        return False
    return given.keys().isdisjoint(("persistent", "persistent_workers"))


def start_again(loader: Loader) -> str:
    """What a finding says of workers that do not live on."""
    values = loader.values("num_workers")
    numbers = {v.constant for v in values.known} if values.complete else set()
    number = numbers.pop() if len(numbers) == 1 else ""
    if number == 1:
        return "the loader's worker starts again in every epoch"
    if number and any(v.default for v in values.known):
        return f"the loader's workers ({number} by default) start again in every epoch"
    return f"the loader's {f'{number} workers'.strip()} start again in every epoch"


def why_not_kept(script: Script, loader: Loader) -> str | None:
    """The guard that fails for keeping workers between passes."""
    dataset = loader.dataset
    if built_again(script, loader):
        return "the loader is built in a loop, and each one would keep its workers"
    if dataset.mutated:
        return "samples change the dataset, and workers that live on would keep that"
    names = (
        loader.evaluator.resolver.classes.methods(dataset.owner)
        if dataset.owner
        else {}
    )
    if "set_epoch" in names:
        return "the dataset's `set_epoch` may be called in another file"
    return None
