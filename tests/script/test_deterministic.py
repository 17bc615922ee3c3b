"""Programs that ask for deterministic algorithms, be it in another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.index import Projects
from gpulint.registry import find_rule
from gpulint.rule import Effect

TRAINS = Path("fixtures/gpu302_missing_tf32/bad.py")
SET = "torch.backends.cudnn.deterministic = True"
SEEDS = f"""\
import torch


def seed(number):
    torch.manual_seed(number)
    {SET}
"""


@pytest.mark.parametrize(
    "top, helper, withheld",
    [
        ("import tools\ntools.seed(0)\n", SEEDS, True),
        ("from tools import seed\nseed(0)\n", SEEDS, True),
        ("import tools\n", f"import torch\n\n{SET}\n", True),
        ("import tools\n", SEEDS, False),
        ("", SEEDS, False),
        ("from tools import make_deterministic\nmake_deterministic(0)\n", "", True),
    ],
    ids=["of a module", "by name", "at its top", "never called", "apart", "named so"],
)
def test_another_file_that_asks_for_determinism(
    tmp_path: Path, top: str, helper: str, withheld: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(top + TRAINS.read_text(encoding="utf-8"))
    (tmp_path / "tools.py").write_text(helper)
    (tmp_path / ".git").mkdir()
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options((find_rule("GPU302"),), frozenset(Effect), projects=projects)
    (found,) = check_path(script, options).findings
    assert ("deterministic" in (found.fix_withheld or "")) is withheld
    assert (found.fix is None) is withheld
