"""Which tensors are made from nothing, and what makes their values."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from gpulint.engine import Options, check_source
from gpulint.finding import Effect
from gpulint.registry import select_rules
from gpulint.script.copying.at_creation import effect_of
from gpulint.script.copying.creations import (
    creation,
    inexact_method,
    is_integer,
    is_literal,
    is_numpy_factory,
)
from gpulint.source import Source

from .code import with_last


@pytest.mark.parametrize(
    "text, name",
    [
        ("torch.zeros(3)", "zeros"),
        ("torch.zeros(n, 4).float().unsqueeze(0)", "zeros"),
        ("torch.autograd.Variable(torch.ones(3))", "ones"),
        ("torch.autograd.Variable(torch.ones(3)).view(-1)", "ones"),
        ("torch.empty(3).uniform_(0, 1)", "empty"),
        ("torch.tensor(3)", "tensor"),
        ("torch.tensor([-2.0, -2.0])", "tensor"),
        ("lr = 0.1\ntorch.tensor([lr, lr])", "tensor"),
        ("x = torch.zeros(3)\ntorch.ones_like(x)", "ones_like"),
        ("torch.FloatTensor(3, 4)", "FloatTensor"),
        ("torch.FloatTensor([1, 2])", "FloatTensor"),
        ("torch.from_numpy(np.ones(3))", "from_numpy"),
        ("torch.tensor(np.random.randn(3).astype('float32'))", "tensor"),
        ("x = torch.arange(3)\ntorch.cat([x, torch.zeros(3)])", "cat"),
        ("x = torch.arange(3)\nz = torch.zeros(3)\ntorch.stack((x, z))", "stack"),
    ],
)
def test_is_made_from_nothing(text: str, name: str) -> None:
    script, node = with_last(text)
    made = creation(script, node)
    assert made is not None
    assert made.name == name
    assert made.numpy is ("np." in text)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "model(x)",
        "x.view(-1)",
        "torch.zeros(3).add(x)",
        "torch.zeros(3, device='cuda')",
        "torch.zeros(3, out=x)",
        "torch.zeros(3, pin_memory=True)",
        "torch.tensor(x)",
        "torch.tensor([1, 'a'])",
        "torch.tensor([])",
        "torch.tensor([1.0, -2.0])",
        "torch.tensor([[1.0, 1.0]])",
        "lr = 0.1\ntorch.tensor([lr, 1])",
        "torch.tensor(rows, n)",
        "torch.ones_like(x)",
        "torch.FloatTensor()",
        "torch.FloatTensor(rows)",
        "torch.FloatTensor([1], 2)",
        "x = torch.arange(3)\ntorch.full((2,), x)",
        "torch.cat(parts)",
        "torch.cat([x, torch.zeros(3)])",
        "x = torch.from_numpy(rows)\ntorch.cat([x, x.view(-1)])",
        "torch.from_numpy(rows)",
        "torch.from_numpy(np.random.default_rng(1))",
    ],
)
def test_is_not_made_from_nothing(text: str) -> None:
    script, node = with_last(text)
    assert creation(script, node) is None


@pytest.mark.parametrize(
    "text, drawn",
    [
        ("torch.rand(3)", True),
        ("torch.zeros(3)", False),
        ("torch.empty(3).normal_()", True),
        ("torch.empty(3).fill_(1)", False),
    ],
)
def test_draws_its_values(text: str, drawn: bool) -> None:
    script, node = with_last(text)
    made = creation(script, node)
    assert made is not None
    assert made.random is drawn


@pytest.mark.parametrize(
    "text, expected",
    [
        ("np.zeros(3)", True),
        ("np.zeros(3).reshape(1, 3)", True),
        ("np.random.rand(3)", True),
        ("np.random.seed(3)", False),
        ("np.load(path)", False),
        ("rows", False),
    ],
)
def test_numpy_makes_the_values(text: str, expected: bool) -> None:
    script, node = with_last(text)
    assert is_numpy_factory(script, node) is expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("3", True),
        ("True", False),
        ("2.5", False),
        ("-3", True),
        ("2 * n - 1", False),
        ("2 * 3 // 4", True),
        ("4 / 2", False),
        ("x.shape[0]", True),
        ("x.size()[0]", True),
        ("x.rows()[0]", False),
        ("x[0]", False),
        ("x.size(0)", True),
        ("x.size()", False),
        ("x.numel()", True),
        ("len(x)", True),
        ("round(x)", False),
        ("n = len(x)\nn", True),
        ("n = len(x)\nif c:\n  n = 2.5\nn", False),
        ("n", False),
        ("for n in rows:\n  a = 1\nn", False),
        ("a = 1\nb = a + 0\nc = b + 0\nd = c + 0\ne = d + 0\nf = e + 0\nf", False),
        ("rows.n", False),
    ],
)
def test_is_an_integer(text: str, expected: bool) -> None:
    script, node = with_last(text)
    assert is_integer(script, node) is expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("[1, (2.5, -3)]", True),
        ("[1, 'a']", False),
        ("lr = 0.1\nlr", True),
        ("lr", False),
        ("mode = 'a'\nmode", False),
    ],
)
def test_is_numbers_written_in_place(text: str, expected: bool) -> None:
    script, node = with_last(text)
    assert is_literal(script, node) is expected


@pytest.mark.parametrize(
    "text, method",
    [
        ("torch.zeros(3).float().view(-1)", None),
        ("torch.zeros(3).to(torch.float16)", None),
        ("torch.zeros(3).to(x.dtype)", None),
        ("torch.zeros(3).type(torch.float16)", None),
        ("torch.zeros(3).type(x.dtype)", None),
        ("torch.zeros(3).type('torch.FloatTensor')", "type"),
        ("torch.zeros(3).type(dtype)", "type"),
        ("torch.zeros(3).to(x)", "to"),
        ("torch.zeros(3).to(torch.float16, copy=True)", "to"),
        ("torch.zeros(3).requires_grad_()", "requires_grad_"),
    ],
)
def test_method_that_may_need_the_host(text: str, method: str | None) -> None:
    script, node = with_last(text)
    assert isinstance(node, ast.Call)
    made = creation(script, node)
    assert made is not None
    assert inexact_method(script, made) == method


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.float16, torch.int64])
@pytest.mark.parametrize("number", [0, 3, True, -0.5, 0.1, 3.7, 65504.0, float("inf")])
def test_full_makes_what_tensor_makes(number: float, dtype: torch.dtype | None) -> None:
    if dtype is torch.int64 and number == float("inf"):
        return  # both refuse it
    for one, other in (
        (torch.tensor(number, dtype=dtype), torch.full((), number, dtype=dtype)),
        (
            torch.tensor([number] * 3, dtype=dtype),
            torch.full((3,), number, dtype=dtype),
        ),
    ):
        assert one.dtype is other.dtype
        assert torch.equal(one, other)


def test_full_refuses_what_does_not_fit() -> None:
    assert torch.tensor(1e40).isinf()
    with pytest.raises(RuntimeError):
        torch.full((), 1e40)


@pytest.mark.parametrize(
    "arguments, effect",
    [
        ("n", Effect.EXACT),
        ("end=n", Effect.EXACT),
        ("n, dtype=torch.float32", Effect.EXACT),
        ("n, dtype=torch.float64", Effect.EXACT),
        ("n, dtype=torch.uint8", Effect.EXACT),
        ("2, 8, 3", Effect.EXACT),
        ("2, end=8, step=3", Effect.EXACT),
        ("2, 8, dtype=torch.int32", Effect.EXACT),
        ("2, 8, dtype=torch.float32", Effect.EXACT),
        ("2, 2**25, dtype=torch.float32", Effect.NUMERICS),
        ("2, 33554432, 3, dtype=torch.float32", Effect.NUMERICS),
        ("2, n, dtype=torch.float32", Effect.NUMERICS),
        ("n, dtype=torch.bfloat16", Effect.NUMERICS),
        ("n, dtype=x.dtype", Effect.NUMERICS),
        ("0.3, end=20, step=0.1", Effect.NUMERICS),
        ("0, 1, step=0.01", Effect.NUMERICS),
        ("start=0.5, end=20", Effect.NUMERICS),
        ("end=n, step=0.1", Effect.NUMERICS),
        ("n, step=0.1", Effect.NUMERICS),
        ("*sizes", Effect.NUMERICS),
        ("n, **options", Effect.NUMERICS),
    ],
)
def test_ranges_that_are_the_same_on_each_device(
    arguments: str, effect: Effect
) -> None:
    script, node = with_last(f"torch.arange({arguments})")
    made = creation(script, node)
    assert made is not None
    assert effect_of(script, made) is effect


@pytest.mark.parametrize("numbers", [7, 7.5, 70_000, 2**24 + 9.0])
def test_counts_are_rounded_once(numbers: float) -> None:
    """As on a GPU, where each is computed for itself; not in half precision."""
    counted = torch.arange(numbers, dtype=torch.float32)
    each = torch.arange(len(counted), dtype=torch.float64).to(torch.float32)
    assert torch.equal(counted, each)


@pytest.mark.parametrize("newest, number", [((1, 8), 0), ((1, 9), 1), (None, 1)])
def test_an_order_that_old_devices_drew_on_the_host(
    newest: tuple[int, int] | None, number: int
) -> None:
    text = """\
import torch

device = torch.device("cuda")
for x, y in torch.load("batches.pt"):
    order = torch.randperm(x.size(0)).to(device)
    loss = model(x.to(device)[order]).sub(y.to(device)).square().mean()
    loss.backward()
    optimizer.step()
"""
    options = Options(select_rules(("GPU104",)), newest_torch=newest)
    assert len(check_source(Source(Path("a.py"), text), options).findings) == number
