"""Reads which findings a scenario's `expected.md` asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CODE = re.compile(r"GPU\d{3}")
COLUMNS = ["Statement of the write-up", "Code", "Line", "Why / why not"]


@dataclass(frozen=True, order=True)
class Expected:
    """One finding; the line is None while the table leaves it open (`?`)."""

    code: str
    line: int | None


def read_expected(path: Path) -> list[Expected]:
    """The rows of the table that name a code, in the order of the file.

    Raises `ValueError` for a table with other columns, or a row with a code that has
    neither a line number nor `?`.
    """
    rows = [_cells(line) for line in path.read_text("utf-8").splitlines()]
    rows = [row for row in rows if row]
    if not rows or rows[0] != COLUMNS:
        raise ValueError(f"{path}: the table's columns must be {COLUMNS}")
    found = []
    for row in rows[2:]:
        if len(row) != len(COLUMNS):
            raise ValueError(f"{path}: a row with {len(row)} cells: {row}")
        _, code, line, _ = row
        if not CODE.fullmatch(code):
            continue
        if line != "?" and not line.isdecimal():
            raise ValueError(f"{path}: {code} stands without a line: {row}")
        found.append(Expected(code, None if line == "?" else int(line)))
    return found


def _cells(line: str) -> list[str]:
    if not line.startswith("|"):
        return []
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
