"""What stays the same while a loop runs, and which tensors are constants."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpulint.script.invariants import names_in

from .code import script_in, script_of, with_last

STEP = "    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n    opt.step()\n"
LOOP = "def train(model, loader, opt, device, cfg):\n{}  for x, y in loader:\n{}" + STEP
BANK = """
class Trainer:
  def __init__(self, device):
    self.device = device
    {}
  def fit(self, model, loader, opt):
   for x, y in loader:
    w.to(self.device)
{}
  def move(self, device):
    {}
"""
NESTED = """
def main(model, loader, opt):
  w = torch.ones(2)
  {}
  def run():
   for x, y in loader:
    w.to(0)
{}
  run()
"""


def holds(text: str, at: str) -> bool:
    """Whether an expression, written as in the text, holds in the first loop."""
    script = script_of(text)
    loop = next(x for x in script.loops if x.train)
    nodes = [*script.index.all(ast.Name), *script.index.all(ast.Attribute)]
    node = next(
        n
        for n in nodes
        if script.text(n) == at and script.index.inside(n, loop.node.body[0])
    )
    return script.invariants.holds(node, loop)


@pytest.mark.parametrize(
    "before, inside, name, expected",
    [
        ("  w = torch.ones(2)\n", "    w.to(device)\n", "w", True),
        ("  w = torch.ones(2)\n", "    w.to(device)\n", "device", True),
        ("  w = torch.ones(2)\n", "    w.to(device)\n    w = w + 1\n", "w", False),
        ("  w = torch.ones(2)\n", "    w.to(device)\n    w.add_(1)\n", "w", False),
        ("  w = torch.ones(2)\n", "    w.to(device)\n    w[0] = 1\n", "w", False),
        ("", "    w.to(unknown)\n", "unknown", False),
        ("", "    w.to(torch.device('cuda'))\n", "torch.device", True),
        ("", "    cfg.w.to(0)\n", "cfg.w", True),
        ("", "    cfg.w.to(0)\n    cfg.w = x\n", "cfg.w", False),
        ("", "    cfg.w.to(0)\n    cfg.w.add_(1)\n", "cfg.w", False),
        ("", "    y.to(cfg.a.w)\n    cfg.a = x\n", "cfg.a.w", False),
        ("", "    y.to(cfg.w)\n    cfg.wide = x\n", "cfg.w", True),
        ("", "    y.to(x.device)\n", "x.device", False),
        ("", "    y.to(unknown.device)\n", "unknown.device", False),
        ("", "    y.to(cfg.get().device)\n", "cfg.get().device", False),
    ],
)
def test_in_a_loop(before: str, inside: str, name: str, expected: bool) -> None:
    assert holds(LOOP.format(before, inside), name) is expected


@pytest.mark.parametrize(
    "top, expected",
    [
        ("w = torch.ones(2)\n", True),
        ("w = torch.ones(2)\nw.mul_(2)\n", True),
        ("w = torch.ones(2)\ndef other():\n  w = torch.ones(1)\n  w.mul_(2)\n", True),
        ("w = torch.ones(2)\ndef other():\n  w.mul_(2)\n", False),
        ("w = torch.ones(2)\ndef other():\n  global w\n  w = 3\n", False),
    ],
)
def test_name_of_the_module(top: str, expected: bool) -> None:
    assert holds(top + LOOP.format("", "    w.to(device)\n"), "w") is expected


@pytest.mark.parametrize(
    "more, move, expected",
    [
        ("self.n = 0", "return device", True),
        ("self.n = 0", "self.device = device", False),
        ("self.n = 0", "self.device.add_(1)", False),
        ("setup(self)", "other.device = device", False),
    ],
)
def test_attribute_of_self(more: str, move: str, expected: bool) -> None:
    text = BANK.format(more, STEP, move)
    assert holds(text, "self.device") is expected


OTHER = """
class Other{base}:
  def move(self, device):
    self.device = device
