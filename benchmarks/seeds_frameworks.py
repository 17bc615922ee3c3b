"""How fast the scenarios of TensorFlow and MindSpore train, in columns as `seeds.py`.

    make test-frameworks FRAMEWORKS='tensorflow mindspore'  # makes their environments
    python benchmarks/seeds_frameworks.py --out benchmarks/results/framework_seeds.json

*original* is `before.py`, without the arguments that the installed release refuses,
*fixed* what `gpulint fix --allow all` makes of it here, *expert* `expert.py`. They run
in turns, each time in a fresh process, in which `seeds_child.py` notes when passes
begin. After a pass that does not count, some whole passes are timed, the evaluations
between them included; each must have been as many steps as its samples need. The
losses are those of one more training, as long as it is written.

Nothing is tuned: `gpulint tune` runs scripts of PyTorch. Writes JSON, which
`seeds_report.py` turns into the table of the README.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from seeds import (
    COLUMNS,
    ROOT,
    SCRIPTS,
    Size,
    call,
    compared,
    fix,
    import_gpulint_in_children,
    prepare,
    rounded,
    say,
    this_machine,
    write,
)

from gpulint import __version__
from gpulint.bench.runs import in_turns

CHILD = str(ROOT / "benchmarks" / "seeds_child.py")
EPOCHS = 3  # that the scripts train for, as written


@dataclass(frozen=True)
class Scenario:
    """One of fixtures/scripts; the size's edits make it train for more passes."""

    framework: str
    size: Size
    begins: Mapping[str, str]  # by column: where `seeds_child.py` sees a pass begin
    comparable: str  # what can be said of the losses
    refused: str = ""  # lines of before.py with which it does not run


def timed(samples: int, batch: int, expert_batch: int, passes: int, old: str) -> Size:
    """The size as written; passes to time, one ahead of them and one behind."""
    new = old.replace(str(EPOCHS), str(passes + 2))
    return Size(samples, batch, expert_batch, ((old, new),), passes)


SCENARIOS = {
    "emsc": Scenario(
        "tensorflow",
        timed(320, 16, 32, 20, "\nEPOCHS = 3\n"),
        {"original": "fit", "fixed": "fit", "expert": "Trainer.train_epoch"},
        "fixed: the same; expert: half the steps, at a higher learning rate",
        "        workers=1,\n"
        "        use_multiprocessing=False,\n"
        '        max_queue_size=2 if environment == "local" else 10,\n',
    ),
    "tfnet": Scenario(
        "mindspore",
        timed(32, 2, 8, 10, '"epochs": 3,'),
        dict.fromkeys(COLUMNS, "Trainer.evaluate"),
        "fixed: the same; expert: a quarter of the steps, at a higher learning rate",
    ),
}


@dataclass(frozen=True)
class Training:
    """What one process has measured."""

    rate: float  # samples a second
    steps: int  # of a pass
    device: str
    versions: Mapping[str, str]


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def lay_out(work: Path, name: str) -> tuple[dict[str, Path], dict[str, Path]]:
    """The scripts of the columns as they are, and with the passes that are timed."""
    scenario = SCENARIOS[name]
    size = scenario.size
    whole = prepare(work / "whole", name, replace(size, edits=()))
    for file in (SCRIPTS / name).glob("*.json"):
        for script in whole.values():
            shutil.copy(file, script.parent)
    fix(whole["fixed"])
    original = whole["original"]
    original.write_text(original.read_text("utf-8").replace(scenario.refused, ""))
    shutil.copytree(work / "whole", work / "timed")
    for file in (work / "timed").rglob("*.*"):
        text = file.read_text("utf-8")
        for old, new in size.edits:
            text = text.replace(old, new)
        file.write_text(text, "utf-8")
    return whole, {c: work / "timed" / c / script.name for c, script in whole.items()}


