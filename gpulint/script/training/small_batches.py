"""Training loaders whose batch is a small number for what they load."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Value
from gpulint.script.loading.loader_options import trains_on_cpu
from gpulint.script.reaching.started import stays_on_host
from gpulint.script.samples.small_samples import SMALL, Samples, small_samples
from gpulint.script.settings.setting_values import is_setting, says_why
from gpulint.script.training.batch_size_reasons import small_on_purpose

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script


class SmallBatch(NamedTuple):
    """A loader, the one number that its batch size is, and where that is written."""

    loader: Loader
    value: Value
    size: int
    samples: Samples

    @property
    def place(self) -> ast.expr:
        """The number, or the loader where that stands in another file."""
        holds = self.loader.script.index.holds(self.value.node)
        return self.value.node if holds else self.loader.call.func

    @property
    def related(self) -> list[tuple[ast.AST, str]]:
        """The other one of the two, where they are apart."""
        call, node = self.loader.call, self.value.node
        if self.loader.script.index.inside(node, call):
            return []
        if self.place is node:
            return [(call.func, "the training loader that takes it")]
        return [(node, f"{self.size} is written here")]


def small_batches(script: Script) -> Iterator[SmallBatch]:
    """Each number once."""
    if not script.loaders or trains_on_cpu(script):
        return
    seen: set[ast.expr] = set()
    for loader in script.loaders:
        found = _small_batch(script, loader)
        if found is not None and found.value.node not in seen:
            seen.add(found.value.node)
            yield found


def _small_batch(script: Script, loader: Loader) -> SmallBatch | None:
    value = one_number(loader)
    if value is None or not isinstance(value.constant, int):
        return None
    size = value.constant
    if not 1 < size < SMALL or is_setting(script, value.node):
        return None  # GPU903
    if is_chosen(script, value.node):
        return None
    if says_why(script, value.node) or not _trains_on_gpu(script, loader):
        return None
    samples = small_samples(script, loader)
    if samples is None or size >= samples.enough or small_on_purpose(script, loader):
        return None
    return SmallBatch(loader, value, size, samples)


def one_number(loader: Loader) -> Value | None:
    """The only number that can be the batch size, where it is written first."""
    values = loader.values("batch_size")
    sizes = {v.constant for v in values.known if type(v.constant) is int}
    known = values.complete and len(sizes) == 1
    same = all(type(v.constant) is int for v in values.known)
    return values.known[0] if known and same and not loader.derived else None


def is_chosen(script: Script, node: ast.expr) -> bool:
    """Whether a number is what `runtime.batch_size` is given."""
    call = script.index.parent(node)
    name = script.index.qualified(call.func) if isinstance(call, ast.Call) else None
    return (name or "").endswith("runtime.batch_size")


def _trains_on_gpu(script: Script, loader: Loader) -> bool:
    """Whether a loop is seen that trains on a GPU with the batches."""
    loops = [(script.of(loop.node), loop) for loop in loader.loops if loop.train]
    return any(its.steps_on_gpu and not stays_on_host(its, loop) for its, loop in loops)
