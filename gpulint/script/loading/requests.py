"""Loaders that a function of a package makes of a few texts, to answer one call."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.appended import appended_to

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

_FEW = re.compile(
    r"^(texts?|sentences?|documents?|docs|prompts?|quer(y|ies)|questions?|passages?"
    r"|contexts?|inputs?|messages?|strings?)$"
)
_LISTS = re.compile(r"\b(list|List|Sequence|Iterable|str)\b")


def answers_a_call(script: Script, loader: Loader) -> bool:
    """Whether workers would start for each call of a function, over what that is given.

    `def embed(self, texts): loader = DataLoader(Texts(texts)); for batch in loader: …`
    in a file that trains nothing, and not once in every epoch of another.
    """
    function = script.index.function(loader.call)
    if function is None or script.training_loops or not loader.loops:
        return False
    if any(loop.function is not function or loop.parent for loop in loader.loops):
        return False
    calls = script.resolver.calls.callers(function)
    around = [x for call in calls for x in script.of(call).loops_around(call)]
    if any(loop.train or loop.kind == "epoch" for loop in around):
        return False
    made = [
        origin.call
        for node in loader.argument("dataset").nodes
        for origin in script.resolver.origins(node)
    ]
    return bool(made) and all(
        call is not None
        and script.index.function(call) is function
        and any(_is_given(script, value, function) for value in call.args)
        for call in made
    )


def _is_given(script: Script, value: ast.expr, function: Function) -> bool:
    """Whether a value is a list that a function is given, or fills from that."""
    if not isinstance(value, ast.Name):
        return False
    for definition in script.definitions(value):
        if definition.kind == "parameter":
            node = definition.node
            written = node.annotation if isinstance(node, ast.arg) else None
            declared = written is not None and _LISTS.search(ast.unparse(written))
            if not (declared or _FEW.match(value.id)):
                return False
        elif not (
            isinstance(definition.value, ast.List)
            and not definition.value.elts
            and appended_to(script.index, definition.value)
            and script.index.function(definition.node) is function
        ):
            return False
    return bool(script.definitions(value))
