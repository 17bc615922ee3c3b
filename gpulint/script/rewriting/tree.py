"""Whether LibCST accepts a file that `ast` refuses."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import libcst as cst

from gpulint.source import Source, SourceError

STACK_BYTES = 512 * 1024 * 1024
RECURSION_LIMIT = 20_000
T = TypeVar("T")


class Tree:
    """A file that LibCST takes and gives back. SourceError: it does not."""

    def __init__(self, source: Source) -> None:
        self.module = with_deep_stack(lambda: cst.parse_module(source.text))
        if with_deep_stack(lambda: self.module.code) != source.text:
            raise SourceError("not analysed: the parser does not give the text back")


def with_deep_stack(work: Callable[[], T]) -> T:
    """Run LibCST work in a thread with a large stack and a raised recursion limit.

    SourceError when even that is too little, or when LibCST refuses the text.
    """
    answer: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, RECURSION_LIMIT))
        try:
            answer.append(work())
        except BaseException as error:
            failure.append(error)
        finally:
            sys.setrecursionlimit(limit)

    size = threading.stack_size(STACK_BYTES)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
    if failure:
        raise _as_source_error(failure[0])
    return answer[0]


def _as_source_error(error: BaseException) -> BaseException:
    if isinstance(error, (RecursionError, MemoryError)):
        return SourceError("not analysed: nested too deeply")
    if isinstance(error, cst.ParserSyntaxError):
        return SourceError(
            f"not analysed: {error.message.splitlines()[0]}", error.raw_line
        )
    return error
