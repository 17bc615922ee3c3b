"""Mixed precision is spelled `torch.cuda.amp`, which warns and will be removed.

## Why
Since torch 2.4 every call of `torch.cuda.amp.autocast`, `GradScaler`, `custom_fwd` and
`custom_bwd`, and of their `torch.cpu.amp` twins, raises a FutureWarning. The names will
be removed. `torch.autocast` and `torch.amp` do the same for every kind of device.

## Example
```python
import torch

scaler = torch.cuda.amp.GradScaler()
for x, y in loader:
    with torch.cuda.amp.autocast():
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
```
becomes
```python
import torch

scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda"):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
```

## Fix
The same object from the new name, with the device as its first argument. Imported names
keep their spelling: the import changes to `from torch.amp import …`, together with all
its calls. The old `autocast` always means float16 (bfloat16 on the CPU), the new one
whatever the autocast region around it chose; where a caller could bring such a region,
in the methods of a module or in a file that names another dtype, the fix writes the
dtype down. `torch.autocast` needs torch 1.10, `torch.amp.GradScaler` 2.3,
`torch.amp.custom_fwd` 2.4.

No fix for names that are passed on without a call, for imports in `try`, where
`isinstance` asks for the old scaler's class, in a file that compares
`torch.__version__` with a release which lacks the new name, and for NVIDIA's
`apex.amp`, which is another API.

## When not
Old names behind a test of torch's version, or in an `except`, are a fallback. Lightning
brings its own mixed precision. Tests that replace the old names or expect a warning.
Projects that no torch from 2.4 on can run: they pin an older one, or import a module
that is gone (`torch._six`).

All of it is of low confidence, as another name saves no time on the GPU: with torch
2.13 the host takes 2.4 microseconds for `torch.cuda.amp.autocast()` and 1.2 for
`torch.autocast("cuda")`.

## Source
PyTorch documentation, Automatic Mixed Precision package: `torch.cuda.amp.autocast` and
`torch.cuda.amp.GradScaler` are deprecated. apex: `apex.amp` is deprecated in favour of
`torch.amp`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index.walk import dotted
from gpulint.releases import Version
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.numerics.old_amp import (
    Import,
    OldAmp,
    Use,
    moved_import,
    takes_dtype,
)
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.rewriting.edits import Edit, Replace, ReplaceCode, Rewrite
from gpulint.script.rewriting.syntax import new_callee

SINCE = (2, 4)  # the names warn
NEW = {
    "autocast": ("autocast", (1, 10)),
    "GradScaler": ("amp.GradScaler", (2, 3)),
    "custom_fwd": ("amp.custom_fwd", (2, 4)),
    "custom_bwd": ("amp.custom_bwd", (2, 4)),
}
REPLACES = re.compile(r"\b(mock|patch|monkeypatch|warns|filterwarnings)\b")
# `version.parse(torch.__version__) >= version.parse("1.6")` decides on a flag.
ASKS = re.compile(r"torch\.__version__[^\n]*[<>]=?[^\n]*\b([12])\.(\d+)")
DTYPES = {"cuda": "float16", "cpu": "bfloat16"}


class DeprecatedAmpApi(Rule):
    effect = Effect.EXACT
    in_tests = True
    needs = Words(
        "cuda.amp", "cpu.amp", "torch.cuda <amp>", "torch.cpu <amp>", "apex <amp>"
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding per use, or per import with all its uses."""
        if "lightning" in script.frameworks:
            return
        if script.is_test and REPLACES.search(script.source.text):
            return  # the old name itself is tested
        old = OldAmp(script.resolver)
        groups: dict[Import, list[Use]] = {}
        warns = bool(old.uses) and not runs_only_before(script, SINCE)
        for use in old.uses if warns else ():
            if use.statement is None:
                yield self._written_out(script, old, use)
            else:
                groups.setdefault(use.statement, []).append(use)
        for statement, uses in groups.items():
            yield self._imported(script, old, statement, uses)
        for call in script.index.calls.get("apex.amp.initialize", ()):
            if runs_only_before(script, (1, 6)):
                return  # no other mixed precision yet
            message = "`apex.amp` is deprecated in favour of `torch.amp`"
            reason = "`apex.amp` changes model and optimizer, `torch.amp` does not"
            yield self.finding(
                script, call.func, message, withheld=reason, confidence=Confidence.LOW
            )

    def _written_out(self, script: Script, old: OldAmp, use: Use) -> Finding:
        torch, imports = torch_as_written(script, use)
        name, lowest = NEW[use.name]
        withheld = why_not(old, use) or why_not_since(script, lowest)
        fix = None
        if withheld is None:
            edit = edit_of(script, use, f"{torch}.{name}")
            title = f"Spell it `{torch}.{name}`"
            fix = Rewrite(title, (edit,), imports, torch=lowest)
        message = text(script, use)
        return self.finding(
            script,
            use.node,
            message,
            fix=fix,
            withheld=withheld,
            confidence=Confidence.LOW,
        )

    def _imported(
        self, script: Script, old: OldAmp, statement: Import, uses: list[Use]
    ) -> Finding:
        withheld = old.why_not_moved(statement)
        withheld = withheld or next(filter(None, (why_not(old, u) for u in uses)), None)
        lowest = max((1, 12), *(NEW[u.name][1] for u in uses))
        withheld = withheld or why_not_since(script, lowest)
        fix = None
        if withheld is None:
            edits = [edit_of(script, u, script.text(u.node)) for u in uses]
            changed = ReplaceCode(statement, moved_import(statement))
            imports = (
                script.names.torch[1]
                if any(takes_dtype(script, u) for u in uses)
                else ()
            )
            title = "Import it from `torch.amp` and name the device"
            fix = Rewrite(title, (changed, *edits), imports, torch=lowest)
        first, *others = uses
        related = [(u.node, f"`{u.written}`") for u in others]
        return self.finding(
            script,
            first.node,
            text(script, first),
            fix=fix,
            withheld=withheld,
            related=related,
            confidence=Confidence.LOW,
        )


