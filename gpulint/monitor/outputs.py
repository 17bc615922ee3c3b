"""Where the samples go: a view that moves, lines, JSON, or one answer at the end.

An output is shown the window of samples, the newest last, whenever there is one more;
it is told what a command prints, and when all is over.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from gpulint.monitor import view
from gpulint.monitor.diagnosis import Symptom, diagnose
from gpulint.monitor.document import document, summary
from gpulint.monitor.watch import Sample

WIDTH = 100  # of lines that go to no terminal
Window = Sequence[Sample]
Found = Sequence[Symptom] | None


class Output(Protocol):
    """What a mode of the monitor does with its samples."""

    def show(self, window: Window) -> None:
        """There is one more sample."""

    def say(self, text: str, unfinished: bool) -> None:
        """The command has printed a line, or a part of one."""

    def end(self, window: Window) -> None:
        """There will be no more."""


class Quiet:
    """Shows nothing; what the command prints goes to standard error."""

    def show(self, window: Window) -> None:
        """Nothing."""

    def say(self, text: str, unfinished: bool) -> None:
        if not unfinished:
            click.echo(text, err=True)

    def end(self, window: Window) -> None:
        """Nothing."""


class Lines(Quiet):
    """Some lines a sample, and the diagnosis when it is another one."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.symptoms: list[Symptom] | None = None

    def show(self, window: Window) -> None:
        sample = window[-1]
        if sample.trouble != self.trouble:
            self.trouble = sample.trouble
            click.echo(f"GPUs: {self.trouble or 'the driver answers again'}")
        for line in view.lines(sample):
            click.echo(line)
        symptoms = diagnose(window)
        if sample.gpus and _differ(symptoms, self.symptoms):
            self.symptoms = symptoms
            _echo_diagnosis(symptoms)


class Once(Quiet):
    """One sample."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def show(self, window: Window) -> None:
        sample = window[-1]
        if self.as_json:
            _echo_json(document(sample, None), indent=2)
            return
        if sample.trouble:
            click.echo(f"GPUs: {sample.trouble}")
        for line in (*view.lines(sample), *view.process_lines(sample.host.processes)):
            click.echo(line)


class JsonLines(Quiet):
    """An object a sample, with the diagnosis of the samples before it."""

    def show(self, window: Window) -> None:
        _echo_json(document(window[-1], diagnose(window)))


class Verdict(Quiet):
    """The figures of all samples and the diagnosis, at the end."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def end(self, window: Window) -> None:
        symptoms = diagnose(window)
        found = summary(window, symptoms)
        if self.as_json:
            _echo_json(found, indent=2)
            return
        for line in view.summary_lines(found):
            click.echo(line)
        if found["gpus"]:
            _echo_diagnosis(symptoms)


class Screen:
    """The view on a terminal; what a command prints scrolls above it."""

    def __init__(self, console: Console, live: Live, shown: view.View) -> None:
        self.console, self.live, self.view = console, live, shown

    def show(self, window: Window) -> None:
        self.view.show(window[-1], diagnose(window))

    def say(self, text: str, unfinished: bool) -> None:
        self.view.unfinished = text if unfinished else ""
        if not unfinished:
            self.console.print(Text.from_ansi(text), soft_wrap=True)

    def end(self, window: Window) -> None:
        """The last view stays where it is."""
        self.live.refresh()


def _differ(symptoms: Found, before: Found) -> bool:
    """Whether it is something else, not the same with other figures."""
    if symptoms is None or before is None:
        return symptoms is not before
    kinds = [{(s.kind, s.gpus, s.rules) for s in its} for its in (symptoms, before)]
    return kinds[0] != kinds[1]


def _echo_diagnosis(symptoms: Found) -> None:
    fits = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    for line in view.diagnosis(symptoms, fits):
        click.echo(line.plain)


def _echo_json(found: dict[str, Any], indent: int | None = None) -> None:
    click.echo(json.dumps(found, indent=indent, ensure_ascii=False))
