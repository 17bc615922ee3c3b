"""Charts of a comparison, as SVG in the colours of the page around them.

A chart is as wide as a phone: a page shows them side by side where there is room.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from gpulint.bench.compare import Comparison, Side
from gpulint.bench.rows import ALONE, number
from gpulint.bench.statistics import Interval, quantile

WIDTH, HEIGHT = 400, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 8, 36  # room for the axes
BINS = 30
ROW = 26  # of a bar or a rule
LABEL = 44  # characters above a bar
COLORS = ("var(--before)", "var(--after)")
RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10)
APART = 34  # pixels between two labels of an axis


def bars(sides: Sequence[Side], unit: str) -> str:
    """A bar for each median, its interval, and a dot for each run."""
    height = TOP + len(sides) * 3 * ROW + BOTTOM
    most = max(max(*side.rates, side.rate.high) for side in sides)
    frame = Frame((0, most * 1.05), (0, 1), left=RIGHT, height=height)
    parts = [frame.below(unit)]
    for i, (side, color) in enumerate(zip(sides, COLORS, strict=True)):
        top = TOP + i * 3 * ROW
        label = f"{_short(side.label)}: {number(side.rate.value)}"
        parts.append(_text(RIGHT, top + 16, label, "start", "name"))
        end = frame.x(side.rate.value)
        parts.append(
            f'<rect x="{RIGHT}" y="{top + ROW - 2}" width="{end - RIGHT:.1f}" '
            f'height="{ROW}" fill="{color}" fill-opacity=".35"/>'
        )
        parts.append(_whisker(frame, side.rate, top + ROW + 11, color))
        parts += [
            f'<circle cx="{frame.x(rate):.1f}" cy="{top + 2 * ROW + 6}" '
            f'r="3" fill="{color}" fill-opacity=".7"/>'
            for rate in side.rates
        ]
    medians = " and ".join(number(side.rate.value) for side in sides)
    return _svg(parts, f"median {unit}: {medians}", height)


def distribution(sides: Sequence[Side]) -> str:
    """How many steps took how long; the slowest hundredth is left out of sight."""
    taken = [
        sorted(1000 * s for run in side.runs for s in run.seconds) for side in sides
    ]
    low = min(times[0] for times in taken)
    high = max(quantile(times, 0.99) for times in taken)
    wide = (high - low) / BINS or 1.0
    shares = [_histogram(times, low, wide) for times in taken]
    most = 1.05 * max(map(max, shares))
    frame = Frame((low, low + BINS * wide), (0, most))
    parts = [frame.below("ms a step"), frame.beside(" %")]
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
    frame = Frame((0, max(longest - 1, 1)), (low - margin, high + margin))
    parts = [frame.below("calls of backward"), frame.beside()]
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


def by_rule_chart(comparison: Comparison) -> str:
    """The speed with each rule's fixes alone, and with all, against the first."""
    lines = [(comparison.sides[1].label, comparison.ratio)]
    lines += [(its.sides[1].label, its.ratio) for its in comparison.alone]
    height = TOP + len(lines) * ROW + BOTTOM
    values = [its.value for _, its in lines]
    # Equal steps are equal ratios. A wide interval ends at the edge, with an arrow.
    low = min(*values, 0.95, *(max(i.low, i.value / 2) for _, i in lines)) / 1.02
    high = max(*values, 1.05, *(min(i.high, i.value * 2) for _, i in lines)) * 1.02
    left = LEFT + 56
    frame = Frame((math.log(low), math.log(high)), (0, 1), left=left, height=height)
    parts = [frame.below("times as fast", _ratios(frame, low, high))]
    one = frame.x(0)
    bottom = height - BOTTOM
    parts.append(f'<path d="M{one:.1f} {TOP}V{bottom}" stroke="var(--soft)"/>')
    for i, (label, its) in enumerate(lines):
        y = TOP + i * ROW + ROW // 2
        name = label.removesuffix(ALONE)
        parts.append(_text(left - 8, y + 4, _short(name, 14), "end", "name"))
        ends = Interval(its.value, max(its.low, low), min(its.high, high))
        logs = Interval(*map(math.log, (ends.value, ends.low, ends.high)))
        parts.append(
            _whisker(frame, logs, y, COLORS[1], its.low < low, its.high > high)
        )
        x = frame.x(logs.value)
        parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{COLORS[1]}"/>')
    return _svg(parts, "speed with the fixes of single rules", height)


