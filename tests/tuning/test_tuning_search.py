"""The search, against machines that are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from gpulint.tuning.candidate import Candidate, Facts, Outcome, Trial
from gpulint.tuning.plan import Found, Plan, Range
from gpulint.tuning.search import Search


@dataclass
class Machine:
    """Loads `load` samples a second with each worker, up to `cores`, and computes."""

    own: int = 32
    load: float = 1e9  # samples a second of one loading process
    cores: int = 4
    step: float = 0.01  # seconds of a step, and
    sample: float = 0.0  # seconds of each sample in it
    memory: int = 10**9  # samples that fit
    workers: int | None = None
    samples: int | None = 100_000
    choices: tuple[str, ...] = ()
    speeds: dict[str, float] = field(default_factory=dict)
    compilable: bool = False
    compiled: float = 1.0
    ahead: float = 1.0
    special: Callable[[Candidate], Outcome | None] = lambda candidate: None
    noise: Callable[[int], float] = lambda run: 1.0
    asked: list[Candidate] = field(default_factory=list)

    def __call__(self, candidate: Candidate) -> Trial:
        self.asked.append(candidate)
        size = dict(candidate.sizes).get("train", self.own)
        count = self.workers if candidate.workers is None else candidate.workers
        facts = Facts(
            sizes={"train": size, "eval": 64},
            defaults={"train": self.own, "eval": 64},
            workers=self.workers,
            prefetch_fixed=False,
            amp="bf16" if self.choices else None,
            amp_choices=self.choices,
            compilable=self.compilable,
            samples=self.samples,
        )
        outcome = self.special(candidate)
        if outcome is not None or size > self.memory:
            kind = outcome or Outcome.MEMORY
            return Trial(candidate, kind, detail="it failed", facts=facts)
        computing = size / (self.step + self.sample * size)
        computing *= self.speeds.get(candidate.amp or "bf16", 1.0)
        computing /= self.compiled if candidate.compile is False else 1.0
        loading = self.load * min(max(count or 1, 1), self.cores)
        loading *= self.ahead if candidate.prefetch else 1.0
        rate = min(computing, loading) * self.noise(len(self.asked))
        return Trial(candidate, Outcome.OK, rate, size * 1000, 20, 1.0, "", facts)


def search(machine: Machine, **plan: object) -> Found:
    return Search(machine, Plan(**{"cpus": 8, **plan})).run()  # type: ignore[arg-type]


def test_the_fewest_workers_that_keep_up() -> None:
    machine = Machine(load=1000, workers=1, own=32, samples=None, cores=3)
    found = search(machine, batch=Range(32, 32))
    assert found.winner.candidate.workers == 4
    assert found.winner.rate == 3000
    workers = [c.workers for c in machine.asked if not c.sizes and not c.prefetch]
    assert workers[:7] == [None, 0, 2, 4, 7, 8, None]


def test_workers_that_are_asked_for() -> None:
    machine = Machine(load=1000, workers=3, cores=99, step=0.001, own=32)
    found = search(machine, workers=(0, 3, 6), batch=Range(32, 32))
    assert found.winner.candidate.workers == 6
    assert {c.workers for c in machine.asked} == {None, 0, 6}


def test_workers_that_bring_nothing_are_given_up() -> None:
    found = search(Machine(workers=7), batch=Range(32, 32))
    assert found.kept
    assert found.winner.rate == 3200


def test_workers_the_script_has_itself() -> None:
    machine = Machine(load=1000)
    found = search(machine, workers=(2, 4), batch=Range(32, 32))
    assert {c.workers for c in machine.asked} == {None}
    assert "does not leave them to loader_kwargs" in found.notes[0]


@pytest.mark.parametrize(
    "memory,size", [(10**9, 256), (200, 192), (100, 96), (63, 56), (40, 40), (35, 32)]
)
def test_the_largest_batch_that_fits(memory: int, size: int) -> None:
    found = search(Machine(memory=memory))
    assert found.winner.facts.sizes["train"] == size


def test_the_plateau() -> None:
    """Of sizes that are equally fast the smallest, however many would fit."""
    machine = Machine(own=32, step=0.001, sample=0.0001)
    found = search(machine)
    rates = {t.facts.sizes["train"]: t.rate for t in found.trials}
    assert found.winner.facts.sizes["train"] == 128
    assert rates[256] < rates[128] * 1.05
    assert machine.asked.count(Candidate((("train", 256),))) == 2  # no chance


def test_a_slow_run_by_chance_does_not_end_the_search() -> None:
    slow = Machine(noise=lambda run: 0.4 if run == 2 else 1.0)
    assert search(slow).winner.facts.sizes["train"] == 256


@pytest.mark.parametrize(
    "samples,sizes", [(None, {64, 128, 256}), (1500, {64, 128, 150}), (400, set())]
)
def test_the_number_of_batches_in_a_pass(samples: int | None, sizes: set[int]) -> None:
    machine = Machine(samples=samples)
    search(machine)
    assert {size for c in machine.asked for _, size in c.sizes} == sizes


@pytest.mark.parametrize(
    "asked,sizes",
    [
        (Range(8, 64), [8, 16, 64]),
        (Range(64, 160), [64, 128, 160]),
        (Range(40, 200, 80), [40, 120, 200]),
        (Range(1024, 4096), [1024]),  # 1500 samples make no batch of 2048
        (Range(2048, 4096), [2048]),
    ],
)
def test_sizes_that_are_asked_for(asked: Range, sizes: list[int]) -> None:
    machine = Machine(samples=1500)
    found = search(machine, batch=asked)
    tried = [size for c in machine.asked for _, size in c.sizes]
    assert list(dict.fromkeys(tried)) == sizes
    assert found.winner.facts.sizes["train"] == max(sizes)


def test_the_own_size_is_not_taken_where_others_are_asked_for() -> None:
    machine = Machine(own=512)
    assert search(machine, batch=Range(64, 256)).winner.facts.sizes["train"] == 256
    steady = Machine(own=512, sample=0.001, step=0)
    assert search(steady, batch=Range(64, 256)).winner.facts.sizes["train"] == 64
    small = Machine(own=512, special=lambda c: Outcome.CRASH if c.sizes else None)
    assert search(small, batch=Range(64, 256)).kept


def test_steps_between_sizes_are_kept() -> None:
    machine = Machine(memory=150)
    found = search(machine, batch=Range(64, 256, 64))
    assert found.winner.facts.sizes["train"] == 128
    assert [s for c in machine.asked for _, s in c.sizes][:3] == [64, 128, 192]


@pytest.mark.parametrize(
    "outcome", [Outcome.CRASH, Outcome.TIMEOUT, Outcome.NO_STEPS, Outcome.FEW_STEPS]
)
def test_what_fails_ends_the_enlarging(outcome: Outcome) -> None:
    def fail(candidate: Candidate) -> Outcome | None:
        return outcome if dict(candidate.sizes).get("train", 0) > 100 else None

    machine = Machine(special=fail)
    assert search(machine).winner.facts.sizes["train"] == 64
    assert len(machine.asked) == 7  # own, 64, 128, and two more of two


def test_larger_batches_get_more_workers_and_these_larger_batches() -> None:
    machine = Machine(own=16, load=1000, workers=1, cores=16, step=0.02)
    found = search(machine, workers=(1, 2, 4, 8))
    assert found.winner.facts.sizes["train"] == 128
    assert found.winner.candidate.workers == 8


def test_what_did_not_fit_is_not_tried_again() -> None:
    machine = Machine(own=16, load=1000, workers=1, cores=16, step=0.02, memory=100)
    found = search(machine, workers=(1, 2, 4, 8))
    assert found.winner.candidate.workers == 4
    failed = [t.facts.sizes["train"] for t in found.trials if not t.ok]
    assert failed == [128, 112, 104]


def test_batches_ahead() -> None:
    found = search(Machine(own=256, load=1000, workers=2, ahead=1.5), workers=(1, 2))
    assert found.winner.candidate == Candidate(prefetch=4)
    machine = Machine(own=256, workers=0)
    search(machine, workers=(0,))
    assert not any(c.prefetch for c in machine.asked)


def test_precision() -> None:
    machine = Machine(choices=("off", "bf16", "fp16"), speeds={"fp16": 1.3, "off": 0.5})
    found = search(machine, tries=frozenset({"precision"}), batch=Range(32, 32))
    assert found.winner.candidate == Candidate(amp="fp16")
    assert not any(c.amp for c in Machine().asked)
    found = search(Machine(), tries=frozenset({"precision"}))
    assert "amp_dtype() is not called" in found.notes[0]


@pytest.mark.parametrize("compiled,kept", [(1.5, True), (0.7, False)])
def test_compiling(compiled: float, kept: bool) -> None:
    machine = Machine(compilable=True, compiled=compiled)
    found = search(machine, tries=frozenset({"compile"}), batch=Range(32, 32))
    assert found.winner.candidate.compile is (None if kept else False)
    found = search(Machine(), tries=frozenset({"compile"}))
    assert "maybe_compile() is not called" in found.notes[0]


def test_channels_last_is_only_said() -> None:
    tries = frozenset({"channels_last"})
    found = search(Machine(), tries=tries, batch=Range(32, 32))
    assert found.kept
    assert found.trials[-1].candidate.channels_last
    assert found.notes[0].startswith("channels_last: 1.00 times as fast; not stored")

    def fail(candidate: Candidate) -> Outcome | None:
        return Outcome.CRASH if candidate.channels_last else None

    found = search(Machine(special=fail), tries=tries, batch=Range(32, 32))
    assert found.notes[0] == "channels_last: it failed"


def test_several_sizes_of_training() -> None:
    """Each of them in turn; `--batch` is about the first."""

    def measure(candidate: Candidate) -> Trial:
        sizes = {"critic": 8, "generator": 8, **dict(candidate.sizes)}
        facts = Facts(sizes=sizes, defaults={"critic": 8, "generator": 8})
        rate = float(min(sizes["critic"], 32) * min(sizes["generator"], 16))
        return Trial(candidate, Outcome.OK, rate, facts=facts)

    found = Search(measure, Plan(cpus=2)).run()
    assert dict(found.winner.candidate.sizes) == {"critic": 32, "generator": 16}
    found = Search(measure, Plan(cpus=2, batch=Range(4, 8))).run()
    assert dict(found.winner.candidate.sizes) == {"generator": 16}


def test_a_batch_that_does_not_fit_as_written_is_halved() -> None:
    machine = Machine(own=512, memory=100)
    found = search(machine)
    assert found.winner.facts.sizes["train"] == 96
    assert found.baseline.outcome is Outcome.MEMORY


def test_nothing_fits() -> None:
    machine = Machine(own=4, memory=0)
    found = search(machine)
    assert [dict(c.sizes).get("train") for c in machine.asked] == [None, 2, 1]
    assert found.winner.outcome is Outcome.MEMORY


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.TIMEOUT, Outcome.NO_STEPS])
def test_a_script_that_does_not_run(outcome: Outcome) -> None:
    found = search(Machine(special=lambda candidate: outcome))
    assert found.winner.outcome is outcome
    assert len(found.trials) == 1


def test_a_script_without_calls() -> None:
    def measure(candidate: Candidate) -> Trial:
        return Trial(candidate, Outcome.OK, 5.0, facts=Facts(sizes={"eval": 9}))

    found = Search(measure, Plan(cpus=4)).run()
    assert not found.winner.facts.tunable
    assert len(found.trials) == 1


def test_nothing_to_try() -> None:
    found = search(Machine(samples=100))
    assert found.notes == ("nothing was tried: see --batch, --workers and --try",)


def test_what_was_fast_by_chance_is_given_up() -> None:
    lucky = lambda run: 2.0 if run == 2 else 1.0  # noqa: E731
    machine = Machine(own=64, sample=0.001, step=0, noise=lucky)
    found = search(machine, batch=Range(64, 128))
    assert found.kept
    assert found.winner.rate == found.baseline.rate
    assert found.notes == ("batch 128: not faster when it was run again",)


def test_what_fails_when_it_is_run_again_is_given_up() -> None:
    machine = Machine()
    runs: list[Candidate] = []

    def measure(candidate: Candidate) -> Trial:
        trial = machine(candidate)
        runs.append(candidate)
        if candidate.sizes and runs.count(candidate) == 2:
            return replace(trial, outcome=Outcome.CRASH, detail="it crashed", rate=0.0)
        return trial

    found = Search(measure, Plan(cpus=1)).run()
    assert found.kept
    assert found.notes == ("batch 256: it crashed, the second time",)


def test_the_highest_peak_of_all_runs_counts() -> None:
    machine = Machine()

    def measure(candidate: Candidate) -> Trial:
        trial = machine(candidate)
        return replace(trial, peak_bytes=len(machine.asked))

    found = Search(measure, Plan(cpus=1)).run()
    assert found.winner.peak_bytes == len(machine.asked) == 8


def test_candidates_as_variables_and_words() -> None:
    full = Candidate((("critic", 8), ("train", 64)), 1, 4, "off", False, True)
    assert full.variables() == {
        "GPULINT_BATCH_SIZE_CRITIC": "8",
        "GPULINT_BATCH_SIZE_TRAIN": "64",
        "GPULINT_NUM_WORKERS": "1",
        "GPULINT_PREFETCH_FACTOR": "4",
        "GPULINT_AMP": "off",
        "GPULINT_COMPILE": "off",
    }
    assert str(full) == (
        "batch of critic 8, batch 64, 1 worker, 4 batches ahead, float32, not compiled, "
        "channels_last"
    )
    assert str(Candidate(amp="bf16", compile=True)) == "bf16, compiled"
    assert str(Candidate()) == "as written"
    assert Candidate(compile=True).variables() == {"GPULINT_COMPILE": "on"}
