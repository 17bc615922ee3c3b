"""What a script sets for MindSpore as a whole: `set_context` and who else may."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.releases import Version

if TYPE_CHECKING:
    from gpulint.script.model import Script

PACKAGE = "mindspore"
SET_CONTEXT = ("mindspore.set_context", "mindspore.context.set_context")
MAX_NEIGHBOURS = 25
_MODES = {"GRAPH_MODE": 0, "PYNATIVE_MODE": 1}


def set_contexts(script: Script) -> Iterator[ast.Call]:
    """Calls of `set_context`, in source order."""
    found = [c for name in SET_CONTEXT for c in script.index.calls.get(name, ())]
    yield from sorted(found, key=lambda c: (c.lineno, c.col_offset))


def mode_of(script: Script, call: ast.Call) -> int | None:
    """0 for the graph mode, 1 for the other, None where it is neither for sure."""
    argument = script.evaluator.argument(call, "mode")
    found = set()
    for node in argument.nodes:
        for origin in script.resolver.origins(node):
            expression = origin.expression
            name = script.index.qualified(expression) or ""
            mode = _MODES.get(name.rpartition(".")[2])
            if isinstance(expression, ast.Constant) and expression.value in (0, 1):
                mode = 1 if expression.value else 0
            found.add(None if origin.default else mode)
    return found.pop() if len(found) == 1 else None


def on_cpu(script: Script) -> bool:
    """Whether the file sets the CPU as its device, and no other."""
    targets = [
        value.constant
        for call in set_contexts(script)
        for node in script.evaluator.argument(call, "device_target").nodes
        for value in script.evaluator.values(node).known
    ]
    return bool(targets) and set(targets) == {"CPU"}


def allows(script: Script, version: Version) -> bool:
    """Whether the project may run with this release of MindSpore or a newer one."""
    highest = script.releases(PACKAGE).highest
    return highest is None or highest >= version


def requires(script: Script, version: Version) -> bool:
    """Whether it surely does; a project that says nothing is taken for a new one."""
    releases = script.releases(PACKAGE)
    return releases.lowest is None or releases.lowest >= version


def mentioned(script: Script, pattern: re.Pattern[str]) -> bool:
    """Whether a text stands in the file, or in one of its folder and those below.

    Also where there are more of them than are worth a look.
    """
    index = script.index
    if pattern.search(index.source.text):
        return True
    project = index.project
    if project is None:
        return False
    files = project.below(index.source.path.parent)
    if len(files) > MAX_NEIGHBOURS:
        return True
    indexes = map(project.index, files)
    return any(i is not None and pattern.search(i.source.text) for i in indexes)
