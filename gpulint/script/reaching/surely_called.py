"""What a call surely runs of a project, with nothing around it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.calls import is_abstract
from gpulint.index.walk import dotted
from gpulint.script.decorators import has_plain_decorators
from gpulint.script.modelling.models import makers

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_CHOSEN = 8  # functions, of modules that are chosen while a program runs
MAX_MENTIONING = 20  # files with the name of one of them
_BASES = ("object", "torch.nn.Module", "torch.utils.data.Dataset", "abc.ABC")


def surely_called(script: Script, call: ast.Call) -> list[Function]:
    """The project's functions one of which a call runs, with nothing around them."""
    func = call.func
    owner = script.resolver.classes.named(func)
    if owner is not None:
        found = _constructor(script, func, owner)
    elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        found = methods_of_self(script, func)
        if not found and not is_self(script, func.value):
            found = _of_module(script, call)
    else:
        found = _of_module(script, call)
    found = found or _of_chosen_module(script, func) or _of_network(script, func)
    found = found or _of_super(script, func)
    plain = all(has_plain_decorators(script.index, function) for function in found)
    return found if plain else []


def _of_module(script: Script, call: ast.Call) -> list[Function]:
    """A function that is defined once, at the top of a module."""
    function = script.resolver.calls.callee(call)
    if function is None:
        return []
    home = script.index.home(function)
    inner = home.parent(function)
    return [function] if isinstance(inner, ast.Module | Function) else []


def _of_chosen_module(script: Script, func: ast.expr) -> list[Function]:
    """All that `module.make(…)` may be of `module = import_module(args.model)`.

    Functions and classes of that name at the top of the project's files, a few.
    """
    project = script.index.project
    if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name):
        return []
    made = [origin.call for origin in script.resolver.origins(func.value)]
    if project is None or not made:
        return []
    if not all(call is not None and _is_chosen(script, call) for call in made):
        return []
    paths = project.mentioning(func.attr)
    if len(paths) > MAX_MENTIONING:
        return []
    name, found = func.attr, []
    for home in map(project.index, paths):
        for node in home.tree.body if home is not None else ():
            its: list[Function] = []
            if isinstance(node, ast.FunctionDef) and node.name == name:
                its = [node]
            elif isinstance(node, ast.ClassDef) and node.name == name:
                its = _constructor(script, func, node)
            elif name not in _bound_by(node):
                continue
            if not its:
                return []
            found += its
    return found if len(found) <= MAX_CHOSEN else []


def _is_chosen(script: Script, call: ast.Call) -> bool:
    """Whether a call imports a module by a name that no line says, or an own one."""
    if script.index.qualified(call.func) != "importlib.import_module" or not call.args:
        return False
    index, known = script.index.home(call), script.evaluator.values(call.args[0]).known
    return index.project is not None and all(
        index.owns(str(value.constant)) for value in known
    )


