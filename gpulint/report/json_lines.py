"""One finding a line, each a JSON object as in the array; suppressed ones too."""

from __future__ import annotations

import json
from typing import TextIO

from gpulint.report import Report
from gpulint.report.json_array import record


def write(report: Report, stream: TextIO) -> None:
    """The lines; nothing where nothing is found."""
    for entry in report.entries:
        stream.writelines(
            f"{json.dumps(record(finding, entry.source))}\n"
            for finding in entry.findings
        )
