"""Checks what gpulint makes of one script, effect by effect."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpulint.engine import Fixed, Options, fix_source
from gpulint.finding import Effect
from gpulint.registry import all_rules
from gpulint.source import Source

from . import compare
from .compare import Different
from .runner import PLAIN, Runner
from .situation import AMPERE, TURING, Outcome, Situation

EXACT = frozenset({Effect.EXACT})
RANDOM = EXACT | {Effect.RANDOM}
NUMERICS = EXACT | {Effect.NUMERICS}
EVERYTHING = frozenset(Effect)
SEEDS = 5

ON_GPU = Situation(gpu=AMPERE)
OFF = Situation(environment={"GPULINT_RUNTIME": "off"})
# Workers that really start, whatever the machine.
TWO_WORKERS = {"GPULINT_NUM_WORKERS": "2"}

Rewrite = Callable[[str, frozenset[Effect]], str]


class NotACase(Exception):
    """The script itself fails, or two of its runs differ."""


class Failed(AssertionError):
    """A rewritten script is not what its effect promises."""

    def __init__(self, what: str, before: str, after: str, why: str) -> None:
        self.what = what
        diff = difflib.unified_diff(
            before.splitlines(), after.splitlines(), "before", "after", lineterm=""
        )
        super().__init__("\n".join([f"{what}: {why}", *diff]))


@dataclass(frozen=True)
class Checked:
    """The codes of the rules that changed a script, by the effects allowed."""

    exact: tuple[str, ...]
    everything: tuple[str, ...]


def fixed(script: str, allow: frozenset[Effect]) -> Fixed:
    """What `gpulint fix` makes of a script with every rule."""
    return fix_source(Source(Path("train.py"), script), Options(all_rules(), allow))


def check(script: str, runner: Runner) -> Checked:
    """Fix a script and run it before and after, in every way that its effects ask for.

    Raises `NotACase` for a script that cannot be compared with itself, `Failed` for a
    rewritten one that is not what it should be.
    """
    assert_repeatable(script, runner)
    exact = check_text(script, EXACT)
    everything = check_text(script, EVERYTHING)
    check_exact(script, exact.text, runner)
    judge("runtime off", script, everything.text, runner, OFF, PLAIN)
    effects = {finding.effect for finding in everything.applied}
    if Effect.RANDOM in effects:
        check_random(script, fixed(script, RANDOM).text, runner)
    if {Effect.RANDOM, Effect.NUMERICS} <= effects:
        check_numerics(script, fixed(script, NUMERICS).text, runner, AMPERE)
    if Effect.NUMERICS in effects:
        redrawn = Effect.RANDOM in effects
        for gpu in (AMPERE, TURING):
            check_numerics(script, everything.text, runner, gpu, redrawn=redrawn)
    return Checked(codes(exact), codes(everything))


def check_on_real_gpu(script: str, runner: Runner) -> Checked:
    """Fix a script and run it before and after on the GPU of this machine.

    Exact fixes leave every bit as it was; after all of them, compiling aside, the final
    loss is as with another seed.
    """
    assert_repeatable(script, runner, ON_GPU)
    exact = check_text(script, EXACT)
    everything = check_text(script, EVERYTHING)
    situation = with_workers(ON_GPU, exact.text)
    judge("exact", script, exact.text, runner, situation, situation)
    redrawn = Effect.RANDOM in {finding.effect for finding in everything.applied}
    check_numerics(script, everything.text, runner, AMPERE, redrawn=redrawn)
    return Checked(codes(exact), codes(everything))


def codes(result: Fixed) -> tuple[str, ...]:
    return tuple(sorted({finding.code for finding in result.applied}))


def check_text(script: str, allow: frozenset[Effect]) -> Fixed:
    """Fix a script; a second time changes nothing."""
    result = fixed(script, allow)
    name = "+".join(sorted(effect.value for effect in allow))
    if result.undone:
        raise Failed(f"fix ({name})", script, result.text, "a fix was taken back")
    again = fixed(result.text, allow).text
    if again != result.text:
        raise Failed(f"second fix ({name})", result.text, again, "it changes more")
    return result


def assert_repeatable(
    script: str, runner: Runner, situation: Situation = PLAIN
) -> None:
    """Raise `NotACase` unless two runs of the script are the same."""
    first = runner.run(script, situation)
    if first.error:
        raise NotACase(first.error)
    try:
        compare.assert_identical(first, runner.run_again(script, situation))
    except Different as error:
        raise NotACase(f"not repeatable: {error}") from error


def check_exact(script: str, rewritten: str, runner: Runner) -> None:
    """Bit for bit the same, without and with a GPU."""
    if rewritten == script:
        return
    for situation in (PLAIN, with_workers(ON_GPU, rewritten)):
        judge("exact", script, rewritten, runner, situation, situation)


def check_random(script: str, rewritten: str, runner: Runner) -> None:
    """The same losses with constant draws, and draws of the same distribution."""
    constant = dataclasses.replace(ON_GPU, constant=True, environment=TWO_WORKERS)
    judge("random", script, rewritten, runner, constant, constant)
    recorded = Situation(record=True, environment=TWO_WORKERS)
    before = runner.run(script, recorded)
    after = runner.run(rewritten, recorded)
    verdict("draws", script, rewritten, compare.assert_same_draws, before, after)


def check_numerics(
    script: str,
    rewritten: str,
    runner: Runner,
    gpu: tuple[int, int],
    *,
    redrawn: bool = False,
) -> None:
    """A final loss as with another seed of the original."""
    situation = with_workers(Situation(gpu=gpu), rewritten)
    first = runner.run(script, situation)
    if rewritten == script or first.error:
        return
    after = runner.run(rewritten, situation)
    what = f"numerics on {gpu}"
    try:
        # mostly the same as with the same seed
        verdict(what, script, rewritten, assert_close_to, first, after)
    except Failed:
        others = [dataclasses.replace(situation, seeds=n) for n in range(1, SEEDS)]
        seeds = [first, *(runner.run(script, other) for other in others)]
        try:
            compare.assert_close(seeds, after, redrawn=redrawn)
        except Different as error:
            raise Failed(what, script, rewritten, str(error)) from error


def assert_close_to(before: Outcome, after: Outcome) -> None:
    compare.assert_close([before], after)


def with_workers(situation: Situation, rewritten: str) -> Situation:
    """The situation with workers, where the rewritten script asks how many."""
    if "loader_kwargs" not in rewritten:
        return situation
    return dataclasses.replace(situation, environment=TWO_WORKERS)


def judge(
    what: str,
    script: str,
    rewritten: str,
    runner: Runner,
    after: Situation,
    before: Situation,
) -> None:
    """Compare two runs bit for bit; with constant draws the generators may differ."""
    if rewritten == script:
        return
    old = runner.run(script, before)
    if old.error:
        return
    new = runner.run(rewritten, after)
    rule = compare.assert_identical
    if after.constant:
        rule = compare.assert_same_output
    where = "on the CPU" if after.gpu is None else "on the GPU"
    try:
        verdict(f"{what} {where}", script, rewritten, rule, old, new)
    except Failed:
        assert_repeatable(script, runner, before)
        raise


def verdict(
    what: str,
    script: str,
    rewritten: str,
    rule: Callable[[Outcome, Outcome], None],
    before: Outcome,
    after: Outcome,
) -> None:
    try:
        rule(before, after)
    except Different as error:
        raise Failed(what, script, rewritten, str(error)) from error
