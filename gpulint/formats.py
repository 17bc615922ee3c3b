"""The formats of `gpulint check`: each one's name, and what writes it."""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """Functions, as `module:name`, that take a report and a stream.

    `statistics` writes how often each rule fires; None: the format has no place for it.
    """

    findings: str
    statistics: str | None = None


_COUNTS = "gpulint.report.statistics"
FORMATS = {
    "full": Format("gpulint.report.full:write", f"{_COUNTS}:write"),
    "concise": Format("gpulint.report.concise:write", f"{_COUNTS}:write"),
    "grouped": Format("gpulint.report.grouped:write", f"{_COUNTS}:write"),
    "json": Format("gpulint.report.json_array:write", f"{_COUNTS}:write_json"),
    "json-lines": Format(
        "gpulint.report.json_lines:write", f"{_COUNTS}:write_json_lines"
    ),
    "sarif": Format("gpulint.report.sarif:write"),
    "github": Format("gpulint.report.github:write"),
    "gitlab": Format("gpulint.report.gitlab:write"),
    "junit": Format("gpulint.report.junit:write"),
    "azure": Format("gpulint.report.azure:write"),
    "rdjson": Format("gpulint.report.rdjson:write"),
    "sonar": Format("gpulint.report.sonar:write"),
    "html": Format("gpulint.report.html:write"),
}
