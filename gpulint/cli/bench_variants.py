"""What `gpulint bench` runs: two scripts, or one and what `gpulint fix` makes of it."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpulint.cli import complain
from gpulint.cli.options import read_flags

if TYPE_CHECKING:
    from gpulint.bench.runs import Variant
    from gpulint.bench.variants import Rewritten
    from gpulint.cli.run import Run
    from gpulint.engine import Fixed

# What `fix` offers beside the selection of rules.
NEUTRAL: dict[str, Any] = {
    "config": None,
    "stdin_filename": None,
    "exit_zero": False,
    "quiet": True,
    "verbose": False,
    "no_cache": True,
    "fail_level": None,
    "exclude": (),
    "extend_exclude": (),
    "runtime": "import",
}

CHOOSING = (
    *("select", "ignore", "extend_select", "extend_ignore", "per_file_ignores"),
    *("min_confidence", "allow"),
)


def make_variants(
    scripts: tuple[str, ...], module: str | None, given: dict[str, Any], per_rule: bool
) -> tuple[list[Variant], list[Rewritten]]:
    """What to run, and what has changed in all but the first; two scripts: nothing."""
    from gpulint.bench.rows import ALONE
    from gpulint.bench.runs import Variant

    _check(scripts, module)
    if len(scripts) == 2:
        if per_rule or any(given[name] for name in CHOOSING):
            raise click.UsageError(
                "two scripts are compared as they are, without --allow, --per-rule and "
                "what chooses rules"
            )
        return [Variant(script, script) for script in scripts], []
    script = scripts[0] if module is None else str(_find(module))
    changes = [_wholly_rewritten(script, given)]
    labels = ["original", "fixed"]
    codes = sorted({str(fix["code"]) for fix in changes[0].fixes})
    if per_rule and len(codes) > 1:
        for code in codes:
            alone = _rewritten(_fixed(script, given, code))
            if alone is None:
                complain(f"{code} has no fix alone, only after others", "note")
                continue
            changes.append(alone)
            labels.append(f"{code}{ALONE}")
    # The original's text is given in the same way, so that all processes are alike.
    own = {file: file.read_bytes() for file in changes[0].texts if file.exists()}
    texts = [own, *(change.texts for change in changes)]
    pairs = zip(labels, texts, strict=True)
    name = module or script
    made = [Variant(label, name, its, module is not None) for label, its in pairs]
    return made, changes


def _check(scripts: tuple[str, ...], module: str | None) -> None:
    if os.name != "posix":
        raise click.ClickException("bench ends processes as POSIX systems do; use WSL")
    for script in scripts:
        if Path(script).suffix == ".ipynb":
            raise click.ClickException(f"{script} is a notebook; bench runs scripts")
    if module is not None and scripts:
        raise click.UsageError("--module stands for SCRIPT, one of the two is compared")
    if module is None and not scripts:
        raise click.UsageError("Missing argument SCRIPT, or --module")
    if len(scripts) > 2:
        hint = "; arguments of the scripts come behind `--`"
        raise click.UsageError(f"{len(scripts)} scripts, one or two are compared{hint}")


def _find(module: str) -> Path:
    """The file that `python -m MODULE` runs here; nothing is imported."""
    importlib.invalidate_caches()
    path = [str(Path.cwd()), *sys.path]
    spec = None
    for name in module.split("."):
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            break
        path = list(spec.submodule_search_locations or [])
    if spec is not None and path:  # a package
        spec = PathFinder.find_spec("__main__", path)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise click.ClickException(f"--module: python -m {module} finds no file to run")
    return Path(os.path.relpath(spec.origin))


def _wholly_rewritten(script: str, given: dict[str, Any]) -> Rewritten:
    """The script as `gpulint fix` would write it. ClickException: it stays as it is."""
    run, result = _fixed(script, given)
    change = _rewritten((run, result))
    if change is not None:
        return change
    fixes = [f.fix for f in result.remaining if f.fix and not f.suppressed]
    more = ",".join(sorted({fix.effect.value for fix in fixes}))
    hint = f"; --allow {more} has some" if more else ""
    raise click.ClickException(f"{script}: no fix to compare it with{hint}")


def _fixed(
    script: str, given: dict[str, Any], code: str | None = None
) -> tuple[Run, Fixed]:
    """The script with the fixes of all rules that are selected, or of one alone."""
    from gpulint.cli.run import Run
    from gpulint.engine import Checked, fix_path

    run = Run(read_flags({**NEUTRAL, **given}))
    job = run.job(Path(os.path.normpath(Path.cwd() / script)))
    options = job.options
    if code is not None:
        its = tuple(rule for rule in options.rules if rule.code == code)
        options = options._replace(rules=its)
    result = fix_path(job.path, options)
    if isinstance(result, Checked):
        run.unread(job.path)
        raise click.ClickException(f"{script}: {result.findings[0].message}")
    return run, result


def _rewritten(fixed: tuple[Run, Fixed]) -> Rewritten | None:
    """The new text, and what it imports for it; None: nothing has changed."""
    from gpulint.bench.variants import rewritten
    from gpulint.cli.vendored import behind

    run, result = fixed
    if result.text == result.source.text:
        return None
    files = behind(run.projects, {result.source.path: result.text})
    return rewritten(result, {file.path: file.text.encode() for file in files})
