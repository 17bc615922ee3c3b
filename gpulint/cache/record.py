"""What was found in the files of one project, and what each finding rests on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from gpulint.cache.stamps import UNSURE, Stamp

Search = tuple[str, ...]
Entry = tuple[str, str]
MAX_SIZE = 60  # things with a number, for each file that is there
MAX_BYTES = 64_000_000


class Table(dict[Any, int]):
    """Numbers for things, given in the order in which they are first seen."""

    def number(self, thing: Any) -> int:
        """The number of a thing, the next one if it has none."""
        return self.setdefault(thing, len(self))


@dataclass
class Result:
    """The findings of one file as JSON, and the numbers of what they rest on.

    `key`: the rules and versions that it was checked with. `rests`: JSON of three
    lists of numbers, of files, of entries of folders and of searches.
    """

    key: str
    rests: str
    found: str


@dataclass
class Record:
    """One project's findings of earlier runs, with all that is needed to trust them.

    Everything is a string or a number: paths have numbers (`paths`), and so have
    entries of folders and searches. `files`: stamp and digest by number of the path.
    `python`, `settings`: numbers of the listed files. `gates`: stamps of the folders
    in which entries were looked up. `around`: by file, the entries and the files on
    which the meaning of its imports rests. `members`: by search, what it found.
    `words`: by role, JSON of the words of each file, but for those `outdated`.
    """

    paths: Table = field(default_factory=Table)
    files: dict[int, tuple[Stamp | None, str]] = field(default_factory=dict)
    python: set[int] = field(default_factory=set)
    settings: set[int] = field(default_factory=set)
    entries: Table = field(default_factory=Table)
    values: list[int | str] = field(default_factory=list)
    gates: dict[str, Stamp | None] = field(default_factory=dict)
    around: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    searches: Table = field(default_factory=Table)
    members: list[list[int]] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    results: dict[int, Result] = field(default_factory=dict)
    outdated: dict[str, list[int]] = field(default_factory=dict)

    @property
    def is_overgrown(self) -> bool:
        """Whether it has numbers for much that no run asks for any more."""
        size = len(self.paths) + len(self.entries) + len(self.searches)
        there = sum(stamp is not None for stamp, _ in self.files.values())
        return size > MAX_SIZE * (max(len(self.python), there) + 10)


def dump(record: Record, head: str) -> bytes:
    """The bytes of a file; `head` must be the same when they are read."""
    files = [record.files.get(n, (UNSURE, "")) for n in range(len(record.paths))]
    parts = {
        "paths": list(record.paths),
        "files": files,
        "python": sorted(record.python),
        "settings": sorted(record.settings),
        "entries": list(record.entries),
        "values": record.values,
        "gates": record.gates,
        "around": list(record.around.items()),
        "searches": list(record.searches),
        "members": record.members,
        "roles": list(record.words),
        "results": [(number, r.key) for number, r in record.results.items()],
        "outdated": record.outdated,
    }
    lines = [json.dumps(parts, separators=(",", ":")), *record.words.values()]
    for result in record.results.values():
        lines += [result.rests, result.found]
    body = "\n".join(lines).encode("ascii")
    return f"{_checksum(body, head)}\n".encode("ascii") + body


def load(data: bytes, head: str) -> Record | None:
    """What `dump` made; None: with another head, broken, or grown too much."""
    checksum, _, body = data.partition(b"\n")
    if checksum.decode("ascii", "replace") != _checksum(body, head):
        return None
    first, *lines = body.decode("ascii").split("\n")
    parts = json.loads(first)
    record = Record(
        paths=Table((path, n) for n, path in enumerate(parts["paths"])),
        files={
            n: (tuple(its) if its is not None else None, text)
            for n, (its, text) in enumerate(parts["files"])
        },
        python=set(parts["python"]),
        settings=set(parts["settings"]),
        entries=Table((tuple(entry), n) for n, entry in enumerate(parts["entries"])),
        values=parts["values"],
        gates={
            f: tuple(s) if s is not None else None for f, s in parts["gates"].items()
        },
        around={n: (entries, files) for n, (entries, files) in parts["around"]},
        searches=Table((tuple(s), n) for n, s in enumerate(parts["searches"])),
        members=parts["members"],
        words=dict(zip(parts["roles"], lines, strict=False)),
        outdated=parts["outdated"],
    )
    rest = iter(lines[len(record.words) :])
    for (number, key), rests, found in zip(parts["results"], rest, rest, strict=True):
        record.results[number] = Result(key, rests, found)
    return None if record.is_overgrown else record


def _checksum(body: bytes, head: str) -> str:
    made = hashlib.blake2b(body, digest_size=16)
    made.update(head.encode("utf-8", "surrogatepass"))
    return made.hexdigest()
