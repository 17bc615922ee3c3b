"""The host waits for the device in every step of a training or evaluation loop.

## Why
The host queues work for the device and runs ahead of it. `.item()`, `.cpu()`,
`float(x)`, a print or a test of a tensor needs the number itself, so the host stops
until the device has finished all queued work; meanwhile it queues nothing, and the
device then waits in turn. Python's own `max(lengths)` compares number by number, and
waits for each two. One wait a step costs little when the device is busy for long.
Several a step, and models of many small kernels, lose much.

## Example
```python
import torch


def train(model, loader, criterion, optimizer):
    device = torch.device("cuda")
    total = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = criterion(model(x), y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)
```
becomes
```python
import torch


def train(model, loader, criterion, optimizer):
    device = torch.device("cuda")
    total = torch.zeros((), dtype=torch.float64, device=device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = criterion(model(x), y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    total = total.item()
    return total / len(loader)
```

## Fix
A sum that starts as a Python 0 right before the loop moves to the device and is read
once, after the loop; branches that run now and then read it with `.item()`. Python's
floats are float64, so the sum is one too and the result is the same, bit for bit. Where
the script chooses the device at run time, `runtime.accumulator_dtype(device)` gives
float64; where there is none (MPS, some XPUs) the sum is a float32. Counts of whole
numbers are int64. `loss.item() * n` becomes `loss.detach().to(total.dtype) * n`, to
multiply in float64 as Python does; `loss.item() / n` is left alone, because CUDA
multiplies by the reciprocal. A value that is not proven to have no dimensions gets
`.reshape(())`. Of the norms that `clip_grad_norm_` gives, which are on the device too,
only those of PyTorch's own are summed there, in projects that name neither Accelerate
nor `fully_shard`, `fsdp` or `DTensor`: others may be a number, or a `DTensor`.

Where Accelerate moves models and batches, the sum starts on `accelerator.device`.

Waits are looked for in all that a step runs: functions and methods of other files,
hooks that a class leaves to one heir (`raise NotImplementedError`), meters that keep
tensors (`losses.avg.item()`), and in training the `forward` of models and losses of
known classes, but for what these ask for to go on (`if mask.sum().item() == 0:`), other
than whether a number is none (`if torch.isnan(loss): …`). All
waits of the loop go, or none: with one left the host waits as before. None goes
from a step that takes its own time around them, which would no longer be that of the
device's work. A list of losses stays a list (from Python 3.12 on, `sum()` adds floats
more exactly than `+=`).

## When not
Waits behind `if step % n == 0`, an option that is off by default or a draw that seldom
holds, in the last epoch alone (`if epoch == epochs - 1:`), in steps that leave the
backward pass out, in training functions that say nothing of devices beside others that
move their batches, once an epoch, on values that are on the host already, for the
actions of an environment, in code that measures time around `synchronize()`, by a clock
or by events, or by an object of its own (`with Timer():`), on the way to a file, for
what ends the loop, or a `while` loop inside it (`if loss.item() < limit: break`, also
of what a helper returns, or by a count that it decides on; what is read behind that was
waited for, until a pass queues more) or decides whether a step is taken, for a flag on
which the ranks agree (`all_reduce(flag)`, `if flag.item():`), and for copies that are
only queued (`non_blocking`) are not reported. Nor are outputs that an evaluation
collects on the host, what is read after them, or after a model or a loss whose
`forward` ends with a read of its own (`if matched.sum() > 0`), though the device had it
before (that wait is over), and what is read before them with no model run in between
(without it they would wait as long), nor is what stands before `dist.barrier()` so, nor
one read behind `engine.step()` of DeepSpeed, whose throughput timer waits,
`hvd.allgather(x)` of Horovod, nor one behind or before what asks for the number of
values (`mask.nonzero()`, `losses[labels > 0]`), whether it went well
(`torch.linalg.inv`) or copies from a list (`Normalize` of torchvision), where only
single operations are queued in between, nor what is read behind such reads, which stay.
So it is beside the update of an average (`AveragedModel`, ema-pytorch), a tensor that
is made of a list of tensors, metrics of torchmetrics that look at values (of two
classes, several labels or each class, unless `validate_args=False`), and the `step()`
of bitsandbytes, which wait as long, and before events are asked for their time, which
must be over. The message of an assertion is made where the training ends. A read next
to `torch.cuda.synchronize()` is reported with it: both go, or the host waits.
Comparisons with lists and what torch says of a tensor without a look at its values
(`torch.is_tensor`) wait for nothing. Of low confidence is a read behind a call that may
have waited: of an object that is not known, by the name of a method that reads, or
`.item()` of what may be on the device; so is one before `.cpu()` or `.tolist()` of such
a value, or an index of NumPy's (`x[order[:64]]`), without a model run in between. So
are one or two reads a step behind which, before the next model runs, an object that is
not known is given what may be on the device (`metric.update(output, y)`, whose own
reads wait as long), those by which a step takes its own time, and the only wait of an
evaluation's step, which costs next to nothing. With a float16 `GradScaler`,
`scaler.step` itself waits once a step unless the optimizer is fused.

## Source
The synchronising calls: `torch.cuda.set_sync_debug_mode` and the PyTorch performance
tuning guide, "Avoid unnecessary CPU-GPU synchronization". `found_inf` is read in
`torch.amp.GradScaler._maybe_opt_step`. Division by a number as a product with its
reciprocal: `aten/src/ATen/native/cuda/BinaryDivTrueKernel.cu`. Metrics: torchmetrics
0.9 to 1.9, `torch.unique` and `torch.bincount` in `functional/classification`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index.walk import walk
from gpulint.rule import Hardware, Rule, StepLoops
from gpulint.script import Loop, Script
from gpulint.script.branches import most_in_one_pass
from gpulint.script.reaching.started import stays_on_host
from gpulint.script.rewriting.edits import CannotFix
from gpulint.script.waiting.device_sums import sum_on_device
from gpulint.script.waiting.timed import ends_measure
from gpulint.script.waiting.waits import Wait, find_waits, named

MANY = 3  # waits of one step


class HostSyncInLoop(Rule):
    """One finding for each loop whose steps wait for the device."""

    effect = Effect.EXACT
    hardware = Hardware.GPU
    needs = StepLoops(
        *(
            f"{moves} {runs} torch"
            for runs in ("backward(", "no_grad", "inference_mode", ".eval(", "loader")
            for moves in ("<move>", "cuda", "ccelerator")
        ),
        "backward( torch",  # what is moved in another file
        "oader torch",
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """A finding at the worst wait of each training and evaluation loop."""
        if not script.steps_on_gpu:
            return
        seen: set[ast.AST] = set()
        for loop in script.step_loops:
            if loop.train and stays_on_host(script, loop):
                continue
            found = [w for w in find_waits(script, loop) if w.node not in seen]
            seen.update(w.node for w in found)
            waits = [w for w in found if not w.inner]  # GPU109 has the others
            if waits:
                yield self._finding(script, loop, waits, found)

    def _finding(
        self, script: Script, loop: Loop, waits: list[Wait], found: list[Wait]
    ) -> Finding:
        fix, withheld = None, None
        try:
            fix = sum_on_device(script, loop, found)
        except CannotFix as reason:
            withheld = str(reason)
        several = _count(waits) > 1
        related = {w.at: "waits as well" for w in waits if w.at is not waits[0].at}
        outside = (w for w in waits if not script.index.holds(w.node))
        related.update((w.node, "waits here") for w in outside)
        for wait in waits:
            for node in _beside(wait):
                related.setdefault(node, "waits in the other branch")
        return self.finding(
            script,
            waits[0].at,
            _message(script, loop, waits),
            fix=fix,
            withheld=withheld,
            related=related.items(),
            severity=Severity.WARNING if several and loop.train else Severity.NOTE,
            confidence=None if _is_sure(script, loop, waits) else Confidence.LOW,
        )


def _message(script: Script, loop: Loop, waits: list[Wait]) -> str:
    step = "training" if loop.train else "evaluation"
    times = f"{_count(waits)} times " if _count(waits) > 1 else ""
    what = named(script, waits)
    return f"the host waits for the device {times}in every {step} step: {what}"


def _count(waits: list[Wait]) -> int:
    """How many waits one step makes at most: of an `if` and its `else`, one side."""
    return most_in_one_pass(wait.branches for wait in waits)


def _is_sure(script: Script, loop: Loop, waits: list[Wait]) -> bool:
    """Whether the step loses by them, though it may wait for something else as well.

    One wait of an evaluation costs next to nothing. A step may take its own time, of
    the device's work, by them.
    """
    if all(ends_measure(script, loop, wait.node) for wait in waits):
        return False
    count = _count(waits)
    many = count >= MANY  # each of them takes its time, with nothing queued too
    few = count < 2 and not loop.train
    return not few and any(wait.sure and (many or wait.clear) for wait in waits)


def _beside(wait: Wait) -> Iterator[ast.expr]:
    """The same read in branches that are taken instead, as where an option is set."""
    wanted = ast.dump(wait.node)
    for branch, holds in wait.branches:
        if isinstance(branch, ast.If):
            for node in walk(*(branch.orelse if holds else branch.body)):
                if type(node) is type(wait.node) and ast.dump(node) == wanted:
                    yield node
