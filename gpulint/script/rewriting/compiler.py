"""Compiles the edits of a rewrite to spans of the text."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator

from gpulint.finding import Effect, Fix, LazyEdits, TextEdit
from gpulint.index.walk import LOOPS, walk
from gpulint.script.rewriting.edits import (
    CannotFix,
    Edit,
    InsertAfter,
    InsertBefore,
    Remove,
    Replace,
    ReplaceCode,
    Rewrite,
    Wrap,
)
from gpulint.script.rewriting.syntax import parsed, spanned
from gpulint.source import Source, node_span

# Comments that mean something where they stand: cells, switches of tools.
_MARKS = re.compile(
    r"\s*#\s*(%%|In\s?\[|<|type:|noqa|fmt:|yapf:|pylint:|gpulint:|!|-\*-)"
)


class Compiler:
    """Turns the edits of one file into text edits."""

    def __init__(self, source: Source, tree: ast.Module) -> None:
        self.source = source
        self.tree = tree

    def compile(self, rewrite: Rewrite, effect: Effect) -> Fix:
        """The fix. CannotFix where the text does not allow it."""
        self._edits(rewrite, self._outline)
        edits = LazyEdits(lambda: self._edits(rewrite, self._replace))
        return Fix(rewrite.title, effect, edits, rewrite.imports)

    def _edits(
        self,
        rewrite: Rewrite,
        replace: Callable[[Replace, list[Replace]], TextEdit],
    ) -> tuple[TextEdit, ...]:
        replaced = [e for e in rewrite.edits if isinstance(e, Replace)]
        edits: list[TextEdit] = []
        for edit in rewrite.edits:
            if isinstance(edit, Replace):
                if not any(self._inside(edit, other) for other in replaced):
                    edits.append(replace(edit, replaced))
            else:
                edits.extend(self._plain(edit))
        wrapped = [e for e in rewrite.edits if isinstance(e, Wrap)]
        _keep_strings(wrapped, replaced)
        return _merge(edits, self.source.newline)

    def _outline(self, edit: Replace, _: list[Replace]) -> TextEdit:
        """Where an expression will be replaced; enough to see what it would meet."""
        return TextEdit(*spanned(self.source, edit.node), "")

    def _plain(self, edit: Edit) -> Iterable[TextEdit]:
        if isinstance(edit, ReplaceCode):
            start, end = node_span(self.source, edit.node)
            return [
                TextEdit(start, end, self._lines(edit.code, self._indent(edit.node)))
            ]
        if isinstance(edit, InsertBefore):
            return [self._insert_before(edit)]
        if isinstance(edit, InsertAfter):
            return [self._insert_after(edit)]
        if isinstance(edit, Wrap):
            return self._wrap(edit)
        if isinstance(edit, Remove):
            return [self._remove(edit)]
        raise TypeError(f"not an edit: {edit!r}")

    # Replacing

    def _inside(self, edit: Replace, other: Replace) -> bool:
        if edit is other:
            return False
        start, end = node_span(self.source, edit.node)
        outer_start, outer_end = node_span(self.source, other.node)
        inside = outer_start <= start and end <= outer_end
        return inside and (outer_start, outer_end) != (start, end)

    def _replace(self, edit: Replace, edits: list[Replace]) -> TextEdit:
        start, end = spanned(self.source, edit.node)
        return TextEdit(start, end, self._built(edit, edits))

    def _built(self, edit: Replace, edits: list[Replace]) -> str:
        """The text of an expression after its builder, those inside it first."""
        start, end = spanned(self.source, edit.node)
        text = self.source.text[start:end]
        self._check(edit.node, text)
        inner = [other for other in edits if self._inside(other, edit)]
        nearest = {
            spanned(self.source, other.node): other
            for other in inner
            if not any(self._inside(other, between) for between in inner)
        }
        for (first, last), other in sorted(nearest.items(), reverse=True):
            made = self._built(other, inner)
            text = text[: first - start] + made + text[last - start :]
        return edit.build(text)

    def _check(self, node: ast.expr, text: str) -> None:
        """LookupError where this is not the node's text: an error, never a skip."""
        try:
            if ast.dump(parsed(text)[1]) == ast.dump(node):
                return
        except SyntaxError:
            pass
        place = f"{self.source.path}:{node.lineno}:{node.col_offset + 1}"
        raise LookupError(f"{place}: not the text of this {type(node).__name__}")

    # Statements

    def _unit(self, statement: ast.stmt) -> str:
        """How much deeper a block is than the line that begins it.

        A block of the statement itself, else the nearest around it, else the file's
        first one.
        """
        for node in self._blocks_near(statement):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body:
                outer, inner = self._indent(node), self._indent(body[0])
                if inner.startswith(outer) and inner != outer:
                    return inner[len(outer) :]
        return "    "

    def _blocks_near(self, statement: ast.stmt) -> Iterator[ast.AST]:
        yield from ast.walk(statement)
        around = [n for n in ast.walk(self.tree) if _holds(n, statement)]
        yield from reversed(around)
        yield from ast.walk(self.tree)

    def _indent(self, node: ast.AST) -> str:
        """The white space before the first token of the node's line."""
        line = self.source.line(node.lineno)  # type: ignore[attr-defined]
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    def _line_start(self, statement: ast.stmt) -> int:
        decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(d.lineno for d in decorators)])
        start = self.source.starts[first - 1]
        before = self.source.text[start : node_span(self.source, statement)[0]]
        if first == statement.lineno and before.strip():
            raise CannotFix("the statement shares its line with another")
        return start

    def _line_end(self, statement: ast.stmt) -> int:
        """Offset after the newline of the statement's last line."""
        assert statement.end_lineno is not None
        starts = self.source.starts
        row = statement.end_lineno
        end = starts[row] if row < len(starts) else len(self.source.text)
        rest = self.source.text[node_span(self.source, statement)[1] : end].strip()
        if rest and not rest.startswith("#"):
            raise CannotFix("the statement shares its line with another")
        return end

    def _lines(self, code: str, indent: str) -> str:
        """Code with the file's newlines, all lines but the first and empty indented."""
        first, *rest = code.split("\n")
        indented = (indent + line if line else "" for line in rest)
        return self.source.newline.join([first, *indented])

    def _insert_before(self, edit: InsertBefore) -> TextEdit:
        start = self._line_start(edit.statement)
        if isinstance(edit.statement, LOOPS):
            start = self._above_comments(start, self._indent(edit.statement))
        indent = self._indent(edit.statement)
        text = indent + self._lines(edit.code, indent) + self.source.newline
        return TextEdit(start, start, text)

    def _above_comments(self, start: int, indent: str) -> int:
        """Offset above the comments that stand right above a loop, and tell of it.

        Those of a program's head stay where they are, as do marks such as `# %%`.
        """
        row = self.source.position(start).row - 1
        while row > 0 and (line := self.source.line(row)).startswith(f"{indent}#"):
            if self.source.is_head(row):
                break  # of a cell
            if _MARKS.match(line):
                return start
            row -= 1
        return self.source.starts[row] if row > 0 else start

    def _insert_after(self, edit: InsertAfter) -> TextEdit:
        self._line_start(edit.statement)
        indent = self._indent(edit.statement)
        end = self._comments_end(self._line_end(edit.statement), indent)
        text = indent + self._lines(edit.code, indent) + self.source.newline
        if end and self.source.text[end - 1] not in "\r\n":
            text = self.source.newline + text
        return TextEdit(end, end, text)

    def _comments_end(self, end: int, indent: str) -> int:
        """Offset behind the comments that a block ends with, deeper than its header."""
        deeper = re.compile(rf"(?:[ \t]*\r?\n)*{indent}[ \t]+#[^\r\n]*(?:\r?\n|$)")
        while comment := deeper.match(self.source.text, end):
            end = comment.end()
        return end

    def _remove(self, edit: Remove) -> TextEdit:
        return TextEdit(
            self._line_start(edit.statement), self._line_end(edit.statement), ""
        )

    def _wrap(self, edit: Wrap) -> list[TextEdit]:
        """A header line, and one more level before each line that is not a string's."""
        first, last = edit.statements[0], edit.statements[-1]
        start = self._line_start(first)
        self._line_end(last)
        indent = self._indent(first)
        header = indent + self._lines(edit.header, indent) + self.source.newline
        edits = [TextEdit(start, start, header)]
        unit = self._unit(first)
        kept = _string_rows(edit.statements)
        assert last.end_lineno is not None
        for row in range(self.source.position(start).row, last.end_lineno + 1):
            if row not in kept and self.source.line(row).strip():
                at = self.source.starts[row - 1]
                edits.append(TextEdit(at, at, unit))
        return edits


