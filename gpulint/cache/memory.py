"""The findings of one project that still hold, and those that are new."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from gpulint.cache.findings import to_lists
from gpulint.cache.record import Record, Result
from gpulint.cache.stamps import UNSURE, Stamp, digest, is_settled, stamp
from gpulint.finding import Finding
from gpulint.index.consulted import FOLDER, standing
from gpulint.index.project import Project
from gpulint.index.words import IN_SETTINGS, Search, settings_files

MAX_LOOKS = 500_000  # at changed files, one for each search
_WHETHER = frozenset({"defines", "mentions", "trains"})  # not: which files


class Memory:
    """A record that is brought up to date with the disk, and grows with a run.

    `start`: when the run began, in nanoseconds since the epoch.
    """

    def __init__(self, project: Project, record: Record, start: int) -> None:
        self.project = project
        self.record = record
        self.start = start
        self.changed = False
        self._text_changed: set[int] = set()
        self._unlisted: set[int] = set()  # read in this run, before they had stamps
        self._places: dict[int, Path] = {}
        project.words.known = self._known
        project.words.stored = self._stored
        self._refresh()

    def find(self, path: Path, key: str) -> list[list[object]] | None:
        """What was found in a file with the same rules, if it still holds."""
        number = self.record.paths.get(str(path))
        result = self.record.results.get(number) if number is not None else None
        if result is None or result.key != key:
            return None
        found: list[list[object]] = json.loads(result.found)
        return found

    def keep(self, path: Path, key: str, findings: Iterable[Finding]) -> None:
        """Remember what was found in a file, and what was consulted meanwhile."""
        try:  # to make the edits of fixes, which may consult other files, too
            found = [to_lists(finding) for finding in findings]
        except Exception:
            return  # who prints the edits says so
        noted = self.project.noted
        numbers = [
            sorted(self._path(str(p)) for p in {path, *noted.files}),
            sorted(self._entry(str(f), name) for f, name in noted.entries),
            sorted(self._search(search) for search in noted.searches),
        ]
        result = Result(key, _compact(numbers), _compact(found))
        self.record.results[self._path(str(path))] = result
        self.changed = True

    # Before a run

    def _refresh(self) -> None:
        """Drop what no longer holds."""
        python = self._listed(self.project.files)
        asked = any(search[0] in IN_SETTINGS for search in self.record.searches)
        settings = self._listed(settings_files(self.project.root) if asked else ())
        self._text_changed = changed = self._restamp(
            {*self.record.files, *python, *settings}
        )
        touched = {
            False: (changed & python) | (python ^ self.record.python),
            True: (changed & settings) | (settings ^ self.record.settings),
        }
        none = bool(python) != bool(self.record.python)
        self.record.python, self.record.settings = python, settings
        self.changed |= bool(touched[False] or touched[True])
        if none or (len(touched[False]) + 1) * len(self.record.searches) > MAX_LOOKS:
            self.record.results.clear()
            self.record.searches.clear()
            self.record.members.clear()
        flipped = self._research(touched)
        moved = self._reenter()
        stale = changed | self._misled(changed, moved)
        if stale or flipped or moved:
            self._drop(stale, moved, flipped)

    def _listed(self, paths: Iterable[Path]) -> set[int]:
        return {self.record.paths.number(str(path)) for path in paths}

    def _restamp(self, numbers: set[int]) -> set[int]:
        """Files whose text is another one than it was, or which were not known."""
        changed = set()
        paths = list(self.record.paths)
        for number in numbers:
            path = paths[number]
            before, text = self.record.files.get(number, (UNSURE, None))
            now = stamp(path)
            if now != before:
                new = digest(path)
                self.record.files[number] = now, new
                self.changed = True
                if new != text:
                    changed.add(number)
        return changed

    def _research(self, touched: dict[bool, set[int]]) -> set[int]:
        """Searches that find something else since these files changed."""
        flipped = set()
        self._place()
        words = self.project.words
        listed = {False: self.record.python, True: self.record.settings}
        for search, number in self.record.searches.items():
            kind = search[0] in IN_SETTINGS
            members = self.record.members[number]
            before = bool(members)
            for file in touched[kind]:
                now = file in listed[kind] and words.holds(self._places[file], search)
                if now == (file in members):
                    continue
                if now:
                    members.append(file)
                else:
                    members.remove(file)
                if search[0] not in _WHETHER or bool(members) != before:
                    flipped.add(number)
        return flipped

    def _reenter(self) -> set[int]:
        """Entries of folders that stand otherwise than they did."""
        moved = set()
        folders = {f for f, old in self.record.gates.items() if stamp(f) != old}
        for (folder, name), number in self.record.entries.items() if folders else ():
            if folder in folders or f"{folder}{os.sep}{name}" in folders:
                now = standing(Path(folder), name)
                if now != self.record.values[number]:
                    self.record.values[number] = now
                    moved.add(number)
        return moved

    def _misled(self, changed: set[int], moved: set[int]) -> set[int]:
        """Files whose imports may mean something else."""
        found = {
            file
            for file, (entries, files) in self.record.around.items()
            if not moved.isdisjoint(entries) or not changed.isdisjoint(files)
        }
        for file in (found | changed) & self.record.around.keys():
            del self.record.around[file]
        return found

    def _drop(self, stale: set[int], moved: set[int], flipped: set[int]) -> None:
        self.changed = True
        for number, result in list(self.record.results.items()):
            files, entries, searches = json.loads(result.rests)
            fresh = stale.isdisjoint(files) and moved.isdisjoint(entries)
            if not fresh or not flipped.isdisjoint(searches):
                del self.record.results[number]

    # During a run

    def _known(self, search: Search) -> frozenset[Path] | None:
        number = self.record.searches.get(search)
        if number is None:
            return None
        return frozenset(self._places[n] for n in self.record.members[number])

    def _stored(self, role: str) -> dict[Path, frozenset[str]]:
        if role not in self.record.words:
            return {}
        old = self._text_changed.union(self.record.outdated.get(role, ()))
        return {
            self._places[int(number)]: frozenset(words.split())
            for number, words in json.loads(self.record.words[role]).items()
            if int(number) not in old
        }

    def _place(self) -> None:
        """The paths by their numbers; those of listed files are the project's own."""
        numbers = self.record.paths
        self._places = {n: Path(path) for path, n in numbers.items()}
        self._places.update({numbers[str(path)]: path for path in self.project.files})

    def _path(self, path: str) -> int:
        number = self.record.paths.number(path)
        if number not in self.record.files:
            self._unlisted.add(number)
        return number

    def _entry(self, folder: str, name: str) -> int:
        number = self.record.entries.number((folder, name))
        if number == len(self.record.values):
            known = self.project.entries.get((Path(folder), name))
            found = standing(Path(folder), name) if known is None else known
            self.record.values.append(found)
        return number

    def _search(self, search: Search) -> int:
        found = self.project.words.search(search)  # has no number while it is made
        number = self.record.searches.number(search)
        if number == len(self.record.members):
            members = [self._path(str(path)) for path in found]
            self.record.members.append(members)
            if search[0] in IN_SETTINGS:
                self.record.settings.update(members)
        return number

    # After a run

    def settle(self) -> bool:
        """Whether all is as it was when it was read; if so, it can be written."""
        paths = list(self.record.paths)
        for number, (before, text) in list(self.record.files.items()):
            now = stamp(paths[number])
            sure = now == before and (now is None or is_settled(now, self.start))
            if not sure and digest(paths[number]) != text:
                return False
            trusted = now is None or is_settled(now, self.start)
            self.record.files[number] = (now if trusted else UNSURE), text
        self._settle_around()
        self._settle_unlisted(list(self.record.paths))
        self._settle_gates()
        self._settle_words()
        return True

    def _settle_unlisted(self, paths: list[str]) -> None:
        """Files that were read without a stamp must be older than the run."""
        doubtful = set()
        for number in self._unlisted:
            now = stamp(paths[number])
            changed = now if now is not None else stamp(str(Path(paths[number]).parent))
            if changed is not None and not is_settled(changed, self.start):
                doubtful.add(number)
            self.record.files[number] = now, digest(paths[number])
        if doubtful:
            self._drop(doubtful | self._misled(doubtful, set()), set(), set())

    def _settle_around(self) -> None:
        for path, noted in self.project.around.items():
            number = self._path(str(path))
            entries, files = self.record.around.get(number, ([], []))
            more = {self._entry(str(f), name) for f, name in noted.entries}
            their = {self._path(str(p)) for p in noted.files}
            self.record.around[number] = (
                sorted(more.union(entries)),
                sorted(their.union(files)),
            )

    def _settle_gates(self) -> None:
        gates: dict[str, Stamp | None] = {}
        for (folder, name), number in self.record.entries.items():
            value = self.record.values[number]
            inner = isinstance(value, int) and value & FOLDER
            for gate in (folder, f"{folder}{os.sep}{name}")[: 2 if inner else 1]:
                if gate not in gates:
                    now = stamp(gate)
                    gates[gate] = now if is_settled(now, self.start) else UNSURE
        self.record.gates = gates

    def _settle_words(self) -> None:
        """Only roles that somebody searched through are rewritten."""
        searched = self.project.words.loaded
        for role, words in self.project.words.found.items():
            if role in searched:
                self.record.words[role] = _compact(self._by_number(words))
                self.record.outdated[role] = []
        for role in self.record.words.keys() - searched:
            old = self._text_changed.union(self.record.outdated[role])
            self.record.outdated[role] = sorted(old)

    def _by_number(self, words: dict[Path, frozenset[str]]) -> dict[int, str]:
        numbers = {path: self.record.paths[str(path)] for path in words}
        return {
            number: " ".join(sorted(words[path]))
            for path, number in numbers.items()
            if number in self.record.python
        }


def _compact(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))
