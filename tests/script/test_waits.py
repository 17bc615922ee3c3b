"""What is said of the waits in a loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.finding import Confidence, Finding, Severity
from gpulint.registry import find_rule
from gpulint.source import Source

TRAIN = """
import torch

def train(model, loader, optimizer, args):
    for x in loader:
        loss = model(x.to("cuda")).mean()
        loss.backward()
        optimizer.step()
        if args.scaled:
            print(loss.item())
        {}:
            print(float(loss))
"""


def finding(branch: str) -> Finding:
    rule = find_rule("GPU106")
    assert rule is not None
    source = Source(Path("train.py"), TRAIN.format(branch))
    (found,) = check_source(source, Options((rule,))).findings
    return found


@pytest.mark.parametrize(
    "branch, times, severity",
    [
        ("else", "", Severity.NOTE),
        ("elif args.mean", "", Severity.NOTE),
        ("if args.mean", "2 times ", Severity.WARNING),
    ],
)
def test_one_side_of_a_branch_counts(
    branch: str, times: str, severity: Severity
) -> None:
    found = finding(branch)
    assert f"for the device {times}in every training step" in found.message
    assert found.severity is severity


@pytest.mark.parametrize(
    "read",
    ["loss.cpu().item()", "loss.cpu().data.item()", "loss.cpu().detach().item()"],
)
def test_a_read_through_the_host_is_one_wait(read: str) -> None:
    rule = find_rule("GPU106")
    assert rule is not None
    text = TRAIN.replace("print(float(loss))", "pass").replace("loss.item()", read)
    (found,) = check_source(
        Source(Path("train.py"), text.format("else")), Options((rule,))
    ).findings
    assert "for the device in every training step" in found.message


OPTION = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--use-amp", action="store_true")
args = parser.parse_args()
losses = []
for x in loader:
    if args.use_amp:
        with torch.autocast("cuda"):
            loss = model(x.to("cuda")).mean()
            losses.append({})
    else:
        loss = model(x.to("cuda")).mean()
        losses.append(loss.item())
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("read, lines", [("loss.item()", [13]), ("loss.detach()", [])])
def test_the_same_wait_in_a_branch_that_is_off_by_default(
    read: str, lines: list[int]
) -> None:
    rule = find_rule("GPU106")
    assert rule is not None
    source = Source(Path("train.py"), OPTION.format(read))
    (found,) = check_source(source, Options((rule,))).findings
    assert found.place.start.row == 16
    assert [place.start.row for place in found.related] == lines


CHOSEN = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--show", action="store_true")
args = parser.parse_args()
shown = {}


def train(shown):
    for x in loader:
        loss = model(x.to("cuda")).mean()
        loss.backward()
        optimizer.step()
        if shown:
            print(loss.item())


train(shown)
"""


@pytest.mark.parametrize(
    "made, found",
    [
        ("(1, 2) if args.show else None", False),
        ("None if args.show else (1, 2)", True),
        ("(1, 2) if args.show else ()", True),
        ("(1, 2) if asked() else None", True),
        ("None\nfor _ in loader: shown = (1, 2) if shown else None", True),
    ],
)
def test_what_an_option_that_is_off_would_choose(made: str, found: bool) -> None:
    rule = find_rule("GPU106")
    assert rule is not None
    source = Source(Path("train.py"), CHOSEN.format(made))
    findings = check_source(source, Options((rule,))).findings
    assert [f.confidence for f in findings] == [Confidence.HIGH] * found


@pytest.mark.parametrize(
    "calls, sure",
    [
        ("train(None)\ntrain(shown=None)\ntrain()", Confidence.LOW),
        ("train(None)\ntrain(shown=asked())", Confidence.HIGH),
        ("train(None)\ntrain([1])", Confidence.HIGH),
    ],
)
def test_what_all_callers_leave_at_none(calls: str, sure: Confidence) -> None:
    rule = find_rule("GPU106")
    assert rule is not None
    text = CHOSEN.format("None").replace("def train(shown)", "def train(shown=None)")
    unset = "if shown is None or len(shown) < 1:\n            y = x\n        else:"
    text = text.replace("if shown:", unset)
    source = Source(Path("train.py"), text.replace("\ntrain(shown)", f"\n{calls}"))
    findings = check_source(source, Options((rule,))).findings
    assert [f.confidence for f in findings] == [sure]
