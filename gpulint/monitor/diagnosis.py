"""Say what keeps the GPUs from working, and which rules know what to do about it.

What is seen from outside is a symptom: each sentence names the figures and the rules
that look for its causes in the script. Figures that are not known lead to no sentence.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpulint.monitor.host import Process
from gpulint.monitor.watch import Sample
from gpulint.nvml.figures import GpuFigures
from gpulint.nvml.library import POWER_CAP

LEAST_SAMPLES = 5  # fewer say nothing about a training
UNUSED = 1.0  # percent: nothing computes
LOW = 70.0  # percent of the time without a kernel enough to be worth a word
FEW_SMS = 50.0  # percent of the multiprocessors
BUSY = 85.0  # percent of a core
CPUS_BUSY = 90.0  # percent of all that may be used
ALL_BUSY = 97.0  # percent of all that the machine has
OFTEN = 0.2  # of the samples
MEMORY_UNUSED = 50.0
HOT = 80
TARGETS = {  # percent, and degrees Celsius: what a training that is well fed shows
    "utilisation": (85.0, 95.0),
    "sm_active": (80.0, 95.0),
    "memory": (70.0, 90.0),
    "temperature": (0.0, 80.0),
}
GIB = 1024**3


@dataclass(frozen=True)
class Symptom:
    """One thing that was seen; `gpus` are those that show it.

    `rules`: the codes of those that look for its causes, the likeliest first.
    """

    kind: str
    gpus: tuple[int, ...]
    text: str
    advice: str
    rules: tuple[str, ...] = ()


def diagnose(window: Sequence[Sample]) -> list[Symptom] | None:
    """What is wrong in a window of samples; empty: nothing; None: too few to say."""
    if len(window) < LEAST_SAMPLES:
        return None
    window = _since_start(window)
    found: list[Symptom] = []
    numbers = sorted({gpu.index for sample in window for gpu in sample.gpus})
    for number in numbers:
        found += _one(number, window)
    return _joined(found)


def _since_start(window: Sequence[Sample]) -> Sequence[Sample]:
    """Without what comes before the first work of a GPU: imports, reading, compiling.

    A window in which no GPU works stays whole.
    """
    for place, sample in enumerate(window):
        if any((gpu.utilisation or 0) > UNUSED for gpu in sample.gpus):
            return window[place:] if len(window) - place >= LEAST_SAMPLES else window
    return window


def _one(number: int, window: Sequence[Sample]) -> Iterator[Symptom]:
    """The symptoms of one GPU."""
    gpu = [g for sample in window for g in sample.gpus if g.index == number]
    if not _is_trained_on(gpu, window):
        return
    utilisation = mean(g.utilisation for g in gpu)
    active = mean(g.sm_active for g in gpu)
    if not any((g.utilisation or g.sm_active or 0) > UNUSED for g in gpu):
        if utilisation is not None:
            yield _unused(number)
    elif utilisation is not None and utilisation < LOW:
        yield _starved(number, utilisation, gpu, window)
    elif utilisation is not None and active is not None and active < FEW_SMS:
        yield _small_kernels(number, utilisation, active)
    yield from _memory(number, gpu, active)
    yield from _throttled(number, gpu)
    yield from _shared(number, gpu[-1], window[-1])


def _is_trained_on(gpu: Sequence[GpuFigures], window: Sequence[Sample]) -> bool:
    """Whether the training that is watched uses this GPU, as far as that is known.

    A driver in a container does not name the processes. Then one that works is used,
    and one alone is.
    """
    its = {p.pid for sample in window for p in sample.host.processes if p.root}
    named = {p.pid for figures in gpu for p in figures.processes or ()}
    every = {p.pid for sample in window for g in sample.gpus for p in g.processes or ()}
    if every & its:
        return bool(named & its)
    works = any((g.utilisation or g.sm_active or 0) > UNUSED for g in gpu)
    return works or (bool(its) and len(window[-1].gpus) == 1)


def _unused(number: int) -> Symptom:
    advice = "`gpulint doctor` says whether torch sees it; does the script use it?"
    return Symptom("unused", (number,), "no kernel has run", advice)


@dataclass(frozen=True)
class _Load:
    """What the processes of a training do meanwhile, in percent of a core."""

    workers: dict[int, float]
    main: float  # of the busiest that is no worker
    total: float
    cpus: int
    machine: float  # the part of all CPUs that anything keeps busy
    waits: bool  # for a disk

    @property
    def busy(self) -> int:
        """The workers that never rest, if they are most of those that work at all."""
        count = sum(cpu >= BUSY for cpu in self.workers.values())
        return count if 2 * count >= sum(x >= 5 for x in self.workers.values()) else 0

    @property
    def no_cpu_left(self) -> bool:
        """Whether all CPUs that may be used are."""
        return self.total >= CPUS_BUSY * self.cpus


def _load(window: Sequence[Sample]) -> _Load | None:
    """None where no process of the training is known."""
    rows = [s.host.processes for s in window if s.host.roots]
    if not rows:
        return None
    workers = _cpu_of([[p for p in row if p.worker] for row in rows])
    every = _cpu_of(rows)
    main = max((cpu for pid, cpu in every.items() if pid not in workers), default=0.0)
    waits = sum(any(p.waits and p.root for p in row) for row in rows)
    return _Load(
        workers,
        main,
        sum(every.values()),
        window[-1].host.cpus,
        mean(s.host.cpu for s in window) or 0.0,
        waits >= OFTEN * len(rows),
    )


def _starved(
    number: int,
    utilisation: float,
    gpu: Sequence[GpuFigures],
    window: Sequence[Sample],
) -> Symptom:
    """Why a GPU runs no kernel for much of the time."""
    load = _load(window)
    kind, why, advice, rules = _cause(load, _is_sawtooth(gpu))
    text = f"kernels run {utilisation:.0f} % of the time{why}"
    return Symptom(kind, (number,), text, advice, tuple(rules.split()))


def _cause(load: _Load | None, in_bursts: bool) -> tuple[str, str, str, str]:
    """The kind, what is seen of it, what to do, and the rules."""
    if load is None:
        advice = "watch the training's process (--pid) to see what it waits for"
        return "underused", "", advice, "GPU201 GPU207 GPU106"
    cheaper = "do the work of each sample on the GPU, or once for all epochs"
    if load.no_cpu_left:
        why = f", and all {load.cpus} CPUs are busy"
        return "input-bound", why, cheaper, "GPU207 GPU206 GPU208 GPU802"
    if load.machine >= ALL_BUSY:
        why = ", and other processes keep the CPUs of the machine busy"
        return "input-bound", why, "leave it more CPUs", "GPU207 GPU206 GPU802"
    if load.busy:
        count = load.busy
        its = "1 worker" if count == 1 else f"{count} workers"
        why = f", and {its} of its loader never rest{'s' if count == 1 else ''}"
        advice = f"{cheaper}, or load with more workers: there are {load.cpus} CPUs"
        return "input-bound", why, advice, "GPU207 GPU206 GPU208 GPU201"
    if load.main >= BUSY and in_bursts and not load.workers:
        why = ", in bursts, and the training process is busy between them"
        return "input-bound", why, "load in workers", "GPU201 GPU206 GPU211"
    if load.main >= BUSY:
        why = ", and the training process keeps one core busy"
        advice = "let it start fewer and larger kernels, and load in workers"
        return "launch-bound", why, advice, "GPU501 GPU106 GPU504 GPU201 GPU401"
    if load.waits:
        why = ", and the training waits for a disk or the network"
        advice = "keep the data on a fast local disk or in memory"
        return "input-bound", why, advice, "GPU603 GPU601 GPU206"
    why = ", and the training's processes have little to do either"
    advice = "it waits: for data from afar, a checkpoint or a result"
    return "waiting", why, advice, "GPU603 GPU601 GPU106 GPU804"


def _small_kernels(number: int, utilisation: float, active: float) -> Symptom:
    text = (
        f"kernels run {utilisation:.0f} % of the time and keep {active:.0f} % of the "
        "multiprocessors busy"
    )
    advice = "compile the model, or give each step more work"
    codes = ("GPU501", "GPU401", "GPU504")
    return Symptom("launch-bound", (number,), text, advice, codes)


def _memory(
    number: int, gpu: Sequence[GpuFigures], active: float | None
) -> Iterator[Symptom]:
    """A card that is full of work needs no larger batch."""
    full = active is not None and active >= TARGETS["sm_active"][0]
    shares = [g.memory_share for g in gpu if g.memory_share is not None]
    if not shares or max(shares) >= MEMORY_UNUSED or full or gpu[-1].mig:
        return
    total = gpu[-1].memory_total or 0
    text = f"at most {max(shares):.0f} % of {total / GIB:.0f} GiB of memory are in use"
    advice = "there is room for a larger batch"
    yield Symptom("memory-unused", (number,), text, advice, ("GPU401", "GPU402"))


def _throttled(number: int, gpu: Sequence[GpuFigures]) -> Iterator[Symptom]:
    known = [g.slowed_by for g in gpu if g.slowed_by is not None]
    often = [
        reason
        for reason in dict.fromkeys(r for reasons in known for r in reasons)
        if sum(reason in reasons for reasons in known) >= OFTEN * len(known)
    ]
    hottest = max((g.temperature for g in gpu if g.temperature), default=None)
    at = "" if hottest is None else f", {hottest} °C"
    clocks = [
        (g.sm_clock, g.sm_clock_max) for g in gpu if g.sm_clock and g.sm_clock_max
    ]
    if clocks:
        usual = statistics.fmean(now for now, _ in clocks)
        at += f", {usual:.0f} of {clocks[-1][1]} MHz"
    if often == [POWER_CAP]:
        text = f"slowed by its power cap{at}"
        advice = "usual under full load; `gpulint doctor` says whether the cap is low"
        yield Symptom("power-capped", (number,), text, advice)
    elif often:
        text = f"slowed by: {', '.join(often)}{at}"
        advice = "look at cooling and power supply; no change of the script helps"
        yield Symptom("throttled", (number,), text, advice)
    elif hottest is not None and hottest >= HOT:
        text = f"{hottest} °C"
        advice = f"cooler than {HOT} °C is better: look at fans and air"
        yield Symptom("hot", (number,), text, advice)


def _shared(number: int, gpu: GpuFigures, sample: Sample) -> Iterator[Symptom]:
    """Other processes on the card, where the driver's numbers are those seen here."""
    roots = {p.pid: p.root for p in sample.host.processes if p.root is not None}
    found = gpu.processes or ()
    if not any(p.pid in roots for p in found):
        return
    ours = {roots[p.pid] for p in found if p.pid in roots}
    strangers = [p for p in found if p.pid not in roots]
    count = len(strangers) + len(ours) - 1
    if count < 1:
        return
    memory = sum(p.memory or 0 for p in strangers)
    held = f", with {memory / GIB:.1f} GiB of its memory" if memory else ""
    text = f"{count} other {_plural('process', count)} on the card{held}"
    advice = "they slow each other down: choose a free one with CUDA_VISIBLE_DEVICES"
    yield Symptom("shared", (number,), text, advice, ("GPU801",))


