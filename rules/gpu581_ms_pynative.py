"""A training step runs operator by operator instead of as a graph.

## Why
In PYNATIVE mode Python starts each operator by itself. Compiled, by GRAPH mode for a
whole script or `mindspore.jit` for a function, the operators of a step are fused and
started together.

## Example
```python
import mindspore as ms
from mindspore import nn

ms.set_context(mode=ms.PYNATIVE_MODE)
model = ms.Model(network, nn.MSELoss(), optimizer)
model.train(10, dataset)
```

## Fix
None: a graph runs neither prints nor a debugger, and not all of Python. Try
`ms.set_context(mode=ms.GRAPH_MODE)`, or `@ms.jit` on the training step.

## When not
The mode is not set in the file, and something in it or its folder speaks of graphs or
compiling; the mode comes from an option. Files that train nothing. Where neither layers
of 128 features nor a large model by its name are seen, the confidence is low.

## Source
MindSpore documentation, `mindspore.set_context` (`mode`, default PYNATIVE_MODE) and
`mindspore.jit`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_context import mentioned, mode_of, set_contexts
from gpulint.script.frameworks.ms_training import (
    GRAPH,
    is_compiled,
    step_functions,
    trainings,
)
from gpulint.script.modelling.written_sizes import is_seen_large


class MsPynative(Rule):
    effect = Effect.NONE
    framework = "mindspore"
    needs = Words(
        "mindspore PYNATIVE_MODE", "mindspore set_context mode", "mindspore grad for"
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """Calls that choose the mode, or steps where none is chosen."""
        if "mindspore" not in script.frameworks:
            return
        steps = [f for f in step_functions(script) if not is_compiled(script, f)]
        loops = list(script.ms_pipelines.train_loops)
        trains = bool(steps or loops or list(trainings(script)))
        chosen = [
            c
            for c in set_contexts(script)
            if any(k.arg in ("mode", None) for k in c.keywords)
        ]
        if not trains:
            return
        large = is_seen_large(script)
        if chosen:
            modes = [mode_of(script, call) for call in chosen]
            if set(modes) == {1} and "jit" not in script.source.text:
                argument = script.evaluator.argument(chosen[0], "mode").direct
                yield self.finding(
                    script,
                    argument or chosen[0],
                    "the training runs operator by operator: the mode is PYNATIVE",
                    confidence=None if large else Confidence.LOW,
                )
            return
        if mentioned(script, GRAPH):
            return
        for step in steps:
            yield self.finding(
                script,
                step,
                f"`{step.name}` runs operator by operator: nothing compiles it, and "
                "the mode is PYNATIVE unless it is set",
                confidence=Confidence.MEDIUM if large else Confidence.LOW,
            )
