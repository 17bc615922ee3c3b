"""The tables and plots of what the scenarios' benchmarks say, put into the README.

    python benchmarks/seeds_report.py

Reads benchmarks/results/seeds_*.json, which `seeds.py` has written, and draws a plot
beside each; reads framework_seeds.json of `seeds_frameworks.py`, and gpu_costs.json of
`gpu_costs.py`; writes what stands between the README's markers anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpulint.bench.charts import BOTTOM, HEIGHT, WIDTH, Frame
from gpulint.bench.rows import number

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
START, END = "<!-- seeds -->", "<!-- end of seeds -->"
FRAMEWORKS = "framework_seeds.json"
FRAMEWORKS_START = "<!-- seeds of frameworks -->"
FRAMEWORKS_END = "<!-- end of seeds of frameworks -->"
COSTS = "gpu_costs.json"
COSTS_START, COSTS_END = "<!-- costs on a GPU -->", "<!-- end of costs on a GPU -->"
COSTS_HEADINGS = ("", "a step", "ms with it", "ms without", "times as long")
NAMES = {"tensorflow": "TensorFlow", "keras": "Keras", "mindspore": "MindSpore"}
COLUMNS = {"original": "#8b8d98", "fixed": "#0b7f5f", "expert": "#3a6ea5"}
HEADINGS = (
    "",
    *COLUMNS,
    "fixed ÷ original",
    "fixed ÷ expert",
)
LOSS = "validation loss at the end"
FRAMEWORKS_LOSS = "training loss of the last pass"
PLACE = 80  # pixels for the names
KEY = 32  # pixels below the axis
BUSY = 0.5  # of the CPUs, before the first run
# Readable on the light and on the dark page of a README.
STYLE = "svg{--line:#8884}text{font:12px system-ui,sans-serif;fill:#7a7f87}"


def results(folder: Path = RESULTS) -> Iterator[tuple[Path, dict[str, Any]]]:
    """What was measured, a file a machine."""
    for path in sorted(folder.glob("seeds_*.json")):
        yield path, json.loads(path.read_text("utf-8"))


def section(found: Sequence[tuple[Path, dict[str, Any]]]) -> str:
    """What the README says of all machines."""
    return "\n\n".join(
        f"{about(result)}\n\n{table(result)}\n\n{plotted(path)}"
        for path, result in found
    )


def about(result: dict[str, Any]) -> str:
    """Where and how it was measured."""
    machine, versions = result["machine"], result["versions"]
    gpu = machine["gpu"] or "no GPU"
    where = f"{gpu}, {machine['cpus']} CPUs, torch {versions['torch']}"
    where += f" with {machine['threads']} thread{'s'[: machine['threads'] != 1]}"
    sizes = {"small": "small sizes", "seed": "the sizes of the write-ups"}
    return f"{where}, {sizes[result['size']]}: {method(result)}"


def about_frameworks(result: dict[str, Any]) -> str:
    """Where and with what releases it was measured."""
    releases = [
        f"{NAMES[name]} {version}"
        for its in result["scenarios"]
        for name, version in its["versions"].items()
        if name in NAMES
    ]
    devices = " and ".join(dict.fromkeys(i["device"] for i in result["scenarios"]))
    cpus = f"{result['machine']['cpus']} CPUs"
    where = f"{cpus}, trained on the {devices}, {', '.join(dict.fromkeys(releases))}"
    return f"{where}: {method(result)}"


def method(result: dict[str, Any]) -> str:
    """What the numbers of a table are, and what has disturbed them."""
    machine = result["machine"]
    text = (
        f"samples a second, median of {result['repeats']} runs of each in turns; "
        "ratios with their 95 % interval."
    )
    if machine["load_before"] > BUSY * machine["cpus"]:
        text += f" The machine was busy with other work: load {machine['load_before']}."
    return text


def table(result: dict[str, Any], loss: str = LOSS) -> str:
    """A line a scenario; `loss` is what its last losses are."""
    rule = "|".join(["---", *["---:"] * len(HEADINGS)])
    lines = [f"| {' | '.join((*HEADINGS, loss))} |", f"|{rule}|"]
    for its in result["scenarios"]:
        cells = [its["name"]]
        cells += [_rate(its["columns"][column]) for column in COLUMNS]
        cells += [_times(its[r]) for r in ("fixed_to_original", "fixed_to_expert")]
        cells.append(" / ".join(_loss(its["columns"][column]) for column in COLUMNS))
        lines.append(f"| {' | '.join(cells)} |")
    for its in result["scenarios"]:
        if "augmentation" in its:
            lines += ["", _augmentation(its["augmentation"])]
    return "\n".join(lines)


def plotted(path: Path) -> str:
    """The line that shows the plot."""
    place = path.with_suffix(".svg").relative_to(path.parent.parent.parent).as_posix()
    return f"![Speed of the three columns, the original being 1]({place})"


def plot(result: dict[str, Any]) -> str:
    """Bars of all columns as multiples of the original, with their intervals."""
    scenarios = result["scenarios"]
    bars = [(its, column) for its in scenarios for column in COLUMNS]
    most = max(_multiple(its, column)["value"] for its, column in bars)
    rows = 4 * len(scenarios)  # three bars and a gap
    frame = Frame((0, most * 1.1), (0, rows), PLACE)
    parts = [frame.below("times the original's samples/s")]
    for place, its in enumerate(scenarios):
        top = rows - 4 * place - 0.5
        y = frame.y(top - 1.5)
        parts.append(f'<text x="2" y="{y + 4:.1f}">{its["name"]}</text>')
        for line, (column, color) in enumerate(COLUMNS.items()):
            parts.append(_bar(frame, top - line, _multiple(its, column), color))
    parts += _key()
    inner = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + KEY}"'
        ' role="img" aria-label="speed of the three columns, the original being 1">\n'
        f"<style>{STYLE}</style>\n{inner}\n</svg>\n"
    )


def frameworks_section(result: dict[str, Any]) -> str:
    """What the README says of the scenarios of other frameworks."""
    return f"{about_frameworks(result)}\n\n{table(result, FRAMEWORKS_LOSS)}"


def costs_section(result: dict[str, Any]) -> str:
    """What the README says of what findings cost on a GPU."""
    versions = result["versions"]
    where = f"{result['gpu']}, {result['cpus']} CPUs, torch {versions['torch']}"
    about = (
        f"{where}: medians of 5 rounds of each side in turns, and in brackets "
        "the least and the greatest ratio of any two."
    )
    rule = "|".join(["---", "---", *["---:"] * 3])
    lines = [about, "", f"| {' | '.join(COSTS_HEADINGS)} |", f"|{rule}|"]
    for its in result["cases"]:
        sides = (f"{its[side] / 1000:.3g}" for side in ("found_us", "better_us"))
        low, high = its["ratio_low"], its["ratio_high"]
        ratio = f"{its['ratio']:.2f} [{low:.2f}, {high:.2f}]"
        lines.append(f"| {' | '.join((its['code'], its['what'], *sides, ratio))} |")
    return "\n".join(lines)


def between(text: str, start: str, end: str, new: str) -> str:
    """A text with something new between two markers."""
    before, rest = text.split(start)
    return f"{before}{start}\n{new}\n{end}{rest.split(end)[1]}"


def write(readme: Path, folder: Path) -> None:
    """Bring the README and the plots up to date."""
    found = list(results(folder))
    for path, result in found:
        path.with_suffix(".svg").write_text(plot(result), "utf-8")
    text = between(readme.read_text("utf-8"), START, END, section(found))
    its = json.loads((folder / FRAMEWORKS).read_text("utf-8"))
    new = frameworks_section(its)
    text = between(text, FRAMEWORKS_START, FRAMEWORKS_END, new)
    costs = json.loads((folder / COSTS).read_text("utf-8"))
    text = between(text, COSTS_START, COSTS_END, costs_section(costs))
    readme.write_text(text, "utf-8")


def _multiple(its: dict[str, Any], column: str) -> dict[str, float]:
    if column == "original":
        return {"value": 1.0, "low": 1.0, "high": 1.0}
    ratio: dict[str, float] = its[f"{column}_to_original"]
    return ratio


def _bar(frame: Frame, row: float, its: dict[str, float], color: str) -> str:
    y, thick = frame.y(row - 0.5), frame.y(0) - frame.y(0.8)
    end, most = frame.x(its["value"]), frame.x(frame.across[1])
    low, high = (min(frame.x(its[side]), most) for side in ("low", "high"))
    return (
        f'<rect x="{PLACE}" y="{y - thick / 2:.1f}" width="{end - PLACE:.1f}" '
        f'height="{thick:.1f}" fill="{color}" fill-opacity=".8"/>'
        f'<path d="M{low:.1f} {y:.1f}H{high:.1f}" stroke="#7a7f87" stroke-width="2"/>'
    )


def _key() -> Iterator[str]:
    y = HEIGHT - BOTTOM + 18 + KEY
    for place, (column, color) in enumerate(COLUMNS.items()):
        x = PLACE + 110 * place
        yield f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{color}"/>'
        yield f'<text x="{x + 16}" y="{y}">{column}</text>'


def _rate(its: dict[str, Any]) -> str:
    return number(its["samples_per_second"]["value"])


def _loss(its: dict[str, Any]) -> str:
    return f"{its['last_losses'][-1]:.3g}"


def _times(its: dict[str, float]) -> str:
    return f"{its['value']:.2f} [{its['low']:.2f}, {its['high']:.2f}]"


def _augmentation(its: dict[str, Any]) -> str:
    workers = min(its["workers_ms"], key=its["workers_ms"].__getitem__)
    return (
        f"Augmenting a batch of {its['batch_size']} faces takes "
        f"{its['workers_ms'][workers]:.3g} ms in {workers} worker processes and "
        f"{its['device_ms']['runtime']:.3g} ms on the GPU ({its['ratio']:.3g} times)."
    )


if __name__ == "__main__":
    write(ROOT / "README.md", RESULTS)
