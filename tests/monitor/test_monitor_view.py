"""What is seen: the view on a terminal, lines, CSV, and what Prometheus gets."""

from __future__ import annotations

import csv
import io
import urllib.error
import urllib.request
from dataclasses import replace

import pytest
from monitor_helpers import GIB, gpu, host, trainer, window, workers
from rich.console import Console
from rich.live import Live

from gpulint.monitor import outputs, view
from gpulint.monitor.columns import Rows
from gpulint.monitor.diagnosis import diagnose
from gpulint.monitor.prometheus import Exporter, exposition
from gpulint.monitor.watch import Sample
from gpulint.nvml.figures import GpuFigures, Slice


def drawn(samples: list[Sample], width: int = 120, unfinished: str = "") -> str:
    shown = view.View("gpulint monitor: process 4711")
    for sample in samples:
        shown.show(sample, diagnose(samples))
    shown.unfinished = unfinished
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_view_before_the_first_sample() -> None:
    assert "waiting for the first figures" in drawn([])


def test_a_wide_view() -> None:
    text = drawn(window(gpu(pcie_received=2.1e9, pcie_sent=0.1e9)), unfinished="50%")
    assert "85–95 %" in text
    assert "<80 °C" in text
    assert "64.0/80.0 GiB 80 %" in text
    assert "1900 MHz" in text
    assert "2.1 GB/s" in text
    assert "▇" * 10 in text or "█" * 10 in text
    assert view.FINE in text
    assert text.rstrip().endswith("50%")


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_view_fits(width: int) -> None:
    load = host(trainer(99), *workers(*[99] * 12), cpus=64)
    figures = gpu(utilisation=20.0, memory_used=GIB, slowed_by=("temperature",))
    text = drawn(window(figures, on=load, trouble="x" * 300), width, "y" * 300)
    assert max(map(len, text.splitlines())) <= width
    assert "and 5 more" in text
    assert "85–95 %" in text
    assert "<80 °C" in text
    assert "GPU 0 " in text
    assert ("600/700 W" in text) is (width > 60)
    assert "throttled" in text
    assert "GPU207" in text


def test_a_view_of_a_gpu_that_tells_nothing() -> None:
    silent = GpuFigures(0, mig=True, slices=(Slice("MIG 3g.40gb", 10 * GIB, 40 * GIB),))
    text = drawn(window(silent))
    rows = {line[:7].strip(): line.split()[2:] for line in text.splitlines()}
    assert set(rows["GPU 0"]) == {"n/a"}  # and never 0
    assert "10.0/40.0 GiB 25 %" in text


def test_lines() -> None:
    figures = gpu(slowed_by=("temperature",), slices=(Slice(None, None, None),))
    gpu_line, part, of_host = view.lines(window(figures)[0])
    assert "GPU 0: util 92 %, SM 85 %, memory 64.0/80.0 GiB 80 %, 65 °C" in gpu_line
    assert gpu_line.endswith("PCIe in n/a, out n/a, slowed by temperature")
    assert part.endswith("GPU 0, slice: memory n/a")
    assert "CPUs 25 % busy, 16 usable, training 50 % of a core in 1 process" in of_host


def test_lines_say_what_changes(capsys: pytest.CaptureFixture[str]) -> None:
    shown = outputs.Lines()
    samples = window(gpu(memory_used=GIB, sm_active=None))
    for count in range(1, len(samples) + 1):
        shown.show(samples[:count])
    text = capsys.readouterr().out
    assert text.count("GPU 0: memory-unused: at most 1 % of 80 GiB") == 1
    shown.show([*samples, *window(trouble="starting NVML: no answer within 10 s")])
    shown.show(samples)
    text = capsys.readouterr().out
    assert "GPUs: starting NVML: no answer within 10 s\n" in text
    assert "GPUs: the driver answers again\n" in text


def test_a_screen_keeps_what_the_command_prints() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, color_system=None)
    shown = view.View("training")
    with Live(shown, console=console, auto_refresh=False) as live:
        screen = outputs.Screen(console, live, shown)
        screen.say("epoch 1", False)
        screen.say("40%|####", True)
        screen.show(window(gpu()))
        screen.end(window(gpu()))
    text = file.getvalue()
    assert text.index("epoch 1") < text.index("GPU 0")
    assert text.rindex("40%|####") > text.index("GPU 0")


def test_csv_has_the_names_of_wandb_and_empty_fields() -> None:
    file = io.StringIO()
    rows = Rows(file)
    samples = window(gpu(slowed_by=("power cap", "temperature")), gpu(index=2), count=2)
    silent = replace(samples[1], gpus=(GpuFigures(0),))
    rows.write(samples[0])
    rows.write(silent)
    first, second = csv.DictReader(io.StringIO(file.getvalue()))
    assert first["gpu.0.gpu"] == "92.0"
    assert first["gpu.0.memoryAllocated"] == "80.0"
    assert first["gpu.0.powerWatts"] == "600.0"
    assert first["gpu.2.temp"] == "65"
    assert first["gpu.0.slowedBy"] == "power cap + temperature"
    assert first["proc.cpu.percent"] == "50.0"
    assert (first["_runtime"], second["_runtime"]) == ("0.0", "1.0")
    assert {second[name] for name in second if name.startswith("gpu.")} == {""}


def test_prometheus_leaves_out_what_is_not_known() -> None:
    text = exposition(window(gpu(name='a "b"\\'), GpuFigures(1))[0])
    assert "# TYPE gpulint_gpu_utilization_ratio gauge\n" in text
    assert r'gpulint_gpu_utilization_ratio{gpu="0",name="a \"b\"\\"} 0.92' in text
    assert r'gpulint_gpu_sm_clock_hertz{gpu="0",name="a \"b\"\\"} 1900000000' in text
    assert "gpulint_training_cpu_cores 0.5\n" in text
    assert 'gpu="1"' not in text
    assert "energy" not in text
    assert exposition(None) == ""


def test_prometheus_asks() -> None:
    exporter = Exporter()
    with exporter.serving("127.0.0.1", 0) as port:
        address = f"http://127.0.0.1:{port}"
        exporter.write(window(gpu())[0])
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith(
                "text/plain; version=0.0.4"
            )
            assert answer.read().decode() == exposition(exporter.sample)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/other")
        refused.value.close()
        assert refused.value.code == 404
    with pytest.raises(urllib.error.URLError):  # the server is gone
        urllib.request.urlopen(f"{address}/metrics")
