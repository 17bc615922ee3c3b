"""The lines that a fix takes away and puts in."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from gpulint.finding import Fix, TextEdit
from gpulint.source import Source

# A sign (`-`, `+`, ` ` for a line that stays, `...` for lines left out) and a line.
Change = tuple[str, str]
KEPT = 2
AROUND = 3  # lines around a change of a unified diff
MOST_PAIRS = 5_000_000  # of equal lines of both texts, some seconds' work
_NEWLINE = re.compile(r"\r\n|\r|\n")


def changes(source: Source, fix: Fix) -> list[Change]:
    """What the fix does to the text, its imports first."""
    lines: list[Change] = [("+", i) for i in fix.imports if not _has_line(source, i)]
    for index, (first, last, edits) in enumerate(_regions(source, fix.edits)):
        if index:
            lines.append(("...", ""))
        start = source.starts[first - 1]
        end = source.starts[last] if last < len(source.starts) else len(source.text)
        old = source.text[start:end]
        new = _apply(old, edits, start)
        lines += _compare(_split(old), _split(new))
    return lines


def unified(name: str, source: Source, text: str) -> str:
    """A unified diff of a file, for `patch -p0` and `git apply -p0`."""
    mark = "\ufeff" if source.bom else ""
    old, new = source.file.text, source.with_text(text).file.text
    head = _named(name)
    diff = list(_hunks(_lines(mark + old), _lines(mark + new)))
    names = [f"--- {head}\n", f"+++ {head}\n"] if diff else []
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in (*names, *diff)
    )


def _hunks(old: list[str], new: list[str]) -> Iterator[str]:
    """What `difflib.unified_diff` gives behind its two lines of names.

    That leaves frequent lines out of files of 200 lines, whose diffs grow by whole
    cells of a notebook: here only where each of very many would be compared.
    """
    counts = Counter(old)
    pairs = sum(counts[line] for line in new)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=pairs > MOST_PAIRS)
    for group in matcher.get_grouped_opcodes(AROUND):
        rows = (group[0][1], group[-1][2]), (group[0][3], group[-1][4])
        yield f"@@ -{_range(*rows[0])} +{_range(*rows[1])} @@\n"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[i1:i2])
            else:
                yield from (f"-{line}" for line in old[i1:i2])
                yield from (f"+{line}" for line in new[j1:j2])


def _range(start: int, end: int) -> str:
    """The rows of one side of a hunk: the first (1-based) and their number."""
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def created(name: str, text: str) -> str:
    """A unified diff that makes a new file, whose last line has an end."""
    return "".join(difflib.unified_diff([], _lines(text), "/dev/null", _named(name)))


def _named(name: str) -> str:
    """A file name as `patch` reads it: a tab ends one that has a space."""
    return f"{name}\t" if " " in name else name


def _has_line(source: Source, line: str) -> bool:
    whole = rf"(?:\A|[\r\n]){re.escape(line)}[ \t]*(?:[\r\n]|\Z)"
    return re.search(whole, source.text) is not None


def _regions(
    source: Source, edits: Iterable[TextEdit]
) -> Iterator[tuple[int, int, list[TextEdit]]]:
    """First and last row of edits that touch the same or adjacent rows."""
    first = last = 0
    group: list[TextEdit] = []
    for edit in sorted(edits):
        start, end = (source.position(o).row for o in (edit.start, edit.end))
        if group and start > last + 1:
            yield first, last, group
            group = []
        first = first if group else start
        last = max(last, end)
        group.append(edit)
    if group:
        yield first, last, group


def _apply(text: str, edits: list[TextEdit], start: int) -> str:
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start - start] + edit.content + text[edit.end - start :]
    return text


def _compare(old: list[str], new: list[str]) -> Iterator[Change]:
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for index, (tag, i1, i2, j1, j2) in enumerate(codes):
        if tag != "equal":
            yield from (("-", line) for line in old[i1:i2])
            yield from (("+", line) for line in new[j1:j2])
        elif 0 < index < len(codes) - 1:
            if i2 - i1 > KEPT:
                yield "...", ""
            else:
                yield from ((" ", line) for line in old[i1:i2])


def _split(text: str) -> list[str]:
    lines = _NEWLINE.split(text)
    return lines if lines[-1] else lines[:-1]


def _lines(text: str) -> list[str]:
    """Lines with their ends, as `patch` counts them: a form feed ends none."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
