"""Accelerate waits for the copy of each batch instead of queueing it.

## Why
A loader that went through `accelerator.prepare` moves its batches itself, and by
default the host waits until a copy has ended. From pinned memory a copy with
`non_blocking=True` is only queued: the host goes on to the next batch while this one
is under way. CUDA keeps the order, so nothing reads the batch too early.

## Example
```python
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator()
loader = DataLoader(dataset, batch_size=64, pin_memory=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    accelerator.backward(criterion(model(x), y))
    optimizer.step()
```
becomes
```python
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from accelerate import DataLoaderConfiguration

loading = DataLoaderConfiguration(non_blocking=torch.cuda.is_available())
accelerator = Accelerator(dataloader_config=loading)
loader = DataLoader(dataset, batch_size=64, pin_memory=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    accelerator.backward(criterion(model(x), y))
    optimizer.step()
```

## Fix
`DataLoaderConfiguration(non_blocking=torch.cuda.is_available())`, in the configuration
that the call has or in one of its own: on Apple's MPS such copies have read memory that
was released already. It changes nothing without pinned batches, which GPU202 sees to.

Withheld where the project allows Accelerate before 0.30, which has no `non_blocking`,
where the script pins memory itself (it may write to it again while a copy is under
way), where the call is a part of a larger expression, where the script imports
Accelerate under a condition only, and where `notebook_launcher` forks processes
afterwards: they could not use CUDA any more, which `is_available()` has asked.

## When not
`non_blocking` is given, or may be. No loader that the file prepares is pinned, or to be
pinned by GPU202. Batches are left where they are (`device_placement=False`), or
the script asks for the CPU, for Megatron, which loads by itself, or for TPUs. The
project allows only releases before 0.30. Of low confidence where no prepared loader is
pinned or has workers: GPU202 is not sure of those either.

## Source
Accelerate documentation, quick tour: "Accelerate does not use non-blocking transfers by
default"; `DataLoaderConfiguration` of Accelerate 0.30 to 1.15; pytorch/pytorch#139550
(wrong results on MPS).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Calls, Hardware, Rule
from gpulint.script import Loader, Script
from gpulint.script.frameworks.trainer_calls import (
    Maker,
    TrainerCall,
    allows_before,
    may_have,
    names_of,
    trainer_calls,
)
from gpulint.script.loading.pinning import gains, has_no_workers, unpinned
from gpulint.script.loading.prepared import prepared_loaders
from gpulint.script.rewriting.device_code import device_condition
from gpulint.script.rewriting.edits import CannotFix, InsertBefore, Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords
from gpulint.script.settings.setting_values import comes_from_settings

SINCE = (0, 30)
OLD = ("fp16", "logging_dir")  # arguments that no release with `non_blocking` has
OPTIONS = "DataLoaderConfiguration"
CONFIGURATIONS = (f"accelerate.{OPTIONS}", f"accelerate.utils.{OPTIONS}")


class AccelerateBlockingTransfer(Rule):
    effect = Effect.EXACT
    hardware = Hardware.PINNED
    needs = Calls(*names_of(Maker.ACCELERATOR))
    framework = "accelerate"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each accelerator that prepares a pinned loader."""
        if not may_have(script, "accelerate", SINCE):
            return
        for made in trainer_calls(script, Maker.ACCELERATOR):
            options = _options(script, made)
            if options is None or not _places(made):
                continue
            loaders = [
                loader
                for loader in prepared_loaders(script, made.call)
                if _is_pinned(script, loader)
            ]
            if not loaders:
                continue
            withheld, fix = _why_not(script, made), None
            if withheld is None:
                try:
                    fix = _rewrite(script, made, options)
                except CannotFix as reason:
                    withheld = str(reason)
            yield self.finding(
                script,
                made.call.func,
                "the host waits for the copy of each batch that Accelerate moves to "
                "the device: `non_blocking` is not set",
                fix=fix,
                withheld=withheld,
                related=[(x.call.func, "a loader that is prepared") for x in loaders],
                confidence=_confidence(loaders),
            )


