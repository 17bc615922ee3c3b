"""Rates from steps, on a clock that only goes where it is told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpulint.tuning.steps import Recorder


class Training:
    """A training whose every part takes a known time."""

    def __init__(self, steps: int = 20, seconds: float = 1.0) -> None:
        self.now = 0.0
        self.recorder = Recorder(steps, seconds, lambda: self.now, self.wait)
        self.queued = 0.0  # seconds of work that the device has not yet done
        self.done = False

    def wait(self) -> None:
        self.now += self.queued
        self.queued = 0.0

    def epoch(
        self,
        loader: SimpleNamespace,
        batches: int,
        *,
        start: float = 0.0,
        load: float = 0.01,
        step: float = 0.02,
        device: float = 0.0,
        every: int = 1,
        train: bool = True,
    ) -> None:
        loop = self.recorder.begin(loader)
        self.now += start
        for number in range(batches):
            self.now += load
            self.recorder.deliver(loop)
            self.now += step
            self.queued += device
            if train and number % every == every - 1:
                self.done = self.recorder.step()
            if self.done:
                return
        self.wait()


def loader(batches: int, size: int = 8, **more: object) -> SimpleNamespace:
    values = {"batch_size": size, "num_workers": 0, "sampler": range(batches * size)}
    return Loader(batches, **{**values, **more})


class Loader(SimpleNamespace):
    def __init__(self, batches: int, **more: object) -> None:
        super().__init__(**more)
        self._batches = batches

    def __len__(self) -> int:
        return self._batches


def rate(training: Training) -> float | None:
    return training.recorder.rate(4)


def test_a_long_pass_is_timed_in_its_middle() -> None:
    training = Training()
    training.epoch(loader(1000), 1000)
    assert training.done
    assert training.recorder.seen == 37  # 34 steps take a second
    assert rate(training) == pytest.approx(8 / 0.03)


def test_the_start_of_workers_is_spread_over_the_pass() -> None:
    training = Training()
    training.epoch(loader(100), 100, start=3.0)
    assert training.done
    assert rate(training) == pytest.approx(800 / (100 * 0.03 + 3.0 - 0.02), rel=1e-9)
    kept = Training()
    kept.epoch(loader(100, persistent_workers=True), 100, start=3.0)
    assert rate(kept) == pytest.approx(8 / 0.03)


def test_what_was_loaded_ahead_is_used_up_first() -> None:
    training = Training()
    training.epoch(loader(1000, num_workers=4, prefetch_factor=3), 1000)
    assert training.recorder.seen == 3 + 12 + 34


def test_short_passes_are_timed_whole_without_evaluation() -> None:
    training = Training(steps=20, seconds=0.0)
    for _ in range(9):
        if not training.done:
            training.epoch(loader(5), 5, start=0.1)
            training.epoch(loader(3), 3, train=False, step=7.0)
    assert training.done
    assert training.recorder.seen == 25  # the first pass says nothing
    assert rate(training) == pytest.approx(40 / (5 * 0.03 + 0.1))


def test_the_last_batch_may_be_smaller() -> None:
    training = Training(steps=4, seconds=0.0)
    for _ in range(3):
        training.epoch(loader(2, size=8, sampler=range(11)), 2)
    assert rate(training) == pytest.approx(11 / 0.06)
    ragged = Training(steps=4, seconds=0.0)
    ragged.epoch(loader(1, size=64, sampler=range(11)), 1)
    ragged.epoch(loader(1, size=64, sampler=range(11)), 1)
    assert rate(ragged) == pytest.approx(11 / 0.03)


def test_evaluation_inside_a_pass_does_not_count() -> None:
    training = Training(steps=20, seconds=0.0)
    recorder = training.recorder
    loop = recorder.begin(loader(1000))
    for number in range(60):
        training.now += 0.03
        recorder.deliver(loop)
        if recorder.step():
            break
        if number % 7 == 6:
            other = recorder.begin(loader(9))
            training.now += 5.0
            recorder.deliver(other)
    assert rate(training) == pytest.approx(8 / 0.03)


def test_gradients_of_several_batches() -> None:
    training = Training(steps=5, seconds=0.0)
    training.epoch(loader(1000), 1000, every=4)
    assert training.done
    assert rate(training) == pytest.approx(8 / 0.03)


def test_passes_that_end_without_a_step() -> None:
    """5 batches and a step for every second: the last batch is only collected."""
    training = Training(steps=4, seconds=0.0)
    for _ in range(4):
        if not training.done:
            training.epoch(loader(5), 5, every=2)
    assert training.done
    assert rate(training) == pytest.approx(40 / 0.12, rel=0.26)


def test_work_that_the_device_has_not_done_yet() -> None:
    """The host is far ahead of the device all the time; only the end waits for it."""
    training = Training(steps=20, seconds=0.0)
    training.epoch(loader(1000), 1000, load=0.0, step=0.001, device=0.05)
    assert training.done
    assert rate(training) == pytest.approx(8 / 0.051)
    short = Training(steps=20, seconds=0.0)
    for _ in range(6):
        short.epoch(loader(5), 5, load=0.0, step=0.001, device=0.05)
    assert rate(short) == pytest.approx(8 / 0.051)


def test_streams_without_a_length() -> None:
    endless = Training()
    endless.epoch(SimpleNamespace(batch_size=8), 1000)
    assert rate(endless) == pytest.approx(8 / 0.03)
    short = Training(steps=20, seconds=0.0)
    for _ in range(9):
        if not short.done:
            short.epoch(SimpleNamespace(batch_size=8), 7)
    assert short.done
    assert rate(short) == pytest.approx(8 / 0.03)


def test_a_loader_that_does_not_say_its_batch() -> None:
    training = Training()
    training.epoch(loader(1000, batch_size=None), 1000)
    assert rate(training) == pytest.approx(4 / 0.03)
    sampler = SimpleNamespace(batch_size=16)
    training = Training()
    training.epoch(loader(1000, batch_size=None, batch_sampler=sampler), 1000)
    assert rate(training) == pytest.approx(16 / 0.03)


def test_without_a_loader_the_median_counts() -> None:
    training = Training(steps=20, seconds=0.0)
    for number in range(100):
        training.now += 9.0 if number % 8 == 0 else 0.02
        if training.recorder.step():
            break
    assert training.recorder.seen == 23
    assert rate(training) == pytest.approx(4 / 0.02)


@pytest.mark.parametrize("steps", [0, 1, 4, 7])
def test_too_few_steps(steps: int) -> None:
    training = Training()
    training.epoch(loader(100), steps)
    assert rate(training) is None
    bare = Training()
    for _ in range(steps):
        bare.recorder.step()
    assert rate(bare) is None


def test_one_pass_that_ends_early_is_enough_for_a_rate() -> None:
    training = Training()
    training.epoch(loader(12), 12)
    assert not training.done
    assert rate(training) == pytest.approx(8 / 0.03)


def test_a_pass_that_took_long_is_not_repeated() -> None:
    training = Training(steps=20, seconds=55.0)
    training.epoch(loader(30), 30, step=2.0)
    assert training.done
    assert training.recorder.seen == 30


def test_a_loader_left_early_counts_what_it_gave() -> None:
    training = Training(steps=20, seconds=0.0)
    for _ in range(9):
        if not training.done:
            training.epoch(loader(1000), 6)
    assert training.done
    assert rate(training) == pytest.approx(8 / 0.03)
