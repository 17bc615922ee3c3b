"""How often each rule fires, instead of the findings."""

from __future__ import annotations

import json
from collections import Counter
from typing import TextIO

from gpulint.report import Report, summary

Row = tuple[int, str, str, str]


def write(report: Report, stream: TextIO) -> None:
    """A table, most frequent rule first, then the summary."""
    rows = _rows(report)
    width = max((len(str(count)) for count, *_ in rows), default=0)
    stream.writelines(
        f"{count:>{width}}  {code}  {marker:<5}{name}\n"
        for count, code, name, marker in rows
    )
    if not report.quiet:
        stream.writelines(f"{text}\n" for text in summary(report))


def write_json(report: Report, stream: TextIO) -> None:
    """An array of objects with `code`, `name`, `count` and `fixable`."""
    stream.write(json.dumps(_records(report), indent=2) + "\n")


def write_json_lines(report: Report, stream: TextIO) -> None:
    """The same objects, one a line."""
    stream.writelines(f"{json.dumps(record)}\n" for record in _records(report))


def _records(report: Report) -> list[dict[str, str | int]]:
    return [
        {"code": code, "name": name, "count": count, "fixable": bool(marker)}
        for count, code, name, marker in _rows(report)
    ]


def _rows(report: Report) -> list[Row]:
    found = [(entry, f) for entry in report.entries for f in entry.shown]
    counts = Counter(finding.code for _, finding in found)
    names = {finding.code: finding.name for _, finding in found}
    markers: dict[str, str] = {}
    for entry, finding in found:
        marker = entry.marker(finding)
        # The weakest condition under which at least one of them is fixed.
        if marker and markers.get(finding.code) != "[*] ":
            markers[finding.code] = marker
    return [
        (counts[code], code, names[code], markers.get(code, ""))
        for code in sorted(counts, key=lambda code: (-counts[code], code))
    ]
