"""Convolutions add a bias that the batch normalisation behind them takes away again.

## Why
Batch normalisation subtracts the mean of each channel, and with it whatever the
convolution in front of it has added to that channel: its bias changes nothing, its
gradient is zero but for rounding, and the normalisation has a bias of its own. It still
costs a pass over all outputs to add it, one over all their gradients to sum them up,
and the optimizer's work, in every step.

## Example
```python
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(64, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.body(x)


def train(model, loader, criterion, optimizer):
    model.cuda()
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```
`nn.Conv2d(64, 64, 3, padding=1, bias=False)` computes the same.

## Fix
None: without the bias, saved weights no longer fit the model (`load_state_dict` finds
keys that it does not expect), the numbers drawn for the layers behind it are others,
and code that sets `module.bias` would have to look whether there is one.

## When not
The file speaks of weights made elsewhere. What the convolution gives goes to something
else as well, or to the normalisation only on some way through `forward`. Other
normalisations: those over groups of channels keep a part of the bias. A module of the
program runs the layers one by one, and may mask what is between. No program that
trains on a GPU is seen to use the file. Of low confidence where a file of the program
fills the biases of modules, and would have to ask first whether there are any, where
the README offers trained weights, which would no longer fit, and where the file takes
a quantizer, which may fold the normalisation into the convolution.

## Source
PyTorch Performance Tuning Guide, "Disable bias for convolutions directly followed by a
batch norm".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.modelling.idle_biases import fills_biases, find_idle_biases
from gpulint.script.reaching.started import trained_on_gpu
from gpulint.torch_prose import prose, text_of

# Weights made elsewhere fit the layers as they are.
GIVEN_WEIGHTS = (
    *("retrain", "PRETRAIN", "load_state_dict", "state_dict_from_url", "model_zoo"),
    *("from_checkpoint", "load_url", "torch.hub", "_url", "_URL"),
)
_OFFERED = re.compile(
    r"(?i)pre-?trained[ -](weights|models?|checkpoints?)|model zoo"
    r"|download[^.\n]{0,60}(weights|models?|checkpoints?)\b"
)

_QUANTIZES = re.compile(r"(?i)quant")  # modules and classes of packages


class BiasBeforeBatchnorm(Rule):
    """Reports the first convolution of a file, with the others as related places."""

    effect = Effect.NONE
    severity = Severity.NOTE
    needs = Words("<batchnorm> <convolution>").without(*GIVEN_WEIGHTS)

    def check(self, script: Script) -> Iterator[Finding]:
        """At most one finding for a file."""
        found = find_idle_biases(script)
        loop = trained_on_gpu(script) if found else None
        if loop is None:
            return
        first, *others = found
        many = f"{len(found)} convolutions add biases" if others else "a bias is added"
        steps = "each training step that runs them" if others else "every training step"
        yield self.finding(
            script,
            first.layer.func,
            f"{many} that the batch normalisation behind takes away again, in {steps}: "
            "`bias=False` computes the same",
            related=[
                (first.norm.func, "subtracts the mean, and the bias with it"),
                *((other.layer.func, "the same here") for other in others),
            ],
            evidence=[(loop.node, "trains on a GPU")],
            confidence=Confidence.LOW if _is_bound(script) else None,
        )


def _is_bound(script: Script) -> bool:
    """Whether the program, or weights that the project offers, count on the biases.

    Or a quantizer may fold the normalisation into the convolution.
    """
    if any(_QUANTIZES.search(o) for o in script.index.imported):
        return True
    project = script.index.project
    texts = prose(project.root) if project is not None else []
    offered = any(_OFFERED.search(text_of(path)) for path in texts)
    return offered or fills_biases(script)
