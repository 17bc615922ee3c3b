"""Answers that are kept, though what they are about may come from itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Answers:
    """Keeps the answers of one resolver, in dicts of its parts.

    A value may come from itself, round a loop or through calls: who is asked what is
    being asked for already says what it knows so far. What was found meanwhile may lack
    something: `whole` then finds it anew the next time, while what `first` keeps hangs
    on who asks first.
    """

    def __init__(self) -> None:
        self._open: set[tuple[int, Hashable]] = set()  # being asked for, by dict
        self._cuts = 0

    def cut(self) -> None:
        """Say that something is left out, since it is being asked for already."""
        self._cuts += 1

    def whole(
        self, answers: dict[Key, Answer], key: Key, find: Callable[[], Answer]
    ) -> Answer:
        """The answer under a key; one that `find` gives is kept if nothing was cut."""
        if key in answers:
            return answers[key]
        before = self._cuts
        found = find()
        if self._cuts == before:
            answers[key] = found
        return found

    def first(
        self,
        answers: dict[Key, Answer],
        key: Key,
        find: Callable[[], Answer],
        meanwhile: Answer,
    ) -> Answer:
        """The answer under a key, found once; `meanwhile` is what it is until then.

        It is kept in any case, also where it rests on what another is meanwhile.
        """
        if key in answers:
            return self.known(answers, key)
        answers[key] = meanwhile
        self.open(answers, key)
        try:
            answers[key] = find()
        except BaseException:
            del answers[key]
            raise
        finally:
            self.close(answers, key)
        return answers[key]

    def known(self, answers: dict[Key, Answer], key: Key) -> Answer:
        """The answer under a key that has one, be it what it is meanwhile."""
        if (id(answers), key) in self._open:
            self.cut()
        return answers[key]

    def open(self, answers: dict[Key, Answer], key: Key) -> None:
        """Say that the answer under a key is being found."""
        self._open.add((id(answers), key))

    def close(self, answers: dict[Key, Answer], key: Key) -> None:
        """Say that it is found."""
        self._open.discard((id(answers), key))
