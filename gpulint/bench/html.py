"""The comparison as one HTML file with charts, which needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gpulint.bench.charts import bars, by_rule_chart, curves, distribution
from gpulint.bench.compare import Comparison, Side
from gpulint.bench.rows import INTERVAL, About, by_rule, conclusions, judgement, rows

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #d9d9e0;
  --page: #ffffff; --before: #8b8d98; --after: #0b7f5f; }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --soft: #a2a7b0;
  --line: #3a3f45; --page: #16181b; --before: #9aa0aa; --after: #3ecf9f; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--page); max-width: 62rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; margin: 0 0 .3rem; }
h2 { font-size: 1rem; margin: 0; }
p { color: var(--soft); margin: .2rem 0; overflow-wrap: anywhere; }
.verdict { color: var(--ink); border-left: 4px solid var(--before);
  padding: .4rem .8rem; margin: .8rem 0; }
.faster { border-color: var(--after); } .failed { border-color: #d13415; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: .8rem 0; }
th, td { text-align: right; padding: .25rem 0 .25rem .75rem; vertical-align: top;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th { overflow-wrap: anywhere; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td:not(:first-child, .words td) { white-space: nowrap; }
td.part { color: var(--soft); padding-left: 1rem; }
.words td:last-child { text-align: left; }
.charts { display: grid; gap: 1.2rem 2rem; margin: 1.2rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
figure { margin: 0; } svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
svg .name { fill: var(--ink); }
.before { color: var(--before); } .after { color: var(--after); }
.key span { margin-right: 1rem; }
@media (max-width: 40rem) { body { font-size: 14px; margin: 1rem auto; }
  table { font-size: 13px; } th, td { padding-left: .5rem; } }
"""


def page(comparison: Comparison, about: About) -> str:
    """The whole page."""
    title = escape(about.title)
    facts = filter(None, (about.fixes, about.machine, about.setup))
    lines = [*about.warnings, *conclusions(comparison)[:-1]]
    kind = "failed" if about.failures else comparison.verdict.partition(" ")[0]
    said = "<br>".join(map(escape, (judgement(comparison), *about.failures)))
    body = [
        f"<h1>{title}</h1>",
        *(f"<p>{escape(fact)}</p>" for fact in facts),
        f'<p class="verdict {kind}">{said}</p>',
        _tables(comparison),
        *(f"<p>{escape(line)}</p>" for line in lines),
        '<div class="charts">',
        *_charts(comparison),
        "</div>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _charts(comparison: Comparison) -> list[str]:
    sides = comparison.sides
    key = _key(*sides)
    unit = f"{comparison.unit}: median, 95 % interval, each run"
    found = [_figure(unit, "", bars(sides, comparison.unit))]
    found.append(_figure("How long steps take", key, distribution(sides)))
    if any(side.runs[0].losses for side in sides):
        found.append(_figure("Loss, in the first run of each", key, curves(sides)))
    if comparison.alone:
        chart = by_rule_chart(comparison)
        found.append(
            _figure("Speed with all fixes, and with each rule's alone", "", chart)
        )
    return found


def _figure(title: str, key: str, chart: str) -> str:
    return f"<figure><h2>{escape(title)}</h2>{key}{chart}</figure>"


def _tables(comparison: Comparison) -> str:
    first, second = comparison.sides
    names: tuple[str, ...] = ("", first.label, second.label, "change")
    found = _table(names, rows(comparison))
    if comparison.alone:
        names = ("by rule", comparison.unit, "change", INTERVAL, "")
        found += _table(names, by_rule(comparison), "words")
    return found


def _table(names: Iterable[str], lines: Iterable[Sequence[str]], kind: str = "") -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, line))}</tr>" for line in lines)
    table = f'<table class="{kind}"><tr>{head}</tr>{body}</table>'
    return f'<div class="scroll">{table}</div>'


def _cell(text: str) -> str:
    kind = ' class="part"' if text.startswith(" ") else ""
    return f"<td{kind}>{escape(text.strip())}</td>"


def _key(first: Side, second: Side) -> str:
    return (
        '<p class="key">'
        f'<span class="before">■ {escape(first.label)}</span> '
        f'<span class="after">■ {escape(second.label)}</span></p>'
    )
