"""Whether a local name is read before it has any value, which raises."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpulint.index import build_index
from gpulint.script import Script
from gpulint.script.reaching.failures import fails_around
from gpulint.source import Source


@pytest.mark.parametrize(
    "body, raises",
    [
        ("x = join(x)\n    here()", True),
        ("print(x)\n    here()\n    x = 3", True),
        ("here()\n    print(x)\n    x = 3", False),
        ("x = 2\n    print(x)\n    here()\n    x = 3", False),
        ("global x\n    print(x)\n    here()\n    x = 3", False),
        ("print([x for x in y])\n    here()\n    x = 3", False),
        ("for i in y:\n        print(x) if i else 0\n        here()\n        x = 3", False),
        ("import x\n    print(x)\n    here()\n    x = 3", False),
        ("def x(): pass\n    print(x)\n    here()\n    x = 3", False),
        ("try:\n        z()\n    except E as x:\n        print(x)\n    here()\n    x = 3", False),
        ("print((x := 3), x)\n    here()\n    x = 3", False),
        (
            ("def set():\n        nonlocal x\n        x = 1\n    set()\n    print(x)\n"
            "    here()\n    x = 3"),
            False,
        ),
        (
            ("while True:\n        try:\n            if failed: print(x)\n            here()\n"
            "            x = 3\n            return x\n        except E: pass"),
            False,
        ),
        (
            ("for i in y:\n        with suppress(E):\n            z()\n            continue\n"
            "        x = i\n        print(x)\n        here()\n    for x in y: pass"),
            False,
        ),
        ("for i in y:\n        x = max(i, x)\n        here()", True),
        ("for i in y:\n        print(x)\n        here()\n        x = i", True),
        ("for i in y:\n        if i: print(x)\n        here()\n        x = i", False),
        ("x = 0\n    for i in y:\n        x = max(i, x)\n        here()", False),
        ("for x in y: pass\n    print(x)\n    here()\n    x = 3", False),
        ("try:\n        print(x)\n    except NameError:\n        x = 1\n    here()", False),
        ("for i in y:\n        if i: x = i\n        print(x)\n        here()", False),
        ("print([\n        x\n        for x in y\n    ])\n    here()\n    x = 3", False),
        ("with y as x:\n        print(x)\n        here()\n    x = 3", False),
        ("for i in y:\n        lambda: x\n        here()\n        x = i", False),
    ],
)  # fmt: skip
def test_names_without_a_value(body: str, raises: bool) -> None:
    source = Source(Path("/a/train.py"), f"def main(y):\n    {body}\n")
    index = build_index(source)
    (call,) = index.calls["here"]
    assert isinstance(call, ast.Call)
    assert fails_around(Script(source, index), call) is raises
