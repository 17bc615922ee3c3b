"""Which findings are new since a commit: those on lines that git says have changed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gpulint.cli.git import find_repository
from gpulint.files import run_git
from gpulint.index import SETTINGS
from gpulint.source import SourceError, read_source
from gpulint.suppress import Lines, read_lines

if TYPE_CHECKING:
    from gpulint.finding import Finding
    from gpulint.report import Entry

NOT_ANALYSED = frozenset({"GPU000", "GPU001"})  # said of a file, not of a line
# What people may have set in their own settings of git must not change the output.
_DIFF = (
    *("-c", "core.quotePath=false", "diff", "--no-ext-diff", "--no-textconv"),
    *("--no-color", "--text", "--find-renames", "--unified=0"),
    *("--inter-hunk-context=0", "--ignore-submodules=all"),
    *("--src-prefix=a/", "--dst-prefix=b/"),
)
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_LETTERS = dict(zip(b"abtnvfr", b"\a\b\t\n\v\f\r", strict=True))


class Hunk(NamedTuple):
    """`size` changed rows from `row` on; 0: rows are gone behind `row`."""

    row: int
    size: int

    def meets(self, first: int, last: int) -> bool:
        """Whether rows `first` to `last` have changed, or were more."""
        if not self.size:
            return first <= self.row < last
        return self.row <= last and first < self.row + self.size


class Since:
    """Tells findings on lines changed since the merge base with a commit.

    Changes that are not committed count, and all lines of files that git does not
    know. A finding stands on its whole statement, and on what it is related to.
    """

    def __init__(self, reference: str, arguments: Iterable[str]) -> None:
        """ClickException: no such commit, or an argument lies in no repository."""
        self._reference = reference
        self._repositories: dict[Path, _Repository] = {}
        self._folders: dict[Path, _Repository | None] = {}
        self._lines: dict[Path, Lines | None] = {}
        for argument in arguments:
            path = Path(os.path.normpath(Path.cwd() / argument)).resolve()
            if self._of(path if path.is_dir() else path.parent) is None:
                raise click.ClickException(
                    f"--new-only-since: {argument} lies in no git repository"
                )

    def only_new(self, entry: Entry) -> Entry:
        """The same file with its new findings alone."""
        new = tuple(finding for finding in entry.findings if self._is_new(finding))
        return entry._replace(findings=new)

    def _is_new(self, finding: Finding) -> bool:
        if finding.code in NOT_ANALYSED:
            return bool(self._hunks(finding.path))
        places = (finding.place, *finding.related)
        rows = [(place.path, place.start.row, place.end.row) for place in places]
        rows += [(fact.path, fact.row, fact.row) for fact in finding.evidence]
        return any(self._changed(*its) for its in rows)

    def _changed(self, path: Path, first: int, last: int) -> bool:
        hunks = self._hunks(path)
        if not hunks:
            return False
        lines = self._of_file(path)
        if lines is not None:
            first, last = lines.statement(first)[0], lines.statement(last)[1]
        return any(hunk.meets(first, last) for hunk in hunks)

    def _of_file(self, path: Path) -> Lines | None:
        if path not in self._lines:
            self._lines[path] = None
            if path.suffix not in SETTINGS:
                with contextlib.suppress(SourceError):
                    self._lines[path] = read_lines(read_source(path))
        return self._lines[path]

    def _hunks(self, path: Path) -> tuple[Hunk, ...]:
        real = path.resolve()
        repository = self._of(real.parent)
        return repository.hunks(real) if repository is not None else ()

    def _of(self, folder: Path) -> _Repository | None:
        if folder not in self._folders:
            root = find_repository(folder / "-")
            if root is not None and root not in self._repositories:
                self._repositories[root] = _Repository(root, self._reference)
            self._folders[folder] = self._repositories[root] if root else None
        return self._folders[folder]


class _Repository:
    """The lines of one work tree that differ from a commit."""

    def __init__(self, root: Path, reference: str) -> None:
        base = _base(root, reference)
        known = run_git(root, "ls-tree", "-r", "-z", "--name-only", "--full-tree", base)
        diff = run_git(root, *_DIFF, base, "--")
        if known is None or diff is None:
            raise click.ClickException(f"--new-only-since: git cannot compare {root}")
        self._known = {root / os.fsdecode(name) for name in known.split(b"\0")}
        self._changed: dict[Path, tuple[Hunk, ...]] = {}
        for old, new, hunks in _parse(diff):
            if old is not None:
                self._known.discard(root / old)
            if new is not None:
                self._changed[root / new] = hunks

    def hunks(self, path: Path) -> tuple[Hunk, ...]:
        """What has changed in a file; a file that was not there: everything."""
        if path in self._changed:
            return self._changed[path]
        return () if path in self._known else (Hunk(0, 1 << 62),)


def _base(root: Path, reference: str) -> str:
    """The commit in which this work and a reference part."""
    if shutil.which("git") is None:
        raise click.ClickException("--new-only-since: git is not installed")
    name = f"{reference}^{{commit}}"
    plain = bool(reference) and not reference.startswith("-")
    if not plain or run_git(root, "rev-parse", "--verify", "-q", name) is None:
        raise click.ClickException(
            f"--new-only-since: git knows no commit {reference!r} in {root}"
        )
    base = run_git(root, "merge-base", reference, "HEAD")
    if base is None:
        raise click.ClickException(
            f"--new-only-since: {reference!r} and HEAD share no commit in {root}; "
            "a shallow clone needs more history"
        )
    return base.decode().split()[0]


def _parse(
    diff: bytes,
) -> Iterator[tuple[str | None, str | None, tuple[Hunk, ...]]]:
    """Old name, new name (None: there is none) and the hunks of each file."""
    old: str | None = None
    new: str | None = None
    hunks: list[Hunk] = []
    left = 0  # lines of the hunk's text
    for line in diff.split(b"\n"):
        if left:
            left -= not line.startswith(b"\\")
        elif line.startswith(b"diff --git "):
            if old or new:
                yield old, new, tuple(hunks)
            old, new, hunks = None, None, []
        elif line.startswith((b"--- ", b"rename from ")):
            old = _name(line)
        elif line.startswith((b"+++ ", b"rename to ")):
            new = _name(line)
        elif match := _HUNK.match(line):
            removed, row, added = (int(g) if g else 1 for g in match.groups())
            hunks.append(Hunk(row, added))
            left = removed + added
    if old or new:
        yield old, new, tuple(hunks)


def _name(line: bytes) -> str | None:
    """The path in a header line; None for `/dev/null`."""
    renamed = line.startswith(b"rename ")
    name = line.split(b" ", 2 if renamed else 1)[-1].removesuffix(b"\t")
    if name.startswith(b'"'):
        name = _ESCAPE.sub(_unescape, name[1:-1])
    if name == b"/dev/null":
        return None
    return os.fsdecode(name if renamed else name[2:])  # without `a/`, `b/`


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if len(code) == 3:
        return bytes([int(code, 8)])
    return bytes([_LETTERS.get(code[0], code[0])])
