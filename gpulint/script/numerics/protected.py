"""Functions that the settings keep out of autocast: those that `protect` names."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.index.calls import TENSOR_METHODS
from gpulint.index.walk import walk
from gpulint.script.neighbours import run_together
from gpulint.script.numerics.reached import MAX_REACHED, reached
from gpulint.script.training.training_step import model_calls

if TYPE_CHECKING:
    from gpulint.script.model import Script
    from gpulint.script.training.training_step import Step

_RUN = ("", ".forward", ".__call__")  # of a class, when an object of it is called
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def why_protected(script: Script, step: Step) -> str | None:
    """Why the user wants no autocast around a step: what it is in, or may run."""
    if not script.protect:
        return None
    loop, function = step.loop.node, step.function
    for inside in (step.backward, loop):
        around = _name(script, inside)
        if _is_protected(script, around):
            return _reason(script.index.home(inside).qualname(inside) or around)
    roots: list[ast.AST] = [loop]
    if function is not None and not script.index.inside(loop, function):
        roots.append(function)
    parts = reached(script, roots)
    names = (n for part in parts for n in (_defined(script, part), _run(script, part)))
    found = next(filter(None, names), None) or _perhaps_run(script, roots)
    if found is None and len(parts) >= MAX_REACHED:
        return "it calls too much to tell what of it is protected"
    return found and _reason(found)


def why_protected_program(script: Script) -> str | None:
    """The same of all that is trained in the programs that a file is a part of."""
    for index in run_together(script) if script.protect else ():
        defined = (*index.functions, *index.classes.values())
        names = [(_name(script, node), index.qualname(node)) for node in defined]
        names += [(name, name) for name in sorted(index.called_names)]
        for name, shown in names:
            if _is_protected(script, name):
                return _reason(shown)
    return None


def _reason(name: str) -> str:
    return f"`{name}` is protected by the settings"


def _defined(script: Script, part: ast.AST) -> str | None:
    """The name of a function, or of a class whose objects are called, if protected."""
    if not isinstance(part, _DEFINITIONS):
        return None
    ends = _RUN if isinstance(part, ast.ClassDef) else ("",)
    if any(_is_protected(script, _name(script, part) + end) for end in ends):
        return script.index.home(part).qualname(part)
    return None


def _run(script: Script, part: ast.AST) -> str | None:
    """A protected function that a call below a node runs or is given.

    Functions of the project that a call runs for sure are parts of their own.
    """
    for call in (node for node in walk(part) if isinstance(node, ast.Call)):
        for name in (*_of_unknown(script, call), *_given(script, call)):
            if _is_protected(script, name):
                return name
        if _has_protected_method(script, call):
            return script.text(call.func)
    return None


def _perhaps_run(script: Script, roots: list[ast.AST]) -> str | None:
    """A protected model of the program that an unknown one may be."""
    models = [call for root in roots for call in model_calls(script, root)]
    if all(_is_followed(script, call) for call in models):
        return None
    classes = (c for index in run_together(script) for c in index.classes.values())
    modules = (c for c in classes if script.modules.is_module_class(c))
    return next(filter(None, (_defined(script, owner) for owner in modules)), None)


def _is_followed(script: Script, call: ast.Call) -> bool:
    """Whether it is known what of the project a call runs."""
    resolver = script.resolver
    if resolver.calls.callees(call) or resolver.classes.named(call.func) is not None:
        return True
    return bool(resolver.classes.of(call.func))


def _of_unknown(script: Script, call: ast.Call) -> Iterator[str]:
    """What a callee that is not followed into the project may be called."""
    if _is_followed(script, call):
        return
    yield script.index.qualified(call.func) or last_name(call)
    for made in _made(script, call.func):
        yield from (made + end for end in _RUN)
    if isinstance(call.func, ast.Attribute):
        for made in _made(script, call.func.value):
            yield f"{made}.{call.func.attr}"


def _made(script: Script, node: ast.expr) -> Iterator[str]:
    """What is called to make a value: `Net` and `compile` for `compile(Net())`."""
    for origin in script.resolver.origins(node):
        for call in walk(origin.call) if origin.call is not None else ():
            if isinstance(call, ast.Call):
                yield script.index.qualified(call.func) or ""


def _given(script: Script, call: ast.Call) -> Iterator[str]:
    """The functions that are passed to a call, which it may run."""
    for value in (*call.args, *(keyword.value for keyword in call.keywords)):
        if isinstance(value, (ast.Name, ast.Attribute)):
            for origin in script.resolver.origins(value):
                if origin.kind in ("function", "class"):
                    yield _name(script, origin.node)
                elif origin.kind == "import":
                    yield script.index.qualified(value) or ""


def _has_protected_method(script: Script, call: ast.Call) -> bool:
    """Whether an object of an unknown class may have this protected method."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr in TENSOR_METHODS:
        return False
    home = script.index.home(call)
    head = (home.qualified(func) or "").partition(".")[0]
    if head in {origin.partition(".")[0] for origin in home.imported}:
        return False
    known = script.resolver.calls.callees(call) or script.resolver.classes.of(
        func.value
    )
    methods = (pattern.rpartition(".")[2] for pattern in script.protect)
    return not known and any(
        fnmatchcase(func.attr, method) for method in methods if method.strip("*?")
    )


def _name(script: Script, node: ast.AST) -> str:
    """The qualified name of a definition, or of those around a node, with modules."""
    home = script.index.home(node)
    parts = [*_module(home), *filter(None, home.qualname(node).split("."))]
    return ".".join(parts)


def _module(index: FileIndex) -> Iterable[str]:
    path = index.source.path
    root = index.project.root if index.project is not None else path.parent
    below = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
    parts = below.with_suffix("").parts
    return parts[:-1] if parts[-1:] == ("__init__",) else parts


def _is_protected(script: Script, name: str) -> bool:
    """Whether a pattern means a definition or one that holds it.

    `Solver.residual` and `physics.*` are as good as `physics.Solver.residual`.
    """
    parts = name.split(".")
    runs = {
        ".".join(parts[start:end])
        for start in range(len(parts))
        for end in range(start + 1, len(parts) + 1)
    }
    return any(fnmatchcase(run, glob) for glob in script.protect for run in runs)
