"""`gpulint rules` and `gpulint explain`: what the rules are and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpulint.rule import Rule

COLUMNS = ("Code", "Name", "Effect", "Severity", "Framework", "Summary")


@click.command
@click.option("--json", "as_json", is_flag=True, help="As a JSON array.")
@click.option("--markdown", is_flag=True, help="As the rule reference in Markdown.")
@click.option(
    "--select",
    multiple=True,
    metavar="CODES",
    help="Only these: codes, prefixes or names; commas between.",
)
def rules(as_json: bool, markdown: bool, select: tuple[str, ...]) -> None:
    """List the rules."""
    from gpulint.registry import select_rules

    if as_json and markdown:
        raise click.UsageError("--json and --markdown exclude each other")
    try:
        chosen = select_rules(tuple(",".join(select or ("ALL",)).split(",")))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        click.echo(json.dumps([record(rule) for rule in chosen], indent=2))
        return
    rows = [tuple(record(rule).values()) for rule in chosen]
    click.echo("\n".join(_reference(chosen, rows) if markdown else _table(rows)))


@click.command
@click.argument("rule", metavar="CODE|NAME")
@click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
def explain(rule: str, as_json: bool) -> None:
    """Say what a rule finds, why it costs time, and what its fix does."""
    from gpulint.registry import find_rule

    found = find_rule(rule)
    if found is None:
        raise click.UsageError(f"no rule is called {rule!r}{_near(rule)}")
    if as_json:
        details = {
            **record(found),
            "confidence": found.confidence.value,
            "torch": ".".join(map(str, found.torch)),
            "documentation": found.documentation,
        }
        click.echo(json.dumps(details, indent=2))
        return
    _show(
        f"# {found.code} {found.name}\n\n"
        f"severity: {found.severity.value} · effect: {found.effect.value}\n\n"
        f"{found.documentation}\n"
    )


def record(rule: Rule) -> dict[str, str]:
    """The facts of a rule that the list of rules shows."""
    return {
        "code": rule.code,
        "name": rule.name,
        "effect": rule.effect.value,
        "severity": rule.severity.value,
        "framework": rule.framework,
        "summary": _summary(rule.documentation),
    }


def _summary(documentation: str) -> str:
    """The first paragraph that is no heading, in one line."""
    for paragraph in documentation.split("\n\n"):
        text = " ".join(paragraph.split())
        if text and not text.startswith("#"):
            return text
    return ""


def _table(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    widths = [max(map(len, column), default=0) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _markdown(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
    return [
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |"
        for line in lines
    ]


def _reference(chosen: Sequence[Rule], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """The table of rules, and the documentation of each below it."""
    lines = ["# Rules", "", *_markdown(rows)]
    for rule in chosen:
        lines += ["", f"## {rule.code} {rule.name}", ""]
        lines.append(rule.documentation.replace("\n## ", "\n### ").rstrip())
    return lines


def _near(word: str) -> str:
    from gpulint.registry import all_rules
    from gpulint.settings import closest

    names = [name for rule in all_rules() for name in (rule.code, rule.name)]
    upper = word.upper()
    return closest(upper if upper.startswith("GPU") else word.lower(), names)


def _show(markdown: str) -> None:
    """Rendered on a terminal, as it is elsewhere."""
    if not _is_terminal():
        click.echo(markdown, nl=False)
        return
    from rich.markdown import Markdown

    from gpulint.report.full import console

    console(sys.stdout).print(Markdown(markdown))


def _is_terminal() -> bool:
    return sys.stdout.isatty()
