"""`gpulint bench`: real processes, with a torch that is imported in milliseconds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import gpulint
from gpulint.bench.overlay import environment
from gpulint.bench.runs import Children, Run, Variant

REPO = Path(gpulint.__file__).resolve().parent.parent
Bench = Callable[..., Result]
Write = Callable[..., Path]
QUICK = ("--steps", "5", "--warmup", "1", "--repeats", "4")
# Steps of a few milliseconds; the loss falls.
TRAINS = """
import sys, time, torch
from torch.utils.data import DataLoader
SECONDS = {seconds}
optimizer = torch.optim.SGD()
for epoch in range(3):
    for step, batch in enumerate(DataLoader(list(range(20)), batch_size=8)):
        time.sleep(SECONDS)
        torch.Tensor({loss} / (step + 1)).backward()
        optimizer.step()
"""


def trains(seconds: float = 0.002, loss: float = 1.0) -> str:
    return TRAINS.format(seconds=seconds, loss=loss)


def test_two_scripts(bench: Bench, write: Write, tmp_path: Path) -> None:
    write(trains(0.05), "old.py")
    write(trains(0.002), "new.py")
    files = ("--json", "out.json", "--markdown", "out.md", "--html", "out.html")
    result = bench("old.py", "new.py", *QUICK, *files)
    assert result.exit_code == 0, result.output
    assert "old.py against new.py" in result.stdout
    assert "verdict: faster" in result.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["verdict"] == "faster"
    assert found["losses"] == {
        "text": "equal (6)",
        "differ": False,
        "max_relative_deviation": 0.0,
        "compared": 6,
    }
    assert found["unit"] == "samples/s"
    assert found["effects"] is None
    assert found["sides"][0]["losses"] == [1.0, 0.5, 0.333333] * 2
    assert "| samples/s |" in (tmp_path / "out.md").read_text()
    assert "<svg" in (tmp_path / "out.html").read_text()
    assert {p.name for p in tmp_path.iterdir()} == {
        "old.py",
        "new.py",
        "out.json",
        "out.md",
        "out.html",
    }


def test_a_slower_script_and_other_losses(bench: Bench, write: Write) -> None:
    write(trains(0.002), "old.py")
    write(trains(0.05, loss=2.0), "new.py")
    result = bench("old.py", "new.py", *QUICK, "--loss-tol", "0.5")
    assert result.exit_code == 1
    assert "verdict: slower" in result.stdout
    assert "losses: DIFFER" in result.stdout
    assert result.stdout.endswith(
        "exit code 1: shown to be less than 1x as fast (--min-speedup)\n"
        "exit code 1: losses differ that must not\n"
    )
    result = bench("old.py", "new.py", *QUICK, "--min-speedup", "0.001")
    assert result.exit_code == 0
    assert "losses: max relative deviation" in result.stdout


ORIGINAL = """
import sys, time, torch
from pathlib import Path
from helper import SECONDS

def main():
    assert "torch.cuda.amp.autocast()" in Path(__file__).read_text(), "it was written to"
    assert sys.argv == ["folder/train.py", "--data", "here"], sys.argv
    assert Path(sys.path[0]).name == "folder"
    assert not any("gpulint-bench" in path for path in sys.path)
    optimizer = torch.optim.SGD()
    for step in range(6):
        with torch.cuda.amp.autocast():
            loss = torch.Tensor(1.0)
            print(sys._getframe().f_code.co_filename, step)
        time.sleep(SECONDS)
        loss.backward()
        optimizer.step()
    1 / 0  # never reached

main()
"""


def test_a_script_and_its_rewrite(bench: Bench, write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write(ORIGINAL, "folder/train.py")
    write("SECONDS = 0.001", "folder/helper.py")
    before = {p: p.read_bytes() for p in folder.iterdir()}
    words = ("folder/train.py", "--isolated", "--select", "GPU303", *QUICK)
    files = ("--json", "out.json")
    result = bench(*words, *files, "--", "--data", "here")
    assert result.exit_code in (0, 1), result.output
    assert "Fixes: GPU303 (exact)" in result.stdout
    assert "losses: equal (6)" in result.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["arguments"] == ["--data", "here"]
    assert found["launcher"] is None
    assert found["sides"][0]["host_syncs_per_step"] is None
    assert "Machine: no GPU, " in result.stdout
    assert found["unit"] == "steps/s"
    assert [fix["code"] for fix in found["fixes"]] == ["GPU303"]
    result = bench(*words, "-v")  # without its arguments
    failed = r"error: (original|fixed): AssertionError: \['folder/train\.py'\]"
    assert re.search(failed, result.stderr)  # whichever came first
    assert {p: p.read_bytes() for p in folder.rglob("*.py")} == before


def test_the_new_text_is_what_runs(bench: Bench, write: Write) -> None:
    # Only the original's spelling works here: the rewrite fails, where it says.
    text = ORIGINAL[: ORIGINAL.index("def main")].replace(
        "from helper", "# from helper"
    )
    text += "del torch.autocast\noptimizer = torch.optim.SGD()\nfor step in range(9):\n"
    text += "    with torch.cuda.amp.autocast():\n        loss = torch.Tensor(1.0)\n"
    text += "    loss.backward()\n    optimizer.step()\n"
    write(text)
    result = bench("train.py", "--isolated", "--select", "GPU303", *QUICK, "-v")
    assert result.exit_code == 2
    assert "gpulint: error: fixed: AttributeError: module 'torch'" in result.stderr
    assert 'with torch.autocast("cuda"):' in result.stderr  # in its traceback


OVERLAID = """
import multiprocessing, sys
import part
VALUE = "old"

