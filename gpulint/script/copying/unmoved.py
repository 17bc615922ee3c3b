"""Models that stay on the host, so that their loops run on the CPU alone.

Where the batches of such a loop go to a device, its first step raises on a GPU.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Definition
from gpulint.index.walk import dotted, walk

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

# What is done with a model that leaves its weights where they are.
_STAYS = frozenset(
    "parameters named_parameters train eval zero_grad state_dict modules "
    "load_state_dict requires_grad_ children named_modules named_children buffers "
    "training".split()
)
MAX_CALLS = 3  # from a loop, back to where its model is made
_OF_TORCHVISION = re.compile(r"torchvision\.models\.(\w+\.)*[a-z]\w*$")
# Layers that have weights.
_WEIGHS = re.compile(
    r"(Lazy)?(Bi)?(Linear|Conv\w*|Embedding|LSTM\w*|GRU\w*|RNN\w*|Parameter|\w*Norm\w*|"
    r"Transformer\w*|MultiheadAttention)$"
)
_DEFAULTS = ("set_default_device", "set_default_tensor_type", "Accelerator")


def stays_behind(script: Script, loop: Loop) -> bool:
    """Whether a loop calls a model that stays on the host.

    A model that is made under a name, also one that all callers of a function give it,
    and does nothing but be called and give its weights. It is torchvision's, or its
    class, of the project, says nothing of devices.
    """
    return any(
        isinstance(call.func, ast.Name)
        and _is_made_and_left(script, call.func, MAX_CALLS)
        for call in loop.calls
    )


def _is_made_and_left(script: Script, model: ast.Name, depth: int) -> bool:
    if any(word in script.source.text for word in _DEFAULTS):
        return False
    definitions = script.definitions(model)
    return bool(definitions) and all(
        _is_made(script, model, definition, depth)
        and _is_left(script, model.id, definition, depth)
        for definition in definitions
    )


def _is_made(
    script: Script, model: ast.Name, definition: Definition, depth: int
) -> bool:
    """Whether a name gets a new model on the host, or one that was left there."""
    function, made = script.index.function(model), definition.value
    if definition.path or not depth:
        return False
    if definition.kind == "parameter" and function is not None:
        if definition not in script.resolver.flow(function).definitions[model.id]:
            return False
        passed = script.resolver.calls.arguments(function, model.id)
        return bool(passed) and all(
            isinstance(given, ast.Name)
            and _is_made_and_left(script.of(given), given, depth - 1)
            for given in passed or ()
        )
    if definition.kind != "assign" or not isinstance(made, ast.Call):
        return False
    if script.index.function(definition.node) is not function:
        return False
    given = _given_back(script, made)
    if given is not None:
        return _is_made_and_left(script, given, depth - 1)
    return _is_of_no_device(script, made)


def _given_back(script: Script, call: ast.Call) -> ast.Name | None:
    """The argument that a function of the project always returns: `fit(model, …)`."""
    function = script.resolver.calls.callee(call)
    returned = script.resolver.flow(function).returns if function is not None else []
    names = {r.id if isinstance(r, ast.Name) else None for r in returned}
    if function is None or len(names) != 1 or None in names:
        return None
    given, clear = script.resolver.calls.given(call, function, names.pop() or "")
    is_name = clear and len(given) == 1 and isinstance(given[0], ast.Name)
    return given[0] if is_name else None  # type: ignore[return-value]


def _is_left(script: Script, name: str, definition: Definition, depth: int) -> bool:
    """Whether all that is done with what a name holds leaves its weights there."""
    return all(
        _leaves(script, use, depth)
        for use in script.index.home(definition.node).reads.get(name, ())
        if definition in script.of(use).definitions(use)
    )


def _is_of_no_device(script: Script, made: ast.Call) -> bool:
    """Whether a module is made, of torchvision or of a class that names no device."""
    given = [*made.args, *(k.value for k in made.keywords)]
    if any("dev" in ast.unparse(node) or "cuda" in ast.unparse(node) for node in given):
        return False
    if _OF_TORCHVISION.match(script.index.qualified(made.func) or ""):
        return True
    owner = script.resolver.classes.named(made.func)
    if owner is None or not script.modules.is_module_class(owner):
        return False
    words = {
        getattr(node, "attr", getattr(node, "id", ""))
        for base in script.resolver.classes.bases(owner)
        for node in walk(base)
    }
    weighs = any(map(_WEIGHS.match, words))  # a loss without weights may be anywhere
    return weighs and words.isdisjoint({"cuda", "to", "device"})


def _leaves(script: Script, use: ast.AST, depth: int) -> bool:
    its = script.of(use)
    above = its.index.parent(use)
    if isinstance(above, ast.Attribute):
        if above.attr in _STAYS or _is_replaced(its, above):
            return True
        above = its.index.parent(above)
        return isinstance(above, ast.Call) and dotted(above.func) == "print"
    if isinstance(above, ast.Return):
        return True  # what callers do with it is their names' matter
    if not isinstance(above, ast.Call):
        return False
    if above.func is use or dotted(above.func) == "print":
        return True
    return depth > 0 and _leaves_within(its, above, use, depth - 1)


def _is_replaced(script: Script, part: ast.Attribute) -> bool:
    """`model.fc = …` and `model.classifier[6] = …`, by what names no device."""
    target: ast.AST | None = part
    if isinstance(part.ctx, ast.Load):
        target = script.index.parent(part)
    above = script.index.parent(target) if target is not None else None
    return (
        isinstance(above, ast.Assign)
        and target in above.targets
        and not any(word in ast.unparse(above.value) for word in ("cuda", "dev", ".to"))
    )


def _leaves_within(script: Script, call: ast.Call, use: ast.AST, depth: int) -> bool:
    """Whether a function of the project leaves the model that it is given."""
    function = script.resolver.calls.callee(call)
    if function is None:
        return False
    for parameter in (*function.args.args, *function.args.kwonlyargs):
        if use in script.resolver.calls.given(call, function, parameter.arg)[0]:
            own = script.resolver.flow(function).definitions[parameter.arg]
            return all(
                _is_left(script.of(d.node), parameter.arg, d, depth)
                for d in own
                if d.kind == "parameter"
            )
    return False
