"""A YAML or JSON settings file as an `ast` tree whose positions are the file's own."""

from __future__ import annotations

import ast
import bisect
import codecs
import enum
import itertools
import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulint.source import MAX_BYTES, MAX_DEPTH, Source, SourceError

if TYPE_CHECKING:  # yaml takes 20 ms to import, and most runs read no settings
    from yaml import Node, SafeLoader, YAMLError

MAX_NODES = 100_000
UNKNOWN = "__unknown__"
Pair = tuple[ast.expr | None, ast.expr]
NodePair = tuple["Node | None", "Node"]

_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Dialect(enum.Enum):
    """Which loader's rules say what a scalar is."""

    SAFE = "yaml.safe_load"
    OMEGACONF = "OmegaConf.load"
    JSON = "json.loads"


def read_settings(path: Path) -> Source:
    """Read a settings file. SourceError: it cannot be read or decoded, or is large.

    The encoding is UTF-8, or what the byte order mark says; a Python encoding cookie
    in a comment means nothing here.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise _too_large(size)
        data = path.read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise SourceError(message, code="GPU000") from None
    return _decode(data, path)


def _decode(data: bytes, path: Path) -> Source:
    marked = (pair for pair in _ENCODINGS if data.startswith(pair[0]))
    bom, encoding = next(marked, (b"", "utf-8"))
    try:
        return Source(path, data[len(bom) :].decode(encoding), encoding, bom)
    except UnicodeDecodeError as error:
        message = f"not {error.encoding}: byte {error.object[error.start]:#04x}"
        raise SourceError(message, code="GPU000") from None


def parse_settings(source: Source, dialect: Dialect = Dialect.SAFE) -> ast.Module:
    """The file's value as the one expression of a module.

    Dicts, lists and constants have the positions that `ast` would give them: 1-based
    lines, columns in UTF-8 bytes, the end exclusive. The name `__unknown__` stands
    for a value that only the running program knows. SourceError (GPU000): the loader
    would refuse the file, or it is too large or nested too deeply to analyse.
    """
    size = len(source.text.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise _too_large(size)
    tree = _Tree(source)
    if dialect is Dialect.JSON:
        root = _Json(tree).document()
    else:
        root = _Yaml(tree, dialect).document()
    statement = ast.copy_location(ast.Expr(root), root)
    return ast.Module([statement], [])


def _too_large(size: int) -> SourceError:
    message = f"not analysed: {size} bytes, the limit is {MAX_BYTES}"
    return SourceError(message, code="GPU000")


class _Tree:
    """Makes the nodes; places are given as code point offsets in the text."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.made = 0
        self._columns: dict[int, list[int]] = {}

    def constant(self, value: Any, start: int, end: int) -> ast.expr:
        """A leaf whose value is known."""
        return self._place(ast.Constant(value), start, end)

    def unknown(self, start: int, end: int) -> ast.expr:
        """A value that is not known."""
        return self._place(ast.Name(UNKNOWN, ast.Load()), start, end)

    def sequence(self, items: list[ast.expr], start: int, end: int) -> ast.expr:
        """A sequence."""
        return self._place(ast.List(items, ast.Load()), start, end)

    def mapping(self, pairs: list[Pair], start: int, end: int) -> ast.expr:
        """A mapping; of entries with equal keys only the last is kept.

        A pair without a key spreads its value, as `**value` does.
        """
        kept: dict[object, Pair] = {}
        for key, value in pairs:
            name = key.value if isinstance(key, ast.Constant) else object()
            kept.pop(name, None)
            kept[name] = (key, value)
        keys = [key for key, _ in kept.values()]
        values = [value for _, value in kept.values()]
        return self._place(ast.Dict(keys, values), start, end)

    def charge(self, count: int, offset: int) -> None:
        """Count what is made, because aliases of aliases grow without bound."""
        self.made += count
        self.check_count(self.made, offset)

    def check_count(self, count: int, offset: int) -> None:
        """SourceError for more values than settings have."""
        if count > MAX_NODES:
            raise self.error(f"not analysed: more than {MAX_NODES} values", offset)

    def check_depth(self, depth: int, offset: int) -> None:
        """SourceError for a collection inside too many others."""
        if depth > MAX_DEPTH:
            message = f"not analysed: values nested more than {MAX_DEPTH} deep"
            raise self.error(message, offset)

    def error(self, message: str, offset: int) -> SourceError:
        """An error in the line of an offset."""
        return SourceError(message, self.source.position(offset).row, "GPU000")

    def _place(self, node: ast.expr, start: int, end: int) -> ast.expr:
        self.charge(1, start)
        node.lineno, node.col_offset = self._row_and_column(start)
        node.end_lineno, node.end_col_offset = self._row_and_column(end)
        return node

    def _row_and_column(self, offset: int) -> tuple[int, int]:
        starts = self.source.starts
        row = bisect.bisect_right(starts, offset)
        column = offset - starts[row - 1]
        if not self.source.ascii:
            column = self._widths(row)[column]
        return row, column

    def _widths(self, row: int) -> list[int]:
        """UTF-8 column of each character of a line, kept: a line may be the file."""
        if row not in self._columns:
            line = self.source.line(row)
            widths = (len(c.encode("utf-8", "replace")) for c in line)
            self._columns[row] = list(itertools.accumulate(widths, initial=0))
        return self._columns[row]


