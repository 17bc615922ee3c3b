"""One child with the real torch: its loaders, its scaler and its hooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpulint
from gpulint.bench.runs import Children, Limits, Setting, Variant, read_launcher

REPO = Path(gpulint.__file__).resolve().parent.parent
SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.arange(20.0))
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
expected = []
for epoch in range(3):
    for step, (x,) in enumerate(DataLoader(data, batch_size=8, num_workers=step_workers)):
        loss = (model(x.unsqueeze(1)) ** 2).mean()
        if epoch == 0 and step == 1:
            loss = loss * float("inf")
        expected.append(loss.item())
        optimizer.zero_grad()
        (scaler.scale(loss) / 2).backward()
        print(repr(expected), flush=True)
        scaler.step(optimizer)
        scaler.update()
    model.eval()
    sum(float(model(x.unsqueeze(1)).sum()) for (x,) in DataLoader(data, batch_size=20))
""".replace("step_workers", "1")


def test_a_real_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    (tmp_path / "train.py").write_text(SCRIPT)
    report = tmp_path / "report"
    options = {"report": str(report), "warmup": 2, "steps": 5, "parent": os.getpid()}
    module = [sys.executable, "-m", "gpulint.bench.child", json.dumps(options)]
    done = subprocess.run(
        [*module, "train.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text().splitlines()[-1])
    assert found["event"] == "measured"
    assert found["skipped"] == 1
    assert found["steps"] == 7
    assert found["samples"] == [8, 8, 4, 8, 8]
    assert found["between"] == [True, False, False, True, False]
    assert all(
        0 <= w <= s for w, s in zip(found["waits"], found["seconds"], strict=True)
    )
    expected = eval(done.stdout.splitlines()[-1], {"inf": float("inf")})
    assert found["losses"] == [loss / 2 for loss in expected]
    assert found["device"] is None
    assert found["host_peak"] > 2**20


RANKED = """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.arange(400.0))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for (x,) in loader:
    optimizer.zero_grad()
    (model(x.unsqueeze(1)) ** 2).mean().backward()
    optimizer.step()
"""


def test_two_real_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    script = tmp_path / "train.py"
    script.write_text(RANKED)
    launcher = read_launcher("torchrun --standalone --nproc-per-node=2")
    shown: list[str] = []
    setting = Setting(launcher=launcher, seed=1)
    limits = Limits(steps=5, warmup=1, timeout=120)
    children = Children(setting, limits, lambda steps: None, shown.append)
    found = children(Variant("train.py", str(script)))
    assert found.samples == [16] * 5, shown
    assert len(found.losses) == 6
    assert not found.cuda
