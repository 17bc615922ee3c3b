"""Show a profile: where the time went, and what the findings have of it."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from gpulint.profiling.attribution import Cost, Spent, Standing, by_line, percent
from gpulint.profiling.recording import Line, Recording, Statements
from gpulint.report import one_line

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 1
FEW_SAMPLES = 500
TEXT = 60  # characters of a line of source
MARGIN = "          "
KINDS = {
    "wait": "data wait",
    "backward": "backward",
    "optimizer": "optimizer",
    "rest": "forward and all else",
}
BOUNDS = (
    "At most: the time in which the waste takes place, of which a fix saves a part or "
    "nothing; findings may share it. `gpulint bench` measures what fixes bring."
)


@dataclass(frozen=True)
class Profile:
    """What was recorded and found, of which script and how."""

    script: str
    arguments: Sequence[str]
    warmup: int
    steps: int  # that were asked for
    recording: Recording
    statements: Statements
    costs: Sequence[Cost]
    cpus: int

    def place(self, line: Line) -> str:
        """A line as it is shown: relative where it lies below the working folder."""
        return f"{shown(line.path)}:{line.row}"


def shown(path: Path) -> str:
    """A path, relative where it lies below the working folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def print_profile(profile: Profile, top: int, stream: TextIO) -> None:
    """Tables on a terminal, plain lines elsewhere; `top`: how many lines of source."""
    from gpulint.report.full import PIPE_WIDTH, console

    screen = console(stream)
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = PIPE_WIDTH
    for line in head(profile):
        screen.print(line, soft_wrap=True)
    screen.print()
    _print_lines(profile, by_line(profile.recording), top, screen)
    screen.print()
    for line in findings(profile):
        screen.print(line, soft_wrap=True)


def head(profile: Profile) -> Iterator[str]:
    """What was run, and the parts of a step."""
    its = profile.recording
    count = len(its.steps)
    yield " ".join([profile.script, *profile.arguments])
    yield (
        f"{_count(count, 'step')} after {profile.warmup} of warm-up in "
        f"{its.seconds:.1f} s, {_count(its.samples, 'sample')}; "
        f"{its.device or 'no GPU was used'}, {_count(profile.cpus, 'CPU')}"
    )
    mean = 1000 * its.seconds / count
    middle = 1000 * statistics.median(its.steps)
    parts = [f"{word} {percent(part)}" for word, part in parts_of(its)]
    if not its.waits:
        parts[0] = "no DataLoader gave a batch"
    yield f"a step: {mean:.1f} ms (median {middle:.1f}): {', '.join(parts)}"
    if its.gpu is not None:
        busy, matrix = its.share_on_gpu(its.gpu.busy), its.share_on_gpu(its.gpu.matrix)
        yield (
            f"the GPU computes for {percent(busy)} of a step, "
            f"{percent(matrix)} in matrix products and convolutions"
        )
    if count < profile.steps:
        yield f"The script ended after {_count(count, 'step')} that could be recorded."
    if its.samples < FEW_SAMPLES:
        yield (
            f"Only {_count(its.samples, 'sample')}: "
            f"shares below {percent(3 / max(its.samples, 3))} may not be seen."
        )


def parts_of(recording: Recording) -> list[tuple[str, float]]:
    """The parts of a step that everybody has; together they are all of it."""
    shares = {kind: recording.share_of(kind) for kind in KINDS}
    others = sum(share for kind, share in shares.items() if kind != "wait") or 1.0
    scale = (1.0 - shares["wait"]) / others  # the wait is measured, others are sampled
    return [
        (word, shares[kind] * (1.0 if kind == "wait" else scale))
        for kind, word in KINDS.items()
    ]


