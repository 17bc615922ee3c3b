"""New tensors are put on the GPU by default, where a loader shuffles on the host.

## Why
`torch.set_default_tensor_type(torch.cuda.FloatTensor)` and
`torch.set_default_device("cuda")` put all tensors on the GPU that name no device, those
of PyTorch's own loaders as well: a shuffled `DataLoader` draws its order on the GPU
with a generator of the host, and raises “Expected a 'cuda' device type for generator
but found 'cpu'”. The default tensor type is deprecated besides.

## Example
```python
import torch
from torch.utils.data import DataLoader

torch.set_default_tensor_type(torch.cuda.FloatTensor)

loader = DataLoader(dataset, batch_size=64, shuffle=True)
```

## Fix
None: models and batches that rely on the default have to be sent by themselves, as in
`model.to(device)`. A generator of the GPU, `generator=torch.Generator("cuda")`, lets
the loader draw, in another order than before.

## When not
The default is taken back or chosen by the version of torch. Loaders, samplers and
`random_split` that are given a generator, or do not shuffle. Without any of them only
the deprecated call is reported, where the project allows torch 2.1; it costs nothing,
so that its confidence is low. A default type or device on the CPU. What sets it in a
function that nothing is seen to call is of low confidence.

## Source
PyTorch documentation, `torch.set_default_tensor_type` ("deprecated as of PyTorch 2.1")
and `torch.set_default_device`; pytorch#61457, pytorch#118084.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Calls, Rule
from gpulint.script import Script
from gpulint.script.copying.default_device import (
    DEVICE,
    LAST_OLD_SAMPLERS,
    TENSOR_TYPE,
    asks_for_version,
    draws_on_host,
    gpu_defaults,
)

DEPRECATED = (2, 1)


class DefaultTensorType(Rule):
    effect = Effect.NONE
    needs = Calls(TENSOR_TYPE, DEVICE)

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call that puts new tensors on the GPU."""
        newest = script.newest_torch
        for call in gpu_defaults(script):
            if newest is None or newest > LAST_OLD_SAMPLERS:
                draws = list(draws_on_host(script, call))
                if draws:
                    yield self._raises(script, call, draws)
                    continue
            old = script.index.qualified(call.func) == TENSOR_TYPE
            current = newest is None or newest >= DEPRECATED
            if old and current and not asks_for_version(script, call):
                yield self.finding(
                    script,
                    call.func,
                    f"`{script.text(call.func)}` is deprecated since torch 2.1: "
                    "`set_default_device` and `set_default_dtype` take its place",
                    severity=Severity.NOTE,
                    confidence=Confidence.LOW,
                )

    def _raises(self, script: Script, call: ast.Call, draws: list[ast.Call]) -> Finding:
        name = script.text(draws[0].func)
        function = script.index.function(call)
        called = function is None or bool(script.resolver.calls.callers(function))
        return self.finding(
            script,
            call.func,
            f"new tensors are made on the GPU, where `{name}` cannot draw with a "
            "generator of the host: it raises when it shuffles",
            related=[(draw.func, "draws on the host") for draw in draws],
            confidence=None if called else Confidence.LOW,
        )