def _options(script: Script, made: TrainerCall) -> list[ast.Call] | None:
    """The configuration of loaders that a call is given, if any; None: it says so."""
    if made.call.args:
        return None
    argument = made.argument("dataloader_config")
    if argument.absent:
        return []
    found: dict[ast.Call, None] = {}
    for node in argument.nodes if argument.given else ():
        for origin in script.resolver.origins(node):
            call = origin.call
            if call is None or script.index.qualified(call.func) not in CONFIGURATIONS:
                return None
            found[call] = None
    silent = all(
        not call.args and script.evaluator.argument(call, "non_blocking").absent
        for call in found
    )
    return list(found) if found and silent else None


def _places(made: TrainerCall) -> bool:
    """Whether Accelerate moves batches to what may be a GPU."""
    for name, wrong in (("device_placement", False), ("cpu", True)):
        argument = made.argument(name)
        if argument.absent:
            continue
        if not argument.given or made.values(name).all_in(wrong):
            return False
    script = made.script
    text = script.source.text.lower()
    others = "xla" in script.frameworks or "torch_xla" in text or "megatron" in text
    return not others  # who load or copy in their own way


def _is_pinned(script: Script, loader: Loader) -> bool:
    """Whether a loader's batches are pinned, or will be once GPU202 is followed."""
    off = unpinned(loader)
    if off is None:
        return True
    home = script.of(loader.call)
    return not comes_from_settings(home, loader, "pin_memory") and gains(home, loader)


def _confidence(loaders: list[Loader]) -> Confidence | None:
    """Low where nothing is pinned now, nor GPU202 sure that it ought to be."""
    sure = any(unpinned(x) is None or not has_no_workers(x) for x in loaders)
    return None if sure else Confidence.LOW


def _why_not(script: Script, made: TrainerCall) -> str | None:
    old = [name for name in OLD if not made.argument(name).absent]
    if old or allows_before(script, "accelerate", SINCE):
        return "the project allows releases of accelerate without `non_blocking`"
    if ".pin_memory(" in script.source.text:
        return "the script pins memory itself, and may write to it again"
    return None


def _rewrite(script: Script, made: TrainerCall, options: list[ast.Call]) -> Rewrite:
    condition, imports = device_condition(script, None)
    title = "Let Accelerate copy without waiting"
    build = set_keywords(non_blocking=condition)
    if options:
        if any(not script.index.holds(call) for call in options):
            raise CannotFix("the configuration is made in another file")
        return Rewrite(title, tuple(Replace(call, build) for call in options), imports)
    statement = script.index.statement(made.call)
    if getattr(statement, "value", None) is not made.call:
        raise CannotFix("the call is a part of a larger expression")
    if isinstance(script.index.scope(made.call), ast.ClassDef):
        raise CannotFix("the call stands in the body of a class")
    name, needed = _configuration(script)
    local = script.names.free("loading", "loading_options", "dataloader_config")
    edits = (
        InsertBefore(statement, f"{local} = {name}(non_blocking={condition})"),
        Replace(made.call, set_keywords(dataloader_config=local)),
    )
    return Rewrite(title, edits, (*imports, *needed))


def _configuration(script: Script) -> tuple[str, tuple[str, ...]]:
    """The local name of the configuration's class, and the import it lacks."""
    for module in reversed(CONFIGURATIONS):
        name, needed = script.names.module(module, OPTIONS)
        if not needed:
            return name, ()
    if not any(_imports_accelerate(s) for s in script.index.tree.body):
        raise CannotFix("the script imports Accelerate under a condition only")
    return name, needed


def _imports_accelerate(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        names = [statement.module or ""]
    elif isinstance(statement, ast.Import):
        names = [alias.name for alias in statement.names]
    else:
        return False
    return any(name.partition(".")[0] == "accelerate" for name in names)
