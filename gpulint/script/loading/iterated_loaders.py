"""Which loaders a loop takes its batches from, in whatever file they are made."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Origin
from gpulint.script.loops import iterated

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_COUNTERS = ("range", "itertools.count", "tqdm.trange")


def loaders_of(script: Script, loop: Loop) -> list[Loader]:
    """The loaders that a loop takes batches from; none where one is not known."""
    each = [o for i, _ in loop.items for o in iterated(script.resolver, i)]
    origins = [o for o in each if not isinstance(o.node, ast.Subscript)]
    origins = [o for o in origins if not _is_none(o.expression)]
    asked = [c for c in loop.calls if script.index.qualified(c.func) == "next"]
    if asked:  # by each iteration, whose number says nothing
        origins = [o for o in origins if not _counts(script, o)]
    taken = [script.of(call).batches.taken_from(call) for call in asked]
    found = [script.loader_of(o.call) for o in origins if o.call is not None]
    loaders = [loader for loader in found if loader is not None]
    if len(loaders) < len(origins) or not all(taken):
        return []
    return list(dict.fromkeys([*loaders, *(x for its in taken for x in its)]))


def _is_none(node: ast.expr | None) -> bool:
    """What stands for a loader that there may not be."""
    return isinstance(node, ast.Constant) and node.value is None


def _counts(script: Script, origin: Origin) -> bool:
    """`range(n)`, whatever shows its progress."""
    name = script.index.qualified(origin.call.func) if origin.call is not None else ""
    return name in _COUNTERS
