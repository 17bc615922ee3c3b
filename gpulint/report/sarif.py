"""SARIF 2.1.0, as GitHub code scanning and other viewers take it.

Schema: oasis-tcs/sarif-spec, sarif-2.1/schema (errata 01). What GitHub demands beyond
it: docs.github.com, "SARIF support for code scanning" and "SARIF results exceed one or
more limits". Columns are code points, `columnKind` says so. Regions lie on one line,
as GitHub annotates only those whose every line is in the diff; what they stand for in
whole is a related location. GitHub passes `fixes` by; other viewers apply them. It
passes `suppressions` by as well and opens alerts for what is suppressed
(github/codeql-action#1230), so a run in GitHub Actions leaves those findings out.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

from gpulint import __version__
from gpulint.finding import Effect, Fix, Place, Severity
from gpulint.report import Report
from gpulint.report.line_hashes import line_hashes
from gpulint.report.places import Paths, Region, Row, raw_region, raw_text, rows
from gpulint.report.rule_texts import RuleText, rule_text
from gpulint.source import Source
from gpulint.text_edits import complete

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "SRCROOT"
MAX_RESULTS = 25_000
MAX_BYTES = 10_000_000  # compressed
MAX_TEXT = 1024
MAX_RELATED = 100
PROBLEMS = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "recommendation",
}
SUPPRESSIONS = {"inline": "inSource", "baseline": "external"}


def write(report: Report, stream: TextIO) -> None:
    """The log; the worst findings only where GitHub would refuse all of them."""
    on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    found = list(rows(report, suppressed=not on_github))
    count = min(len(found), MAX_RESULTS)
    text = _text(report, found, count)
    while count > 1 and _compressed(text) > MAX_BYTES:
        count = count * 4 // 5
        text = _text(report, found, count)
    if count < len(found):
        report.warn(f"sarif: {_left_out(count, len(found))}")
    stream.write(f"{text}\n")


def _text(report: Report, found: Sequence[Row], count: int) -> str:
    log = Log(report, worst(found, count), len(found))
    return json.dumps(log.document, indent=1)


def worst(found: Sequence[Row], count: int) -> list[Row]:
    """The worst of the findings, in their order."""
    ranked = sorted(
        range(len(found)),
        key=lambda i: (
            found[i].finding.suppressed is not None,
            -found[i].finding.severity.rank,
            i,
        ),
    )
    return [found[i] for i in sorted(ranked[:count])]


def _compressed(text: str) -> int:
    if len(text) <= MAX_BYTES:
        return len(text)
    return len(zlib.compress(text.encode("ascii")))


def _left_out(count: int, total: int) -> str:
    return (
        f"GitHub takes no more than {MAX_RESULTS} results and {MAX_BYTES} bytes; the "
        f"worst {count} of {total} findings are written"
    )


class Log:
    """One run as a SARIF log."""

    def __init__(self, report: Report, found: Sequence[Row], total: int) -> None:
        self.found = found
        self.total = total
        self._paths = Paths(report.folder)
        self._hashes: dict[Path, list[str]] = {}

    @cached_property
    def rules(self) -> dict[str, RuleText]:
        """The rules of the findings by their codes."""
        first = {row.finding.code: row.finding for row in reversed(self.found)}
        return {code: rule_text(first[code], MAX_TEXT) for code in sorted(first)}

    @property
    def document(self) -> dict[str, Any]:
        """The whole log."""
        codes = list(self.rules)
        results = [self._result(row, codes) for row in self.found]
        run: dict[str, Any] = {
            "tool": {
                "driver": {
                    "name": "gpulint",
                    "semanticVersion": __version__,
                    "rules": [_rule(text) for text in self.rules.values()],
                }
            },
            "automationDetails": {"id": "gpulint/"},
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": {
                ROOT: {"description": {"text": "The root of the repository."}}
            },
            "results": results,
        }
        if len(self.found) < self.total:
            said = {"text": _left_out(len(self.found), self.total)}
            run["invocations"] = [
                {
                    "executionSuccessful": True,
                    "toolExecutionNotifications": [
                        {"level": "warning", "message": said}
                    ],
                }
            ]
        return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}

    def _result(self, row: Row, codes: list[str]) -> dict[str, Any]:
        finding, source = row.finding, row.entry.source
        result: dict[str, Any] = {
            "ruleId": finding.code,
            "ruleIndex": codes.index(finding.code),
            "level": finding.severity.value,
            "message": {"text": _message(row)},
            "locations": [self._location(finding.path, row.region)],
            "partialFingerprints": self._fingerprints(row),
            "suppressions": _suppressions(row),
            "properties": _properties(row),
        }
        related = list(self._related(row))
        if related:
            result["relatedLocations"] = related
        # The edits of a notebook's cells are none of its JSON.
        if finding.fix is not None and source is not None and source.file is source:
            result["fixes"] = [self._fix(finding.fix, source)]
        return result

    def _related(self, row: Row) -> Iterator[dict[str, Any]]:
        """The places that the finding names, and its own where that has more lines."""
        finding, source = row.finding, row.entry.source
        whole = raw_region(finding.place, source)
        places: list[tuple[Place, str, Source | None]] = []
        if whole.end.row > whole.start.row:
            places.append((finding.place, "All of it", source))
        for place in finding.related:
            its = source if place.path == finding.path else None
            places.append((place, place.message, its))
        for number, (place, message, its) in enumerate(places[:MAX_RELATED], 1):
            location = self._location(place.path, raw_region(place, its))
            said = {"message": {"text": _plain(message)}} if message else {}
            yield {"id": number, **location, **said}

    def _fingerprints(self, row: Row) -> dict[str, str]:
        source, path = row.entry.source, row.finding.path
        own = {"gpulint/v1": row.finding.fingerprint}
        if source is None:
            return own
        if path not in self._hashes:
            self._hashes[path] = line_hashes(raw_text(source))
        line_hash = self._hashes[path][row.region.start.row - 1]
        return {"primaryLocationLineHash": line_hash, **own}

    def _fix(self, fix: Fix, source: Source) -> dict[str, Any]:
        replacements = []
        for edit in sorted(complete(source, fix)):
            start, end = source.position(edit.start), source.position(edit.end)
            deleted = raw_region(Place(source.path, start, end), source)
            replacements.append(
                {
                    "deletedRegion": _region(deleted),
                    "insertedContent": {"text": edit.content},
                }
            )
        where = self._artifact(source.path)
        change = {"artifactLocation": where, "replacements": replacements}
        effect = "" if fix.effect is Effect.EXACT else f" ({fix.effect.value})"
        return {
            "description": {"text": _plain(f"{fix.title}{effect}")},
            "artifactChanges": [change],
        }

    def _location(self, path: Path, region: Region) -> dict[str, Any]:
        return {
            "physicalLocation": {
                "artifactLocation": self._artifact(path),
                "region": _region(region),
            }
        }

    def _artifact(self, path: Path) -> dict[str, str]:
        from urllib.parse import quote_from_bytes

        name = self._paths.of(path)
        uri = quote_from_bytes(os.fsencode(name), safe="/")
        if Path(name).is_absolute():
            return {"uri": path.as_uri()}
        return {"uri": uri, "uriBaseId": ROOT}


def _rule(text: RuleText) -> dict[str, Any]:
    framework = [text.framework] if text.framework != "any" else []
    return {
        "id": text.code,
        "name": text.name,
        "shortDescription": {"text": text.summary},
        "fullDescription": {"text": text.description},
        "help": {"text": text.documentation, "markdown": text.documentation},
        "defaultConfiguration": {"level": text.severity.value},
        "properties": {
            "precision": text.confidence.value,
            "problem.severity": PROBLEMS[text.severity],
            "tags": ["performance", "gpu", *framework],
        },
    }


def _suppressions(row: Row) -> list[dict[str, str]]:
    """All results have the list, as the standard wants them to agree in that."""
    how = row.finding.suppressed
    return [] if how is None else [{"kind": SUPPRESSIONS[how]}]


def _properties(row: Row) -> dict[str, Any]:
    finding = row.finding
    properties: dict[str, Any] = {
        "effect": finding.effect.value,
        "confidence": finding.confidence.value,
        "fix": finding.fix is not None,
    }
    if finding.fix_withheld:
        properties["fixWithheld"] = finding.fix_withheld
    return properties


def _region(region: Region) -> dict[str, int]:
    return {
        "startLine": region.start.row,
        "startColumn": region.start.column,
        "endLine": region.end.row,
        "endColumn": region.end.column,
    }


def _message(row: Row) -> str:
    """The fact, a sentence of its own (GitHub's title), and what the fix does."""
    fact = row.finding.message.strip().rstrip(".")
    text = f"{fact[:1].upper()}{fact[1:]}."
    if row.finding.fix is not None:
        text += f" {row.finding.fix.title.rstrip('.')}."
    return _plain(text)


def _plain(text: str) -> str:
    """Text that holds no link: SARIF reads `[words](3)` as one."""
    return text.replace("](", "] (")
