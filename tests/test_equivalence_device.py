"""The pretended GPU does what a GPU does, and the scenarios train on it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from equivalence import support

if (why := support.missing()) is not None:
    pytest.skip(why, allow_module_level=True)

from equivalence import compare
from equivalence.runner import shared_runner
from equivalence.situation import AMPERE, TURING, Outcome, Situation

SCRIPTS = Path(__file__).parent.parent / "fixtures" / "scripts"
GPU = Situation(gpu=AMPERE)

MOVES = """
import torch
from torch import nn

assert torch.cuda.is_available() and torch.cuda.device_count() == 1
x = torch.arange(12.0).reshape(3, 4)
for moved in (x.to("cuda"), x.cuda(), x.to(torch.device("cuda", 0)), x[:].to("cuda")):
    assert moved.is_cuda and str(moved.device) == "cuda:0"
    moved.zero_()
assert x.sum() == 66.0
there = x.to("cuda")
assert there.to("cuda") is there and there.cuda() is there
assert x.to("cpu") is x
assert x[:, 1:3].to("cuda").stride() == (2, 1)
assert there[:, 1:3].stride() == (4, 1)
back = there.cpu()
back.zero_()
assert there.sum().item() == 66.0
assert torch.tensor([1.0, 2.0], device="cuda").tolist() == [1.0, 2.0]
assert torch.zeros_like(there).is_cuda and not torch.zeros(2).is_cuda
assert f"{there.mean():.2f}" == "5.50"
assert "device='cuda:0'" in repr(there)

model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
weights = list(model.parameters())
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
model.to("cuda").to("cuda")
assert all(a is b and a.is_cuda for a, b in zip(weights, model.parameters()))
model(there).sum().backward()
assert weights[0].grad.is_cuda
optimizer.step()
torch.save(model.state_dict(), "model.pt")
model.load_state_dict(torch.load("model.pt"))
assert model[0].weight is weights[0]
"""

REFUSED = """
import torch

there = torch.ones(3, device="cuda")
cases = {
    "same device": lambda: there + torch.ones(3),
    "pinned": lambda: there.pin_memory(),
    "numpy": lambda: there.numpy(),
}
for text, wrong in cases.items():
    try:
        wrong()
    except (RuntimeError, TypeError) as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
assert (there + torch.tensor(1.0)).is_cuda  # a number of the host is fine
assert there[torch.tensor([0, 1])].is_cuda  # so is an index
"""

LATE = """
import torch

source = torch.ones(3)
there = source.to("cuda", non_blocking=True)  # not pinned: read at once
source.zero_()
assert there.sum().item() == 3.0
pinned = torch.ones(3).pin_memory()
assert pinned.is_pinned() and pinned[1:].is_pinned() and not source.is_pinned()
assert torch.empty(2, pin_memory=True).is_pinned()
there = pinned.to("cuda", non_blocking=True)
back = there.to("cpu", non_blocking=True)
assert torch.isnan(back).all()
torch.cuda.synchronize()
assert back.tolist() == [1.0, 1.0, 1.0]
pinned.zero_()
assert there.sum().item() == 3.0
there = pinned.to("cuda", non_blocking=True)
pinned.fill_(2.0)
there.sum().item()
"""

NUMBERS = """
import torch

torch.manual_seed(0)
host = torch.rand(3)
torch.manual_seed(0)
there = torch.rand(3, device="cuda")
assert torch.equal(host, torch.rand(3))  # the device has not drawn from the host's
torch.manual_seed(0)
assert torch.equal(there, torch.rand(3, device="cuda"))
assert not torch.equal(there.cpu(), host)
"""

UNWRITTEN = """
import torch

there = torch.ones(3, device="cuda")
made = [torch.empty(3, device="cuda"), torch.empty_like(there), there.new_empty(2)]
assert all(torch.isnan(memory).all() for memory in made)
assert (torch.empty(3, dtype=torch.long, device="cuda") > 2**62).all()
assert torch.isnan(torch.empty(2, dtype=torch.complex64, device="cuda")).all()
assert torch.empty(3, device="cuda").zero_().tolist() == [0.0] * 3
"""

# The dtypes of results under CUDA autocast, and what it refuses.
DTYPES = """
import torch
import torch.nn.functional as F
from torch import nn

