"""Show what was decided in this process, and why."""

from __future__ import annotations

from ._environment import environment
from ._hardware import describe, hardware
from ._log import decisions
from ._policy import policy
from ._settings import settings

POLICIES = {
    "measured": "what the machine has decides, not what it is called",
    "local-cloud": "TF32, threads and loaders by the environment's kind",
}
ABOVE = ("hardware", "policy")  # the lines that explain() begins with


def explain() -> str:
    """Return the decisions of this process, one a line, each with its reason.

    Begins with where the script runs and on what. Raises ValueError where
    `GPULINT_ENV` or another variable holds a value that is not understood.
    """
    if settings().off:
        return "gpulint runtime: off (GPULINT_RUNTIME), the script runs as written"
    place = environment()
    machine = hardware()
    its = policy()
    lines = [
        "gpulint runtime",
        f"  environment: {place.kind}, {place.label} ({place.evidence})",
        f"  policy: {its.name} ({POLICIES[its.name]})",
        f"  hardware: {describe(machine)}",
        f"  usable CPUs: {machine.cpus}, local ranks: {machine.local_world_size}",
    ]
    taken = [d for d in decisions() if d.helper not in ABOVE]
    lines += [f"  {decision}" for decision in taken]
    return "\n".join(lines if taken else [*lines, "  nothing decided yet"])
