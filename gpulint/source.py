"""The bytes of one Python file as text, and back without losing a byte."""

from __future__ import annotations

import ast
import bisect
import codecs
import io
import re
import symtable
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gpulint.atomic import replace_file
from gpulint.finding import Position
from gpulint.releases import Range
from gpulint.runtime_name import FIRST_WORDS

MAX_BYTES = 2_000_000
NOTEBOOK = ".ipynb"
MAX_DEPTH = 100
ASYNC = re.compile(r"\basync(?=\s*=)")  # a name before Python 3.7
# `except IOError, error:` of Python 2; two classes without parentheses are of 3.14.
OLD_EXCEPT = re.compile(r"^\s*except\s+[\w.]+\s*,\s*[a-z_]\w*\s*:", re.MULTILINE)
# By what a text names: one that names none has nothing for gpulint to check.
FRAMEWORKS = ("torch", "tensorflow", "keras", "mindspore", "lightning", "transformers")
LONG_LINE = 500
MANY_LINES = 100
_CONTINUED = re.compile(r"\n[ \t]*(?:[-+*/|&(.]|elif\b)")
_NEWLINE = re.compile(r"\r\n|\r|\n")
_METADATA = "# /// script"  # the head of a block of PEP 723
_GENERATED = re.compile(
    r"^#.*(?:\bgenerated (?:by|from|with|code|file)\b|@generated|auto-?generated\b"
    r"|do not (?:edit|modify))",
    re.IGNORECASE | re.MULTILINE,
)
_OWN = re.compile(r"#\s*gpulint:[^\r\n]*")
_HEAD = 1000  # characters in which a generated file says so
# The codec of the package future-fstrings is UTF-8 with what every Python has by now.
_FSTRINGS = re.compile(rb"(?:#[^\n]*\n)?[ \t]*#.*?coding[:=][ \t]*future[-_]fstrings\b")
# A string with its prefix, or a comment.
_TEXT = re.compile(
    r"""(?P<prefix>\b[a-zA-Z]{1,2})?(?:
        \"{3}(?:[^\\]|\\.)*?\"{3} | '{3}(?:[^\\]|\\.)*?'{3}
        | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'
    ) | \#[^\n]*""",
    re.VERBOSE | re.DOTALL,
)
_NO_BRACKETS = bytes(c for c in range(256) if c not in b"()[]{}")


class SourceError(Exception):
    """A file that cannot be analysed; the message is one line for the user.

    `meant`: nothing is lost: it is left to the reader, for an older Python, or about
    other things than training.
    """

    def __init__(
        self, message: str, row: int = 1, code: str = "GPU001", meant: bool = False
    ) -> None:
        super().__init__(message)
        self.row = row
        self.code = code
        self.meant = meant


