"""See which of the user's lines run, and when.

A trace function of Python sees every line, so that a line that did not run is told from
one that took no time; but it makes lines slow, and runs only before times are taken.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from types import CodeType
from typing import Any

from gpulint.profiling.own import Own, Rows

BUDGET = 5_000  # lines of one function: a loop over pixels is not followed to its end
MOMENTS = 1_000_000  # of a timeline

Moment = tuple[int, int]  # nanoseconds, and which of the tracer's `stacks` from then on


class LineTracer:
    """The lines that run between `start` and `stop` in the thread that calls these.

    `timed`: keep a timeline too, to know which line has launched a kernel.
    """

    def __init__(
        self,
        own: Own,
        at_home: Callable[[], bool],
        timed: bool = False,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.own, self.at_home, self.timed, self.clock = own, at_home, timed, clock
        self.ran: set[tuple[str, int]] = set()
        self.timeline: list[Moment] = []
        self.stacks: dict[Rows, int] = {(): 0}  # numbered; 0: no line is known
        self._left: Counter[CodeType] = Counter()
        self._rows: list[tuple[str, int]] = []  # where the calls above are
        self._frames: list[tuple[Any, Any, bool]] = []
        self._before: Any = None

    def start(self, frame: Any) -> None:
        """Trace this frame, those that called it, and all that they will call."""
        self._before = sys.gettrace()
        while frame is not None:
            if self.own.code(frame.f_code):
                self._frames.append((frame, frame.f_trace, frame.f_trace_lines))
                self._rows.insert(0, (frame.f_code.co_filename, frame.f_lineno))
                self.ran.add(self._rows[0])
                frame.f_trace = self._line
            frame = frame.f_back
        self._mark()
        sys.settrace(self._call)

    def stop(self) -> None:
        """Trace no more."""
        sys.settrace(self._before)
        for frame, before, lines in self._frames:
            frame.f_trace, frame.f_trace_lines = before, lines
        self._frames.clear()
        self._rows.clear()
        self._mark()

    def _call(self, frame: Any, event: str, argument: Any) -> Any:
        if not self.own.code(frame.f_code):
            return None
        if not self.at_home():  # a forked worker; its lines are not ours
            sys.settrace(None)
            return None
        if not self._may_follow(frame.f_code):
            return None
        self._rows.append((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        if event == "line":
            at = frame.f_code.co_filename, frame.f_lineno
            self.ran.add(at)
            if self._rows:
                self._rows[-1] = at
            self._mark()
            if not self._may_follow(frame.f_code):
                frame.f_trace_lines = False  # to return None changes nothing
        elif event == "return":
            self._leave()
        return self._line

    def _leave(self) -> None:
        if self._rows:
            self._rows.pop()
        self._mark()

    def _may_follow(self, code: CodeType) -> bool:
        if self.timed:  # a gap would give its kernels to another line
            return True
        self._left[code] += 1
        return self._left[code] <= BUDGET

    def _mark(self) -> None:
        if not self.timed or len(self.timeline) >= MOMENTS:
            return
        rows = tuple(reversed(self._rows))
        if len(self.timeline) == MOMENTS - 1:
            rows = ()  # what is launched from here on belongs to no line
        number = self.stacks.setdefault(rows, len(self.stacks))
        self.timeline.append((self.clock(), number))
