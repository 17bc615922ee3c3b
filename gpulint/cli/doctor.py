"""`gpulint doctor`: what this machine has for training, and what to change."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpulint.doctor.probes import Answer, Facts


@click.command
@click.option("--json", "as_json", is_flag=True, help="As JSON (doctor/schema.json).")
@click.option(
    "--script",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    help="Say what the runtime chooses for this script, tuned values included.",
)
@click.option(
    "--data",
    type=click.Path(),
    metavar="FOLDER",
    help="Look at the folder of the data too.",
)
@click.option(
    "--save-target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the figures of this machine (GPU, CPUs, memory) as JSON.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings and errors.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=60,
    metavar="SECONDS",
    show_default=True,
    help="The longest to wait for torch and the driver.",
)
@click.option(
    "--redact/--no-redact",
    default=True,
    help="Hide host name, user, paths and identifiers.  [default: redact]",
)
def doctor(
    as_json: bool,
    script: str | None,
    data: str | None,
    save_target: Path | None,
    strict: bool,
    timeout: float,
    redact: bool,
) -> int:
    """Look at the machine, its GPUs and torch, and say what to change.

    Nothing is changed. What could hang or crash runs in processes of its own, and the
    report can be pasted elsewhere: it holds no names, paths or identifiers.
    """
    from gpulint.cli.run import tolerant_output
    from gpulint.doctor.check import Status
    from gpulint.doctor.document import document, worst
    from gpulint.doctor.view import show

    report = document(_ask(script, data, timeout), redacted=redact)
    if save_target is not None:
        _save(save_target, report["target"])
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        tolerant_output()
        show(report, sys.stdout)
    return int(strict and worst(report) in (Status.WARN, Status.ERROR))


def _ask(script: str | None, data: str | None, timeout: float) -> dict[str, Answer]:
    from gpulint.doctor.probes import ask

    questions: dict[str, Facts] = {"host": {}, "gpus": {}, "torch": {"script": script}}
    if data is not None:
        questions["data"] = {"data": data}
    with _waiting():
        return ask(questions, timeout)


@contextlib.contextmanager
def _waiting() -> Iterator[None]:
    """Say on a terminal that something goes on."""
    if not sys.stderr.isatty():
        yield
        return
    from gpulint.report.full import console

    with console(sys.stderr).status("asking torch and the driver …"):
        yield


def _save(file: Path, target: dict[str, Any]) -> None:
    try:
        file.write_text(json.dumps(target, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror or error}") from None
