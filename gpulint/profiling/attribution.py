"""What findings cost in the steps that were recorded: upper bounds, never promises."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from gpulint.finding import Finding
from gpulint.profiling.costs import Measure, cost_of
from gpulint.profiling.recording import Line, LoaderWait, Recording, Statements

LEAST = 0.0005  # what is less is shown as 0.0 %
NO_TIME = (
    Measure.PART,
    Measure.BATCH,
    Measure.MEMORY,
    Measure.OUTSIDE,
    Measure.RESULTS,
)


class Standing(enum.Enum):
    """How much is known of a finding's cost, in the order in which they are shown."""

    MEASURED = "measured"
    UNKNOWN = "not measurable"
    UNSEEN = "not seen"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Cost:
    """What a finding costs; `share` of a step is None where nothing was measured."""

    finding: Finding
    standing: Standing
    reason: str
    share: float | None = None

    @property
    def sentence(self) -> str:
        """What that means, for people."""
        if self.standing is Standing.MEASURED:
            return f"at most {percent(self.share or 0.0)} of a step here: {self.reason}"
        if self.standing is Standing.NOTHING:
            return f"costs nothing here: 0.0 % of a step: {self.reason}"
        return f"{self.standing.value} here: {self.reason}"


def rank(
    findings: Iterable[Finding], recording: Recording, statements: Statements
) -> list[Cost]:
    """The costs of findings: the largest first, those of nothing last."""
    order = list(Standing)
    costs = [Judge(recording, statements).cost(finding) for finding in findings]
    return sorted(
        costs,
        key=lambda c: (order.index(c.standing), -(c.share or 0.0), c.finding.order),
    )


@dataclass(frozen=True)
class Judge:
    """Says what a finding costs."""

    recording: Recording
    statements: Statements

    def cost(self, finding: Finding) -> Cost:
        """What one finding costs."""
        measure, needs_gpu = cost_of(finding.code)
        if measure in NO_TIME:
            return Cost(finding, Standing.UNKNOWN, measure.value)
        if needs_gpu and self.recording.device is None:
            return Cost(finding, Standing.UNKNOWN, "it takes a GPU, and none was used")
        return self._measured(finding, measure)

    def _measured(self, finding: Finding, measure: Measure) -> Cost:
        its = self.recording
        lines = self.statements.of((finding.place, *finding.related))
        if measure is Measure.LINES:
            return self._lines(finding, lines, measure)
        if measure is Measure.SAMPLES:
            return self._samples(finding, lines)
        if measure in (Measure.WAIT, Measure.STARTS):
            own = self.statements.of((finding.place,))
            made = [w for w in its.waits if not own.isdisjoint(w.made)]
            return self._waits(finding, made, measure)
        if measure is Measure.ALL_WAITS:
            return self._bounded(finding, its.share_of("wait"), (), measure.value)
        if measure is Measure.OPTIMIZER:
            return self._optimizer(finding)
        if measure is Measure.COMPUTE:
            return self._share(finding, 1.0 - its.share_of("wait"), measure.value)
        if its.gpu is None:
            return Cost(finding, Standing.UNKNOWN, "no trace of this GPU could be made")
        matrix = measure is Measure.MATRIX
        seconds = its.gpu.matrix if matrix else its.gpu.to_device
        return self._share(finding, its.share_on_gpu(seconds), measure.value)

    def _lines(
        self, finding: Finding, lines: frozenset[Line], measure: Measure
    ) -> Cost:
        its = self.recording
        if its.seen.isdisjoint(lines):
            reason = f"{measure.value} did not run in these steps"
            return Cost(finding, Standing.UNSEEN, reason)
        return self._bounded(finding, its.share(lines), lines, measure.value)

    def _samples(self, finding: Finding, lines: frozenset[Line]) -> Cost:
        """Lines of a dataset, which may run in worker processes."""
        its = self.recording
        workers = [w for w in its.waits if w.workers]
        if its.seen.isdisjoint(lines) and workers:
            waited = sum(w.seconds for w in workers) / its.seconds
            reason = "the wait for workers, in which its lines run"
            return self._bounded(finding, waited, (), reason)
        return self._lines(finding, lines, Measure.SAMPLES)

    def _waits(
        self, finding: Finding, waits: list[LoaderWait], measure: Measure
    ) -> Cost:
        if not waits:
            reason = "its loader gave no batch in these steps"
            return Cost(finding, Standing.UNSEEN, reason)
        if measure is Measure.WAIT:
            waited = sum(wait.seconds for wait in waits)
        elif any(wait.passes for wait in waits):
            waited = sum(wait.starts for wait in waits)
        else:
            reason = "no pass over its loader began in these steps"
            return Cost(finding, Standing.UNSEEN, reason)
        share = waited / self.recording.seconds
        return self._bounded(finding, share, (), measure.value)

    def _optimizer(self, finding: Finding) -> Cost:
        its = self.recording
        lines = {s.lines[0] for s in its.stacks if s.kind == "optimizer" and s.lines}
        share = its.share_of("optimizer")
        return self._bounded(finding, share, lines, Measure.OPTIMIZER.value)

    def _bounded(
        self, finding: Finding, host: float, lines: Iterable[Line], reason: str
    ) -> Cost:
        """Time of the host, as far as the GPU is idle, and time of the GPU."""
        its = self.recording
        idle = its.idle
        if host > idle:
            reason += f" (the GPU is idle for {percent(idle)})"
        return self._share(finding, min(host, idle) + its.launched_by(lines), reason)

    def _share(self, finding: Finding, share: float, reason: str) -> Cost:
        share = min(share, 1.0)
        standing = Standing.MEASURED if share >= LEAST else Standing.NOTHING
        return Cost(finding, standing, reason, share)


@dataclass(frozen=True)
class Spent:
    """The time of one statement and what it calls outside the user's files."""

    line: Line
    share: float
    kind: str
    gpu: float  # share of a step in which the GPU works for it


def by_line(recording: Recording) -> list[Spent]:
    """Where the time went, largest first: each moment counts for one statement."""
    host: dict[tuple[Line, str], float] = {}
    gpu: dict[Line, float] = {}
    for stack in recording.stacks:
        if stack.lines:
            key = stack.lines[0], stack.kind
            host[key] = host.get(key, 0.0) + stack.seconds
    for stack in recording.launched:
        if stack.lines:
            gpu[stack.lines[0]] = gpu.get(stack.lines[0], 0.0) + stack.seconds
    spent = [
        Spent(
            line,
            seconds / recording.sampled,
            kind,
            recording.share_on_gpu(gpu.pop(line, 0.0)),
        )
        for (line, kind), seconds in sorted(host.items(), key=lambda its: -its[1])
    ]
    rest = [Spent(x, 0.0, "gpu", recording.share_on_gpu(s)) for x, s in gpu.items()]
    return sorted([*spent, *rest], key=lambda its: -max(its.share, its.gpu))


def percent(share: float) -> str:
    """With one digit behind the point."""
    return f"{100 * share:.1f} %"
