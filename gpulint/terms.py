"""How severe, how sure and how fixable findings are to be, as settings say."""

from __future__ import annotations

from typing import NamedTuple

from gpulint.finding import Confidence, Finding, Severity

LEFT = "the settings leave this rule to you (`fixable`, `unfixable`)"


class Terms(NamedTuple):
    """What a user says about the findings of rules, by the codes of these.

    `severities` stand in place of those that rules give; findings below
    `min_confidence` do not count, unless they are of the rules that are `asked_for`;
    those of `unfixable` rules are never rewritten.
    """

    severities: tuple[tuple[str, Severity], ...] = ()
    min_confidence: Confidence = Confidence.LOW
    unfixable: frozenset[str] = frozenset()
    asked_for: frozenset[str] = frozenset()

    def admit(self, finding: Finding) -> bool:
        """Whether a finding is sure enough."""
        if finding.code in self.asked_for:
            return True
        return finding.confidence.rank >= self.min_confidence.rank

    def applied(self, finding: Finding) -> Finding:
        """A finding as severe as is asked for, with its fix if it may have one."""
        severity = dict(self.severities).get(finding.code)
        if severity is not None:
            finding = finding._replace(severity=severity)
        if finding.fix is not None and finding.code in self.unfixable:
            finding = finding._replace(fix=None, fix_withheld=LEFT)
        return finding
