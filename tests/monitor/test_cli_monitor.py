"""The command: with a made-up driver, with none, with commands that it starts."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpulint.cli import main
from gpulint.monitor.command import Command

Driver = Callable[..., None]
FAST = ("--interval", "0.1")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["monitor", *words])


def test_once_as_json_with_a_driver(driver: Driver) -> None:
    driver("card")
    done = run("--once", "--json", "--interval", "0.4")
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["trouble"] is None
    assert [gpu["utilisation"] for gpu in found["gpus"]] == [34.0, 0.0]
    assert [gpu["sm_active"] for gpu in found["gpus"]] == [19.0, None]
    assert found["gpus"][0]["memory"] == 7.5
    assert found["host"]["cpus"] >= 1
    assert found["diagnosis"] is None


def test_once_as_json_without_a_driver(driver: Driver) -> None:
    driver("none")
    done = run("--once", "--json", "--pid", str(os.getpid()), *FAST)
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["gpus"] == []
    assert found["trouble"].startswith("nvidia-ml-py is not installed")
    its = [p for p in found["host"]["processes"] if p["pid"] == os.getpid()]
    assert its[0]["role"] == "training"
    assert its[0]["memory"] > 10**6


def test_once_with_a_driver_that_hangs(driver: Driver) -> None:
    driver("hangs")
    done = run("--once", "--timeout", "1", *FAST)
    assert done.exit_code == 0
    assert done.stdout.startswith("GPUs: starting NVML: no answer within 1 s\n")
    assert "CPUs " in done.stdout


def test_once_with_a_gpu_that_refuses(driver: Driver) -> None:
    driver("refuses")
    done = run("--once", "--gpus", "0", *FAST)
    assert done.exit_code == 0
    assert "GPU 0: util n/a, SM n/a, memory n/a" in done.stdout
    assert "GPU 0, MIG 3g.40gb: memory 10.0/40.0 GiB 25 %" in done.stdout


def test_diagnosis_as_json(driver: Driver) -> None:
    driver("card", ComputeRunningProcesses=[{"pid": os.getpid(), "usedGpuMemory": 1}])
    done = run("--diagnose", "--json", "--pid", str(os.getpid()), *FAST)
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["samples"] == 30
    assert found["gpus"][0]["utilisation"] == 34.0
    assert found["targets"]["utilisation"] == [85.0, 95.0]
    kinds = {its["kind"]: its for its in found["diagnosis"]}
    assert "memory-unused" in kinds
    assert len(kinds) == 2  # and why the GPU has so little to do


def test_a_throttled_gpu_of_a_command(driver: Driver) -> None:
    driver(
        "card",
        CurrentClocksEventReasons=0x20,
        UtilizationRates={"gpu": 92, "memory": 9},
    )
    code = "import time; print('epoch 1'); time.sleep(1.5)"
    done = run("--diagnose", *FAST, "--", sys.executable, "-c", code)
    assert done.exit_code == 0
    assert done.stderr == "epoch 1\n"
    assert "utilisation  92 %                     target 85–95 %" in done.stdout
    assert "GPU 0: throttled: slowed by: temperature, 61 °C, 1410 of 1980 MHz" in (
        done.stdout
    )


def test_lines_of_a_command_that_fails(driver: Driver) -> None:
    driver("card")
    code = "import sys, time; time.sleep(0.8); sys.exit(3)"
    done = run(*FAST, "--cmd", f"{sys.executable} -c '{code}'")
    assert done.exit_code == 1
    assert done.stderr == "gpulint: note: the command ended with exit code 3\n"
    assert "GPU 1: util 0 %" in done.stdout
    assert "training" in done.stdout


def test_json_lines_of_a_process_that_ends(driver: Driver) -> None:
    driver("none")
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1)"]
    ) as child:
        done = run("--json-lines", "--pid", str(child.pid), *FAST)
    assert done.exit_code == 0
    assert done.stderr == f"gpulint: note: process {child.pid} has ended\n"
    every = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(every) > 2
    assert every[-1]["diagnosis"] in (None, [])


def test_csv_beside_the_lines(driver: Driver, tmp_path: Path) -> None:
    driver("card")
    words = [sys.executable, "-c", "import time; time.sleep(0.6)"]
    done = run("--csv", "log.csv", *FAST, "--", *words)
    assert done.exit_code == 0
    assert "GPU 0: util 34 %" in done.stdout
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert rows
    assert rows[0]["gpu.0.powerWatts"] == "310.2"
    assert rows[0]["gpu.1.smActive"] == ""
    done = run("--csv", "-", *FAST, "--", *words)
    again = list(csv.DictReader(done.stdout.splitlines()))
    assert again[0].keys() == rows[0].keys()


def test_a_port_is_served(driver: Driver) -> None:
    driver("none")
    code = (
        "import time, urllib.request\n"
        "time.sleep(0.5)\n"
        "print(urllib.request.urlopen('http://127.0.0.1:%s/metrics').read().decode())"
    )
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--", sys.executable, "-c", code % port]
    done = run("--prometheus", str(port), *FAST, *words)
    assert done.exit_code == 0
    assert f"serving http://127.0.0.1:{port}/metrics" in done.stderr
    assert "gpulint_training_cpu_cores " in done.stderr


@pytest.mark.parametrize(
    "words,line",
    [
        ("--pid 999999999", "there is no process 999999999"),
        ("--gpus 0,x", "not a list of numbers like 0,1"),
        ("--gpus 0,7", "no GPU 7; there are 0 to 1"),
        ("--json", "--json goes with --once or --diagnose, else --json-lines"),
        ("--once --json-lines", "--once and --json-lines write to the same place"),
        ("--diagnose --csv -", "--diagnose and --csv - write to the same place"),
        ("--once -- true", "--once watches a training that runs already"),
        ("--pid 1 -- true", "--pid and a command cannot both be watched"),
        ("--cmd true -- true", "--cmd and a command behind `--` are two commands"),
        ("--cmd 'x", '--cmd "\'x": No closing quotation'),
        ("--cmd ''", "--cmd names no command"),
        ("-- gpulint-has-no-such-program", "No such file or directory"),
        ("--once --csv nowhere/x.csv", "nowhere/x.csv: No such file or directory"),
        ("--prometheus x", "'x' is not a port, or HOST:PORT"),
        ("--once --prometheus 192.0.2.1:9", "--prometheus 192.0.2.1:9: "),
        ("--interval 0", "0.0 is not in the range x>=0.1"),
    ],
)
def test_bad_calls(driver: Driver, words: str, line: str) -> None:
    driver("card")
    split = words.split() if "''" not in words else ["--cmd", ""]
    done = run(*split)
    assert done.exit_code == 2, done.output
    assert len(done.stderr.splitlines()) == 1
    assert line in done.stderr


def test_gpus_that_are_named_and_cannot_be_read(driver: Driver) -> None:
    driver("none")
    done = run("--once", "--gpus", "0", *FAST)
    assert done.exit_code == 2
    assert "error: --gpus: nvidia-ml-py is not installed" in done.stderr


@contextlib.contextmanager
def start(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The monitor in a process; where the tests run in the background, too.

    A shell has what it starts there ignore an interrupt, and children inherit that.
    """
    command = [sys.executable, "-m", "gpulint", "monitor", *words]
    pipe = subprocess.PIPE
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        child = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(driver: Driver, number: int) -> None:
    driver("card")
    with start("--json-lines", *FAST) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(number)
        rest, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert said.strip() == ""
    assert all(json.loads(line) for line in rest.splitlines())


