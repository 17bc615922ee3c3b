"""Code that runs without gradients."""

from __future__ import annotations

import ast

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.index.walk import LOOPS, walk


def without_grad(index: FileIndex, node: ast.AST) -> bool:
    """Whether a node runs under `no_grad`, `inference_mode` or a decorator."""
    for above in index.ancestors(node):
        switches: list[ast.expr] = []
        if isinstance(above, (ast.With, ast.AsyncWith)):
            switches = [item.context_expr for item in above.items]
        elif isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
            switches = above.decorator_list
        if any(disables_grad(index, switch) for switch in switches):
            return True
        if isinstance(above, ast.With) and _enters_no_grad(index, above, node):
            return True
    return False


def _enters_no_grad(index: FileIndex, block: ast.With, node: ast.AST) -> bool:
    """`with ExitStack() as stack: stack.enter_context(torch.no_grad())`."""
    row = getattr(node, "lineno", 0)
    return any(
        isinstance(call, ast.Call)
        and last_name(call) == "enter_context"
        and bool(call.args)
        and disables_grad(index, call.args[0])
        for statement in block.body
        if statement.lineno <= row
        for call in walk(statement)
        if not isinstance(statement, LOOPS)
    )


def disables_grad(index: FileIndex, node: ast.expr) -> bool:
    """Whether an expression is `no_grad()` or one of its kin, or wraps with it."""
    if _switches_off(index, node):
        return True
    return isinstance(node, ast.Name) and _wraps_without_grad(index, node)


def _switches_off(index: FileIndex, node: ast.expr) -> bool:
    call = node if isinstance(node, ast.Call) else None
    name = index.qualified(call.func if call else node) or ""
    last = name.rpartition(".")[2]
    if last in ("no_grad", "inference_mode"):
        return True
    if last == "eval_mode" and name.startswith("monai."):
        return True  # which holds `no_grad`
    if last != "set_grad_enabled" or call is None:
        return False
    values = [*call.args, *(k.value for k in call.keywords)]
    return any(isinstance(v, ast.Constant) and not v.value for v in values)


def _wraps_without_grad(index: FileIndex, decorator: ast.Name) -> bool:
    """Whether a decorator of the project gives back a function without gradients.

    `@torch.no_grad()` on the function inside that it returns, or all of that in a
    `with torch.no_grad():`.
    """
    home, name = index.home(decorator), decorator.id
    found = home.member(home.imports[name]) if name in home.imports else None
    if found is not None and len(found[1]) == 1:
        home, name = found[0], found[1][0]
    made = [f for f in home.functions if f.name == name and f in home.tree.body]
    stored = [n for n in home.all(ast.Name) if n.id == name]
    if len(made) != 1 or any(isinstance(n.ctx, ast.Store) for n in stored):
        return False
    inner, returned = (*made[0].body[-2:], None)[:2]
    value = returned.value if isinstance(returned, ast.Return) else None
    if not isinstance(inner, ast.FunctionDef) or not isinstance(value, ast.Name):
        return False
    asked = any(last_name(c) == "enable_grad" for c in home.calls_below(inner))
    switches = (*inner.decorator_list, *_around_all(inner))
    return (
        value.id == inner.name
        and not asked
        and any(_switches_off(home, switch) for switch in switches)
    )


def _around_all(function: ast.FunctionDef) -> list[ast.expr]:
    """The contexts of a `with` that is all of a function."""
    only = function.body[-1] if len(function.body) == 1 else None
    return [i.context_expr for i in only.items] if isinstance(only, ast.With) else []
