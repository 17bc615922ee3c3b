"""Issues for SonarQube's generic import, in the form of 10.3 and later.

docs.sonarsource.com, "Generic formatted issue reports". What the scanner refuses
(ExternalIssueReportValidator of SonarSource/sonarqube): an issue with `severity` or
`type` of its own, one whose rule is not listed, a rule listed twice or without impacts;
and an empty range or a column behind the end of its line, which stops the analysis.
Lines begin with 1, columns with 0; they count UTF-16 units, as Java's strings do.
"""

from __future__ import annotations

import json
from typing import Any, TextIO

from gpulint.finding import Finding, Severity
from gpulint.report import Report, one_line
from gpulint.report.places import Region, Row, Unit, rows
from gpulint.report.rule_texts import rule_text

# HIGH, MEDIUM, LOW are what every version from 10.3 on knows.
IMPACTS = {
    Severity.ERROR: "HIGH",
    Severity.WARNING: "MEDIUM",
    Severity.NOTE: "LOW",
}
SEVERITIES = {
    Severity.ERROR: "CRITICAL",
    Severity.WARNING: "MAJOR",
    Severity.NOTE: "INFO",
}


def write(report: Report, stream: TextIO) -> None:
    """The rules of all findings, and the findings."""
    found = list(rows(report))
    first = {row.finding.code: row.finding for row in reversed(found)}
    document = {
        "rules": [_rule(first[code]) for code in sorted(first)],
        "issues": [_issue(row) for row in found],
    }
    stream.write(json.dumps(document, indent=2) + "\n")


def _rule(finding: Finding) -> dict[str, Any]:
    text = rule_text(finding)
    impact = {"softwareQuality": "MAINTAINABILITY", "severity": IMPACTS[text.severity]}
    return {
        "id": text.code,
        "name": text.name,
        "description": text.description,
        "engineId": "gpulint",
        "cleanCodeAttribute": "EFFICIENT",
        "type": "CODE_SMELL",
        "severity": SEVERITIES[text.severity],
        "impacts": [impact],
    }


def _issue(row: Row) -> dict[str, Any]:
    message = one_line(row.finding.message)
    return {
        "ruleId": row.finding.code,
        "primaryLocation": _location(row, message, row.at(Unit.UTF16)),
        "secondaryLocations": [
            _location(row, one_line(said), region)
            for said, region in row.related(Unit.UTF16)
        ],
    }


def _location(row: Row, message: str, region: Region) -> dict[str, Any]:
    return {"message": message, "filePath": row.path, "textRange": _range(region)}


def _range(region: Region) -> dict[str, int]:
    """The columns are left out, which means the whole line, where there are none."""
    if region.empty:
        return {"startLine": region.start.row}
    return {
        "startLine": region.start.row,
        "endLine": region.end.row,
        "startColumn": region.start.column - 1,
        "endColumn": region.end.column - 1,
    }
