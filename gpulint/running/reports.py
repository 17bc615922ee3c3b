"""What a child process tells the command that started it, an event a line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DETAIL = 160
SAYS = re.compile(r"\w")  # not a ruler


def read(report: Path) -> list[dict[str, Any]]:
    """All that a child has said so far."""
    events = []
    for line in report.read_text("utf-8", errors="replace").splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:  # half a line: the process was killed
            continue
    return events


def count_steps(events: Sequence[dict[str, Any]]) -> int:
    """The steps that it has last spoken of."""
    return next((e["steps"] for e in reversed(events) if "steps" in e), 0)


def last_line(output: str) -> str:
    """The last line that a script printed, which is mostly why it failed."""
    lines = [" ".join(x.split()) for x in output.splitlines() if SAYS.search(x)]
    last = lines[-1] if lines else "no output"
    return last if len(last) <= DETAIL else f"{last[: DETAIL - 3]}..."
