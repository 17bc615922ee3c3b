"""What a run of the script is asked to use, and what came of it."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# The variables that candidates are made of; those of the user's shell are taken away,
# so that "as written" means what the script asks for.
PREFIXES = ("GPULINT_BATCH_SIZE", "_GPULINT_BATCH_SIZE")
VARIABLE_NAME = re.compile(r"[a-z0-9_]+")
VARIABLES = (
    "GPULINT_NUM_WORKERS",
    "GPULINT_PREFETCH_FACTOR",
    "GPULINT_AMP",
    "GPULINT_COMPILE",
)


class Outcome(enum.Enum):
    """How a run ended."""

    OK = "ok"
    MEMORY = "out of memory"
    CRASH = "crash"
    TIMEOUT = "time-out"
    NO_STEPS = "no steps"
    FEW_STEPS = "too few steps"


@dataclass(frozen=True)
class Candidate:
    """Values to try; None and what is not named stay as the script has them."""

    sizes: tuple[tuple[str, int], ...] = ()  # names of `batch_size` and samples
    workers: int | None = None
    prefetch: int | None = None
    amp: str | None = None
    compile: bool | None = None
    channels_last: bool = False

    def with_size(self, name: str, size: int) -> Candidate:
        """The same with one size changed."""
        sizes = tuple(sorted({**dict(self.sizes), name: size}.items()))
        return replace(self, sizes=sizes)

    def variables(self) -> dict[str, str]:
        """The environment variables that `gpulint.runtime` reads."""
        found = {f"GPULINT_BATCH_SIZE_{n.upper()}": str(s) for n, s in self.sizes}
        if self.workers is not None:
            found["GPULINT_NUM_WORKERS"] = str(self.workers)
        if self.prefetch is not None:
            found["GPULINT_PREFETCH_FACTOR"] = str(self.prefetch)
        if self.amp is not None:
            found["GPULINT_AMP"] = self.amp
        if self.compile is not None:
            found["GPULINT_COMPILE"] = "on" if self.compile else "off"
        return found

    def __str__(self) -> str:
        """What differs from the script as it is written."""
        parts = [f"batch{_of(name)} {size}" for name, size in self.sizes]
        if self.workers is not None:
            parts.append(f"{self.workers} worker{'' if self.workers == 1 else 's'}")
        if self.prefetch is not None:
            parts.append(f"{self.prefetch} batches ahead")
        if self.amp is not None:
            parts.append("float32" if self.amp == "off" else self.amp)
        if self.compile is not None:
            parts.append("compiled" if self.compile else "not compiled")
        if self.channels_last:
            parts.append("channels_last")
        return ", ".join(parts) or "as written"


@dataclass(frozen=True)
class Facts:
    """What the script has asked the runtime for, and what it runs on."""

    sizes: Mapping[str, int] = field(default_factory=dict)  # in use, by name
    defaults: Mapping[str, int] = field(default_factory=dict)  # as written, by name
    workers: int | None = None  # of the training loader; None: not for us to choose
    prefetch_fixed: bool = True
    amp: str | None = None  # in use; None: not asked for
    amp_choices: tuple[str, ...] = ()
    compilable: bool = False
    lr: float | None = None  # of the first optimizer's first group
    optimizer: str = ""
    lr_rule: str | None = None  # of `scaled_lr`; None: it is not called
    samples: int | None = None  # in a pass over the training data
    batches: int | None = None
    hardware: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tunable(self) -> bool:
        """Whether the script leaves anything to the runtime that could be tuned."""
        asked = self.train_sizes or self.workers is not None or self.amp_choices
        return bool(asked) or self.compilable

    @property
    def train_sizes(self) -> dict[str, int]:
        """The sizes that training uses, by names that a variable can have.

        A few steps say nothing about evaluation.
        """
        names = [name for name in self.sizes if VARIABLE_NAME.fullmatch(name)]
        return {name: self.sizes[name] for name in names if name != "eval"}


@dataclass(frozen=True)
class Trial:
    """One run and what was measured in it."""

    candidate: Candidate
    outcome: Outcome
    rate: float = 0.0  # samples a second
    peak_bytes: int | None = None  # of the device; on a CPU, of all its processes
    steps: int = 0
    seconds: float = 0.0  # of the whole run
    detail: str = ""  # what to say of a run that did not do
    facts: Facts = Facts()

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK


def _of(name: str) -> str:
    return "" if name == "train" else f" of {name}"
