"""A figure, picture, histogram or file is made in every training step.

## Why
Drawing a figure and encoding a picture take tens of milliseconds of one CPU core, often
more than the step itself; a histogram copies all values to the host first. Nothing is
prepared for the GPU in the meantime. Nobody looks at thousands of pictures.

## Example
```python
import torch
from torchvision.utils import save_image


def train(model, loader, criterion, optimizer):
    for step, (x, y) in enumerate(loader):
        out = model(x.cuda())
        loss = criterion(out, y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        save_image(out, "out.png")
```

## Fix
None: how often is a matter of taste. `if step % 500 == 0:` before the call is enough.

## When not
Behind `if step % n == 0`, a condition that changes from step to step, or an option that
is off; once an epoch; in evaluation. Numbers for a log (`add_scalar`, `wandb.log`):
other threads write them. Checkpoints. Episodes of reinforcement learning.

## Source
Matplotlib documentation, "Performance"; PyTorch documentation,
`torch.utils.tensorboard`; PyTorch Performance Tuning Guide, "Avoid unnecessary CPU-GPU
synchronization".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Rule, StepLoops
from gpulint.script import Script
from gpulint.script.reaching.started import trains_on_gpu
from gpulint.script.waiting.slow_logs import SlowLog, slow_logs


class BlockingLog(Rule):
    effect = Effect.NONE
    needs = StepLoops(
        *(f"backward( {word}" for word in ("savefig(", "save_image(", "imwrite(")),
        *(f"backward( {word}" for word in ("imsave(", "add_figure(", "add_image")),
        *(f"backward( {word}" for word in ("add_histogram(", "add_embedding(")),
        *(f"backward( {word}" for word in ("plt.show(", "plt.pause(", "plt.draw(")),
        *(f"backward( {word}" for word in ("np.save", "numpy.save", "savemat(")),
        *(f"backward( {word}" for word in ("pickle.dump(", "to_csv(", "add_video(")),
        *(f"backward( {word}" for word in ("wandb.Image(", "wandb.Histogram(")),
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a training loop and sort of cost."""
        if not script.training_loops or not trains_on_gpu(script):
            return
        seen: set[object] = set()
        for loop in script.step_loops:
            sorts: dict[str, list[SlowLog]] = {}
            for log in slow_logs(script, loop) if loop.train else ():
                if log.call not in seen:
                    seen.add(log.call)
                    sorts.setdefault(log.cost, []).append(log)
            for cost, (first, *others) in sorts.items():
                related = [(o.at, "here as well") for o in others if o.at != first.at]
                if first.call is not first.at:
                    related.append((first.call, "the call"))
                yield self.finding(
                    script,
                    first.at.func,
                    f"{cost} in every training step: `{script.text(first.call.func)}`",
                    related=related,
                    evidence=[(loop.node, "runs in every training step")],
                )
