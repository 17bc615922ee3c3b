"""How much gpulint finds of what a reader lists in repositories that are new to it.

`recall.jsonl` has a line for each place that somebody who read the training code whole,
and had not seen what gpulint says, would want reported: repository, commit, path, row,
rule, how sure the reader is, and what it costs; `set` names the reading. Each folder is
a checkout named OWNER__NAME. A place is found where a finding of the same kind stands,
or names another place, at most twelve lines away. Standard output gets a line for each
rule: its places, those that a plain check prints, those that it knows with low
confidence; `--missed` lists the others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

REPO = Path(__file__).resolve().parent.parent
LABELS = REPO / "benchmarks" / "recall.jsonl"
CHECK = (
    *("check", "--isolated", "--no-cache", "--exit-zero"),
    *("--min-confidence", "low", "--output-format", "json", "-q"),
)
NEAR = 12  # lines: of a loop with several such calls a finding shows the first
# Rules that say the same of a place as far as a reader is concerned.
KINDS: dict[str, frozenset[str]] = {
    code: frozenset(group)
    for group in (
        ("GPU101", "GPU102", "GPU103"),
        ("GPU104", "GPU105"),
        ("GPU106", "GPU109", "GPU153", "GPU171"),
        ("GPU201", "GPU251", "GPU261"),
        ("GPU203", "GPU251"),
        ("GPU301", "GPU351", "GPU361"),
    )
    for code in group
}


class Place(NamedTuple):
    """Where something is found or listed: path from the repository's root, and row."""

    path: str
    row: int


class Found(NamedTuple):
    """A finding: its rule, whether a plain check prints it, and all its places."""

    code: str
    printed: bool
    places: tuple[Place, ...]


def read_findings(folder: Path) -> list[Found]:
    """All findings in a checkout, those of low confidence included."""
    done = subprocess.run(
        [sys.executable, "-m", "gpulint", *CHECK, str(folder)],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    )
    return [_found(folder, one) for one in json.loads(done.stdout or "[]")]


def _found(folder: Path, one: dict[str, Any]) -> Found:
    shown = [one, *one["related"], *one["evidence"]]
    places = (
        Place(
            Path(its["filename"]).relative_to(folder).as_posix(), its["location"]["row"]
        )
        for its in shown
        if "location" in its and folder in Path(its["filename"]).parents
    )
    return Found(one["code"], one["confidence"] != "low", tuple(places))


def finds(code: str, place: Place, findings: Iterable[Found]) -> bool | None:
    """Whether a listed place is printed; None: it is not known at all."""
    kinds = KINDS.get(code, frozenset((code,)))
    printed = [
        found.printed
        for found in findings
        if found.code in kinds
        and any(
            p.path == place.path and abs(p.row - place.row) <= NEAR
            for p in found.places
        )
    ]
    return any(printed) if printed else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="OWNER__NAME")
    parser.add_argument("--labels", type=Path, default=LABELS)
    parser.add_argument("--set", action="append", help="only this reading")
    parser.add_argument("--missed", action="store_true")
    given = parser.parse_args(arguments)
    labels: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in given.labels.read_text("utf-8").splitlines():
        label = json.loads(line)
        if not given.set or label["set"] in given.set:
            labels[label["repository"].replace("/", "__")].append(label)
    all_of: Counter[str] = Counter()
    printed: Counter[str] = Counter()
    low: Counter[str] = Counter()
    for folder in (f.resolve() for f in given.folders if labels.get(f.name)):
        findings = read_findings(folder)
        for label in labels[folder.name]:
            code = label["code"]
            its = finds(code, Place(label["path"], label["row"]), findings)
            all_of[code] += 1
            printed[code] += its is True
            low[code] += its is False
            if given.missed and its is not True:
                place = f"{label['repository']} {label['path']}:{label['row']}"
                print(f"{'low' if its is False else 'not'} {code} {place}")
    for code in sorted(all_of):
        print(f"{code} {all_of[code]:4} {printed[code]:4} {low[code]:4}")
    whole = all_of.total()
    print(f"all    {whole:4} {printed.total():4} {low.total():4}")
    return 0 if whole else 2


if __name__ == "__main__":
    sys.exit(main())
