"""Samples that the training process itself makes while it trains."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.calls import TENSOR_METHODS
from gpulint.index.walk import dotted, walk
from gpulint.script.samples.reachable import functions_of, reachable
from gpulint.script.samples.sample_device import sent_to_device
from gpulint.script.waiting.waits import acts

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

_MEMORY = re.compile(r"replay|buffer|memory", re.IGNORECASE)


def made_on_device(script: Script, loader: Loader) -> bool:
    """Whether a generator of samples may give tensors that are on the device."""
    makers = _makers(script, loader)
    given = [k for f in makers for k in walk(*f.body) if isinstance(k, ast.keyword)]
    sent = any(map(sent_to_device, makers))
    return sent or any(k.arg == "device" for k in given)


def made_by_objects(script: Script, loader: Loader) -> ast.Call | None:
    """A call of what a dataset holds, where the dataset itself makes whole batches.

    `self.algo.make_batch(…)`: in the training process that may be a model's output, and
    on its device.
    """
    if not loader.values("batch_size").all_in(None):
        return None
    methods = [*loader.dataset.methods, *_makers(script, loader)]
    bodies = [statement for method in methods for statement in method.body]
    calls = (node for node in walk(*bodies) if isinstance(node, ast.Call))
    asked = filter(_asks_what_it_holds, calls)
    return next((c for c in asked if not script.resolver.calls.callees(c)), None)


def _asks_what_it_holds(call: ast.Call) -> bool:
    """`self.sampler.draw()`, which is no method of a tensor or list."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr in TENSOR_METHODS:
        return False
    held = func.value
    return (
        isinstance(held, ast.Attribute)
        and isinstance(held.value, ast.Name)
        and held.value.id == "self"
    )


def made_by_acting(script: Script, loader: Loader) -> bool:
    """Whether samples come from an environment, or its replay buffer, in this process.

    The host makes one after the other as the model acts: there is no copy to overlap.
    """
    workers = loader.argument("num_workers")
    if not (workers.absent or loader.values("num_workers").all_in(0)):
        return False
    makers = [*_makers(script, loader), *loader.dataset.methods]
    calls = [n for f in makers for n in walk(*f.body) if isinstance(n, ast.Call)]
    return acts(calls) or any(map(_draws_experience, calls))


def _draws_experience(call: ast.Call) -> bool:
    """`self.buffer.sample(…)`."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "sample":
        return False
    return bool(_MEMORY.search((dotted(func.value) or "").rpartition(".")[2]))


def _makers(script: Script, loader: Loader) -> list[Function]:
    """The functions that a dataset is given to make samples, and what they call."""
    evaluator = script.evaluator
    origins = [
        origin.call
        for node in loader.argument("dataset").nodes
        for origin in script.resolver.origins(node)
    ]
    return [
        function
        for call in origins
        if call is not None
        for value in [*call.args, *(k.value for k in call.keywords)]
        for maker in functions_of(value, evaluator)
        for function in reachable(maker, evaluator)
    ]
