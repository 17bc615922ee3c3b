"""Show what was decided in this process, and why."""

from __future__ import annotations

from ._environment import environment
from ._hardware import describe, hardware
from ._limits import available_cpus
from ._log import decisions
from ._policy import policy
from ._ranks import local_world_size
from ._settings import settings

POLICIES = {
    "measured": "what the machine has decides, not what it is called",
    "local-cloud": "TF32, threads and loaders by the environment's kind",
}
ABOVE = ("hardware", "policy")  # the lines that explain() begins with


def explain() -> str:
    """Return the decisions of this process, one a line, each with its reason.

    Begins with where the script runs and on what, the latter in as far as it is known
    without torch where there is none. Raises ValueError where
    `GPULINT_ENV` or another variable holds a value that is not understood.
    """
    if settings().off:
        return "gpulint runtime: off (GPULINT_RUNTIME), the script runs as written"
    place = environment()
    its = policy()
    lines = [
        "gpulint runtime",
        f"  environment: {place.kind}, {place.label} ({place.evidence})",
        f"  policy: {its.name} ({POLICIES[its.name]})",
        *_described(),
    ]
    taken = [d for d in decisions() if d.helper not in ABOVE]
    lines += [f"  {decision}" for decision in taken]
    return "\n".join(lines if taken else [*lines, "  nothing decided yet"])


def _described() -> list[str]:
    """The lines about the machine."""
    try:
        machine = hardware()
    except ModuleNotFoundError:  # a script of MindSpore or TensorFlow, without torch
        cpus, ranks = available_cpus(), local_world_size()
        return [f"  usable CPUs: {cpus}, local ranks: {ranks}"]
    return [
        f"  hardware: {describe(machine)}",
        f"  usable CPUs: {machine.cpus}, local ranks: {machine.local_world_size}",
    ]
