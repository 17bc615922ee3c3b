"""`gpulint bench`: run a script and its rewrite in turns, and say which is faster."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpulint.cli import complain
from gpulint.cli.interrupts import terminated
from gpulint.cli.options import isolated, selection, timeout
from gpulint.cli.progress import Progress, progress_on

if TYPE_CHECKING:
    from gpulint.bench.compare import Comparison
    from gpulint.bench.rows import About
    from gpulint.bench.runs import Children, Limits, Run, Setting, Variant
    from gpulint.bench.variants import Rewritten

FILE = click.Path(dir_okay=False, path_type=Path)
LOSS_TOLERANCE = 0.1  # where fixes change rounding
BUSY = 0.5  # of the CPUs, before the first run
PATIENCE = 10  # seconds for the driver


class Split(click.Command):
    """Scripts stand before `--`, their arguments behind it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what stands behind the first `--`."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["arguments"] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


def _read_launcher(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> list[str]:
    from gpulint.bench.runs import read_launcher

    try:
        return [] if text is None else read_launcher(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", ctx, param) from None


@click.command(cls=Split)
@click.argument(
    "scripts",
    nargs=-1,
    metavar="SCRIPT [NEW] [-- ARGS...]",
    type=click.Path(exists=True, dir_okay=False),
)
@selection
@click.option(
    "--module",
    metavar="NAME",
    help="In the place of SCRIPT: what `python -m NAME` runs in the current folder.",
)
@isolated
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
    type=click.IntRange(4),
    default=6,
    show_default=True,
    help="Runs of each variant, in turns; of an even number slow drifts cancel out.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    metavar="N",
    help="Seed torch, NumPy and Python in all runs, for a script that seeds nothing.",
)
@click.option(
    "--devices",
    metavar="LIST",
    help="GPUs that the runs may use, as in CUDA_VISIBLE_DEVICES; `none` hides all.",
)
@click.option(
    "--launcher",
    metavar="COMMAND",
    callback=_read_launcher,
    help="What starts the ranks, such as 'torchrun --nproc-per-node=2'; their samples "
    "are added up.",
)
@click.option(
    "--sync-check/--no-sync-check",
    default=True,
    show_default=True,
    help="On CUDA, count in one run more of each how often a step waits for the GPU.",
)
@timeout
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
@click.option(
    "--energy",
    is_flag=True,
    help="Show the power of the GPUs and the energy of 1000 samples.",
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
    module: str | None,
    steps: int,
    warmup: int,
    repeats: int,
    seed: int | None,
    devices: str | None,
    launcher: list[str],
    sync_check: bool,
    timeout: float,
    min_speedup: float,
    loss_tol: float | None,
    per_rule: bool,
    energy: bool,
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
    from gpulint.bench.runs import Limits, Setting
    from gpulint.cli.bench_variants import make_variants
    from gpulint.cli.run import one_line_errors, tolerant_output

    tolerant_output()
    for file in filter(None, (json_file, markdown_file, html_file)):
        _check_file(file)
    with one_line_errors():
        variants, changes = make_variants(scripts, module, given, per_rule)
    load = _load()
    limits = Limits(steps, warmup, timeout)
    visible = "" if devices == "none" else devices
    setting = Setting(ctx.meta["arguments"], launcher, seed, visible)
    runs, syncs, trouble = _measure(
        variants, setting, limits, repeats, sync_check, verbose
    )
    change = changes[0] if changes else None
    tolerance = loss_tol if change is None or loss_tol is not None else LOSS_TOLERANCE
    comparison = _compared(variants, changes, runs, syncs, tolerance)
    comparison = replace(comparison, energy=energy)
    failures = comparison.failures(min_speedup)
    code = int(bool(failures))
    title = module or " against ".join(scripts)
    about = _about(title, change, comparison, setting, limits, repeats, load)
    about = about._replace(
        failures=[f"exit code 1: {text}" for text in failures],
        warnings=[*about.warnings, *_gpu_warnings(comparison, trouble)],
    )
    _print(comparison, about)
    if json_file is not None:
        facts = {
            **_facts(scripts or (f"-m {module}",), setting, change, load),
            "options": {
                "steps": steps,
                "warmup": warmup,
                "repeats": repeats,
                "seed": seed,
                "devices": devices,
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


def _measure(
    variants: Sequence[Variant],
    setting: Setting,
    limits: Limits,
    repeats: int,
    sync_check: bool,
    verbose: bool,
) -> tuple[list[list[Run]], list[float | None], str | None]:
    """Run them in turns, showing the progress. ClickException where a run fails.

    Also how often the first two wait for a CUDA device, and why nothing is known of the
    GPUs.
    """
    from gpulint.bench.gpus import INTERVAL
    from gpulint.bench.rows import number
    from gpulint.bench.runs import BenchError, Children, in_turns
    from gpulint.nvml.sampler import Sampler

    sampler = Sampler(INTERVAL, PATIENCE, kept=int(limits.timeout / INTERVAL) + 1)
    with terminated(), sampler, progress_on(sys.stderr) as progress:

        def measure(variant: Variant) -> Run:
            progress.begin(variant.label)
            run = children(variant)
            rate = number(limits.steps / max(sum(run.seconds), 1e-9))
            progress.end(f"{variant.label}: {rate} steps/s")
            return run

        show = _show_output if verbose else _ignore
        children = Children(setting, limits, progress.steps, show, sampler.take)
        sampler.wait()  # its start takes from the first run otherwise
        try:
            runs = in_turns(variants, repeats, measure, random.Random())
        except BenchError as error:
            message = str(error)
            if "No module named" in message:
                message += f" (it runs with {sys.executable})"
            raise click.ClickException(message) from None
        syncs: list[float | None] = [None, None]
        if sync_check:
            pairs = zip(variants[:2], runs, strict=False)
            syncs = [_syncs(v, its, children, progress) for v, its in pairs]
        return runs, syncs, sampler.latest().trouble


def _syncs(
    variant: Variant, runs: Sequence[Run], children: Children, progress: Progress
) -> float | None:
    """How often a step waits for a CUDA device; None: there is none."""
    from gpulint.bench.runs import BenchError

    if not any(run.cuda for run in runs):
        return None
    progress.begin(f"{variant.label}: host syncs")
    try:
        return children.host_syncs(variant)
    except BenchError as error:
        complain(f"host syncs were not counted: {error}", "note")
        return None


def _compared(
    variants: Sequence[Variant],
    changes: Sequence[Rewritten],
    runs: Sequence[Sequence[Run]],
    syncs: Sequence[float | None],
    tolerance: float | None,
) -> Comparison:
    """All variants against the first; those behind the second are of single rules."""
    from gpulint.bench.compare import compare
    from gpulint.bench.statistics import DECIDES, shared

    def against_first(place: int, level: float) -> Comparison:
        labels = variants[0].label, variants[place].label
        effects = changes[place - 1].effects if changes else None
        return compare(labels, (runs[0], runs[place]), effects, tolerance, level)

    whole = against_first(1, DECIDES)
    before, after = whole.sides
    sides = replace(before, host_syncs=syncs[0]), replace(after, host_syncs=syncs[1])
    level = shared(DECIDES, len(variants) - 2)
    alone = tuple(against_first(place, level) for place in range(2, len(variants)))
    return replace(whole, sides=sides, alone=alone)


def _about(
    title: str,
    change: Rewritten | None,
    comparison: Comparison,
    setting: Setting,
    limits: Limits,
    repeats: int,
    load: float | None,
) -> About:
    from gpulint.bench.rows import About
    from gpulint.runtime._limits import available_cpus

    cpus = available_cpus()
    devices = sorted({side.device or "no GPU" for side in comparison.sides})
    machine = f"Machine: {' and '.join(devices)}, {cpus} CPUs"
    fixes = ""
    if change is not None:
        codes = ", ".join(sorted({str(fix["code"]) for fix in change.fixes}))
        fixes = f"Fixes: {codes} ({', '.join(sorted(change.effects))})"
    setup = f"Measured: {repeats} runs of each in turns, {limits.steps} steps of a run "
    setup += f"after {limits.warmup} of warm-up"
    if setting.launcher:
        setup += ", samples of all ranks"
    warnings = []
    if load is not None and load > BUSY * cpus:
        warnings.append(
            f"The machine was busy before the first run: load {load:.1f}, {cpus} CPUs."
        )
    return About(title, fixes, machine, setup, warnings)


def _gpu_warnings(comparison: Comparison, trouble: str | None) -> Iterator[str]:
    """What to know of the GPUs before the rates are believed.

    A power cap is usual under full load.
    """
    from gpulint.nvml.library import POWER_CAP

    if trouble and any(run.cuda for side in comparison.sides for run in side.runs):
        yield f"GPU utilisation is not known: {trouble}"
    for side in comparison.sides:
        why = ", ".join(w for w in side.slowed_by if w != POWER_CAP)
        if why:
            yield f"{side.label}: the GPU was slowed down in some runs by: {why}."


def _facts(
    scripts: tuple[str, ...],
    setting: Setting,
    change: Rewritten | None,
    load: float | None,
) -> dict[str, Any]:
    from gpulint import __version__
    from gpulint.runtime._limits import available_cpus

    return {
        "gpulint": __version__,
        "scripts": list(scripts),
        "arguments": list(setting.arguments),
        "launcher": list(setting.launcher) or None,
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