def torch_as_written(script: Script, use: Use) -> tuple[str, tuple[str, ...]]:
    """What stands for `torch` in a use, which may come by a star; a missing import."""
    head, found, _ = (dotted(use.node) or "").partition(f".{use.device}.amp")
    return (head, ()) if found else script.names.torch


def decorates(script: Script, use: Use) -> bool:
    """Whether it stands above a function: then it is called once."""
    node = use.call or use.node
    return node in getattr(script.index.parent(node), "decorator_list", ())


def text(script: Script, use: Use) -> str:
    when = "where it decorates" if decorates(script, use) else "at each call"
    return f"`{use.written}` is deprecated since torch 2.4 and warns {when}"


def why_not(old: OldAmp, use: Use) -> str | None:
    """The guard that fails for one use."""
    if use.role in ("value", "check"):
        return f"`{use.name}` is passed on without being called here"
    if any(u.role == "check" and u.name == use.name for u in old.uses):
        return "`isinstance` asks for the old class"
    starred = use.call and any(isinstance(a, ast.Starred) for a in use.call.args)
    return "arguments are unpacked from a sequence" if starred else None


def why_not_since(script: Script, lowest: Version) -> str | None:
    """Whether the file asks for releases that do not have a new name yet."""
    for asked in ASKS.finditer(script.source.text):
        if (int(asked[1]), int(asked[2])) < lowest:
            return "the file asks for older releases of torch, which lack the new name"
    return None


def edit_of(script: Script, use: Use, callee: str) -> Edit:
    """The new call of a use; a bare decorator becomes a call."""
    if use.call is None:
        return ReplaceCode(use.node, f'{callee}(device_type="{use.device}")')
    device = f'"{use.device}"'
    if use.name == "autocast":
        order = ("enabled", "dtype", "cache_enabled")
        torch, _ = torch_as_written(script, use)
        dtype = f"{torch}.{DTYPES[use.device]}"
        more = {"dtype": dtype} if takes_dtype(script, use) else {}
        return Replace(use.call, new_callee(callee, device, order, **more))
    if use.name == "GradScaler":
        return Replace(use.call, new_callee(callee, device))
    return Replace(use.call, new_callee(callee, None, device_type=device))
