"""Brings a generated script that fails back to the fewest features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .cases import Failed, NotACase
from .generator import write_script
from .plan import CHOICES, Plan

Check = Callable[[str], object]


def failure(plan: Plan, check: Check) -> Failed | None:
    """How the script of a plan fails, None if it does not."""
    try:
        check(write_script(plan))
    except Failed as error:
        return error
    except NotACase:
        return None
    return None


def shrink(plan: Plan, error: Failed, check: Check) -> tuple[Plan, Failed]:
    """The plainest plan that fails in the same way, and how.

    Goes through the features until none can be left out any more.
    """
    before = None
    while plan != before:
        before = plan
        for name, values in CHOICES.items():
            plainer = replace(plan, **{name: values[0]}).fits()
            found = failure(plainer, check) if plainer != plan else None
            if found is not None and found.what == error.what:
                plan, error = plainer, found
    return plan, error


def described(plan: Plan, error: Failed) -> str:
    """The plan, the script and the difference, to print."""
    return f"{plan}\n\n{write_script(plan)}\n{error}"
