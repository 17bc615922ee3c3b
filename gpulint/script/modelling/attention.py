"""Whether a model holds attention, whose fast path rounds otherwise."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Where
from gpulint.index.walk import dotted, walk

if TYPE_CHECKING:
    from gpulint.script.model import Script

_ATTENTION = re.compile(r"Transformer|Attention|scaled_dot_product")
_CONVOLUTIONAL = re.compile(
    r"^torchvision\.models\.(resnet|vgg|alexnet|densenet|mobilenet|efficientnet|googlenet|"
    r"inception|squeezenet|shufflenet|regnet|resnext|wide_resnet|mnasnet|convnext)"
)
_MASKS = ("padding_mask", "key_mask")
_MASK = re.compile("|".join(_MASKS), re.IGNORECASE)
_UNWRAPPED = frozenset("to cuda train eval float half double apply".split())
_LIBRARIES = ("torch", "numpy", "math", "functools", "copy", "collections")


def may_hold_attention(script: Script, model: ast.expr) -> bool:
    """False only if every class of the model is known, and none is attention."""
    origins = script.resolver.origins(model)
    return not origins or not all(
        o.call is not None and _is_known(script, o.call, set()) for o in origins
    )


def takes_padding_mask(script: Script) -> bool:
    """Whether a padding mask is named in the file, or where its models may be made."""
    project = script.index.project
    if project is not None and any(map(project.mentions, _MASKS)):
        return True
    names = [n.id for n in script.index.all(ast.Name)]
    names += [k.arg or "" for k in script.index.all(ast.keyword)]
    names += [a.attr for a in script.index.all(ast.Attribute)]
    return any(map(_MASK.search, names))


def _is_known(script: Script, made: ast.Call, seen: set[ast.AST]) -> bool:
    """Whether what a constructor makes surely holds no attention."""
    while isinstance(made.func, ast.Attribute) and made.func.attr in _UNWRAPPED:
        if not isinstance(made.func.value, ast.Call):
            return False
        made = made.func.value
    name = script.index.qualified(made.func) or ""
    if _CONVOLUTIONAL.match(name):
        return True
    given = [*made.args, *(k.value for k in made.keywords)]
    if name.startswith("torch.nn."):
        return _is_harmless(script, made, seen) and all(
            _is_harmless(script, node, seen)
            for argument in given
            for node in walk(argument)
            if isinstance(node, (ast.Call, ast.Name))
        )
    owner = script.resolver.classes.named(made.func)
    if owner is None or any(script.where(a) is not Where.PLAIN for a in given):
        return False
    return _is_known_class(script, owner, seen)


def _is_known_class(script: Script, owner: ast.ClassDef, seen: set[ast.AST]) -> bool:
    if owner in seen:
        return True
    seen.add(owner)
    for base in script.resolver.classes.base_names(owner):
        if (
            base not in ("torch.nn.Module", "object")
            and base not in script.index.classes
        ):
            return False
    return all(
        _is_harmless(script, node, seen)
        for method in script.resolver.classes.methods(owner).values()
        for node in walk(*method.body)
        if isinstance(node, ast.Call)
    )


def _is_harmless(script: Script, node: ast.Call | ast.Name, seen: set[ast.AST]) -> bool:
    """Whether a call inside a model surely makes no attention module."""
    if isinstance(node, ast.Name):  # a layer given by name
        made = [o.call for o in script.resolver.origins(node)]
        named = script.index.qualified(node) or ""
        return named.startswith("torch.") or all(
            call is not None and _is_known(script, call, seen) for call in made
        )
    name = script.index.qualified(node.func) or ""
    if name.startswith("torch."):
        return not _ATTENTION.search(name)
    owner = script.resolver.classes.named(node.func)
    if owner is not None:
        return _is_known_class(script, owner, seen)
    head = (dotted(node.func) or "").partition(".")[0]
    origin = script.index.imports.get(head)
    if origin is not None:
        return origin.partition(".")[0] in _LIBRARIES
    if isinstance(node.func, ast.Name):
        reached = script.definitions(node.func)
        return all(d.kind in ("function", "for") for d in reached)
    return not isinstance(node.func, ast.Call)
