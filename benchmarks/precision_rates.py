"""How often findings were wrong in the draws of `precision.md`, by rule and by kind.

Reads the tables of that file and writes the one between its two markers anew, or prints
it with `--print`. Draws count whose readers say of which kind each wrong finding is; a
finding on which the readers differ counts half for each.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "precision.md"
START, END = "<!-- rates -->", "<!-- end of rates -->"
FIRST, BEHIND = "\n## The forty-third draw\n", "\n## Programs of other frameworks\n"
KINDS = ("false", "harm", "unreached")
SAME = {"broken": "unreached"}  # told from it since the sixty-seventh draw
MIN_FINDINGS = 40  # of a rule, for a row of its own
_BORDER = re.compile(r"\s*(?<!\\)\|\s*")
_KIND = re.compile(r"wrong \((\w+)\)")


@dataclass
class Rates:
    """How many findings were judged, and how many of them wrong."""

    judged: int = 0
    wrong: Counter[str] = field(default_factory=Counter)  # by kind, in half findings
    now: int = 0  # of the judged ones, still reported
    wrong_now: int = 0  # in half findings

    def add(self, other: Rates) -> None:
        self.judged += other.judged
        self.wrong += other.wrong
        self.now += other.now
        self.wrong_now += other.wrong_now

    def row(self, name: str) -> str:
        kinds = [_share(self.wrong[kind], self.judged) for kind in KINDS]
        all_kinds = _share(self.wrong.total(), self.judged)
        left = _share(self.wrong_now, self.now)
        cells = (name, str(self.judged), all_kinds, *kinds, str(self.now), left)
        return f"| {' | '.join(cells)} |"


def _share(halves: int, findings: int) -> str:
    return f"{50 * halves / max(findings, 1):.0f} %"


def judged(page: str) -> Iterator[tuple[str, Rates]]:
    """The rule of each finding of the draws that count, and what was said of it."""
    tables = page.partition(FIRST)[2].partition(BEHIND)[0]
    columns: list[str] = []
    for line in tables.splitlines():
        cells = _BORDER.split(line.strip("| "))
        if cells[0] == "Rule":
            columns = cells
        elif cells[0].startswith("GPU"):
            said = dict(zip(columns, cells, strict=True))
            verdicts = [v for name, v in said.items() if name.startswith("Reader")]
            found = [kind[1] for kind in map(_KIND.match, verdicts) if kind]
            kinds = [SAME.get(kind, kind) for kind in found]
            halves = 2 // len(verdicts)
            wrong = Counter({kind: halves * kinds.count(kind) for kind in set(kinds)})
            now = said["Now"] == "yes"
            yield cells[0], Rates(1, wrong, int(now), now * wrong.total())


def table(page: str) -> str:
    """The rates: of the rules with many findings, of all others, and of all."""
    by_rule: dict[str, Rates] = {}
    others, everything = Rates(), Rates()
    for rule, its in judged(page):
        by_rule.setdefault(rule, Rates()).add(its)
        everything.add(its)
    lines = ["| Rule | Findings | Wrong | False | Harm | Unreached | Now | Wrong |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for rule, rates in sorted(by_rule.items(), key=lambda item: -item[1].judged):
        if rates.judged < MIN_FINDINGS:
            others.add(rates)
        else:
            lines.append(rates.row(rule))
    return "\n".join([*lines, others.row("others"), everything.row("**all**")])


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--print", action="store_true", help="write no file")
    given = parser.parse_args(None if arguments is None else list(arguments))
    page = PAGE.read_text("utf-8")
    made = table(page)
    if given.print:
        print(made)
        return 0
    before, _, rest = page.partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{START}\n\n{made}\n\n{END}{after}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
