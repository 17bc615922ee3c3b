"""Checks one file with all rules, and applies fixes until nothing changes."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpulint.finding import Confidence, Effect, Finding, Fix, Place, Position, Severity
from gpulint.finding import TextEdit
from gpulint.index import build_index
from gpulint.registry import find_rule
from gpulint.rule import Rule
from gpulint.source import Source, SourceError, read_source, shield
from gpulint.suppress import suppress

MAX_PASSES = 100
RECURSION_LIMIT = 6000  # 150 links take a few Python frames each


@dataclass(frozen=True)
class Options:
    """What to check with. `torch_version`: the lowest torch the project allows."""

    rules: tuple[Rule, ...]
    allow: frozenset[Effect] = frozenset({Effect.EXACT})
    torch_version: tuple[int, int] | None = None


@dataclass(frozen=True)
class Checked:
    """The findings of one file, sorted. `source` is None if it cannot be read."""

    source: Source | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Fixed:
    """What fixing made of one file.

    `applied` has one finding per applied fix; `undone` one line per rule whose fix
    was taken back because the result did not compile.
    """

    source: Source
    text: str
    applied: tuple[Finding, ...]
    remaining: tuple[Finding, ...]
    undone: tuple[str, ...]


def check_path(path: Path, options: Options) -> Checked:
    """Check one file; what keeps it from being read or parsed is a finding."""
    try:
        source = read_source(path)
    except SourceError as error:
        return Checked(None, tuple(_trouble(path, error, options)))
    return check_source(source, options)


def check_source(source: Source, options: Options) -> Checked:
    """Check one text."""
    return Checked(source, tuple(_findings(source, options)))


def _findings(source: Source, options: Options) -> list[Finding]:
    try:
        shield(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.text)
        rules = [r for r in options.rules if r.needs.in_text(source.text)]
        if not rules:
            return []
        return _run(source, tree, rules, options)
    except SourceError as error:
        return list(_trouble(source.path, error, options))
    except SyntaxError as error:
        return list(_trouble(source.path, _syntax(source, error), options))
    except (ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, ValueError) and "null byte" not in str(error):
            raise
        deep = SourceError("not analysed: nested too deeply")
        null = SourceError("source has a null byte", code="GPU000")
        trouble = null if isinstance(error, ValueError) else deep
        return list(_trouble(source.path, trouble, options))


def _run(
    source: Source, tree: ast.Module, rules: list[Rule], options: Options
) -> list[Finding]:
    from gpulint.script import Script

    sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))
    index = build_index(source, tree)
    rules = [r for r in rules if r.needs.in_index(index)]
    if not rules:
        return []
    script = Script(source, index, options.torch_version)
    found = [finding for rule in rules for finding in rule.check(script)]
    found = [_with_ordinal(f, n) for f, n in _ordinals(found)]
    return sorted(suppress(found, source), key=lambda f: f.order)


def _ordinals(findings: Iterable[Finding]) -> Iterator[tuple[Finding, int]]:
    """Number findings that look alike, so that their fingerprints differ."""
    seen: dict[tuple[str, str], int] = {}
    for finding in sorted(findings, key=lambda f: f.order):
        key = (finding.code, finding.context)
        seen[key] = seen.get(key, -1) + 1
        yield finding, seen[key]


def _with_ordinal(finding: Finding, number: int) -> Finding:
    return replace(finding, context=f"{finding.context}\0{number}")


def _syntax(source: Source, error: SyntaxError) -> SourceError:
    """`ast` refuses a text: a syntax error, unless only LibCST can tell."""
    message = error.msg or "invalid syntax"
    if "too many nested" in message or "too complex" in message:
        return SourceError("not analysed: nested too deeply", error.lineno or 1)
    from gpulint.script.tree import Tree

    try:
        Tree(source)
    except (SourceError, LookupError):
        return SourceError(f"syntax error: {message}", error.lineno or 1, "GPU000")
    return SourceError(
        f"not analysed: needs a newer Python ({message})", error.lineno or 1
    )


def _trouble(path: Path, error: SourceError, options: Options) -> Iterator[Finding]:
    """The finding for a file that cannot be analysed, if its rule is selected."""
    rule = find_rule(error.code)
    if rule is None or all(r.code != rule.code for r in options.rules):
        return
    at = Position(max(error.row, 1), 1)
    yield Finding(
        code=rule.code,
        name=rule.name,
        message=str(error),
        severity=Severity.ERROR if error.code == "GPU000" else Severity.WARNING,
        effect=Effect.NONE,
        confidence=Confidence.HIGH,
        place=Place(path, at, at),
        context=str(error),
    )


# Fixing


def fix_path(path: Path, options: Options) -> Fixed | Checked:
    """Fix one file's text (nothing is written); Checked when it cannot be read."""
    try:
        source = read_source(path)
    except SourceError as error:
        return Checked(None, tuple(_trouble(path, error, options)))
    return fix_source(source, options)