def _print_lines(
    profile: Profile, spent: Sequence[Spent], top: int, screen: Console
) -> None:
    from rich.table import Table

    on_gpu = profile.recording.gpu is not None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("share", justify="right")
    if on_gpu:
        table.add_column("GPU", justify="right")
    table.add_column("place", overflow="fold")
    table.add_column("statement", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("in")
    for its in spent[:top]:
        gpu = [percent(its.gpu)] if on_gpu else []
        text = one_line(profile.statements.text(its.line))
        kind = {"wait": "data wait", "gpu": "GPU", "rest": ""}.get(its.kind, its.kind)
        table.add_row(
            percent(its.share), *gpu, profile.place(its.line), text[:TEXT], kind
        )
    screen.print(table)


def findings(profile: Profile) -> Iterator[str]:
    """What the findings cost, the largest first; alike ones without a figure in one."""
    if not profile.costs:
        yield "`gpulint check` finds nothing in the files of this run."
        return
    measured = [c for c in profile.costs if c.standing is Standing.MEASURED]
    if measured:
        yield "Findings by the most that they cost here, of a step:"
    for cost in measured:
        finding = cost.finding
        where = f"{shown(finding.path)}:{finding.place.start.row}"
        share = percent(cost.share or 0.0).rjust(len(MARGIN) - 2)
        yield f"{share}  {where} {finding.code} {finding.name}: {cost.reason}"
        yield f"{MARGIN}{one_line(finding.message)}"
    for standing, title in (
        (Standing.UNKNOWN, "Not measurable here: {reason}"),
        (Standing.UNSEEN, "Not seen here: {reason}"),
        (Standing.NOTHING, "Costs nothing here, 0.0 % of a step: {reason}"),
    ):
        for reason, costs in _alike(profile.costs, standing):
            yield title.format(reason=reason)
            yield from _listed(costs)
    if measured:
        yield ""
        yield BOUNDS


def _alike(
    costs: Iterable[Cost], standing: Standing
) -> Iterator[tuple[str, list[Cost]]]:
    groups: dict[str, list[Cost]] = {}
    for cost in costs:
        if cost.standing is standing:
            groups.setdefault(cost.reason, []).append(cost)
    yield from groups.items()


def _listed(costs: Iterable[Cost]) -> Iterator[str]:
    """A line for each rule, with all places."""
    rules: dict[str, dict[str, list[int]]] = {}
    for cost in costs:
        its = cost.finding
        places = rules.setdefault(f"{its.code} {its.name}", {})
        places.setdefault(shown(its.path), []).append(its.place.start.row)
    for rule, places in sorted(rules.items()):
        rows = (
            f"{path}:{', :'.join(map(str, sorted(set(numbers))))}"
            for path, numbers in places.items()
        )
        yield f"{MARGIN}{rule}  {'  '.join(rows)}"


def as_json(profile: Profile) -> dict[str, Any]:
    """All that was recorded; shares are of a step, 0 to 1."""
    its = profile.recording
    return {
        "schema": SCHEMA,
        "script": profile.script,
        "arguments": list(profile.arguments),
        "steps": len(its.steps),
        "warmup": profile.warmup,
        "seconds": round(its.seconds, 6),
        "step_ms": [round(1000 * seconds, 3) for seconds in its.steps],
        "samples": its.samples,
        "machine": {"cpus": profile.cpus, "device": its.device},
        "parts": {kind: round(part, 5) for (_, part), kind in _pairs(its)},
        "gpu": _gpu(its),
        "lines": [_line(profile, spent) for spent in by_line(its)],
        "findings": [_finding(cost) for cost in profile.costs],
    }


def _pairs(its: Recording) -> Iterator[tuple[tuple[str, float], str]]:
    yield from zip(parts_of(its), KINDS, strict=True)


def _gpu(its: Recording) -> Mapping[str, float] | None:
    if its.gpu is None:
        return None
    figures = {
        "busy": its.gpu.busy,
        "matrix": its.gpu.matrix,
        "to_device": its.gpu.to_device,
    }
    return {key: round(its.share_on_gpu(value), 5) for key, value in figures.items()}


def _line(profile: Profile, spent: Spent) -> dict[str, Any]:
    return {
        "filename": str(spent.line.path),
        "row": spent.line.row,
        "text": profile.statements.text(spent.line),
        "share": round(spent.share, 5),
        "gpu_share": None if profile.recording.gpu is None else round(spent.gpu, 5),
        "kind": spent.kind,
    }


def _finding(cost: Cost) -> dict[str, Any]:
    its = cost.finding
    return {
        "code": its.code,
        "name": its.name,
        "message": its.message,
        "filename": str(its.path.absolute()),
        "row": its.place.start.row,
        "fingerprint": its.fingerprint,
        "cost": cost.standing.value,
        "at_most": None if cost.share is None else round(cost.share, 5),
        "sentence": cost.sentence,
    }


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}".replace(",", " ")
