"""Processes and threads that are started with what their function does not take."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH

ACTORS = """\
def act(number, queue, model, *, seed=0):
    queue.put(model(number, seed))


def act_any(*args, **kwargs):
    args[0].put(kwargs)


class Actor:
    def act(self, number):
        self.number = number
"""
MAIN = """\
import argparse
import functools
import threading

import torch.multiprocessing as mp

from actors import Actor, act, act_any
from engine import Trainer
from parts import loader, model, optimizer


@functools.cache
def counted(number):
    return number


class Runner:
    def work(self, number):
        print(number)

    def __init__(self, args):
        {started}


def main(args):
    context = mp.get_context("spawn")
    queue = context.Queue()
    for number in range(4):
        {made}
    Runner(args)
    Trainer().fit(model, loader, optimizer)


if __name__ == "__main__":
    main(argparse.ArgumentParser().parse_args())
"""
AMISS = [
    "mp.Process(target=act, args=(number, queue)).start()",
    "context.Process(target=act, args=(number, queue)).start()",
    "threading.Thread(target=act, args=[number, queue]).start()",
    "threading.Thread(None, act, 'actor', (number, queue)).start()",
    "mp.Process(target=act).start()",
    "mp.Process(target=act, args=(1, 2, 3, 4)).start()",
    "mp.Process(target=act, args=(1, 2, 3), kwargs={'depth': 4}).start()",
    "mp.spawn(act, args=(queue,), nprocs=2)",
    "mp.spawn(fn=act, args=(number, queue, model), nprocs=2)",
]
TAKEN = [
    "mp.Process(target=act, args=(number, queue, model)).start()",
    "mp.Process(target=act, args=(1, 2), kwargs={'model': 3, 'seed': 4}).start()",
    "mp.Process(target=act, args=(number, *args.others)).start()",
    "mp.Process(target=act, args=args.others).start()",
    "mp.Process(target=act, args=(number,), kwargs={**args.others}).start()",
    "mp.Process(target=act, args=(number,), kwargs=args.others).start()",
    "mp.Process(target=act, **args.others).start()",
    "mp.Process(*args.others, target=act).start()",
    "mp.Process(target=act_any, args=(number, queue)).start()",
    "mp.Process(target=counted, args=(number, queue)).start()",
    "mp.Process(target=Actor().act, args=(number, queue)).start()",
    "mp.Process(target=args.act, args=(number, queue)).start()",
    "args.context.Process(target=act, args=(number, queue)).start()",
    "args.Task(target=act, args=(number, queue)).start()",
    "mp.spawn(act, args=(queue, model), nprocs=2)",
]


def of_main(folder: Path, made: str = "pass", started: str = "pass") -> Confidence:
    main = MAIN.format(made=made, started=started)
    files = {"engine.py": LOOP, "actors.py": ACTORS, "main.py": main}
    return confidences(folder, files)[11]


@pytest.mark.parametrize("made", AMISS)
def test_what_no_process_can_be_started_with(tmp_path: Path, made: str) -> None:
    assert of_main(tmp_path, made) is LOW


@pytest.mark.parametrize("made", TAKEN)
def test_what_a_process_may_be_started_with(tmp_path: Path, made: str) -> None:
    assert of_main(tmp_path, made) is HIGH


@pytest.mark.parametrize("given, sure", [("(1, 2)", LOW), ("(1,)", HIGH)])
def test_methods_of_the_object_itself(
    tmp_path: Path, given: str, sure: Confidence
) -> None:
    started = f"threading.Thread(target=self.work, args={given}).start()"
    assert of_main(tmp_path, started=started) is sure


INNER = """\
import threading

from actors import act
from engine import Trainer
from parts import loader, model, optimizer


def main(queue):
    {before}

    def learn():
        Trainer().fit(model, loader, optimizer)

    threading.Thread(target=learn).start()


if __name__ == "__main__":
    main([])
"""


@pytest.mark.parametrize(
    "before, sure",
    [
        ("threading.Thread(target=act, args=(1, queue)).start()", LOW),
        ("act(queue)", LOW),
        ("threading.Thread(target=act, args=(1, queue, 2)).start()", HIGH),
        ("print(queue)", HIGH),
    ],
)
def test_functions_inside_of_others(
    tmp_path: Path, before: str, sure: Confidence
) -> None:
    """They are not even defined where what stands before them raises."""
    main = INNER.format(before=before)
    files = {"engine.py": LOOP, "actors.py": ACTORS, "main.py": main}
    assert confidences(tmp_path, files)[11] is sure
