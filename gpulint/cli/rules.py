"""`gpulint rules` and `gpulint explain`: what the rules are and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpulint.report.rule_texts import explanation, summary

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

    plugins = _plugins()
    if as_json and markdown:
        raise click.UsageError("--json and --markdown exclude each other")
    try:
        words = tuple(",".join(select or ("ALL",)).split(","))
        chosen = select_rules(words, plugins=plugins)
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
    from gpulint.registry import find_rule, known_rules, near_rule

    _plugins()
    found = find_rule(rule)
    if found is None:
        near = near_rule(rule, known_rules())
        raise click.UsageError(f"no rule is called {rule!r}{near}")
    if as_json:
        details = {
            **record(found),
            "confidence": found.confidence.value,
            "torch": ".".join(map(str, found.torch)),
            "documentation": found.documentation,
        }
        click.echo(json.dumps(details, indent=2))
        return
    _show(explanation(found))


def _plugins() -> tuple[str, ...]:
    """Those that the settings here name, ready for `find_rule`."""
    from gpulint.registry import use_plugins
    from gpulint.settings import Resolver, SettingsError

    try:
        names = Resolver().of_folder(Path.cwd()).plugins
        use_plugins(names)
    except (SettingsError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    return names


def record(rule: Rule) -> dict[str, str]:
    """The facts of a rule that the list of rules shows."""
    return {
        "code": rule.code,
        "name": rule.name,
        "effect": rule.effect.value,
        "severity": rule.severity.value,
        "framework": rule.framework,
        "summary": summary(rule.documentation),
    }


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
