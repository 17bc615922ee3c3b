"""Show samples and diagnoses: a view that moves on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.control import strip_control_codes
from rich.table import Table
from rich.text import Text

from gpulint.monitor.diagnosis import HOT, TARGETS, Symptom
from gpulint.monitor.document import training_cpu
from gpulint.monitor.host import HostFigures, Process
from gpulint.monitor.watch import Sample
from gpulint.nvml.figures import GpuFigures
from gpulint.report.frame import wrap
from gpulint.runtime._hardware import in_units

MISSING = "n/a"
NARROW = 70  # cells: less has no room for power
WIDE = 110  # clocks and PCIe have room
FIXED = {False: 68, True: 98}  # what the columns beside the trace take, if wide
LEAST_TRACE = 8
SHOWN = 8  # processes
BARS = "▁▂▃▄▅▆▇█"
TRACE = 30  # samples
GIB = 1024**3
GB = 10**9
IN_TARGET, OUTSIDE, BAD = "green", "yellow", "bold red"
ARROW = "-> "
PATIENCE = "Too early for a diagnosis."
FINE = "Nothing stands out."


class View:
    """The current state of the training; rich draws it anew a few times a second."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.began = time.monotonic()
        self.sample: Sample | None = None
        self.symptoms: Sequence[Symptom] | None = None
        self.unfinished = ""  # what the training has last printed, without an end
        self._traces: dict[int, deque[float | None]] = {}

    def show(self, sample: Sample, symptoms: Sequence[Symptom] | None) -> None:
        """From now on this sample."""
        self.sample, self.symptoms = sample, symptoms
        for gpu in sample.gpus:
            trace = self._traces.setdefault(gpu.index, deque(maxlen=TRACE))
            trace.append(gpu.utilisation)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        width = options.max_width
        parts: list[RenderableType] = [self._head(width)]
        if self.sample is None:
            parts.append(Text("waiting for the first figures …"))
        else:
            parts += self._body(self.sample, width)
        if self.unfinished:
            line = Text(strip_control_codes(self.unfinished), style="dim")
            line.truncate(width, overflow="ellipsis")
            parts.append(line)
        yield Group(*parts)

    def _head(self, width: int) -> Text:
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        line = Text(f"{self.title}, {minutes}:{seconds:02d}", style="bold")
        line.truncate(width, overflow="ellipsis")
        return line

    def _body(self, sample: Sample, width: int) -> Iterator[RenderableType]:
        if sample.trouble:
            yield from folded(f"GPUs: {sample.trouble}", width, OUTSIDE)
        if sample.gpus:
            yield self._gpus(sample.gpus, width)
        yield from folded(host_line(sample.host), width)
        if sample.host.processes:
            yield _processes(sample.host.processes)
        if sample.gpus:
            yield from diagnosis(self.symptoms, width)

    def _gpus(self, gpus: Sequence[GpuFigures], width: int) -> Table:
        wide, trace = width >= WIDE, width - FIXED[width >= WIDE]
        names = ["util", "SM", "memory", "temp"]
        names += ["power"] if width >= NARROW else []
        names += ["clock", "PCIe in", "out"] if wide else []
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("", no_wrap=True)
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        if trace >= LEAST_TRACE:
            table.add_column("lately", no_wrap=True)
        row = ["target", *(_target(name) for name in TARGETS)]
        table.add_row(*row, style="dim")
        for gpu in gpus:
            more = [power(gpu), _clock(gpu), rate(gpu.pcie_received)]
            more = [*more, rate(gpu.pcie_sent)][: len(names) - len(TARGETS)]
            if trace >= LEAST_TRACE:
                more.append(self._trace(gpu.index, trace))
            table.add_row(
                f"GPU {gpu.index}",
                _in(gpu.utilisation, "utilisation"),
                _in(gpu.sm_active, "sm_active"),
                Text(memory(gpu), _style(gpu.memory_share, "memory")),
                Text(degrees(gpu), _style(gpu.temperature, "temperature")),
                *more,
            )
            for part in gpu.slices:
                size = _of(part.memory_used, part.memory_total)
                table.add_row(f"  {part.name or 'slice'}", "", "", size)
        return table

    def _trace(self, index: int, width: int) -> str:
        """The utilisation of the last samples."""
        last = len(BARS) - 1
        return "".join(
            " " if value is None else BARS[min(int(value / 100 * last + 0.5), last)]
            for value in list(self._traces[index])[-width:]
        )


def lines(sample: Sample) -> Iterator[str]:
    """A sample in lines for a log: one a GPU, one for the host."""
    stamp = time.strftime("%H:%M:%S", time.localtime(sample.time))
    for gpu in sample.gpus:
        parts = [
            f"util {percent(gpu.utilisation)}",
            f"SM {percent(gpu.sm_active)}",
            f"memory {memory(gpu)}",
            degrees(gpu),
            power(gpu),
            _clock(gpu),
            f"PCIe in {rate(gpu.pcie_received)}, out {rate(gpu.pcie_sent)}",
        ]
        if gpu.slowed_by:
            parts.append(f"slowed by {', '.join(gpu.slowed_by)}")
        yield f"{stamp}  GPU {gpu.index}: {', '.join(parts)}"
        for part in gpu.slices:
            size = _of(part.memory_used, part.memory_total)
            yield f"{stamp}  GPU {gpu.index}, {part.name or 'slice'}: memory {size}"
    yield f"{stamp}  {host_line(sample.host)}"


