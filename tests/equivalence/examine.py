"""Checks the script of one seed, and makes a failing one small."""

from __future__ import annotations

from .cases import Failed, NotACase, check, check_on_real_gpu
from .generator import write_script
from .plan import plan_of
from .runner import shared_runner
from .shrink import described, shrink


def examine(
    seed: int, *, real_gpu: bool = False
) -> tuple[int, str, str, tuple[str, ...]]:
    """What came of a seed, with what to print and the codes of the rules."""
    runner = shared_runner(real_gpu=real_gpu)
    check_it = check_on_real_gpu if real_gpu else check
    runner.forget()
    plan = plan_of(seed)
    try:
        checked = check_it(write_script(plan), runner)
    except NotACase as error:
        return seed, "not a case", f"{plan}\n{error}", ()
    except Failed as error:
        smallest = shrink(plan, error, lambda script: check_it(script, runner))
        return seed, "FAILED", described(*smallest), ()
    return seed, "equal", "", checked.everything
