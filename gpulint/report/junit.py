"""JUnit's XML for Jenkins and other servers of tests: a suite a file, a case a finding.

The form of junit-10.xsd of jenkinsci/xunit-plugin. A finding that fails the build is a
failure; one below `--fail-level` passes, with its text as output; a suppressed one is
skipped. A case is called after the finding's fingerprint, so that it keeps its history
when lines move.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TextIO
from xml.etree import ElementTree

from gpulint.report import Report, one_line
from gpulint.report.places import Row, rows

# XML 1.0 has no way to write other characters, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(report: Report, stream: TextIO) -> None:
    """The document; one case that passes where nothing is found."""
    root = ElementTree.Element("testsuites", name="gpulint")
    grouped = itertools.groupby(rows(report, suppressed=True), lambda row: row.path)
    for path, its in grouped:
        suite = ElementTree.SubElement(root, "testsuite", name=_valid(path))
        suite.extend(_cases(its))
    if not len(root):
        suite = ElementTree.SubElement(root, "testsuite", name="gpulint")
        ElementTree.SubElement(
            suite, "testcase", name="nothing found", classname="gpulint"
        )
    for element in (root, *root):
        for name, tag in (("tests", "testcase"), ("failures", "failure")):
            element.set(name, str(sum(1 for _ in element.iter(tag))))
        element.set("errors", "0")
        element.set("skipped", str(sum(1 for _ in element.iter("skipped"))))
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    stream.write(f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n')


def _cases(found: Iterator[Row]) -> Iterator[ElementTree.Element]:
    for row in found:
        finding, start = row.finding, row.region.start
        case = ElementTree.Element(
            "testcase",
            name=f"{finding.code} {finding.name} {row.identity[:8]}",
            classname=_valid(row.path),
            file=_valid(row.path),
            line=str(start.row),
        )
        message = _valid(one_line(finding.message))
        where = f"{row.path}:{start.row}:{start.column}"
        text = f"{_valid(where)}: {finding.code} {message}"
        severity = finding.severity.value
        if finding.suppressed is not None:
            why = f"suppressed: {finding.suppressed}"
            ElementTree.SubElement(case, "skipped", message=why).text = text
        elif row.entry.fails(finding):
            failure = ElementTree.SubElement(
                case, "failure", message=message, type=severity
            )
            failure.text = text
        else:
            output = ElementTree.SubElement(case, "system-out")
            output.text = f"{severity}: {text}"
        yield case


def _valid(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
