"""`gpulint vendor`: the helpers that scripts use, in one file beside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpulint.cli import complain
from gpulint.cli.options import Flags
from gpulint.report import Report, count
from gpulint.settings import Overrides

if TYPE_CHECKING:
    from gpulint.cli.run import Run
    from gpulint.vendor.files import VendoredFile


FLAGS = Flags(
    overrides=Overrides(),
    config=None,
    isolated=False,
    stdin_filename=None,
    exit_zero=False,
    quiet=True,
    verbose=False,
)


@click.command
@click.argument("paths", nargs=-1, metavar="[PATHS]...")
@click.option(
    "--dest",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where to write the file.  [default: where the scripts import it from]",
)
@click.option(
    "--name",
    default="_gpulint_runtime.py",
    show_default=True,
    metavar="FILE",
    help="What to call the file; must end with `gpulint_runtime.py`.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; exit with 1 where a file is wrong.",
)
@click.option(
    "--list", "as_list", is_flag=True, help="Write nothing; list helpers and users."
)
@click.pass_context
def vendor(
    ctx: click.Context,
    paths: tuple[str, ...],
    dest: Path | None,
    name: str,
    check: bool,
    as_list: bool,
) -> None:
    """Write the helpers that scripts use as one file, so that they need no gpulint.

    PATHS are scripts and folders (default: the current folder). A script then says
    `import _gpulint_runtime as runtime` in place of `from gpulint import runtime`;
    `gpulint fix --runtime vendor` writes it so. Scripts of the same project that import
    the file already are taken into account too. Scripts that import the package count
    where they are named, or where no script imports the file.

    Exit codes: 0 the files are right, or now written; 1 with --check: one is missing,
    stale or edited; 2 error.
    """
    from gpulint.cli.run import Run, one_line_errors, tolerant_output
    from gpulint.vendor.files import VendorError, check_name

    tolerant_output()
    if check and as_list:
        raise click.UsageError("--check and --list exclude each other")
    run = Run(FLAGS)
    try:
        check_name(name)
        with one_line_errors():
            files = _files(run, paths, dest, name)
        if as_list:
            _list(files)
        elif check:
            ctx.exit(run.exit_code(_check(run, files, paths, dest)))
        else:
            _write(files)
    except VendorError as error:
        raise click.ClickException(str(error)) from None
    ctx.exit(run.exit_code(fails=False))


def _files(
    run: Run, paths: tuple[str, ...], dest: Path | None, name: str
) -> list[VendoredFile]:
    """What should stand where, for the scripts that are asked about."""
    from gpulint.vendor.files import mentions, one_file, project_files

    scripts = [job.path for job in run.jobs(paths) if mentions(job.path)]
    if dest is not None:
        path = Path(os.path.normpath(Path.cwd() / dest / name))
        found = one_file(run.projects, scripts, path)
        return [] if found is None else [found]
    named = _named(paths)
    files: list[VendoredFile] = []
    for project in {id(p): p for p in map(run.projects.of, scripts)}.values():
        its = {path for path in scripts if run.projects.of(path) is project}
        found_here = project_files(project, named & its, name, others=its)
        files += found_here or project_files(project, its, name)
    return [file for file in files if not file.scripts.isdisjoint(scripts)]


def _named(paths: tuple[str, ...]) -> set[Path]:
    return {Path(os.path.normpath(Path.cwd() / path)) for path in paths}


def _list(files: list[VendoredFile]) -> None:
    """Each helper, with the scripts that use it."""
    report = Report(())
    for file in files:
        click.echo(f"{report.path(file.path)}:")
        width = max(map(len, file.users))
        for helper, users in file.users.items():
            names = ", ".join(map(report.path, users))
            click.echo(f"  {helper:{width}}  {names}")
    if not files:
        click.echo("No script uses gpulint.runtime.", err=True)


def _check(
    run: Run, files: list[VendoredFile], paths: tuple[str, ...], dest: Path | None
) -> bool:
    """Say which files are not what they should be; whether there are any.

    Scripts that were found in a folder may import the package instead.
    """
    report = Report(())
    named = _named(paths)
    asked = [
        file
        for file in files
        if dest
        or file.written is not None
        or file.scripts - file.others
        or file.scripts & named
    ]
    faults = [(file.path, file.fault) for file in asked]
    known = {file.path for file in asked}
    idle = () if dest else (path for path in run.vendored if path not in known)
    faults += [(path, "stale: no script uses it") for path in idle]
    for path, fault in faults:
        if fault is not None:
            click.echo(f"{report.path(path)}: {fault}")
    wrong = sum(fault is not None for _, fault in faults)
    if not wrong:
        click.echo(f"{count(len(faults), 'vendored file')} checked, none is wrong")
    return bool(wrong)


def _write(files: list[VendoredFile]) -> None:
    """Write what is not right yet, and say what is in it."""
    report = Report(())
    if not files:
        raise click.ClickException(
            "no script uses gpulint.runtime; `gpulint fix --runtime vendor` writes both"
        )
    for file in files:
        name, header = report.path(file.path), file.header
        if file.fault is None:
            click.echo(f"{name}: up to date")
            continue
        if header is not None and header.edited:
            complain(f"{name}: it was edited; the changes are gone", "warning")
        file.write()
        click.echo(f"{name}: written, with {', '.join(file.users)}")
    for path in sorted({path for file in files for path in file.others}):
        line = f"import {files[0].path.stem} as runtime"
        where = f"{report.path(path)} imports gpulint still"
        complain(f"{where}; write in its place `{line}`", "note")
