"""The findings as one page that needs nothing from elsewhere, and runs no script."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from html import escape
from typing import TextIO

from gpulint import __version__
from gpulint.finding import Finding, Severity
from gpulint.report import LEVELS, Entry, Report, count, in_cell, one_line, total
from gpulint.report.html_docs import inline, markdown
from gpulint.report.html_frame import diff, frame
from gpulint.report.html_style import STYLE
from gpulint.report.places import cell_of
from gpulint.report.rule_texts import rule_text
from gpulint.source import Source

POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write(report: Report, stream: TextIO) -> None:
    """The page."""
    stream.writelines(f"{part}\n" for part in _page(report) if part)


def _page(report: Report) -> Iterator[str]:
    files = [entry for entry in report.entries if entry.shown]
    found = [(entry, finding) for entry in files for finding in entry.shown]
    title = f"gpulint · {escape(report.folder.name or str(report.folder))}"
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield f"<title>{title}</title><style>{STYLE}</style></head><body>"
    yield f"<h1>{title}</h1>"
    yield from _summary(report, [finding for _, finding in found])
    if found:
        yield f'<div class="tables">{_by_rule(found)}{_by_file(report, files)}</div>'
        yield "<h2>Findings</h2>"
        for number, entry in enumerate(files):
            yield f'<h3 id="file-{number}">{_name(report, entry)}</h3>'
            for finding in entry.shown:
                yield from _finding(report, entry, finding)
        yield "<h2>Rules</h2>"
        yield from _rules(finding for _, finding in found)
    yield f'<p class="soft">gpulint {__version__}</p></body></html>'


def _summary(report: Report, found: list[Finding]) -> Iterator[str]:
    checked = count(len(report.entries), "file")
    yield f'<p class="soft">{total(found)}; {checked} checked</p>'
    counts = Counter(finding.severity for finding in found)
    chips = [_chip(level, counts[level]) for level in LEVELS if counts[level]]
    fixable = Counter(
        entry.marker(finding).strip()
        for entry in report.entries
        for finding in entry.shown
    )
    if fixable["[*]"]:
        chips.append(f"<li>{fixable['[*]']} fixable with <code>gpulint fix</code></li>")
    if fixable["[**]"]:
        chips.append(f"<li>{fixable['[**]']} with <code>--allow</code></li>")
    all_of_them = sum(len(entry.findings) for entry in report.entries)
    if all_of_them > len(found):
        chips.append(f"<li>{all_of_them - len(found)} suppressed</li>")
    yield f'<ul class="chips">{"".join(chips)}</ul>'


def _chip(severity: Severity, number: int) -> str:
    return f'<li class="{severity.value}">{count(number, severity.value)}</li>'


def _by_rule(found: list[tuple[Entry, Finding]]) -> str:
    counts = Counter(finding.code for _, finding in found)
    names = {finding.code: finding.name for _, finding in found}
    lines = [
        f'<tr><td><a href="#{code}">{code}</a> {escape(names[code])}</td>'
        f'<td class="n">{counts[code]}</td></tr>'
        for code in sorted(counts, key=lambda code: (-counts[code], code))
    ]
    return _table("By rule", "Rule", lines)


def _by_file(report: Report, files: list[Entry]) -> str:
    numbered = sorted(enumerate(files), key=lambda item: -len(item[1].shown))
    lines = [
        f'<tr><td><a href="#file-{number}">{_name(report, entry)}</a></td>'
        f'<td class="n">{len(entry.shown)}</td></tr>'
        for number, entry in numbered
    ]
    return _table("By file", "File", lines)


def _table(title: str, head: str, lines: list[str]) -> str:
    return (
        f"<section><h2>{title}</h2><table><tr><th>{head}</th>"
        f'<th class="n">findings</th></tr>{"".join(lines)}</table></section>'
    )


def _name(report: Report, entry: Entry) -> str:
    """With places to break, as narrow screens have to."""
    name = escape(one_line(report.path(entry.shown[0].path)))
    return name.replace("/", "/<wbr>").replace("_", "_<wbr>")


def _finding(report: Report, entry: Entry, finding: Finding) -> Iterator[str]:
    severity, source = finding.severity.value, entry.source
    yield "<article>"
    yield (
        f'<header><span class="{severity}">{severity}</span> '
        f'<a href="#{finding.code}">{finding.code}</a> '
        f"{inline(one_line(finding.message))}</header>"
    )
    place = in_cell(finding.place.start, source)
    effect = _effect(entry, finding)
    confidence = finding.confidence.value
    yield (
        f'<p class="meta">{escape(finding.name)} · {place} · {effect}'
        f"confidence: {confidence}</p>"
    )
    if source is not None:
        yield frame(source, finding)
    why, _, by_hand = (finding.fix_withheld or "").partition("\n")
    for fact in _facts(report, finding, source, why):
        yield f'<p class="meta">{fact}</p>'
    if by_hand:
        yield f'<p class="meta">by hand:</p><pre class="doc">{escape(by_hand)}</pre>'
    if finding.fix is not None and source is not None:
        yield f"<details open><summary>Fix: {inline(finding.fix.title)}</summary>"
        yield f"{diff(source, finding.fix)}</details>"
    yield "</article>"


def _effect(entry: Entry, finding: Finding) -> str:
    if finding.fix is None:
        return ""
    effect = finding.fix.effect
    need = "" if effect in entry.allow else f" (needs --allow {effect.value})"
    return f"effect of the fix: {effect.value}{need} · "


def _facts(
    report: Report, finding: Finding, source: Source | None, why: str
) -> Iterator[str]:
    for place in finding.related:
        its = source if place.path == finding.path else None
        if its is None or cell_of(its, place) != cell_of(its, finding.place):
            at = report.place(place, its)
            said = f": {inline(one_line(place.message))}" if place.message else ""
            yield f"see {escape(one_line(at))}{said}"
    for fact in finding.evidence:
        its = source if fact.path == finding.path else None
        at = report.row(fact.path, fact.row, its)
        yield f"because: {inline(one_line(fact.note))} ({escape(one_line(at))})"
    if why:
        yield f"no fix: {inline(one_line(why))}"


def _rules(found: Iterable[Finding]) -> Iterator[str]:
    first: dict[str, Finding] = {}
    counts: dict[str, int] = defaultdict(int)
    for finding in found:
        first.setdefault(finding.code, finding)
        counts[finding.code] += 1
    for code in sorted(first):
        text = rule_text(first[code])
        yield f'<section class="rule"><h3 id="{code}">{code} {escape(text.name)}</h3>'
        yield f"{markdown(text.documentation)}</section>"