def work(queue):
    queue.put((VALUE, part.VALUE))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(VALUE, part.VALUE, *queue.get(), __file__, sys.path[0])
    process.join()
"""


RUN = "from gpulint.running.script import run_as_main; run_as_main('main.py', [])"


def test_other_texts_reach_modules_and_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, part = tmp_path / "main.py", tmp_path / "part.py"
    script.write_text(OVERLAID)
    part.write_text("VALUE = 'old'")
    # a module that was compiled before, and a `sitecustomize` of the user's own
    subprocess.run([sys.executable, "-c", "import part"], cwd=tmp_path, check=True)
    own, folder = tmp_path / "own", tmp_path / "overlay"
    own.mkdir()
    folder.mkdir()
    (own / "sitecustomize.py").write_text("import sys; print('own', file=sys.stderr)")
    monkeypatch.setenv("PYTHONPATH", str(own))
    latin = "# -*- coding: latin-1 -*-\nVALUE = 'n\xe9w'\n".encode("latin-1")
    new = OVERLAID.replace('"old"', '"new"').encode()
    variables = environment({script: new, part: latin}, folder)
    variables["PYTHONPATH"] += os.pathsep + str(REPO)
    words = [sys.executable, "-c", RUN]
    done = subprocess.run(
        words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[:4] == ["new", "n\xe9w", "new", "n\xe9w"]
    assert done.stdout.split()[4:] == [str(script), str(tmp_path)]
    assert done.stderr.count("own") >= 1
    assert part.read_text() == "VALUE = 'old'"
    assert environment({}, folder)["PYTHONPATH"] == str(own)


@pytest.mark.parametrize(
    "text,line",
    [
        ("raise ValueError('no data')", "ValueError: no data"),
        ("import time; time.sleep(60)", "no step within 1 s (--timeout)"),
        ("print('done')", "it ended without a step of an optimizer"),
        ("input('path? ')", "it waits for input, and there is none here"),
        ("import sys; sys.exit('no --data')", "exit code 1: no --data"),
        ("import os; print('bad'); os._exit(3)", "exit code 3: "),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("import no_such_thing", "No module named 'no_such_thing' (it runs with"),
        (
            "import torch\no = torch.optim.SGD()\nfor _ in range(4): o.step()",
            "it ended after 4 steps, 6 are needed (--steps, --warmup)",
        ),
        (
            "import torch, time\ntorch.optim.SGD().step()\ntime.sleep(60)",
            "1 step within 1 s (--timeout)",
        ),
    ],
)
def test_scripts_that_cannot_be_measured(
    bench: Bench, write: Write, text: str, line: str
) -> None:
    write(text, "old.py")
    write(trains(), "new.py")
    timeout = "1" if "sleep" in text else "60"
    result = bench("old.py", "new.py", *QUICK, "--timeout", timeout)
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert last.startswith("gpulint: error: old.py: ")
    assert line in last


@pytest.mark.parametrize(
    "words,line",
    [
        (("missing.py",), "'missing.py' does not exist"),
        ((), "Missing argument SCRIPT, or --module"),
        (("train.py", "--module", "train"), "--module stands for SCRIPT"),
        (("--module", "no.such"), "--module: python -m no.such finds no file to run"),
        (("train.py", "--launcher", ""), "'--launcher': '': it is empty"),
        (("train.py", "--launcher", "no-such -n 2"), "there is no 'no-such' on PATH"),
        (("train.py", "train.py", "train.py"), "3 scripts, one or two"),
        (("train.py", "train.py", "--allow", "all"), "compared as they are"),
        (("train.py", "train.py", "--extend-select", "GPU1"), "compared as they are"),
        (("train.py", "--allow", "luck"), "luck"),
        (("book.ipynb",), "is a notebook"),
        (("train.py", "--isolated"), "train.py: no fix to compare it with"),
        (("broken.py", "--isolated"), "broken.py: "),
        (("latin.py", "--isolated"), "latin.py: "),
        (("train.py", "--repeats", "3"), "3"),
        (("train.py", "train.py", "--json", "no/out.json"), "can be written to"),
    ],
)
def test_bad_input(
    bench: Bench, write: Write, tmp_path: Path, words: Any, line: str
) -> None:
    write("x = 1\n")
    write("{}", "book.ipynb")
    write("import torch\ndef (", "broken.py")
    (tmp_path / "latin.py").write_bytes(b"# \xff\n")
    result = bench(*words)
    assert result.exit_code == 2
    assert line in result.stderr
    assert result.stderr.startswith("gpulint: error: ")
    assert result.stderr.count("\n") == 1


def test_each_rule_alone(
    bench: Bench, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    texts: dict[str, bytes] = {}

    def measure(children: Children, variant: Variant) -> Run:
        texts[variant.label] = b"".join(variant.texts.values())
        slow = 0.2 if variant.label == "original" else 0.1
        nothing: Any = [0.0] * 5
        return Run(
            [slow] * 5, nothing, [8] * 5, [False] * 5, [1.0], 0, None, None, None
        )

    monkeypatch.setattr(Children, "__call__", measure)
    scenario = REPO / "fixtures" / "scripts" / "pm25" / "before.py"
    write(scenario.read_text("utf-8"))
    words = ("--isolated", "--select", "GPU104,GPU105", "--per-rule")
    result = bench("train.py", *words, "--json", "out.json")
    assert result.exit_code == 0, result.output
    assert set(texts) == {"original", "fixed", "GPU104 alone", "GPU105 alone"}
    assert texts["original"] == scenario.read_bytes()
    assert len(set(texts.values())) == 4
    found = json.loads((tmp_path / "out.json").read_text())
    assert [its["verdict"] for its in found["alone"]] == ["faster"] * 2
    assert [its["decisive"]["level"] for its in found["alone"]] == [0.995] * 2
    assert re.search(r"\nGPU105 .* 2\.00x .* faster *\n", result.stdout)
    assert (
        "Each is judged at 99.5 %, so that all hold together at 99 %" in result.stdout
    )


PACKAGED = """
import multiprocessing, sys, torch
import pkg.helper
if __name__ == "__main__":
    assert __spec__.name == "pkg.train", __spec__
    assert sys.argv == [__file__, "--data", "here"], sys.argv
    assert sys.path[0] == {folder!r}, sys.path
    optimizer = torch.optim.SGD()
    while True:
        with torch.cuda.amp.autocast():
            loss = torch.Tensor(1.0)
        loss.backward()
        optimizer.step()
