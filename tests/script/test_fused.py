"""Which releases of torch have optimizers that update in one kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpulint.index import Projects, build_index
from gpulint.script import Script
from gpulint.script.training.fused import unfused_optimizers
from gpulint.source import Source

TEXT = """
import torch
from torch import nn

model = nn.Linear(64, 10).cuda()
first = torch.optim.Adam(model.parameters())
second = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
"""


@pytest.mark.parametrize(
    "newest, kinds",
    [
        ((1, 13), []),
        ((2, 0), ["Adam"]),
        ((2, 3), ["Adam"]),
        (None, ["Adam"]),
    ],
)
def test_release_must_have_a_fused_form(
    newest: tuple[int, int] | None, kinds: list[str]
) -> None:
    source = Source(Path("train.py"), TEXT)
    script = Script(source, build_index(source), newest_torch=newest)
    assert [found.kind for found in unfused_optimizers(script)] == kinds


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_fused_optimizers_keep_their_state_in_steps_that_a_scaler_leaves_out(
    kind: str,
) -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = getattr(torch.optim, kind)([weight], lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu")
    for factor in (float("inf"), 1.0, float("inf")):
        optimizer.zero_grad()
        before = {k: v.clone() for k, v in optimizer.state[weight].items()}
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    after = optimizer.state[weight]
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert after["step"] == 1


@pytest.mark.parametrize("made, fixed", [("Net()", True), ("load_in_8bit=True", False)])
def test_weights_that_another_file_quantizes(
    tmp_path: Path, made: str, fixed: bool
) -> None:
    model = f"def make():\n    return build({made})\n"
    (tmp_path / "models.py").write_text(f"from parts import Net, build\n\n\n{model}")
    text = TEXT.replace("model = nn", "from models import make\nmodel = nn")
    (tmp_path / "train.py").write_text(text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    index = projects.of(tmp_path / "train.py").index(tmp_path / "train.py")
    assert index is not None
    (found,) = unfused_optimizers(Script(index.source, index))
    assert (found.rewrite is not None) is fixed
