"""`gpulint fix -i`: asks about each fix before it is applied."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpulint.registry import find_rule
from gpulint.report import Report, one_line
from gpulint.report.diff import changes

if TYPE_CHECKING:
    from gpulint.finding import Finding
    from gpulint.source import Source

KEYS = "yndafe?q"
COLORS = {"-": "red", "+": "green"}


class Edited(Exception):
    """The user has edited a file, which is to be read again."""


@dataclass
class _File:
    """What was answered about the fixes in one file.

    Findings are known by their likeness: their places move with each fix. `passed`:
    how many of those alike were refused already in the text of this pass.
    """

    text: str = ""
    refused: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    decided: set[tuple[str, int]] = field(default_factory=set)
    accepted: Counter[str] = field(default_factory=Counter)
    again: Counter[str] = field(default_factory=Counter)


class Asking:
    """Takes or refuses fixes as the user says; a refused one is not asked for again."""

    def __init__(self) -> None:
        self._report = Report(())
        self._files: dict[Path, _File] = defaultdict(_File)
        self._rules: dict[str, bool] = {}
        self._whole: set[Path] = set()
        self._quit = False

    def __call__(self, source: Source, finding: Finding) -> bool:
        """Whether to apply the fix. Edited: the file is another one now."""
        its, key = self._files[source.path], finding.likeness
        if its.text != source.text:
            its.text, its.passed, its.decided = source.text, Counter(), set()
        if (key, finding.ordinal) in its.decided:
            return False
        known = its.passed[key] < its.refused[key]  # whatever else was answered later
        if not known and self._wants(source, finding, its):
            return True
        its.refused[key] += not known
        its.passed[key] += 1
        its.decided.add((key, finding.ordinal))
        return False

    def _wants(self, source: Source, finding: Finding, its: _File) -> bool:
        """What was answered for its rule, its file or all that follows, or now."""
        if self._quit:
            return False
        if finding.code in self._rules:
            return self._rules[finding.code]
        if its.again[finding.likeness]:
            its.again[finding.likeness] -= 1
        elif source.path not in self._whole and not self._ask(source, finding):
            return False
        its.accepted[finding.likeness] += 1
        return True

    def read_again(self, path: Path) -> None:
        """A file was edited: what was accepted in it need not be asked for."""
        its = self._files[path]
        its.again, its.accepted, its.text = its.accepted, Counter(), ""

    def _ask(self, source: Source, finding: Finding) -> bool:
        self._show(source, finding)
        while True:
            key = self._key(finding.code)
            if key in ("y", "n"):
                return key == "y"
            if key in ("a", "d"):
                self._rules[finding.code] = key == "a"
                return key == "a"
            if key == "f":
                self._whole.add(source.path)
                return True
            if key == "q":
                self._quit = True
                return False
            if key == "e":
                click.edit(filename=str(source.path))
                raise Edited
            rule = find_rule(finding.code)
            click.echo(f"\n{rule.documentation}\n" if rule else finding.message)

    def _key(self, code: str) -> str:
        """One of the keys; the end of the input is `q`."""
        question = (
            f"Apply? [y]es [n]o [a]ll {code} [d]rop {code} "
            "[f]ile [e]dit [?]explain [q]uit "
        )
        while True:
            click.echo(question, nl=False)
            answer = sys.stdin.readline()
            if not answer:
                click.echo()
                return "q"
            key = answer.strip().lower()[:1]
            if key and key in KEYS:
                return key

    def _show(self, source: Source, finding: Finding) -> None:
        fix = finding.fix
        assert fix is not None
        row = finding.place.start.row
        place = self._report.row(finding.path, row, source)
        effect = f"effect: {fix.effect.value}"
        click.echo(f"\n{finding.code} {finding.name}   {place}   {effect}")
        click.echo(one_line(finding.message))
        for sign, line in changes(source, fix):
            text = one_line(line.replace("\t", "    "))
            click.secho(f"{sign} {text}".rstrip(), fg=COLORS.get(sign))


def check_terminal(stdin: bool) -> None:
    """UsageError where nobody can be asked."""
    if stdin:
        raise click.UsageError("--interactive asks on the standard input: not with `-`")
    if not is_terminal():
        raise click.UsageError("--interactive needs a terminal")


def is_terminal() -> bool:
    """Whether somebody reads and writes."""
    return sys.stdin.isatty() and sys.stdout.isatty()
