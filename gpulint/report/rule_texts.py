"""Parts of a rule's documentation, cut to what a format has room for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpulint.finding import Confidence, Finding, Severity

if TYPE_CHECKING:
    from gpulint.rule import Rule

_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z`])")


class RuleText(NamedTuple):
    """What the documentation says of one rule, and what it is by default."""

    code: str
    name: str
    summary: str
    description: str
    documentation: str
    severity: Severity
    confidence: Confidence
    framework: str


def explanation(rule: Rule) -> str:
    """All that is known of a rule, in Markdown."""
    return (
        f"# {rule.code} {rule.name}\n\n"
        f"severity: {rule.severity.value} · effect: {rule.effect.value}\n\n"
        f"{rule.documentation}\n"
    )


def rule_text(finding: Finding, room: int = 1024) -> RuleText:
    """The texts of a finding's rule; `description` has at most `room` characters."""
    from gpulint.registry import find_rule

    rule = find_rule(finding.code)
    documentation = rule.documentation if rule else ""
    short = fit(summary(documentation) or finding.name, room)
    why = " ".join(section(documentation, "Why").split())
    return RuleText(
        finding.code,
        finding.name,
        short,
        fit(f"{short} {why}".strip(), room),
        documentation or short,
        rule.severity if rule else finding.severity,
        rule.confidence if rule else finding.confidence,
        rule.framework if rule else "pytorch",
    )


def summary(documentation: str) -> str:
    """The first paragraph that is no heading, in one line."""
    for paragraph in documentation.split("\n\n"):
        text = " ".join(paragraph.split())
        if text and not text.startswith("#"):
            return text
    return ""


def section(documentation: str, heading: str) -> str:
    """What stands under `## heading`, empty where there is no such heading."""
    _, _, rest = f"\n{documentation}".partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0].strip()


def fit(text: str, room: int) -> str:
    """Whole sentences that have room together; of a longer one, its beginning."""
    if len(text) <= room:
        return text
    kept = ""
    for sentence in _SENTENCE.split(text):
        longer = f"{kept} {sentence}".strip()
        if len(longer) > room:
            break
        kept = longer
    return kept or f"{text[: room - 1]}…"