# JSON

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = {
    "null": None,
    "true": True,
    "false": False,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}


class _Json:
    """Reads what `json.loads` reads, and where each value stands."""

    def __init__(self, tree: _Tree) -> None:
        self.tree = tree
        self.text = tree.source.text

    def document(self) -> ast.expr:
        """The value of the whole text."""
        try:
            root, end = self._value(self._skip(0), 0)
        except json.JSONDecodeError as error:
            raise self._error(error.msg, error.pos) from None
        end = self._skip(end)
        if end < len(self.text):
            raise self._error("Extra data", end)
        return root

    def _value(self, start: int, depth: int) -> tuple[ast.expr, int]:
        first = self.text[start : start + 1]
        if first == "{":
            return self._dict(start, depth + 1)
        if first == "[":
            return self._list(start, depth + 1)
        if first == '"':
            return self._string(start)
        value, end = self._word(start)
        return self.tree.constant(value, start, end), end

    def _string(self, start: int) -> tuple[ast.expr, int]:
        if not self.text.startswith('"', start):
            message = "Expecting property name enclosed in double quotes"
            raise self._error(message, start)
        value, end = scanstring(self.text, start + 1, True)
        return self.tree.constant(value, start, end), end

    def _word(self, start: int) -> tuple[object, int]:
        number = _NUMBER.match(self.text, start)
        if number is None:
            for word, value in _WORDS.items():
                if self.text.startswith(word, start):
                    return value, start + len(word)
            raise self._error("Expecting value", start)
        _, fraction, exponent = number.groups()
        try:
            made = float if fraction or exponent else int
            return made(number.group()), number.end()
        except ValueError:  # Python refuses whole numbers of over 4300 digits
            raise self._error("a number has too many digits", start) from None

    def _list(self, start: int, depth: int) -> tuple[ast.expr, int]:
        self.tree.check_depth(depth, start)
        items: list[ast.expr] = []
        at = self._skip(start + 1)
        closed = self.text.startswith("]", at)
        while not closed:
            item, at = self._value(at, depth)
            items.append(item)
            at, closed = self._next(at, "]")
        return self.tree.sequence(items, start, at + 1), at + 1

    def _dict(self, start: int, depth: int) -> tuple[ast.expr, int]:
        self.tree.check_depth(depth, start)
        pairs: list[Pair] = []
        at = self._skip(start + 1)
        closed = self.text.startswith("}", at)
        while not closed:
            key, at = self._string(at)
            at = self._skip(at)
            if not self.text.startswith(":", at):
                raise self._error("Expecting ':' delimiter", at)
            value, at = self._value(self._skip(at + 1), depth)
            pairs.append((key, value))
            at, closed = self._next(at, "}")
        return self.tree.mapping(pairs, start, at + 1), at + 1

    def _next(self, at: int, closing: str) -> tuple[int, bool]:
        """Where the next item (or the closing bracket) is, after one has ended."""
        at = self._skip(at)
        if self.text.startswith(closing, at):
            return at, True
        if not self.text.startswith(",", at):
            raise self._error("Expecting ',' delimiter", at)
        return self._skip(at + 1), False

    def _skip(self, at: int) -> int:
        space = _SPACE.match(self.text, at)
        return space.end() if space else at

    def _error(self, message: str, offset: int) -> SourceError:
        return self.tree.error(f"not valid JSON: {message}", offset)


