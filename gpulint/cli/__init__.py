"""The command line: a group of commands that are imported when they are called."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

COMMANDS = {
    "baseline": "gpulint.cli.baseline:baseline",
    "bench": "gpulint.cli.bench:bench",
    "check": "gpulint.cli.check:check",
    "clean": "gpulint.cli.clean:clean",
    "completion": "gpulint.cli.about:completion",
    "config": "gpulint.cli.config:config",
    "doctor": "gpulint.cli.doctor:doctor",
    "explain": "gpulint.cli.rules:explain",
    "fix": "gpulint.cli.fix:fix",
    "init": "gpulint.cli.init:init",
    "monitor": "gpulint.cli.monitor:monitor",
    "profile": "gpulint.cli.profile:profile",
    "rules": "gpulint.cli.rules:rules",
    "server": "gpulint.cli.server:server",
    "tune": "gpulint.cli.tune:tune",
    "vendor": "gpulint.cli.vendor:vendor",
    "version": "gpulint.cli.about:version",
}
INTERRUPTED = 130


class LazyGroup(click.Group):
    """Imports a command when it is asked for; turns every error into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit with its code: 0, 1, 2, or 130 on interrupt."""
        words = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(words, prog_name, complete_var, False, **extra)
        except click.ClickException as error:
            fail(error.format_message(), error)
        except click.Abort:
            sys.exit(INTERRUPTED)
        except Exception as error:
            if wants_traceback(words):
                import traceback

                traceback.print_exc()
            fail(internal(error))
        finally:
            if args is None:  # the process ends: no need to look through all objects
                gc.freeze()
        sys.exit(code if isinstance(code, int) else 0)


def fail(message: str, error: click.ClickException | None = None) -> NoReturn:
    """Say in one line on stderr what is wrong, and exit with 2."""
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context else ""
    complain(f"{message.rstrip('.')}{hint}")
    sys.exit(2)


def complain(message: str, kind: str = "error") -> None:
    """One line on stderr."""
    click.echo(f"gpulint: {kind}: {' '.join(message.split())}", err=True)


def internal(error: BaseException) -> str:
    """The line that is shown instead of a traceback."""
    return (
        f"internal error: {type(error).__name__}: {error} - please report it with "
        "the traceback that GPULINT_TRACEBACK=1 shows"
    )


def wants_traceback(words: Sequence[str]) -> bool:
    """Whether an internal error is shown with its traceback."""
    return bool(os.environ.get("GPULINT_TRACEBACK")) or not {
        "-v",
        "--verbose",
    }.isdisjoint(words)


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from gpulint import __version__

        click.echo(f"gpulint {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Find what wastes the GPU in training scripts, and rewrite it.

    Exit codes: 0 nothing at or above the fail level, 1 findings, 2 usage, settings,
    file or internal error, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
