"""The equivalence harness turns red on wrong rewrites and green on right ones."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import pytest
from equivalence import (
    RunResult,
    ScriptFailed,
    assert_same_losses,
    read_expected,
    run_script,
)

SCENARIOS = Path(__file__).resolve().parent.parent / "fixtures" / "scripts"

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
run = functools.cache(run_script)

# Columns that overlap, moved one by one or at once, then scaled in place or anew.
COLUMNS = """
import json
import torch

torch.manual_seed(0)
device = torch.device("cpu")
weight = torch.randn(4, 1, requires_grad=True)
losses = []
for batch in [torch.randn(8, 5) for _ in range(6)]:
    MOVES
    SCALED
    loss = (coords @ weight + lat.unsqueeze(1) - target).pow(2).mean()
    [gradient] = torch.autograd.grad(loss, weight)
    weight.data.sub_(0.1 * gradient)
    losses.append(loss.item())
print(json.dumps({"losses": losses, "samples": 48, "seconds": 0.0}))
"""
ONE_BY_ONE = """lat = batch[:, 0].to(device)
    coords = batch[:, 0:4].to(device)
    target = batch[:, 4].unsqueeze(1).to(device)"""
AT_ONCE = """batch = batch.to(device)
    lat = batch[:, 0]
    coords = batch[:, 0:4]
    target = batch[:, 4].unsqueeze(1)"""
IN_PLACE = "lat.mul_(0.1)"
NEW_TENSOR = "lat = lat * 0.1"

# Scales on the host that are moved to the device, in the loop or before it.
SCALES = """
import json
import torch

torch.manual_seed(0)
device = torch.device("cpu")
weight = torch.randn(3, 3, requires_grad=True)
scales = torch.tensor([1.0, 2.0, 3.0])
losses = []
BEFORE
for x in [torch.randn(8, 3) for _ in range(6)]:
    INSIDE
    loss = ((x.to(device) @ weight).pow(2) * moved).mean()
    [gradient] = torch.autograd.grad(loss, weight)
    weight.data.sub_(0.1 * gradient)
    losses.append(loss.item())
    UPDATE
print(json.dumps({"losses": losses, "samples": 48, "seconds": 0.0}))
"""
MOVE = "moved = scales.to(device)"
DECAY = "scales.mul_(0.9)"

COPIES = """
import json
import numpy as np
import torch
from torch import nn

x = torch.arange(5040.0).reshape(8, 9, 10, 7)
image = x.contiguous(memory_format=torch.channels_last)
cases = {
    "dense": x,
    "column": x[:, 0],
    "slice": x[:, 0:2],
    "unsqueezed column": x[:, 4].unsqueeze(1),
    "steps": x[::2],
    "transposed": x.transpose(0, 3),
    "transposed steps": x.transpose(0, 1)[:, ::2],
    "permuted slice": x.permute(3, 1, 0, 2)[..., 1:4],
    "expanded": torch.ones(3, 1).expand(3, 4),
    "channels last": image,
    "channels last slice": image[:, :3],
    "scalar": torch.tensor(1.0),
    "empty": x[:0, :, 1],
}
device = torch.device("cpu")
for name, tensor in cases.items():
    for moved in (
        tensor.to(device),
        tensor.to("cpu", torch.float32),
        tensor.to(device=device, non_blocking=True),
        tensor.to(torch.ones(1)),
        tensor.cuda(),
        tensor.cpu(),
    ):
        assert moved is not tensor, name
        assert moved.numel() == 0 or moved.data_ptr() != tensor.data_ptr(), name
        assert moved.stride() == tensor.to("meta").stride(), name
        assert torch.equal(moved, tensor), name
    assert tensor.to(torch.float32) is tensor, name
    assert tensor.to(dtype=torch.float32) is tensor, name

assert x.to(device, torch.float64).dtype is torch.float64
array = np.zeros(3)
assert not np.shares_memory(torch.as_tensor(array, device=device).numpy(), array)
assert np.shares_memory(torch.as_tensor(array).numpy(), array)

leaf = torch.ones(3, requires_grad=True)
moved = leaf.to(device)
assert not moved.is_leaf
moved.sum().backward()
assert leaf.grad.tolist() == [1.0, 1.0, 1.0]

model = nn.BatchNorm1d(3)
tensors = dict(model.state_dict(keep_vars=True))
for same in (model.to(device), model.cuda(), model.cpu()):
    assert same is model
    for name, tensor in model.state_dict(keep_vars=True).items():
        assert tensor is tensors[name], name
