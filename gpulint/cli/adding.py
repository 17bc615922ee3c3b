"""`gpulint check --add-ignore`: comments that switch off what was found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from gpulint.cli import complain
from gpulint.report import Report, count

if TYPE_CHECKING:
    from gpulint.cli.run import Run
    from gpulint.ignores import Form
    from gpulint.report import Entry

OPTIONAL = ("--add-ignore", "--add-noqa")  # their reason follows a `=`, if any


class WithReasons(click.Command):
    """A command whose next argument is never taken for the reason of an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`--add-ignore train.py` names a file."""
        end = args.index("--") if "--" in args else len(args)
        options = [f"{a}=" if a in OPTIONAL else a for a in args[:end]]
        return super().parse_args(ctx, options + args[end:])


def adding(function: Any) -> Any:
    """The two options; what they say is read by `read_form`."""
    for option, comment in zip(
        OPTIONAL, ("# gpulint: ignore[…]", "# noqa: …"), strict=True
    ):
        function = click.option(
            option,
            metavar="[=REASON]",
            help=f"Write `{comment}` at each finding that is reported.",
        )(function)
    return function


def read_form(add_ignore: str | None, add_noqa: str | None) -> Form | None:
    """Which comments to write; None: none. UsageError: a reason that cannot stand."""
    if add_ignore is None and add_noqa is None:
        return None
    if add_ignore is not None and add_noqa is not None:
        raise click.UsageError("--add-ignore and --add-noqa exclude each other")
    reason = (add_ignore or add_noqa or "").strip()
    if not reason.isprintable() or "#" in reason:
        raise click.UsageError(f"not the reason of a comment: {reason!r}")
    from gpulint.ignores import Form

    return Form(add_noqa is not None, reason)


def add_comments(run: Run, entries: Iterable[Entry], form: Form) -> None:
    """Write them all; says where that is not possible."""
    from gpulint.ignores import add_ignores, may_be_ignored
    from gpulint.source import write_source

    found = files = 0
    for entry in entries:
        shown = [finding for finding in entry.shown if may_be_ignored(finding)]
        if not shown or entry.source is None:
            continue
        name = Report(()).path(entry.source.path)
        text = add_ignores(entry.source, shown, form)
        if text is None:
            complain(f"{name}: no comment can be added to it", "warning")
            continue
        try:
            write_source(entry.source, text)
        except OSError as error:
            run.error(f"{name}: not written: {error.strerror or error}")
        else:
            found += len(shown)
            files += 1
    if not run.flags.quiet:
        where = f"{count(found, 'finding')} in {count(files, 'file')}"
        click.echo(f"Added comments for {where}", err=True)
