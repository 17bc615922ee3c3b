"""Findings for a machine: `--target` and the setting `target`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpulint.cli import main
from gpulint.registry import all_rules
from gpulint.targets import KNOWN, Hardware, find_target, fits

SCRIPT = """\
import torch
import torchvision
from torch.utils.data import DataLoader

device = torch.device("cuda")
model = torchvision.models.vit_b_16().to(device)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(images, batch_size=256, shuffle=True, num_workers=4)
for x, y in loader:
    loss = criterion(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
for x, y in loader:
    print(criterion(model(x.to(device)), y.to(device)))
"""
CUDA = {"GPU102", "GPU202", "GPU504"}


@pytest.fixture(autouse=True)
def _script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)


def codes(*options: str) -> set[str]:
    """The codes that are reported."""
    args = ["check", "--output-format", "json", "--no-cache", *options]
    result = CliRunner().invoke(main, args, catch_exceptions=False)
    assert result.exit_code < 2, result.stderr
    return {finding["code"] for finding in json.loads(result.stdout)}


def test_each_machine_has_its_findings() -> None:
    everything = codes()
    assert {"GPU301", "GPU302", "GPU403"} | CUDA <= everything
    assert codes("--target", "h100") == everything
    assert everything - codes("--target", "T4") == {"GPU302"}
    assert everything - codes("--target", "p100") == {"GPU301", "GPU302"}
    on_cpu = codes("--target", "cpu")
    assert "GPU403" in on_cpu
    assert not on_cpu & ({"GPU301", "GPU302"} | CUDA)
    on_mps = codes("--target", "mps")
    assert "GPU301" in on_mps
    assert not on_mps & ({"GPU302"} | CUDA)


def test_any_of_several_is_enough() -> None:
    assert codes("--target", "cpu,t4", "--target", "a100") == codes()
    Path("gpulint.toml").write_text('target = ["cpu", "v100"]')
    assert codes() == codes("--target", "t4")
    Path("gpulint.toml").write_text('target = "cpu"')
    assert codes() == codes("--target", "cpu")


def test_saved_target() -> None:
    saved = {"name": "NVIDIA H200", "kind": "cuda", "capability": [9, 0], "tf32": True}
    Path("mine.json").write_text(json.dumps(saved))
    assert codes("--target", "mine.json") == codes("--target", "h200")
    Path("mine.json").write_text(json.dumps(saved | {"tf32": None, "name": None}))
    assert codes("--target", "mine.json") == codes("--target", "t4")
    assert find_target("mine.json", Path.cwd()).name == "mine"


@pytest.mark.parametrize(
    "text,message",
    [
        (None, "No such file"),
        ("[]", "not a target; `gpulint doctor --save-target` makes one"),
        (
            '{"kind": "abacus", "capability": null, "name": "x", "tf32": true}',
            "not a t",
        ),
        ('{"kind": "cuda"}', "not a target"),
        ("{", "not a target"),
    ],
)
def test_unusable_file(text: str | None, message: str) -> None:
    if text is not None:
        Path("x.json").write_text(text)
    result = CliRunner().invoke(main, ["check", "--target", "x.json"])
    assert result.exit_code == 2
    assert message in result.stderr
    assert "--target" in result.stderr


def test_unknown_target() -> None:
    result = CliRunner().invoke(main, ["check", "--target", "gtx"])
    assert result.exit_code == 2
    assert "'gtx' is no target; there are cpu, p100, v100" in result.stderr


def test_every_machine_is_of_some_use() -> None:
    for target in KNOWN.values():
        assert fits(Hardware.ANY, [target])
        assert fits(Hardware.GPU, [target]) is (target.kind != "cpu")
    assert {rule.hardware for rule in all_rules()} == set(Hardware)
