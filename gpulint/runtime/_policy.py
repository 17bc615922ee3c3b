"""Choose and apply the settings that go with the place a script runs in."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ._environment import Environment, environment
from ._limits import available_cpus, cpus_per_rank
from ._log import decide
from ._placement import choose_device
from ._ranks import in_worker, local_world_size
from ._settings import settings


@dataclass(frozen=True)
class Policy:
    """What a policy sets; None leaves it to the machine and to the script."""

    name: str
    place: Environment | None = None
    tf32: bool | None = None
    threads: int | None = None  # of one operation on the CPU
    interop_threads: int | None = None  # operations at a time on the CPU
    most_workers: int | None = None  # of a training loader
    queue: int | None = None  # batches that a loader's workers have ready together

    @property
    def why(self) -> str:
        return self.name if self.place is None else self.place.kind


MEASURED = Policy("measured")
LOCAL = Policy("local-cloud", tf32=True, most_workers=4, queue=2)
CLOUD = Policy("local-cloud", tf32=False, threads=8, interop_threads=4, queue=10)

_asked: dict[str, Any] = {}  # what the script itself has chosen


def policy() -> Policy:
    """Return the policy of this process, with what the script has chosen instead."""
    name = _asked.get("name") or settings().policy
    overrides = {key: value for key, value in _asked.items() if key != "name"}
    return replace(MEASURED if name == "measured" else _by_place(), **overrides)


def choose_policy(name: str | None, overrides: Mapping[str, Any]) -> None:
    """Let the script's own choice come before the environment's."""
    _asked.update(overrides)
    if name is not None:
        _asked["name"] = name


def forget_policy() -> None:
    """Begin anew, as in a fresh process."""
    _asked.clear()


def follow_policy() -> None:
    """Set what the policy says about TF32 and threads, in this process."""
    if settings().off or settings().debug or in_worker():
        return
    its = policy()
    if its.place is not None:
        place = its.place
        decide("policy", f"{its.name}, {place.kind} ({place.label}: {place.evidence})")
    if its.tf32 is not None:
        _set_tf32(its.tf32, _reason("tf32", its, TF32_REASONS))
    if its.threads is not None or its.interop_threads is not None:
        _set_threads(its)
    elif its.place is not None:
        decide("threads", f"torch's own ({its.why}: nobody else uses the CPUs)")


TF32_REASONS = {
    "local": "local: speed before precision",
    "cloud": "cloud: precision before speed",
}
THREAD_REASONS = {"cloud": "cloud: others use the machine as well"}


def _by_place() -> Policy:
    place = environment()
    cpus = max(1, cpus_per_rank(available_cpus(), local_world_size()))
    its = replace(LOCAL if place.kind == "local" else CLOUD, place=place)
    if its.threads is None or its.interop_threads is None:
        return its
    return replace(
        its,
        threads=min(its.threads, cpus),
        interop_threads=min(its.interop_threads, cpus),
    )


def _reason(setting: str, its: Policy, reasons: Mapping[str, str]) -> str:
    return "as the script asks" if setting in _asked else reasons[its.why]


def _set_tf32(wanted: bool, reason: str) -> None:
    import torch

    if choose_device().type != "cuda":
        decide("TF32", "as it was (no GPU that could have it)")
        return
    # The older of torch's two interfaces: what reads it (Inductor does) fails where
    # only the newer one was used.
    torch.set_float32_matmul_precision("high" if wanted else "highest")
    torch.backends.cudnn.allow_tf32 = wanted  # convolutions have it by default
    decide("TF32", f"{'on' if wanted else 'off'} ({reason})")


def _set_threads(its: Policy) -> None:
    import torch

    said = []
    if its.threads is not None:
        # OMP_NUM_THREADS and torchrun may have set fewer.
        own = "threads" in _asked
        count = its.threads if own else min(its.threads, torch.get_num_threads())
        torch.set_num_threads(count)
        said.append(f"{count} in an operation")
    if its.interop_threads is not None:
        if torch.get_num_interop_threads() != its.interop_threads:
            with contextlib.suppress(RuntimeError):  # some have started already
                torch.set_num_interop_threads(its.interop_threads)
        said.append(f"{torch.get_num_interop_threads()} operations at a time")
    setting = "threads" if "threads" in _asked else "interop_threads"
    decide("threads", f"{', '.join(said)} ({_reason(setting, its, THREAD_REASONS)})")
