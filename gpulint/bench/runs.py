"""Run two variants of a script in turns, each time in a fresh process."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from gpulint.bench.gpus import GpuUse, gpu_use
from gpulint.bench.overlay import environment
from gpulint.nvml.sampler import Reading
from gpulint.running.children import run_module

HASH_SEEDS = 2**32
Item = TypeVar("Item")
Found = TypeVar("Found")


class BenchError(Exception):
    """A run that gives nothing to compare; the message says why, in one line."""


@dataclass(frozen=True)
class Variant:
    """A script, and other texts for some files than those on the disk."""

    label: str
    script: str  # a path, or the name of a module
    texts: Mapping[Path, bytes] = field(default_factory=dict)
    module: bool = False


@dataclass(frozen=True)
class Limits:
    """How much of a run is measured, and how long it may take."""

    steps: int
    warmup: int
    timeout: float  # seconds


@dataclass(frozen=True)
class Setting:
    """What all runs have in common."""

    arguments: Sequence[str] = ()
    launcher: Sequence[str] = ()  # that starts ranks, with its options
    seed: int | None = None
    devices: str | None = None  # as in CUDA_VISIBLE_DEVICES


@dataclass(frozen=True)
class Run:
    """What was measured in one process, or its ranks; lists have an item a step."""

    seconds: Sequence[float]
    waits: Sequence[float]
    samples: Sequence[int | None]
    between: Sequence[bool]  # an evaluation or the start of a pass came between
    losses: Sequence[float]  # of all steps, those of the warm-up too
    skipped: int  # steps that a GradScaler has left out
    device: str | None  # None: the host alone
    device_peak: int | None  # bytes
    host_peak: int | None
    cuda: bool = False  # that device is one that torch tells waits for
    gpus: GpuUse | None = None  # as NVML has seen them


def in_turns(
    variants: Sequence[Item],
    repeats: int,
    measure: Callable[[Item], Found],
    draw: random.Random,
) -> list[list[Found]]:
    """All variants, `repeats` times.

    For each order there is one the other way round, so that drifts cancel out; which
    comes when is drawn, so that nothing that comes and goes keeps pace with them.
    """
    runs: list[list[Found]] = [[] for _ in variants]
    for order in orders(len(variants), repeats, draw):
        for place in order:
            runs[place].append(measure(variants[place]))
    return runs


def orders(count: int, repeats: int, draw: random.Random) -> list[list[int]]:
    """The order of all variants in each round."""
    rounds: list[list[int]] = []
    while len(rounds) < repeats:
        order = list(range(count))
        draw.shuffle(order)
        rounds += [order, order[::-1]]
    rounds = rounds[:repeats]
    draw.shuffle(rounds)
    return rounds


def read_launcher(text: str) -> list[str]:
    """The words of a launcher, that starts the Python that runs this.

    Raises ValueError where it is none.
    """
    words = shlex.split(text)
    if not words:
        raise ValueError("it is empty")
    if words[0] == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", *words[1:]]
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    found = shutil.which(words[0], path=os.pathsep.join(folders))
    if found is None:
        raise ValueError(f"there is no {words[0]!r} on PATH")
    return [found, *words[1:]]


class Children:
    """Measures variants, one run at a time."""

    def __init__(
        self,
        setting: Setting,
        limits: Limits,
        progress: Callable[[int], None],
        output: Callable[[str], None],
        readings: Callable[[], Sequence[Reading]] = tuple,
    ) -> None:
        """`readings` gives what NVML has said of the GPUs since its last call."""
        self.setting = setting
        self.limits = limits
        self.progress = progress
        self.output = output
        self.readings = readings

    def __call__(self, variant: Variant) -> Run:
        """Run the script. Raises BenchError where it does not get so far."""
        ranks = self._measured(variant, {})
        run = together([as_run(said) for said in ranks])
        readings = self.readings()
        if not run.cuda:
            return run
        ended, ids = ranks[0]["ended"], {i for said in ranks for i in said["gpu_ids"]}
        its = gpu_use(readings, ended - sum(run.seconds), ended, ids)
        return replace(run, gpus=its)

    def host_syncs(self, variant: Variant) -> float | None:
        """How often a step waits for the device, which is counted in a run of its own.

        None: on no CUDA device, as far as it has told. Raises BenchError.
        """
        found: float | None = self._measured(variant, {"syncs": True})[0]["host_syncs"]
        return found

    def _measured(self, variant: Variant, more: dict[str, Any]) -> list[dict[str, Any]]:
        """What each rank has measured. BenchError: one of them has not."""
        options = {
            "steps": self.limits.steps,
            "warmup": self.limits.warmup,
            "seed": self.setting.seed,
            "module": variant.module,
            **more,
        }
        with tempfile.TemporaryDirectory(prefix="gpulint-bench-") as name:
            ended = run_module(
                "gpulint.bench.child",
                options,
                [variant.script, *self.setting.arguments],
                self._variables(variant, Path(name)),
                Path(name),
                self.limits.timeout,
                self.progress,
                self.setting.launcher,
            )
        self.output(ended.output)
        ends = ended.ends
        if not all(end.get("event") == "measured" for end in ends):
            wanted = self.limits.steps + self.limits.warmup
            raise BenchError(f"{variant.label}: {ended.failure(wanted)}")
        if len(ends) < ends[0]["ranks"]:
            missing = f"only {len(ends)} of {ends[0]['ranks']} ranks"
            raise BenchError(f"{variant.label}: {missing} ran on this machine")
        return ends

    def _variables(self, variant: Variant, folder: Path) -> dict[str, str]:
        variables = environment(variant.texts, folder)
        if self.setting.seed is not None:
            variables["PYTHONHASHSEED"] = str(self.setting.seed % HASH_SEEDS)
        if self.setting.devices is not None:
            variables["CUDA_VISIBLE_DEVICES"] = self.setting.devices
        return variables


def as_run(said: Mapping[str, Any]) -> Run:
    """What a process has said that it measured."""
    return Run(**{key: said[key] for key in Run.__dataclass_fields__ if key in said})


def together(ranks: Sequence[Run]) -> Run:
    """One run of ranks that went together: the first one's, with the samples of all.

    Its memory of a device is that of the fullest, its host memory that of all.
    """
    first = ranks[0]
    if len(ranks) == 1:
        return first
    return replace(
        first,
        samples=[
            _sum(sizes) for sizes in zip(*(r.samples for r in ranks), strict=True)
        ],
        device_peak=max(filter(None, (r.device_peak for r in ranks)), default=None),
        host_peak=_sum([r.host_peak for r in ranks]),
    )


def _sum(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
