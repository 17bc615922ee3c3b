"""Two passes back through one graph, and a step of an optimizer between them."""

from __future__ import annotations

import ast
import re

from gpulint.index import FileIndex
from gpulint.index.walk import children, walk

# How models are called that one trains beside others.
_MODEL = re.compile(
    r"(?i)(^|_)(net|model|[dg]|disc\w*|gen\w*|vae|enc\w*|critic)(_?\w{,2})?$"
)


def steps_between_passes(files: list[FileIndex]) -> bool:
    """Weights that change between two passes back through a graph: an error since 1.5.

    `loss.backward(retain_graph=True)`, `optimizer.step()`, and another loss of what a
    model gave before both.
    """
    return any(
        _passes_twice(index, call)
        for index in files
        for call in index.calls_by_name.get("backward", ())
        if any(k.arg == "retain_graph" and _is_true(k.value) for k in call.keywords)
    )


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _passes_twice(index: FileIndex, first: ast.Call) -> bool:
    statement = index.statement(first)
    above = index.parent(statement)
    block = getattr(above, "body", [])
    if not isinstance(above, (ast.For, ast.While, ast.With)) or statement not in block:
        return False
    before, after = block[: block.index(statement)], block[block.index(statement) + 1 :]
    steps = [s for s in after if _is_called(s, "step")]
    if not steps:
        return False  # nothing changes in between
    later = [s for s in after if _is_called(s, "backward")]
    other = next((s for s in later if s.lineno > steps[0].lineno), None)
    if other is None:
        return False
    made, between = _made_in(before), _made_in(after[: after.index(other)])
    kept = _reached(first, made) & made.keys() - between.keys()
    shared = _reached(other, made | between) & kept
    return any(_is_of_model(made[name]) for name in shared)


def _is_called(statement: ast.stmt, method: str) -> bool:
    """Whether a statement is `x.method(…)`; no scheduler's."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    func = call.func if isinstance(call, ast.Call) else None
    if not isinstance(func, ast.Attribute) or func.attr != method:
        return False
    return "sched" not in ast.unparse(func.value).lower()


def _made_in(block: list[ast.stmt]) -> dict[str, ast.expr]:
    """What the assignments of a block last give each name."""
    return {
        name.id: statement.value
        for statement in block
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        for name in walk(target)
        if isinstance(name, ast.Name)
    }


def _reached(node: ast.AST, made: dict[str, ast.expr]) -> set[str]:
    """The names whose graph a value has, and what these are made of, in a block."""
    found: set[str] = set()
    todo: list[ast.AST] = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Name) and part.id not in found:
            found.add(part.id)
            todo += [made[part.id]] if part.id in made else []
        elif getattr(getattr(part, "func", None), "attr", "") != "detach":
            todo += children(part)
    return found


def _is_of_model(value: ast.expr) -> bool:
    """`self.net(z)` or `net(z)` that keeps its graph, as models are called."""
    func = value.func if isinstance(value, ast.Call) else None
    name = (ast.unparse(func) if func is not None else "").removeprefix("self.")
    return name.isidentifier() and bool(_MODEL.search(name))
