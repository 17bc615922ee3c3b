"""The scenario of Accelerate before and after its fixes, and what its rules claim."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("accelerate")

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import send_to_device

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "scripts" / "tides"


@functools.cache
def losses(name: str, *settings: str) -> list[float]:
    """Loss and error of each epoch, with variables such as `GPULINT_RUNTIME=off`."""
    variables = dict(setting.split("=") for setting in settings)
    done = subprocess.run(
        [sys.executable, str(FOLDER / name), "--json"],
        env={**os.environ, **variables},
        cwd=FOLDER.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[float] = json.loads(done.stdout.splitlines()[-1])["losses"]
    return found


def test_the_script_trains() -> None:
    found = losses("before.py")
    assert len(found) == 6
    assert found[4] < found[0]


@pytest.mark.parametrize("settings", [(), ("GPULINT_RUNTIME=off",)])
def test_exact_fixes_give_the_same_losses(settings: tuple[str, ...]) -> None:
    assert losses("after.exact.py", *settings) == losses("before.py")


def test_all_fixes_train_alike_on_a_cpu() -> None:
    """Without gradients the encoder takes a faster path, which rounds otherwise."""
    assert losses("after.all.py")[::2] == losses("before.py")[::2]
    assert losses("after.all.py") == pytest.approx(losses("before.py"), rel=1e-5)


def test_copies_block_unless_the_configuration_says_otherwise() -> None:
    fields = {f.name: f.default for f in dataclasses.fields(DataLoaderConfiguration)}
    assert fields["non_blocking"] is False
    options = DataLoaderConfiguration(non_blocking=True)
    assert Accelerator(dataloader_config=options).non_blocking


def test_tensors_are_moved_wherever_a_batch_holds_them_but_not_in_attributes() -> None:
    @dataclasses.dataclass
    class Own:
        ids: torch.Tensor

    batch = {"x": torch.ones(2), "more": [(torch.ones(2),)], "own": Own(torch.ones(2))}
    moved: dict[str, Any] = send_to_device(batch, torch.device("meta"))
    assert moved["x"].is_meta
    assert moved["more"][0][0].is_meta
    assert not moved["own"].ids.is_meta


def test_only_accelerate_divides_the_loss() -> None:
    weight = torch.nn.Parameter(torch.ones(()))
    accelerator = Accelerator(gradient_accumulation_steps=4)
    accelerator.backward(weight * 8)
    assert weight.grad is not None
    assert weight.grad.item() == 2
    weight.grad = None
    (weight * 8).backward()
    assert weight.grad.item() == 8
