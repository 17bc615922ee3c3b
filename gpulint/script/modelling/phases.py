"""Networks whose layers give phases: sines of what a layer computes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk

if TYPE_CHECKING:
    from gpulint.script.model import Script

_SINES = ("sin", "sin_", "cos", "cos_")


def is_of_a_phase(script: Script, call: ast.Call) -> bool:
    """`torch.sin(self.omega * self.linear(x))`, also of a name that the layer has set.

    Not the sines of places and times that networks of tokens and of diffusion add.
    """
    if last_name(call) not in _SINES:
        return False
    phases: list[ast.expr] = [*call.args]
    if isinstance(call.func, ast.Attribute):
        phases.append(call.func.value)
    for name in [n for n in walk(*phases) if isinstance(n, ast.Name)]:
        phases += [d.value for d in script.of(name).definitions(name) if d.value]
    return any(_is_linear(script, node) for node in walk(*phases))


def _is_linear(script: Script, node: ast.AST) -> bool:
    """`self.linear(x)`, of a layer that its class makes."""
    name = dotted(node.func) if isinstance(node, ast.Call) else None
    owner = script.index.home(node).owner(node)
    if name is None or owner is None or not name.startswith("self."):
        return False
    made = script.resolver.classes.member(owner, name.removeprefix("self."))
    return any(
        isinstance(d.value, ast.Call)
        and script.index.home(d.value).qualified(d.value.func) == "torch.nn.Linear"
        for d in made
    )