def test_a_command_may_save_when_it_is_interrupted(
    driver: Driver, tmp_path: Path
) -> None:
    driver("none")
    script = tmp_path / "train.py"
    script.write_text(
        "import time\n"
        "try:\n    print('ready', flush=True); time.sleep(600)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.2); open('saved', 'w').close()\n"
    )
    with start(
        *FAST, "--diagnose", "--json", "--", sys.executable, "train.py"
    ) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        verdict, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert (tmp_path / "saved").exists()
    assert json.loads(verdict)["gpus"] == []  # what was seen until then


def test_an_interrupt_while_the_command_starts(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver("none")
    (tmp_path / "train.py").write_text(
        "import time\n"
        "try:\n    open('ready', 'w').close(); time.sleep(600)\n"
        "except KeyboardInterrupt:\n    open('saved', 'w').close()\n"
    )
    starts = Command.start

    def interrupted(command: Command) -> None:
        starts(command)
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(Command, "start", interrupted)
    run(*FAST, "--diagnose", "--json", "--", sys.executable, "train.py")
    assert (tmp_path / "saved").exists()


def test_a_progress_bar_becomes_its_last_state(driver: Driver) -> None:
    driver("none")
    code = r"print('10%\r50%\r100%\r'); print('done', end='')"
    done = run(*FAST, "--csv", "-", "--", sys.executable, "-c", code)
    note, *printed = done.stderr.splitlines()
    assert note.startswith("gpulint: note: GPUs: nvidia-ml-py is not installed")
    assert printed == ["100%", "done"]


def test_a_command_that_is_killed(driver: Driver) -> None:
    driver("none")
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    done = run(*FAST, "--", sys.executable, "-c", code)
    assert done.exit_code == 1
    assert "the command ended by signal 9" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="pty")
def test_on_a_terminal(driver: Driver) -> None:
    import pty

    driver("card")
    leader, follower = pty.openpty()
    words = [sys.executable, "-m", "gpulint", "monitor", *FAST, "--", sys.executable]
    words += ["-c", "import time; print('epoch 1'); time.sleep(1)"]
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"}
    with subprocess.Popen(
        words, stdin=follower, stdout=follower, stderr=follower, env=variables
    ) as child:
        os.close(follower)
        text = b""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                data = os.read(leader, 65536)
            except OSError:  # Linux says so when nobody writes any longer
                break
            text += data
    os.close(leader)
    assert child.returncode == 0
    shown = text.decode()
    assert "epoch 1" in shown
    assert "6.0/80.0 GiB 8 %" in shown
    assert "\x1b[?25h" in shown  # the cursor is back