@dataclass(frozen=True)
class Source:
    """A file's text with what is needed to write it back unchanged.

    `text` keeps the file's own newlines and has no byte order mark.
    """

    path: Path
    text: str
    encoding: str = "utf-8"
    bom: bytes = b""
    _columns: dict[int, list[int]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _has: dict[re.Pattern[str], bool] = field(
        default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def starts(self) -> list[int]:
        """Offset of each line's first character, as the Python tokenizer counts."""
        return [0, *(m.end() for m in _NEWLINE.finditer(self.text))]

    @cached_property
    def newline(self) -> str:
        """The newline of the first line (`\\n` for a file without any)."""
        found = _NEWLINE.search(self.text)
        return found.group() if found else "\n"

    @cached_property
    def generated(self) -> bool:
        """Whether a comment at the top says that a program wrote the file."""
        return _GENERATED.search(self.text, 0, _HEAD) is not None

    @cached_property
    def installed(self) -> dict[str, Range]:
        """The releases of packages that a file says itself that it is run with.

        A script in its metadata, a notebook by commands that install them.
        """
        if _METADATA not in self.text:
            return {}
        from gpulint.dependencies import installed_by
        from gpulint.inline_metadata import listed

        wanted = (one.partition(";")[0] for one in listed(self.text) or ())
        wanted = ("".join(one.split()) for one in wanted)
        return installed_by(f"pip install {' '.join(wanted)}")

    @property
    def vendored(self) -> bool:
        """Whether `gpulint vendor` wrote it: there is nothing to find in it."""
        return self.text.startswith(FIRST_WORDS)

    @cached_property
    def ascii(self) -> bool:
        """Whether byte columns and code point columns are the same everywhere."""
        return self.text.isascii()

    def line(self, row: int) -> str:
        """Line `row` (1-based) without its newline."""
        start = self.starts[row - 1]
        end = self.starts[row] if row < len(self.starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def said(self, row: int) -> str:
        """The same without a comment for gpulint, whose reasons are for us alone."""
        return _OWN.sub("", self.line(row))

    @cached_property
    def prose(self) -> str:
        """The text without such comments."""
        return _OWN.sub("", self.text) if "gpulint:" in self.text else self.text

    def has(self, pattern: re.Pattern[str], parts: Sequence[str] = ()) -> bool:
        """Whether a pattern is found in the text; many rules ask for the same ones.

        `parts`: texts, one of which all that it finds has. They are sought first, as
        most files have none of them, and a pattern takes a hundred times as long.
        """
        if pattern not in self._has:
            likely = not parts or any(part in self.text for part in parts)
            self._has[pattern] = likely and pattern.search(self.text) is not None
        return self._has[pattern]

    def offset(self, row: int, utf8_column: int) -> int:
        """Code point offset of a place that `ast` gives: 1-based row, byte column."""
        start = self.starts[row - 1]
        if self.ascii:
            return start + utf8_column
        line = self.line(row)
        if line.isascii():
            return start + utf8_column
        if row not in self._columns:
            widths = [0]
            for character in line:
                widths.append(widths[-1] + len(character.encode("utf-8", "replace")))
            self._columns[row] = widths
        return start + bisect.bisect_left(self._columns[row], utf8_column)

    def position(self, offset: int) -> Position:
        """Row and column (1-based, code points) of an offset."""
        row = bisect.bisect_right(self.starts, offset)
        return Position(row, offset - self.starts[row - 1] + 1)

    def encode(self, text: str) -> bytes:
        """The bytes of the file with `text` in it; UnicodeEncodeError if it cannot."""
        return self.bom + text.encode(self.encoding)

    @property
    def file(self) -> Source:
        """The text of the file as it lies on the disk: for a notebook, its JSON."""
        return self

    def in_file(self, position: Position) -> Position:
        """Where a place of the text stands in the file."""
        return position

    def in_cell(self, position: Position) -> tuple[int | None, Position]:
        """The number of a notebook's cell, None in a script, and the place in it."""
        return None, position

    def is_head(self, row: int) -> bool:
        """Whether a row of the text is none of the file's."""
        return False

    def accepts(self, text: str) -> bool:
        """Whether the file can have this text: that of a notebook has its cells."""
        return True

    def is_skipped(self, row: int) -> bool:
        """Whether a cell of a notebook says that nothing is to be found there."""
        return False

    def has_raised(self, row: int) -> bool:
        """Whether the code of a row is known to have raised an error: in a notebook."""
        return False

    def with_text(self, text: str) -> Source:
        """The same file with another text."""
        return Source(self.path, text, self.encoding, self.bom)


def node_span(source: Source, node: ast.AST) -> tuple[int, int]:
    """Offsets of an `ast` node, without parentheses around it."""
    assert isinstance(node, (ast.expr, ast.stmt, ast.keyword, ast.arg, ast.alias))
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (
        source.offset(node.lineno, node.col_offset),
        source.offset(node.end_lineno, node.end_col_offset),
    )


def read_source(path: Path) -> Source:
    """Read a file. SourceError: it cannot be read or decoded, or is too large."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}") from None
    return decode(data, path)


def decode(data: bytes, path: Path) -> Source:
    """The text of a file's bytes, by its byte order mark and encoding cookie."""
    if path.suffix == NOTEBOOK:
        from gpulint.notebook import decode_notebook

        return decode_notebook(data, path)
    if len(data) > MAX_BYTES:
        reason = f"not analysed: {len(data)} bytes, the limit is {MAX_BYTES}"
        named = any(name.encode() in data for name in FRAMEWORKS)
        raise SourceError(reason, meant=not named)
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        encoding = "utf-8"
        if not _FSTRINGS.match(data):
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        encoding = "utf-8" if bom else encoding
        text = data[len(bom) :].decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SourceError(_decode_message(error, data), code="GPU000") from None
    return Source(path, text, encoding, bom)


def _decode_message(error: Exception, data: bytes) -> str:
    if isinstance(error, SyntaxError) and "missing encoding" in str(error):
        try:  # without a cookie the text should have been UTF-8
            data.decode("utf-8")
        except UnicodeDecodeError as undecodable:
            error = undecodable
    if isinstance(error, UnicodeDecodeError):
        return f"not {error.encoding}: byte {error.object[error.start]:#04x}"
    return f"encoding not known: {error}"


def shield(source: Source) -> None:
    """SourceError for a text so deeply nested that parsers crash on it."""
    depth = _bracket_depth(source.text.encode("utf-8", "replace"))
    if depth > MAX_DEPTH:  # often only by what is written in strings
        bare = _TEXT.sub(_without_text, source.text)
        depth = _bracket_depth(bare.encode("utf-8", "replace"))
    if depth > MAX_DEPTH:
        raise SourceError(
            f"not analysed: brackets nested {depth} deep, the limit is {MAX_DEPTH}"
        )


def _without_text(match: re.Match[str]) -> str:
    """Nothing, but the fields of f-strings and their like: a parser goes into these."""
    plain = set((match["prefix"] or "").lower()) <= set("bru")
    return "" if plain else "".join(_fields(match[0]))


def _fields(text: str) -> Iterator[str]:
    """The characters of `{x[0]:>{width}}` in an f-string; `{{` is one brace of text."""
    depth = place = 0
    while place < len(text):
        if not depth and text[place : place + 2] in ("{{", "}}"):
            place += 2
            continue
        if depth or text[place] == "{":
            depth += (text[place] == "{") - (text[place] == "}")
            yield text[place]
        place += 1


def parse(source: Source) -> ast.Module:
    """The syntax tree. SourceError: too deep; else what `ast.parse` raises."""
    shield(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source.text)


def parse_older(source: Source) -> tuple[ast.Module, bool]:
    """The same, also of a text for a Python in which `async` is a name: True of such.

    `x.cuda(async=True)` of PyTorch 0.3: the argument is found by another name, of the
    same length. For what other files are told about such a file.
    """
    try:
        return parse(source), False
    except SyntaxError:
        newer = ASYNC.sub("_sync", source.text)
        if newer == source.text:
            raise
        return parse(source.with_text(newer)), True


def is_of_old_python(text: str, message: str, row: int) -> bool:
    """Whether a text that raises is of Python 2, or one in which `async` is a name."""
    return (
        "Missing parentheses in call to" in message
        or OLD_EXCEPT.search(text) is not None
        or any(map(ASYNC.search, text.splitlines()[row - 1 : row]))
    )


def check_syntax(source: Source) -> None:
    """Raises what `parse` raises, at two thirds of its cost: makes no tree of objects.

    A symbol table needs the same parser; what it refuses beyond that, such as a
    `nonlocal` without its variable, is none of ours.
    """
    shield(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            symtable.symtable(source.text, "<text>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        parse(source)


def may_be_deep(source: Source) -> bool:
    """Whether a text may hold a chain or expression too long to analyse.

    A cheap look at the lines, for files that are otherwise not looked into.
    """
    if max(map(len, source.text.split("\n"))) > LONG_LINE:
        return True
    marked = source.text.count("\\\n") + source.text.count("\\\r\n")
    return marked + len(_CONTINUED.findall(source.text)) > MANY_LINES


def _bracket_depth(data: bytes) -> int:
    """Deepest bracket nesting, counted on the bytes (strings included).

    Removing innermost pairs round by round, at most three levels each, takes a few
    passes of C code; only a file that this leaves in doubt is counted one by one.
    """
    brackets = data.translate(None, _NO_BRACKETS)
    rounds = 0
    while 3 * rounds < MAX_DEPTH:
        fewer = brackets.replace(b"()", b"").replace(b"[]", b"").replace(b"{}", b"")
        if len(fewer) == len(brackets):
            break
        brackets = fewer
        rounds += 1
    if 3 * rounds + len(brackets) <= MAX_DEPTH:
        return 3 * rounds + len(brackets)
    depth = deepest = 0
    for character in data.translate(None, _NO_BRACKETS):
        if character in b"([{":
            depth += 1
            deepest = max(deepest, depth)
        elif depth:
            depth -= 1
    return deepest


def write_source(source: Source, text: str) -> None:
    """Replace the file's text atomically, keeping mode, encoding and newlines.

    Writes a temporary file beside it and renames; a symbolic link stays a link.
    OSError or UnicodeEncodeError leave the old file untouched.
    """
    data = source.encode(text)
    replace_file(source.path.resolve(strict=True), data)
