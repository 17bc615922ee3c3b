"""Checks one file with all rules, and applies fixes until nothing changes."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from gpulint.finding import (
    Confidence,
    Effect,
    Finding,
    Fix,
    Place,
    Position,
    TextEdit,
)
from gpulint.index import SETTINGS, FileIndex, Project, Projects, build_index
from gpulint.registry import find_rule
from gpulint.releases import FIRST_TORCH, NUMPY, TORCH, Range, for_numpy, for_python
from gpulint.rule import Present, Rule
from gpulint.source import (
    FRAMEWORKS,
    OLD_EXCEPT,
    Source,
    SourceError,
    check_syntax,
    is_of_old_python,
    may_be_deep,
    parse,
    read_source,
)
from gpulint.suppress import Suppressions, Unused, suppress_in_settings
from gpulint.terms import Terms
from gpulint.text_edits import apply_fixes

MAX_PASSES = 100
_IMPORT = re.compile(
    rf"^\s*(?:from|import)\b[^\n#]*(?:{'|'.join(FRAMEWORKS)})", re.MULTILINE
)
# What readers are to fill in: `x = first ...`, `path =  # where the data are`.
_LEFT_OUT = re.compile(r" \.\.\.\s*$|^\s*[\w.]+\s*=\s*(#.*)?$")
# What has a part in training somewhere; a text without any of it hides little.
_TRAINS = re.compile(
    r"backward\(|Dataset|DataLoader|rainer\b|GradientTape|Module\b|optim|loss|keras"
    r"|mindspore|tf\.data|\.fit\(|\btrain",
    re.IGNORECASE,
)
_DATABRICKS = "# Databricks notebook source"
RECURSION_LIMIT = 6000  # 150 links take a few Python frames each
# Nothing in the text is deep: the error is ours.
LOST = "not analysed: gpulint was led in a circle by it - please report this"


class Options(NamedTuple):
    """What to check with.

    `torch_version`, `newest_torch`: the lowest and the highest torch the project
    allows. `projects`: where the other files of a script are found; without it each
    file stands alone. `vendor`: fixes import the runtime from a file beside the script.
    `packages`: the releases that the project allows of packages other than torch.
    `said`: packages whose releases the user gives; of others, torch among them, what a
    notebook installs itself counts.
    `terms`: what the user says about severities, and about what is left alone.
    `protect`: patterns of functions that no autocast may be put around.
    `accept` is asked, with the text of its pass, about each fix that could be applied.
    """

    rules: tuple[Rule, ...]
    allow: frozenset[Effect] = frozenset({Effect.EXACT})
    torch_version: tuple[int, int] | None = None
    projects: Projects | None = None
    newest_torch: tuple[int, int] | None = None
    vendor: bool = False
    accept: Callable[[Source, Finding], bool] | None = None
    packages: tuple[tuple[str, Range], ...] = ()
    said: frozenset[str] = frozenset()
    terms: Terms = Terms()
    protect: tuple[str, ...] = ()


class Checked(NamedTuple):
    """The findings of one file, sorted. `source` is None if it cannot be read."""

    source: Source | None
    findings: tuple[Finding, ...]


class Fixed(NamedTuple):
    """What fixing made of one file.

    `applied` has one finding per applied fix, `undone` those whose fix was taken back
    because the result did not compile. `stable`: another run changes nothing.
    """

    source: Source
    text: str
    applied: tuple[Finding, ...]
    remaining: tuple[Finding, ...]
    undone: tuple[Finding, ...] = ()
    stable: bool = True


def check_path(path: Path, options: Options) -> Checked:
    """Check one file; what keeps it from being read or parsed is a finding."""
    try:
        source = read_source(path)
    except SourceError as error:
        return Checked(None, tuple(trouble(path, error, options)))
    return check_source(source, options)


def check_source(source: Source, options: Options) -> Checked:
    """Check one text."""
    return Checked(source, tuple(_findings(source, options)))


def _findings(source: Source, options: Options) -> list[Finding]:
    if source.vendored:
        return []
    try:
        present = Present(source.text)
        rules = [r for r in options.rules if r.needs.among(present)]
        if not rules and not may_be_deep(source):
            _syntax_only(source, options)
            return []
        sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))
        return _run(source, _index(source, options), rules, options)
    except SourceError as error:
        return _trouble_in(source, error, options)
    except SyntaxError as error:
        return _trouble_in(source, _syntax(source, error), options)
    except (ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, ValueError) and "null byte" not in str(error):
            raise
        reason = SourceError("not analysed: nested too deeply")
        if isinstance(error, RecursionError) and not may_be_deep(source):
            reason = SourceError(LOST)
        if isinstance(error, ValueError):
            reason = SourceError("source has a null byte", code="GPU000")
        return _trouble_in(source, reason, options)


def _syntax_only(source: Source, options: Options) -> None:
    """Nothing to look for; in a file about training a syntax error is a finding still.

    In others there is nothing that it could hide: old scripts for Python 2, templates.
    """
    if not any(name in source.text for name in FRAMEWORKS):
        return
    project = _project(source, options)
    if project is None or project.known(source) is None:
        check_syntax(source)


def _index(source: Source, options: Options) -> FileIndex:
    """The index of a text, as a part of its project where that is known."""
    project = _project(source, options)
    if project is None:
        return build_index(source, parse(source))
    project.trim()
    known = project.known(source)
    return known or project.adopt(build_index(source, parse(source)))


def _project(source: Source, options: Options) -> Project | None:
    named = options.projects is not None and source.path.is_absolute()
    return options.projects.enter(source.path) if named and options.projects else None


def _allowed(
    source: Source, options: Options
) -> tuple[Range, tuple[tuple[str, Range], ...]]:
    """The releases of torch, and of other packages, that a file may run with.

    Those of the project, and in a notebook those that it installs. An old NumPy bounds
    the Python, unless the user gives that, and an old Python the torch, unless the user
    gives that.
    """
    torch = Range(options.torch_version, options.newest_torch)
    releases = {TORCH: torch, **dict(options.packages)}
    releases |= {n: its for n, its in source.installed.items() if n not in options.said}
    torch = releases.pop(TORCH)
    if "python" not in options.said:
        python = releases.get("python", Range())
        python = for_numpy(python, releases.get(NUMPY, Range()))
        releases |= {"python": python} if python else {}
    if TORCH not in options.said:
        torch = for_python(torch, releases.get("python", Range()))
    return torch, tuple(releases.items())


def _run(
    source: Source, index: FileIndex, rules: list[Rule], options: Options
) -> list[Finding]:
    from gpulint.script import Script
    from gpulint.script.reaching.left_over import left_over
    from gpulint.script.reaching.old_torch import runs_only_before

    rules = [r for r in rules if r.needs.in_index(index)]
    if not rules:
        return []
    torch, packages = _allowed(source, options)
    script = Script(
        source,
        index,
        torch.lowest,
        newest_torch=torch.highest,
        vendor=options.vendor,
        packages=packages,
        protect=options.protect,
    )
    if script.is_test:
        rules = [r for r in rules if r.in_tests]
    if runs_only_before(script, FIRST_TORCH):
        return []
    found = [finding for rule in rules for finding in rule.check(script)]
    here = [f for f in found if f.place.path == source.path]
    unused = left_over(script, {f.place.start.row for f in here})
    left = {id(f) for f in here if f.place.start.row in unused}
    found = list(_numbered(f for f in found if id(f) not in left))
    suppressions = Suppressions(source)
    own = suppressions.apply(f for f in found if f.place.path == source.path)
    settings = [f for f in found if f.place.path.suffix in SETTINGS]
    idle = [
        finding
        for unused in suppressions.unused()
        for finding in _idle(source, unused, options)
    ]
    all_of = [*own, *suppressions.apply(idle), *map(suppress_in_settings, settings)]
    terms = options.terms
    admitted = (terms.applied(f) for f in all_of if terms.admit(f))
    return sorted(admitted, key=lambda f: f.order)


def _idle(source: Source, unused: Unused, options: Options) -> Iterator[Finding]:
    """The finding for a comment that switches nothing off."""
    comment, code, word = unused
    rule = find_rule(code) if code else None
    selected = {r.code for r in options.rules}
    if rule is not None and rule.code not in selected:
        return  # it may be needed where that rule runs
    if not code:
        why = f"`gpulint: {word}` names no rule, so it switches nothing off"
    elif rule is None:
        why = f"there is no rule `{code}` to ignore"
    else:
        why = f"{rule.code} finds nothing here: the comment is not needed"
    error = SourceError(why, comment.row, "GPU002" if code else "GPU003")
    yield from trouble(source.path, error, options, comment.column)


def _numbered(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Number findings that look alike, so that their fingerprints differ."""
    seen: dict[tuple[str, str], int] = {}
    for finding in sorted(findings, key=lambda f: f.order):
        key = (finding.code, finding.context)
        seen[key] = seen.get(key, -1) + 1
        yield finding._replace(ordinal=seen[key])


