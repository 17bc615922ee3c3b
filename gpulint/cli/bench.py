"""`gpulint bench`: run a script and its rewrite in turns, and say which is faster."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpulint.cli import complain
from gpulint.cli.interrupts import terminated
from gpulint.cli.options import read_flags, selection
from gpulint.cli.progress import progress_on

if TYPE_CHECKING:
    from gpulint.bench.compare import Comparison
    from gpulint.bench.rows import About
    from gpulint.bench.runs import Limits, Variant
    from gpulint.bench.runs import Run as Measured
    from gpulint.bench.variants import Rewritten
    from gpulint.cli.run import Run
    from gpulint.engine import Fixed

FILE = click.Path(dir_okay=False, path_type=Path)
LOSS_TOLERANCE = 0.1  # where fixes change rounding
BUSY = 0.5  # of the CPUs, before the first run
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


class Split(click.Command):
    """Scripts stand before `--`, their arguments behind it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what stands behind the first `--`."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["arguments"] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.command(cls=Split)
@click.argument(
    "scripts",
    nargs=-1,
    required=True,
    metavar="SCRIPT [NEW] [-- ARGS...]",
    type=click.Path(exists=True, dir_okay=False),
)
@selection
@click.option("--isolated", is_flag=True, help="Ignore all settings files.")
@click.option(
    "--steps",
    type=click.IntRange(5),
    default=60,
    show_default=True,
    help="Optimizer steps to measure in a run.",
)
@click.option(
    "--warmup",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Steps before them, whose time does not count.",
)
@click.option(
    "--repeats",
    type=click.IntRange(3),
    default=6,
    show_default=True,
    help="Runs of each variant, in turns; of an even number slow drifts cancel out.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=300,
    metavar="SECONDS",
    show_default=True,
    help="The longest that one run may take.",
)
@click.option(
    "--min-speedup",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    metavar="RATIO",
    show_default=True,
    help="Exit with 1 where the whole 99 % interval of the ratio lies below.",
)
@click.option(
    "--loss-tol",
    type=click.FloatRange(0),
    metavar="SHARE",
    help="How far losses may lie apart, relative, where fixes change rounding or two "
    "scripts are compared.  [default: 0.1 for fixes; two scripts: any]",
)
@click.option(
    "--per-rule",
    is_flag=True,
    help="Run the script also with the fixes of each rule alone.",
)
@click.option("--json", "json_file", type=FILE, help="Write all that was measured.")
@click.option("--markdown", "markdown_file", type=FILE, help="Write the table.")
@click.option(
    "--html", "html_file", type=FILE, help="Write a page with charts, in one file."
)
@click.option("-v", "--verbose", is_flag=True, help="Show what the scripts print.")
@click.pass_context
def bench(
    ctx: click.Context,
    /,
    scripts: tuple[str, ...],
    steps: int,
    warmup: int,
    repeats: int,
    timeout: float,
    min_speedup: float,
    loss_tol: float | None,
    per_rule: bool,
    json_file: Path | None,
    markdown_file: Path | None,
    html_file: Path | None,
    verbose: bool,
    **given: Any,
) -> None:
    """Compare the speed of SCRIPT with that of its rewrite, or of two scripts.

    With one script, its text is compared with what `gpulint fix` would make of it;
    --select and --allow choose the fixes, and nothing is written beside it. Each run is
    a process of its own, which ends after the measured steps; it does what the script
    does until then, writing files included.

    Exit codes: 0; 1 where the second is shown to be slower than --min-speedup times the
    first or losses differ where they must not; 2 where nothing could be measured.
    """
    from gpulint.bench.compare import compare
    from gpulint.bench.runs import Limits
    from gpulint.cli.run import one_line_errors, tolerant_output

    tolerant_output()
    arguments: tuple[str, ...] = ctx.meta["arguments"]
    for file in filter(None, (json_file, markdown_file, html_file)):
        _check_file(file)
    with one_line_errors():
        variants, changes = _variants(scripts, given, per_rule)
    load = _load()
    limits = Limits(steps, warmup, timeout)
    runs = _measure(variants, arguments, limits, repeats, verbose)
    change = changes[0] if changes else None
    tolerance = loss_tol if change is None or loss_tol is not None else LOSS_TOLERANCE

    def against_first(place: int) -> Comparison:
        labels = variants[0].label, variants[place].label
        effects = changes[place - 1].effects if changes else None
        return compare(labels, (runs[0], runs[place]), effects, tolerance)

    others = [against_first(place) for place in range(1, len(variants))]
    comparison = replace(others[0], alone=tuple(others[1:]))
    code = int(comparison.failed(min_speedup))
    about = _about(scripts, change, comparison, limits, repeats, load)
    _print(comparison, about)
    if json_file is not None:
        facts = {
            **_facts(scripts, arguments, change, load),
            "options": {
                "steps": steps,
                "warmup": warmup,
                "repeats": repeats,
                "min_speedup": min_speedup,
                "loss_tol": tolerance,
            },
        }
        _write_json(json_file, comparison, facts, code)
    if markdown_file is not None:
        from gpulint.bench.output import markdown

        _write(markdown_file, markdown(comparison, about))
    if html_file is not None:
        from gpulint.bench.html import page

        _write(html_file, page(comparison, about))
    ctx.exit(code)


