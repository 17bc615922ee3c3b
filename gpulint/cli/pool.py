"""Checks the files of large projects in several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpulint.cli import internal
from gpulint.cli.run import Run, rare_collections
from gpulint.index.consulted import Consulted
from gpulint.runtime._limits import available_cpus

if TYPE_CHECKING:
    from gpulint.cli.options import Flags
    from gpulint.cli.run import Listed

MOST_PROCESSES = 8  # that are started unless a number is asked for
CHUNKS = 4  # for each process, as some files take longer than others
_runs: list[Run] = []  # in a worker process, the one that it does its work with


class Answer(NamedTuple):
    """What a worker process says of one file.

    `findings`: as `gpulint.cache.findings.to_lists` gives them; None where an internal
    `error` (one line, and its `trace`) stopped the check. `noted`: what they rest on.
    `read`: whether the file could be read.
    """

    findings: list[Any] | None
    noted: Consulted
    read: bool = True
    error: str = ""
    trace: str = ""


def processes(asked: int | None, files: int) -> int:
    """How many processes to check so many files in; 1: this one.

    `asked`: a number that a user gives; None: what pays on this machine.
    """
    if asked is not None:
        return max(1, min(asked, files))
    return max(1, min(available_cpus(), MOST_PROCESSES))


def answers(
    flags: Flags, listed: Listed, paths: Sequence[Path], number: int
) -> Iterator[Answer | None]:
    """What `number` worker processes find, in the order of the paths.

    None for each file whose process came to a bad end: out of memory, most often.
    """
    size = max(1, -(-len(paths) // (number * CHUNKS)))
    chunks = [paths[at : at + size] for at in range(0, len(paths), size)]
    with ProcessPoolExecutor(
        number, _context(), _begin, (flags, listed, Path.cwd())
    ) as pool:
        results = [pool.submit(_check, chunk) for chunk in chunks]
        try:
            for chunk, result in zip(chunks, results, strict=True):
                try:
                    yield from result.result()
                except BrokenProcessPool:
                    yield from [None] * len(chunk)
        finally:  # what nobody waits for may complain when this process ends
            done = all(result.done() for result in results)
            pool.shutdown(wait=done, cancel_futures=True)


def _context() -> multiprocessing.context.BaseContext:
    """Copies of this process where those are safe and cheap, new ones elsewhere."""
    plain = sys.platform == "linux" and threading.active_count() == 1
    return multiprocessing.get_context("fork" if plain else "spawn")


def _begin(flags: Flags, listed: Listed, folder: Path) -> None:
    """Set up a worker process like the one that it works for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever it works for ends it
    os.chdir(folder)
    run = Run(flags)
    run.listed = listed
    _runs[:] = [run]


def _check(paths: Sequence[Path]) -> list[Answer]:
    (run,) = _runs
    with rare_collections():
        return [_answer(run, path) for path in paths]


def _answer(run: Run, path: Path) -> Answer:
    from gpulint.cache.findings import to_lists
    from gpulint.engine import check_path

    project = run.projects.of(path)
    project.noted = Consulted()
    try:
        checked = check_path(path, run.job(path).options)
        found = [to_lists(finding) for finding in checked.findings]
    except Exception as error:
        trace = traceback.format_exc()
        return Answer(None, Consulted(), True, internal(error), trace)
    return Answer(found, project.noted, checked.source is not None)
