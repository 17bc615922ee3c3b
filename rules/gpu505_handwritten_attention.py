"""Attention written as products and a softmax, each of which goes through memory.

## Why
Written out, attention stores a score for each pair of tokens, reads all of them to
scale, mask, normalise and drop some, and keeps several copies for the backward pass:
time and memory grow with the square of the length. From torch 2.0
`scaled_dot_product_attention` does it in one kernel that keeps the scores on the chip.

## Example
```python
import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        weights = self.dropout(torch.softmax(scores, dim=-1))
        return weights @ v


def train(model, loader, criterion, optimizer):
    model.cuda()
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```
The last three lines of `forward` compute what
`F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0)` does.

## Fix
None: a person must say which arguments keep the result.

- `dropout_p` is applied in evaluation too: give `p if self.training else 0.0`.
- Scores are divided by the root of the last size of `q`; what divides by anything else,
  or by nothing, needs `scale=`, which torch 2.1 brought.
- `attn_mask` is true where tokens take part, the opposite of what `masked_fill` is
  given; `is_causal=True` replaces a triangular mask and is faster.
- A row without any token that takes part gives NaN in some releases where `-1e9` gave
  an average.

## When not
The weights are returned, kept or used for anything else. The scores are changed in
another way, as by a bias for relative positions. The query is one token, or the scores
are among channels (cross-covariance attention). The softmax is not over the last
dimension. The file uses a fused attention somewhere, or an option for
weights to be given out. The project's torch is older than 2.0. No program that trains
on a GPU is seen to use the file.

## Source
PyTorch documentation, `torch.nn.functional.scaled_dot_product_attention`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.modelling.written_attention import FUSED, Attention, find_attention
from gpulint.script.reaching.started import trained_beside


class HandwrittenAttention(Rule):
    """Reports each softmax of a module that is a part of attention alone."""

    effect = Effect.NONE
    severity = Severity.NOTE
    needs = Words(
        *(
            f"oftmax {product} <softmax>"
            for product in (
                *("transpose matmul", "transpose bmm", "transpose <matmul>"),
                *("einsum", ".mT"),
            )
        )
    ).without(*FUSED)

    def check(self, script: Script) -> Iterator[Finding]:
        """All findings of a file that a program on a GPU uses."""
        found = list(find_attention(script))
        loop = trained_beside(script) if found else None
        for attention in found if loop is not None else ():
            assert loop is not None
            yield self.finding(
                script,
                attention.softmax.func,
                "attention is written out: its scores are stored and read again by "
                "each of its operations",
                related=list(_places(attention)),
                evidence=[(loop.node, "trains on a GPU")],
            )


def _places(attention: Attention) -> Iterator[tuple[ast.AST, str]]:
    scale = "" if attention.scaled else ", not scaled here"
    yield attention.scores, f"the scores{scale}"
    for mask in attention.masks:
        yield mask, "a mask"
    for dropout in attention.dropouts:
        yield dropout, "weights are dropped"
