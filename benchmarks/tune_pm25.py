"""What `gpulint tune` finds for a small training, and whether it holds.

Tunes a rewritten script of fixtures/scripts, then trains it as written and as tuned
in turns, each in a fresh process. Prints a JSON object: the runs of the search, the
samples a second of all trainings (validation included), and the median ratio of two
trainings that followed each other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpulint.runtime import available_cpus

SCRIPT = Path(__file__).parent.parent / "fixtures" / "scripts" / "pm25" / "after.all.py"
ROOT = str(Path(__file__).resolve().parent.parent)


def run(folder: Path, *words: str, **variables: str) -> str:
    """Output of Python in a folder; its log goes to our standard error."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ROOT, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def tune(folder: Path, epochs: int) -> dict[str, Any]:
    """The entry that tuning makes; enough epochs that a large batch has its steps."""
    arguments = ["train.py", "--", "--epochs", str(epochs)]
    run(folder, "-m", "gpulint", "tune", *arguments)
    content = json.loads((folder / "gpulint.tuned.json").read_text("utf-8"))
    entry: dict[str, Any] = content["entries"][0]
    return entry


def speed(folder: Path, epochs: int, tuned: str) -> float:
    """Samples a second of a training in a fresh process."""
    arguments = ["train.py", "--epochs", str(epochs), "--json"]
    output = run(folder, *arguments, GPULINT_TUNED=tuned)
    last = json.loads(output.splitlines()[-1])
    return round(float(last["samples"]) / float(last["seconds"]), 1)


def measure(folder: Path, epochs: int, rounds: int) -> dict[str, Any]:
    """Both in turns, each going first every other time."""
    rates: dict[str, list[float]] = {"off": [], "on": []}
    for number in range(rounds):
        for tuned in ("off", "on") if number % 2 else ("on", "off"):
            rates[tuned].append(speed(folder, epochs, tuned))
    pairs = zip(rates["on"], rates["off"], strict=True)
    return {
        "as_written": rates["off"],
        "tuned": rates["on"],
        "ratio": round(statistics.median(on / off for on, off in pairs), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4, help="of each training")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copyfile(SCRIPT, folder / "train.py")
        found = tune(folder, epochs=40)
        result = measure(folder, args.epochs, args.rounds)
    about = {"machine": f"{available_cpus()} CPU cores, {platform.machine()}, no GPU"}
    kept = {key: found[key] for key in ("batch_size", "samples_per_second", "table")}
    print(json.dumps({**about, "found": kept, "samples_per_second": result}, indent=1))


if __name__ == "__main__":
    main()
