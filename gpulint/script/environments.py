"""Environments of reinforcement learning."""

from __future__ import annotations

import re

from gpulint.index import FileIndex

_ENVIRONMENTS = frozenset(
    "gym gymnasium envpool procgen pettingzoo stable_baselines3 dm_control dm_env brax "
    "isaacgym ale_py atari_py minatar minigrid gym_minigrid babyai vizdoom crafter "
    "retro nle minihack pybullet_envs mujoco_py robosuite metaworld dmc2gym gfootball "
    "smac pysc2 unityagents mlagents_envs highway_env safety_gym rlcard pyspiel "
    "open_spiel".split()
)
_ENVIRONMENT = re.compile(r"(^|_)env(s|ironments?)?$")


def imports_environments(index: FileIndex) -> bool:
    """Whether a file uses a package of reinforcement learning."""
    heads = {origin.partition(".")[0] for origin in index.imported}
    return bool(heads & _ENVIRONMENTS)


def steps_environment(name: str | None) -> bool:
    """Whether a callee is named as what plays: `env.step` or `env.act`."""
    holder, _, last = (name or "").rpartition(".")
    played = _ENVIRONMENT.search(holder.rpartition(".")[2])
    return last in ("step", "act") and played is not None
