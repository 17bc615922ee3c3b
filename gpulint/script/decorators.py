"""Decorators that leave what they decorate as it is written."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.script.by_name import Kept

if TYPE_CHECKING:
    from gpulint.script.model import Script

# They change neither the parameters nor the result, and tell nobody of a function.
_PLAIN = ("staticmethod", "classmethod", "torch.no_grad", "torch.inference_mode")


def has_plain_decorators(index: FileIndex, kept: Kept) -> bool:
    """Whether a function or class has no decorators but such ones."""
    written = (d.func if isinstance(d, ast.Call) else d for d in kept.decorator_list)
    return all(index.qualified(decorator) in _PLAIN for decorator in written)


def tells_nobody(script: Script, kept: Kept) -> bool:
    """Whether the decorators of a function or class give it to nobody else.

    They are plain, or of the project and do nothing but return a function that calls
    it: what that one does happens only when somebody calls it.
    """
    for decorator in kept.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if script.index.qualified(called) in _PLAIN:
            continue
        found = script.resolver.named(decorator)
        if not found or not all(_only_wraps(script, its) for its in found):
            return False
    return True


def _only_wraps(script: Script, decorator: ast.AST) -> bool:
    """`def log(f): @wraps(f) def run(*args): …; return run`."""
    if not isinstance(decorator, ast.FunctionDef) or decorator.decorator_list:
        return False
    body = decorator.body[1 if ast.get_docstring(decorator) else 0 :]
    inner, last = body if len(body) == 2 else (None, None)
    if not isinstance(inner, ast.FunctionDef):
        return False
    wraps = (getattr(d, "func", d) for d in inner.decorator_list)
    returned = last.value if isinstance(last, ast.Return) else None
    return (
        isinstance(returned, ast.Name)
        and returned.id == inner.name
        and all(script.index.home(d).qualified(d) == "functools.wraps" for d in wraps)
    )
