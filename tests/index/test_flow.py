"""Which definitions reach a use: branches, loops, exceptions, unpacking."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpulint.index import FileIndex, Resolver, build_index
from gpulint.source import Source


def index_of(text: str) -> FileIndex:
    return build_index(Source(Path("a.py"), text))


def reaching(text: str, name: str = "x") -> list[int]:
    """Rows of the definitions that reach the argument of `use(…)`."""
    index = index_of(text)
    resolver = Resolver(index)
    (call,) = index.calls["use"]
    argument = call.args[0]
    return sorted(d.node.lineno for d in resolver.definitions(argument))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text, rows",
    [
        ("x = 1\nx = 2\nuse(x)\n", [2]),
        ("x = 1\nif a:\n  x = 2\nuse(x)\n", [1, 3]),
        ("if a:\n  x = 1\nelse:\n  x = 2\nuse(x)\n", [2, 4]),
        ("x = 1\nif a:\n  raise E\n  x = 2\nuse(x)\n", [1]),
        ("x = 1\nfor i in r:\n  use(x)\n  x = 2\n", [1, 4]),
        ("x = 1\nfor i in r:\n  x = 2\nuse(x)\n", [1, 3]),
        ("x = 1\nfor i in r:\n  x = 2\n  if a: continue\n  x = 3\nuse(x)\n", [1, 3, 5]),
        ("x = 1\nwhile a:\n  x = 2\n  if b: break\n  x = 3\nuse(x)\n", [1, 3, 5]),
        ("x = 1\ntry:\n  x = 2\nexcept E:\n  pass\nuse(x)\n", [1, 3]),
        ("x = 1\ntry:\n  x = 2\nexcept E:\n  x = 3\nuse(x)\n", [3, 5]),
        ("x = 1\ntry:\n  x = 2\nfinally:\n  x = 4\nuse(x)\n", [5]),
        ("x = 1\ndef f():\n  use(x)\n[x for x in a]\n", [1]),
        ("x = 1\n[\n  use(x)\n  for x in a]\n", [4]),
        ("x = 1\n[\n  lambda: use(x)\n  for x in a]\n", [4]),
        ("x = 1\n[\n  [use(x) for y in x]\n  for x in a]\n", [4]),
        ("x = 1\n[lambda: use(x)\n  for y in a]\n", [1]),
        ("x = 1\n[y for y in a\n  if (x := y)]\ndef f():\n  use(x)\n", [1, 3]),
        ("def f(x):\n  [x for\n    x in a]\n  return lambda: use(x)\n", [1]),
        ("try:\n  return_()\nexcept E as x:\n  use(x)\n", [3]),
        ("with f() as x:\n  use(x)\n", [1]),
        ("x = 0\nx += 1\nuse(x)\n", [1, 2]),
        ("(x, y), *z = f()\nuse(x)\n", [1]),
        ("if (x := f()):\n  use(x)\n", [1]),
        ("x = 1\n[use(x) for x in r]\n", [2]),
        ("x = 1\n[x for x in r]\nuse(x)\n", [1]),
        ("x = 1\ndel x\nx = 3\nuse(x)\n", [3]),
        ("import x\nuse(x)\n", [1]),
        ("def x(): pass\nuse(x)\n", [1]),
        ("class x: pass\nuse(x)\n", [1]),
        ("match a:\n  case [x, *_]:\n    use(x)\n", [2]),
        ("x: int = 1\nuse(x)\n", [1]),
        ("def f(x, y=1):\n  use(x)\n", [1]),
        ("x = 1\ndef f():\n  use(x)\nx = 3\n", [1, 4]),
        ("x = 1\ndef f():\n  global x\n  x = 2\ndef g():\n  use(x)\n", [1, 4]),
        ("def f():\n  x = 1\n  def g():\n    use(x)\n", [2]),
        ("class A:\n  x = 1\n  def f(self):\n    use(x)\nx = 5\n", [5]),
        ("f = lambda x: use(x)\n", [1]),
        ("async def f():\n  async for x in r:\n    use(x)\n", [2]),
        ("x = 1\ndef f():\n  global x\n  x = 2\nuse(x)\n", [1, 4]),
        ("global x\nx = 1\nuse(x)\n", [2]),
        ("x = 1\nf = lambda y=use(x): y\n", [1]),
        ("x = 1\n[y for y in r if use(x)]\n", [1]),
        ("x = 1\nx: int\nuse(x)\n", [1]),
        ("def f(a):\n  x = 1\n  try:\n    return a\n  finally:\n    use(x)\n", [2]),
        ("x = 1\ndel a[use(x)]\n", [1]),
        ("x = 1\nf().x = 2\nuse(x)\n", [1]),
        ("def f():\n  x = 1\n  yield\n  use(x)\n", [2]),
    ],
)
def test_definitions_that_reach_a_use(text: str, rows: list[int]) -> None:
    assert reaching(text) == rows


@pytest.mark.parametrize(
    "text, rows",
    [
        (
            "class A:\n def __init__(self):\n  self.x = 1\n def f(self):\n  use(self.x)\n",
            [3],
        ),
        (
            (
                "class A:\n def __init__(self):\n  self.x = 1\n"
                " def f(self):\n  self.x = 2\n  use(self.x)\n"
            ),
            [5],
        ),
        ("class B:\n x = 1\nclass A(B):\n def f(self):\n  use(self.x)\n", [2]),
        ("class A:\n x = 1\na = A()\nuse(a.x)\n", [2]),
        ("class A:\n x = 1\nuse(A.x)\n", [2]),
        ("c = C()\nc.x = 1\nuse(c.x)\n", [2]),
        ("c = C()\nc.x = 1\nc = D()\nuse(c.x)\n", []),
    ],
)
def test_definitions_of_attributes(text: str, rows: list[int]) -> None:
    assert reaching(text) == rows


def test_names_mean_what_the_imports_say() -> None:
    index = index_of(
        "import torch as t, numpy.random\nfrom torch.utils import data as D\n"
        "from torch.utils.data.dataloader import DataLoader\nfrom torch.utils.data import *\n"
        "t.zeros(1)\nD.DataLoader(x)\nDataLoader(x)\nnumpy.random.rand()\nDataset()\n"
        "from . import helpers\nhelpers.f()\n"
    )
    assert set(index.calls) == {
        "torch.zeros",
        "torch.utils.data.DataLoader",
        "numpy.random.rand",
        "torch.utils.data.Dataset",
        ".helpers.f",
    }
    assert len(index.calls["torch.utils.data.DataLoader"]) == 2


def test_scopes() -> None:
    index = index_of(
        "@d(a)\ndef f(x=b):\n  return c\nclass K(e):\n  y = lambda z=g: h\n"
    )
    names = {n.id: n for n in index.all(ast.Name)}
    scopes = {name: type(index.scope(node)).__name__ for name, node in names.items()}
    assert scopes["a"] == scopes["b"] == scopes["e"] == "Module"
    assert scopes["c"] == "FunctionDef"
    assert scopes["g"] == "ClassDef"
    assert scopes["h"] == "Lambda"
    assert index.qualname(names["c"]) == "f"
