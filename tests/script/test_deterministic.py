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


OF_CLASS = f"""\
import torch


class Setup:
    def __init__(self, number):
        {SET}
"""
PLAYS = """\
def play(policy):
    return policy.predict(deterministic=True)
"""
ASKS = PLAYS.replace("predict", "mode")
ENGINE = PLAYS.replace("predict", "Engine")
RUNS = PLAYS.replace("predict", "run_training")
GUARD = 'import torch\n\nif __name__ == "__main__":\n'


@pytest.mark.parametrize(
    "top, helper, withheld",
    [
        ("import tools\ntools.seed(0)\n", SEEDS, True),
        ("from tools import seed\nseed(0)\n", SEEDS, True),
        ("import tools\n", f"import torch\n\n{SET}\n", True),
        ("import tools\n", SEEDS, False),
        ("", SEEDS, False),
        ("import tools\ntools.Setup(0)\n", OF_CLASS, True),
        ("from tools import seed as start\nstart(0)\n", SEEDS, True),
        ("import tools\nmap(tools.seed, ())\n", SEEDS, True),
        ("import tools\ntools.seed(0)\n", SEEDS.replace("= True", "= False"), False),
        ("import tools\ntools.seed(0)\n", f"{SEEDS}\n{PLAYS}", True),
        ("import tools\ntools.play(0)\n", f"{SEEDS}\n{PLAYS}", False),
        ("import tools\ntools.play(0)\n", f"{SEEDS}\n{ASKS}", False),
        ("import tools\ntools.play(0)\n", f"{SEEDS}\n{ENGINE}", True),
        ("import tools\ntools.play(0)\n", f"{SEEDS}\n{RUNS}", True),
        ("import tools\n", f"{GUARD}    {SET}\n", False),
        ("from tools import make_deterministic\nmake_deterministic(0)\n", "", True),
    ],
    ids=[
        "of a module",
        "by name",
        "at its top",
        "never called",
        "apart",
        "of a class",
        "by another name",
        "given",
        "off",
        "beside others",
        "others",
        "modes",
        "engines",
        "runs",
        "guarded",
        "named so",
    ],
)
def test_another_file_that_asks_for_determinism(
    tmp_path: Path, top: str, helper: str, withheld: bool
) -> None:
    script = tmp_path / "train.py"
    text = TRAINS.read_text(encoding="utf-8")
    script.write_text(text.replace("\n\n\ndef", f"\n{top}\n\ndef", 1))
    (tmp_path / "tools.py").write_text(helper)
    (tmp_path / ".git").mkdir()
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options((find_rule("GPU302"),), frozenset(Effect), projects=projects)
    (found,) = check_path(script, options).findings
    assert ("deterministic" in (found.fix_withheld or "")) is withheld
    assert (found.fix is None) is withheld
