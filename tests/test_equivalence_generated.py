"""Generated training scripts, before and after each effect of `gpulint fix`."""

from __future__ import annotations

import ast

import pytest
from equivalence import support
from equivalence.generator import script_of
from equivalence.plan import CHOICES, plan_of

SEEDS = range(60)
PER_TEST = 5

needs_gpu = pytest.mark.skipif(support.missing() is not None, reason="no pretended GPU")


def test_each_feature_of_the_generator_is_written() -> None:
    plans = [plan_of(seed) for seed in range(500)]
    for name, values in CHOICES.items():
        assert {getattr(plan, name) for plan in plans} == set(values), name
    for seed in range(500):
        ast.parse(script_of(seed))


def test_a_seed_gives_one_script() -> None:
    assert script_of(3) == script_of(3)
    assert len({script_of(seed) for seed in SEEDS}) == len(SEEDS)


@needs_gpu
@pytest.mark.parametrize("first", SEEDS[::PER_TEST])
def test_rewritten_scripts_keep_what_their_effects_promise(first: int) -> None:
    from equivalence.examine import examine

    for seed in range(first, first + PER_TEST):
        _, verdict, text, _ = examine(seed)
        assert verdict == "equal", f"seed {seed}: {verdict}\n{text}"


@needs_gpu
def test_a_failing_script_is_brought_back_to_the_features_that_fail() -> None:
    from equivalence.cases import Failed
    from equivalence.shrink import described, failure, shrink

    def check(script: str) -> None:
        if "StepLR" in script and "clip_grad_norm_" in script:
            raise Failed("exact", script, script + "pass\n", "made up")

    seed = next(s for s in range(500) if failure(plan_of(s), check) is not None)
    error = failure(plan_of(seed), check)
    assert error is not None
    plan, error = shrink(plan_of(seed), error, check)
    assert str(plan) == "scheduler=epoch clip=norm"
    assert "made up" in described(plan, error)
