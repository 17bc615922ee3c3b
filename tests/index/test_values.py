"""Which value reaches an argument: through every way a value travels in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index import Argument, Evaluator, Resolver, Values, build_index
from gpulint.source import Source


def evaluator_of(text: str) -> Evaluator:
    return Evaluator(Resolver(build_index(Source(Path("a.py"), text))))


def values(text: str) -> Values:
    evaluator = evaluator_of(text)
    (call,) = evaluator.index.calls["use"]
    return evaluator.values(call.args[0])


def argument(text: str, name: str = "n", position: int | None = None) -> Argument:
    evaluator = evaluator_of(text)
    (call,) = evaluator.index.calls["use"]
    return evaluator.argument(call, name, position)


PARSER = "import argparse\np = argparse.ArgumentParser()\n"


SPACES = "from easydict import EasyDict\nc = EasyDict()\nc.a = EasyDict()\nc.a.n = 4\n"


@pytest.mark.parametrize(
    "text, known",
    [
        ("use(0)\n", [0]),
        ("N = 0\nuse(N)\n", [0]),
        ("N = 0 if a else 4\nuse(N)\n", [0, 4]),
        ("a, N = 1, 2\nuse(N)\n", [2]),
        ("use(-1)\n", [-1]),
        ("use(not True)\n", [False]),
        ("def f(n=0):\n  use(n)\n", [0]),
        ("def f(n):\n  use(n)\nf(3)\nf(n=4)\n", [3, 4]),
        ("def f(n=1):\n  use(n)\nf(0)\n", [0, 1]),
        ("def g():\n  return 2\nuse(g())\n", [2]),
        ("def g():\n  return 1, 2\na, b = g()\nuse(b)\n", [2]),
        ("c = {'n': 0}\nuse(c['n'])\n", [0]),
        ("c = {'d': {'n': 5}}\nuse(c['d']['n'])\n", [5]),
        ("c = {'n': 1}\nuse(c.get('n', 0))\n", [1]),
        ("c = {'m': 1}\nuse(c.get('n', 7))\n", [7]),
        ("c = dict(n=0)\nuse(c['n'])\n", [0]),
        ("c = {'n': 1}\nc['n'] = 2\nuse(c['n'])\n", [1, 2]),
        ("c = {'n': 1}\nc.update(n=3)\nuse(c['n'])\n", [1, 3]),
        (("C = {'n': 0}\nclass A:\n def __init__(self, c):\n  self.c = c\n"
         " def f(self):\n  use(self.c['n'])\nA(C)\n"), [0]),
        ("class A:\n def __init__(self):\n  self.n = 2\n def f(self):\n  use(self.n)\n", [2]),
        ("class C:\n n = 0\nc = C()\nuse(c.n)\n", [0]),
        ("class C:\n n: int = 0\nuse(C.n)\n", [0]),
        (PARSER + "p.add_argument('--n', default=0)\na = p.parse_args()\nuse(a.n)\n", [0]),
        (PARSER + "p.add_argument('-w', '--my-n', default=2)\na = p.parse_args()\n"
         "use(a.my_n)\n", [2]),
        (PARSER + "p.add_argument('--x', dest='n', default=2)\nuse(p.parse_args().n)\n", [2]),
        (PARSER + "p.add_argument('--n', action='store_true')\nuse(p.parse_args().n)\n",
         [False]),
        (PARSER + "p.add_argument('--n', action='store_true')\np.set_defaults(n=True)\n"
         "use(p.parse_args().n)\n", [True]),
        (PARSER + "p.add_argument('--n', action='store_true')\np.set_defaults(n=3)\n"
         "use(p.parse_args().n)\n", [False, 3]),
        (PARSER + "p.add_argument('--n', action='store_true')\nif a:\n"
         " p.set_defaults(n=True)\nuse(p.parse_args().n)\n", [False, True]),
        ("from types import SimpleNamespace\nc = SimpleNamespace(n=4)\nuse(c.n)\n", [4]),
        ("use(int('3'))\n", [3]),
        ("use(max(2, 4))\n", [4]),
        ("N = None or 3\nuse(N)\n", [None, 3]),
        ("use((n := 2))\n", [2]),
        ("x = 1\nfor i in r:\n  x = -x\nuse(x)\n", [-1, 1]),
        ("c = {1: 0, 'n': 2}\nuse(c['n'])\n", [2]),
        ("c = {'n': 1}\na = c['n'] = 2\nuse(c['n'])\n", [1, 2]),
        ("c = {}\nc.setdefault('n', 5)\nuse(c['n'])\n", [5]),
        ("a = {'n': 3}\nc = dict(**a)\nuse(c['n'])\n", [3]),
        ("def f(p):\n  a, b = p\n  use(b)\nf((3, 4))\n", [4]),
        ("def f(p=(0, 1)):\n  a, b = p\n  use(b)\nf((3, 4))\n", [1, 4]),
        ("def f(p, n):\n  f(p, n - 1)\n  a, b = p\n  use(b)\nf((3, 4), 2)\n", [4]),
        (("def f(kind):\n  if kind == 'a':\n    n = 1\n  else:\n    n = 2\n"
         "  return n\nuse(f('b'))\n"), [2]),
        (("def f(small=True):\n  if not small:\n    return 1, 2\n  return 3, 4\n"
         "a, b = f(small=False)\nuse(b)\n"), [2]),
        ("def f(x):\n  if x:\n    return 1\n  return 2\nuse(f(y))\n", [1, 2]),
        ("def f(*, n=3):\n  use(n)\nf()\n", [3]),
        ("def f(n):\n  if n:\n    return f(n - 1)\n  return 2\nuse(f(3))\n", [2]),
        (("class A:\n def __init__(self, n):\n  use(n)\nA(2)\n"
         "lib.A(f())\n"), [2]),
        (("class A:\n n = 1\nclass B(A): pass\nclass C(A): pass\nclass D(B, C):\n"
         " def f(self):\n  use(self.n)\n"), [1]),
        (("class A:\n def n(self):\n  return 4\nclass B(A): pass\n"
         "a = A() if c else B()\nuse(a.n())\n"), [4]),
        (PARSER + "p.add_argument(*flags)\np.add_argument('--n', default=0)\n"
         "use(p.parse_args().n)\n", [0]),
        (SPACES + "def f():\n use(c.a.n)\n", [4]),
        (SPACES + "def f():\n if x:\n  c.a.n = 5\n use(c.a.n)\n", [4, 5]),
        (SPACES + "def g():\n c.a.n = 5\ndef f():\n use(c.a.n)\n", [4, 5]),
    ],
)  # fmt: skip
def test_values_that_are_known(text: str, known: list[object]) -> None:
    found = values(text)
    assert found.complete
    assert sorted(map(repr, (v.constant for v in found.known))) == sorted(
        map(repr, known)
    )


@pytest.mark.parametrize(
    "text",
    [
        "use(f())\n",
        "def f(n):\n  use(n)\n",
        "def f(n):\n  use(n)\nf(0)\nf(g())\n",
        "def f(n):\n  use(n)\nf(0)\nf(*a)\n",
        "def f(n):\n  use(n)\nf(0)\nf(**k)\n",
        "from c import N\nuse(N)\n",
        "c = load()\nuse(c['n'])\n",
        "c = {'n': 0}\nc.update(load())\nuse(c['m'])\n",
        "c = {'n': 0, **load()}\nuse(c['m'])\n",
        "import os\nuse(os.cpu_count())\n",
        "N = 1\nN += 1\nuse(N)\n",
        "for n in r:\n  use(n)\n",
        PARSER + "p.add_argument('--n', type=int)\nuse(p.parse_args().n)\n",
        "use(int('x'))\n",
        "use(4 // 2)\n",
        "use(max(a, 4))\n",
        "c = {'n': 0}\nuse(c[k])\n",
        "use(getattr(c, 'n', 0))\n",
        "use(-'a')\n",
        "from types import SimpleNamespace\nuse(SimpleNamespace(n=4).m)\n",
        "c = load()\nuse(c.n)\n",
        "c = {k: 0, 'm': 2}\nuse(c['n'])\n",
        "c = {'n': 0}\nc.setdefault(k, 1)\nuse(c['m'])\n",
        "c = {'n': 0}\nc |= load()\nuse(c['n'])\n",
        "a, b = [1, *r]\nuse(b)\n",
        "f = lambda n: use(n)\n",
        "if a:\n  def f(): return 1\nelse:\n  def f(): return 2\nuse(f())\n",
        "use(f()())\n",
        (
            "class A:\n def n(self):\n  return 1\nclass B:\n def n(self):\n  return 2\n"
            "a = A() if c else B()\nuse(a.n())\n"
        ),
        "".join(f"if c:\n  n = {i}\n" for i in range(200)) + "use(n)\n",
        SPACES + "def g():\n c.a.n *= 2\ndef f():\n use(c.a.n)\n",
        SPACES + "def g():\n c.a.n, x = h()\ndef f():\n use(c.a.n)\n",
    ],
)
def test_values_that_stay_unknown(text: str) -> None:
    found = values(text)
    assert not found.complete
    assert not found.all_in(0)


@pytest.mark.parametrize(
    "text, known",
    [
        ("def f(m):\n  if m == 'a':\n    return 1\n  return 2\nuse(f('a'))\n", [1]),
        ("def f(m):\n  if m == 'a':\n    return 1\n  return 2\nuse(f('b'))\n", [2]),
        (("def f(m):\n  if m in (1, 2):\n    x = 1\n  else:\n    x = 2\n  return x\n"
         "use(f(3))\n"), [2]),
        # the test is of another function's parameter
        (("def f(m):\n  def g(k):\n    if m == 'a':\n      return 1\n    return 2\n"
         "  return g('a')\nuse(f('b'))\n"), [1, 2]),
        (("def main(m):\n  if m:\n    x = 1\n  else:\n    x = 2\n  def g(m):\n"
         "    return x\n  use(g(True))\nmain(False)\n"), [1, 2]),
        # a call of itself takes other branches, here or by way of another function
        ("def f(n):\n  if n == 0:\n    return 5\n  return f(n - 1)\nuse(f(3))\n", [5]),
        (("def f(n):\n  if n == 0:\n    return 5\n  x = f(n - 1)\n  return x\n"
         "use(f(3))\n"), [5]),
        (("def f(n):\n  if n == 0:\n    return 5\n  return g()\ndef g():\n"
         "  return f(0)\nuse(f(3))\n"), [5]),
    ],
)  # fmt: skip
def test_branches_that_the_constants_of_a_call_take(
    text: str, known: list[object]
) -> None:
    found = values(text)
    assert found.complete
    assert sorted(value.constant for value in found.known) == known


@pytest.mark.parametrize("name", ["eval", "train", "parse_args_into_dataclasses"])
def test_functions_named_like_methods_make_no_known_object(name: str) -> None:
    evaluator = evaluator_of(f"made = {name}(a)\nuse(made)\n")
    (call,) = evaluator.index.calls["use"]
    assert evaluator.resolver.classes.of(call.args[0]) == []


def test_a_bool_is_not_a_number() -> None:
    assert not values("use(False)\n").all_in(0)
    assert values("use(0)\n").any_in(0, 1)


def test_command_line_defaults_are_marked() -> None:
    found = values(PARSER + "p.add_argument('--n', default=0)\nuse(p.parse_args().n)\n")
    assert [v.default for v in found.known] == [True]


@pytest.mark.parametrize(
    "text, state",
    [
        ("use(n=1)\n", "given"),
        ("use(1)\n", "given"),
        ("use()\n", "absent"),
        ("use(*a)\n", "unknown"),
        ("use(**k)\n", "unknown"),
        ("k = {'n': 1}\nuse(**k)\n", "given"),
        ("k = {'m': 1}\nuse(**k)\n", "absent"),
        ("k = {'m': 1}\nk.update(load())\nuse(**k)\n", "unknown"),
        ("k = {}\nif c:\n  k.update({'n': 1})\nuse(**k)\n", "maybe"),
        ("k = {}\nif c:\n  k['n'] = 1\nuse(**k)\n", "maybe"),
        ("k = {'n': 1} if c else {}\nuse(**k)\n", "maybe"),
        ("k = {'n': 1} if c else {'n': 2}\nuse(**k)\n", "given"),
        ("def f(**k):\n  use(**k)\n", "unknown"),
        ("k = dict(n=1)\nuse(**k, m=2)\n", "given"),
        ("a = {'n': 1}\nk = {**a, 'm': 2}\nuse(**k)\n", "given"),
        ("k = {'m': 1}.copy()\nuse(**k)\n", "absent"),
        ("k = {'x': {'n': 1}}\nuse(**k['x'])\n", "given"),
        ("from gpulint import runtime\nuse(**runtime.loader_kwargs(d))\n", "absent"),
        ("k = copy()\nuse(**k)\n", "unknown"),
        ("use(**vars(args))\n", "unknown"),
        ("c = {1: {'n': 1}}\nuse(**c[1])\n", "unknown"),
        ("k = {1: 2, 'n': 1}\nuse(**k)\n", "given"),
        ("while a:\n  k = k\nuse(**k)\n", "unknown"),
    ],
)
def test_whether_an_argument_arrives(text: str, state: str) -> None:
    assert argument(text, position=0).state == state


def test_the_runtime_helper_gives_every_loader_option() -> None:
    text = "from gpulint import runtime\nuse(**runtime.loader_kwargs(d))\n"
    for name in ("num_workers", "pin_memory", "persistent_workers"):
        assert argument(text, name).given


def test_dicts_that_refer_to_themselves_end() -> None:
    assert not argument("k = {}\nk.update(k)\nuse(**k)\n").given
    assert not argument("k = {**k}\nuse(**k)\n").given
    assert not values("x = x\nuse(x)\n").all_in(0)


def test_keywords_that_are_handed_on_in_circles_stay_unknown() -> None:
    functions = [
        f"def f{n}(**kw):\n  kw.update(kw.pop('inner'))\n"
        + "".join(f"  f{other}(**kw, **kw['more'])\n" for other in range(9))
        for n in range(9)
    ]
    text = "".join(functions) + "f0(n=3)\ndef run(**kw):\n  f0(**kw)\nrun(**a)\n"
    its = values(text.replace("def f3(**kw):\n", "def f3(**kw):\n  use(kw['n'])\n"))
    assert not its.complete