assert not torch.cuda.is_available()
print(json.dumps({"losses": []}))
"""


def columns(moves: str, scaled: str) -> str:
    """The column script with these lines in its loop."""
    return COLUMNS.replace("MOVES", moves).replace("SCALED", scaled)


def in_loop(update: str) -> str:
    """The scales are moved in every step."""
    script = SCALES.replace("BEFORE", "").replace("INSIDE", MOVE)
    return script.replace("UPDATE", update)


def hoisted(update: str) -> str:
    """The scales are moved once."""
    script = SCALES.replace("BEFORE", MOVE).replace("INSIDE", "pass")
    return script.replace("UPDATE", update)


def result(*losses: float) -> RunResult:
    """A run with these losses."""
    return RunResult(losses, samples=1, seconds=1.0, stdout="", stderr="")


@needs_torch
def test_one_move_of_columns_that_are_changed_in_place_is_red() -> None:
    before = run(columns(ONE_BY_ONE, IN_PLACE))
    after = run(columns(AT_ONCE, IN_PLACE))
    with pytest.raises(AssertionError, match="losses differ from index 0 on"):
        assert_same_losses(before, after)


@needs_torch
def test_without_copies_the_same_rewrite_looks_right() -> None:
    before = run(columns(ONE_BY_ONE, IN_PLACE), moves_copy=False)
    after = run(columns(AT_ONCE, IN_PLACE), moves_copy=False)
    assert_same_losses(before, after)


@needs_torch
def test_one_move_of_columns_that_are_only_read_is_green() -> None:
    before = run(columns(ONE_BY_ONE, NEW_TENSOR))
    after = run(columns(AT_ONCE, NEW_TENSOR))
    assert len(before.losses) == 6
    assert_same_losses(before, after)


@needs_torch
def test_hoisted_move_of_scales_that_the_loop_changes_is_red() -> None:
    before, after = run(in_loop(DECAY)), run(hoisted(DECAY))
    # the first step still sees the first scales
    with pytest.raises(AssertionError, match="losses differ from index 1 on"):
        assert_same_losses(before, after)


@needs_torch
def test_hoisted_move_of_constant_scales_is_green() -> None:
    assert_same_losses(run(in_loop("pass")), run(hoisted("pass")))


@needs_torch
def test_moves_copy_with_the_strides_of_a_real_move() -> None:
    run(COPIES)


def test_losses_are_compared_bit_for_bit() -> None:
    nan = float("nan")
    assert_same_losses(result(0.1, nan), result(0.1, nan))
    with pytest.raises(AssertionError, match=r"index 1 .*: 0.3 before, 0.30000"):
        assert_same_losses(result(0.1, 0.3), result(0.1, 0.1 + 0.2))
    with pytest.raises(AssertionError, match="index 0"):
        assert_same_losses(result(0.0), result(-0.0))
    with pytest.raises(AssertionError, match="2 losses before, 1 after"):
        assert_same_losses(result(0.1, 0.2), result(0.1))


def test_script_gets_its_arguments_environment_and_an_empty_folder() -> None:
    script = """
import json, os, sys
assert sys.argv[1:] == ["--epochs", "2", "--json"], sys.argv
assert os.environ["GPULINT_RUNTIME"] == "off"
assert os.listdir() == ["script.py"]
print("epoch 1")
print(json.dumps({"losses": [0.5], "samples": 3, "seconds": 0.25}))
"""
    done = run_script(script, args=["--epochs", "2"], env={"GPULINT_RUNTIME": "off"})
    assert (done.losses, done.samples, done.seconds) == ((0.5,), 3, 0.25)
    assert done.stdout.startswith("epoch 1")


def test_script_that_fails_is_shown(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('shapes do not match')\n")
    with pytest.raises(ScriptFailed, match=r"(?s)broken.py .*shapes do not match"):
        run_script(broken)
    with pytest.raises(ScriptFailed, match=r"(?s)no losses .*done"):
        run_script("print('done')\n")
    with pytest.raises(ScriptFailed, match="did not end within"):
        run_script("import time; time.sleep(60)\n", timeout=0.5)


@pytest.mark.parametrize("name", ["faces", "ionosphere", "pm25"])
def test_expected_findings_name_lines_of_the_script(name: str) -> None:
    lines = (SCENARIOS / name / "before.py").read_text("utf-8").splitlines()
    expected = read_expected(SCENARIOS / name / "expected.md")
    assert expected
    assert len(set(expected)) == len(expected)
    for finding in expected:
        if finding.line is not None:
            assert lines[finding.line - 1].strip(), finding
