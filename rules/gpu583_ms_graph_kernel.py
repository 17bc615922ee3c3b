"""Graph kernel fusion is switched on by a setting that is deprecated.

## Why
`enable_graph_kernel=True` lets MindSpore fuse operators of a graph into larger kernels.
The setting is deprecated and will be removed, with the fusion then off again; the level
of compiling, `O1`, does the same.

## Example
```python
import mindspore as ms

ms.set_context(mode=ms.GRAPH_MODE, enable_graph_kernel=True)
```
becomes
```python
import mindspore as ms

ms.set_context(mode=ms.GRAPH_MODE, jit_config={"jit_level": "O1"})
```

## Fix
The level in place of the setting, as MindSpore's own warning asks. Fused kernels may
round differently, so the fix is of the effect `numerics`.

No fix where the project allows releases before 2.3, which have no such level, or the
call has a `jit_config` of its own, or the value is a name that others may set.

## When not
The setting is False, or a value that is not known. Projects that allow no release from
2.3 on. The confidence is low: as long as the setting is there, it costs nothing.

## Source
MindSpore 2.10, `mindspore/context.py` ("Please use jit_config={'jit_level': 'O1'}
instead").
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_context import allows, requires, set_contexts
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import CallText

KEY = "enable_graph_kernel"
LEVEL = (2, 3)
TITLE = "Ask for the level that fuses kernels"


class MsGraphKernel(Rule):
    effect = Effect.NUMERICS
    framework = "mindspore"
    needs = Words(f"mindspore set_context {KEY}")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call that switches it on."""
        if not allows(script, LEVEL):
            return
        for call in set_contexts(script):
            given = script.evaluator.argument(call, KEY).direct
            if given is None or not script.evaluator.values(given).all_in(True):
                continue
            withheld = None
            if not requires(script, LEVEL):
                withheld = "the project allows MindSpore before 2.3"
            elif not isinstance(given, ast.Constant):
                withheld = "the value is written in another place"
            elif any(k.arg in ("jit_config", None) for k in call.keywords):
                withheld = "the call has a `jit_config`"
            fix = Rewrite(TITLE, (Replace(call, _with_level),))
            yield self.finding(
                script,
                given,
                f"`{KEY}` is deprecated: the level O1 of compiling fuses kernels",
                fix=None if withheld else fix,
                withheld=withheld,
                confidence=Confidence.LOW,
            )


def _with_level(text: str) -> str:
    call = CallText.of(text)
    level = '{"jit_level": "O1"}'
    return call.code(
        a._replace(head="jit_config=", name="jit_config", value=level)
        if a.name == KEY
        else a
        for a in call.arguments
    )
