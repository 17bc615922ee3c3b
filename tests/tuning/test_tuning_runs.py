"""What a run in a child process comes to, whatever the script does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tuning_helpers import Write, alive, wait_for

from gpulint.running import processes
from gpulint.tuning.candidate import Candidate, Facts, Outcome, Trial
from gpulint.tuning.runs import Ended, Limits, Runs, judge

MIB = 1024**2
GIB = 1024**3
WRITTEN = Candidate()
LIMITS = Limits(0.9, 64 * GIB, 5, 60.0, 0.0)
HEAD = """
import os, signal, sys, time
import torch
from torch.utils.data import DataLoader
from gpulint import runtime

optimizer = torch.optim.SGD(lr=0.5)

def train(steps):
    for number in range(steps):
        time.sleep(0.001)
        optimizer.step()
"""


def run(
    text: str,
    write: Write,
    *arguments: str,
    limits: Limits = LIMITS,
    candidate: Candidate = WRITTEN,
    seen: list[int] | None = None,
    said: list[str] | None = None,
) -> Trial:
    script = write(HEAD + text)
    steps: list[int] = [] if seen is None else seen
    output: list[str] = [] if said is None else said
    return Runs(script.name, arguments, limits, steps.append, output.append)(candidate)


@pytest.mark.parametrize(
    "text,outcome,detail",
    [
        ("raise ValueError('no such\\n data')", "CRASH", "ValueError: no such data"),
        ("raise KeyError", "CRASH", "KeyError"),
        ("raise RuntimeError('x' * 999)", "CRASH", f"RuntimeError: {'x' * 143}..."),
        ("train(2); input()", "CRASH", "it waits for input, and there is none here"),
        ("train(", "CRASH", "SyntaxError: '(' was never closed (train.py, line 13)"),
        ("raise torch.OutOfMemoryError('CUDA')", "MEMORY", "OutOfMemoryError: CUDA"),
        ("raise MemoryError", "MEMORY", "MemoryError"),
        (
            "raise RuntimeError('MPS backend out of memory')",
            "MEMORY",
            "RuntimeError: MPS backend out of memory",
        ),
        (
            "raise RuntimeError('DataLoader worker (pid 7) is killed by signal: Killed.')",
            "MEMORY",
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.",
        ),
        (
            "raise RuntimeError('DataLoader worker (pid(s) 7) exited unexpectedly')",
            "CRASH",
            "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly",
        ),
        ("raise ValueError('out of memory')", "CRASH", "ValueError: out of memory"),
        ("sys.exit('usage: wrong')", "CRASH", "exit code 1: usage: wrong"),
        ("print('a\\nb'); sys.exit(3)", "CRASH", "exit code 3: b"),
        ("print('y' * 999); os._exit(4)", "CRASH", f"exit code 4: {'y' * 157}..."),
        ("os._exit(5)", "CRASH", "exit code 5: no output"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "MEMORY",
            "killed, as by the system when memory runs out",
        ),
        ("os.kill(os.getpid(), signal.SIGTERM)", "CRASH", "killed by SIGTERM"),
        ("print('done')", "NO_STEPS", "it ended without a step of an optimizer"),
        ("sys.exit()", "NO_STEPS", "it ended without a step of an optimizer"),
        ("train(1)", "FEW_STEPS", "it ended after 1 step, too few to measure"),
        ("train(4)", "FEW_STEPS", "it ended after 4 steps, too few to measure"),
    ],
)
def test_one_clear_line(text: str, outcome: str, detail: str, write: Write) -> None:
    trial = run(text, write)
    assert (trial.outcome.name, trial.detail) == (outcome, detail)
    assert trial.rate == 0.0


@pytest.mark.parametrize(
    "steps,detail", [(0, "no step within 5 s"), (3, "3 steps within 5 s")]
)
def test_a_run_that_hangs(steps: int, detail: str, write: Write) -> None:
    limits = Limits(0.9, None, 50, 5.0, 0.0)
    # the number of steps is said twice a second at most
    text = f"train({steps} - 1)\ntime.sleep(0.6)\nif {steps}: train(1)\ntime.sleep(99)"
    trial = run(text, write, limits=limits)
    assert (trial.outcome, trial.detail) == (Outcome.TIMEOUT, detail)
    assert trial.seconds < 20


def test_a_rate(write: Write) -> None:
    text = """
