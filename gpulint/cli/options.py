"""Options that several commands share, and what they amount to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from gpulint.finding import Severity
from gpulint.settings import (
    FORMATS,
    LEVELS,
    Globs,
    Overrides,
    parse_effects,
    parse_torch_version,
)

_SHOWN = ("allow", "fail_level", "output_format")  # how findings are shown
Function = TypeVar("Function", bound=Callable[..., object])
Decorator = Callable[[Function], Function]


class Flags(NamedTuple):
    """What a command was called with, apart from its own options."""

    overrides: Overrides
    config: Path | None
    isolated: bool
    stdin_filename: str | None
    exit_zero: bool
    quiet: bool
    verbose: bool
    no_cache: bool = True
    cache_dir: Path | None = None

    @property
    def variant(self) -> str:
        """All of it that decides which files are listed and what is found in them."""
        its = self.overrides
        lists = its.select, its.ignore, its.extend_exclude
        values = {k: v for k, v in its.values if k not in _SHOWN}
        return repr((lists, values, self.config, self.isolated))


def selection(function: Function) -> Function:
    """Which rules, and which effects."""
    return _all(
        function,
        click.option(
            "--select",
            multiple=True,
            metavar="CODES",
            help="Rules to run: codes, prefixes (GPU2), names, or ALL; commas between.",
        ),
        click.option(
            "--ignore",
            multiple=True,
            metavar="CODES",
            help="Rules to leave out, in the same form.",
        ),
        click.option(
            "--allow",
            multiple=True,
            metavar="EFFECTS",
            help="What fixes may change: random, numerics, hyperparams, or all; "
            "commas between. `exact` is always allowed.",
        ),
        click.option(
            "--torch-version",
            metavar="VERSION",
            help="Lowest torch to write for, such as 2.1; else read from the project.",
        ),
    )


def discovery(function: Function) -> Function:
    """Which files, and whose settings."""
    return _all(
        function,
        click.option(
            "--exclude",
            multiple=True,
            metavar="GLOB",
            help="Leave out, instead of the default and the settings' list.",
        ),
        click.option(
            "--extend-exclude", multiple=True, metavar="GLOB", help="Leave out as well."
        ),
        click.option(
            "--respect-gitignore/--no-respect-gitignore",
            default=None,
            help="Leave out what git ignores.  [default: respect]",
        ),
        click.option(
            "--force-exclude/--no-force-exclude",
            default=None,
            help="Leave out excluded files even where they are named.",
        ),
        click.option(
            "--stdin-filename", metavar="FILE", help="The name of the file read by `-`."
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Settings for all files, instead of those found beside them.",
        ),
        click.option("--isolated", is_flag=True, help="Ignore all settings files."),
        click.option(
            "--no-cache",
            is_flag=True,
            envvar="GPULINT_NO_CACHE",
            help="Look into all files anew; `fix` always does.",
        ),
    )


caching = click.option(
    "--cache-dir",
    type=click.Path(path_type=Path),
    envvar="GPULINT_CACHE_DIR",
    metavar="DIR",
    help="Where findings are kept for the next run.  [default: .gpulint_cache]",
)


def gate(function: Function) -> Function:
    """What the exit code says, and how much is printed."""
    return _all(
        function,
        click.option(
            "--fail-level",
            type=click.Choice(LEVELS),
            help="Exit with 1 from this severity on.  [default: warning]",
        ),
        click.option(
            "-e", "--exit-zero", is_flag=True, help="Exit with 0 instead of 1."
        ),
        click.option("-q", "--quiet", is_flag=True, help="Print findings only."),
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            help="Say which settings are used; show tracebacks of internal errors.",
        ),
    )


def _all(function: Function, *decorators: Callable[[Any], Any]) -> Function:
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


output_format = click.option(
    "--output-format", type=click.Choice(FORMATS), help="[default: full]"
)


def read_flags(given: dict[str, Any]) -> Flags:
    """The shared options out of a command's keyword arguments."""
    config, isolated = given["config"], given["isolated"]
    if config and isolated:
        raise click.UsageError("--config and --isolated exclude each other")
    return Flags(
        overrides=_overrides(given),
        config=config,
        isolated=isolated,
        stdin_filename=given["stdin_filename"],
        exit_zero=given["exit_zero"],
        quiet=given["quiet"],
        verbose=given["verbose"],
        no_cache=given["no_cache"],
        cache_dir=given.get("cache_dir"),
    )


def _overrides(given: dict[str, Any]) -> Overrides:
    values = {
        key: given[key]
        for key in ("respect_gitignore", "force_exclude", "output_format", "runtime")
        if given.get(key) is not None
    }
    if given["fail_level"]:
        values["fail_level"] = Severity(given["fail_level"])
    if given["exclude"]:
        values["exclude"] = Globs(_split(given["exclude"]), Path.cwd())
    if given["allow"]:
        values["allow"] = _parsed("--allow", parse_effects, _split(given["allow"]))
    if given["torch_version"]:
        text = given["torch_version"]
        values["torch_version"] = _parsed("--torch-version", parse_torch_version, text)
    more = _split(given["extend_exclude"])
    return Overrides(
        select=_split(given["select"]),
        ignore=_split(given["ignore"]),
        values=tuple(values.items()),
        extend_exclude=(Globs(more, Path.cwd()),) if more else (),
    )


def _parsed(option: str, parse: Callable[[Any], Any], value: object) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


def _split(values: Iterable[str]) -> tuple[str, ...]:
    """Comma lists, given once or several times."""
    parts = (part.strip() for value in values for part in value.split(","))
    return tuple(part for part in parts if part)