def _bound_by(node: ast.stmt) -> set[str]:
    """The names that a statement at the top of a file gives a value."""
    return {
        n.name if isinstance(n, (ast.FunctionDef, ast.ClassDef)) else n.id
        for n in ast.walk(node)
        if isinstance(n, (ast.FunctionDef, ast.ClassDef))
        or (isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    }


def _constructor(script: Script, func: ast.expr, owner: ast.ClassDef) -> list[Function]:
    """The `__init__` of the class that a name stands for, if that is the only one."""
    if isinstance(func, ast.Name) and set(script.resolver.named(func)) != {owner}:
        return []
    return made_by(script, owner)


def made_by(script: Script, owner: ast.ClassDef) -> list[Function]:
    """The `__init__` of a class that is made as classes are."""
    resolver = script.resolver
    methods = resolver.classes.methods(owner)
    if "__new__" in methods or resolver.classes.is_record(owner):
        return []
    for base in resolver.classes.bases(owner):
        if base.keywords:
            return []
        if not all(_gives_back(script, its) for its in base.decorator_list):
            return []
    its = methods.get("__init__")
    own = its is not None and its in owner.body
    return [its] if its is not None and (own or has_plain_bases(script, owner)) else []


def _of_super(script: Script, func: ast.expr) -> list[Function]:
    """`super().__init__(…)` of a class whose one base is the project's own.

    Nor does any that derives from it have another class that could come in between.
    """
    above = func.value if isinstance(func, ast.Attribute) else None
    owner = script.index.owner(func)
    if not isinstance(func, ast.Attribute) or not isinstance(above, ast.Call):
        return []
    named = [a.id for a in above.args[:1] if isinstance(a, ast.Name)]
    if dotted(above.func) != "super" or owner is None or len(owner.bases) != 1:
        return []
    if named not in ([], [owner.name]) or any(
        len(heir.bases) > 1 for heir in script.resolver.outside.descendants(owner)
    ):
        return []
    base = script.resolver.classes.named(owner.bases[0])
    its = script.resolver.classes.methods(base).get(func.attr) if base else None
    if base is None or its is None:
        return []
    own = its in base.body or has_plain_bases(script, base)
    return [its] if own else []


def _gives_back(script: Script, decorator: ast.expr) -> bool:
    """Whether a decorator of the project's own gives the class that it is given.

    Or a function that hands all that it is given on to it.
    """
    called = isinstance(decorator, ast.Call)
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    origins = script.resolver.origins(named)
    found = [o.node for o in origins if isinstance(o.node, ast.FunctionDef)]
    if called:  # `@since("1.2")`: what decorates is what it returns
        inner = [_returned(script, function) for function in found]
        found = [f for f in inner if isinstance(f, ast.FunctionDef)]
    if not found or len(found) != len(origins):
        return False
    for function in found:
        given = _returned(script, function)
        if isinstance(given, ast.FunctionDef):
            given = _handed_to(script, given)
        if given is None or given not in function.args.args[:1]:
            return False
    return True


def _handed_to(script: Script, function: ast.FunctionDef) -> ast.AST | None:
    """The parameter around it that a function calls, and does nothing else.

    `def wrapper(*args, **kwargs): return func(*args, **kwargs)`.
    """
    only = function.body[0] if len(function.body) == 1 else None
    call = only.value if isinstance(only, ast.Return) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    given, taken = (*call.args, *call.keywords), function.args
    starred = len(given) == 2 and isinstance(given[0], ast.Starred)
    if not starred or taken.vararg is None or taken.kwarg is None or taken.args:
        return None
    bound = {d.node for d in script.of(function).definitions(call.func)}
    return bound.pop() if len(bound) == 1 else None


def _returned(script: Script, function: ast.FunctionDef) -> ast.AST | None:
    """The function or parameter that is all that a function returns."""
    its = script.of(function)
    returns = its.resolver.flow(function).returns
    bound = {
        d.node
        for value in returns
        if isinstance(value, ast.Name)
        for d in its.definitions(value)
    }
    names = all(isinstance(value, ast.Name) for value in returns)
    return bound.pop() if names and len(bound) == 1 else None


def takes_nothing(script: Script, func: ast.expr) -> bool:
    """Whether a class is made without arguments: nothing of it says how it is made."""
    resolver = script.resolver
    owner = resolver.classes.named(func)
    if (
        owner is None
        or not isinstance(func, ast.Name)
        or resolver.classes.is_record(owner)
    ):
        return False
    if set(resolver.named(func)) != {owner}:
        return False
    classes = resolver.classes.bases(owner)
    if any(c.decorator_list or c.keywords for c in classes):
        return False
    if not {"__init__", "__new__"}.isdisjoint(resolver.classes.methods(owner)):
        return False
    outside = (b for c in classes for b in c.bases if resolver.classes.named(b) is None)
    return all(script.index.qualified(base) == "object" for base in outside)


def has_plain_bases(script: Script, owner: ast.ClassDef) -> bool:
    """Whether no package's class, but for a few that are known, is among its bases."""
    resolver = script.resolver
    outside = (
        base
        for current in resolver.classes.bases(owner)
        for base in current.bases
        if resolver.classes.named(base) is None
    )
    return all(script.index.qualified(base) in _BASES for base in outside)


def is_self(script: Script, node: ast.Name) -> bool:
    scope = script.index.scope(node)
    return script.resolver.self_name(scope) == node.id


def methods_of_self(script: Script, func: ast.Attribute) -> list[Function]:
    """The methods that `self.name(…)` may be: those of the class and of its heirs."""
    resolver = script.resolver
    if not isinstance(func.value, ast.Name) or not is_self(script, func.value):
        return []
    owner = script.index.owner(func)
    if owner is None or not has_plain_bases(script, owner):
        return []
    found = []
    for heir in (owner, *resolver.outside.descendants(owner)):
        method = resolver.classes.methods(heir).get(func.attr)
        if (
            method is None
            or is_abstract(method)
            or any(
                d.kind != "function" for d in resolver.classes.member(heir, func.attr)
            )
        ):
            return []
        found.append(method)
    return found


def _of_network(script: Script, func: ast.expr) -> list[Function]:
    """The `forward` that `model(…)` runs, of a model of the project's own classes.

    Also in a wrapper: `DataParallel(model)`.
    """
    resolver, found = script.resolver, []
    for made in makers(script, func):
        classes = resolver.classes.of(made) if made is not None else []
        if len(classes) != 1 or not script.modules.is_module_class(classes[0]):
            return []
        methods = resolver.classes.methods(classes[0])
        forward = methods.get("forward")
        if forward is None or "__call__" in methods:
            return []
        found.append(forward)
    return found
