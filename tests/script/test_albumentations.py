"""Which programs have draws that workers would repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.registry import select_rules
from gpulint.releases import Range
from gpulint.source import Source

FIXTURES = Path(__file__).parents[2] / "fixtures" / "gpu201_serial_loading"
TEXT = (FIXTURES / "albumentations_at_random.py").read_text()
SEEDED = "\n\ndef seed_worker(number):\n    transform.set_random_seed(number)\n"


@pytest.mark.parametrize(
    "text, newest, repeated",
    [
        (TEXT, None, True),
        (TEXT, (2, 0), True),
        (TEXT, (1, 4), True),
        (TEXT, (1, 3), False),
        (TEXT + SEEDED, None, False),
        (TEXT.replace("            A.HorizontalFlip(p=0.5),\n", "*more,"), None, True),
        (TEXT.replace("import albumentations as A", "from own import A"), None, False),
    ],
    ids=["newest", "2.0", "1.4", "1.3", "seeded", "unknown", "of the project"],
)
def test_workers_repeat_what_albumentations_draws(
    text: str, newest: tuple[int, int] | None, repeated: bool
) -> None:
    packages = (("albumentations", Range(None, newest)),)
    options = Options(select_rules(("GPU201",)), packages=packages)
    (finding,) = check_source(Source(Path("a.py"), text), options).findings
    assert ("same numbers" in (finding.fix_withheld or "")) is repeated
