"""The rule reference and the README say what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpulint.cli import main
from gpulint.cli.rules import record
from gpulint.engine import Options, fix_source
from gpulint.finding import Effect
from gpulint.registry import all_rules
from gpulint.source import Source

ROOT = Path(__file__).parent.parent
KINDS = {
    "GPU0": "gpulint itself",
    "GPU1": "Copies and waits between host and device",
    "GPU2": "Loading",
    "GPU3": "Precision",
    "GPU4": "Memory",
    "GPU5": "Compute",
    "GPU6": "Checkpoints and files",
    "GPU7": "More than one GPU",
    "GPU8": "Machine and job",
    "GPU9": "Settings files",
}


def rule_table() -> str:
    """The rules by kind, as the README must show them."""
    kinds = dict(KINDS)
    lines = ["| | rule | effect of the fix | finds |", "|---|---|---|---|"]
    for rule in all_rules():
        kind = kinds.pop(rule.code[:4], "")
        summary = record(rule)["summary"]
        effect = "–" if rule.effect.value == "none" else rule.effect.value
        lines.append(f"| {kind} | {rule.code} {rule.name} | {effect} | {summary} |")
    return "\n".join(lines)


def test_readme_lists_the_rules() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    shown = re.search(r"<!-- rules -->\n(.*?)<!-- end of rules -->", text, re.DOTALL)
    assert shown is not None
    assert shown.group(1).strip() == rule_table()


def test_readme_example_is_what_the_program_makes() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    before, after = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    options = Options(all_rules(), frozenset(Effect))
    assert fix_source(Source(Path("train.py"), before), options).text == after


def test_rule_reference_is_fresh() -> None:
    result = CliRunner().invoke(main, ["rules", "--markdown"])
    kept = (ROOT / "docs" / "rules.md").read_text("utf-8")
    assert kept == result.output, "run `make docs`"


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_linked_files_exist(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / target).exists(), target


def test_readme_commands_exist() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    shown = re.findall(r"^gpulint (\w+) [-a-zA-Z]", text, re.MULTILINE)
    for command in {"check", "fix", "explain"} | set(shown) - {"reads"}:
        result = CliRunner().invoke(main, [command, "--help"])
        assert result.exit_code == 0, command