# YAML

_TAG = "tag:yaml.org,2002:"
_SCALARS = frozenset(
    _TAG + name for name in "null bool int float str binary timestamp".split()
)
# An anchor or tag before a value, with the space and comments after it.
_PROPERTY = re.compile(
    "(?:&[0-9A-Za-z_-]*|![^ \t\r\n\x85\u2028\u2029]*)"
    "(?:[ \t\r\n\x85\u2028\u2029]|#[^\r\n\x85\u2028\u2029]*)*"
)
# As in omegaconf/_utils.py, 2.3 (the one of YAML 1.1 wants a point before `e`).
_OMEGACONF_FLOAT = re.compile(
    r"""^(?:
     [-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+)
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
_MISSING = "???"
_CONTESTED = "!contested"  # a value that depends on the release of PyYAML


class _Yaml:
    """Turns the nodes that PyYAML composes into a tree.

    PyYAML's own loader resolves and constructs every scalar. Its composer is watched
    for where values stand: it counts lines otherwise than Python, lets a value begin
    at its anchor, and lets a block end where the next one begins.
    """

    def __init__(self, tree: _Tree, dialect: Dialect) -> None:
        self.tree = tree
        self.text = tree.source.text
        self.omegaconf = dialect is Dialect.OMEGACONF
        self._spans: dict[Node, tuple[int, int]] = {}
        self._end = 0
        self._depth = 0
        self._open: set[Node] = set()

    def document(self) -> ast.expr:
        """The value of the only document; None for an empty file."""
        import yaml

        try:
            self.loader = yaml.SafeLoader(self.text)
            if self.omegaconf:
                _resolve_as_omegaconf(self.loader)
            self._compose_node = self.loader.compose_node
            self.loader.compose_node = self._compose  # type: ignore[method-assign]
            node = self.loader.get_single_node()
            return self._value(node) if node else self.tree.constant(None, 0, 0)
        except yaml.YAMLError as error:
            raise self._error(*_problem(error)) from None

    # Where values stand

    def _compose(self, parent: Node | None, index: int) -> Node | None:
        """As the composer does, noting the span of each node but the aliases."""
        from yaml.events import AliasEvent, CollectionStartEvent

        event: Any = self.loader.peek_event()  # type: ignore[no-untyped-call]
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, AliasEvent):
            self._end = end
            return self._compose_node(parent, index)
        nested = isinstance(event, CollectionStartEvent)
        self._depth += nested
        self.tree.check_depth(self._depth, start)
        self.tree.check_count(len(self._spans), start)
        node = self._compose_node(parent, index)
        assert node is not None
        self._depth -= nested
        self._end = self._find_end(node)
        properties = (event.anchor is not None) + (event.tag is not None)
        self._spans[node] = (self._content(start, self._end, properties), self._end)
        return node

    def _find_end(self, node: Any) -> int:
        """The end of a node's text, without the blank lines that PyYAML counts in."""
        end: int = node.end_mark.index
        if node.id == "scalar":
            if node.style in ("|", ">"):
                end = len(self.text[:end].rstrip())
            return end
        if node.flow_style and self.text[end - 1] in "]}":
            return end
        return self._end

    def _content(self, start: int, end: int, properties: int) -> int:
        """Where a value begins behind its anchor and tag."""
        for _ in range(properties):
            found = _PROPERTY.match(self.text, start, end)
            start = found.end() if found else start
        return start

    # What values are

    def _value(self, node: Node, key: bool = False) -> ast.expr:
        span = self._spans[node]
        if node.tag in _SCALARS:
            return self._scalar(node, key)
        kind = {_TAG + "map": "mapping", _TAG + "seq": "sequence"}.get(node.tag)
        if kind is None or node in self._open:
            return self.tree.unknown(*span)
        if kind != _kind(node):
            raise self._error(f"expected a {kind}", span[0])
        self._enter(node)
        if kind == "mapping":
            pairs = [self._pair(*pair) for pair in self._pairs(node)]
            made = self.tree.mapping(pairs, *span)
        else:
            made = self.tree.sequence([self._value(n) for n in node.value], *span)
        self._open.discard(node)
        return made

    def _scalar(self, node: Node, key: bool) -> ast.expr:
        span = self._spans[node]
        try:
            value: object = self.loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, RecursionError):
            written = self.text[slice(*span)][:40]
            message = f"`{written}` cannot be read as {node.tag.removeprefix(_TAG)}"
            raise self._error(message, span[0]) from None
        known = value is None or isinstance(value, (bool, int, float, str, bytes))
        if self.omegaconf and not key and isinstance(value, str):
            known = "${" not in value and value != _MISSING
        if not known:
            return self.tree.unknown(*span)
        return self.tree.constant(value, *span)

    def _pair(self, key: Node | None, value: Node) -> Pair:
        if key is None:
            return None, self._value(value)
        name = self._value(key, key=True)
        if isinstance(name, (ast.Dict, ast.List)):
            raise self._error("found unhashable key", self._spans[key][0])
        return name, self._value(value)

    def _pairs(self, node: Node) -> list[NodePair]:
        """A mapping's entries behind those it merges with `<<`, which they override."""
        merged: list[list[NodePair]] = []
        own: list[NodePair] = []
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                merged += self._merged(value)
                continue
            if key.tag == _TAG + "value":  # the key `=`, to PyYAML as to us
                key.tag = _TAG + "str"
            own.append((key, value))
        return [*self._agreed(merged), *own]

    def _agreed(self, merged: list[list[NodePair]]) -> Iterator[NodePair]:
        """Entries of merged mappings; those of which several have one are not known.

        Which has the last word depends on PyYAML's release: until 6.0.3 the first of a
        list and the last of several `<<`, in 6.0.4 the last of both.
        """
        from yaml import ScalarNode

        entries = [pair for pairs in merged for pair in pairs]
        given: dict[object, set[object]] = {}
        for key, value in entries:
            given.setdefault(_same(key), set()).add(_same(value))
        for key, value in entries:
            if len(given[_same(key)]) > 1:
                contested = ScalarNode(_CONTESTED, "")
                self._spans[contested] = self._spans[value]
                yield key, contested
            else:
                yield key, value

    def _merged(self, node: Node) -> Iterator[list[NodePair]]:
        """What `<<: node` merges, by mapping."""
        for each in node.value if _kind(node) == "sequence" else [node]:
            start = self._spans[each][0]
            if _kind(each) != "mapping" and _plain(each):
                raise self._error("expected a mapping for merging", start)
            if _kind(each) != "mapping" or each in self._open:
                yield [(None, each)]
                continue
            self._enter(each)
            pairs = self._pairs(each)
            self._open.discard(each)
            self.tree.charge(1 + len(pairs), start)
            yield pairs

    def _enter(self, node: Node) -> None:
        self._open.add(node)
        self.tree.check_depth(len(self._open), self._spans[node][0])

    def _error(self, message: str, offset: int) -> SourceError:
        line = " ".join(message.split())
        return self.tree.error(f"not valid YAML: {line}", offset)


