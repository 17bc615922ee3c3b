"""`gpulint tune`: what it prints, what it keeps, and how it ends."""

from __future__ import annotations

import functools
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tuning_helpers import REPO, Start, Write, alive, wait_for

from gpulint import runtime
from gpulint.cli import main
from gpulint.tuning.candidate import Candidate, Facts, Outcome, Trial
from gpulint.tuning.plan import Found
from gpulint.tuning.runs import Limits, Runs
from gpulint.tuning.store import make_entry, settings

Tune = Callable[..., Result]
GIB = 1024**3
RATE = "Learning rate of"
ADVICE = "for such a batch, see runtime.scaled_lr."
HARDWARE = {"name": "CPU", "kind": "cpu", "memory": None, "cpus": 8}
# Steps of 20 ms, whatever their size, with the small torch that tests have.
FIXED_STEPS = """
import time, torch
from gpulint import runtime
SIZE = runtime.batch_size(8)
optimizer = torch.optim.SGD()
for step in range(200):
    time.sleep(0.02)
    optimizer.step()
"""
HANGS = """
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
worker = subprocess.Popen(sleep)
other = subprocess.Popen(sleep, start_new_session=True)
print(os.getpid(), worker.pid, other.pid, file=open("pids.new", "w"), flush=True)
os.rename("pids.new", "pids")
time.sleep(600)
"""


@pytest.fixture
def tune() -> Tune:
    def call(*words: str) -> Result:
        return CliRunner().invoke(main, ["tune", *words])

    return call


@pytest.fixture(autouse=True)
def _fresh_settings() -> Iterator[None]:
    runtime._reset()
    yield
    runtime._reset()


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch, write: Write) -> Callable[..., None]:
    """Runs that start nothing: twice the samples take 1.5 times as long."""
    write("")

    def make(own: int = 32, **more: Any) -> None:
        def measure(runs: Runs, candidate: Candidate) -> Trial:
            size = dict(candidate.sizes).get("train", own)
            facts = Facts(
                sizes={"train": size},
                defaults={"train": own},
                optimizer="AdamW",
                lr=0.001,
                samples=32_000,
                batches=-(-32_000 // size),
                hardware=HARDWARE,
            )
            facts = replace(facts, **more)
            runs.progress(3)
            if size > 128:
                kind = Outcome.MEMORY
                return Trial(candidate, kind, detail="CUDA", facts=facts)
            rate = 1000 * (size / 32) ** 0.4
            peak = size * GIB // 32
            return Trial(candidate, Outcome.OK, rate, peak, facts=facts)

        monkeypatch.setattr(Runs, "__call__", measure)

    make()
    return make


@pytest.mark.usefixtures("training")
def test_what_is_printed(tune: Tune, tmp_path: Path) -> None:
    result = tune("train.py")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[:3] == [
        "gpulint: as written: 1 000 samples/s, 1.0 GiB",
        "gpulint: batch 64: 1 320 samples/s, 2.0 GiB",
        "gpulint: batch 128: 1 741 samples/s, 4.0 GiB",
    ]
    lines = result.stdout.splitlines()
    assert lines[0] == "run         samples/s   memory"
    assert lines[1] == "as written      1 000  1.0 GiB"
    assert lines[4] == "batch 256           –           out of memory: CUDA"
    assert lines[lines.index("") + 1 :] == [
        "Best: batch 128, 1 741 samples/s (as written: 1 000).",
        "The batch size changes from 32 to 128 (4 times).",
        "Steps of a pass: 1000 to 250; schedules that count steps end later.",
        f"{RATE} AdamW: stays 0.001; usual is 2 times (square root) {ADVICE}",
        "Stored in gpulint.tuned.json.",
    ]
    content = json.loads((tmp_path / "gpulint.tuned.json").read_text())
    assert content["script"] == "train.py"
    [entry] = content["entries"]
    assert entry["hardware"] == {"name": "CPU", "memory": None, "cpus": 8}
    assert entry["batch_size"] == {"train": 128}
    assert entry["peak_bytes"] == 4 * GIB
    assert len(entry["table"]) == len(lines) - 8 + 1
    assert entry["table"][3] == {
        "batch_size": {"train": 256},
        "outcome": "out of memory",
        "detail": "CUDA",
        "peak_bytes": None,
    }


@pytest.mark.parametrize(
    "facts,line",
    [
        (
            {"lr_rule": "sqrt"},
            f"{RATE} AdamW: 0.001 to 0.001, runtime.scaled_lr follows the batch (sqrt).",
        ),
        (
            {"optimizer": "SGD"},
            f"{RATE} SGD: stays 0.001; usual is 4 times (linear) {ADVICE}",
        ),
        (
            {"batches": None, "optimizer": ""},
            "The batch size changes from 32 to 128 (4 times).",
        ),
    ],
)
def test_the_learning_rate(
    facts: dict[str, Any], line: str, training: Callable[..., None], tune: Tune
) -> None:
    training(**facts)
    assert tune("train.py").stdout.splitlines()[-2] == line


@pytest.mark.usefixtures("training")
def test_nothing_is_better(tune: Tune, tmp_path: Path) -> None:
    result = tune("train.py", "--batch", "32:32")
    assert "Best: the script as written, 1 000 samples/s." in result.stdout
    content = json.loads((tmp_path / "gpulint.tuned.json").read_text())
    assert content["entries"][0]["batch_size"] == {"train": 32}


def test_a_script_that_does_not_fit_as_written(
    training: Callable[..., None], tune: Tune
) -> None:
    training(own=512, lr=None)
    result = tune("train.py")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-4:] == [
        "Best: batch 128, 1 741 samples/s.",
        "The batch size changes from 512 to 128 (0.25 times).",
        "Steps of a pass: 63 to 250; schedules that count steps end later.",
        "Stored in gpulint.tuned.json.",
    ]


