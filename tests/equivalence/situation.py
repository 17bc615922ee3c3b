"""What a script is run with, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Capability = tuple[int, int]
AMPERE: Capability = (8, 0)  # bfloat16
TURING: Capability = (7, 5)  # float16, which needs a scaler


@dataclass(frozen=True)
class Situation:
    """How a script is run.

    `gpu`: the compute capability of a pretended GPU, None for a machine without one.
    `seeds` is added to every seed of the script. `constant`: draws do not depend on
    those before them. `record`: the script's own draws are written down. `arguments`
    are those of the command line.
    """

    gpu: Capability | None = None
    seeds: int = 0
    constant: bool = False
    record: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    timeout: int = 60

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "environment": dict(self.environment)}


@dataclass(frozen=True)
class Outcome:
    """What a script printed, and what it left behind.

    `weights`, `optimizers` and `random` are digests by name. `draws` are the script's
    own: its function, the one that drew, the mean of the numbers. `waits` counts how
    often the host waited for the device.
    """

    output: tuple[str, ...]
    error: str
    losses: tuple[float, ...]
    weights: Mapping[str, str]
    optimizers: Mapping[str, str]
    random: Mapping[str, str]
    draws: tuple[tuple[str, str, float], ...]
    waits: int

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        return cls(
            output=tuple(data["output"]),
            error=data["error"],
            losses=reported_losses(data["output"]),
            weights=data.get("weights", {}),
            optimizers=data.get("optimizers", {}),
            random=data.get("random", {}),
            draws=tuple((str(a), str(b), float(c)) for a, b, c in data["draws"]),
            waits=data.get("waits", 0),
        )


def reported_losses(output: list[str]) -> tuple[float, ...]:
    """The `losses` of the JSON object in the last line, empty without one."""
    try:
        return tuple(float(loss) for loss in json.loads(output[-1])["losses"])
    except (IndexError, KeyError, TypeError, ValueError):
        return ()
