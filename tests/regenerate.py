"""Writes anew what tests compare with: run it, and read what `git diff` says.

The rule table of the README, the rule reference, what fixing makes of the scenarios,
and of the fixtures that have a `.fixed.py` already (an empty one will do); what each
output format makes of a sample.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "report")]
os.environ["COLUMNS"] = "80"

import golden_report  # noqa: E402
from click.testing import CliRunner  # noqa: E402
from test_docs import rule_table  # noqa: E402
from test_fixtures import cases, rule_of  # noqa: E402

from gpulint.cli import main  # noqa: E402
from gpulint.engine import Options, fix_source  # noqa: E402
from gpulint.finding import Effect  # noqa: E402
from gpulint.registry import all_rules  # noqa: E402
from gpulint.rule import Rule  # noqa: E402
from gpulint.source import read_source  # noqa: E402

START, END = "<!-- rules -->", "<!-- end of rules -->"
EFFECTS = {"exact": frozenset({Effect.EXACT}), "all": frozenset(Effect)}


def documents() -> None:
    """The README's table and `docs/rules.md`."""
    readme = ROOT / "README.md"
    before, rest = readme.read_text("utf-8").split(START)
    after = rest.split(END)[1]
    table = f"{START}\n{rule_table()}\n{END}"
    readme.write_text(f"{before}{table}{after}", "utf-8")
    reference = CliRunner().invoke(main, ["rules", "--markdown"]).output
    (ROOT / "docs" / "rules.md").write_text(reference, "utf-8")


def fixed(path: Path, rules: tuple[Rule, ...], allow: frozenset[Effect]) -> bytes:
    done = fix_source(read_source(path), Options(rules, allow))
    return done.text.encode()


def scripts() -> None:
    """The scenarios after exact fixes and after all."""
    for before in sorted((ROOT / "fixtures" / "scripts").glob("*/before.py")):
        for name, allow in EFFECTS.items():
            target = before.with_name(f"after.{name}.py")
            target.write_bytes(fixed(before, tuple(all_rules()), allow))


def fixtures() -> None:
    """What each rule makes of its own fixtures."""
    for path in cases():
        for suffix, allow in ((".fixed.py", "all"), (".exact.fixed.py", "exact")):
            target = path.with_suffix(suffix)
            if target.exists():
                target.write_bytes(fixed(path, (rule_of(path),), EFFECTS[allow]))


if __name__ == "__main__":
    documents()
    scripts()
    fixtures()
    golden_report.regenerate()