@pytest.mark.usefixtures("training")
def test_other_scripts_and_machines_keep_theirs(tune: Tune, tmp_path: Path) -> None:
    file = tmp_path / "gpulint.tuned.json"
    gpu = {"hardware": {"name": "GPU", "memory": 5, "cpus": 2}, "workers": 1}
    old = {"hardware": {"name": "CPU", "memory": None, "cpus": 2}, "workers": 2}
    other = {"hardware": old["hardware"], "script": "other.py", "workers": 3}
    entries = [old, gpu, other, "no entry"]
    file.write_text(json.dumps({"schema": 1, "script": "train.py", "entries": entries}))
    file.chmod(0o640)
    assert tune("train.py").exit_code == 0
    content = json.loads(file.read_text())
    assert content["entries"][:2] == [gpu, other]
    assert content["entries"][2]["batch_size"] == {"train": 128}
    assert len(content["entries"]) == 3
    assert file.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir() if "tuned" in p.name] == [file.name]
    (tmp_path / "next.py").touch()
    assert tune("next.py").exit_code == 0
    content = json.loads(file.read_text())
    assert content["script"] == "train.py"
    assert [e.get("script") for e in content["entries"]] == [
        None,
        "other.py",
        None,
        "next.py",
    ]


@pytest.mark.usefixtures("training")
def test_a_file_that_will_not_be_found(tune: Tune, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    result = tune("train.py", "-o", "kept/gpulint.tuned.json")
    assert result.exit_code == 0
    assert "is not found when the script runs" in result.stderr.splitlines()[0]
    content = json.loads((tmp_path / "kept" / "gpulint.tuned.json").read_text())
    assert content["script"] == "../train.py"
    assert "is not found" in tune("train.py", "-o", "other.json").stderr
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "train.py").touch()
    result = tune("jobs/train.py", "-o", "gpulint.tuned.json")
    assert "is not found" not in result.stderr
    assert "Stored in gpulint.tuned.json." in result.stdout


