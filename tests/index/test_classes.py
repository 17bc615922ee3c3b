"""Which classes of a project an object can be of."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index import Resolver, build_index
from gpulint.source import Source

NET = "from torch import nn\nclass Net(nn.Module):\n    size = 1\n"


@pytest.mark.parametrize(
    "text, known",
    [
        ("net = Net().to(device)\nuse(net)\n", ["Net"]),
        ("net = Net()\nnet = net.to(device).eval()\nuse(net)\n", ["Net"]),
        ("net = Net()\nfor x in y:\n    net = net.to(x)\nuse(net)\n", ["Net"]),
        ("x = y\nwhile y:\n    x = x.to(device)\n    x.run()\nuse(x)\n", []),
        ("net = other().to(device)\nuse(net)\n", []),
    ],
)  # fmt: skip
def test_a_module_that_is_moved_keeps_its_class(text: str, known: list[str]) -> None:
    index = build_index(Source(Path("a.py"), NET + text))
    (call,) = index.calls["use"]
    owners = Resolver(index).classes_of(call.args[0])
    assert [owner.name for owner in owners] == known
