"""What a child has seen of a script's steps, and the statements its rows belong to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from gpulint.finding import Place
from gpulint.profiling.gpu import GpuTimes
from gpulint.source import SourceError, read_source

BLOCKS = (
    *(ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)


class Line(NamedTuple):
    """A statement of the user's, by the row it begins in."""

    path: Path
    row: int


@dataclass(frozen=True)
class Stack:
    """What was seen of the main thread, the innermost of the user's lines first."""

    kind: str  # wait, backward, optimizer or rest; gpu: what it does for them
    lines: tuple[Line, ...]
    seconds: float


@dataclass(frozen=True)
class LoaderWait:
    """What the main process has waited for the batches of some loaders."""

    made: tuple[Line, ...]  # where the loaders were made, the innermost line first
    workers: int
    seconds: float
    starts: float  # of these, until the first batch of a pass had come
    passes: int


@dataclass(frozen=True)
class Recording:
    """Some steps of a script. Times are of all steps together, in seconds."""

    steps: Sequence[float]  # of each step
    samples: int
    stacks: Sequence[Stack]
    waits: Sequence[LoaderWait]
    ran: frozenset[Line]  # before the steps, in the last ones of the warm-up
    device: str | None = None
    gpu: GpuTimes | None = None
    launched: Sequence[Stack] = ()  # what a GPU does for lines, in one step
    files: Sequence[Path] = ()

    @cached_property
    def seconds(self) -> float:
        """Of all steps."""
        return sum(self.steps)

    @cached_property
    def sampled(self) -> float:
        """The time of all samples, which is that of the steps but for rounding."""
        return sum(stack.seconds for stack in self.stacks) or 1e-9

    @cached_property
    def seen(self) -> frozenset[Line]:
        """All statements that are known to have run in the main process."""
        return self.ran | {line for stack in self.stacks for line in stack.lines}

    def share(self, lines: Iterable[Line]) -> float:
        """The share of the time in which one of these statements was going on."""
        wanted = frozenset(lines)
        seconds = sum(s.seconds for s in self.stacks if not wanted.isdisjoint(s.lines))
        return seconds / self.sampled

    @cached_property
    def idle(self) -> float:
        """The share of a step in which no kernel runs: more cannot be won on the host.

        All of it where nothing is known of a GPU.
        """
        if self.gpu is None:
            return 1.0
        return max(1.0 - self.share_on_gpu(self.gpu.busy), 0.0)

    def share_on_gpu(self, seconds: float) -> float:
        """What seconds of a GPU in one step are of it."""
        return min(seconds * len(self.steps) / self.seconds, 1.0)

    def launched_by(self, lines: Iterable[Line]) -> float:
        """The share of a step in which a GPU works for these statements."""
        wanted = frozenset(lines)
        its = (s.seconds for s in self.launched if not wanted.isdisjoint(s.lines))
        return self.share_on_gpu(sum(its))

    def share_of(self, kind: str) -> float:
        """The share of the time of one kind."""
        if kind == "wait":  # measured, not sampled
            return min(sum(w.seconds for w in self.waits) / self.seconds, 1.0)
        return sum(s.seconds for s in self.stacks if s.kind == kind) / self.sampled


@dataclass
class Statements:
    """The statement that a row of a file is a part of."""

    _rows: dict[Path, Mapping[int, int]] = field(default_factory=dict)
    _blocks: set[Line] = field(default_factory=set)
    _texts: dict[Path, Sequence[str]] = field(default_factory=dict)

    def line(self, path: Path, row: int) -> Line:
        """The innermost statement, a block's first lines included, by its first row."""
        if path not in self._rows:
            self._read(path)
        return Line(path, self._rows[path].get(row, row))

    def of(self, places: Iterable[Place]) -> frozenset[Line]:
        """The statements of places; the head of a loop counts if nothing else does."""
        lines = frozenset(
            self.line(place.path, row)
            for place in places
            for row in range(place.start.row, place.end.row + 1)
        )
        return (lines - self._blocks) or lines

    def text(self, line: Line) -> str:
        """Its first row, without the indent."""
        self.line(*line)
        rows = self._texts[line.path]
        return rows[line.row - 1].strip() if 0 < line.row <= len(rows) else ""

    def _read(self, path: Path) -> None:
        rows: dict[int, int] = {}
        self._rows[path], self._texts[path] = rows, ()
        if path.suffix != ".py":
            return
        try:
            source = read_source(path)
            tree = ast.parse(source.text)
        except (SourceError, SyntaxError, ValueError, RecursionError, MemoryError):
            return
        self._texts[path] = source.text.splitlines()
        for node in ast.walk(tree):  # the outer ones come first
            if isinstance(node, ast.stmt):
                for row in range(node.lineno, _end(node) + 1):
                    rows[row] = node.lineno
                if isinstance(node, BLOCKS):
                    self._blocks.add(Line(path, node.lineno))


def _end(node: ast.stmt) -> int:
    """The last row of a statement; of a block, the last before its body."""
    body: Any = getattr(node, "body", None)
    if body:
        return max(int(body[0].lineno) - 1, node.lineno)
    return node.end_lineno or node.lineno


def read(
    event: Mapping[str, Any], statements: Statements, gpu: GpuTimes | None
) -> Recording:
    """A recording from the last event of a child's report."""

    def lines(rows: Iterable[Sequence[Any]]) -> tuple[Line, ...]:
        return tuple(statements.line(Path(name), row) for name, row in rows)

    waits = [
        LoaderWait(
            lines(made), its["workers"], its["seconds"], its["starts"], its["passes"]
        )
        for made, its in event["waits"]
    ]
    return Recording(
        steps=tuple(event["seconds"]),
        samples=event["samples"],
        stacks=[Stack(kind, lines(at), s) for kind, at, s in event["stacks"]],
        waits=waits,
        ran=frozenset(
            statements.line(Path(name), row)
            for name, rows in event["ran"].items()
            for row in rows
        ),
        device=event["device"],
        gpu=gpu,
        launched=[
            Stack("gpu", lines(rows), s)
            for rows, s in (gpu.stacks if gpu is not None else {}).items()
        ],
        files=tuple(Path(name) for name in event["files"]),
    )
