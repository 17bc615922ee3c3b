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


TWISTS = (Functions, Unpacked, Items, Bare, Named)


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
        assert "GPU000" not in codes, (path.name, twist.__doc__)