class Frame:
    """Where values lie on a chart: two ranges, and the rectangle for them."""

    def __init__(
        self,
        across: tuple[float, float],
        up: tuple[float, float],
        left: int = LEFT,
        height: int = HEIGHT,
    ) -> None:
        self.across, self.up = across, up
        self.left, self.bottom = left, height - BOTTOM

    def x(self, value: float) -> float:
        """Pixels from the left."""
        low, high = self.across
        share = (value - low) / (high - low)
        return self.left + share * (WIDTH - self.left - RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        low, high = self.up
        share = (value - low) / (high - low)
        return self.bottom - share * (self.bottom - TOP)

    def below(
        self, title: str, ticks: Sequence[tuple[float, str]] | None = None
    ) -> str:
        """Round numbers under the chart, with lines up, and what they count."""
        if ticks is None:
            ticks = [(v, _plain(v)) for v in steps_between(*self.across)]
        found = _text((self.left + WIDTH - RIGHT) / 2, self.bottom + 31, title)
        for value, label in ticks:
            x = self.x(value)
            line = f"M{x:.1f} {TOP}V{self.bottom}"
            found += f'<path d="{line}" stroke="var(--line)"/>'
            found += _text(min(x, WIDTH - RIGHT - 4), self.bottom + 15, label)
        return found

    def beside(self, unit: str = "") -> str:
        """Round numbers left of the chart, with lines across."""
        found = ""
        for value in steps_between(*self.up):
            y = self.y(value)
            line = f"M{self.left} {y:.1f}H{WIDTH - RIGHT}"
            found += f'<path d="{line}" stroke="var(--line)"/>'
            found += _text(self.left - 6, y + 4, f"{_plain(value)}{unit}", "end")
        return found


def steps_between(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, `about` as many as wanted."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.ceil(low / step), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _ratios(frame: Frame, low: float, high: float) -> list[tuple[float, str]]:
    """The logarithms of round ratios, 1 first, and then those that have room."""
    known = [r for r in RATIOS if low <= r <= high]
    taken: list[float] = []
    for ratio in sorted(known, key=lambda r: (r != 1, len(f"{r:g}"))):
        at = frame.x(math.log(ratio))
        if all(abs(at - frame.x(math.log(other))) >= APART for other in taken):
            taken.append(ratio)
    return [(math.log(ratio), f"{ratio:g}x") for ratio in taken]


def _whisker(
    frame: Frame,
    its: Interval,
    y: float,
    color: str,
    more_left: bool = False,
    more_right: bool = False,
) -> str:
    """An interval as a line; its ends, or arrows where it goes on."""
    low, high = frame.x(its.low), frame.x(its.high)
    path = f"M{low:.1f} {y:.1f}H{high:.1f}"
    ends = ((low, more_left, 6), (high, more_right, -6))
    for x, more, inward in ends:
        if more:
            path += f"M{x + inward:.1f} {y - 5:.1f}L{x:.1f} {y:.1f}"
            path += f"L{x + inward:.1f} {y + 5:.1f}"
        else:
            path += f"M{x:.1f} {y - 6:.1f}v12"
    return f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2"/>'


def _histogram(times: Sequence[float], low: float, wide: float) -> list[float]:
    """Percent of the steps in each bin; what is slower than all bins counts too."""
    counts = [0] * BINS
    for time in times:
        place = int((time - low) / wide)
        if place <= BINS:
            counts[min(place, BINS - 1)] += 1
    return [100 * count / len(times) for count in counts]


def _text(x: float, y: float, text: str, anchor: str = "middle", kind: str = "") -> str:
    known = f' class="{kind}"' if kind else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {place}{known}>{escape(text)}</text>"


def _short(label: str, most: int = LABEL) -> str:
    """The end of a long name tells more than its start."""
    return label if len(label) <= most else f"…{label[1 - most :]}"


def _svg(parts: Sequence[str], label: str, height: int = HEIGHT) -> str:
    inner = "\n".join(parts)
    about = f'role="img" aria-label="{escape(label)}"'
    return f'<svg viewBox="0 0 {WIDTH} {height}" {about}>\n{inner}\n</svg>'


def _plain(value: float) -> str:
    return f"{value:,.6g}".replace(",", " ")
