"""Helpers that rewritten scripts call in a step, under torch.compile."""

from __future__ import annotations

import numpy as np
import torch

from gpulint import runtime


def step(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    x = runtime.to_device({"x": [x]}, device)["x"][0]
    dtype = runtime.amp_dtype(device)
    with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
        loss = (x @ x).sum()
    total = torch.zeros((), dtype=runtime.accumulator_dtype(device), device=device)
    return total + loss


def test_a_step_compiles_in_one_piece() -> None:
    compiled = torch.compile(step, backend="eager", fullgraph=True)
    x, device = torch.ones(3, 3), torch.device("cpu")
    assert torch.equal(compiled(x, device), step(x, device))
    assert "amp: off on cpu" in runtime.explain()


def test_a_step_reads_a_resident_array() -> None:
    bank = runtime.resident(np.arange(6.0), "cpu")
    compiled = torch.compile(lambda x: x + bank[[1, 2]], backend="eager")
    assert compiled(torch.zeros(2, dtype=torch.float64)).tolist() == [1, 2]
