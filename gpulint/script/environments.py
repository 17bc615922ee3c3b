"""Environments of reinforcement learning."""

from __future__ import annotations

import re

from gpulint.index import FileIndex

_ENVIRONMENTS = frozenset(
    "gym gymnasium envpool procgen pettingzoo stable_baselines3 dm_control dm_env brax "
    "isaacgym".split()
)
_ENVIRONMENT = re.compile(r"(^|_)env(s|ironments?)?$")


def imports_environments(index: FileIndex) -> bool:
    """Whether a file uses a package of reinforcement learning."""
    heads = {origin.partition(".")[0] for origin in index.imported}
    return bool(heads & _ENVIRONMENTS)


def steps_environment(name: str | None) -> bool:
    """Whether `env.step` of reinforcement learning is the name of a callee."""
    holder, _, last = (name or "").rpartition(".")
    return last == "step" and bool(_ENVIRONMENT.search(holder.rpartition(".")[2]))
