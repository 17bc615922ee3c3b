"""Batches that go to the GPU come from ordinary host memory.

## Why
The GPU reads host memory directly only where it is pinned. A batch in ordinary memory
is first copied into a pinned buffer by the driver, and the host waits for that. With
`pin_memory` a thread of the loader does it beside its workers, and copies with
`non_blocking=True` run beside the computation.

## Example
```python
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = torch.utils.data.DataLoader(
    train_set,
    batch_size=64,
    num_workers=4,
)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    criterion(model(x), y).backward()
    optimizer.step()
```
becomes
```python
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = torch.utils.data.DataLoader(
    train_set,
    batch_size=64,
    num_workers=4,
    pin_memory=device.type == "cuda",
)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    criterion(model(x), y).backward()
    optimizer.step()
```

## Fix
`pin_memory=` tied to the device of the loops that use the loader, or of the function
that it is handed to with one, or to the program's own switch (`if args.cuda: x =
x.cuda()`), where that can be named at the call and surely means the same there, else to
`torch.cuda.is_available()`: pinning without a GPU warns, and on MPS it does nothing. A
value that comes from a dict or a command-line default is reported with its place and
left alone; so is a call with its function's own `**kwargs`, and batches of sparse
tensors in a project that allows a torch before 2.6, which can pin none.

## When not
Loaders without workers, unless their samples ask for some (GPU201) or lie in memory
(GPU211), which is of low confidence: the process that trains would pin, one more copy
in each of its steps (on an H200 that made steps with images of 19 MB 1.2 times as fast,
and gained nothing with rows of 33 KB), and the fixes of both rules pin as well. Of low
confidence too: a switch for pinning that is off by default, but on in a command of the
project's texts or in its settings, loaders without workers of Lightning and Accelerate,
or for which all settings that are known ask for none, or an option that no command of
the texts gives, batches that are lists (of `collate_fn=list`), or all cast on the host
(`x.float()`), which copies those of another type, or made anew there but for labels.
Options that an unpacked dict sets or may set, values decided at run time, loaders of
other libraries, those of files that import fastai 1 (it makes torch's own pin),
programs that put new tensors on the GPU by default, batches of TorchIO's subjects or
that are or may be on the device (pinning those raises), as those that a collate
function asks a model for, samples that this process makes by acting in an environment,
loaders that the switch pins which sends their batches, single samples of a script that
trains nothing and reads back each result, loaders of which one batch or a few are
taken, or all into a list (they would keep their pinned memory), that another process is
handed (`executor.submit(read, loader)`), or that `process` of a graph dataset runs once
for all, datasets whose samples are all the same (a profile, or a trial of the model),
objects that a collate function makes of a class without `pin_memory`, arrays of
NumPy's, texts and numbers that a collate function of the project leaves as they are,
batches that may hold expanded tensors (`origin.expand(n, 3)`), for which pinning
raises, batches of a few known numbers, batches that the training process makes anew
from arrays or joins before it copies them (`torch.cat` gives ordinary memory), data
modules of projects without a trainer, that Lightning's trainers take on the CPU alone,
or that no file names where others train or notebooks lie beside it, Lightning's test
and prediction loaders where nothing runs them, functions that say nothing of devices
beside others that do, loops that move nothing beside others that do, scripts for the
CPU or MPS, and `pin_memory=False` with a comment that gives a reason. Batches that a
dataset has made by objects it holds, in the training process perhaps by a model on the
GPU, are of low confidence, as are those of which loops send parts with gaps (`x[:,
3:]`) and at most a length of each sample, as PyTorch lays such parts out anew in
ordinary memory before it copies them, those of which a collate function puts a part
into an object that is not pinned (`NestedTensor`), samples that are handed on as they
are (`collate_fn=lambda x: x[0]`), be they pictures and texts, and those of a collate
function that is not seen where Lightning's steps take objects (`batch.image`), those
that a method of a package's class joins (`collate_fn=FrameData.collate`), or loaders of
which each pass is for one batch (`next(iter(loader))`).

## Source
PyTorch documentation, `torch.utils.data`, memory pinning; PyTorch tutorial "A guide on
good usage of `non_blocking` and `pin_memory()`".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index import Value
from gpulint.rule import Hardware, Loaders, Rule
from gpulint.script import Loader, Script
from gpulint.script.loading.batch_objects import (
    hands_on_samples,
    joined_by_class,
    puts_in_object,
    steps_take_objects,
    torch_that_pins,
)
from gpulint.script.loading.batches_taken import gives_one_a_pass
from gpulint.script.loading.beyond import loops_beyond
from gpulint.script.loading.default_workers import options_ask_for_none
from gpulint.script.loading.loader_options import DERIVED, takes_any_options
from gpulint.script.loading.pin_conditions import pin_condition
from gpulint.script.loading.pinning import (
    changed_in_dataset,
    compared_device,
    gains,
    has_no_workers,
    settings_ask_for_none,
    unpinned,
)
from gpulint.script.loading.sent import (
    cast_on_host,
    sends_labels_alone,
    sends_strided_alone,
)
from gpulint.script.loading.tuple_batches import needs_tuple
from gpulint.script.reaching.commands import is_switched_on
from gpulint.script.rewriting.edits import Edit, Replace, ReplaceCode, Rewrite
from gpulint.script.rewriting.syntax import set_keywords
from gpulint.script.samples.generated import made_by_objects
from gpulint.script.settings.setting_values import comes_from_settings


class UnpinnedLoader(Rule):
    """Fires at the callee of a loader without pinned memory."""

    effect = Effect.EXACT
    hardware = Hardware.PINNED
    torch = (1, 0)
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each loader."""
        for loader in script.loaders:
            off = unpinned(loader)
            if off is None or comes_from_settings(script, loader, "pin_memory"):
                continue  # GPU901
            if gains(script, loader):
                yield self._finding(script, loader, off)

    def _finding(self, script: Script, loader: Loader, off: list[Value]) -> Finding:
        written = loader.argument("pin_memory").direct
        elsewhere = [v.node for v in off if v.node is not written]
        state = "is False" if off else "is not set"
        if any(v.default for v in off):
            state += " by default"
        if written is not None and compared_device(script, written):
            state = "is never on, as a `torch.device` equals no string"
        withheld = "the value is written in another place" if elsewhere else None
        withheld = DERIVED if loader.derived else withheld
        if not off and takes_any_options(script, loader):
            withheld = "the options that a caller passes may hold it"
        changed = changed_in_dataset(script, loader)
        if changed is not None and withheld is None:
            line = getattr(changed, "lineno", 0)
            withheld = f"line {line} changes the batch, which may be the dataset's own"
        made = made_by_objects(script, loader)
        if made is not None and withheld is None:
            what = script.text(made.func)
            withheld = f"what `{what}` gives may be on the device already"
        joined = joined_by_class(script, loader)
        if joined is not None and withheld is None:
            withheld = f"`{joined}` may give objects that PyTorch cannot pin"
        withheld = withheld or needs_tuple(script, loader)
        on = any(is_switched_on(script, v) for v in off if v.default)
        return self.finding(
            script,
            loader.call.func,
            f"`pin_memory` {state}, and the batches go to the GPU",
            fix=None if withheld else _rewrite(script, loader),
            withheld=withheld,
            related=[(node, "`pin_memory` is False here") for node in elsewhere],
            confidence=Confidence.LOW if on or _may_not_gain(script, loader) else None,
        )


def _may_not_gain(script: Script, loader: Loader) -> bool:
    """Whether the process that trains would pin, or may copy what it has not pinned."""
    loops = [*loader.loops, *loops_beyond(script, loader)]
    joined = loader.argument("collate_fn").direct
    return (
        has_no_workers(loader)
        or gives_one_a_pass(script, loader)
        or settings_ask_for_none(loader)
        or options_ask_for_none(script, loader)
        or (joined is not None and script.text(joined) == "list")
        or cast_on_host(script, loops)
        or sends_labels_alone(script, loops)
        or sends_strided_alone(script, loops)
        or made_by_objects(script, loader) is not None
        or puts_in_object(script, loader)
        or hands_on_samples(script, loader)
        or steps_take_objects(script, loader)
        or joined_by_class(script, loader) is not None
    )


def _rewrite(script: Script, loader: Loader) -> Rewrite:
    condition, imports = pin_condition(script, loader)
    written = loader.argument("pin_memory").direct
    edit: Edit = Replace(loader.call, set_keywords(pin_memory=condition))
    if written is not None:
        edit = ReplaceCode(written, condition)
    needed = torch_that_pins(script, loader)
    return Rewrite("Pin the batches", (edit,), imports, needed)
