"""A report with everything that formats must get right, and what they make of it."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from samples import edit, entry, finding, place

from gpulint import __version__, registry, report
from gpulint.finding import (
    Confidence,
    Effect,
    Evidence,
    Finding,
    Fix,
    Place,
    Position,
    Severity,
)
from gpulint.formats import FORMATS
from gpulint.report.html_style import STYLE
from gpulint.rule import Rule
from gpulint.source import Source

FOLDER = Path("/project")
GOLDEN = Path(__file__).parent / "golden"
DOCUMENTATION = """\
Columns are copied one by one.

## Why
Each copy waits. `a < b` & so on.

## Example
```python
if a < b:
    x = x.to(device)
```

## Fix
One copy."""
# Before the findings: Chinese, an emoji (two UTF-16 units), a tab, a form feed, CRLF.
LINES = (
    "# 训练脚本 <script>alert(1)</script>",
    "import torch",
    "",
    "\f",
    "class Windows:",
    "\tdef process(self, batch):",
    '\t\t标签 = "😀"; lat = batch[:, 0].to(self.device)  # 慢',
    "\t\tlon = batch[:, 1].to(self.device)",
    "\t\tloss = criterion(",
    "\t\t\tlat, lon",
    "\t\t).item()",
    "\t\tquiet(lat)  # gpulint: ignore[GPU101]",
)


def sample(newline: str = "\r\n", bom: bytes = b"") -> report.Report:
    """Three files with findings, one without; nothing is read from the disk."""
    text = newline.join(LINES) + newline
    source = Source(FOLDER / "src" / "训练 <b>.py", text, bom=bom)
    broken = Source(FOLDER / "broken.py", "def f(:\n")
    clean = Source(FOLDER / "clean.py", "x = 1\n")
    return report.Report(
        (
            report.Entry(None, (_trouble("a.py", "GPU001", "cannot be read"),), _EXACT),
            entry(broken, _trouble("broken.py", "GPU000", "syntax error: invalid")),
            entry(clean),
            entry(source, *findings(source, newline)),
        ),
        folder=FOLDER,
    )


_EXACT = frozenset({Effect.EXACT})


def findings(source: Source, newline: str) -> tuple[Finding, ...]:
    """One with all there is, one over lines, one without a fix, one suppressed."""
    old = "lat = batch[:, 0].to(self.device)"
    new = f"batch = batch.to(self.device){newline}\t\tlat = batch[:, 0]"
    return (
        finding(
            place(source, ".to(self.device)"),
            related=(place(source, ".to(self.device)", "2 of 2", 1),),
            evidence=(Evidence(source.path, 6, "`process` runs once a step"),),
            fix=Fix(
                "Copy `batch` once, then slice",
                Effect.EXACT,
                (edit(source, old, new), edit(source, ".to(self.device)", "", 1)),
                ("from gpulint import runtime",),
            ),
        ),
        finding(
            place(source, f"criterion({newline}\t\t\tlat, lon{newline}\t\t).item()"),
            code="GPU106",
            name="host-sync-in-loop",
            message="the host waits: 100%, `x[0](1)`; a::b",
            severity=Severity.ERROR,
            effect=Effect.NUMERICS,
            fix=Fix("Wait later", Effect.NUMERICS, (edit(source, ".item()", ""),)),
        ),
        finding(
            place(source, "lat, lon"),
            code="GPU401",
            name="fixed-small-batch",
            message="the batch size is 8",
            severity=Severity.NOTE,
            confidence=Confidence.MEDIUM,
            fix_withheld="the rate is not known\nlr = 8 * lr\nlr < 1",
        ),
        finding(place(source, "quiet(lat)"), suppressed="inline"),
    )


def _trouble(name: str, code: str, message: str) -> Finding:
    at = Position(1, 1)
    return finding(
        Place(FOLDER / name, at, at),
        code=code,
        name="trouble",
        message=message,
        severity=Severity.ERROR if code == "GPU000" else Severity.NOTE,
        effect=Effect.NONE,
        context=message,
    )


class _Columns(Rule):
    effect = Effect.EXACT
    documentation = DOCUMENTATION  # type: ignore[assignment]


@contextlib.contextmanager
def one_rule() -> Iterator[None]:
    """GPU101 is documented as above, other rules are not: docs may change."""
    known = {"GPU101": _Columns()}
    with mock.patch.object(registry, "find_rule", known.get):
        yield


def render(form: str, told: report.Report | None = None) -> str:
    """The report in a format, without what changes for other reasons."""
    stream = io.StringIO()
    with one_rule():
        report.write(told or sample(), form, stream)
    text = stream.getvalue().replace(STYLE, "")
    return re.sub(re.escape(__version__), "VERSION", text)


def golden(form: str) -> Path:
    """The file that holds what a format makes of the sample."""
    return GOLDEN / f"{form}.txt"


def regenerate() -> None:
    """Write all of these files anew."""
    GOLDEN.mkdir(exist_ok=True)
    for form in FORMATS:
        golden(form).write_text(render(form), "utf-8", newline="\n")
