"""Give the last sample to a Prometheus that asks for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from gpulint.monitor.document import training_cpu
from gpulint.monitor.host import HostFigures
from gpulint.monitor.watch import Sample
from gpulint.nvml.figures import GpuFigures

CONTENT = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """A name in base units, as Prometheus wants them, and where its value is."""

    name: str
    help: str
    read: Callable[[GpuFigures], float | int | None]
    scale: float = 1.0
    kind: str = "gauge"


METRICS = (
    Metric("utilization_ratio", "Time with a kernel.", lambda g: g.utilisation, 0.01),
    Metric("sm_active_ratio", "Busy multiprocessors.", lambda g: g.sm_active, 0.01),
    Metric("tensor_active_ratio", "Tensor cores.", lambda g: g.tensor_active, 0.01),
    Metric("dram_active_ratio", "Memory bandwidth.", lambda g: g.dram_active, 0.01),
    Metric("memory_used_bytes", "Memory in use.", lambda g: g.memory_used),
    Metric("memory_total_bytes", "Memory.", lambda g: g.memory_total),
    Metric("temperature_celsius", "Temperature.", lambda g: g.temperature),
    Metric("power_watts", "Power.", lambda g: g.power_watts),
    Metric(
        "energy_joules_total",
        "Energy since the driver was loaded.",
        lambda g: g.energy_joules,
        kind="counter",
    ),
    Metric("sm_clock_hertz", "Clock.", lambda g: g.sm_clock, 1e6),
    Metric("pcie_sent_bytes_per_second", "To the host.", lambda g: g.pcie_sent),
    Metric("pcie_received_bytes_per_second", "From it.", lambda g: g.pcie_received),
    Metric(
        "slowed_down",
        "1: power, temperature or hardware keeps the clocks low.",
        lambda g: None if g.slowed_by is None else int(bool(g.slowed_by)),
    ),
)


def exposition(sample: Sample | None) -> str:
    """The text format of Prometheus; what is not known has no line."""
    lines: list[str] = []
    gpus = sample.gpus if sample else ()
    for metric in METRICS:
        values = [(gpu, metric.read(gpu)) for gpu in gpus]
        known = [(gpu, value) for gpu, value in values if value is not None]
        if known:
            lines += _head(f"gpulint_gpu_{metric.name}", metric.help, metric.kind)
        for gpu, value in known:
            labels = f'gpu="{gpu.index}",name="{_escape(gpu.name or "")}"'
            scaled = _number(value * metric.scale)
            lines.append(f"gpulint_gpu_{metric.name}{{{labels}}} {scaled}")
    for name, help, number in _of_host(sample.host) if sample else ():
        if number is not None:
            lines += _head(f"gpulint_{name}", help, "gauge")
            lines.append(f"gpulint_{name} {_number(number)}")
    return "".join(f"{line}\n" for line in lines)


class Exporter:
    """Answers at `/metrics` with what it was last given."""

    def __init__(self) -> None:
        self.sample: Sample | None = None

    def write(self, sample: Sample) -> None:
        """From now on this one."""
        self.sample = sample

    @contextlib.contextmanager
    def serving(self, host: str, port: int) -> Iterator[int]:
        """Serve while entered; yields the port. OSError: it cannot be had."""
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] not in ("/", "/metrics"):
                    self.send_error(404)
                    return
                body = exposition(exporter.sample).encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *_: object) -> None:
                """Nothing: the terminal shows the training."""

        with ThreadingHTTPServer((host, port), Handler) as server:
            server.daemon_threads = True
            thread = threading.Thread(
                target=server.serve_forever, name="gpulint-prometheus", daemon=True
            )
            thread.start()
            try:
                yield server.server_address[1]
            finally:
                server.shutdown()


def _of_host(host: HostFigures) -> Iterator[tuple[str, str, float | int | None]]:
    yield "host_cpu_busy_ratio", "Busy CPUs of the machine.", _part(host.cpu)
    busy = _part(training_cpu(host))
    yield "training_cpu_cores", "CPUs that the training keeps busy.", busy
    yield "host_memory_used_bytes", "Memory in use.", host.memory_used


def _head(name: str, help: str, kind: str) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _part(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _number(value: float) -> str:
    return f"{value:.10g}"