"""


def test_a_module_and_its_rewrite(bench: Bench, write: Write, tmp_path: Path) -> None:
    (tmp_path / "pkg" / "tool").mkdir(parents=True)
    write("raise SystemExit('imported by the wrong process')", "pkg/__init__.py")
    result = bench("--module", "pkg.train", "--isolated", *QUICK)
    assert "python -m pkg.train finds no file to run" in result.stderr
    write("", "pkg/__init__.py")
    write("", "pkg/helper.py")
    write("", "pkg/tool/__main__.py")
    write(PACKAGED.format(folder=str(tmp_path)), "pkg/train.py")
    words = ("--module", "pkg.train", "--isolated", "--select", "GPU303", *QUICK)
    result = bench(*words, "--json", "out.json", "--", "--data", "here")
    assert result.exit_code in (0, 1), result.output
    assert result.stdout.startswith("pkg.train\nFixes: GPU303 (exact)\n")
    assert "losses: equal (6)" in result.stdout
    assert json.loads((tmp_path / "out.json").read_text())["scripts"] == [
        "-m pkg.train"
    ]
    result = bench(*words, "-v")
    assert re.search(r"error: (original|fixed): AssertionError", result.stderr)
    assert "runpy" not in result.stderr  # the traceback begins in the module
    result = bench("--module", "pkg.tool", "--isolated")
    main = Path("pkg", "tool", "__main__.py")
    assert result.stderr.startswith(f"gpulint: error: {main}: no fix")


SETTING = """
import os, random, sys, torch
assert os.environ.get("CUDA_VISIBLE_DEVICES") == "0,3", "not these devices"
optimizer = torch.optim.SGD()
torch.Tensor(torch.seed + random.random() + hash("order") % 7).backward()
while True:
    optimizer.step()
