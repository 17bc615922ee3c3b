"""Models that stay on the host while the batches of their loop go to a device.

Their first step raises on a GPU, so such a loop runs on the CPU alone.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Target
from gpulint.index.walk import walk

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

# What is done with a model that leaves its weights where they are.
_STAYS = frozenset(
    "parameters named_parameters train eval zero_grad state_dict modules "
    "requires_grad_ children named_modules named_children buffers training".split()
)
_DEFAULTS = ("set_default_device", "set_default_tensor_type", "Accelerator")


def stays_behind(script: Script, loop: Loop) -> bool:
    """Whether a loop calls a model on the host with what it has moved to a device.

    A model that is made under a name of the same scope, and does nothing but be called
    and give its weights. Its class, of the project, says nothing of devices.
    """
    if any(word in script.source.text for word in _DEFAULTS):
        return False
    return any(
        isinstance(call.func, ast.Name)
        and _is_made_and_left(script, call.func)
        and any(script.where(given).device for given in call.args)
        for call in loop.calls
        if _moves(script, loop)
    )


def _moves(script: Script, loop: Loop) -> bool:
    targets = {move.target for move in script.moves_in([loop])}
    return bool(targets) and targets.isdisjoint({Target.CPU, Target.MPS})


def _is_made_and_left(script: Script, model: ast.Name) -> bool:
    definitions = script.definitions(model)
    scope = script.index.function(model)
    for definition in definitions:
        made = definition.value
        if definition.kind != "assign" or definition.path:
            return False
        if script.index.function(definition.node) is not scope:
            return False
        if not isinstance(made, ast.Call) or not _is_of_no_device(script, made):
            return False
    uses = [
        use
        for use in script.index.reads.get(model.id, ())
        if not set(definitions).isdisjoint(script.definitions(use))
    ]
    return bool(definitions) and all(_leaves(script, use) for use in uses)


def _is_of_no_device(script: Script, made: ast.Call) -> bool:
    """Whether a module of the project is made, and nothing of it names a device."""
    owner = script.resolver.class_of(made.func)
    if owner is None or not script.tensors.is_module_class(owner):
        return False
    given = [*made.args, *(k.value for k in made.keywords)]
    if any("dev" in ast.unparse(node) or "cuda" in ast.unparse(node) for node in given):
        return False
    for base in script.resolver.bases(owner):
        words = {getattr(n, "attr", getattr(n, "id", "")) for n in walk(base)}
        if not words.isdisjoint({"cuda", "to", "device"}):
            return False
    return True


def _leaves(script: Script, use: ast.AST) -> bool:
    above = script.index.parent(use)
    if isinstance(above, ast.Attribute):
        return above.attr in _STAYS
    return isinstance(above, ast.Call) and above.func is use