def _holds(node: ast.AST, statement: ast.stmt) -> bool:
    """Whether a statement stands in the lines of another that is longer."""
    if not isinstance(node, ast.stmt) or node.end_lineno is None:
        return False
    return node.lineno < statement.lineno <= node.end_lineno


def _keep_strings(wrapped: list[Wrap], replaced: list[Replace]) -> None:
    """CannotFix where a replaced expression that is indented holds a long string."""
    for wrap in wrapped:
        kept = _string_rows(wrap.statements)
        for edit in replaced:
            last = edit.node.end_lineno or edit.node.lineno
            if kept.intersection(range(edit.node.lineno + 1, last + 1)):
                raise CannotFix("a string runs over several lines")


def _string_rows(statements: tuple[ast.stmt, ...]) -> set[int]:
    """Rows that begin inside a string literal: indenting them would change it."""
    rows: set[int] = set()
    for node in walk(*statements):
        text = isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        if text or isinstance(node, ast.JoinedStr):
            first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
            rows.update(range(first + 1, last + 1))
    return rows


def _merge(edits: list[TextEdit], newline: str) -> tuple[TextEdit, ...]:
    """Sort; indentation that falls inside a replaced text goes into that text."""
    spans = [e for e in edits if e.start < e.end]
    deeper: dict[TextEdit, str] = {}
    result: list[TextEdit] = []
    for edit in (e for e in edits if e.start == e.end):
        holder = next((s for s in spans if s.start < edit.start < s.end), None)
        if holder is None:
            result.append(edit)
        elif edit.content.strip():
            raise CannotFix("two edits of the fix meet in one expression")
        else:
            deeper[holder] = newline + edit.content
    for span in spans:
        content = span.content.replace(newline, deeper.get(span, newline))
        result.append(TextEdit(span.start, span.end, content))
    ordered = sorted(result, key=lambda e: (e.start, e.end))
    for before, after in itertools.pairwise(ordered):
        if after.start < before.end:
            raise CannotFix("two edits of the fix overlap")
    return tuple(_joined_inserts(ordered))


def _joined_inserts(ordered: list[TextEdit]) -> list[TextEdit]:
    """One insertion where several of a fix stand at the same offset."""
    joined: list[TextEdit] = []
    for edit in ordered:
        last = joined[-1] if joined else None
        if last and last.start == last.end == edit.start == edit.end:
            joined[-1] = TextEdit(last.start, last.end, last.content + edit.content)
        else:
            joined.append(edit)
    return joined