def measure(name: str, column: str, script: Path, python: str) -> Training:
    """Train once with a script, in a process of its own."""
    scenario = SCENARIOS[name]
    size, where = scenario.size, scenario.begins[column]
    words = (CHILD, scenario.framework, script.name, where)
    output = call(script.parent, *words, python=python, quiet=True)
    said = json.loads(output.splitlines()[-1])
    begins = said["marks"][: size.passes + 2]  # a script may train once more
    if len(begins) < size.passes + 2:
        raise SystemExit(f"{name}, {column}: {len(begins)} passes begin, not enough")
    steps = {b[1] - a[1] for a, b in itertools.pairwise(begins)}
    batches = {"original": size.batch, "expert": size.expert_batch}
    wanted = {size.steps(batches[column])} if column in batches else steps
    if steps != wanted or len(steps) != 1:
        raise SystemExit(f"{name}, {column}: {steps} steps a pass, not {wanted}")
    seconds = begins[-1][0] - begins[1][0]
    rate = size.passes * size.samples / seconds
    say(f"  {column}: {rate:.0f} samples/s")
    return Training(rate, steps.pop(), said["device"], said["versions"])


def losses(script: Path, python: str) -> list[float]:
    """What a training prints: a list as its last line, or a line for each pass."""
    output = call(script.parent, script.name, python=python, quiet=True)
    lines = output.splitlines()
    each = [float(line.split()[1]) for line in lines if line.startswith("loss ")]
    found: list[float] = each or json.loads(lines[-1])
    return [rounded(loss) for loss in found]


def examine(name: str, repeats: int, python: str) -> dict[str, Any]:
    """One scenario, all columns."""
    scenario = SCENARIOS[name]
    with tempfile.TemporaryDirectory(prefix="gpulint-seeds-") as folder:
        say(f"{name}: gpulint fix --allow all")
        whole, scripts = lay_out(Path(folder), name)

        def train(column: str) -> Training:
            return measure(name, column, scripts[column], python)

        found = in_turns(COLUMNS, repeats, train, random.Random(repeats))
        runs = dict(zip(COLUMNS, found, strict=True))
        rates = {column: [run.rate for run in its] for column, its in runs.items()}
        result = compared(rates)
        for column, its in result["columns"].items():
            its["steps"] = runs[column][0].steps
            its["batch_size"] = -(-scenario.size.samples // its["steps"])
            its["losses"] = losses(whole[column], python)
            its["last_losses"] = [its["losses"][EPOCHS - 1]]
    return {
        "name": name,
        "framework": scenario.framework,
        "device": found[0][0].device,
        "versions": found[0][0].versions,
        "samples": scenario.size.samples,
        "passes": scenario.size.passes,
        "losses_comparable": scenario.comparable,
        **result,
    }


def environment(folder: Path, framework: str) -> Path:
    """The Python that has a framework."""
    return folder / framework / "bin" / "python"


def main() -> None:
    parser = Parser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--repeats", type=int, default=6, help="of each column")
    parser.add_argument(
        "--environments",
        type=Path,
        default=ROOT / ".frameworks",
        help="where `make test-frameworks` has made them",
    )
    parser.add_argument("--out", type=Path, help="a file; default: standard output")
    args = parser.parse_args()
    if args.repeats < 2:
        parser.error("an interval needs --repeats 2 and more")
    if args.out is not None and not args.out.parent.is_dir():
        parser.error(f"--out: there is no folder {args.out.parent}")
    pythons = {}
    for name in args.scenarios:
        framework = SCENARIOS[name].framework
        python = environment(args.environments.absolute(), framework)
        if not python.exists():
            run = f"run `make test-frameworks FRAMEWORKS={framework}`"
            parser.error(f"there is no {python}: {run}")
        pythons[name] = str(python)
    import_gpulint_in_children()
    machine = this_machine()
    scenarios = [examine(name, args.repeats, pythons[name]) for name in pythons]
    result = {
        "repeats": args.repeats,
        "machine": machine,
        "versions": {"gpulint": __version__, "python": sys.version.split()[0]},
        "scenarios": scenarios,
    }
    write(result, args.out)


if __name__ == "__main__":
    main()
