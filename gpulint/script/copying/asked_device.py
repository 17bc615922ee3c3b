"""Whether a script that asks for a GPU does anything with the answer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.build import last_name

if TYPE_CHECKING:
    from gpulint.index import FileIndex

# Questions that change nothing by themselves, and seeds for every device.
_QUESTIONS = frozenset("is_available device_count get_device_name".split())
MAX_STEPS = 4  # names that a device goes through


def uses_answer(index: FileIndex) -> bool:
    """Whether anything of `torch.cuda` is called, or what it is asked is used.

    `DEVICE = "cuda" if torch.cuda.is_available() else "cpu"` and `print(DEVICE)` alone
    leave a program on the CPU.
    """
    names = [n for n in index.called_names if n.startswith("torch.cuda.")]
    calls = [call for name in names for call in index.calls[name]]
    return any(
        "manual_seed" not in last_name(call)
        and not (last_name(call) in _QUESTIONS and _is_only_said(index, call, 0))
        for call in calls
    )


def _is_only_said(index: FileIndex, node: ast.AST, depth: int) -> bool:
    """Whether an expression is printed, or given a name that only is."""
    statement = index.statement(node)
    if isinstance(statement, ast.Expr):
        said = statement.value
        return isinstance(said, ast.Call) and last_name(said) in ("print", "display")
    if not isinstance(statement, ast.Assign) or depth > MAX_STEPS:
        return False
    if not all(isinstance(target, ast.Name) for target in statement.targets):
        return False
    names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    read = (n for n in index.all(ast.Name) if n.id in names)
    return all(
        _is_only_said(index, name, depth + 1)
        for name in read
        if isinstance(name.ctx, ast.Load)
    )