@pytest.mark.parametrize(
    "words,line",
    [
        ("missing.py", "File 'missing.py' does not exist"),
        (".", "File '.' is a directory"),
        ("book.ipynb", "book.ipynb is a notebook; tune runs scripts"),
        ("train.py --batch 8", "'8' is not MIN:MAX or MIN:MAX:STEP"),
        ("train.py --batch 8:x", "'8:x' is not MIN:MAX or MIN:MAX:STEP"),
        ("train.py --batch 8:16:0", "'8:16:0': 1 <= MIN <= MAX, 1 <= STEP"),
        ("train.py --batch 32:16", "'32:16': 1 <= MIN <= MAX, 1 <= STEP"),
        ("train.py --workers 1,two", "'two' is no number of workers"),
        ("train.py --workers -1", "'-1' is no number of workers"),
        ("train.py --memory 0", "0.0 is not in the range 0<x<=1"),
        ("train.py --memory 90", "90.0 is not in the range 0<x<=1"),
        ("train.py --steps 1", "1 is not in the range x>=5"),
        ("train.py --timeout 0", "0.0 is not in the range x>0"),
        (
            "train.py --try luck",
            "'luck' is not one of precision, compile, channels_last",
        ),
        ("train.py --epochs 3", "No such option '--epochs'"),
        ("train.py -o missing/f.json", "missing is no folder that can be written to"),
        ("train.py -o folder", "folder is a folder"),
        ("train.py -o broken.json", "broken.json is not JSON; it stays as it is"),
        ("train.py -o list.json", "list.json holds no tuned values that this version"),
        ("", "Missing argument 'SCRIPT'"),
    ],
)
@pytest.mark.usefixtures("training")
def test_bad_input(words: str, line: str, tune: Tune, tmp_path: Path) -> None:
    (tmp_path / "book.ipynb").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    result = tune(*words.split())
    assert result.exit_code == 2
    assert result.stdout == ""
    [said] = [s for s in result.stderr.splitlines() if "warning" not in s]
    assert line in said
    assert (tmp_path / "broken.json").read_text() == "{"


@pytest.mark.parametrize(
    "variable,line",
    [
        ("GPULINT_RUNTIME=off", "GPULINT_RUNTIME=off: nothing is tuned under it"),
        ("GPULINT_DEBUG=1", "GPULINT_DEBUG=1: nothing is tuned under it"),
        ("GPULINT_AMP=fp8", "GPULINT_AMP='fp8' is not one of off, fp16, bf16"),
    ],
)
@pytest.mark.usefixtures("training")
def test_a_runtime_that_is_off(
    variable: str, line: str, tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*variable.split("="))
    result = tune("train.py")
    assert result.exit_code == 2
    assert result.stderr == f"gpulint: error: {line}\n"


@pytest.mark.parametrize(
    "text,line",
    [
        (
            "raise ValueError('no data')",
            "ValueError: no data (arguments of the script ",
        ),
        ("import nothing_here", f"'nothing_here' (it runs with {sys.executable})"),
        ("print('done')", "train.py: it ended without a step of an optimizer\n"),
        (
            FIXED_STEPS.replace("runtime.batch_size(8)", "8"),
            "`gpulint fix --allow hyperparams,random train.py` writes such calls",
        ),
    ],
)
def test_a_script_that_cannot_be_tuned(
    text: str, line: str, tune: Tune, write: Write, tmp_path: Path
) -> None:
    write(text)
    result = tune("train.py", "--steps", "5")
    assert result.exit_code == 2
    assert line in result.stderr
    assert len(result.stderr.splitlines()) == 2  # the run, and why it is not enough
    assert result.stdout == ""
    assert not (tmp_path / "gpulint.tuned.json").exists()


def test_with_arguments_there_is_no_hint(tune: Tune, write: Write) -> None:
    write("import sys; raise ValueError(sys.argv[1:])")
    result = tune("train.py", "-v", "--", "--data", "x")
    assert result.stderr.splitlines()[-1] == (
        "gpulint: error: train.py: ValueError: ['--data', 'x']"
    )
    assert "Traceback (most recent call last):" in result.stderr
    assert "child.py" not in result.stderr


