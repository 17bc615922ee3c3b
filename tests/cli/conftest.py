"""The command line over a small engine, run in an empty folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fakes import FakeEngine, FakeRule, Run, make_rule

from gpulint import registry
from gpulint.cli import main
from gpulint.finding import Effect, Severity


@pytest.fixture(name="rules")
def _rules(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeRule, ...]:
    """Five rules in place of the real ones."""
    made = (
        make_rule(
            "gpu000_syntax_error",
            "No Python.",
            effect=Effect.NONE,
            severity=Severity.ERROR,
            word="def def",
        ),
        make_rule(
            "gpu101_slow_copy",
            "A copy that waits.\nIt waits long.\n\n## Why\nIt | waits.",
            effect=Effect.EXACT,
            word="slow_copy",
            better="fast_copy",
        ),
        make_rule(
            "gpu301_slow_math",
            "# Slow math\n\nMath in float32.",
            effect=Effect.NUMERICS,
            word="slow_math",
            better="amp_math",
        ),
        make_rule(
            "gpu303_broken_api",
            "",
            effect=Effect.NONE,
            severity=Severity.ERROR,
            word="broken_api",
        ),
        make_rule(
            "gpu401_small_batch",
            "A small batch.",
            effect=Effect.HYPERPARAMS,
            severity=Severity.NOTE,
            word="small_batch",
        ),
    )
    monkeypatch.setattr(registry, "all_rules", lambda: made)
    return made


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, rules: tuple[FakeRule, ...]) -> FakeEngine:
    """An engine that knows these rules, in place of the real one."""
    fake = FakeEngine()
    monkeypatch.setitem(sys.modules, "gpulint.engine", fake)
    return fake


@pytest.fixture
def run(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line, called in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, [str(w) for w in words], input=stdin)

    return call


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """Calls git in the test's folder."""

    def call(*words: str, cwd: Path = tmp_path) -> str:
        done = subprocess.run(
            ["git", *words], cwd=cwd, capture_output=True, text=True, check=True
        )
        return done.stdout

    return call
