"""A list that is written empty holds what is appended to it."""

from __future__ import annotations

import pytest

from gpulint.index import Where

from .test_tensors import HEAD, script_of, where

PLAIN = Where.PLAIN
KEEPS = """\
class A:
 def __init__(self):
  self.xs = []
 def f(self):
  self.xs.append(d)
"""


@pytest.mark.parametrize(
    "text, place",
    [
        ("xs = []\nfor i in r:\n  xs.append(d)\nuse(torch.stack(xs))", Where.DEVICE),
        ("xs = []\nfor i in r:\n  xs.append(h)\nuse(torch.stack(xs))", Where.HOST),
        ("xs = []\nxs.append(unknown())\nuse(torch.cat(xs))", Where.UNKNOWN),
        ("xs, ys = [], []\nxs.append(h)\nys.append(d)\nuse(ys[0])", Where.DEVICE),
        ("xs, ys = [], []\nxs.append(h)\nys.append(d)\nuse(xs[0])", Where.HOST),
        ("xs: list = []\nxs.insert(0, d)\nuse(xs)", Where.DEVICE),
        ("xs = []\nxs.append(h)\nxs.extend([d])\nuse(torch.cat(xs))", Where.DEVICE),
        ("xs = []\nxs.append(h)\nxs.extend(made())\nuse(torch.cat(xs))", Where.UNKNOWN),
        ("xs = []\nxs.append(1)\nuse(xs)", PLAIN),
        ("xs = []\nuse(xs)", PLAIN),
        ("use([])", PLAIN),
        ("xs = [[], 1]\nxs.append(d)\nuse([])", PLAIN),
        ("xs = []\nxs.append(xs)\nuse(xs)", PLAIN),
        ("xs = []\ndef f():\n  xs = []\n  xs.append(d)\nuse(xs)", PLAIN),
        (f"{KEEPS} def g(self):\n  use(torch.stack(self.xs))", Where.DEVICE),
        (f"{KEEPS}class B:\n def g(self):\n  self.xs = []\n  use(self.xs)", PLAIN),
    ],
)
def test_where_the_elements_are(text: str, place: Where) -> None:
    assert where(text) == place


def test_accuracies_that_a_function_collects_are_on_the_device() -> None:
    text = """
def accuracy(output, target, topk):
    result = []
    for k in topk:
        result.append((output.topk(k)[1] == target).float().sum())
    return result

first, fifth = accuracy(model(d), d, (1, 5))
use(first)
"""
    script = script_of(HEAD + text)
    (call,) = script.index.calls["use"]
    assert Where.DEVICE in script.where(call.args[0])
