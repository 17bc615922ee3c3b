"""The rates in the precision page are those of its own tables."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from precision_rates import END, PAGE, START, table  # noqa: E402

DRAW = """
## The forty-second draw

| Rule | Place | Reader 1 | Reader 2 | Now | Reason |
| GPU102 | a.py:1 | wrong | wrong | yes | Of before the kinds. |

## The forty-third draw

| Rule | Place | Reader 1 | Reader 2 | Now | Reason |
| --- | --- | --- | --- | --- | --- |
| GPU106 | a.py:1 | right | right | yes | A `a \\| b` costs. |
| GPU106 | a.py:2 | wrong (false) | right | yes | It waits anyway. |
| GPU104 | a.py:3 | wrong (harm) | wrong (unreached) | no | Nobody comes here. |

## The forty-fourth draw

| Rule | Place | Reader | Now | Reason |
| --- | --- | --- | --- | --- |
| GPU106 | a.py:4 | wrong (false) | no | It waits anyway. |

## Programs of other frameworks

| Rule | Place | Reader 1 | Reader 2 | Now | Reason |
| GPU371 | a.py:1 | wrong | wrong | yes | Of before the kinds. |
"""


def test_findings_on_which_readers_differ_count_half() -> None:
    *_, others, everything = table(DRAW).splitlines()
    shares = "| 62 % | 38 % | 12 % | 12 % | 2 | 25 % |"
    assert others == f"| others | 4 {shares}"
    assert everything == f"| **all** | 4 {shares}"


def test_rules_with_many_findings_have_a_row() -> None:
    row = "| GPU106 | a.py:1 | right | right | yes | It costs. |"
    page = DRAW.replace(row[:30], "\n".join([row] * 38) + f"\n{row[:30]}", 1)
    assert page.count(row) == 38
    first = table(page).splitlines()[2]
    assert first == "| GPU106 | 41 | 4 % | 4 % | 0 % | 0 % | 40 | 1 % |"


def test_the_page_has_its_rates() -> None:
    text = PAGE.read_text("utf-8")
    shown = text.split(START)[1].split(END)[0]
    assert shown.strip() == table(text), "run `python benchmarks/precision_rates.py`"
