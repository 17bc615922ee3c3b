"""How fast the scenarios train: as written, as fixed and tuned, and written by hand.

    python benchmarks/seeds.py --out benchmarks/results/seeds_cpu.json

For each scenario of fixtures/scripts three columns: *original* is `before.py`, *fixed*
what `gpulint fix --allow all` makes of it, with the values that `gpulint tune` finds
here, *expert* `expert.py`. They run in turns, each time in a fresh process, in which
the child of `gpulint bench` counts and times the optimizer's steps. Each is given the
steps that make up the same number of samples: from the second step of the second pass
over the training data on, some whole passes, the evaluations between them included.
What is done once is not timed: the first pass and evaluation, the start of workers.
The losses are those of one more training, from its start to its end.

Writes JSON, which `seeds_report.py` turns into the table and the plot of the README,
after each scenario; `--add` keeps those that the file has, where all else is the same.
On a machine with a GPU the sizes are those of the write-ups (`--size seed`); there the
augmentation of the faces is timed as well, by worker processes and on the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulint import __version__
from gpulint.bench.runs import Children, Limits, Run, Setting, Variant, in_turns
from gpulint.bench.statistics import SHOWN, Interval, median_interval, ratio_interval
from gpulint.runtime._limits import available_cpus

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "fixtures" / "scripts"
COLUMNS = ("original", "fixed", "expert")
TIMEOUT = 1800.0  # seconds, of one run
TUNING_EPOCHS = 40  # so that a large batch has its steps
PROBE = """
import json, sys, torch
from gpulint import runtime
gpu = torch.cuda.is_available()
print(json.dumps({
    "python": sys.version.split()[0], "torch": torch.__version__,
    "threads": torch.get_num_threads(), "name": runtime.hardware().name,
    "gpu": torch.cuda.get_device_name() if gpu else None,
}))
"""


@dataclass(frozen=True)
class Size:
    """How much one scenario trains with; edits are made in all of its scripts."""

    samples: int  # of a pass
    batch: int  # as written
    expert_batch: int
    edits: tuple[tuple[str, str], ...] = ()
    passes: int = 3  # that are timed

    def steps(self, batch: int) -> int:
        """The steps of a pass."""
        return -(-self.samples // batch)


@dataclass(frozen=True)
class Scenario:
    """One of fixtures/scripts."""

    sizes: Mapping[str, Size]
    comparable: str  # what can be said of the losses
    first_steps: int = 0  # of another training ahead of the first pass


SCENARIOS = {
    "ionosphere": Scenario(
        {
            "small": Size(4224, 128, 128, passes=4),
            "seed": Size(
                105_600,
                2048,
                4096,
                (
                    ('"tracks": 24', '"tracks": 600'),
                    ('"batch_size": 128', '"batch_size": 2048'),
                    ('"grid": (24, 18, 36)', '"grid": (720, 72, 36)'),
                    ('"hidden": 128', '"hidden": 256'),
                    # the write-up's own step on a GPU
                    (
                        'BATCH_SIZE = CONFIG["batch_size"]\nVAL',
                        'BATCH_SIZE = 2 * CONFIG["batch_size"]\nVAL',
                    ),
                ),
                passes=1,
            ),
        },
        "fixed: the same; expert: another order of the samples",
    ),
    "faces": Scenario(
        {
            "small": Size(128, 16, 16),
            "seed": Size(
                256,
                32,
                32,
                (
                    ('"image_size": 48', '"image_size": 512'),
                    ('"batch_size": 16', '"batch_size": 32'),
                    ('"train_images": 128', '"train_images": 256'),
                ),
            ),
        },
        "other random draws for the augmentation; expert: another order too",
        first_steps=10,
    ),
    "pm25": Scenario(
        {
            "small": Size(2976, 32, 256),
            "seed": Size(
                19_280,
                32,
                256,
                (
                    ("WINDOW = 24", "WINDOW = 720"),
                    ("make_series(4200", "make_series(25200"),
                    ("[:3000]", "[:20000]"),
                    ("[3000:3600]", "[20000:22600]"),
                    ("[3600:]", "[22600:]"),
                    # A step of Adam moves a unit with 17280 inputs by up to that many
                    # times its rate: with 1e-3 the first ones leave few units alive.
                    ("LEARNING_RATE = 1e-3", "LEARNING_RATE = 1e-4"),
                ),
                passes=1,
            ),
        },
        "larger batches: fewer steps in as many epochs, at a higher learning rate",
    ),
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def call(
    folder: Path, *words: str, python: str = sys.executable, quiet: bool = False
) -> str:
    """What a Python prints in a folder; its complaints go to our standard error.

    `quiet`: only where it fails. Raises SystemExit then.
    """
    words = (python, *words)
    errors = subprocess.PIPE if quiet else None
    done = subprocess.run(
        words,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        check=False,
    )
    if done.returncode:
        say((done.stderr or "").rstrip())
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}")
    return done.stdout


def edited(name: str, file: str, size: Size) -> str:
    """A script of the scenario in this size."""
    text = (SCRIPTS / name / file).read_text("utf-8")
    for old, new in size.edits:
        text = text.replace(old, new)
    return text


def prepare(work: Path, name: str, size: Size) -> dict[str, Path]:
    """The scripts of the columns, each in a folder of its own."""
    scripts = {column: work / column / "train.py" for column in COLUMNS}
    for script in scripts.values():
        script.parent.mkdir(parents=True)
    before = edited(name, "before.py", size)
    scripts["original"].write_text(before, "utf-8")
    scripts["fixed"].write_text(before, "utf-8")
    scripts["expert"].write_text(edited(name, "expert.py", size), "utf-8")
    scripts["expert"].with_name("before.py").write_text(before, "utf-8")
    return scripts


def fix(script: Path) -> None:
    """Rewrite the script as the command does, what may gain nothing as well."""
    words = ("fix", "--allow", "all", "--select", "ALL", "--isolated", "--exit-zero")
    call(script.parent, "-m", "gpulint", *words, "--quiet", script.name)


def tune(script: Path) -> dict[str, Any]:
    """What tuning finds for this machine."""
    epochs = str(TUNING_EPOCHS)
    call(script.parent, "-m", "gpulint", "tune", script.name, "--", "--epochs", epochs)
    content = json.loads(script.with_name("gpulint.tuned.json").read_text("utf-8"))
    entry: dict[str, Any] = content["entries"][0]
    return {key: entry[key] for key in ("batch_size", "workers") if key in entry}


def tuned_batch(tuned: Mapping[str, Any], size: Size) -> int:
    """Samples a step of the fixed script."""
    return int(tuned.get("batch_size", {}).get("train", size.batch))


def measure(
    scripts: Mapping[str, Path],
    batches: Mapping[str, int],
    scenario: Scenario,
    size: Size,
    repeats: int,
) -> dict[str, list[Run]]:
    """Run the columns in turns, each for the same number of samples."""

    def limits(batch: int) -> Limits:
        steps = size.steps(batch)
        before = scenario.first_steps + steps + 1
        return Limits(size.passes * steps, before, TIMEOUT)

    def ignore(_: object) -> None:
        """Progress and output are of no interest."""

    setting = Setting(("--epochs", str(size.passes + 2)))  # the last one is begun
    children = {
        column: Children(setting, limits(batches[column]), ignore, ignore)
        for column in COLUMNS
    }

    def run(variant: Variant) -> Run:
        found = children[variant.label](variant)
        trained = sum(samples or 0 for samples in found.samples)
        if trained != size.passes * size.samples:
            wanted = f"{size.passes} times {size.samples}"
            raise SystemExit(f"{variant.label}: {trained} samples, not {wanted}")
        say(f"  {variant.label}: {rate(found):.0f} samples/s")
        return found

    variants = [Variant(column, str(scripts[column])) for column in COLUMNS]
    runs = in_turns(variants, repeats, run, random.Random(repeats))
    return dict(zip(COLUMNS, runs, strict=True))


def rate(run: Run) -> float:
    """Samples a second, with all that comes between the steps."""
    return sum(samples or 0 for samples in run.samples) / sum(run.seconds)


def last_losses(scripts: Mapping[str, Path]) -> dict[str, list[float]]:
    """The last losses of each column; their trainings run side by side."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(scripts, pool.map(train, scripts.values()), strict=True))


