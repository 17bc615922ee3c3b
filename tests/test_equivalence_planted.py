"""Rewrites planted in scripts: each wrong one is seen, each honest one passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from equivalence import support

if (why := support.missing()) is not None:
    pytest.skip(why, allow_module_level=True)

from equivalence.cases import (
    Failed,
    assert_repeatable,
    check_exact,
    check_numerics,
    check_random,
)
from equivalence.planted import PLANTED, Planted
from equivalence.runner import Runner, shared_runner
from equivalence.situation import TURING

Check = Callable[[str, str, Runner], None]


def check_on_turing(script: str, rewritten: str, runner: Runner) -> None:
    check_numerics(script, rewritten, runner, TURING)


CHECKS: dict[str, Check] = {
    "exact": check_exact,
    "random": check_random,
    "numerics": check_on_turing,
}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_wrong_rewrite_is_red_and_honest_one_green(planted: Planted) -> None:
    script, wrong, honest = planted.texts()
    runner = shared_runner()
    assert_repeatable(script, runner)
    with pytest.raises(Failed, match=rf"(?s){planted.seen_as}"):
        CHECKS[planted.claims](script, wrong, runner)
    CHECKS[planted.honest_claims or planted.claims](script, honest, runner)


def test_edits_of_planted_rewrites_must_stand_in_the_script() -> None:
    planted = Planted("nothing", "exact", (("no such line", ""),), (), seen_as="")
    with pytest.raises(ValueError, match="'no such line' stands 0 times"):
        planted.texts()
