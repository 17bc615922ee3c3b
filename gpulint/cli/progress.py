"""Show what a long command is doing, on a terminal or line by line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol, TextIO

import click


class Progress(Protocol):
    """Shows what is being tried."""

    def begin(self, what: str) -> None:
        """A run starts."""

    def steps(self, count: int) -> None:
        """It has done so many steps."""

    def end(self, line: str) -> None:
        """It has ended."""


class Lines:
    """A line for each run, where standard error is no terminal."""

    def begin(self, what: str) -> None:
        """Nothing: the line comes with the result."""

    def steps(self, count: int) -> None:
        """Nothing."""

    def end(self, line: str) -> None:
        click.echo(f"gpulint: {line}", err=True)


class Live:
    """The same lines, and below them one that moves."""

    def __init__(self, status: Any, console: Any) -> None:
        self.status, self.console, self.what = status, console, ""

    def begin(self, what: str) -> None:
        self.what = what
        self.status.update(what)

    def steps(self, count: int) -> None:
        self.status.update(f"{self.what}: {count} steps")

    def end(self, line: str) -> None:
        self.console.print(line)


@contextlib.contextmanager
def progress_on(stream: TextIO) -> Iterator[Progress]:
    """What suits the stream: a terminal, or a file."""
    if not stream.isatty():
        yield Lines()
        return
    from gpulint.report.full import console

    screen = console(stream)
    # A spinner at full speed takes from the training that is being timed.
    with screen.status("…", refresh_per_second=2) as status:
        yield Live(status, screen)