def train(script: Path) -> list[float]:
    """The losses of training and validation in the last epoch of a whole training."""
    output = call(script.parent, script.name, "--json")
    losses: list[float] = json.loads(output.splitlines()[-1])["losses"]
    return losses[-2:]


def data_wait(runs: Sequence[Run]) -> float:
    """The share of the time in which a step waited for its batch."""
    waits = sum(sum(run.waits) for run in runs)
    return rounded(waits / sum(sum(run.seconds) for run in runs))


def compared(rates: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The rates of the columns, in samples a second of each run, and their ratios."""

    def ratio(before: str, after: str) -> dict[str, float]:
        return as_json(ratio_interval(rates[before], rates[after]))

    return {
        "columns": {
            column: {
                "samples_per_second": as_json(median_interval(its)),
                "runs": [rounded(each) for each in its],
            }
            for column, its in rates.items()
        },
        "fixed_to_original": ratio("original", "fixed"),
        "expert_to_original": ratio("original", "expert"),
        "fixed_to_expert": ratio("expert", "fixed"),
    }


def as_json(its: Interval) -> dict[str, float]:
    values = {"value": its.value, "low": its.low, "high": its.high}
    return {**{name: rounded(value) for name, value in values.items()}, "level": SHOWN}


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def examine(
    name: str, which: str, repeats: int, *, gpu: bool, tuning: bool
) -> dict[str, Any]:
    """One scenario, all columns."""
    scenario = SCENARIOS[name]
    size = scenario.sizes[which]
    with tempfile.TemporaryDirectory(prefix="gpulint-seeds-") as folder:
        scripts = prepare(Path(folder), name, size)
        say(f"{name}: gpulint fix --allow all{', gpulint tune' if tuning else ''}")
        fix(scripts["fixed"])
        tuned = tune(scripts["fixed"]) if tuning else {}
        batches = {
            "original": size.batch,
            "fixed": tuned_batch(tuned, size),
            "expert": size.expert_batch,
        }
        runs = measure(scripts, batches, scenario, size, repeats)
        found = compared({c: [rate(run) for run in its] for c, its in runs.items()})
        losses = last_losses(scripts)
        for column, its in found["columns"].items():
            its["data_wait"] = data_wait(runs[column])
            its["batch_size"] = batches[column]
            its["last_losses"] = [rounded(each) for each in losses[column]]
        if gpu and name == "faces":
            words = (str(ROOT / "benchmarks" / "seeds_augmentation.py"), "cuda")
            output = call(scripts["expert"].parent, *words)
            found["augmentation"] = json.loads(output.splitlines()[-1])
    return {
        "name": name,
        "samples": size.samples,
        "passes": size.passes,
        "tuned": tuned,
        "losses_comparable": scenario.comparable,
        **found,
    }


def import_gpulint_in_children() -> None:
    """Let what is started from here import this gpulint, wherever it runs."""
    own = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([own] if own else [])])


def this_machine() -> dict[str, Any]:
    """What runs here, and how busy it is (processes that run or wait to)."""
    return {
        "cpus": available_cpus(),
        "architecture": platform.machine(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def write(result: Mapping[str, Any], out: Path | None) -> None:
    """As JSON to a file, or to standard output."""
    text = json.dumps(result, indent=1) + "\n"
    if out is None:
        print(text, end="")
    else:
        out.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--size", choices=("small", "seed"), help="default: seed where a GPU is"
    )
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument(
        "--no-tune", action="store_true", help="the fixed script by its policy alone"
    )
    parser.add_argument("--repeats", type=int, default=4, help="of each column")
    parser.add_argument("--out", type=Path, help="a file; default: standard output")
    parser.add_argument(
        "--add", action="store_true", help="to what the file has of other scenarios"
    )
    args = parser.parse_args()
    if args.repeats < 2:
        parser.error("an interval needs --repeats 2 and more")
    if args.add and args.out is None:
        parser.error("--add needs --out")
    import_gpulint_in_children()
    probe = json.loads(call(ROOT, "-c", PROBE))
    size = args.size or ("seed" if probe["gpu"] else "small")
    gpu = probe.pop("gpu")
    machine = {"gpu": gpu, "threads": probe.pop("threads"), "name": probe.pop("name")}
    result: dict[str, Any] = {
        "size": size,
        "repeats": args.repeats,
        "machine": {**machine, **this_machine()},
        "versions": {"gpulint": __version__, **probe},
        "scenarios": [],
    }
    if args.add and args.out.exists():
        result = joined(json.loads(args.out.read_text("utf-8")), result)
    for name in args.scenarios:
        found = examine(
            name, size, args.repeats, gpu=gpu is not None, tuning=not args.no_tune
        )
        others = [its for its in result["scenarios"] if its["name"] != name]
        order = list(SCENARIOS)
        result["scenarios"] = sorted(
            [*others, found], key=lambda its: order.index(its["name"])
        )
        if args.out is not None:  # what was measured stays where a run is cut off
            write(result, args.out)
    if args.out is None:
        write(result, None)


def joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What was measured before, to be gone on with on the same machine.

    Raises SystemExit where it was another one, or measured otherwise.
    """
    load = "load_before"
    mine, its = ({**each["machine"], load: 0.0} for each in (new, old))
    same = all(old[key] == new[key] for key in ("size", "repeats", "versions"))
    if mine != its or not same:
        raise SystemExit("--add: the file is of another machine, size or version")
    busiest = max(old["machine"][load], new["machine"][load])
    return {**old, "machine": {**old["machine"], load: busiest}}


if __name__ == "__main__":
    main()
