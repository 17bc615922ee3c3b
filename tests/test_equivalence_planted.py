"""Rewrites planted in scripts: each wrong one is seen, each honest one passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from equivalence import support
from equivalence.cases import (
    Failed,
    assert_repeatable,
    check_exact,
    check_numerics,
    check_random,
)
from equivalence.planted import PLANTED, Planted
from equivalence.runner import Runner
from equivalence.situation import TURING

if (why := support.missing()) is not None:
    pytest.skip(why, allow_module_level=True)


def check_on_turing(script: str, rewritten: str, runner: Runner) -> None:
    check_numerics(script, rewritten, runner, TURING)


CHECKS: dict[str, Callable[[str, str, Runner], None]] = {
    "exact": check_exact,
    "random": check_random,
    "numerics": check_on_turing,
}


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as started:
        yield started


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: p.name)
def test_wrong_rewrite_is_red_and_honest_one_green(
    planted: Planted, runner: Runner
) -> None:
    script, wrong, honest = planted.texts()
    assert_repeatable(script, runner)
    with pytest.raises(Failed):
        CHECKS[planted.claims](script, wrong, runner)
    CHECKS[planted.honest_claims or planted.claims](script, honest, runner)
    if planted.honest_claims:
        return
    assert wrong != honest