@pytest.mark.usefixtures("training")
def test_a_file_that_cannot_be_written(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gpulint.tuned.json"
    file.write_text('{"schema": 1}')

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = tune("train.py")
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr.splitlines()[-1]
    assert file.read_text() == '{"schema": 1}'
    assert sorted(p.name for p in tmp_path.iterdir()) == [file.name, "train.py"]
    file.unlink()
    file.symlink_to(file)
    assert "symbolic links" in tune("train.py").stderr


def test_all_that_is_kept_of_a_run() -> None:
    facts = Facts(sizes={"train": 8, "eval": 9}, workers=2)
    candidate = Candidate((("train", 16),), None, 4, "bf16", False, True)
    values = {
        "batch_size": {"train": 16},
        "workers": 2,
        "prefetch_factor": 4,
        "amp": "bf16",
        "compile": False,
    }
    trial = Trial(candidate, Outcome.OK, 1234.567, facts=facts)
    assert settings(trial) == values
    row = make_entry(Found(trial, trial, (trial,), ()))["table"][0]
    more = {"outcome": "ok", "channels_last": True, "samples_per_second": 1235.0}
    assert row == {**values, **more, "peak_bytes": None}
    assert settings(Trial(Candidate(), Outcome.OK)) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_leaves_nothing_behind(
    number: int, write: Write, start: Start, kill_later: list[int], tmp_path: Path
) -> None:
    write(HANGS)
    file = tmp_path / "gpulint.tuned.json"
    file.write_text('{"schema": 1, "script": "train.py", "entries": []}')
    tuning = start("-m", "gpulint", "tune", "train.py")
    wait_for((tmp_path / "pids").exists)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    kill_later += pids
    assert all(map(alive, pids))
    tuning.send_signal(number)
    _, errors = tuning.communicate(timeout=20)
    assert tuning.returncode == 130
    assert "Traceback" not in errors
    wait_for(lambda: not any(map(alive, pids)))
    assert file.read_text() == '{"schema": 1, "script": "train.py", "entries": []}'


@pytest.mark.skipif(sys.platform != "linux", reason="others do not tell a child")
def test_the_script_dies_with_a_tuner_that_is_killed(
    write: Write, start: Start, kill_later: list[int], tmp_path: Path
) -> None:
    write(HANGS)
    tuning = start("-m", "gpulint", "tune", "train.py")
    wait_for((tmp_path / "pids").exists)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    kill_later += pids
    tuning.kill()
    tuning.communicate(timeout=20)
    wait_for(lambda: not alive(pids[0]))


def test_the_parent_imports_no_torch(write: Write, start: Start) -> None:
    write("print('done')")
    code = (
        "import sys\nfrom gpulint.cli import main\n"
        "try: main(['tune', 'train.py'])\n"
        "except SystemExit: print({'torch', 'libcst', 'rich'} & set(sys.modules))"
    )
    done = start("-c", code)
    assert done.communicate(timeout=60)[0] == "set()\n"


@pytest.mark.usefixtures("training")
def test_on_a_terminal(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    module = importlib.import_module("gpulint.cli.tune")
    monkeypatch.setattr(module, "sys", types.SimpleNamespace(stderr=screen))
    assert tune("train.py").exit_code == 0
    assert "batch 64: 1 320 samples/s, 2.0 GiB\n" in screen.getvalue()


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


SLEEPY = """
import time
import torch
from torch.utils.data import DataLoader, Dataset
from gpulint import runtime

class Slow(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.zeros(2)

def main():
    torch.set_num_threads(1)
    size = runtime.batch_size(8)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    held = torch.ones(size, 8 * 1024 ** 2 // 4)  # 8 MiB a sample
    options = runtime.loader_kwargs("cpu", prefetch_factor=2)
    for x in DataLoader(Slow(), batch_size=size, **options):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        time.sleep(0.1)  # whatever the batch: larger ones pay, on a busy machine too

if __name__ == "__main__":
    main()
"""


def test_a_real_training(
    tune: Tune,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sample takes 10 ms and 8 MiB, a step 0.1 s: 4 workers, the batch that fits."""
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    quick = functools.partial(Limits, least_seconds=0.3)
    monkeypatch.setattr("gpulint.tuning.runs.Limits", quick)
    limit = 770 * 1024**2  # for torch's own 310 and a batch of 32, not of 64
    monkeypatch.setattr("gpulint.runtime._limits.ram_limit", lambda: limit)
    write(SLEEPY)
    result = tune("train.py", "--workers", "4", "--batch", "32:64:32", "--steps", "8")
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "gpulint.tuned.json").read_text())
    [entry] = content["entries"]
    assert entry["workers"] == 4
    assert entry["batch_size"] == {"train": 32}
    rows = [(row["batch_size"]["train"], row["outcome"]) for row in entry["table"]]
    assert (64, "out of memory") in rows
    assert entry["peak_bytes"] <= 0.9 * limit
    script = [sys.executable, "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    short = (tmp_path / "train.py").read_text().replace("100_000", "8")
    write(short)
    done = subprocess.run(
        script, capture_output=True, text=True, check=True, env=environment
    )
    assert "gpulint: batch size: 32 (tuned for " in done.stderr
    assert "gpulint: loader: 4 workers (tuned for " in done.stderr
