"""Jupyter notebooks: their Python cells as one text, and the text back as JSON.

The text has a comment line before each cell. What only IPython understands (`%magic`,
`!command`, `name?`) stands in it as a comment, so that a line stays a line. Written
back, only the lines that changed are other bytes than before.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gpulint.finding import Position
from gpulint.releases import Range
from gpulint.source import (
    FRAMEWORKS,
    MAX_BYTES,
    Source,
    SourceError,
    is_of_old_python,
)

OLD_FORMAT = (
    "a notebook of format 3 or older; `jupyter nbconvert` makes a new one of it"
)
MAX_RAW = 50_000_000  # bytes with all outputs
SKIP_TAG = "gpulint-skip"
Span = tuple[int, int]
SEPARATOR = '","'

_POINTER = b"version https://git-lfs.github.com/spec/"
_BLANK = re.compile(r"[ \t\n\r]*")
_ESCAPED_LINE = re.compile(r"(?:[^\\]|\\[^nr])*?(?:\\r\\n|\\r|\\n)|(?:[^\\]|\\.)+$")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# Cell magics below whose first line stands Python.
_PYTHON_CELLS = re.compile(
    r"\s*%%(?:capture|debug|ipytest|prun|pypy|python3?|time|timeit)(?!\w)"
)
_COMMENTS = re.compile(r"\A\s*(?:#[^\n]*\n\s*)*")
# What an exercise leaves to its reader: `model = # your code here`.
_TO_FILL_IN = re.compile(
    r"\s*[\w.,\[\] ]+=\s*(#.*)?$"
    r"|.*(=\s+|[(,]\s*|\breturn\s+)<[^<>]*>"  # `x = <all words>`
)
_EMPTY = re.compile(
    r"expected an indented block after function definition on line (\d+)"
)
_EXERCISE = re.compile(r"\bTODO\b|(?i:your (code|answer|turn)|fill (me )?in\b)")
# A cell for another terminal, which begins with a command that IPython does not know.
_SHELL = re.compile(
    r"""\s*(?:\#[^\n]*\n\s*)*\$?[ ]*
    (?:[A-Z][A-Z0-9_]*=\S+\s+(?:\\\s+)?)*
    (?:(?:accelerate|apt|apt-get|aws|bash|brew|curl|deepspeed|docker|export|gcloud|git
    |gsutil|huggingface-cli|kubectl|pip3|python3?|scp|sh|ssh|sudo|torchrun|wget)
    [ ]+(?![=(])
    |[a-z][\w-]*[ ]+[a-z][\w-]*\s+(?:\\\s+)?--[a-z])""",
    re.VERBOSE,
)
_ERROR = re.compile(
    r"(Attribute|Index|Key|Type|Value|InvalidArgument)Error: "
    r"|RuntimeError: .*(\b[Ss]izes?\b|[Ss]hape|dtype|[Ee]xpected|require grad)"
)
_ASSIGNED = re.compile(r"(?P<target>\s*[\w., ()\[\]=]+=\s*)(?:!|%\w)")
# What a notebook has in which something is trained; in others little is to be found.
_TRAINS = re.compile(
    r"backward\(|DataLoader\b|rainer\b|GradientTape|\boptim|keras|mindspore|tf\.data"
)
_MAGIC = re.compile(
    r"""\s*(?:
        [%!?]
        | [\w.*]+\?{1,2}\s*$
        | (?:pip|conda|mamba|ls|ll|cd|pwd|cat|mkdir|rm|rmdir|cp|mv|time|timeit)
          (?:\s+(?![=(])|\s*$)
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Cell:
    """A code cell. `number` counts all cells, from 1; `row` is that of its first line.

    `span` is where the value of its `source` stands in the JSON text, `written` what
    IPython reads and `python` the same lines without magics. `skipped`: a tag says
    that nothing is to be found there. `raised`: its output is an error of the code.
    """

    number: int
    row: int
    span: Span
    written: str
    python: str
    skipped: bool = False
    raised: bool = False


@dataclass(frozen=True)
class Notebook(Source):
    """A notebook: `text` is the Python of its cells, `raw` the JSON."""

    raw: str = field(default="", repr=False)
    cells: tuple[Cell, ...] = ()
    marker: str = ""

    @cached_property
    def file(self) -> Source:
        """The JSON text."""
        return Source(self.path, self.raw, self.encoding, self.bom)

    @cached_property
    def installed(self) -> dict[str, Range]:
        """What its cells install, as far as they name releases."""
        from gpulint.dependencies import installed_by

        commands = ""
        for cell in self.cells:
            lines = zip(*map(_LINE.findall, (cell.python, cell.written)), strict=True)
            commands += "".join(f"{w.rstrip()}\n" for p, w in lines if p != w)
        return installed_by(commands)

    def encode(self, text: str) -> bytes:
        """The notebook with another text of its cells."""
        raw = self.raw
        parts = _split(text, self.marker)
        for cell, part in reversed(list(zip(self.cells, parts, strict=True))):
            if part != cell.python:
                start, end = cell.span
                raw = raw[:start] + _rewritten(raw[start:end], cell, part) + raw[end:]
        return self.bom + raw.encode(self.encoding)

    def accepts(self, text: str) -> bool:
        """Whether all cells are still there, and Python."""
        if len(_split(text, self.marker)) != len(self.cells):
            return False
        try:
            return len(self.with_text(text).cells) == len(self.cells)
        except SourceError:
            return False

    def with_text(self, text: str) -> Notebook:
        """The same notebook with another text of its cells."""
        if text == self.text:
            return self
        return decode_notebook(self.encode(text), self.path)

    def cell_at(self, row: int) -> Cell | None:
        """The cell that a row of the text belongs to."""
        return next((c for c in reversed(self.cells) if c.row - 1 <= row), None)

    def in_cell(self, position: Position) -> tuple[int | None, Position]:
        """The number of a cell, and the place in it."""
        cell = self.cell_at(position.row)
        if cell is None:
            return None, position
        row = max(position.row - cell.row + 1, 1)
        return cell.number, Position(row, position.column)

    def is_head(self, row: int) -> bool:
        """Whether a row is the comment before a cell, which is in no cell."""
        return any(cell.row - 1 == row for cell in self.cells)

    def in_file(self, position: Position) -> Position:
        """The place in the JSON text, in code points."""
        cell = self.cell_at(position.row)
        if cell is None:
            return Position(1, 1)
        start, end = cell.span
        at = _place(self.raw[start:end], position.row - cell.row, position.column - 1)
        return self.file.position(start + at)

    def is_skipped(self, row: int) -> bool:
        """Whether a tag of the cell says that nothing is to be found there."""
        cell = self.cell_at(row)
        return cell is not None and cell.skipped

    def has_raised(self, row: int) -> bool:
        """Whether the output of the cell says that its code raised an error."""
        cell = self.cell_at(row)
        return cell is not None and cell.raised


def decode_notebook(data: bytes, path: Path) -> Notebook:
    """A notebook's bytes. SourceError: no notebook, or a cell that is no Python."""
    book = _decoded(data, path)
    for cell in book.cells:
        _check(book, cell)
    return book


def compose_notebook(cells: Iterable[dict[str, Any]], path: Path) -> Notebook:
    """A notebook of cells that an editor holds, Python or not yet.

    They have the keys of the format: `cell_type`, `metadata`, and `source` as text.
    SourceError: too large.
    """
    return _decoded(json.dumps({"cells": list(cells)}).encode(), path)


def _decoded(data: bytes, path: Path) -> Notebook:
    if len(data) > MAX_RAW:
        raise SourceError(f"not analysed: {len(data)} bytes, the limit is {MAX_RAW}")
    bom = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
    try:
        raw = data[len(bom) :].decode("utf-8")
        found = list(_cells(raw, json.loads(raw))) if raw.strip() else []
    except json.JSONDecodeError as error:
        if data.startswith(_POINTER):
            why = "a pointer of Git LFS: `git lfs pull` brings the notebook itself"
            raise SourceError(why, code="GPU000", meant=True) from None
        why = f"no notebook: not JSON ({error.msg})"
        stray = not raw.lstrip().startswith("{")  # something else by that name
        raise SourceError(why, error.lineno, "GPU000", stray) from None
    except (ValueError, RecursionError) as error:
        why = f"not {error.encoding}" if isinstance(error, UnicodeDecodeError) else "no"
        raise SourceError(f"{why} notebook", code="GPU000") from None
    marker = _marker(found)
    newline = _newline(found)
    text, row = "", 1
    cells = []
    for number, (value, span) in enumerate(found, 1):
        written = _python_of(value)
        if written is None:
            continue
        python = _without_magics(written)
        if _SHELL.match(python) and _wrong_row(python) is not None:
            continue
        skipped = SKIP_TAG in _listed(_table(value.get("metadata")).get("tags"))
        raised = _has_raised(_listed(value.get("outputs")))
        cell = Cell(number, row + 1, span, written, python, skipped, raised)
        cells.append(cell)
        part = f"# {marker}{number}{newline}{python}{newline}"
        text, row = text + part, row + len(_LINE.findall(part))
    if len(text) > MAX_BYTES:
        raise SourceError(f"not analysed: {len(text)} characters of code")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise SourceError("not analysed: half a character (a lone surrogate)")
    held = tuple(cells)
    return Notebook(path, text, "utf-8", bom, raw=raw, cells=held, marker=marker)


def _cells(raw: str, book: object) -> Iterator[tuple[dict[str, Any], Span]]:
    """All cells with the places of their sources; none where another kernel runs them.

    ValueError: not a notebook. `raw` is JSON, and `book` what it says.
    """
    its = _table(book)
    cells, python = its.get("cells"), _is_python(_table(its.get("metadata")))
    old = cells is None and isinstance(its.get("worksheets"), list)
    if old and python:
        raise SourceError(f"not analysed: {OLD_FORMAT}")
    if not isinstance(cells, list) and not old:
        raise ValueError("no cells")
    if not isinstance(cells, list) or not python:
        return
    start, _ = _members(raw, _skip(raw, 0))["cells"]
    for value, (at, _) in zip(cells, _items(raw, start), strict=True):
        if not isinstance(value, dict) or not _is_text(value.get("source", "")):
            raise ValueError("no cell")
        yield value, _members(raw, at).get("source", (at, at))


def _table(value: object) -> dict[str, Any]:
    """An object of the JSON; nothing where there is none."""
    return value if isinstance(value, dict) else {}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_text(source: object) -> bool:
    """Whether a source is text: one string, or one for each line."""
    lines = source if isinstance(source, list) else [source]
    return all(isinstance(line, str) for line in lines)


def _members(raw: str, at: int) -> dict[str, Span]:
    """The places of the values in the JSON object that begins at an offset."""
    spans: dict[str, Span] = {}
    at = _skip(raw, at + 1)
    while raw[at] == '"':
        key, at = _DECODER.raw_decode(raw, at)
        at = _skip(raw, at)
        start = _skip(raw, at + 1)  # behind the colon
        _, end = _DECODER.raw_decode(raw, start)
        spans[key] = (start, end)
        at = _skip(raw, end)
        if raw[at] == ",":
            at = _skip(raw, at + 1)
    return spans


def _items(raw: str, at: int) -> Iterator[Span]:
    """The places of the values in the JSON array that begins at an offset."""
    at = _skip(raw, at + 1)
    while raw[at] != "]":
        _, end = _DECODER.raw_decode(raw, at)
        yield at, end
        at = _skip(raw, end)
        if raw[at] == ",":
            at = _skip(raw, at + 1)


def _skip(raw: str, at: int) -> int:
    found = _BLANK.match(raw, at)
    assert found is not None
    return found.end()


_DECODER = json.JSONDecoder()


def _is_python(metadata: dict[str, Any]) -> bool:
    """Whether the notebook's kernel runs Python, or it names none."""
    language = _table(metadata.get("language_info")).get("name")
    language = language or _table(metadata.get("kernelspec")).get("language")
    language = language or metadata.get("language")  # before format 4
    return not isinstance(language, str) or language.lower().startswith("python")


def _python_of(value: dict[str, Any]) -> str | None:
    """The text of a code cell that holds Python, None of any other."""
    if value.get("cell_type") != "code":
        return None
    source = value.get("source", "")
    text = "".join(source) if isinstance(source, list) else str(source)
    code = _COMMENTS.sub("", text)  # Colab takes a magic behind a comment as well
    magic = code.startswith("%%")
    return text if text.strip() and (not magic or _PYTHON_CELLS.match(code)) else None


def _has_raised(outputs: list[Any]) -> bool:
    """Whether code raised, and before it had shown anything that it had done."""
    shows = ("stream", "display_data", "execute_result")
    done = [
        output
        for output in map(_table, outputs)
        if output.get("output_type") in shows and output.get("name") != "stderr"
    ]
    return any(map(_is_error, outputs)) and all(map(_is_error, done))


def _is_error(output: object) -> bool:
    """Whether an output is an exception, or ends with the line of one as text.

    Of a kind that the same code raises everywhere: not one of the machine, its packages
    or files, of a cell that was left out, or of who stopped it.
    """
    its = _table(output)
    said = f"{its.get('ename')}: {its.get('evalue')}"
    if its.get("output_type") != "error":
        plain = _table(its.get("data")).get("text/plain", "")
        lines = plain if isinstance(plain, list) else str(plain).splitlines()
        said = str(lines[-1]).strip("'\" \n") if lines else ""
    return bool(_ERROR.match(said))


def _newline(cells: list[tuple[dict[str, Any], Span]]) -> str:
    """How the lines of the cells end: as the first that has an end."""
    for value, _ in cells:
        found = re.search(r"\r\n|\r|\n", _python_of(value) or "")
        if found:
            return found.group()
    return "\n"


def _marker(cells: list[tuple[dict[str, Any], Span]]) -> str:
    """What begins the comment before each cell, and stands in no cell."""
    texts = [str(value.get("source", "")) for value, _ in cells]
    dashes = "---"
    while any(f"{dashes} cell " in text for text in texts):
        dashes += "-"
    return f"{dashes} cell "


def _split(text: str, marker: str) -> list[str]:
    """The cells of a text, without the newline that was put after each."""
    head = rf"^# {re.escape(marker)}\d+(?:\r\n|\r|\n)"
    parts = re.split(head, text, flags=re.MULTILINE)
    ends = re.compile(r"(?:\r\n|\r|\n)\Z")
    return [ends.sub("", part, count=1) for part in parts[1:]] if not parts[0] else []


# What only IPython understands


def _without_magics(text: str) -> str:
    """The lines of a cell as Python: those that Python stumbles over, one by one."""
    lines = _LINE.findall(text)
    indent = _indent(text)
    lines = [line.removeprefix(indent) for line in lines]
    for _ in range(len(lines) + 1):
        row = _wrong_row("".join(lines))
        if row is None:
            return "".join(lines)
        changed = _replace(lines, row - 1)
        if not changed:
            break
    for row in range(len(lines)):  # a quote in a command hides where it begins
        _replace(lines, row)
    return "".join(lines)


def _indent(text: str) -> str:
    """What IPython takes off the lines of a cell whose first line is indented."""
    first = re.match(r"(?:[ \t]*\n)*([ \t]*)\S", text)
    return first[1] if first else ""


def _replace(lines: list[str], at: int) -> bool:
    """Put Python in the place of a magic and what continues it; whether it is one."""
    line = lines[at] if at < len(lines) else ""
    magic = _MAGIC.match(line)
    assigned = None if magic else _ASSIGNED.match(line)
    if not (magic or assigned):
        return False
    lines[at] = _placeholder(line, assigned)
    while line.rstrip().endswith("\\") and at + 1 < len(lines):
        at += 1
        line = lines[at]
        lines[at] = re.sub(r"\S", r"# \g<0>", line, count=1)
    return True


def _placeholder(line: str, assigned: re.Match[str] | None) -> str:
    """A line of Python in the place of a magic, with the magic as its comment."""
    code = line.strip()
    indent = line[: len(line) - len(line.lstrip())] if code else ""
    end = line[len(line.rstrip("\r\n")) :]
    if assigned is not None:
        return f"{assigned['target']}get_ipython()  # {code}{end}"
    # A comment alone is no statement: imports may follow it.
    return f"{indent}pass  # {code}{end}" if indent else f"# {code}{end}"


def _wrong_row(text: str) -> int | None:
    """The row of the first line that is no Python, None: all are, or are too deep."""
    try:
        _parse(text)
    except SyntaxError as error:
        return error.lineno or 1
    except (ValueError, RecursionError, MemoryError):
        return None
    return None


def _parse(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(text)


def _check(book: Notebook, cell: Cell) -> None:
    """SourceError for a cell that is no Python, in a notebook about a framework."""
    try:
        _parse(cell.python)
    except SyntaxError as error:
        named = any(name in book.text for name in FRAMEWORKS)
        if named and "too many nested" not in error.msg:
            row = error.lineno or 1
            at = book.in_file(Position(cell.row + row - 1, 1)).row
            where = f"(cell {cell.number}, line {row})"
            if _is_of_newer_python(cell.python, error):
                message = f"not analysed: needs a newer Python: {error.msg} {where}"
                raise SourceError(message, at) from None
            old = is_of_old_python(cell.python, error.msg, row)
            left = old or _is_left_to_readers(cell.python, error)
            meant = left or not book.has(_TRAINS)
            message = f"syntax error: {error.msg} {where}"
            raise SourceError(message, at, "GPU000", meant) from None
    except (ValueError, RecursionError, MemoryError):
        return  # as in a script: parsing the whole says so


def _is_of_newer_python(text: str, error: SyntaxError) -> bool:
    from gpulint.script.rewriting.tree import accepts

    return not error.msg.startswith("(") and accepts(text)


def _is_left_to_readers(text: str, error: SyntaxError) -> bool:
    """Whether an exercise leaves a place: `model = `, a function of comments alone."""
    lines = text.splitlines()
    row = error.lineno or 1
    empty = _EMPTY.search(error.msg)
    body = lines[int(empty[1]) : row - 1] if empty else []
    commented = any(line.lstrip().startswith("#") for line in body)
    left = any(map(_TO_FILL_IN.match, lines[row - 1 : row]))
    return left or commented or _EXERCISE.search(text) is not None


# Writing back


def _rewritten(token: str, cell: Cell, python: str) -> str:
    """The JSON of a cell's source for another text, in the form it has."""
    old, new = _LINE.findall(cell.python), _LINE.findall(python)
    written = _LINE.findall(cell.written)
    pieces = _pieces(token)
    if json.loads(f'["{SEPARATOR.join(pieces)}"]') != written:  # broken unusually
        pieces = [_quoted(line, token) for line in written]
    magics = {o.strip(): w.strip() for o, w in zip(old, written, strict=True) if o != w}
    indent = _indent(cell.written)
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            lines += pieces[i1:i2]
        else:
            changed = (indent + _restored(line, magics) for line in new[j1:j2])
            lines += [_quoted(line, token) for line in changed]
    return _joined(token, lines)


def _restored(line: str, magics: dict[str, str]) -> str:
    """A line with the magic that a placeholder stands for."""
    code = line.strip()
    return line.replace(code, magics[code]) if code in magics else line


def _quoted(line: str, token: str) -> str:
    """A line as the inside of a JSON string."""
    return json.dumps(line, ensure_ascii=token.isascii())[1:-1]


def _pieces(token: str) -> list[str]:
    """The insides of JSON strings, one for each line of a source."""
    if token[0] == '"':
        return _ESCAPED_LINE.findall(token[1:-1])
    return [token[start + 1 : end - 1] for start, end in _items(token, 0)]


def _joined(token: str, lines: list[str]) -> str:
    """Lines as a string or as a list of strings, as the token has them."""
    if token[0] == '"':
        return f'"{"".join(lines)}"'
    spans = list(_items(token, 0))
    first, last = spans[0][0], spans[-1][1]
    between = token[spans[0][1] : spans[1][0]] if spans[1:] else f",{token[1:first]}"
    if between == ",":
        between = ", " if first == 1 else between
    return token[:first] + between.join(f'"{x}"' for x in lines) + token[last:]


def _place(token: str, line: int, column: int) -> int:
    """The offset in a source's JSON of a character of one of its lines."""
    pieces = _pieces(token)
    if not 0 <= line < len(pieces):
        return 0
    if token[0] == '"':
        start = 1 + sum(map(len, pieces[:line]))
    else:
        start = list(_items(token, 0))[line][0] + 1
    units = re.findall(r"\\u[0-9a-fA-F]{4}|\\.|[^\\]", pieces[line], re.DOTALL)
    return start + sum(map(len, units[:column]))