def _syntax(source: Source, error: SyntaxError) -> SourceError:
    """`ast` refuses a text: a syntax error, unless only LibCST can tell."""
    message = error.msg or "invalid syntax"
    if "too many nested" in message or "too complex" in message:
        return SourceError("not analysed: nested too deeply", error.lineno or 1)
    from gpulint.script.rewriting.tree import accepts

    if source.text.startswith(_DATABRICKS):
        message = "not analysed: a Databricks notebook with commands beside its Python"
        return SourceError(message, error.lineno or 1)
    wrong = SourceError(f"syntax error: {message}", error.lineno or 1, "GPU000")
    if OLD_EXCEPT.search(source.text) or message.startswith("("):
        return wrong  # `(unicode error)`: no Python reads such a text
    if not accepts(source.text):
        return wrong
    return SourceError(
        f"not analysed: needs a newer Python ({message})", error.lineno or 1
    )


def _trouble_in(source: Source, error: SourceError, options: Options) -> list[Finding]:
    if error.code == "GPU001" and (source.generated or not _imports_framework(source)):
        return []
    if error.code == "GPU000":
        if _is_no_training_code(source, options):
            return []
        if is_of_old_python(source.text, str(error), error.row):
            if "torch" not in source.text:
                return []  # no release is left that runs with it
            error.meant = True
        if _is_a_sketch(source, error):
            error.meant = True
    return list(trouble(source.path, error, options))


