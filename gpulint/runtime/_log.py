"""Tell the user each decision once, and remember it for `explain()`."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

from ._ranks import global_rank, in_worker

LOGGER = logging.getLogger("gpulint")
MOST_DECISIONS = 200  # a script that asks for something new each step stays small


@dataclass(frozen=True)
class Decision:
    """One decision: the helper that took it, and what it says."""

    helper: str
    text: str

    def __str__(self) -> str:
        return f"{self.helper}: {self.text}"


_decisions: dict[Decision, None] = {}


def decide(helper: str, text: str) -> None:
    """Remember a decision; the first time, on rank 0, log it."""
    decision = Decision(helper, text)
    if decision in _decisions or len(_decisions) >= MOST_DECISIONS:
        return
    _decisions[decision] = None
    if speaks():
        _say(str(decision))


def note(helper: str, text: str) -> None:
    """Remember for `explain()` what goes without saying."""
    if len(_decisions) < MOST_DECISIONS:
        _decisions[Decision(helper, text)] = None


def report(helper: str, text: str) -> None:
    """Log what was measured, each time, on rank 0."""
    if speaks():
        _say(f"{helper}: {text}")


def decisions() -> tuple[Decision, ...]:
    """Return the decisions of this process, oldest first."""
    return tuple(_decisions)


def forget_decisions() -> None:
    """Begin anew, as in a fresh process."""
    _decisions.clear()


def speaks() -> bool:
    """Say whether this process logs: rank 0, and no worker process of a loader."""
    return not in_worker() and global_rank() == 0


def _say(message: str) -> None:
    # A plain script configures no logging, and Python then drops everything below
    # warnings. `logging.getLogger("gpulint").setLevel("WARNING")` silences both ways.
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
    if LOGGER.hasHandlers():
        LOGGER.info("%s", message)
    elif LOGGER.isEnabledFor(logging.INFO) and sys.stderr is not None:
        sys.stderr.write(f"gpulint: {message}\n")
