"""TF32, which TensorFlow has on by default, is switched off, or on again.

## Why
From the Ampere generation on, tensor cores multiply float32 matrices in TF32: the range
of float32 with 10 bits of mantissa. TensorFlow uses it unless it is told not to. Off,
matrix products and convolutions of a float32 model take several times as long on such a
GPU; to switch it on changes nothing.

## Example
```python
import tensorflow as tf

tf.config.experimental.enable_tensor_float_32_execution(True)
model.fit(images, epochs=10)
```
becomes
```python
import tensorflow as tf

model.fit(images, epochs=10)
```

## Fix
The line that switches on what is on is left out, if it is the only one. Where the
script switches TF32 off it has its reasons, which a person knows: report only.

## When not
The value is not a constant: something decides it, such as the place the script runs in
(see `runtime.tf.configure` for that).

## Source
TensorFlow documentation, `tf.config.experimental.enable_tensor_float_32_execution`
("enabled by default"); read back with TensorFlow 2.21.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.rewriting.edits import Remove, Rewrite

NAME = "enable_tensor_float_32_execution"


class TfTf32(Rule):
    effect = Effect.EXACT
    severity = Severity.WARNING
    hardware = Hardware.TF32
    needs = TensorFlow(f"tensorflow {NAME}")
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call with a constant."""
        calls = script.index.calls_by_name.get(NAME, ())
        for call in calls:
            given = call.args[0] if call.args else None
            if not isinstance(given, ast.Constant):
                continue
            if given.value is False and _is_alone(script, call):
                yield self.finding(
                    script,
                    given,
                    "TF32 is switched off: matrix products and convolutions in float32 "
                    "leave the tensor cores unused",
                    effect=Effect.NONE,
                )
            elif given.value is True and len(calls) == 1 and _is_alone(script, call):
                edit = Remove(script.index.statement(call))
                yield self.finding(
                    script,
                    given,
                    "TF32 is switched on, as it is by default",
                    severity=Severity.NOTE,
                    fix=Rewrite("Leave it to the default", (edit,)),
                )


def _is_alone(script: Script, call: ast.Call) -> bool:
    """Whether the call is a statement that nothing decides about, beside others."""
    statement = script.index.statement(call)
    block = script.index.parent(statement)
    if not isinstance(statement, ast.Expr) or statement.value is not call:
        return False
    plain = isinstance(block, (ast.Module, ast.FunctionDef))
    return plain and len(getattr(block, "body", ())) > 1
