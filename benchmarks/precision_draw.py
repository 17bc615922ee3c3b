"""Draws findings of gpulint at random, for a person to judge whether each is right.

Each folder is a checkout named OWNER__NAME, with its commit in a file `.commit`. It is
checked as by default, without its settings: findings of low confidence are left out.
The findings are sorted before the draw, which has a fixed seed per repository, so that
the same code and rules give the same lines. Standard output gets the drawn findings,
one JSON object a line; standard error gets a line for each repository: its size, the
number of findings, the CPU time per 1000 lines of Python (its notebooks count as time
only) and what gpulint itself wrote there.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
SEED = 20
DRAWN = 20
CHECK = (
    *("check", "--isolated", "--no-cache"),
    *("--exit-zero", "--output-format", "json"),
)


@dataclass(frozen=True, order=True)
class Finding:
    """One finding; the order of the fields is the order before the draw."""

    repository: str
    commit: str
    path: str
    row: int
    column: int = field(repr=False)
    code: str
    message: str = field(compare=False)
    severity: str = field(compare=False)

    def line(self) -> str:
        """The finding as a JSON line, without the column."""
        shown = asdict(self)
        del shown["column"]
        return json.dumps(shown, ensure_ascii=False)


@dataclass(frozen=True)
class Checked:
    """What one run of gpulint gave."""

    findings: list[Finding]
    cpu_seconds: float
    complaint: str  # what stood on the standard error


def python_lines(folder: Path) -> int:
    """The number of lines in the Python files of a folder; broken links have none."""
    paths = (path for path in folder.rglob("*.py") if path.is_file())
    return sum(path.read_bytes().count(b"\n") for path in paths)


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(folder: Path) -> Checked:
    """Checks a checkout; the findings come sorted."""
    owner, _, name = folder.name.partition("__")
    stamp = folder / ".commit"
    commit = stamp.read_text().strip() if stamp.exists() else ""
    before = children_cpu()
    done = subprocess.run(
        [sys.executable, "-m", "gpulint", *CHECK, str(folder)],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    cpu_seconds = children_cpu() - before
    complaint = done.stderr.strip()
    if done.returncode:
        complaint = f"exit code {done.returncode}: {complaint}"
    findings = [
        Finding(
            repository=f"{owner}/{name}",
            commit=commit,
            path=Path(one["filename"]).relative_to(folder).as_posix(),
            row=one["location"]["row"],
            column=one["location"]["column"],
            code=one["code"],
            message=one["message"],
            severity=one["severity"],
        )
        for one in json.loads(done.stdout or "[]")
    ]
    return Checked(sorted(findings), cpu_seconds, complaint)


def draw(findings: list[Finding], number: int, seed: int) -> list[Finding]:
    """At most so many of the findings, in their order."""
    if len(findings) <= number:
        return findings
    return sorted(random.Random(seed).sample(findings, number))


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="OWNER__NAME")
    parser.add_argument("--number", type=int, default=DRAWN, help="per repository")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(None if arguments is None else list(arguments))
    failed = False
    for folder in given.folders:
        checked = check(folder.resolve())
        drawn = draw(checked.findings, given.number, given.seed)
        for finding in drawn:
            print(finding.line(), flush=True)
        lines = python_lines(folder)
        print(
            f"{folder.name}: {lines} lines, {len(checked.findings)} findings, "
            f"{len(drawn)} drawn, {checked.cpu_seconds:.1f} CPU s, "
            f"{1000 * checked.cpu_seconds / max(lines, 1):.3f} CPU s per 1000 lines",
            file=sys.stderr,
        )
        if checked.complaint:
            failed = failed or checked.complaint.startswith("exit code")
            print(f"{folder.name}: {checked.complaint}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
