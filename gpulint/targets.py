"""The machine that scripts are to run on: which findings make sense there."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TENSOR_CORES = (7, 0)  # the first compute capability that has them
KINDS = ("cpu", "cuda", "rocm", "xpu", "mps")


class Hardware(enum.Enum):
    """What a machine needs for a rule to be about it."""

    ANY = "any"
    GPU = "gpu"  # an accelerator of any kind, with a queue of its own
    PINNED = "pinned"  # copies from page-locked memory beside other work
    CUDA = "cuda"  # NVIDIA's or AMD's libraries
    MIXED = "mixed"  # lower precision is faster
    TF32 = "tf32"


@dataclass(frozen=True)
class Target:
    """A machine. `capability`: of an NVIDIA GPU, as (9, 0); None: it is not known."""

    name: str
    kind: str = "cuda"
    capability: tuple[int, int] | None = None
    tf32: bool = False

    def has(self, hardware: Hardware) -> bool:
        """Whether the machine has what a rule is about."""
        gpu = self.kind in ("cuda", "rocm")
        known = self.kind == "cuda" and self.capability is not None
        slow = known and self.capability is not None and self.capability < TENSOR_CORES
        return {
            Hardware.ANY: True,
            Hardware.GPU: self.kind != "cpu",
            Hardware.PINNED: gpu or self.kind == "xpu",
            Hardware.CUDA: gpu,
            Hardware.MIXED: self.kind != "cpu" and not slow,
            Hardware.TF32: self.tf32,
        }[hardware]


def _nvidia(name: str, major: int, minor: int) -> Target:
    return Target(name, "cuda", (major, minor), (major, minor) >= (8, 0))


# Compute capabilities: https://developer.nvidia.com/cuda-gpus
KNOWN = {
    target.name: target
    for target in (
        Target("cpu", "cpu"),
        _nvidia("p100", 6, 0),
        _nvidia("v100", 7, 0),
        _nvidia("t4", 7, 5),
        _nvidia("a100", 8, 0),
        _nvidia("a10", 8, 6),
        _nvidia("rtx3090", 8, 6),
        _nvidia("l4", 8, 9),
        _nvidia("rtx4090", 8, 9),
        _nvidia("h100", 9, 0),
        _nvidia("h200", 9, 0),
        _nvidia("b200", 10, 0),
        _nvidia("rtx5090", 12, 0),
        Target("mi300x", "rocm"),
        Target("xpu", "xpu"),
        Target("mps", "mps"),
    )
}


def find_target(name: str, folder: Path) -> Target:
    """A known machine, or one that `gpulint doctor --save-target` wrote to a file.

    ValueError with one line: neither; the file cannot be used.
    """
    known = KNOWN.get(name.lower())
    if known is not None:
        return known
    if not name.endswith(".json"):
        names = ", ".join(KNOWN)
        raise ValueError(f"{name!r} is no target; there are {names}, or a .json file")
    path = folder / name
    try:
        return _read(json.loads(path.read_bytes()), path.stem)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        made = "`gpulint doctor --save-target` makes one"
        raise ValueError(f"{path}: not a target; {made}") from None


def _read(data: dict[str, Any], name: str) -> Target:
    kind, capability = data["kind"], data["capability"]
    if kind not in KINDS:
        raise ValueError(kind)
    major, minor = map(int, capability) if capability else (0, 0)
    return Target(
        str(data["name"] or name),
        kind,
        (major, minor) if capability else None,
        data["tf32"] is True,
    )


def fits(hardware: Hardware, targets: Iterable[Target]) -> bool:
    """Whether a rule is about any of these machines; about all where none is named."""
    named = tuple(targets)
    return not named or any(target.has(hardware) for target in named)
