"""Where reports go: `-o FILE`, `-o FORMAT:FILE`, the standard output."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gpulint.formats import FORMATS

if TYPE_CHECKING:
    from gpulint.report import Report

STDOUT = "-"


class Output(NamedTuple):
    """A format and the file that it goes to; None: the standard output."""

    form: str
    file: Path | None


def read_outputs(given: tuple[str, ...], form: str, statistics: bool) -> list[Output]:
    """What `-o` asks for, the standard output last.

    That gets `form`, unless an `-o FILE` takes it away or `FORMAT:-` stands for it.
    click.UsageError: two outputs in one place, or statistics in a format without them.
    """
    outputs: list[Output] = []
    plain = not given
    printed = False
    for text in given:
        prefix, name = _split(text)
        named = bool(prefix)
        if not name:
            raise click.UsageError(f"-o {text!r} names no file")
        plain = plain or not named
        printed = printed or name == STDOUT
        file = None if name == STDOUT else Path(name)
        outputs.append(Output(prefix or form, file))
    if not given or not (plain or printed):
        plain = True
        outputs.append(Output(form, None))
    places = [output.file and output.file.absolute() for output in outputs]
    if len(set(places)) < len(places):
        raise click.UsageError("two outputs (-o) go to one place")
    if statistics and plain and FORMATS[form].statistics is None:
        raise click.UsageError(f"--statistics: the format {form} has no place for them")
    return sorted(outputs, key=lambda output: output.file is None)


def files_of(given: tuple[str, ...]) -> list[Path]:
    """The files that `-o` names."""
    return [Path(name) for _, name in map(_split, given) if name != STDOUT]


def _split(text: str) -> tuple[str, str]:
    """The format of an `-o`, empty where it names none, and the file."""
    prefix, _, rest = text.partition(":")
    return (prefix, rest) if prefix in FORMATS and prefix != text else ("", text)


def write_outputs(
    report: Report,
    outputs: list[Output],
    statistics: bool,
    complain: Callable[[str], None],
) -> None:
    """Write them all; what cannot be written is complained of in one line."""
    from gpulint.atomic import write_text
    from gpulint.report import write

    for form, file in outputs:
        if file is None:
            write(report, form, sys.stdout, statistics)
            continue
        stream = io.StringIO()
        write(report, form, stream, statistics)
        try:
            write_text(file, stream.getvalue())
        except OSError as error:
            complain(f"{file}: {error.strerror or error}")