def _variants(
    scripts: tuple[str, ...], given: dict[str, Any], per_rule: bool
) -> tuple[list[Variant], list[Rewritten]]:
    """What to run, and what has changed in all but the first; two scripts: nothing."""
    from gpulint.bench.runs import Variant

    if os.name != "posix":
        raise click.ClickException("bench ends processes as POSIX systems do; use WSL")
    for script in scripts:
        if Path(script).suffix == ".ipynb":
            raise click.ClickException(f"{script} is a notebook; bench runs scripts")
    if len(scripts) > 2:
        hint = "; arguments of the scripts come behind `--`"
        raise click.UsageError(f"{len(scripts)} scripts, one or two are compared{hint}")
    if len(scripts) == 2:
        if given["select"] or given["ignore"] or given["allow"] or per_rule:
            raise click.UsageError(
                "two scripts are compared as they are, without --select, --ignore, "
                "--allow and --per-rule"
            )
        return [Variant(script, script) for script in scripts], []
    changes = [_wholly_rewritten(scripts[0], given)]
    labels = ["original", "fixed"]
    codes = sorted({str(fix["code"]) for fix in changes[0].fixes})
    if per_rule and len(codes) > 1:
        for code in codes:
            alone = _rewritten(_fixed(scripts[0], given, code))
            if alone is None:
                complain(f"{code} has no fix alone, only after others", "note")
                continue
            changes.append(alone)
            labels.append(f"{code} alone")
    texts = [{}, *(change.texts for change in changes)]
    pairs = zip(labels, texts, strict=True)
    return [Variant(label, scripts[0], its) for label, its in pairs], changes


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


def _measure(
    variants: Sequence[Variant],
    arguments: tuple[str, ...],
    limits: Limits,
    repeats: int,
    verbose: bool,
) -> list[list[Measured]]:
    """Run them in turns, showing the progress. ClickException where a run fails."""
    from gpulint.bench.rows import number
    from gpulint.bench.runs import BenchError, Children, in_turns

    with terminated(), progress_on(sys.stderr) as progress:

        def measure(variant: Variant) -> Measured:
            progress.begin(variant.label)
            run = children(variant)
            rate = number(limits.steps / max(sum(run.seconds), 1e-9))
            progress.end(f"{variant.label}: {rate} steps/s")
            return run

        show = _show_output if verbose else _ignore
        children = Children(arguments, limits, progress.steps, show)
        try:
            return in_turns(variants, repeats, measure)
        except BenchError as error:
            message = str(error)
            if "No module named" in message:
                message += f" (it runs with {sys.executable})"
            raise click.ClickException(message) from None


def _about(
    scripts: tuple[str, ...],
    change: Rewritten | None,
    comparison: Comparison,
    limits: Limits,
    repeats: int,
    load: float | None,
) -> About:
    from gpulint.bench.rows import About
    from gpulint.runtime._limits import available_cpus

    cpus = available_cpus()
    devices = {side.device for side in comparison.sides}
    machine = f"{' and '.join(d or 'no GPU' for d in devices)}, {cpus} CPUs"
    fixes = ""
    if change is not None:
        codes = ", ".join(sorted({str(fix["code"]) for fix in change.fixes}))
        fixes = f"Fixes: {codes} ({', '.join(sorted(change.effects))})"
    setup = f"{repeats} runs of each in turns, {limits.steps} steps after "
    setup += f"{limits.warmup} of warm-up"
    warnings = []
    if load is not None and load > BUSY * cpus:
        warnings.append(
            f"The machine was busy before the first run: load {load:.1f}, {cpus} CPUs."
        )
    return About(" against ".join(scripts), fixes, machine, setup, warnings)


def _facts(
    scripts: tuple[str, ...],
    arguments: tuple[str, ...],
    change: Rewritten | None,
    load: float | None,
) -> dict[str, Any]:
    from gpulint import __version__
    from gpulint.runtime._limits import available_cpus

    return {
        "gpulint": __version__,
        "scripts": list(scripts),
        "arguments": list(arguments),
        "effects": None if change is None else sorted(change.effects),
        "fixes": None if change is None else list(change.fixes),
        "machine": {
            "cpus": available_cpus(),
            "load_before": load,
            "load_after": _load(),
        },
    }


def _load() -> float | None:
    """The processes that ran or waited in the last minute, of the whole machine."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def _print(comparison: Comparison, about: About) -> None:
    from gpulint.bench.output import print_table

    print_table(comparison, about, sys.stdout)


def _write_json(
    file: Path, comparison: Comparison, facts: dict[str, Any], code: int
) -> None:
    from gpulint.bench.output import as_json

    found = as_json(comparison, facts, code)
    _write(file, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _check_file(file: Path) -> None:
    """Before minutes are spent: can it be written?"""
    folder = file.resolve().parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise click.ClickException(f"{folder} is no folder that can be written to")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror or error}") from None
    complain(f"written: {file}", "note")


def _show_output(text: str) -> None:
    click.echo(text, nl=False, err=True)


def _ignore(text: str) -> None:
    """Nobody wants to read it."""