def fix_source(source: Source, options: Options) -> Fixed:
    """Apply allowed fixes until nothing changes, effects in growing order.

    So that fixing twice with growing effects ends where one run with all of them
    ends. A pass whose result does not compile is undone and its rules left alone.
    """
    current = source
    applied: list[Finding] = []
    undone: list[str] = []
    skipped: set[str] = set()
    compiled = _compiles(source.text)
    for allowed in _stages(options.allow):
        for _ in range(MAX_PASSES):
            findings = _findings(current, options)
            chosen = _choose(findings, allowed, skipped)
            if not chosen:
                break
            text = apply_fixes(current, [f.fix for f in chosen if f.fix is not None])
            bad = compiled and not _compiles(text)
            if bad and len(chosen) > 1:
                chosen, text = _one_by_one(current, chosen)
                bad = not chosen
            if bad or text == current.text:
                skipped.update(f.code for f in chosen)
                undone += [_undone_line(f) for f in chosen]
                continue
            applied += chosen
            current = current.with_text(text)
    remaining = tuple(_findings(current, options))
    return Fixed(source, current.text, tuple(applied), remaining, tuple(undone))


def _one_by_one(source: Source, chosen: list[Finding]) -> tuple[list[Finding], str]:
    """The first fix alone, to find the one whose result does not compile."""
    for finding in chosen:
        assert finding.fix is not None
        text = apply_fixes(source, [finding.fix])
        if _compiles(text):
            return [finding], text
    return [], source.text


def _undone_line(finding: Finding) -> str:
    place = f"{finding.path}:{finding.place.start.row}"
    return f"{place}: the fix of {finding.code} was undone: its result does not compile"


def _stages(allow: frozenset[Effect]) -> list[frozenset[Effect]]:
    ranked = sorted(allow | {Effect.EXACT}, key=lambda e: e.rank)
    return [frozenset(ranked[: n + 1]) for n in range(len(ranked))]


def _choose(
    findings: list[Finding], allowed: frozenset[Effect], skipped: set[str]
) -> list[Finding]:
    """Fixes to apply together: allowed, not suppressed, in disjoint spans."""
    chosen: list[Finding] = []
    taken: list[TextEdit] = []
    for finding in sorted(findings, key=lambda f: (f.effect.rank, f.order)):
        fix = finding.fix
        if fix is None or finding.suppressed or finding.code in skipped:
            continue
        if fix.effect in allowed and not any(
            _meet(a, b) for a in fix.edits for b in taken
        ):
            chosen.append(finding)
            taken += fix.edits
    return chosen


def _meet(a: TextEdit, b: TextEdit) -> bool:
    """Whether two edits touch: overlap, or insert at the same place."""
    if a.start == b.start:
        return True
    return a.start < b.end and b.start < a.end


def _compiles(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<fixed>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def apply_fixes(source: Source, fixes: Iterable[Fix]) -> str:
    """The text after disjoint fixes, with the imports that they need."""
    fixes = list(fixes)
    edits = [edit for fix in fixes for edit in fix.edits]
    imports = list(dict.fromkeys(i for fix in fixes for i in fix.imports))
    text = source.text
    if imports:
        edits.append(_import_edit(source, imports))
    for edit in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
        text = text[: edit.start] + edit.content + text[edit.end :]
    return text


def _import_edit(source: Source, imports: list[str]) -> TextEdit:
    """Insertion after the first block of imports (or docstring, or at the top)."""
    tree = ast.parse(source.text)
    after: ast.stmt | None = None
    for number, statement in enumerate(tree.body):
        is_import = isinstance(statement, (ast.Import, ast.ImportFrom))
        is_docstring = (
            number == 0
            and isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        )
        if not is_import and not is_docstring:
            break
        after = statement
    newline = source.newline
    content = newline.join(imports) + newline
    if after is None:
        return TextEdit(*[_top(source)] * 2, content)
    assert after.end_lineno is not None
    starts = source.starts
    if after.end_lineno < len(starts):
        at = starts[after.end_lineno]
    else:
        at, content = len(source.text), newline + content
    if isinstance(after, ast.Expr):
        content = newline + content
    return TextEdit(at, at, content)


def _top(source: Source) -> int:
    """Offset of the first line that is not a shebang, cookie or other comment."""
    for row, start in enumerate(source.starts, 1):
        if not re.match(r"\s*#", source.line(row)):
            return start
    return len(source.text)
