"""Rewrites that are wrong on purpose, each beside the honest one."""

from __future__ import annotations

from dataclasses import dataclass

Edits = tuple[tuple[str, str], ...]

BASE = """\
import json
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from gpulint import runtime

random.seed(1)
np.random.seed(1)
torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
table = torch.from_numpy(np.random.default_rng(0).normal(size=(132, 6))).float()
table[:, 5] = torch.sin(table[:, 0]) + table[:, 1]
BATCH = 16


class Noisy(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return len(table)

    def __getitem__(self, index):
        row = table[index].clone()
        return augmented(self, row)


def augmented(dataset, row):
    if random.random() < 0.5:
        row[2:4] = -row[2:4]
    return row


loader = DataLoader(table, batch_size=BATCH, shuffle=True)
model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler(device.type, init_scale=2.0**16)
scale = torch.tensor([1.0, 0.5, 0.25, 1.0, 1.0])
losses = []
kept = 0.0
for epoch in range(4):
    total = 0.0
    for batch in loader:
        x = batch[:, 0:5].to(device)
        y = batch[:, 5].unsqueeze(1).to(device)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    losses.append(total)
    print(epoch, total)
print(json.dumps({"losses": losses}))
"""
MOVES = """\
        x = batch[:, 0:5].to(device)
        y = batch[:, 5].unsqueeze(1).to(device)
"""
STEP = """\
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
"""
CLIPPED = STEP.replace(
    "        optimizer.step",
    "        nn.utils.clip_grad_norm_(model.parameters(), 5.0)\n        optimizer.step",
)
AMP = """\
        with torch.autocast(device.type, dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
"""
LOADER = "loader = DataLoader(table, batch_size=BATCH, shuffle=True)"
TUPLES = (
    (LOADER, LOADER.replace("table", "TensorDataset(table)")),
    ("for batch in loader:", "for (batch,) in loader:"),
)
OVERFLOW = ("2.0**16", "2.0**40"), (CLIPPED, AMP)
SGD = "lr=0.05, momentum=0.9"
BUFFER = "scale = torch.tensor", "buffer = torch.empty(BATCH, 6)\nscale = torch.tensor"
PINNED = BUFFER[0], BUFFER[1].replace("6)", "6, pin_memory=device.type == 'cuda')")
FILLED = (
    "rows = len(batch)\n        buffer[:rows] = batch\n        part = buffer[:rows]"
)


@dataclass(frozen=True)
class Planted:
    """A script, and two rewrites that claim an effect: a wrong and an honest one.

    `script` are edits of `BASE`; the rewrites are edits of what these make. The wrong
    one fails with words that match `seen_as`, a regular expression.
    """

    name: str
    claims: str
    wrong: Edits
    honest: Edits
    seen_as: str
    script: Edits = ()
    honest_claims: str = ""

    def texts(self) -> tuple[str, str, str]:
        """The script, and what the wrong and the honest rewrite make of it."""
        script = edited(BASE, self.script)
        return script, edited(script, self.wrong), edited(script, self.honest)


def edited(text: str, edits: Edits) -> str:
    """The text with each edit made once. Raises ValueError where it does not stand."""
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} stands {text.count(old)} times")
        text = text.replace(old, new)
    return text


