"""Loaders of tensors that are in memory: what a batch could be gathered from."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function, Origin
from gpulint.index.walk import dotted, walk

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

_TENSORS = "torch.utils.data.TensorDataset"
_PARTS = {
    "torch.utils.data.random_split": ("dataset", 0),
    "torch.utils.data.Subset": ("dataset", 0),
    "torch.utils.data.dataset.Subset": ("dataset", 0),
}
MAX_PARTS = 4  # of a part of a dataset


class Gathered(NamedTuple):
    """Where a dataset of rows is made, and its tensors.

    `attributes` are those of the dataset's own class that hold the tensors; empty for
    a `TensorDataset`, or a part of one. `owner` is that class.
    """

    place: ast.AST
    attributes: tuple[str, ...] = ()
    owner: ast.ClassDef | None = None


def gathered(script: Script, loader: Loader) -> Gathered | None:
    """What all datasets that reach a loader consist of, if they are all alike."""
    argument = loader.argument("dataset")
    origins = [o for n in argument.nodes for o in script.resolver.origins(n)]
    found = [_of_origin(script, origin, 0) for origin in origins]
    known = [its for its in found if its is not None]
    alike = {(its.owner, its.attributes) for its in known}
    return known[0] if len(known) == len(found) and len(alike) == 1 else None


def _of_origin(script: Script, origin: Origin, depth: int) -> Gathered | None:
    call = origin.node
    if not isinstance(call, ast.Call) or depth > MAX_PARTS:
        return None
    name = script.index.qualified(call.func) or ""
    if name == _TENSORS and not origin.path:
        return Gathered(call)
    if name in _PARTS:
        whole = script.evaluator.argument(call, *_PARTS[name]).direct
        inner = script.resolver.origins(whole) if whole is not None else ()
        found = [_of_origin(script, its, depth + 1) for its in inner]
        whole_known = bool(found) and all(f is not None and not f.owner for f in found)
        return Gathered(call) if whole_known else None
    owner = script.resolver.classes.named(call.func) if not origin.path else None
    return _of_class(script, owner) if owner is not None else None


def _of_class(script: Script, owner: ast.ClassDef) -> Gathered | None:
    """A class whose samples are `self.x[index], self.y[index]`, as many as of `x`."""
    methods = script.resolver.classes.methods(owner)
    item, length = methods.get("__getitem__"), methods.get("__len__")
    if item is None or length is None or "__getitems__" in methods:
        return None
    attributes = _rows_of(item)
    if not attributes or _counted(length) != attributes[0]:
        return None
    if not set(attributes) <= _set_in(methods.get("__init__")):
        return None  # made anew each time, or by what is not seen
    return Gathered(item, attributes, owner)


def _set_in(init: Function | None) -> set[str]:
    """The attributes that a method sets."""
    nodes = walk(init) if init is not None else ()
    attributes = (n for n in nodes if isinstance(n, ast.Attribute))
    return {n.attr for n in attributes if isinstance(n.ctx, ast.Store)}


def _rows_of(item: Function) -> tuple[str, ...]:
    """`x` and `y` of `return self.x[index], self.y[index]`."""
    value = _only_returned(item)
    names = [a.arg for a in (*item.args.posonlyargs, *item.args.args)]
    if len(names) != 2 or item.decorator_list or not isinstance(value, ast.Tuple):
        return ()
    found = []
    for part in value.elts:
        if not isinstance(part, ast.Subscript) or dotted(part.slice) != names[1]:
            return ()
        holder, _, attribute = (dotted(part.value) or "").rpartition(".")
        if holder != names[0] or not attribute:
            return ()
        found.append(attribute)
    return tuple(found)


def _counted(length: Function) -> str:
    """`x` of `return len(self.x)`, `self.x.shape[0]` and `self.x.size(0)`."""
    value = _only_returned(length)
    of: ast.expr | None = None
    if isinstance(value, ast.Call) and dotted(value.func) == "len":
        of = value.args[0] if len(value.args) == 1 else None
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        sized = value.func.attr == "size" and [ast.unparse(a) for a in value.args]
        of = value.func.value if sized == ["0"] else None
    elif isinstance(value, ast.Subscript) and isinstance(value.value, ast.Attribute):
        first = ast.unparse(value.slice) == "0" and value.value.attr == "shape"
        of = value.value.value if first else None
    holder, _, attribute = (dotted(of) or "").rpartition(".")
    return attribute if holder and "." not in holder else ""


def _only_returned(function: Function) -> ast.expr | None:
    """What a function returns that does nothing else."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]  # its documentation
    if len(body) != 1 or not isinstance(body[0], ast.Return):
        return None
    return body[0].value


def why_not_gathered(loader: Loader, its: Gathered) -> str | None:
    """Why a loader cannot be handed the tensors in place of a dataset's own class."""
    if its.owner is None:
        return None
    if dotted(loader.argument("dataset").direct) is None:
        return "the dataset has no name to take its tensors from"
    for index in loader.files:
        for node in index.all(ast.Attribute):
            if node.attr == "dataset" and isinstance(node.ctx, ast.Load):
                above = index.parent(node)
                counted = isinstance(above, ast.Call) and dotted(above.func) == "len"
                if not counted:
                    return f"line {node.lineno} looks at a loader's dataset"
            if node.attr not in its.attributes or not isinstance(node.ctx, ast.Store):
                continue
            function = index.function(node)
            made = function is not None and function.name == "__init__"
            if not (made and index.owner(node) is its.owner):
                return f"line {node.lineno} sets `{node.attr}`, maybe of the dataset"
    return None