def _same(node: Node | None) -> object:
    """What two nodes have in common that are written alike, or are one."""
    scalar = node is not None and _kind(node) == "scalar"
    return (node.tag, node.value) if node is not None and scalar else node


def _kind(node: Any) -> str:
    """`scalar`, `sequence` or `mapping`, as written, whatever the tag says."""
    kind: str = node.id
    return kind


def _plain(node: Node) -> bool:
    """Whether a node has no tag of the user's own."""
    return node.tag.startswith(_TAG) and not node.tag.startswith(_TAG + "python/")


def _problem(error: YAMLError) -> tuple[str, int]:
    """What PyYAML finds wrong, and at which offset."""
    from yaml.error import MarkedYAMLError
    from yaml.reader import ReaderError

    if isinstance(error, ReaderError):
        return f"{error.reason}: #x{error.character:04x}", error.position
    assert isinstance(error, MarkedYAMLError)
    mark = error.problem_mark or error.context_mark
    message = ", ".join(part for part in (error.context, error.problem) if part)
    return message, mark.index if mark else 0


def _resolve_as_omegaconf(loader: SafeLoader) -> None:
    """Give a loader OmegaConf's float, and no timestamps."""
    resolvers: dict[str, list[Any]] = {
        first: [each for each in its if each[0] != _TAG + "timestamp"]
        for first, its in loader.yaml_implicit_resolvers.items()
    }
    for first in "-+0123456789.":
        resolvers.setdefault(first, []).append((_TAG + "float", _OMEGACONF_FLOAT))
    loader.yaml_implicit_resolvers = resolvers