"""


@pytest.mark.parametrize(
    "base, more, expected",
    [
        ("", "", False),  # which objects it holds is not known
        ("(Trainer)", "", False),
        ("", "class Both(Trainer, Other): pass\n", False),
        ("", "def main(t):\n  t.device = 3\n", False),
    ],
)
def test_attributes_of_other_classes(base: str, more: str, expected: bool) -> None:
    text = BANK.format("self.n = 0", STEP, "return device")
    assert holds(text + OTHER.format(base=base) + more, "self.device") is expected


@pytest.mark.parametrize(
    "other, expected",
    [
        ("trainer.n = 3", True),
        ("trainer.device = 3", False),
        ("class Wide(Trainer):\n  def move(self):\n    self.device = 3", False),
        ("class Wide:\n  def move(self):\n    self.device = 3", True),
    ],
)
def test_attributes_that_another_file_sets(
    tmp_path: Path, other: str, expected: bool
) -> None:
    files = {
        "bank.py": f"import torch\nfrom torch.nn import functional as F\n"
        f"{BANK.format('self.n = 0', STEP, 'return device')}",
        "main.py": f"from bank import Trainer\ntrainer = Trainer('cuda')\n{other}\n"
        "trainer.fit(model, loader, opt)\n",
    }
    script = script_in(tmp_path, files, "bank.py")
    node = next(
        n
        for n in script.index.all(ast.Attribute)
        if ast.unparse(n) == "self.device" and isinstance(n.ctx, ast.Load)
    )
    assert script.invariants.is_constant_attribute(node) is expected


def test_inherited_attribute_is_not_known() -> None:
    text = BANK.format("self.n = 0", STEP, "return 1").replace(
        "self.device = device", ""
    )
    assert not holds(text, "self.device")


@pytest.mark.parametrize(
    "line, expected",
    [("n = 1", True), ("w.add_(1)", False), ("w = w + 1", False)],
)
def test_free_name_of_a_nested_function(line: str, expected: bool) -> None:
    assert holds(NESTED.format(line, STEP), "w") is expected


def test_free_name_that_another_function_sets_is_not_known() -> None:
    other = "def other():\n    nonlocal w\n    w = w * 2"
    text = NESTED.format(other, STEP)
    assert not holds(text, "w")


def test_attribute_outside_a_class_is_no_constant() -> None:
    script, node = with_last("cfg.weights")
    assert isinstance(node, ast.Attribute)
    assert not script.invariants.is_constant_attribute(node)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1.5", True),
        ("[1, -2]", True),
        ("(1, x)", False),
        ("torch.tensor([1.0, 2.0])", True),
        ("torch.ones(2) / 2", True),
        ("torch.ones(2)[0]", True),
        ("torch.ones(2, requires_grad=True)", False),
        ("torch.ones(2).requires_grad_()", False),
        ("torch.ones(2, **options)", False),
        ("torch.sqrt(torch.ones(2))", True),
        ("torch.sqrt(x)", False),
        ("torch.load('w.pt')", False),
        ("np.sqrt(counts)", True),
        ("torch.ones(2).view(-1)", True),
        ("torch.ones(2).to('cuda')", False),
        ("make()", False),
        ("x", False),
        ("lambda: 1", False),
        ("w = torch.ones(2)\nw", True),
        ("w = torch.ones(2)\nw.requires_grad = True\nw", False),
        ("w = torch.ones(2)\nif c:\n  w = model(x)\nw", False),
        ("a = torch.ones(2)\n" + "a = a + 1\n" * 9 + "a", False),
    ],
)
def test_constants_of_the_host(text: str, expected: bool) -> None:
    script, node = with_last(text)
    assert script.invariants.is_host_constant(node) is expected


def test_names_in_an_expression_are_the_outermost() -> None:
    names = names_in(ast.parse("f(a.b[c], a.b.d)", mode="eval"))
    assert sorted(map(ast.unparse, names)) == ["a.b", "a.b.d", "c", "f"]