def _is_a_sketch(source: Source, error: SourceError) -> bool:
    """Whether a script has no part in training, or leaves out parts of its text."""
    row = source.text.splitlines()[error.row - 1 : error.row]
    left_out = any(_LEFT_OUT.search(line) for line in row)
    trains = _TRAINS.search(source.text) is not None
    return source.path.suffix == ".py" and (left_out or not trains)


def _is_no_training_code(source: Source, options: Options) -> bool:
    """Whether a syntax error hides nothing: old scripts for Python 2, templates."""
    newest = options.newest_torch
    if newest is not None and newest < (1, 0):
        return True
    template = any("{{" in part for part in source.path.parts)
    return template or not _imports_framework(source)


def _imports_framework(source: Source) -> bool:
    """Whether a line of a file imports a framework, or a package named after one.

    A file that installs one, or hands its name on, has nothing of it to check.
    """
    return _IMPORT.search(source.text) is not None


def trouble(
    path: Path, error: SourceError, options: Options, column: int = 1
) -> Iterator[Finding]:
    """The finding for what cannot be analysed, if its rule is selected."""
    rule = find_rule(error.code)
    if rule is None or all(r.code != rule.code for r in options.rules):
        return
    at = Position(max(error.row, 1), column)
    found = Finding(
        code=rule.code,
        name=rule.name,
        message=str(error),
        severity=rule.severity,
        effect=Effect.NONE,
        confidence=Confidence.LOW if error.meant else Confidence.HIGH,
        place=Place(path, at, at),
        context=str(error),
    )
    if options.terms.admit(found):
        yield options.terms.applied(found)


