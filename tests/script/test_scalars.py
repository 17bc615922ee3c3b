"""Which tensors have no dimensions, hold floats or hold whole numbers, for certain."""

from __future__ import annotations

import pytest

from .code import with_last

LOSS_CLASS = """
class Focal(nn.Module):
    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma
    def forward(self, x, y):
        error = F.cross_entropy(x, y)
        return ((1 - torch.exp(-error)) ** self.gamma_of() * error).mean()
"""
PER_SAMPLE = """
class PerSample(nn.Module):
    def forward(self, x, y):
        return (x - y).square()
"""
DEEP = "a0 = x.mean()\n" + "".join(f"a{n + 1} = a{n} + 1\n" for n in range(9))


@pytest.mark.parametrize(
    "text",
    [
        "1.5",
        "len(loader)",
        "x.mean() / 2",
        "-x.sum()",
        "x.mean().data",
        "x.sum(dtype=torch.float64)",
        "torch.max(x)",
        "torch.sqrt(torch.mean(x))",
        "x.norm().detach().cpu()",
        "F.cross_entropy(x, y)",
        "F.mse_loss(x, y, reduction='sum')",
        "F.kl_div(x, y, reduction='batchmean')",
        "how = 'sum'\nF.mse_loss(x, y, reduction=how)",
        "a = x.mean()\na += y.mean()\na",
        "def rmse(x, y):\n  return torch.sqrt(F.mse_loss(x, y))\nrmse(a, b)",
        "crit = nn.CrossEntropyLoss()\ncrit(x, y)",
        "crit = nn.MSELoss(reduction='mean').to(device)\ncrit(x, y)",
        "crit = nn.L1Loss().to(device).cuda()\ncrit(x, y)",
        LOSS_CLASS + "crit = Focal(2)\ncrit(x, y)",
    ],
)
def test_has_no_dimensions(text: str) -> None:
    script, node = with_last(text)
    assert script.scalars.without_dimensions(node)


@pytest.mark.parametrize(
    "text",
    [
        "'text'",
        "[1, 2]",
        "x",
        "x[0]",
        "x.mean(0)",
        "x.mean(dim=1)",
        "torch.max(x, 1)",
        "torch.sum(x, dim=0)",
        "torch.sum(*given)",
        "torch.abs(x)",
        "torch.add(x.mean(), y)",
        "x.mean() + y",
        "x.softmax(1)",
        "F.relu(x)",
        "F.mse_loss(x, y, reduction='none')",
        "F.mse_loss(x, y, reduce=False)",
        "F.cross_entropy(x, y, **options)",
        "F.cross_entropy(*pair)",
        "F.mse_loss(x, y, None, None, 'none')",
        "F.mse_loss(x, y, reduction=how)",
        "a, b = pair(x)\na",
        "for a in rows:\n  b = 1\na",
        "x.clone()",
        "def pairs(x):\n  return x - 1\npairs(a)",
        "def maybe(x):\n  if c:\n    return\n  return x.mean()\nmaybe(a)",
        "crit = nn.CrossEntropyLoss(reduction='none')\ncrit(x, y)",
        "crit = make_loss()\ncrit(x, y)",
        "made = nn.MSELoss()\ncrit = made.to(device)\ncrit(x, y)",
        "net = nn.Linear(2, 2)\nnet(x)",
        PER_SAMPLE + "crit = PerSample()\ncrit(x, y)",
        DEEP + "a9",
    ],
)
def test_may_have_dimensions(text: str) -> None:
    script, node = with_last(text)
    assert not script.scalars.without_dimensions(node)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x / 2", True),
        ("x.mean() * n", True),
        ("x + y", False),
        ("F.mse_loss(x, y)", True),
        ("F.relu(x)", False),
        ("torch.mean(x)", True),
        ("x.float().sum()", True),
        ("x.double().detach().cpu()", True),
        ("x.mean().long()", False),
        ("x.mean().to(dtype)", False),
        ("a = x.mean()\na", True),
        ("a = x.mean()\na = a.sum() if c else n\na", False),
        ("a = x.mean()\nif c:\n  a, b = counts(x)\na", False),
        ("a", False),
        ("x[0]", False),
        ("crit = nn.MSELoss()\ncrit(x, y)", True),
        ("crit = nn.Linear(1, 1)\ncrit(x)", False),
        ("crit(x, y)", False),
        (DEEP + "a9", False),
    ],
)
def test_holds_floats(text: str, expected: bool) -> None:
    script, node = with_last(text)
    assert script.scalars.floating(node) is expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x == y", True),
        ("((x == y) & (y > 0)).sum()", True),
        ("(x == y) - (x > y)", False),
        ("(~(x == y)).sum()", True),
        ("-(x == y)", False),
        ("(x == y).data", True),
        ("(x == y)[mask].sum()", True),
        ("hits = x.eq(y)\nhits.sum()", True),
        ("hits = x.eq(y)\nif c:\n  hits = x\nhits.sum()", False),
        ("hits, n = pair(x)\nhits", False),
        ("torch.eq(x, y).view(-1)", True),
        ("torch.count_nonzero(x)", True),
        ("torch.sum(x == y)", True),
        ("torch.sum(x)", False),
        ("torch.sum(x == y, dtype=torch.float32)", False),
        ("torch.mean(x == y)", False),
        ("(x == y).sum(dtype=torch.float32)", False),
        ("(x == y).to(torch.float32).sum()", False),
        ("(x == y).to(dtype=torch.float32).sum()", False),
        ("(x == y).to('cpu').sum()", True),
        ("(x == y).float()", False),
        ("x.long().sum()", True),
        ("x.count_nonzero()", True),
        ("count(x)", False),
        ("x", False),
        (DEEP.replace("x.mean()", "x == y") + "a9", False),
    ],
)
def test_holds_whole_numbers(text: str, expected: bool) -> None:
    script, node = with_last(text)
    assert script.scalars.whole(node) is expected
