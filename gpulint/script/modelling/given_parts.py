"""All the code that a model runs, also by what it is given: layers, models, classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.appended import elements_of
from gpulint.index.walk import children, dotted, walk
from gpulint.script.numerics.reached import reached_in_turn

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_STEPS = 4  # names between a model and what it is given


def roots_of(script: Script, made: ast.AST) -> list[ast.AST]:
    """What makes a model, a call or a class, and the definitions that this leads to."""
    calls = [made, *_listed(script, made), *_named(script, made, 0)]
    found = list(reached_in_turn(script, calls))
    classes = [c for c in _classes(script, found) if c not in found]
    return list(reached_in_turn(script, [*calls, *classes])) if classes else found


def _listed(script: Script, made: ast.AST) -> Iterator[ast.AST]:
    """The layers in a list that it is given: `Sequential(*layers)`."""
    given = made.args if isinstance(made, ast.Call) else []
    for starred in [node for node in given if isinstance(node, ast.Starred)]:
        for origin in script.resolver.origins(starred.value):
            if origin.expression is not None:
                yield from elements_of(script.index, origin.expression)


def _named(script: Script, given: ast.AST, names: int) -> Iterator[ast.AST]:
    """The calls that make the modules which it is given by name: `Model(encoder)`.

    Also in a dict of options. Only where all that a name may be is known.
    """
    if isinstance(given, (ast.Call, ast.Dict)):
        for below in children(given):
            its = below.value if isinstance(below, ast.keyword) else below
            yield from _named(script, its, names)
    elif isinstance(given, (ast.Name, ast.Attribute)) and names < MAX_STEPS:
        found = [origin.expression for origin in script.resolver.origins(given)]
        for made in found if None not in found else ():
            if not isinstance(made, (ast.Call, ast.Dict)):
                continue
            options = isinstance(made, ast.Dict) or dotted(made.func) == "dict"
            if options or (
                isinstance(made, ast.Call) and script.modules.makes_module(made)
            ):
                yield made
            yield from _named(script, made, names + 1)


def _classes(script: Script, roots: list[ast.AST]) -> Iterator[ast.AST]:
    """The modules of the program whose classes are handed on: `ResNet(Block)`."""
    for call in [node for node in walk(*roots) if isinstance(node, ast.Call)]:
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(given, (ast.Name, ast.Attribute)):
                owner = script.resolver.classes.named(given)
                if owner is not None and script.modules.is_module_class(owner):
                    yield owner