"""


def test_seeds_and_devices(
    bench: Bench, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    write(SETTING)
    words = ("train.py", "train.py", *QUICK)
    result = bench(*words, "--devices", "0,3", "--seed", "5", "--json", "out.json")
    assert result.exit_code in (0, 1), result.output
    assert "losses: equal (1)" in result.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["sides"][0]["losses"][0] > 5
    assert found["options"]["seed"] == 5
    result = bench(*words, "--devices", "none", "--seed", "5")
    assert "AssertionError: not these devices" in result.stderr


# A device that warns of waits: `{count}` in a step, and one that is asked for by name.
WAITS = """
import warnings, torch
warnings.simplefilter("ignore")
mode = "default"

def set_sync_debug_mode(wanted):
    global mode
    mode = wanted

def yes():
    return True

cuda = torch.cuda
cuda.is_initialized, cuda.set_sync_debug_mode = yes, set_sync_debug_mode
cuda.device_count, cuda.synchronize = int, yes
cuda.get_device_name = lambda: "H100"
optimizer = torch.optim.SGD()
while True:
    for _ in range({count}):
        if mode == "warn":
            warnings.warn("called a synchronizing CUDA operation (Triggered …)")
    warnings.warn("something else")
    {more}
    optimizer.step()
"""


def test_host_syncs_are_counted_in_a_run_of_their_own(
    bench: Bench, write: Write, tmp_path: Path
) -> None:
    write(WAITS.format(count=3, more=""), "old.py")
    write(WAITS.format(count=1, more="assert mode == 'default'"), "new.py")
    result = bench("old.py", "new.py", *QUICK, "--json", "out.json")
    assert result.exit_code in (0, 1), result.output
    assert re.search(r"\nhost syncs +3 a step +n/a *\n", result.stdout)
    line = "note: host syncs were not counted: new.py: AssertionError"
    assert line in result.stderr  # and none of the measured runs has met the warnings
    found = json.loads((tmp_path / "out.json").read_text())
    counts = [side["host_syncs_per_step"] for side in found["sides"]]
    assert counts == [3, None]
    result = bench("old.py", "new.py", *QUICK, "--no-sync-check")
    assert re.search(r"\nhost syncs +n/a +n/a *\n", result.stdout)


LAUNCHER = """
import os, subprocess, sys
count, words = int(sys.argv[1]), sys.argv[2:]
size = os.environ.get("SIZE", str(count))
ranks = [
    subprocess.Popen(
        [sys.executable, *words], env={**os.environ, "RANK": str(i), "WORLD_SIZE": size}
    )
    for i in range(count)
]
sys.exit(max(rank.wait() for rank in ranks))
"""
RANKED = """
import os, sys, torch
from torch.utils.data import DataLoader
rank = int(os.environ["RANK"])
optimizer = torch.optim.SGD()
for step, batch in enumerate(DataLoader(list(range(800)), batch_size=8)):
    if sys.argv[1:] == [str(rank)] and step == 2:
        raise ValueError(f"rank {rank} fails")
    torch.Tensor(1.0 + rank).backward()
    optimizer.step()
"""


def test_ranks_are_added_up(
    bench: Bench, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = write(LAUNCHER, "launcher.py")
    write(RANKED)
    start = f"python {launcher}"
    words = ("train.py", "train.py", *QUICK, "--launcher")
    result = bench(*words, f"{start} 2", "--json", "out.json")
    assert result.exit_code in (0, 1), result.output
    assert "warm-up, samples of all ranks\n" in result.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    side = found["sides"][0]
    assert side["losses"] == [1.0] * 6  # of rank 0
    seconds = [sum(run) for run in side["step_seconds"]]
    expected = [2 * 8 * 5 / taken for taken in seconds]
    assert side["rates"] == pytest.approx(expected, rel=1e-3)
    result = bench(*words, f"{start} 2", "--", "1")
    assert result.exit_code == 2
    assert result.stderr.endswith("train.py: ValueError: rank 1 fails\n")
    monkeypatch.setenv("SIZE", "3")
    result = bench(*words, f"{start} 2", "--timeout", "2")
    # they wait for the third
    assert result.stderr.endswith("train.py: only 2 of 3 ranks ran on this machine\n")


def test_what_other_effects_would_fix_is_said(bench: Bench, write: Write) -> None:
    scenario = REPO / "fixtures" / "scripts" / "pm25" / "after.exact.py"
    write(scenario.read_text("utf-8"))
    result = bench("train.py", "--isolated")
    assert result.exit_code == 2
    start = "gpulint: error: train.py: no fix to compare it with; --allow "
    assert result.stderr.startswith(start)
    assert "numerics" in result.stderr


def test_the_parent_never_imports_torch(write: Write) -> None:
    write(trains(), "old.py")
    words = ["bench", "old.py", "old.py", *QUICK]
    code = (
        "import sys\nfrom gpulint.cli import main\n"
        f"try:\n    main({words!r})\n"
        "except SystemExit as stop:\n"
        "    assert 'torch' not in sys.modules\n    sys.exit(stop.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert "losses: equal (6)" in done.stdout