size = runtime.batch_size(4)
runtime.batch_size(9, train=False)
lr = runtime.scaled_lr(0.5, batch_size=size, base_batch_size=4, rule="sqrt")
loader = DataLoader(range(4000), batch_size=size, **runtime.loader_kwargs("cpu"))
optimizer = torch.optim.SGD(lr=lr)
print("begun")
for batch in loader:
    time.sleep(0.01)
    optimizer.step()
open("ended", "w").close()
"""
    said: list[str] = []
    trial = run(text, write, candidate=Candidate((("train", 16),), 3), said=said)
    assert trial.outcome is Outcome.OK
    assert 0 < trial.rate < 1600
    assert 3 + 5 <= trial.steps < 99  # 3 workers are thought to load ahead
    assert not Path("ended").exists()
    assert "begun\n" in said[0]
    facts = trial.facts
    assert facts.sizes == {"train": 16, "eval": 9}
    assert facts.defaults == {"train": 4, "eval": 9}
    assert facts.train_sizes == {"train": 16}
    assert facts.workers == 3
    assert not facts.prefetch_fixed
    assert (facts.optimizer, facts.lr, facts.lr_rule) == ("SGD", 1.0, "sqrt")
    assert (facts.samples, facts.batches) == (4000, 250)
    assert facts.hardware["kind"] == "cpu"
    assert facts.hardware["memory"] is None
    assert trial.peak_bytes is not None
    assert MIB < trial.peak_bytes < 200 * MIB


def test_workers_that_the_script_has_itself(write: Write) -> None:
    text = 'runtime.loader_kwargs("cpu", num_workers=2); train(9)'
    trial = run(text, write)
    assert trial.ok
    assert trial.facts.workers is None
    assert not trial.facts.tunable


def test_the_script_runs_as_it_would_alone(write: Write, tmp_path: Path) -> None:
    text = """
'''What a script can know of itself.'''
import json, os, pickle, sys
class Kept: pass
facts = {k: str(v) for k, v in globals().items() if k.startswith("__")}
facts.pop("__annotations__", None)
facts["__builtins__"] = str(type(__builtins__))
facts["loader"] = facts.pop("__loader__").split(" object at")[0]
facts |= {"argv": sys.argv, "first": sys.path[0], "here": os.getcwd()}
facts["kept"] = type(pickle.loads(pickle.dumps(Kept()))).__module__
facts["torch"] = "torch" in sys.modules
facts["itself"] = sys.modules["__main__"].__dict__ is globals()
open(sys.argv[1], "w").write(json.dumps(facts))
"""
    (tmp_path / "jobs").mkdir()
    script = tmp_path / "jobs" / "train.py"
    script.write_text(text)
    (tmp_path / "link.py").symlink_to(script)
    for name in ("jobs/train.py", "link.py"):
        words = [sys.executable, name, "alone", "--lr", "1"]
        subprocess.run(words, check=True)
        Runs(name, ["tuned", "--lr", "1"], LIMITS, [].append, [].append)(Candidate())
        alone = json.loads(Path("alone").read_text())
        tuned = json.loads(Path("tuned").read_text())
        alone["argv"][1] = "tuned"
        assert tuned == alone


def test_variables_of_the_shell_are_not_the_script_as_written(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULINT_BATCH_SIZE", "77")
    monkeypatch.setenv("GPULINT_BATCH_SIZE_CRITIC", "78")
    monkeypatch.setenv("GPULINT_NUM_WORKERS", "79")
    monkeypatch.setenv("GPULINT_ENV", "cloud")
    said: list[str] = []
    text = "print(sorted(n for n in os.environ if n.startswith('GPULINT_')))"
    run(text, write, said=said)
    assert "['GPULINT_ENV', 'GPULINT_TUNED']" in said[0]


def test_memory_of_the_host(write: Write) -> None:
    text = """
import subprocess
code = "x = bytearray(200 * 1024 ** 2); input()"
worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
time.sleep(60)
"""
    trial = run(text, write, limits=Limits(0.5, 200 * MIB, 5, 60.0, 0.0))
    assert trial.outcome is Outcome.MEMORY
    assert trial.detail.startswith("it took ")
    assert trial.detail.endswith(" MiB of 200.0 MiB")
    assert trial.seconds < 30


def test_nothing_is_left_of_a_run(write: Write) -> None:
    """Neither its children, nor those in a session of their own while it runs."""
    text = """
