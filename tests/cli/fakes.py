"""A small engine and four rules that stand for the real ones."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Protocol

from click.testing import Result

from gpulint.engine import Checked, Fixed, Options
from gpulint.finding import (
    Confidence,
    Effect,
    Finding,
    Fix,
    Place,
    Severity,
    TextEdit,
)
from gpulint.rule import Needs, Rule, Words
from gpulint.source import Source, SourceError, read_source
from gpulint.text_edits import complete


class FakeRule(Rule):
    """Finds a word; its fix writes another one."""

    needs: ClassVar[Needs] = Words("_")
    word: ClassVar[str]
    better: ClassVar[str | None] = None


def make_rule(stem: str, documentation: str, **attributes: object) -> FakeRule:
    """A rule whose module is called `stem`."""
    shown = property(lambda _: documentation)
    names = {"__module__": f"gpulint.rules.{stem}", "documentation": shown}
    made = type(stem, (FakeRule,), {**names, **attributes})
    return made()


class FakeEngine(types.ModuleType):
    """Stands for `gpulint.engine`; remembers the options it was given."""

    Options, Checked, Fixed = Options, Checked, Fixed
    complete = staticmethod(complete)
    trouble = staticmethod(lambda path, error, options: [unread(path, error)])

    def __init__(self) -> None:
        super().__init__("gpulint.engine")
        self.options: dict[Path, Options] = {}

    def check_path(self, path: Path, options: Options) -> Checked:
        self.options[path] = options
        try:
            source = read_source(path)
        except SourceError as error:
            return Checked(None, (unread(path, error),))
        return self.check_source(source, options)

    def check_source(self, source: Source, options: Options) -> Checked:
        if "internal_error" in source.text:
            raise KeyError("x")
        found = [f for rule in options.rules for f in find(rule, source)]
        return Checked(source, tuple(sorted(found, key=lambda f: f.order)))

    def fix_path(self, path: Path, options: Options) -> Fixed | Checked:
        checked = self.check_path(path, options)
        return checked if checked.source is None else self._fix(checked, options)

    def fix_source(self, source: Source, options: Options) -> Fixed:
        return self._fix(self.check_source(source, options), options)

    def fix_again(self, fixed: Fixed, options: Options) -> Fixed:
        """What fixes elsewhere bring to light here: words that were asleep."""
        text = fixed.text.replace("asleep_copy", "slow_copy")
        more = self.fix_source(fixed.source.with_text(text), options)
        applied = (*fixed.applied, *more.applied)
        return Fixed(fixed.source, more.text, applied, more.remaining)

    def _fix(self, checked: Checked, options: Options) -> Fixed:
        assert checked.source is not None
        text = checked.source.text
        applied = [
            f for f in checked.findings if f.fix and f.fix.effect in options.allow
        ]
        if options.accept is not None:
            applied = [f for f in applied if options.accept(checked.source, f)]
        for finding in reversed(applied):
            assert finding.fix is not None
            [edit] = finding.fix.edits
            text = text[: edit.start] + edit.content + text[edit.end :]
        remaining = self.check_source(checked.source.with_text(text), options).findings
        undone = tuple(applied[:1]) if "undone" in text else ()
        return Fixed(checked.source, text, tuple(applied), remaining, undone)


def unread(path: Path, error: SourceError) -> Finding:
    """The finding of a file that is not read."""
    nowhere = Place(path, Source(path, "").position(0), Source(path, "").position(0))
    severity = Severity.ERROR if error.code == "GPU000" else Severity.NOTE
    return Finding(
        error.code,
        "not-read",
        str(error),
        severity,
        Effect.NONE,
        Confidence.HIGH,
        nowhere,
    )


def find(rule: FakeRule, source: Source) -> Iterator[Finding]:
    """A finding at each of the rule's words."""
    start = source.text.find(rule.word)
    while start >= 0:
        end = start + len(rule.word)
        place = Place(source.path, source.position(start), source.position(end))
        fix = None
        if rule.better:
            edits = (TextEdit(start, end, rule.better),)
            fix = Fix(f"Write `{rule.better}`", rule.effect, edits)
        yield Finding(
            code=rule.code,
            name=rule.name,
            message=f"`{rule.word}` is slow",
            severity=rule.severity,
            effect=rule.effect,
            confidence=rule.confidence,
            place=place,
            fix=fix,
            fix_withheld=None if fix else "the guard",
            suppressed="inline" if "ignore" in source.line(place.start.row) else None,
        )
        start = source.text.find(rule.word, end)


class Run(Protocol):
    """Runs the command line in this process."""

    def __call__(self, *words: str | Path, stdin: str | bytes | None = None) -> Result:
        """The result, with `stdout` and `stderr` apart."""
        ...
