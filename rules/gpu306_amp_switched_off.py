"""Mixed precision is written, and a flag that is off keeps it from running.

## Why
A script with autocast and a gradient scaler trains in float32 all the same where the
flag that switches them is False: by a constant, a setting, or the default of a
command-line option that nobody passes. Every step takes longer, and activations take
twice the memory, although the code for mixed precision is there.

## Example
```python
import torch
from torch import nn

USE_AMP = False

device = torch.device("cuda")
model = nn.Linear(1024, 1024).to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=USE_AMP)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    with torch.autocast("cuda", enabled=USE_AMP):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```
becomes
```python
import torch
from torch import nn

USE_AMP = True

device = torch.device("cuda")
model = nn.Linear(1024, 1024).to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=USE_AMP)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    with torch.autocast("cuda", enabled=USE_AMP):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Fix
A constant False becomes True, where it does nothing but switch autocast and the scaler
on, the loss is scaled (or the format is bfloat16), gradients are unscaled before they
are clipped, and everything under autocast is known to bear half precision, as GPU301
asks for. Otherwise the finding says what is missing. A default of the command line is
left as it is: it is for the user to pass the option.

## When not
The flag is True in any place that is known, or its value is not known. Autocast with
`enabled=False` written in the call keeps a part in float32 on purpose. A scaler that
is off beside an autocast that is on is what bfloat16 needs. Autocast in evaluation
only, on the CPU, or under Lightning, Accelerate, DeepSpeed, fastai, Ignite and the
Hugging Face Trainer. A default that a command line or a caller may replace, and a
setting for debugging, are notes. What may train a network of Fourier transforms, which
float16 fails in but for lengths that are powers of two, is of low confidence, and so is
an option that a command in the README or in a script passes.

## Source
PyTorch documentation, "Automatic Mixed Precision package": with `enabled=False`
autocast and the scaler do nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.modelling.networks import transforms_spectra
from gpulint.script.numerics.amp_guards import switched_off, why_not_on
from gpulint.script.numerics.amp_switches import (
    OffFlag,
    is_field,
    parameter_of,
)
from gpulint.script.reaching.commands import is_passed, long_name, option_of
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.rewriting.edits import ReplaceCode, Rewrite
from gpulint.script.settings.setting_values import is_setting

SINCE = (1, 6)  # the first torch with mixed precision of its own


class AmpSwitchedOff(Rule):
    """Reports the value that switches mixed precision off, with what it switches."""

    effect = Effect.NUMERICS
    hardware = Hardware.MIXED
    of_switches = True
    needs = Words("autocast", "GradScaler")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a flag."""
        if runs_only_before(script, SINCE):
            return
        for flag in switched_off(script):
            if not is_setting(script, flag.value.node):  # else GPU902
                yield self._report(script, flag)

    def _report(self, script: Script, flag: OffFlag) -> Finding:
        here = flag.value.node in script.index.parents
        at = _place(script, flag) if here else flag.switches[0].flag
        related = [
            (s.call.func, f"`{script.text(s.call.func)}`, which it switches")
            for s in flag.switches
        ]
        if not here:
            related.append((flag.value.node, "the value"))
        note = _is_default(script, flag) or _is_for_debugging(script, flag)
        withheld = _withheld(script, flag)
        return self.finding(
            script,
            at,
            _message(script, flag),
            fix=None if withheld else _switch_on(flag),
            withheld=withheld,
            related=related,
            severity=Severity.NOTE if note else None,
            confidence=None if _is_sure(script, flag) else Confidence.LOW,
        )


def _is_sure(script: Script, flag: OffFlag) -> bool:
    """Whether nothing speaks against it: spectra, and commands that switch it on."""
    if transforms_spectra(script):
        return False
    return not is_passed(script, flag.value)


def _place(script: Script, flag: OffFlag) -> ast.AST:
    """The value; for an option without a written default, its name."""
    node = flag.value.node
    option = option_of(script, flag.value)
    return long_name(option) if option is not None and node is option else node


def _message(script: Script, flag: OffFlag) -> str:
    option = option_of(script, flag.value)
    value = flag.value.constant
    if option is not None:
        name = getattr(long_name(option), "value", flag.name)
        if _is_store(option):
            return f"mixed precision is off unless `{name}` is passed"
        return f"`{name}` is {value} by default, which switches mixed precision off"
    parameter = parameter_of(script, flag.value)
    if parameter is not None:
        return (
            f"`{parameter}` is {value} by default and no call that is known changes "
            "it: mixed precision is off"
        )
    return f"`{flag.name}` is {value}, which switches mixed precision off"


def _is_store(option: ast.Call) -> bool:
    return any(
        k.arg == "action" and str(getattr(k.value, "value", "")).startswith("store_")
        for k in option.keywords
    )


def _is_default(script: Script, flag: OffFlag) -> bool:
    """Whether a user or caller may pass another value; settings are the project's."""
    return flag.value.default and not is_field(script, flag.value)


def _is_for_debugging(script: Script, flag: OffFlag) -> bool:
    """Whether the value stands in a setting whose name says debug."""
    path = script.source_of(flag.value.node).path
    texts = [path.stem, path.parent.name, script.index.qualname(flag.value.node)]
    for above in script.index.ancestors(flag.value.node):
        if isinstance(above, ast.Assign):
            texts += [script.text(t) for t in above.targets]
        elif isinstance(above, ast.If):
            texts.append(script.text(above.test))
    return any("debug" in text.lower() for text in texts)


def _withheld(script: Script, flag: OffFlag) -> str | None:
    node = flag.value.node
    if option_of(script, flag.value) is not None:
        return "it is for the user to pass the option"
    if _is_default(script, flag):
        return "it is for the caller to pass another value"
    if node not in script.index.parents:
        return "the value is written in another file"
    if len(flag.switches[0].values) > 1:
        return "the value is written in several places"
    if not isinstance(node, ast.Constant) or node.value is not False:
        return "the value is not written as False"
    return why_not_on(script, flag)


def _switch_on(flag: OffFlag) -> Rewrite:
    edit = ReplaceCode(flag.value.node, "True")
    return Rewrite(f"Switch mixed precision on: `{flag.name} = True`", (edit,))
