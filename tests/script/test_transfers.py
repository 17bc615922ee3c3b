"""What is said of the copies of a batch."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.registry import find_rule
from gpulint.source import Source

TRAIN = """
import torch

def train(model, loader, optimizer, args):
    for x, more, y in loader:
{}
        loss = model(x, y).mean()
        loss.backward()
        optimizer.step()
"""
BOTH_SIDES = """
if args.more:
    x, more = x.cuda(), more.cuda()
    y = y.cuda()
else:
    x, y = x.cuda(), y.cuda()
"""
ONE_ON_EACH_SIDE = """
if args.more:
    x = x.cuda()
else:
    x = more.cuda()
"""
TWO_BRANCHES = """
if args.more:
    x, more = x.cuda(), more.cuda()
if args.labels:
    y = y.cuda()
"""
LEFT_BEFORE = """
if args.more:
    model(x.cuda(), more.cuda())
    continue
x = x.cuda()
"""
CHAIN = """
if args.more:
    more = more.cuda()
elif args.labels:
    y = y.cuda()
else:
    x = x.cuda() if args.images else y.cuda()
"""


@pytest.mark.parametrize(
    "lines, copies",
    [
        (BOTH_SIDES, "3 copies"),
        (ONE_ON_EACH_SIDE, "a copy"),
        (TWO_BRANCHES, "3 copies"),
        (LEFT_BEFORE, "2 copies"),
        (CHAIN, "a copy"),
    ],
)
def test_one_side_of_a_branch_counts(lines: str, copies: str) -> None:
    rule = find_rule("GPU102")
    assert rule is not None
    text = TRAIN.format(textwrap.indent(lines.strip(), " " * 8))
    source = Source(Path("train.py"), text)
    (found,) = check_source(source, Options((rule,))).findings
    assert f"waits for {copies} of batch data" in found.message
