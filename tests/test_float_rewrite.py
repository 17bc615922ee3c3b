"""A training script whose images stay bytes, with torchvision: before and after."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpulint import runtime
from gpulint.engine import Options, fix_source
from gpulint.finding import Effect
from gpulint.registry import find_rule
from gpulint.source import read_source

FIXTURES = Path(__file__).parent.parent / "fixtures/gpu208_float_over_bus"
CASES = ["bad", "what_draws_stays", "shared_with_validation", "bytes_first"]
SHORTER = {
    "num_workers=4": "num_workers=0",
    "batch_size=128": "batch_size=4",
    "range(90)": "range(2)",
    "models.resnet18(num_classes=10)": "small()",
    "criterion(model(": "criterion(model(seen(",
    "(images), labels)": "(images)), labels)",
    "optimizer.step()": "optimizer.step(); losses.append(loss.item())",
}


@pytest.fixture(autouse=True)
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two folders of photographs of two kinds, and a torchvision that reads them."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    stand_in = types.ModuleType("torchvision._meta_registrations")
    sys.modules.setdefault(stand_in.__name__, stand_in)  # needs compiled operators
    try:
        importlib.import_module("torchvision.datasets")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision does not suit this torch: {error}")
    image = importlib.import_module("PIL.Image")
    rng = np.random.default_rng(0)
    for number in range(16):
        kind = tmp_path / "data" / ("train", "val")[number % 2] / str(number // 2 % 2)
        kind.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (280, 260, 3), np.uint8)
        image.fromarray(pixels).save(kind / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    runtime._reset()


def fixed(case: str) -> str:
    rule = find_rule("GPU208")
    assert rule is not None
    source = read_source(FIXTURES / f"{case}.py")
    text = fix_source(source, Options((rule,), frozenset(Effect))).text
    assert text != source.text
    return text


def run(text: str) -> dict[str, Any]:
    """What a short run of a script leaves: losses, the images that a step saw, …"""
    for before, after in SHORTER.items():
        text = text.replace(before, after)
    images: list[torch.Tensor] = []

    def seen(batch: torch.Tensor) -> torch.Tensor:
        images.append(batch)
        return batch

    def small() -> torch.nn.Module:
        pool = torch.nn.AdaptiveAvgPool2d(4)
        return torch.nn.Sequential(pool, torch.nn.Flatten(), torch.nn.Linear(48, 10))

    torch.manual_seed(0)
    names = {"__name__": "__main__", "losses": [], "seen": seen, "small": small}
    exec(compile(text, "script.py", "exec"), names)
    return {**names, "images": torch.stack(images)}


@pytest.mark.parametrize("case", CASES)
def test_with_a_gpu_samples_are_bytes_and_steps_see_the_same_images(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run((FIXTURES / f"{case}.py").read_text("utf-8"))
    monkeypatch.setattr("gpulint.runtime._split.usable_kind", lambda device: "cuda")
    after = run(fixed(case))
    assert "floats of bytes, normalize: on batches" in runtime.explain()
    assert before["train_set"][0][0].dtype is torch.float32
    assert after["train_set"][0][0].dtype is torch.uint8
    assert len(before["images"]) == 4
    assert torch.equal(after["images"], before["images"]), "to the last bit"
    assert after["losses"] == before["losses"]
    if "correct" in before:
        assert after["test_set"][0][0].dtype is torch.float32
        assert after["correct"] == before["correct"]


@pytest.mark.parametrize("variables", [{"RUNTIME": "off"}, {"DEBUG": "1"}, {}], ids=str)
def test_without_a_gpu_or_switched_off_samples_are_floats_as_before(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run((FIXTURES / "bad.py").read_text("utf-8"))
    for name, value in variables.items():
        monkeypatch.setenv(f"GPULINT_{name}", value)
    after = run(fixed("bad"))
    assert after["train_set"][0][0].dtype is torch.float32
    assert after["losses"] == before["losses"]
