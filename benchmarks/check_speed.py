"""CPU seconds that gpulint and other linters take for 1000 lines of the same tree.

Each tool runs in an environment of its own, made from the package index on first use.
All read one copy of the tree's Python files, so that no tool skips what another reads
and no settings of the tree count. CPU time is that of the tool and all its children,
the best of several runs; nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

REPO = Path(__file__).resolve().parent.parent
RESULT = REPO / "benchmarks" / "results" / "check_speed.json"
ENVIRONMENTS = REPO / ".bench-envs"
SLOW_SECONDS = 60.0  # a tool that takes longer runs once
NOT_SOURCE = {"build", "dist", "node_modules", "site-packages", "venv", "__pycache__"}

ONE_FILE = '''\
"""A training script of a usual length, for the time of checking one file."""

import torch
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda")
dataset = TensorDataset(torch.rand(64, 8), torch.rand(64))
loader = DataLoader(dataset, batch_size=8)
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        loss = torch.nn.functional.mse_loss(model(inputs).squeeze(1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
'''


@dataclass(frozen=True)
class Tool:
    """One row of the table: what is installed, what runs, which exits are fine."""

    name: str
    package: str
    command: tuple[str, ...]
    accepted: tuple[int, ...] = (0,)


GPULINT_CHECK = (
    "gpulint",
    "check",
    "--isolated",
    "--no-cache",
    "--select",
    "ALL",
    "--exit-zero",
)
RUFF_CHECK = ("ruff", "check", "--isolated", "--no-cache", "--exit-zero")
# The peers run in one process: a pool costs them more CPU time, never less.
TOOLS = (
    Tool("gpulint", "gpulint", GPULINT_CHECK),
    Tool(
        "torch-preflight",
        "torch-preflight",
        ("torch-preflight", "check", "-j", "1"),
        (0, 1),
    ),
    Tool("TorchFix", "torchfix", ("torchfix", "-j", "1", "--select", "ALL"), (0, 1)),
    Tool("ruff", "ruff", RUFF_CHECK),
    Tool("ruff, all rules", "ruff", (*RUFF_CHECK, "--select", "ALL", "--quiet")),
)


@dataclass(frozen=True)
class Measured:
    """What one tool took."""

    tool: Tool
    version: str
    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        """CPU seconds of the fastest run."""
        return min(self.seconds)


class Environments:
    """One virtual environment a package, under `folder`, made when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fresh: set[str] = set()

    def bin(self, package: str) -> Path:
        """The folder with the package's commands."""
        home = self._folder / package
        if not (home / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
        if package == "gpulint":
            self._install_checkout(home)
        elif not (home / "bin" / package).exists():
            self._pip(home, package)
        return home / "bin"

    def version(self, package: str) -> str:
        """The installed version of the package."""
        code = "import importlib.metadata, sys; print(importlib.metadata.version"
        python = self.bin(package) / "python"
        return _output([str(python), "-c", f"{code}(sys.argv[1]))", package])

    def _install_checkout(self, home: Path) -> None:
        """gpulint as a user gets it: the wheel of this checkout, not its folder."""
        if "gpulint" in self._fresh:
            return
        if not (home / "bin" / "gpulint").exists():
            self._pip(home, "hatchling", str(REPO))
        else:
            forced = ("--force-reinstall", "--no-deps", "--no-build-isolation")
            self._pip(home, *forced, str(REPO))
        self._fresh.add("gpulint")

    def _pip(self, home: Path, *arguments: str) -> None:
        python = str(home / "bin" / "python")
        quiet = ("-qq", "--disable-pip-version-check")
        subprocess.run([python, "-m", "pip", "install", *quiet, *arguments], check=True)


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def cpu_seconds(command: list[str], accepted: tuple[int, ...]) -> float:
    """User and system time of one run with its children; its output is dropped.

    Raises RuntimeError when the exit code is not among the accepted ones.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, cwd=tempfile.gettempdir()
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in accepted:
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-2000:]
            shown = " ".join(command)
            raise RuntimeError(f"{shown}: exit {process.returncode}\n{said}")
    return usage.ru_utime + usage.ru_stime


def measure(
    tools: list[Tool], environments: Environments, path: Path, runs: int
) -> list[Measured]:
    """Runs the tools over the path in turn, each after a start that leaves bytecode.

    In turn, so that what else the machine does at a time concerns all of them.
    """
    commands = {}
    for tool in tools:
        program = str(environments.bin(tool.package) / tool.command[0])
        cpu_seconds([program, "--version"], tool.accepted)
        commands[tool] = [program, *tool.command[1:], str(path)]
    seconds: dict[Tool, list[float]] = {tool: [] for tool in tools}
    for _ in range(runs):
        for tool, command in commands.items():
            if not seconds[tool] or seconds[tool][0] < SLOW_SECONDS:
                seconds[tool].append(cpu_seconds(command, tool.accepted))
    return [
        Measured(tool, environments.version(tool.package), tuple(seconds[tool]))
        for tool in tools
    ]


def start_up(
    environments: Environments, folder: Path, runs: int
) -> dict[str, list[float]]:
    """CPU seconds of `gpulint --version` and of checking one short file."""
    script = folder / "train.py"
    script.write_text(ONE_FILE, encoding="utf-8")
    program = str(environments.bin("gpulint") / "gpulint")
    commands = {
        "version": [program, "--version"],
        "one_file": [program, *GPULINT_CHECK[1:], str(script)],
    }
    return {
        name: [round(cpu_seconds(command, (0,)), 3) for _ in range(runs)]
        for name, command in commands.items()
    }


def python_files(tree: Path) -> Iterator[Path]:
    """The tree's own Python files: no hidden, built or installed ones."""
    for path in sorted(tree.rglob("*.py")):
        folders = path.relative_to(tree).parts[:-1]
        hidden = any(name.startswith(".") or name in NOT_SOURCE for name in folders)
        if path.is_file() and not hidden:
            yield path


def copy_sources(tree: Path, to: Path) -> tuple[int, int]:
    """Copies the Python files, keeping their folders; how many, and their lines."""
    files = lines = 0
    for path in python_files(tree):
        target = to / path.relative_to(tree)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        files += 1
        lines += target.read_bytes().count(b"\n")
    return files, lines


def commit_of(tree: Path) -> str | None:
    """The commit checked out in the tree, where it is the root of a repository."""
    if not (tree / ".git").exists():
        return None
    return _output(["git", "-C", str(tree), "rev-parse", "HEAD"])


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def row(measured: Measured, lines: int, gpulint: float) -> dict[str, object]:
    """One tool's entry in the JSON file."""
    return {
        "name": measured.tool.name,
        "version": measured.version,
        "command": " ".join([*measured.tool.command, "TREE"]),
        "runs": [round(value, 3) for value in measured.seconds],
        "cpu_seconds": round(measured.best, 3),
        "cpu_seconds_per_1000_lines": round(1000 * measured.best / lines, 5),
        "ratio_to_gpulint": round(measured.best / gpulint, 2),
    }


def show(console: Console, result: dict[str, object], rows: list[Measured]) -> None:
    """The table, with lines per CPU second for those who think in those."""
    lines = int(str(result["lines"]))
    title = f"{result['tree']}: {lines} lines in {result['files']} files"
    table = Table(title=title)
    for heading in ("tool", "version"):
        table.add_column(heading, no_wrap=True)
    for heading in ("CPU s", "ms/kline", "lines/CPU s", "× gpulint"):
        table.add_column(heading, justify="right", no_wrap=True)
    gpulint = rows[0].best
    for entry in rows:
        table.add_row(
            entry.tool.name,
            entry.version,
            f"{entry.best:.2f}",
            f"{1e6 * entry.best / lines:.1f}",
            f"{lines / entry.best:,.0f}",
            f"{entry.best / gpulint:.2f}",
        )
    console.print(table)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("tree", type=Path, nargs="?", help="default: the utilities of installed torch")
    add("--envs", type=Path, default=ENVIRONMENTS, help="where environments are kept")
    add("--runs", type=int, default=3, help="runs a tool; one if it is very slow")
    packages = ",".join(dict.fromkeys(tool.package for tool in TOOLS))
    add("--packages", default=packages, help="default: %(default)s")
    add("-o", "--output", type=Path, default=RESULT)
    return parser.parse_args()


def default_tree() -> Path:
    """A tree that is there without a download."""
    code = "import importlib.util as u; print(u.find_spec('torch').origin)"
    return Path(_output([sys.executable, "-c", code])).parent / "utils"


def main() -> None:
    """Measures, prints the table, writes the JSON file."""
    options = arguments()
    tree: Path = (options.tree or default_tree()).resolve()
    wanted = set(options.packages.split(",")) | {"gpulint"}
    tools = [tool for tool in TOOLS if tool.package in wanted]
    environments = Environments(options.envs.resolve())
    console = Console()
    with tempfile.TemporaryDirectory(prefix="gpulint-speed-") as temporary:
        sources = Path(temporary, "sources")
        files, lines = copy_sources(tree, sources)
        if not lines:
            sys.exit(f"{options.tree}: no Python files")
        rows = measure(tools, environments, sources, options.runs)
        starts = start_up(environments, Path(temporary), max(options.runs, 5))
    result: dict[str, object] = {
        "tree": tree.name,
        "commit": commit_of(tree),
        "files": files,
        "lines": lines,
        "python": platform.python_version(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "tools": [row(entry, lines, rows[0].best) for entry in rows],
        "start_up_cpu_seconds": {name: min(runs) for name, runs in starts.items()},
    }
    show(console, result, rows)
    for name, runs in starts.items():
        console.print(f"gpulint, {name.replace('_', ' ')}: {min(runs):.3f} CPU s")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
