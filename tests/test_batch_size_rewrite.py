"""What GPU401 makes of scripts: the same losses until something is tuned."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from equivalence import RunResult, assert_same_losses, run_script

from gpulint.engine import Options, fix_source
from gpulint.finding import Effect
from gpulint.registry import find_rule
from gpulint.source import Source

pytest.importorskip("torch")

SCRIPT = """
import json

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 32
CONFIG = {"batch_size": 32, "lr": 0.05}
EPOCHS = 3


def read_table():
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(416, 12)).astype("float32")
    return torch.from_numpy(rows), torch.from_numpy(rows[:, :3].sum(1, keepdims=True))


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = TensorDataset(*read_table())
    loader = DataLoader(dataset, batch_size=SIZE, shuffle=True)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
    optimizer = OPTIMIZER
    SCHEDULER
    losses, rates = [], []
    for epoch in range(EPOCHS):
        for x, y in loader:
            rates.append(optimizer.param_groups[0]["lr"])
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            EACH_STEP
            losses.append(loss.item())
        EACH_EPOCH
    print(json.dumps(rates))
    print(json.dumps({"losses": losses, "samples": 1248, "seconds": 1.0}))


if __name__ == "__main__":
    main()
"""
ADAM = "torch.optim.Adam(model.parameters(), lr=1e-3)"
ONE_CYCLE = (
    "scheduler = torch.optim.lr_scheduler.OneCycleLR("
    "optimizer, 0.01, epochs=EPOCHS, steps_per_epoch=len(loader))"
)
COSINE = "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)"
SGD = 'torch.optim.SGD(model.parameters(), lr=CONFIG["lr"], momentum=0.9)'
DEFAULT = "torch.optim.AdamW(model.parameters(), weight_decay=0.1)"
# Size, optimizer, scheduler, what each step and each epoch does; the rates of the
# first step and the highest ones, before and after.
CASES = {
    "named": (("BATCH_SIZE", ADAM, "", "", ""), (1e-3, 1e-3), 2),
    "literal": (("32", DEFAULT, "", "", ""), (1e-3, 1e-3), 2),
    "dict": (
        ('CONFIG["batch_size"]', SGD, COSINE, "", "scheduler.step()"),
        (0.05, 0.05),
        4,
    ),
    "one cycle": (
        ("BATCH_SIZE", ADAM, ONE_CYCLE, "scheduler.step()", ""),
        (0.01 / 25, 0.01),
        2,
    ),
}


def script(name: str) -> str:
    text = SCRIPT
    words = ("SIZE,", "OPTIMIZER", "SCHEDULER", "EACH_STEP", "EACH_EPOCH")
    size, *others = CASES[name][0]
    text = text.replace(f"batch_size={words[0]}", f"batch_size={size},")
    for word, code in zip(words[1:], others, strict=True):
        text = text.replace(word, code or "pass")
    return text


@functools.cache
def rewritten(name: str) -> str:
    rule = find_rule("GPU401")
    assert rule is not None
    source = Source(Path("train.py"), script(name))
    assert fix_source(source, Options((rule,))).text == source.text
    fixed = fix_source(source, Options((rule,), frozenset(Effect)))
    assert fixed.remaining == ()
    assert "runtime.batch_size(32)" in fixed.text
    assert "runtime.scaled_lr(" in fixed.text
    return fixed.text


def rates(done: RunResult) -> list[float]:
    found: list[float] = json.loads(done.stdout.splitlines()[0])
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("state", ["off", "on"])
def test_untuned_scripts_compute_what_they_did(name: str, state: str) -> None:
    before = run_script(script(name))
    after = run_script(rewritten(name), env={"GPULINT_RUNTIME": state})
    assert_same_losses(before, after)
    assert rates(before) == rates(after)
    assert (rates(before)[0], max(rates(before))) == pytest.approx(
        CASES[name][1], rel=0.1
    )


@pytest.mark.parametrize("name", CASES)
def test_a_tuned_batch_takes_its_rate_along(name: str) -> None:
    done = run_script(rewritten(name), env={"GPULINT_BATCH_SIZE": "128"})
    assert len(done.losses) == 3 * 4  # 416 samples
    _, (first, highest), factor = CASES[name]
    found = rates(done)
    assert found[0] == pytest.approx(first * factor)
    assert max(found) == pytest.approx(highest * factor, rel=0.1)
    assert done.losses[-1] < done.losses[0]
