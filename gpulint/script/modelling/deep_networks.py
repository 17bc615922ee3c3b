"""Networks of many convolutions: what they may be, and what runs when they run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import dotted, walk
from gpulint.script.modelling.models import makers
from gpulint.script.modelling.network import Network, network

if TYPE_CHECKING:
    from gpulint.script.model import Script

_CONVOLUTION = re.compile(r"^torch\.nn\.(Lazy)?Conv(Transpose)?[23]d$")
_NORM = re.compile(r"^torch\.nn\.(Lazy)?(\w*BatchNorm\dd|GroupNorm|InstanceNorm\dd)$")
DEEP = 8  # convolutions, or blocks of them, from which on a network counts as deep
# Packages whose functions do what their documentation says.
_KNOWN = frozenset(
    "torch torchvision timm einops math functools typing copy collections".split()
)


def networks_of(script: Script, forward: ast.Call) -> tuple[Network, ...]:
    """All that the model of a call may be; empty where that is not known."""
    made = list(dict.fromkeys(makers(script, forward.func)))
    known = [call for call in made if call is not None]
    if len(known) < len(made):
        return ()
    return tuple(network(script, call) for call in known)


def made_as(network: Network) -> list[str]:
    """The name of what makes a network, and the texts that this is given."""
    made = network.made
    name = network.script.index.qualified(getattr(made, "func", made))
    texts = [n.value for n in walk(made) if isinstance(n, ast.Constant)]
    return [name or "", *(text for text in texts if isinstance(text, str))]


def is_deep(network: Network) -> bool:
    """Whether many convolutions with normalisations are seen, or blocks of them."""
    calls = [call for call, name in network.calls if _CONVOLUTION.match(name)]
    if not calls or not any(_NORM.match(name) for _, name in network.calls):
        return False
    owners = {network.script.index.owner(call) for call in calls}
    return len(calls) >= DEEP or bool(owners - {_whole(network), None})


def _whole(network: Network) -> ast.ClassDef | None:
    made = network.made
    if isinstance(made, ast.ClassDef):
        return made
    return network.script.resolver.classes.named(made.func)


def running(network: Network) -> Iterator[Function]:
    """The methods and functions that run when a network runs: not its constructors."""
    for root in network.roots:
        parts = root.body if isinstance(root, ast.ClassDef) else [root]
        for part in parts:
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("__"):
                yield part


def is_unseen(script: Script, call: ast.Call) -> bool:
    """Whether a call runs what another file defines, which was not found."""
    head = (dotted(call.func) or "").partition(".")[0]
    origin = script.index.home(call).imports.get(head)
    if origin is None or origin.partition(".")[0] in _KNOWN:
        return False
    resolver = script.resolver
    return (
        not resolver.calls.callees(call) and resolver.classes.named(call.func) is None
    )
