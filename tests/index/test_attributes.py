"""An attribute that is set on some paths only keeps its older value on the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index import Evaluator, Resolver, Values, build_index
from gpulint.index.outside import MAX_DEPTH
from gpulint.source import Source

OPTION = """\
import argparse
p = argparse.ArgumentParser()
p.add_argument("--n", type=int, default=8)
args = p.parse_args()
"""


def values(text: str) -> Values:
    evaluator = Evaluator(Resolver(build_index(Source(Path("a.py"), text))))
    (call,) = evaluator.index.calls["use"]
    return evaluator.values(call.args[0])


@pytest.mark.parametrize(
    "text, known",
    [
        (OPTION + "if dry:\n    args.n = 0\nuse(args.n)\n", [0, 8]),
        (OPTION + "if dry:\n    args.n = 0\ndef f():\n    use(args.n)\n", [0, 8]),
        (OPTION + "for x in y:\n    args.n = 0\nuse(args.n)\n", [0, 8]),
        (OPTION + "try:\n    args.n = 0\nexcept E:\n    pass\nuse(args.n)\n", [0, 8]),
        (
            OPTION + "if dry:\n    args.n = 0\nelse:\n    args.n = 4\nuse(args.n)\n",
            [0, 4],
        ),
        (OPTION + "args.n = 0\nuse(args.n)\n", [0]),
        (OPTION + "args.n = 0\ndef f():\n    use(args.n)\n", [0]),
        (OPTION + "if dry:\n    args.n = 0\nn = args.n\nuse(n)\n", [0, 8]),
    ],
)
def test_values_of_an_attribute(text: str, known: list[int]) -> None:
    found = values(text)
    assert sorted(v.constant for v in found.known) == known  # type: ignore[type-var]
    assert found.complete


def test_a_parameter_keeps_what_the_caller_gave() -> None:
    text = "def f(args):\n    if dry:\n        args.n = 0\n    use(args.n)\n"
    assert not values(text).complete


def test_a_member_set_again_on_one_path_keeps_the_first_value() -> None:
    text = (
        "class A:\n"
        "    def __init__(self, n):\n"
        "        self.n = n\n"
        "    def go(self):\n"
        "        if dry:\n"
        "            self.n = 0\n"
        "        use(self.n)\n"
    )
    assert not values(text).complete


BASE = """\
class Base:
    def __init__(self):
        self.n = 0
    def go(self):
        use(self.n)
class Read(Base):
    def __init__(self, given):
        super().__init__()
"""


@pytest.mark.parametrize(
    "text, complete",
    [
        ("        for k in given:\n            self.__dict__[k] = given[k]\n", False),
        ("        vars(self).update(given)\n", False),
        ("        setattr(self, given, 1)\n", False),
        ("        self.__dict__['m'] = given\n", True),
    ],
)
def test_what_a_subclass_sets_by_name(text: str, complete: bool) -> None:
    found = values(BASE + text)
    assert [v.constant for v in found.known] == [0]
    assert found.complete is complete


@pytest.mark.parametrize(
    "text, complete",
    [
        ("  for k in given:\n   setattr(self, k, given[k])\n", False),
        ("  vars(self).update(given)\n", False),
        ("  self.m = given\n", True),
        ("  setattr(self, 'm', given)\n", True),
    ],
)
def test_what_is_set_from_outside_beside_names_of_a_dict(
    text: str, complete: bool
) -> None:
    """An object has what its class sets by any name, before somebody sets more."""
    found = values(
        f"class Config:\n def __init__(self, given):\n{text}"
        "config = Config(load())\nif config.old:\n config.n = 1\n"
        "def main():\n use(config.n)\n"
    )
    assert [v.constant for v in found.known] == [1]
    assert found.complete is complete


def test_what_too_many_setattr_lead_to_stays_unknown() -> None:
    text = (
        "class Box:\n item = 1\nclass Bag: pass\nbox = Box()\nsetattr(Bag(), name, 2)\n"
    )
    evaluator = Evaluator(
        Resolver(build_index(Source(Path("a.py"), f"{text}use(box.item)\n")))
    )
    (call,) = evaluator.index.calls["use"]
    evaluator.resolver.outside._depth = MAX_DEPTH
    assert not evaluator.values(call.args[0]).complete
    assert values(f"{text}use(box.item)\n").complete


@pytest.mark.parametrize(
    "given, complete",
    [
        ("f(Plan(3))\n", True),
        ("f(Plan(3))\nf(Plan(3) if dry else None)\n", True),
        ("f(Plan(3))\nfor plan in others:\n    f(plan)\n", False),
        ("f(Plan(3))\nf(read())\n", False),
        ("f(Plan(3) if dry else read())\n", False),
    ],
    ids=["its class", "or none", "elements", "another call", "either"],
)
def test_an_attribute_of_an_object_that_may_be_of_any_class(
    given: str, complete: bool
) -> None:
    text = (
        "class Plan:\n"
        "    def __init__(self, n):\n"
        "        self.n = n\n"
        "def f(plan):\n"
        "    use(plan.n)\n"
    )
    found = values(text + given)
    assert {v.constant for v in found.known} == {3}
    assert found.complete is complete
