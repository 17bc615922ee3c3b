"""Programs that take saved weights for the model that has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import last_name

if TYPE_CHECKING:
    from gpulint.script.model import Script

# What a module has and a dict lacks, of what programs ask a loaded model for.
_OF_MODULES = frozenset(
    "eval train cuda cpu to half float double parameters named_parameters modules "
    "named_modules children state_dict load_state_dict forward zero_grad".split()
)


def runs_weights(script: Script, call: ast.Call) -> bool:
    """`torch.load(path).eval()` in a project whose files only hold weights.

    All that it saves with `torch.save` are a `state_dict()` or a dict that is written.
    Of what is loaded from elsewhere nobody can tell: a path that is written out.
    """
    func = call.func
    if isinstance(func, ast.Attribute):
        if func.attr not in _OF_MODULES:
            return False
        holder = func.value
    else:
        holder = func
    if not script.mentions("torch.load"):
        return False
    loads = [origin.call for origin in script.resolver.origins(holder)]
    if not loads or not all(_loads(script, load) for load in loads):
        return False
    saved = list(_saved(script))
    return bool(saved) and all(map(_is_dict, saved))


def _loads(script: Script, load: ast.Call | None) -> bool:
    """`torch.load(args.path)`, not of a file by its name."""
    if load is None or script.index.qualified(load.func) != "torch.load":
        return False
    return bool(load.args) and not isinstance(load.args[0], ast.Constant)


def _saved(script: Script) -> Iterator[ast.expr]:
    """What the files of a project save."""
    project = script.index.project
    paths = project.mentioning("torch.save") if project is not None else []
    for index in (project.index(path) for path in paths if project is not None):
        if index is not None:
            saves = index.calls.get("torch.save", ())
            yield from (call.args[0] for call in saves if call.args)


def _is_dict(value: ast.expr) -> bool:
    return isinstance(value, ast.Dict) or (
        isinstance(value, ast.Call)
        and last_name(value) == "state_dict"
        and isinstance(value.func, ast.Attribute)
    )
