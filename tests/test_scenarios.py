"""Whole training scripts: what is found, what fixing makes of them, their losses."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import pytest
from equivalence import RunResult, assert_same_losses, run_script
from equivalence.expected import read_expected

from gpulint.engine import Fixed, Options, check_source, fix_source
from gpulint.finding import Effect
from gpulint.index import build_index
from gpulint.registry import all_rules
from gpulint.source import read_source
from gpulint.vendor.header import render
from gpulint.vendor.uses import read_uses

FRAMEWORKS = ("import lightning", "transformers import", "accelerate import")


def is_plain(text: str) -> bool:
    """Whether a script needs PyTorch and no framework around it."""
    return "import torch" in text and not any(name in text for name in FRAMEWORKS)


SCRIPTS = Path(__file__).parent.parent / "fixtures" / "scripts"
BEFORE = sorted(SCRIPTS.glob("*/before.py"))
SCENARIOS = [p.parent.name for p in BEFORE]
# Those of other frameworks run in `make test-frameworks`.
RUNNING = [p.parent.name for p in BEFORE if is_plain(p.read_text("utf-8"))]
EVERYTHING = frozenset(Effect)
EXACT = frozenset({Effect.EXACT})


def fixed(name: str, allow: frozenset[Effect]) -> Fixed:
    """What `gpulint fix` makes of a scenario with every rule."""
    source = read_source(SCRIPTS / name / "before.py")
    return fix_source(source, Options(all_rules(), allow))


@functools.cache
def original(name: str) -> RunResult:
    return run_script(SCRIPTS / name / "before.py")


@pytest.mark.parametrize("name", SCENARIOS)
def test_findings_are_the_expected_ones_and_nothing_else(name: str) -> None:
    source = read_source(SCRIPTS / name / "before.py")
    findings = check_source(source, Options(all_rules())).findings
    found = sorted((f.code, f.place.start.row) for f in findings)
    rows = read_expected(SCRIPTS / name / "expected.md")
    assert found == sorted((e.code, e.line) for e in rows)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(
    "allow, kept", [(EXACT, "after.exact.py"), (EVERYTHING, "after.all.py")]
)
def test_fixing_makes_the_kept_script_and_ends_there(
    name: str, allow: frozenset[Effect], kept: str
) -> None:
    result = fixed(name, allow)
    assert result.undone == ()
    assert result.stable
    assert result.text == (SCRIPTS / name / kept).read_text("utf-8")
    again = fix_source(
        result.source.with_text(result.text), Options(all_rules(), allow)
    )
    assert again.text == result.text


@pytest.mark.parametrize("name", SCENARIOS)
def test_growing_effects_end_where_all_at_once_ends(name: str) -> None:
    result = fixed(name, EXACT)
    for effects in ({Effect.RANDOM}, {Effect.RANDOM, Effect.NUMERICS}, EVERYTHING):
        source = result.source.with_text(result.text)
        result = fix_source(source, Options(all_rules(), EXACT | effects))
    assert result.text == fixed(name, EVERYTHING).text


@pytest.mark.parametrize("name", RUNNING)
def test_exact_fixes_give_the_same_losses(name: str) -> None:
    result = fixed(name, EXACT)
    assert result.applied
    assert_same_losses(original(name), run_script(result.text))


@pytest.mark.parametrize("name", RUNNING)
def test_the_fixed_script_gives_the_same_losses_with_the_runtime_off(name: str) -> None:
    result = fixed(name, EVERYTHING)
    off = run_script(result.text, env={"GPULINT_RUNTIME": "off"})
    assert_same_losses(original(name), off)


@functools.cache
def rewritten(name: str) -> RunResult:
    return run_script(fixed(name, EVERYTHING).text)


@pytest.mark.parametrize("name", RUNNING)
def test_the_fixed_script_trains(name: str) -> None:
    before = original(name)
    after = rewritten(name)
    assert len(after.losses) == len(before.losses)
    assert all(map(math.isfinite, after.losses))
    assert after.losses[-2] < after.losses[0]


def test_a_vendored_runtime_gives_the_same_losses_without_gpulint() -> None:
    """One scenario of many helpers; the training machine has no gpulint."""
    source = read_source(SCRIPTS / "pm25" / "before.py")
    result = fix_source(source, Options(all_rules(), EVERYTHING, vendor=True))
    form = "from gpulint import runtime", "import _gpulint_runtime as runtime"
    assert result.text == fixed("pm25", EVERYTHING).text.replace(*form)
    helpers = read_uses(build_index(source.with_text(result.text))).helpers
    beside = {
        "_gpulint_runtime.py": render(helpers),
        "gpulint.py": "raise ImportError('gpulint is not installed here')\n",
    }
    assert_same_losses(rewritten("pm25"), run_script(result.text, beside=beside))
