"""What fixes make of a text: their edits, and the imports that they need."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from gpulint.finding import Fix, TextEdit
from gpulint.source import Source

_IMPORTS = (ast.Import, ast.ImportFrom)


def apply_fixes(source: Source, fixes: Iterable[Fix]) -> str:
    """The text after disjoint fixes, with the imports that they need."""
    fixes = list(fixes)
    edits = [edit for fix in fixes for edit in fix.edits]
    imports = list(dict.fromkeys(i for fix in fixes for i in fix.imports))
    text = source.text
    added = import_edit(source, imports)
    if added is not None:
        edits.append(added)
    for edit in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
        text = text[: edit.start] + edit.content + text[edit.end :]
    return text


def complete(source: Source, fix: Fix) -> Sequence[TextEdit]:
    """The edits of one fix with the insertion of the imports it needs."""
    added = import_edit(source, fix.imports)
    return fix.edits if added is None else (*fix.edits, added)


def import_edit(source: Source, imports: Sequence[str]) -> TextEdit | None:
    """The insertion of the imports that a text lacks, None if it has them all.

    After the first block of imports, else after the docstring, else at the top.
    """
    body = ast.parse(source.text).body if imports else []
    present = {ast.unparse(s) for s in body if isinstance(s, _IMPORTS)}
    missing = [i for i in imports if i not in present]
    if not missing:
        return None
    after: ast.stmt | None = None
    for statement in body:
        if not isinstance(statement, _IMPORTS) and not _is_docstring(statement, body):
            break
        after = statement
    newline = source.newline
    content = newline.join(missing) + newline
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