def process_lines(processes: Sequence[Process]) -> Iterator[str]:
    """The processes of a sample, a line each."""
    for its in processes:
        name = strip_control_codes(its.name)
        yield (
            f"  {its.pid:>7}  {its.role:<8}  CPU {percent(its.cpu):>6}  "
            f"{in_units(its.memory):>10}  {name}"
        )


def summary_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What `document.summary` has found, for people."""
    yield f"{found['samples']} samples in {found['seconds']:.0f} s"
    if found["trouble"]:
        yield f"GPUs: {found['trouble']}"
    for gpu in found["gpus"]:
        yield f"GPU {gpu['index']}: {gpu['name'] or MISSING}"
        size = _of(gpu["memory_used"], gpu["memory_total"])
        for label, name, value in (
            ("utilisation", "utilisation", percent(gpu["utilisation"])),
            ("SM activity", "sm_active", percent(gpu["sm_active"])),
            ("most memory", "memory", size),
            ("temperature", "temperature", _celsius(gpu["temperature"])),
        ):
            yield f"  {label:<12} {value:<24} target {_target(name)}"
        watts = gpu["power_watts"]
        yield f"  {'power':<12} {MISSING if watts is None else f'{watts:.0f} W'}"


def diagnosis(symptoms: Sequence[Symptom] | None, width: int) -> Iterator[Text]:
    """A sentence for each symptom, and what to do."""
    if not symptoms:
        yield Text(PATIENCE if symptoms is None else FINE, style="dim")
        return
    for its in symptoms:
        where = f"GPU {', '.join(map(str, its.gpus))}"
        head, *rest = wrap(f"{where}: {its.kind}: {its.text}", width)
        yield Text(head, style=BAD if its.kind == "throttled" else "bold yellow")
        for part in rest:
            yield Text(part)
        advice = its.advice
        if its.rules:
            advice += f" (gpulint check --select {','.join(its.rules)})"
        indent = " " * len(ARROW)
        for index, part in enumerate(wrap(advice, width - len(ARROW))):
            yield Text((indent if index else ARROW) + part)


def folded(text: str, width: int, style: str = "") -> Iterator[Text]:
    """A text in lines."""
    for part in wrap(strip_control_codes(text), width):
        yield Text(part, style=style)


def host_line(host: HostFigures) -> str:
    """The CPUs and the memory, and what the training takes of them."""
    parts = [f"CPUs {percent(host.cpu)} busy, {host.cpus} usable"]
    training = training_cpu(host)
    if host.roots:
        count = len([p for p in host.processes if p.root is not None])
        its = f"training {percent(training)} of a core in {count} process"
        parts.append(its + ("" if count == 1 else "es"))
    parts.append(f"memory {_of(host.memory_used, host.memory_total)}")
    return ", ".join(parts)


def memory(gpu: GpuFigures) -> str:
    """How much is in use."""
    return _of(gpu.memory_used, gpu.memory_total)


def degrees(gpu: GpuFigures) -> str:
    """The temperature."""
    return _celsius(gpu.temperature)


def power(gpu: GpuFigures) -> str:
    """The power, and how much it may be."""
    if gpu.power_watts is None:
        return f"{MISSING} W" if gpu.power_limit_watts else MISSING
    limit = "" if gpu.power_limit_watts is None else f"/{gpu.power_limit_watts:.0f}"
    return f"{gpu.power_watts:.0f}{limit} W"


def rate(bytes_a_second: float | None) -> str:
    """PCIe, in GB a second."""
    return MISSING if bytes_a_second is None else f"{bytes_a_second / GB:.1f} GB/s"


def percent(value: float | None) -> str:
    """A share."""
    return MISSING if value is None else f"{value:.0f} %"


def _celsius(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f} °C"


def _clock(gpu: GpuFigures) -> str:
    return MISSING if gpu.sm_clock is None else f"{gpu.sm_clock} MHz"


def _of(used: int | None, total: int | None) -> str:
    if used is None or not total:
        return MISSING
    return f"{used / GIB:.1f}/{total / GIB:.1f} GiB {100 * used / total:.0f} %"


def _target(name: str) -> str:
    low, high = TARGETS[name]
    if name == "temperature":
        return f"<{HOT} °C"
    return f"{low:.0f}–{high:.0f} %"


def _in(value: float | None, name: str) -> Text:
    return Text(percent(value), _style(value, name))


def _style(value: float | None, name: str) -> str:
    """Green in the target and above that of a use; yellow elsewhere."""
    if value is None:
        return ""
    low, high = TARGETS[name]
    if name in ("memory", "temperature"):
        return IN_TARGET if low <= value <= high else OUTSIDE
    return IN_TARGET if value >= low else OUTSIDE


def _processes(processes: Sequence[Process]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("pid", justify="right")
    table.add_column("")
    table.add_column("CPU", justify="right")
    table.add_column("memory", justify="right")
    table.add_column("name", no_wrap=True)
    for its in processes[:SHOWN]:
        table.add_row(
            str(its.pid),
            its.role,
            percent(its.cpu),
            in_units(its.memory),
            Text(strip_control_codes(its.name)),
        )
    if len(processes) > SHOWN:
        table.add_row("", f"and {len(processes) - SHOWN} more")
    return table
