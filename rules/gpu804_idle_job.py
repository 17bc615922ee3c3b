"""A training run stands still: it sleeps, or waits until somebody answers.

## Why
While a script sleeps or asks, the GPU has nothing to do, and nobody else gets its
memory. `time.sleep(60)` in a loop over 100 epochs is an hour and a half; a forgotten
`breakpoint()` or `input()` in a job that nobody watches stands still until the job is
ended, and so does one that keeps its process alive after training.

## Example
```python
import time

import torch


def train(model, loader, criterion, optimizer):
    for epoch in range(100):
        for x, y in loader:
            loss = criterion(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), "last.pt")
        time.sleep(5)
```

## Fix
None: deleting the line is easy, and who wrote it knows what it waits for.

## When not
A pause whose length is not known, or whose comment says that it cools the GPU; behind a
condition other than `if step % n == 0` or the main rank, after an exception, and where
another process is waited for in a loop of its own. Questions in some steps only, or
between whole trainings. Pauses shorter than 0.1 s that not every step makes, and after
training those shorter than half a minute. Before training. Environments of
reinforcement learning, which are shown at their own speed.

## Source
Gao et al., "An Empirical Study on Low GPU Utilization of Deep Learning Jobs", ICSE
2024: interactive and idle jobs among the causes; Python documentation, `time.sleep`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.waiting.idle import Idle, Kind, idle_places

_OFTEN: dict[Kind, str] = {
    "step": "in every training step",
    "epoch": "in every epoch",
    "sometimes": "again and again while the script trains",
    "after": "after training",
}


class IdleJob(Rule):
    effect = Effect.NONE
    needs = Words(
        "backward( sleep(",
        "backward( breakpoint(",
        "backward( set_trace(",
        "backward( input(",
        "backward( embed(",
        "backward( interact(",
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call."""
        for idle in idle_places(script):
            trains = "trains before it" if idle.kind == "after" else "trains"
            yield self.finding(
                script,
                idle.call.func,
                _message(script, idle),
                evidence=[(idle.by, trains)],
            )


def _message(script: Script, idle: Idle) -> str:
    text, often = script.text(idle.call), _OFTEN[idle.kind]
    if idle.seconds is not None:
        return f"the GPU stands still for {idle.seconds:g} s {often}"
    if script.index.qualified(idle.call.func) == "time.sleep":
        return f"`{text}` keeps the process and its GPU memory for good {often}"
    return f"`{text}` waits {often} until somebody answers, and the GPU with it"
