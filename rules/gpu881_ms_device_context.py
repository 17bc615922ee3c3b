"""MindSpore's device is a constant, or is set in a way that is deprecated.

## Why
`set_context(device_target="GPU")` raises `RuntimeError` on a machine without one, with
a list of devices it does support: the script runs on one kind of machine alone. Since
2.5 the parameter is deprecated besides; `mindspore.set_device` takes its place.

## Example
```python
import mindspore as ms

ms.set_context(mode=ms.GRAPH_MODE, device_target="GPU", device_id=0)
```
becomes
```python
import mindspore as ms
from gpulint import runtime

runtime.ms.setup("GPU", 0)
ms.set_context(mode=ms.GRAPH_MODE)
```

## Fix
`runtime.ms.setup` sets the device that the script names, where there is one, else the
first of GPU, Ascend and CPU that MindSpore accepts, and says why it took no other. It
does so in all releases, by `set_device` or by `set_context`. Other settings of the call
stay in it.

No fix where the call is part of an expression or unpacks `**kwargs`, nor in a program
of several ranks: one that found no device would compute on another, and the others wait
for it.

## When not
The CPU as the device: every MindSpore has it. A device that comes from an option or
a setting, or is set in a branch that asks for it: the user has chosen it. A constant
device is of low confidence: it costs nothing on the machine that has one. Where the
project requires MindSpore 2.5 or newer, a note says that the form is deprecated, of low
confidence as well.

## Source
MindSpore documentation, `mindspore.set_device` (2.5) and `mindspore.set_context`
("device_target … will be deprecated and removed in future versions").
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_context import PACKAGE, set_contexts
from gpulint.script.rewriting.edits import (
    Edit,
    InsertBefore,
    Replace,
    ReplaceCode,
    Rewrite,
)
from gpulint.script.rewriting.syntax import without_keywords

SET_DEVICE = (2, 5)
ACCELERATORS = ("GPU", "Ascend")
MOVED = ("device_target", "device_id")
RANKS = re.compile(r"mindspore\.communication|\b(RANK_ID|RANK_SIZE|DEVICE_ID)\b")
TITLE = "Set the device by a call of its own"
ASKS = re.compile(r"device|target|platform|gpu|ascend|modelarts|cloud", re.IGNORECASE)


class MsDeviceContext(Rule):
    effect = Effect.EXACT
    framework = "mindspore"
    needs = Words("mindspore set_context device_target")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call that sets the device."""
        for call in set_contexts(script):
            target = script.evaluator.argument(call, "device_target").direct
            if target is None:
                continue
            values = script.evaluator.values(target)
            constants = {v.constant for v in values.known}
            chosen = not values.complete or any(v.default for v in values.known)
            fixed = not chosen and len(constants) == 1 and constants <= {*ACCELERATORS}
            if fixed and not _is_chosen(script, call):
                yield self._fixed_device(script, call, target, constants.pop())
            elif (script.releases(PACKAGE).lowest or (0, 0)) >= SET_DEVICE:
                yield self._deprecated(script, call, target)

    def _deprecated(self, script: Script, call: ast.Call, target: ast.expr) -> Finding:
        name, imports = script.names.module(PACKAGE, "mindspore")
        fix, withheld = _fix(script, call, target, f"{name}.set_device", imports)
        if not _is_only(script, call):
            fix, withheld = None, "another device may have been set before"
        return self.finding(
            script,
            target,
            "`device_target` of `set_context` is deprecated since MindSpore 2.5: "
            "`set_device` takes its place",
            fix=fix,
            withheld=withheld,
            severity=Severity.NOTE,
            confidence=Confidence.LOW,
        )

    def _fixed_device(
        self, script: Script, call: ast.Call, target: ast.expr, name: object
    ) -> Finding:
        runtime, imports = script.names.runtime
        setup = f"{runtime}.ms.setup"
        fix, withheld = _fix(script, call, target, setup, imports)
        if script.source.has(RANKS):
            fix, withheld = (
                None,
                "one rank on another device leaves the others alone",
            )
        return self.finding(
            script,
            target,
            f"the device is always {name}: MindSpore raises on a machine without one",
            fix=fix,
            withheld=withheld,
            confidence=Confidence.LOW,
        )


def _is_only(script: Script, call: ast.Call) -> bool:
    """Whether nothing else in the file sets a device: `set_device` takes but one."""
    set_elsewhere = any(n.endswith("set_device") for n in script.index.called_names)
    given = [c for c in set_contexts(script) if any(k.arg in MOVED for k in c.keywords)]
    return given == [call] and not set_elsewhere


def _is_chosen(script: Script, call: ast.Call) -> bool:
    """Whether the call stands in a branch that asks which device there is, or is."""
    tests = [
        above.test
        for above in script.index.ancestors(call)
        if isinstance(above, (ast.If, ast.IfExp))
    ]
    tried = any(isinstance(n, ast.Try) for n in script.index.ancestors(call))
    return tried or any(ASKS.search(script.text(test)) for test in tests)


def _fix(
    script: Script,
    call: ast.Call,
    target: ast.expr,
    helper: str,
    imports: tuple[str, ...],
) -> tuple[Rewrite | None, str | None]:
    statement = script.index.parent(call)
    if not isinstance(statement, ast.Expr):
        return None, "the call is part of an expression"
    if any(k.arg is None for k in call.keywords) or call.args:
        return None, "the call unpacks settings"
    number = script.evaluator.argument(call, "device_id").direct
    given = [script.text(target)] + ([script.text(number)] if number else [])
    if any("\n" in text for text in given):
        return None, "the device is written on several lines"
    line = f"{helper}({', '.join(given)})"
    edits: tuple[Edit, ...] = (ReplaceCode(statement, line),)
    if any(k.arg not in MOVED for k in call.keywords):
        rest = Replace(call, without_keywords(*MOVED))
        edits = (InsertBefore(statement, line), rest)
    return Rewrite(TITLE, edits, imports), None
