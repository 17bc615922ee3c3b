"""The comparison as one HTML file with charts, which needs nothing from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from gpulint.bench.compare import Comparison, Side
from gpulint.bench.rows import About, conclusions, number, rows
from gpulint.bench.statistics import quantile

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 34  # room for the axes
BINS = 30
COLORS = ("var(--before)", "var(--after)")
STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #d9d9e0;
  --page: #ffffff; --before: #8b8d98; --after: #0b7f5f; }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --soft: #a2a7b0;
  --line: #3a3f45; --page: #16181b; --before: #9aa0aa; --after: #3ecf9f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--page); max-width: 44rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; } h2 { font-size: 1rem; }
p, .key { color: var(--soft); margin: .2rem 0; } svg { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.before { color: var(--before); } .after { color: var(--after); }
"""


def page(comparison: Comparison, about: About) -> str:
    """The whole page."""
    first, second = comparison.sides
    title = escape(about.title)
    facts = filter(None, (about.fixes, about.machine, about.setup))
    lines = [*conclusions(comparison), *about.warnings]
    body = [
        f"<h1>{title}</h1>",
        *(f"<p>{escape(fact)}</p>" for fact in facts),
        _table(comparison),
        *(f"<p>{escape(line)}</p>" for line in lines),
        _key(first, second),
        f"<h2>{comparison.unit}: median, 95 % interval, and each run</h2>",
        bars(comparison.sides),
        "<h2>Time of a step, share of all steps</h2>",
        distribution(comparison.sides),
    ]
    if any(side.runs[0].losses for side in comparison.sides):
        body += ["<h2>Loss, first run of each</h2>", curves(comparison.sides)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def bars(sides: Sequence[Side]) -> str:
    """A bar for each median, its interval, and a dot for each run."""
    most = max(max(*side.rates, side.rate.high) for side in sides)
    frame = Frame(0, most * 1.05, 0, len(sides))
    parts = [frame.ticks_below()]
    for i, (side, color) in enumerate(zip(sides, COLORS, strict=True)):
        row = len(sides) - i - 0.5
        y, thick = frame.y(row), frame.y(0) - frame.y(0.5)
        end = frame.x(side.rate.value)
        parts.append(
            f'<rect x="{LEFT}" y="{y - thick / 2:.1f}" width="{end - LEFT:.1f}" '
            f'height="{thick:.1f}" fill="{color}" fill-opacity=".35"/>'
        )
        low, high = frame.x(side.rate.low), frame.x(side.rate.high)
        parts.append(
            f'<path d="M{low:.1f} {y - 8:.1f}v16M{low:.1f} {y:.1f}H{high:.1f}'
            f'M{high:.1f} {y - 8:.1f}v16" stroke="{color}" stroke-width="2"/>'
        )
        parts += [
            f'<circle cx="{frame.x(rate):.1f}" cy="{y + thick / 2 - 6:.1f}" '
            f'r="3" fill="{color}"/>'
            for rate in side.rates
        ]
    return _svg(
        parts,
        f"median rates {number(sides[0].rate.value)} and {number(sides[1].rate.value)}",
    )


def distribution(sides: Sequence[Side]) -> str:
    """How many steps took how long; the slowest hundredth is left out of sight."""
    taken = [
        sorted(1000 * s for run in side.runs for s in run.seconds) for side in sides
    ]
    low = min(times[0] for times in taken)
    high = max(quantile(times, 0.99) for times in taken)
    wide = (high - low) / BINS or 1.0
    shares = [_histogram(times, low, wide) for times in taken]
    frame = Frame(low, low + BINS * wide, 0, 1.05 * max(map(max, shares)))
    parts = [frame.ticks_below(" ms"), frame.ticks_beside(" %")]
    for heights, color in zip(shares, COLORS, strict=True):
        path = f"M{frame.x(low):.1f} {frame.y(0):.1f}"
        for i, height in enumerate(heights):
            path += f"V{frame.y(height):.1f}H{frame.x(low + (i + 1) * wide):.1f}"
        path += f"V{frame.y(0):.1f}Z"
        parts.append(
            f'<path d="{path}" fill="{color}" fill-opacity=".3" stroke="{color}"/>'
        )
    return _svg(parts, "distribution of step times")


def curves(sides: Sequence[Side]) -> str:
    """The losses in their order; those that are no numbers leave gaps."""
    series = [side.runs[0].losses for side in sides]
    finite = [x for losses in series for x in losses if math.isfinite(x)] or [0.0]
    low, high = min(finite), max(finite)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    longest = max(len(losses) for losses in series)
    frame = Frame(0, max(longest - 1, 1), low - margin, high + margin)
    parts = [frame.ticks_below(), frame.ticks_beside()]
    dashes = ("", ' stroke-dasharray="5 3"')  # equal curves lie on each other
    for losses, color, dash in zip(series, COLORS, dashes, strict=True):
        path, pen = "", "M"
        for i, loss in enumerate(losses):
            if math.isfinite(loss):
                path += f"{pen}{frame.x(i):.1f} {frame.y(loss):.1f}"
            pen = "L" if math.isfinite(loss) else "M"
        parts.append(
            f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2"{dash}/>'
        )
    return _svg(parts, "losses of both")


class Frame:
    """Where values lie on a chart."""

    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self.left, self.right, self.low, self.high = left, right, low, high

    def x(self, value: float) -> float:
        """Pixels from the left."""
        share = (value - self.left) / (self.right - self.left)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def ticks_below(self, unit: str = "") -> str:
        """Round numbers under the chart, with lines up."""
        return "".join(
            f'<path d="M{self.x(v):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="var(--line)"/>'
            f'<text x="{self.x(v):.1f}" y="{HEIGHT - BOTTOM + 18}" '
            f'text-anchor="middle">{_plain(v)}{unit}</text>'
            for v in steps_between(self.left, self.right)
        )

    def ticks_beside(self, unit: str = "") -> str:
        """Round numbers left of the chart, with lines across."""
        return "".join(
            f'<path d="M{LEFT} {self.y(v):.1f}H{WIDTH - RIGHT}" stroke="var(--line)"/>'
            f'<text x="{LEFT - 6}" y="{self.y(v) + 4:.1f}" '
            f'text-anchor="end">{_plain(v)}{unit}</text>'
            for v in steps_between(self.low, self.high)
        )


def steps_between(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, `about` as many as wanted."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.ceil(low / step), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _histogram(times: Sequence[float], low: float, wide: float) -> list[float]:
    """Percent of the steps in each bin; what is slower than all bins counts too."""
    counts = [0] * BINS
    for time in times:
        place = int((time - low) / wide)
        if place <= BINS:
            counts[min(place, BINS - 1)] += 1
    return [100 * count / len(times) for count in counts]


def _table(comparison: Comparison) -> str:
    first, second = comparison.sides
    names = ("", first.label, second.label, "change")
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows(comparison))
    return f"<table><tr>{_cells(names, 'th')}</tr>{body}</table>"


def _key(first: Side, second: Side) -> str:
    return (
        '<p class="key">'
        f'<span class="before">■ {escape(first.label)}</span> '
        f'<span class="after">■ {escape(second.label)}</span></p>'
    )


def _cells(texts: Iterable[str], tag: str) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _svg(parts: Sequence[str], label: str) -> str:
    inner = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">\n'
        f"{inner}\n</svg>"
    )


def _plain(value: float) -> str:
    return f"{value:.6g}"
