"""A Code Quality report for GitLab, the part of CodeClimate's format that it reads.

docs.gitlab.com, "Code Quality", "Code Quality report format": the path is that from the
root of the repository, without `./`; a fingerprint stands for one finding of the whole
report. Lines only: `location.lines` is what all versions of GitLab read.
"""

from __future__ import annotations

import json
from typing import Any, TextIO

from gpulint.finding import Severity
from gpulint.report import Report, one_line
from gpulint.report.places import Row, rows

SEVERITIES = {
    Severity.ERROR: "major",
    Severity.WARNING: "minor",
    Severity.NOTE: "info",
}


def write(report: Report, stream: TextIO) -> None:
    """The array."""
    records = [_record(row) for row in rows(report)]
    stream.write(json.dumps(records, indent=2) + "\n")


def _record(row: Row) -> dict[str, Any]:
    finding, region = row.finding, row.region
    return {
        "description": f"{finding.code}: {one_line(finding.message)}",
        "check_name": finding.code,
        "fingerprint": row.identity,
        "severity": SEVERITIES[finding.severity],
        "location": {
            "path": row.path,
            "lines": {"begin": region.start.row, "end": region.end.row},
        },
    }
