"""Runs training scripts before and after a rewrite and compares their losses."""

from __future__ import annotations

from .expected import Expected, read_expected
from .harness import RunResult, ScriptFailed, assert_same_losses, run_script

__all__ = [
    "Expected",
    "RunResult",
    "ScriptFailed",
    "assert_same_losses",
    "read_expected",
    "run_script",
]