import subprocess
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
one = subprocess.Popen(sleep)
two = subprocess.Popen(sleep, start_new_session=True)
print(os.getpid(), one.pid, two.pid, file=open("pids", "w"), flush=True)
time.sleep(600)
"""
    run(text, write, limits=Limits(0.9, None, 5, 5.0, 0.0))
    pids = [int(word) for word in Path("pids").read_text().split()]
    assert len(pids) == 3
    wait_for(lambda: not any(map(alive, pids)))


def test_workers_of_a_run_that_has_ended(write: Write) -> None:
    text = """
import subprocess
one = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(one.pid, file=open("pids", "w"), flush=True)
train(50)
"""
    assert run(text, write).ok
    pid = int(Path("pids").read_text())
    wait_for(lambda: not alive(pid))


def test_progress(write: Write) -> None:
    seen: list[int] = []
    text = "train(2); time.sleep(0.6); train(2); time.sleep(0.6); train(9)"
    assert run(text, write, seen=seen).ok
    assert sorted(seen) == seen
    assert len(set(seen)) > 1


def measured(**more: Any) -> list[dict[str, Any]]:
    hardware = {"name": "GPU", "kind": "cuda", "memory": 10 * GIB, "cpus": 8}
    event = {"event": "measured", "steps": 30, "rate": 100.0, "peak": GIB}
    about = {"samples": None, "batches": None, "hardware": hardware}
    return [event | about | {"own_peak": 2 * GIB, **more}]


def judged(events: list[dict[str, Any]], host: int | None = None) -> Trial:
    limits = Limits(0.9, 64 * GIB, 20, 300.0)
    return judge(Candidate(), events, Ended(0, False, host, False), "", limits, 1.0)


def test_memory_of_the_gpu() -> None:
    assert judged(measured(), 50 * GIB).peak_bytes == GIB
    full = judged(measured(peak=int(9.5 * GIB)))
    assert full.outcome is Outcome.MEMORY
    assert full.detail == "it took 9.5 GiB of 10.0 GiB"
    assert judged(measured(peak=None)).peak_bytes is None


def test_memory_of_the_cpu() -> None:
    here = {"name": "CPU", "kind": "cpu", "memory": None, "cpus": 8}
    assert judged(measured(hardware=here), 3 * GIB).peak_bytes == 3 * GIB
    assert judged(measured(hardware=here), GIB).peak_bytes == 2 * GIB
    assert judged(measured(hardware=here, own_peak=60 * GIB)).outcome is Outcome.MEMORY


def test_what_a_script_on_a_gpu_asks_for() -> None:
    amp = {"event": "asked", "helper": "amp_dtype", "choice": "bf16"}
    asked = [
        {**amp, "choices": []},
        {**amp, "choices": ["off", "bf16", "fp16"]},
        {"event": "asked", "helper": "maybe_compile", "possible": False},
        {"event": "asked", "helper": "maybe_compile", "possible": True},
    ]
    facts = judged(asked + measured()).facts
    assert facts.amp == "bf16"
    assert facts.amp_choices == ("off", "bf16", "fp16")
    assert facts.compilable
    assert facts.tunable
    assert Facts(sizes={"train": 1, "My-Size": 2, "eval": 3}).train_sizes == {
        "train": 1
    }
    assert not Facts().tunable


def test_a_report_that_was_cut_off(tmp_path: Path) -> None:
    from gpulint.running.reports import read

    report = tmp_path / "report"
    report.write_text('{"event": "progress", "steps": 4}\n{"event": "prog')
    assert read(report) == [{"event": "progress", "steps": 4}]


def test_pages_that_are_shared_count_once(tmp_path: Path) -> None:
    def entry(pid: int, stat: str, **files: str) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} {stat}")
        for name, text in files.items():
            (folder / name).write_text(text)

    page = os.sysconf("SC_PAGE_SIZE")
    entry(10, "(train) S 1 10 10 0", smaps_rollup="Rss: 9 kB\nPss: 7 kB\n")
    entry(11, "(a ) b) S 10 10 10 0", statm="50 30 10 1 0 5 0")
    entry(12, "(own) S 11 12 12 0", statm="broken")
    entry(13, "(lost) S 1 10 10 0")
    entry(14, "(other) S 1 14 14 0")
    (tmp_path / "15").mkdir()
    family = processes.family(10, tmp_path)
    assert family == [10, 11, 12, 13]
    assert processes.memory(family, tmp_path) == 7 * 1024 + 20 * page
    assert processes.memory([12], tmp_path) is None


def test_signals_have_names() -> None:
    ended = Ended(-signal.SIGSEGV, False, None, False)
    trial = judge(Candidate(), [], ended, "", LIMITS, 1.0)
    assert trial.detail == "killed by SIGSEGV"