# Fixing


def fix_path(path: Path, options: Options) -> Fixed | Checked:
    """Fix one file's text (nothing is written); Checked when it cannot be read."""
    try:
        source = read_source(path)
    except SourceError as error:
        return Checked(None, tuple(trouble(path, error, options)))
    return fix_source(source, options)


def fix_source(source: Source, options: Options) -> Fixed:
    """Apply allowed fixes until nothing changes, effects in growing order.

    So that fixing twice with growing effects ends where one run with all of them
    ends. A pass whose result does not compile is undone and its rules left alone.
    """
    current = source
    applied: list[Finding] = []
    undone: list[Finding] = []
    stable = True
    skipped: set[str] = set()
    compiled = _compiles(source.text)
    findings = _findings(current, options)  # of the text as it now is
    for allowed in _stages(options.allow):
        for _ in range(MAX_PASSES):
            chosen = _choose(current, findings, allowed, skipped, options.accept)
            if not chosen:
                break
            text = apply_fixes(current, [f.fix for f in chosen if f.fix is not None])
            bad = not _holds(current, text, compiled)
            if bad and len(chosen) > 1:
                chosen, text = _one_by_one(current, chosen, compiled)
                bad = not chosen
            if bad or text == current.text:
                skipped.update(f.code for f in chosen)
                undone += chosen
                continue
            applied += chosen
            current = current.with_text(text)
            findings = _findings(current, options)
        else:
            stable = False
            break
    project = _project(source, options)
    if project is not None and current is not source:
        project.replace(source.path, current.text)  # as the other files will find it
    remaining = tuple(findings)
    return Fixed(source, current.text, tuple(applied), remaining, tuple(undone), stable)


def fix_again(fixed: Fixed, options: Options) -> Fixed:
    """Fix what fixes in other files have brought to light in this one."""
    more = fix_source(fixed.source.with_text(fixed.text), options)
    return Fixed(
        fixed.source,
        more.text,
        (*fixed.applied, *more.applied),
        more.remaining,
        (*fixed.undone, *more.undone),
        fixed.stable and more.stable,
    )


def fix_one(source: Source, fix: Fix) -> str | None:
    """The text after one fix; None where it would break the file."""
    text = apply_fixes(source, [fix])
    return text if _holds(source, text, _compiles(source.text)) else None


def _holds(source: Source, text: str, compiled: bool) -> bool:
    """Whether a file can have a text, which compiles if the old one did."""
    return source.accepts(text) and (not compiled or _compiles(text))


def _one_by_one(
    source: Source, chosen: list[Finding], compiled: bool
) -> tuple[list[Finding], str]:
    """The first fix alone, to find the one whose result does not compile."""
    for finding in chosen:
        assert finding.fix is not None
        text = apply_fixes(source, [finding.fix])
        if _holds(source, text, compiled):
            return [finding], text
    return [], source.text


def _stages(allow: frozenset[Effect]) -> list[frozenset[Effect]]:
    ranked = sorted(allow | {Effect.EXACT}, key=lambda e: e.rank)
    return [frozenset(ranked[: n + 1]) for n in range(len(ranked))]


def _choose(
    source: Source,
    findings: list[Finding],
    allowed: frozenset[Effect],
    skipped: set[str],
    accept: Callable[[Source, Finding], bool] | None,
) -> list[Finding]:
    """Fixes to apply together: allowed, not suppressed, in disjoint spans, accepted.

    One that is not accepted takes no place: what it meets is offered in this pass.
    """
    chosen: list[Finding] = []
    taken: list[TextEdit] = []
    for finding in sorted(findings, key=lambda f: (f.effect.rank, f.order)):
        fix = finding.fix
        if fix is None or finding.suppressed or finding.code in skipped:
            continue
        if fix.effect not in allowed or any(
            _meet(a, b) for a in fix.edits for b in taken
        ):
            continue
        if accept is None or accept(source, finding):
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
