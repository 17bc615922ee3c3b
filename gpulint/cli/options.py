"""Options that several commands share, and what they amount to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from gpulint.finding import Confidence, Severity
from gpulint.globs import FileGlob, Globs
from gpulint.settings import Choice, Overrides
from gpulint.settings_values import (
    CONFIDENCES,
    FORMATS,
    LEVELS,
    Codes,
    parse_effects,
    parse_file_codes,
    parse_package_version,
    parse_torch_version,
    read_jobs,
)

if TYPE_CHECKING:
    from gpulint.targets import Target

# How findings are found and shown, not which ones.
_SHOWN = ("allow", "baseline", "fail_level", "jobs", "output_format")
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
        lists = its.rules, its.fixes, its.extend_exclude
        values = {k: v for k, v in its.values if k not in _SHOWN}
        return repr((lists, values, self.config, self.isolated))


def rule_selection(function: Function) -> Function:
    """Which rules."""
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
            "--extend-select",
            multiple=True,
            metavar="CODES",
            help="Rules to run as well.",
        ),
        click.option(
            "--extend-ignore",
            multiple=True,
            metavar="CODES",
            help="Rules to leave out as well.",
        ),
        click.option(
            "--per-file-ignores",
            multiple=True,
            metavar="GLOB:CODES",
            help="Rules to leave out in some files, such as 'tests/**:GPU1,old.py:ALL' "
            "('!GLOB' is all other files), instead of the settings' table.",
        ),
    )


def selection(function: Function) -> Function:
    """Which rules, and which effects."""
    return _all(
        function,
        rule_selection,
        click.option(
            "--min-confidence",
            type=click.Choice(CONFIDENCES),
            help="Only what is at least so sure.  [default: medium; low for rules "
            "that are selected]",
        ),
        click.option(
            "--allow",
            multiple=True,
            metavar="EFFECTS",
            help="What fixes may change: random, numerics, hyperparams, or all; "
            "commas between. `exact` is always allowed.",
        ),
        click.option(
            "--target",
            multiple=True,
            metavar="NAME",
            help="Report only what helps on these machines, such as h100 or t4, or on "
            "that in a .json file of `gpulint doctor --save-target`; commas between.",
        ),
        click.option(
            "--torch-version",
            metavar="VERSION",
            help="Lowest torch to write for, such as 2.1; else read from the project.",
        ),
        click.option(
            "--package-version",
            multiple=True,
            metavar="NAME=VERSION",
            help="Releases of another package to write for, such as keras=2.15 or "
            "'transformers>=4.40,<5'; else read from the project, else the newest.",
        ),
    )


def fixing(function: Function) -> Function:
    """Which rules' fixes."""
    return _all(
        function,
        click.option(
            "--fixable",
            multiple=True,
            metavar="CODES",
            help="Rules whose fixes are offered.  [default: ALL]",
        ),
        click.option(
            "--unfixable",
            multiple=True,
            metavar="CODES",
            help="Rules whose findings are only reported.",
        ),
    )


isolated = click.option("--isolated", is_flag=True, help="Ignore all settings files.")


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
        isolated,
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


parallel = click.option(
    "-j",
    "--jobs",
    envvar="GPULINT_JOBS",
    metavar="N",
    help="In how many processes to check files; `auto`: in several where there are "
    "many new ones.  [default: auto]",
)


def ratchet(function: Function) -> Function:
    """Which findings are accepted as they are."""
    return _all(
        function,
        click.option(
            "--baseline",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Accept the findings that `gpulint baseline create` wrote there.",
        ),
        click.option(
            "--no-baseline", is_flag=True, help="Accept none, whatever settings say."
        ),
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


# Of commands that run a script.

timeout = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=300,
    metavar="SECONDS",
    show_default=True,
    help="The longest that one run may take.",
)
verbose_script = click.option(
    "-v", "--verbose", is_flag=True, help="Show what the script prints."
)


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
    if given.get("baseline") and given["no_baseline"]:
        raise click.UsageError("--baseline and --no-baseline exclude each other")
    if given.get("no_baseline"):
        values["baseline"] = None
    elif given.get("baseline"):
        values["baseline"] = Path(os.path.normpath(Path.cwd() / given["baseline"]))
    if given.get("min_confidence"):
        values["min_confidence"] = Confidence(given["min_confidence"])
    if given["fail_level"]:
        values["fail_level"] = Severity(given["fail_level"])
    if given["exclude"]:
        values["exclude"] = Globs(_split(given["exclude"]), Path.cwd())
    if given["allow"]:
        values["allow"] = _parsed("--allow", parse_effects, _split(given["allow"]))
    if given.get("target"):
        names = _split(given["target"])
        values["target"] = _parsed("--target", _targets, names)
    if given["torch_version"]:
        text = given["torch_version"]
        values["torch_version"] = _parsed("--torch-version", parse_torch_version, text)
    if given.get("jobs"):
        text = given["jobs"]
        number = int(text) if text.isdecimal() else text
        values["jobs"] = _parsed("--jobs", lambda n: read_jobs(n, Path()), number)
    if given.get("unused_ignores") is not None:
        values["unused_ignores"] = given["unused_ignores"]
    if given.get("package_version"):
        values["package_versions"] = tuple(
            _parsed("--package-version", parse_package_version, text)
            for text in given["package_version"]
        )
    if given.get("per_file_ignores"):
        texts = given["per_file_ignores"]
        values["per_file_ignores"] = _parsed("--per-file-ignores", _file_codes, texts)
    more = _split(given["extend_exclude"])
    fixable = _split(given.get("fixable", ()))
    return Overrides(
        rules=_choice(given),
        fixes=Choice(fixable, _split(given.get("unfixable", ())), anew=bool(fixable)),
        values=tuple(values.items()),
        extend_exclude=(Globs(more, Path.cwd()),) if more else (),
    )


def _choice(given: dict[str, Any]) -> Choice:
    select, more, ignore, less = (
        _split(given.get(key) or ())
        for key in ("select", "extend_select", "ignore", "extend_ignore")
    )
    return Choice((*select, *more), (*ignore, *less), anew=bool(select))


def _file_codes(texts: Iterable[str]) -> tuple[tuple[FileGlob, Codes], ...]:
    return parse_file_codes(texts, Path.cwd())


def _targets(names: Iterable[str]) -> tuple[Target, ...]:
    from gpulint.targets import find_target

    return tuple(find_target(name, Path.cwd()) for name in names)


def _parsed(option: str, parse: Callable[[Any], Any], value: object) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


def _split(values: Iterable[str]) -> tuple[str, ...]:
    """Comma lists, given once or several times."""
    parts = (part.strip() for value in values for part in value.split(","))
    return tuple(part for part in parts if part)