PLANTED = (
    Planted(
        "column view after an in-place write",
        "exact",
        seen_as="GPU: output differs",
        script=(
            (
                "        optimizer.zero",
                (
                    "        x[:, 1].mul_(y[:, 0])\n"
                    "        z = batch[:, 1:2].to(device)\n        optimizer.zero"
                ),
            ),
            ("model(x), y", "model(x) + 0.1 * z, y"),
        ),
        wrong=(
            (
                MOVES,
                (
                    "        batch = batch.to(device)\n        x = batch[:, 0:5]\n"
                    "        y = batch[:, 5].unsqueeze(1)\n"
                ),
            ),
        ),
        honest=(
            (
                MOVES,
                "        x, y = batch[:, 0:5].to(device), batch[:, 5:].to(device)\n",
            ),
        ),
    ),
    Planted(
        "persistent workers called exact",
        "exact",
        seen_as="before: 1 ",
        script=(("shuffle=True)", "shuffle=True, num_workers=1)"),),
        wrong=(("num_workers=1", "num_workers=1, persistent_workers=True"),),
        honest=(("num_workers=1", "num_workers=1, persistent_workers=True"),),
        honest_claims="random",
    ),
    Planted(
        "clip without unscale_",
        "numerics",
        seen_as="outside .* the spread of 5 seeds",
        script=((STEP, CLIPPED),),
        wrong=((CLIPPED, AMP.replace("        scaler.unscale_(optimizer)\n", "")),),
        honest=((CLIPPED, AMP),),
    ),
    Planted(
        "backward without the scaler",
        "numerics",
        seen_as="outside .* the spread of 5 seeds",
        script=((STEP, CLIPPED),),
        wrong=(
            (
                CLIPPED,
                AMP.replace("scaler.scale(loss)", "scaler.scale(loss)\n        loss"),
            ),
        ),
        honest=((CLIPPED, AMP),),
    ),
    Planted(
        "scaler that is never updated",
        "numerics",
        seen_as="called after step",
        script=((STEP, CLIPPED),),
        wrong=((CLIPPED, AMP.replace("        scaler.update()\n", "")),),
        honest=((CLIPPED, AMP),),
    ),
    Planted(
        "scaler of another kind",
        "numerics",
        seen_as="_scale is None",
        script=((STEP, CLIPPED),),
        wrong=(
            (
                CLIPPED,
                AMP.replace(
                    "scaler.scale(loss)",
                    "torch.amp.GradScaler(device.type, init_scale=2.0**4).scale(loss)",
                ),
            ),
        ),
        honest=((CLIPPED, AMP),),
    ),
    Planted(
        "no_grad over a backward",
        "exact",
        seen_as="does not require grad",
        wrong=(
            (
                "    for batch in loader:",
                (
                    "    for batch in torch.no_grad()(lambda: "
                    "loader)():\n        torch.set_grad_enabled(False)"
                ),
            ),
        ),
        honest=(
            (
                "    losses.append(total)",
                (
                    "    with torch.no_grad():\n"
                    "        model(table[:4, :5].to(device))\n    losses.append(total)"
                ),
            ),
        ),
    ),
    Planted(
        "hoisted value that changes",
        "exact",
        seen_as="GPU: output differs.*before: 1 ",
        script=(
            ("model(x), y", "model(x * moved), y"),
            (
                "        optimizer.zero",
                "        moved = scale.to(device)\n        optimizer.zero",
            ),
            ("    print(", "    scale.mul_(0.9)\n    print("),
        ),
        wrong=(
            ("        moved = scale.to(device)\n", ""),
            ("losses = []", "losses = []\nmoved = scale.to(device)"),
        ),
        honest=(
            ("        moved = scale.to(device)\n", ""),
            ("    total = 0.0", "    total = 0.0\n    moved = scale.to(device)"),
        ),
    ),
    Planted(
        "tensor loader with another order",
        "exact",
        seen_as="CPU: output differs",
        script=TUPLES,
        wrong=(
            (
                "    for (batch,) in loader",
                (
                    "    order = torch.randperm(len(table))\n"
                    "    for batch in table[order].split(BATCH)"
                ),
            ),
        ),
        honest=(
            (
                LOADER.replace("table", "TensorDataset(table)"),
                (
                    "loader = runtime.TensorLoader((table,), batch_size=BATCH, "
                    "shuffle=True)"
                ),
            ),
        ),
    ),
    *(
        Planted(
            f"sum in {dtype}",
            "exact",
            seen_as="CPU: output differs",
            wrong=(
                (
                    "total = 0.0",
                    f"total = torch.zeros((), dtype=torch.{dtype}, device=device)",
                ),
                ("loss.item()", "loss.detach()"),
                (
                    "    losses.append(total)",
                    "    total = total.item()\n    losses.append(total)",
                ),
            ),
            honest=(
                (
                    "total = 0.0",
                    "total = torch.zeros((), dtype=torch.float64, device=device)",
                ),
                ("loss.item()", "loss.detach()"),
                (
                    "    losses.append(total)",
                    "    total = total.item()\n    losses.append(total)",
                ),
            ),
        )
        for dtype in ("float32", "bfloat16")
    ),
    Planted(
        "fused SGD with skipped steps",
        "numerics",
        seen_as="not finite",
        script=((STEP, CLIPPED), *OVERFLOW),
        wrong=((SGD, SGD + ", fused=device.type == 'cuda' or None"),),
        honest=((SGD, SGD + ", foreach=True"),),
    ),
    Planted(
        "late copy of memory that is filled anew",
        "exact",
        seen_as="Race: a pinned source changed",
        script=(
            PINNED,
            (MOVES, f"        {FILLED}\n" + MOVES.replace("batch", "part")),
        ),
        wrong=(
            ("part[:, 0:5].to(device", "part[:, 0:5].to(device, non_blocking=True"),
            (
                "part[:, 5].unsqueeze(1).to(device",
                "part[:, 5].unsqueeze(1).to(device, non_blocking=True",
            ),
            (
                "        total += loss.item()\n",
                "        part.zero_()\n        total += loss.item()\n",
            ),
        ),
        honest=(
            ("part[:, 0:5].to(device", "part[:, 0:5].to(device, non_blocking=True"),
            (
                "part[:, 5].unsqueeze(1).to(device",
                "part[:, 5].unsqueeze(1).to(device, non_blocking=True",
            ),
        ),
    ),
    Planted(
        "copy to the host that is read too early",
        "exact",
        seen_as="GPU: output differs.*nan",
        wrong=(("loss.item()", 'float(loss.detach().to("cpu", non_blocking=True))'),),
        honest=(("loss.item()", "float(loss.detach().cpu())"),),
    ),
    Planted(
        "batch size changed",
        "exact",
        seen_as="CPU: output differs",
        wrong=(("BATCH = 16", "BATCH = 32"),),
        honest=(("BATCH = 16", "BATCH = 2 * 8"),),
    ),
    Planted(
        "loader option dropped",
        "exact",
        seen_as="CPU: output differs",
        script=(*TUPLES, ("shuffle=True)", "shuffle=True, drop_last=True)")),
        wrong=(
            (
                (
                    "DataLoader(TensorDataset(table), batch_size=BATCH, shuffle=True, "
                    "drop_last=True)"
                ),
                "runtime.TensorLoader((table,), batch_size=BATCH, shuffle=True)",
            ),
        ),
        honest=(
            ("DataLoader(TensorDataset(table), ", "runtime.TensorLoader((table,), "),
        ),
    ),
    Planted(
        "augmentation once per batch",
        "random",
        seen_as="draws more or less often",
        script=(("DataLoader(table", "DataLoader(Noisy()"),),
        wrong=(
            ("        return augmented(self, row)", "        return row"),
            (
                "    for batch in loader:",
                (
                    "    for batch in loader:\n        if "
                    "random.random() < 0.5:\n            batch[:, 2:4] = -batch[:, 2:4]"
                ),
            ),
        ),
        honest=(("shuffle=True)", "shuffle=True, **runtime.loader_kwargs(device))"),),
    ),
    Planted(
        "workers that all draw the same",
        "random",
        seen_as="random on the GPU: output differs",
        script=(
            ("DataLoader(table", "DataLoader(Noisy()"),
            ("random.random() < 0.5", "dataset.rng.random() < 0.5"),
        ),
        wrong=(("shuffle=True)", "shuffle=True, num_workers=2)"),),
        honest=(("shuffle=True)", "shuffle=True, pin_memory=device.type == 'cuda')"),),
    ),
    Planted(
        "detached loss that is differentiated",
        "exact",
        seen_as="does not require grad",
        script=(
            (
                STEP,
                STEP.replace(
                    "        loss.backward",
                    "        kept = kept * 0.0 + loss\n        kept.backward",
                ),
            ),
            ("optimizer.step()", "optimizer.step()\n        kept = kept.detach()"),
        ),
        wrong=(("+ loss\n", "+ loss.detach()\n"),),
        honest=(("loss.item()", "loss.detach().item()"),),
    ),
    Planted(
        "gradients that are not dropped",
        "exact",
        seen_as="CPU: output differs",
        wrong=(("        optimizer.zero_grad()\n", ""),),
        honest=(("zero_grad()", "zero_grad(set_to_none=True)"),),
    ),
    Planted(
        "BCELoss under autocast",
        "numerics",
        seen_as="unsafe to autocast",
        script=(
            (
                "F.mse_loss(model(x), y)",
                "nn.BCELoss()(torch.sigmoid(model(x)), torch.sigmoid(y))",
            ),
        ),
        wrong=(
            (
                "        loss = nn",
                (
                    "        with torch.autocast(device.type, "
                    "dtype=torch.float16):\n            loss = nn"
                ),
            ),
        ),
        honest=(
            (
                "        loss = nn",
                (
                    "        with torch.autocast(device.type, "
                    "dtype=torch.float16):\n            out = model(x)\n"
                    "        loss = nn"
                ),
            ),
            ("model(x)), t", "out.float()), t"),
        ),
    ),
    Planted(
        "draws of the device called exact",
        "exact",
        seen_as="GPU: output differs",
        script=(
            ("model(x), y", "model(x + noise), y"),
            (
                "        optimizer.zero",
                (
                    "        noise = torch.randn(len(x), 5)"
                    ".to(device)\n        optimizer.zero"
                ),
            ),
        ),
        wrong=(
            (
                "torch.randn(len(x), 5).to(device)",
                "torch.randn(len(x), 5, device=device)",
            ),
        ),
        honest=(
            (
                "torch.randn(len(x), 5).to(device)",
                "torch.randn(len(x), 5, device=device)",
            ),
        ),
        honest_claims="random",
    ),
    Planted(
        "pinning batches of the device",
        "exact",
        seen_as="cannot pin",
        script=(("DataLoader(table", "DataLoader(table.to(device)"),),
        wrong=(("shuffle=True)", "shuffle=True, pin_memory=device.type == 'cuda')"),),
        honest=(("shuffle=True)", "shuffle=True, pin_memory=False)"),),
    ),
    Planted(
        "column of the host and column of the device",
        "exact",
        seen_as="at least two devices",
        wrong=(
            ("y = batch[:, 5].unsqueeze(1).to(device)", "y = batch[:, 5].unsqueeze(1)"),
        ),
        honest=(
            (
                MOVES,
                "        batch = batch.to(device)\n" + MOVES.replace(".to(device)", ""),
            ),
        ),
    ),
)
