"""How often `gpulint bench` finds a difference where there is none.

Compares a script of fixtures/scripts with itself, again and again, and writes JSON:
each verdict with its ratio and 99 % interval, and how many showed no difference.
`--simulate` asks the same of made-up noise instead, which takes a minute and no quiet
machine, and prints for each kind of noise the percent of wrong verdicts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpulint.bench.runs import orders
from gpulint.bench.statistics import verdict
from gpulint.runtime import available_cpus

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "bench_no_change.json"
NO_CHANGE = "no difference shown"
REPEATS = (4, 5, 6, 8, 10)
Noise = Callable[[random.Random, int], list[float]]  # logarithms of rates, in order


def compare(script: Path, words: Sequence[str]) -> dict[str, Any]:
    """What `gpulint bench` says of a script and itself."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bench.json")
        command = [sys.executable, "-m", "gpulint", "bench", script.name, script.name]
        began = time.monotonic()
        done = subprocess.run(
            [*command, *words, "--json", str(file)],
            cwd=script.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if not file.exists():
            sys.exit(done.stderr.splitlines()[-1])
        found = json.loads(file.read_text("utf-8"))
    its = found["decisive"]
    return {
        "verdict": found["verdict"],
        "ratio": its["value"],
        "interval": [its["low"], its["high"]],
        "losses": found["losses"]["text"],
        "load": [found["machine"]["load_before"], found["machine"]["load_after"]],
        "seconds": round(time.monotonic() - began, 1),
    }


def independent(draw: random.Random, count: int) -> list[float]:
    return [draw.gauss(0, 0.05) for _ in range(count)]


def slowing(draw: random.Random, count: int) -> list[float]:
    return [draw.gauss(0, 0.01) - 0.03 * i for i in range(count)]


def warming(draw: random.Random, count: int) -> list[float]:
    return [draw.gauss(0, 0.01) - 0.3 * math.exp(-i / 3) for i in range(count)]


def throttled(draw: random.Random, count: int) -> list[float]:
    start = draw.randrange(count)
    return [draw.gauss(0, 0.01) - 0.3 * (i >= start) for i in range(count)]


def wandering(draw: random.Random, count: int) -> list[float]:
    values, at = [], 0.0
    for _ in range(count):
        at += draw.gauss(0, 0.05)
        values.append(at + draw.gauss(0, 0.01))
    return values


def interrupted(draw: random.Random, count: int) -> list[float]:
    return [
        draw.gauss(0, 0.01) - (draw.random() < 0.2) * draw.uniform(0.2, 0.8)
        for _ in range(count)
    ]


def of_two_speeds(draw: random.Random, count: int) -> list[float]:
    return [draw.gauss(0, 0.003) - 0.3 * (draw.random() < 0.5) for _ in range(count)]


def in_spells(draw: random.Random, count: int) -> list[float]:
    values, slow = [], draw.random() < 0.5
    for _ in range(count):
        slow ^= draw.random() < 0.3
        values.append(draw.gauss(0, 0.003) - 0.3 * slow)
    return values


def periodic(draw: random.Random, count: int) -> list[float]:
    period = draw.choice((2, 3, 4, 5, 6, 8))
    start = draw.randrange(period)
    return [
        draw.gauss(0, 0.003) + 0.2 * ((i + start) % period * 2 < period)
        for i in range(count)
    ]


NOISES: tuple[Noise, ...] = (
    independent,
    slowing,
    warming,
    throttled,
    wandering,
    interrupted,
    of_two_speeds,
    in_spells,
    periodic,
)


def wrong(noise: Noise, repeats: int, trials: int) -> float:
    """Percent of the trials in which two equals seem to differ."""
    count = 0
    for trial in range(trials):
        draw = random.Random(trial)
        logs = iter(noise(draw, 2 * repeats))
        rates: tuple[list[float], list[float]] = ([], [])
        for order in orders(2, repeats, draw):
            for place in order:
                rates[place].append(math.exp(next(logs)))
        count += verdict(*rates) != NO_CHANGE
    return round(100 * count / trials, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--scenario", default="pm25", help="of fixtures/scripts")
    parser.add_argument("--steps", default="40")
    parser.add_argument("--warmup", default="10")
    parser.add_argument("--repeats", default="6")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--trials", type=int, default=4000)
    args = parser.parse_args()
    if args.simulate:
        found = {
            noise.__name__: {str(n): wrong(noise, n, args.trials) for n in REPEATS}
            for noise in NOISES
        }
        print(json.dumps({"percent_wrong_by_repeats": found}, indent=1))
        return
    script = ROOT / "fixtures" / "scripts" / args.scenario / "before.py"
    options = ["--steps", args.steps, "--warmup", args.warmup]
    options += ["--repeats", args.repeats]
    comparisons = []
    for number in range(args.runs):
        comparisons.append(compare(script, options))
        print(f"{number + 1} of {args.runs}: {comparisons[-1]}", file=sys.stderr)
    result = {
        "machine": f"{available_cpus()} CPU cores, {platform.machine()}, no GPU",
        "scenario": args.scenario,
        "options": options,
        "no_difference": sum(c["verdict"] == NO_CHANGE for c in comparisons),
        "of": len(comparisons),
        "comparisons": comparisons,
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{result['no_difference']} of {result['of']} showed no difference")


if __name__ == "__main__":
    main()
