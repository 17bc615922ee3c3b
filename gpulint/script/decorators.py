"""Decorators that leave what they decorate as it is written."""

from __future__ import annotations

import ast

from gpulint.index import FileIndex

# They change neither the parameters nor the result, and tell nobody of a function.
_PLAIN = ("staticmethod", "classmethod", "torch.no_grad", "torch.inference_mode")


def has_plain_decorators(
    index: FileIndex, kept: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
) -> bool:
    """Whether a function or class has no decorators but such ones."""
    written = (d.func if isinstance(d, ast.Call) else d for d in kept.decorator_list)
    return all(index.qualified(decorator) in _PLAIN for decorator in written)
