"""No rule fails on code that says the same in another form, or nothing sensible."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.finding import Effect
from gpulint.registry import all_rules
from gpulint.source import Source

FIXTURES = Path(__file__).parent.parent / "fixtures"


class Functions(ast.NodeTransformer):
    """`model.eval()` as `eval(model)`."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute):
            node.args.insert(0, node.func.value)
            node.func = ast.Name(node.func.attr, ast.Load())
        return node


class Unpacked(ast.NodeTransformer):
    """`f(x, n=1)` as `f(*(x,), **{"n": 1})`."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if node.args:
            node.args = [ast.Starred(ast.Tuple(node.args, ast.Load()), ast.Load())]
        named = [(ast.Constant(k.arg), k.value) for k in node.keywords if k.arg]
        if named:
            names, values = zip(*named, strict=True)
            node.keywords = [ast.keyword(None, ast.Dict(list(names), list(values)))]
        return node


class Items(ast.NodeTransformer):
    """`f(x)` as `f[0](x)`."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.func = ast.Subscript(node.func, ast.Constant(0), ast.Load())
        return node


class Bare(ast.NodeTransformer):
    """`f(x, n=1)` as `f()`."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.args, node.keywords = [], []
        return node


class Named(ast.NodeTransformer):
    """`f().x` as `(made := f()).x`."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Call):
            node.value = ast.NamedExpr(ast.Name("made", ast.Store()), node.value)
        return node


class Again(ast.NodeTransformer):
    """`x = f(y)` as `x = f(x)`."""

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        self.generic_visit(node)
        target = node.targets[0]
        if isinstance(node.value, ast.Call) and isinstance(
            target, (ast.Name, ast.Attribute)
        ):
            node.value.args = [_read(target), *node.value.args[1:]]
        return node


class Recursive(ast.NodeTransformer):
    """`def f(): return x` as `return f(x), x`."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Return) and inner.value is not None:
                again = ast.Call(ast.Name(node.name, ast.Load()), [inner.value], [])
                inner.value = ast.Tuple([again, inner.value], ast.Load())
        return node


def _read(target: ast.Name | ast.Attribute) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body


TWISTS = (Functions, Unpacked, Items, Bare, Named, Again, Recursive)


def cases() -> dict[str, list[tuple[Path, type[ast.NodeTransformer]]]]:
    """The inputs of each fixture folder, and of all projects, each in another form."""
    paths = [*FIXTURES.glob("gpu[1-9]*/*.py"), *FIXTURES.glob("projects/*/*.py")]
    inputs = sorted(path for path in paths if ".fixed" not in path.name)
    found: dict[str, list[tuple[Path, type[ast.NodeTransformer]]]] = {}
    for number, path in enumerate(inputs):
        folder = path.relative_to(FIXTURES).parts[0]
        found.setdefault(folder, []).append((path, TWISTS[number % len(TWISTS)]))
    return found


CASES = cases()


# The fixtures' own tests run these lines too, and are counted.
@pytest.mark.no_cover
@pytest.mark.parametrize("folder", CASES)
def test_no_rule_fails(folder: str) -> None:
    for path, twist in CASES[folder]:
        tree = twist().visit(ast.parse(path.read_text()))
        text = ast.unparse(ast.fix_missing_locations(tree))
        source = Source(Path("train.py"), text)
        options = Options(tuple(all_rules()), frozenset(Effect))
        codes = {f.code for f in check_source(source, options).findings}
        assert codes.isdisjoint({"GPU000", "GPU001"}), (path.name, twist.__doc__)


CIRCLES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision.datasets import MNIST
from torchvision.models import ResNet


class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.inner = Net(depth - 1)
        self.fc = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc(self.conv(self.inner(x)).flatten(1))


class Heir(ResNet):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Dropout(0.5), self.fc)

    def forward(self, x):
        return self.fc(x)


def collate(batch):
    return (collate(batch[0]), collate(batch[1]))


data = MNIST("data")
for make in range(3):
    data = Subset(data, range(0, len(data), 2))
    model = {model}.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, 64, collate_fn=collate):
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("model", ["Net(3)", "Heir()"])
def test_nothing_leads_in_a_circle(model: str) -> None:
    source = Source(Path("train.py"), CIRCLES.replace("{model}", model))
    options = Options(tuple(all_rules()), frozenset(Effect))
    codes = {f.code for f in check_source(source, options).findings}
    assert "GPU001" not in codes
    assert "GPU301" in codes
