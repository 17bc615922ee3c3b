"""Switches of torch's debugging aids that settings files turn on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index import Value
from gpulint.index.walk import dotted
from gpulint.script.numerics.amp_switches import OFF, ON, atoms
from gpulint.script.settings.setting_values import is_meant, is_setting

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Qualified name → parameter and position of its switch, and what it costs.
ANOMALY = "anomaly detection checks every backward step"
PROFILER = "the profiler records every operation"
DETERMINISTIC = "only deterministic kernels may be used"
BLOCKING = "each kernel launch waits for its kernel"
_CALLS = {
    "torch.autograd.set_detect_anomaly": ("mode", 0, ANOMALY),
    "torch.autograd.detect_anomaly": ("", None, ANOMALY),
    "torch.autograd.profiler.profile": ("enabled", 0, PROFILER),
    "torch.autograd.profiler.emit_nvtx": ("enabled", 0, PROFILER),
    "torch.use_deterministic_algorithms": ("mode", 0, DETERMINISTIC),
    "lightning.Trainer": ("detect_anomaly", None, ANOMALY),
    "lightning.pytorch.Trainer": ("detect_anomaly", None, ANOMALY),
    "pytorch_lightning.Trainer": ("detect_anomaly", None, ANOMALY),
}
LAUNCHES = "CUDA_LAUNCH_BLOCKING"
_SEED = re.compile(r"seed", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class DebugSwitch:
    """A setting that is on, the node that it switches, and what that costs."""

    value: Value
    place: ast.AST
    cost: str


def debug_switches(script: Script) -> list[DebugSwitch]:
    """Each setting once."""
    found: dict[ast.expr, DebugSwitch] = {}
    for switch in _all(script):
        node = switch.value.node
        wanted = switch.cost == DETERMINISTIC and _is_seeded(script, node)
        if not wanted and not is_meant(script, node):
            found.setdefault(node, switch)
    return list(found.values())


def _all(script: Script) -> Iterator[DebugSwitch]:
    index = script.index
    for name, (option, position, cost) in _CALLS.items():
        for call in index.calls.get(name, ()):
            given = (
                script.evaluator.argument(call, option, position).direct
                if option
                else None
            )
            fixed = isinstance(given, ast.Constant) and given.value is True
            if given is not None and not fixed:
                yield from _found(script, given, True, call.func, cost)
            elif fixed or not option:
                yield from _around(script, call, cost)
    for assign in index.all(ast.Assign):
        target = assign.targets[0]
        name = index.qualified(target) or ""
        if name == "torch.backends.cudnn.deterministic":
            yield from _found(script, assign.value, True, target, DETERMINISTIC)
        elif isinstance(target, ast.Subscript) and blocks_launches(target):
            yield from _around(script, assign, BLOCKING)


def blocks_launches(target: ast.Subscript) -> bool:
    """Whether it is `os.environ["CUDA_LAUNCH_BLOCKING"]`."""
    key = target.slice
    named = isinstance(key, ast.Constant) and key.value == LAUNCHES
    return named and dotted(target.value) == "os.environ"


def _around(script: Script, node: ast.AST, cost: str) -> Iterator[DebugSwitch]:
    """Settings that decide in a branch around whether a node runs."""
    child = node
    for above in script.index.ancestors(node):
        if isinstance(above, ast.If) and child is not above.test:
            yield from _found(script, above.test, child in above.body, node, cost)
        child = above


def _found(
    script: Script, test: ast.expr, holds: bool, place: ast.AST, cost: str
) -> Iterator[DebugSwitch]:
    for flag, wanted in atoms(script, test, holds):
        its = script.evaluator.values(flag)
        on = its.all_in(*(ON if wanted else OFF))
        if on and all(is_setting(script, v.node) for v in its.known):
            yield DebugSwitch(its.known[0], place, cost)


def _is_seeded(script: Script, node: ast.expr) -> bool:
    """Whether the same file fixes a seed: its runs are meant to be repeatable."""
    home = script.index.home(node)
    keys = [k for d in home.all(ast.Dict) for k in d.keys]
    return any(
        isinstance(k, ast.Constant) and _SEED.search(str(k.value)) for k in keys
    ) or script.source.has(_SEED)
