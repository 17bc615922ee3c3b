"""Answers that are kept, unless a way to them was cut short."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Kept:
    """Keeps answers that are whole.

    A value may come from itself, round a loop or through calls: who is asked what is
    being asked for already gives nothing, and calls `cut`. What was found meanwhile may
    lack something, so it is found anew the next time.
    """

    def __init__(self) -> None:
        self._cuts = 0

    def cut(self) -> None:
        """Say that something is left out, since it is being asked for already."""
        self._cuts += 1

    def answer(
        self, answers: dict[Key, Answer], key: Key, find: Callable[[], Answer]
    ) -> Answer:
        """The answer under a key, found by `find` if there is none."""
        if key in answers:
            return answers[key]
        before = self._cuts
        found = find()
        if self._cuts == before:
            answers[key] = found
        return found