def _cpu_of(rows: Iterable[Sequence[Process]]) -> dict[int, float]:
    """The mean CPU of each process that was there more than once, in percent."""
    seen: dict[int, list[float]] = {}
    for row in rows:
        for its in row:
            if its.root is not None and its.cpu is not None:
                seen.setdefault(its.pid, []).append(its.cpu)
    return {pid: statistics.fmean(its) for pid, its in seen.items() if len(its) > 1}


def _is_sawtooth(gpu: Sequence[GpuFigures]) -> bool:
    """Whether the GPU changes between work and none, again and again."""
    known = [g.utilisation for g in gpu if g.utilisation is not None]
    high, low = (sum(x >= 80 for x in known), sum(x <= 20 for x in known))
    return min(high, low) >= OFTEN * len(known)


def _joined(found: Iterable[Symptom]) -> list[Symptom]:
    """What several GPUs show in the same words is said once."""
    joined: dict[tuple[str, str], Symptom] = {}
    for its in found:
        key = its.kind, its.text
        before = joined.get(key)
        gpus = (*before.gpus, *its.gpus) if before else its.gpus
        joined[key] = replace(its, gpus=gpus)
    return list(joined.values())


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known; None: nothing is."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _plural(word: str, count: int) -> str:
    if count == 1:
        return word
    return f"{word}es" if word.endswith("s") else f"{word}s"
