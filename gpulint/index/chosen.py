"""Classes that a program chooses by their names.

Among those that derive from one, in a module that is imported by a name that an option
gives: `for name, cls in vars(module).items(): if issubclass(cls, BaseModel): …`. And
among those that are registered: `MODELS.get(name)`, with `@MODELS.register()`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted, walk

if TYPE_CHECKING:
    from gpulint.index.project import Project
    from gpulint.index.resolve import Origin, Resolver

MAX_CLASSES = 16  # of more, nothing is said
MAX_FILES = 20
_TEST = "issubclass"


def chosen_classes(resolver: Resolver, made: ast.Call) -> list[ast.ClassDef]:
    """The classes one of which a call makes, where its class is chosen like that."""
    found: dict[ast.ClassDef, None] = {}
    taken: list[ast.expr | None] = [made.func]
    if isinstance(made.func, ast.Name):
        taken = [d.value for d in resolver.definitions(made.func) if not d.path]
    for expression in taken:
        if isinstance(expression, (ast.Call, ast.Subscript)):
            its = _registered(resolver, expression)
            found.update(dict.fromkeys(islice(its, MAX_CLASSES + 1)))
    for origin in resolver.origins(made.func) if not found else ():
        base = _base_of_element(resolver, origin)
        if base is not None:
            heirs = resolver.outside.descendants(base)
            found.update(dict.fromkeys(islice(heirs, MAX_CLASSES + 1)))
    return list(found) if len(found) <= MAX_CLASSES else []


def _registered(resolver: Resolver, taken: ast.expr) -> Iterator[ast.ClassDef]:
    """The classes of a registry from which one is taken by a name that varies."""
    holder: ast.expr | None = None
    if isinstance(taken, ast.Subscript):
        holder = taken.value
    elif isinstance(taken, ast.Call) and isinstance(taken.func, ast.Attribute):
        holder = taken.func.value if taken.func.attr == "get" else None
    name = (dotted(holder) or "") if holder is not None else ""
    last = name.rpartition(".")[2]
    project = resolver.index.home(taken).project
    if project is None or not last:
        return
    for path in project.mentioning(f"@{last}.register")[:MAX_FILES]:
        index = project.index(path)
        for owner in index.all(ast.ClassDef) if index is not None else ():
            if last in map(_registry, owner.decorator_list):
                yield owner


def registry_of(owner: ast.ClassDef) -> str:
    """`MODELS` of a class under `@MODELS.register()`; "" of one that is in none."""
    return next(filter(None, map(_registry, owner.decorator_list)), "")


def _registry(decorator: ast.expr) -> str:
    """`MODELS` of `@MODELS.register()`."""
    mark = decorator.func if isinstance(decorator, ast.Call) else decorator
    if not isinstance(mark, ast.Attribute) or not mark.attr.startswith("register"):
        return ""
    return (dotted(mark.value) or "").rpartition(".")[2]


def may_be_chosen(resolver: Resolver, owner: ast.ClassDef) -> bool:
    """Whether classes of which one is this are chosen from by their names."""
    home = resolver.index.home(owner)
    if home.project is None:
        return False
    if any(map(_registry, owner.decorator_list)):
        return True
    above = [base for base in resolver.classes.bases(owner) if base is not owner]
    return any(_is_chosen_from(resolver, home.project, base) for base in above)


def _is_chosen_from(resolver: Resolver, project: Project, base: ast.ClassDef) -> bool:
    """Whether a loop over the names of a module asks for what derives from a class."""
    naming = set(project.mentioning(f", {base.name})"))
    asking = [p for p in project.mentioning(f"{_TEST}(") if p in naming]
    return any(
        _asked_base(resolver, call) is base and _in_loop_over_names(resolver, call)
        for path in asking[:MAX_FILES]
        if (index := project.index(path)) is not None
        for call in index.calls_by_name.get(_TEST, ())
    )


def _base_of_element(resolver: Resolver, origin: Origin) -> ast.ClassDef | None:
    """The class that a loop asks its elements to derive from."""
    node = origin.node
    if origin.kind != "element" or not isinstance(node, ast.Name):
        return None
    for loop in _loops_around(resolver, node):
        for call in walk(*loop.body):
            if isinstance(call, ast.Call) and _asks_for(call, node.id):
                return _asked_base(resolver, call)
    return None


def _asks_for(call: ast.Call, name: str) -> bool:
    if getattr(call.func, "id", "") != _TEST or len(call.args) != 2:
        return False
    return isinstance(call.args[0], ast.Name) and call.args[0].id == name


def _asked_base(resolver: Resolver, call: ast.Call) -> ast.ClassDef | None:
    return resolver.classes.named(call.args[1]) if len(call.args) == 2 else None


def _in_loop_over_names(resolver: Resolver, call: ast.Call) -> bool:
    return any(_is_over_names(loop) for loop in _loops_around(resolver, call))


def _is_over_names(loop: ast.For) -> bool:
    """`module.__dict__.items()`, `vars(module).items()`, `getmembers(module)`."""
    over = ast.unparse(loop.iter)
    return any(word in over for word in ("__dict__", "vars(", "getmembers("))


def _loops_around(resolver: Resolver, node: ast.AST) -> Iterator[ast.For]:
    for above in resolver.index.home(node).ancestors(node):
        if isinstance(above, ast.For):
            yield above
