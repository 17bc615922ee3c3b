"""What fixes make of a text: their edits, and the imports that they need."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from gpulint.finding import Fix, Position, TextEdit
from gpulint.source import FRAMEWORKS, Source

_IMPORTS = (ast.Import, ast.ImportFrom)
_FRAMEWORK = re.compile("|".join(FRAMEWORKS))


def apply_fixes(source: Source, fixes: Iterable[Fix]) -> str:
    """The text after disjoint fixes, with the imports that they need."""
    fixes = list(fixes)
    edits = [edit for fix in fixes for edit in fix.edits]
    edits += _import_edits(source, fixes)
    text = source.text
    for edit in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
        text = text[: edit.start] + edit.content + text[edit.end :]
    return text


def complete(source: Source, fix: Fix) -> Sequence[TextEdit]:
    """The edits of one fix with the insertion of the imports it needs."""
    return (*fix.edits, *_import_edits(source, [fix]))


def _import_edits(source: Source, fixes: Sequence[Fix]) -> Iterator[TextEdit]:
    """The insertions of the imports that a text lacks for some fixes.

    After the first block of imports, else after the docstring, else at the top. In a
    notebook after those of the last cell before a fix that imports a framework: parts
    of it that import all they need may be run alone.
    """
    needed = [fix for fix in fixes if fix.imports]
    body = ast.parse(source.text).body if needed else []
    wanted: dict[int, dict[str, None]] = {}  # by the number of the cell; 0: the first
    for fix in needed:
        cell = _importing_cell(source, body, fix)
        wanted.setdefault(cell, {}).update(dict.fromkeys(fix.imports))
    for cell, imports in wanted.items():
        behind = [s for s in body if _cell_of(source, s.lineno) >= cell]
        present = {ast.unparse(s) for s in behind if isinstance(s, _IMPORTS)}
        missing = [i for i in imports if i not in present]
        if missing:
            yield _insertion(source, behind, missing, at_once=not cell)


def _importing_cell(source: Source, body: list[ast.stmt], fix: Fix) -> int:
    """The last cell up to a fix that imports a framework; 0 where there is none."""
    last = max((source.position(e.start).row for e in fix.edits), default=0)
    if not _cell_of(source, last):
        return 0  # no notebook
    cells = (
        _cell_of(source, statement.lineno)
        for statement in body
        if isinstance(statement, _IMPORTS)
        and statement.lineno <= last
        and _FRAMEWORK.search(ast.unparse(statement))
        and not _is_of_a_module(statement)
    )
    return max(cells, default=0)


def _is_of_a_module(statement: ast.Import | ast.ImportFrom) -> bool:
    """`import torch._dynamo as dynamo`, of what a cell uses beside the framework."""
    return isinstance(statement, ast.Import) and all(
        "." in alias.name and alias.asname for alias in statement.names
    )


def _cell_of(source: Source, row: int) -> int:
    return source.in_cell(Position(row, 1))[0] or 0


def _insertion(
    source: Source, behind: list[ast.stmt], imports: list[str], *, at_once: bool
) -> TextEdit:
    """The insertion of imports after the first block of these in some statements.

    `at_once`: a block further down does not count.
    """
    after: ast.stmt | None = None
    for statement in behind:
        if isinstance(statement, _IMPORTS) or _is_docstring(statement, behind):
            after = statement
        elif after is not None or at_once:
            break
    newline = source.newline
    content = newline.join(imports) + newline
    if after is None:
        top = _top(source)
        return TextEdit(top, top, content)
    assert after.end_lineno is not None
    end = source.starts[after.end_lineno :][:1]
    if isinstance(after, ast.Expr):
        content = newline + content
    if not end:
        content = newline + content
    at = end[0] if end else len(source.text)
    return TextEdit(at, at, content)


def _is_docstring(statement: ast.stmt, body: list[ast.stmt]) -> bool:
    return (
        statement is body[0]
        and isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _top(source: Source) -> int:
    """Offset of the first line that is not a shebang, cookie or other comment."""
    for row, start in enumerate(source.starts, 1):
        if not re.match(r"\s*#", source.line(row)):
            return start
    return len(source.text)
