"""Findings that are taken as they are: a file whose entries may only become fewer."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpulint.atomic import replace_file
from gpulint.finding import Finding, Place

NAME = "gpulint-baseline.json"
SCHEMA = 1
NEVER = frozenset({"GPU000"})  # a file that nobody can check hides what is in it


class BaselineError(Exception):
    """A baseline that cannot be used; the message is one line for the user."""


class Entry(NamedTuple):
    """Findings of one rule that look alike, in the file of this name.

    `path` is relative to the folder of the baseline, with `/` on all systems.
    """

    path: str
    code: str
    fingerprint: str


class Baseline:
    """How many findings of each kind are accepted, by entry; `file` is absolute."""

    def __init__(self, file: Path, counts: Mapping[Entry, int] | None = None) -> None:
        self.file = file
        self.counts = Counter(dict(counts or {}))
        self._names: dict[Path, str] = {}

    def entry(self, finding: Finding) -> Entry:
        """The entry that a finding belongs to."""
        path = finding.path
        if path not in self._names:
            self._names[path] = _relative(path, self.file.parent)
        return Entry(self._names[path], finding.code, finding.likeness)

    def path(self, entry: Entry) -> Path:
        """The file of an entry."""
        return Path(os.path.normpath(self.file.parent / entry.path))

    def count(self, findings: Iterable[Finding]) -> Counter[Entry]:
        """The entries of findings that no comment switches off, each place once."""
        found = {(self.entry(f), f.place) for f in findings if _may_be_in(f)}
        return Counter(entry for entry, _ in found)

    def write(self) -> None:
        """Replace the file. BaselineError: it cannot be written."""
        try:
            replace_file(self.file, _text(self.counts).encode("utf-8"))
        except OSError as error:
            message = f"{self.file}: not written: {error.strerror or error}"
            raise BaselineError(message) from None


class Allowance:
    """What is left of a baseline while findings are held against it."""

    def __init__(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self.left = Counter(baseline.counts)
        self._accepted: set[tuple[Entry, Place]] = set()

    def mark(self, findings: Iterable[Finding]) -> list[Finding]:
        """Mark as many as there are entries for; of those alike the first ones.

        What several scripts say about one line of a settings file counts once.
        """
        return [self._marked(finding) for finding in findings]

    def _marked(self, finding: Finding) -> Finding:
        if not _may_be_in(finding):
            return finding
        entry = self.baseline.entry(finding)
        if (entry, finding.place) not in self._accepted:
            if self.left[entry] <= 0:
                return finding
            self.left[entry] -= 1
            self._accepted.add((entry, finding.place))
        return finding._replace(suppressed="baseline")


def read_baseline(file: Path) -> Baseline:
    """Read a baseline. BaselineError: it is missing, or not what `create` writes."""
    try:
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise BaselineError(f"{file}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"{file}: not a baseline: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("entries"), list):
        raise BaselineError(f"{file}: not a baseline: it has no list of entries")
    if data.get("schema") != SCHEMA:
        known = f"this gpulint reads {SCHEMA}"
        raise BaselineError(f"{file}: schema {data.get('schema')!r}; {known}")
    counts: dict[Entry, int] = {}
    for number, record in enumerate(data["entries"], 1):
        entry = _entry(record)
        if entry is None:
            raise BaselineError(f"{file}: entry {number} is not one: {record!r:.80}")
        # A merge of two branches may leave both lines: either has been accepted.
        counts[entry] = max(counts.get(entry, 0), record["count"])
    return Baseline(file, counts)


def _entry(record: Any) -> Entry | None:
    if not isinstance(record, dict) or set(record) != {*Entry._fields, "count"}:
        return None
    count, fields = record["count"], [record[name] for name in Entry._fields]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return None
    if not all(isinstance(field, str) for field in fields):
        return None
    entry = Entry(*fields)
    return None if entry.code in NEVER else entry


def _text(counts: Mapping[Entry, int]) -> str:
    """One entry a line, sorted, so that changes on two branches merge."""
    lines = [
        _line({**entry._asdict(), "count": counts[entry]})
        for entry in sorted(counts)
        if counts[entry] > 0
    ]
    body = ",\n".join(f"    {line}" for line in lines)
    entries = f"[\n{body}\n  ]" if lines else "[]"
    return f'{{\n  "schema": {SCHEMA},\n  "entries": {entries}\n}}\n'


def _line(record: dict[str, object]) -> str:
    text = json.dumps(record, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a name that is no text
        return json.dumps(record)
    return text


def _may_be_in(finding: Finding) -> bool:
    return finding.suppressed is None and finding.code not in NEVER


def _relative(path: Path, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # another drive
        return path.as_posix()