SETUP
calls = {
    "linear": lambda: F.linear(x, x),
    "conv": lambda: F.conv2d(x[None, None], x[None, None, :3, :3]),
    "matmul": lambda: x @ half,
    "add": lambda: half + x,
    "relu": lambda: half.relu(),
    "softmax": lambda: half.softmax(1),
    "layer norm": lambda: F.layer_norm(half, (8,)),
    "batch norm": lambda: F.batch_norm(half, None, None, training=True),
    "mse": lambda: F.mse_loss(half, x),
    "cross entropy": lambda: F.cross_entropy(half, torch.zeros_like(x[0]).long()),
    "bce": lambda: F.binary_cross_entropy(half.sigmoid(), x.sigmoid()),
    "bce with logits": lambda: F.binary_cross_entropy_with_logits(half, x),
    "sum": lambda: half.sum(),
    "exp": lambda: half.exp(),
    "cat": lambda: torch.cat([half, x]),
    "dot": lambda: torch.dot(half[0], x[0]),
    "pow": lambda: half ** 2,
    "norm": lambda: half.norm(),
}
for dtype in (torch.float16, torch.bfloat16):
    for name, call in calls.items():
        with casts(dtype):
            half = F.linear(x, x)
            try:
                print(dtype, name, call().dtype)
            except RuntimeError as error:
                print(dtype, name, str(error)[:100])
"""
ON_GPU = """
x = torch.full((8, 8), 0.1, device="cuda")
casts = lambda dtype: torch.autocast("cuda", dtype=dtype)
"""
ON_FAKE = """
from contextlib import contextmanager
from torch._subclasses.fake_tensor import FakeTensorMode

mode = FakeTensorMode(allow_non_fake_inputs=True)
with mode:
    x = torch.empty(8, 8, device="cuda:0")

@contextmanager
def casts(dtype):
    with mode:
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", dtype)
        torch.autocast_increment_nesting()
        try:
            yield
        finally:
            torch.autocast_decrement_nesting()
            torch.clear_autocast_cache()
            torch.set_autocast_enabled("cuda", False)
"""

# The scenarios with less data; every edit must stand in the script.
SMALLER = {
    "pm25": (
        ("(4200", "(460"),
        ("[:3000]", "[:320]"),
        ("3000:3600", "320:390"),
        ("3600:", "390:"),
    ),
    "ionosphere": (('"tracks": 24', '"tracks": 4'),),
}


def run(script: str, situation: Situation = GPU) -> Outcome:
    return shared_runner().run(script, situation)


@pytest.mark.parametrize("script", [MOVES, REFUSED, NUMBERS, UNWRITTEN])
def test_the_pretended_gpu_is_one(script: str) -> None:
    assert run(script).error == ""


def test_copies_that_are_not_waited_for_are_late() -> None:
    error = run(LATE).error
    assert "Race: a pinned source changed before its copy was done" in error
    assert run(LATE.replace("pinned.fill_(2.0)\n", "")).error == ""


def test_without_a_gpu_there_is_none() -> None:
    script = "import torch\nassert not torch.cuda.is_available()\n"
    assert run(script, Situation()).error == ""
    assert run(script).error


def test_autocast_is_that_of_cuda() -> None:
    pretended = run(DTYPES.replace("SETUP", ON_GPU))
    fake = run(DTYPES.replace("SETUP", ON_FAKE), Situation())
    assert (pretended.error, fake.error) == ("", "")
    assert pretended.output == fake.output
    assert any("unsafe to autocast" in line for line in pretended.output)


def smaller(name: str, file: str) -> str:
    text = (SCRIPTS / name / file).read_text("utf-8")
    for old, new in SMALLER[name]:
        assert old in text, old
        text = text.replace(old, new)
    return text


@functools.cache
def scenario(name: str, file: str, gpu: tuple[int, int] = AMPERE) -> Outcome:
    situation = Situation(
        gpu=gpu,
        arguments=("--epochs", "1", "--json"),
        environment={"GPULINT_NUM_WORKERS": "1"},
        timeout=300,
    )
    outcome = run(smaller(name, file), situation)
    assert outcome.error == ""
    return outcome


@pytest.mark.parametrize("name", SMALLER)
def test_exact_fixes_of_scenarios_are_exact_on_a_gpu(name: str) -> None:
    before, after = scenario(name, "before.py"), scenario(name, "after.exact.py")
    assert before.losses == after.losses
    compare.same(before.weights, after.weights, "weights")
    compare.same(before.random, after.random, "random generators")
    assert after.waits < before.waits


@pytest.mark.parametrize("gpu", [AMPERE, TURING], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", SMALLER)
def test_all_fixes_of_scenarios_train_on_a_gpu(name: str, gpu: tuple[int, int]) -> None:
    before, after = scenario(name, "before.py"), scenario(name, "after.all.py", gpu)
    # float16 leaves out the first steps of this one epoch, until the scale does not
    # overflow; after six epochs of pm25 its loss is within 3 % again
    assert 0.5 < after.losses[0] / before.losses[0] < 2.0
    room = 0.15 if gpu == AMPERE else 0.3
    assert after.losses[-1] == pytest.approx(before.losses[-1], rel=room)
