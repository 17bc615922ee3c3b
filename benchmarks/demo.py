"""Shows what gpulint says of whole training scripts, what it makes of them, and that
they still train: losses and speed before and after, on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table

SCRIPTS = Path(__file__).resolve().parent.parent / "fixtures" / "scripts"
SCENARIOS = ("ionosphere", "faces", "pm25")
GPULINT = (sys.executable, "-m", "gpulint")
# Idle threads that spin cost a small model up to 8× its time on a busy machine.
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
ROUNDS = 2  # the faster one counts; a first, dropped run fills the disk cache
TIMEOUT_SECONDS = 120


class DemoError(Exception):
    """A command of the demo failed; the message is what it printed."""


@dataclass(frozen=True)
class Training:
    """What a script reports of its own training."""

    losses: tuple[float, ...]
    samples: int
    seconds: float

    @property
    def speed(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds


@dataclass(frozen=True)
class Outcome:
    """One scenario: as written, after the exact fixes, after all of them."""

    scenario: str
    before: Training
    exact: Training
    everything: Training


def run(command: list[str], cwd: Path, accepted: tuple[int, ...] = (0,)) -> str:
    """What a command prints. Raises DemoError on another exit code or a time-out."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        late = f"{' '.join(command)}: still running at {error.timeout} s"
        raise DemoError(late) from error
    if done.returncode not in accepted:
        shown = " ".join(command)
        raise DemoError(f"{shown}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def gpulint(console: Console, folder: Path, *arguments: str) -> str:
    """Runs gpulint on the folder's script, showing the command as one would type it."""
    console.print(f"$ gpulint {' '.join(arguments)} train.py", style="bold")
    command = [*GPULINT, *arguments, "--isolated", "train.py"]
    return run(command, folder, accepted=(0, 1))


def train(folder: Path) -> Training:
    """Trains the script in the folder."""
    output = run([sys.executable, "train.py", "--json"], folder)
    last = json.loads(output.splitlines()[-1])
    return Training(tuple(last["losses"]), last["samples"], last["seconds"])


def train_in_turns(*folders: Path) -> list[Training]:
    """The fastest training of each folder; turns spread what else the machine does."""
    rounds = [[train(folder) for folder in folders] for _ in range(ROUNDS)]
    return [max(runs, key=lambda run: run.speed) for runs in zip(*rounds, strict=True)]


def copy_of(script: Path, folder: Path) -> Path:
    """A folder that holds only the script, as `train.py`."""
    folder.mkdir()
    shutil.copyfile(script, folder / "train.py")
    return folder


def play(console: Console, scenario: str, work: Path) -> Outcome:
    """Checks, fixes and trains one scenario, showing all of it."""
    console.print(Rule(f"[bold]{scenario}"))
    script = SCRIPTS / scenario / "before.py"
    before = copy_of(script, work / "before")
    console.print(gpulint(console, before, "check"), markup=False, highlight=False)

    diff = gpulint(console, before, "fix", "--diff")
    console.print(Syntax(diff, "diff", theme="ansi_dark", word_wrap=True))

    exact = copy_of(script, work / "exact")
    gpulint(console, exact, "fix")
    everything = copy_of(script, work / "all")
    gpulint(console, everything, "fix", "--allow", "all")

    console.print("Training: as written, after `fix`, after `fix --allow all` …\n")
    return Outcome(scenario, *train_in_turns(before, exact, everything))


def identical(before: Training, after: Training) -> str:
    """Whether every loss is the same number, bit for bit."""
    return "[green]yes" if before.losses == after.losses else "[yellow]no"


def summary(outcomes: list[Outcome]) -> Table:
    """One line for each script and each set of fixes."""
    table = Table(title="Trained on this machine")
    table.add_column("script")
    table.add_column("fixes")
    for heading in ("final loss", "samples/s", "× before"):
        table.add_column(heading, justify="right")
    table.add_column("identical losses")
    for outcome in outcomes:
        before = outcome.before
        variants = {
            "none": before,
            "exact": outcome.exact,
            "all": outcome.everything,
        }
        for name, training in variants.items():
            first = training is before
            table.add_row(
                outcome.scenario if first else "",
                name,
                f"{training.losses[-1]:.6f}",
                f"{training.speed:,.0f}",
                "" if first else f"{training.speed / before.speed:.2f}",
                "" if first else identical(before, training),
                end_section=name == "all",
            )
    return table


def main() -> None:
    """Plays all scenarios and ends with the table."""
    console = Console()
    outcomes = []
    try:
        with tempfile.TemporaryDirectory(prefix="gpulint-demo-") as work:
            script = SCRIPTS / SCENARIOS[0] / "before.py"
            train(copy_of(script, Path(work, "warm-up")))
        for scenario in SCENARIOS:
            with tempfile.TemporaryDirectory(prefix="gpulint-demo-") as work:
                outcomes.append(play(console, scenario, Path(work)))
    except DemoError as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        sys.exit(1)
    console.print(summary(outcomes))
    console.print(
        "Exact fixes change no result. The others may change random draws, rounding or "
        "hyperparameters, and are applied only where --allow names them. Without a GPU "
        "only what is loaded and computed on the host can get faster, and differences "
        "of some 20–30 % in speed are the machine's noise."
    )


if __name__ == "__main__":
    main()
