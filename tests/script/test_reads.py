"""Where a tensor that goes on its way may be changed in place."""

from __future__ import annotations

import pytest

from gpulint.script.reads import changed_at

from .code import marked, script_of

SCALE = """
def scale(value, factor, *, bias=None):
    shifted = value.view(-1) + factor
    return shifted if bias is None else shifted + bias
"""
CLEAR = """
def clear(value, other=None):
    value.zero_()
    return other
"""
NET = """
class Net(nn.Module):
    def forward(self, x, mask):
        x.{}
        return torch.relu(x) * mask
net = Net()
"""
LOSS = "crit = nn.CrossEntropyLoss()\n"


@pytest.mark.parametrize(
    "text",
    [
        "y = moved + 1",
        "y = -moved",
        "y = moved > 0",
        "moved",
        "text = f'{moved}'",
        "total += moved",
        "y = table[moved]",
        "y = table[moved, 1]",
        "y = moved[0] * 2",
        "y = moved.T @ x",
        "print(moved.shape)",
        "n = moved.size(0)",
        "n = moved.item()",
        "y = moved.float().view(-1) + 1",
        "print(moved)",
        "y = torch.relu(moved)",
        "y = torch.cat([x, moved])",
        "y = torch.reshape(moved, (-1,)) + 1",
        "y = F.cross_entropy(x, y, weight=moved)",
        "crit = nn.CrossEntropyLoss(weight=moved)",
        LOSS + "loss = crit(moved, y)",
        "x = torch.zeros(3, device='cuda')\ny = x.add(moved)",
        SCALE + "y = scale(moved, 2)",
        SCALE + "y = scale(x, factor=moved)",
        SCALE + "y = scale(x, 2, bias=moved)",
        NET.format("size(0)") + "y = net(moved, mask)",
        "y = moved\nz = y + 1\nw = y[0] * 2",
        "y = moved\ny = 3",
    ],
)
def test_is_only_read(text: str) -> None:
    script = script_of(text)
    assert changed_at(script, marked(script, "moved")) is None


@pytest.mark.parametrize(
    "text, where",
    [
        ("moved[0] = 1", "moved[0]"),
        ("moved.add_(1)", "moved.add_"),
        ("moved.data.zero_()", "moved.data.zero_"),
        ("moved.view(-1).zero_()", "moved.view(-1).zero_"),
        ("moved.register_hook(print)", "moved.register_hook"),
        ("table = moved.numpy()", "moved.numpy"),
        ("keep = moved.grad", "moved.grad"),
        ("self.kept = moved", "self.kept"),
        ("kept = [moved]", "[moved]"),
        ("kept.append([moved])", "[moved]"),
        ("kept = {'w': moved}", "{'w': moved}"),
        ("parts = torch.chunk(moved, 2)\nparts[0].zero_()", "parts[0].zero_"),
        ("y = torch.autograd.Variable(moved)\ny.zero_()", "y.zero_"),
        ("torch.add(x, 1, out=moved)", "torch.add(x, 1, out=moved)"),
        ("F.relu(moved, inplace=True)", "F.relu(moved, inplace=True)"),
        ("F.relu(moved, True)", "F.relu(moved, True)"),
        ("nn.init.zeros_(moved)", "nn.init.zeros_(moved)"),
        ("w = nn.Parameter(moved)", "nn.Parameter(moved)"),
        ("e = nn.Embedding.from_pretrained(moved)", "nn.Embedding.from_pretrained(moved)"),
        ("opt = torch.optim.SGD([moved], lr=0.1)", "[moved]"),
        ("data = torch.utils.data.TensorDataset(moved)", "torch.utils.data.TensorDataset(moved)"),
        ("x = torch.zeros(3, device='cuda')\nx.add_(moved)", "x.add_(moved)"),
        ("y = unknown(moved)", "unknown(moved)"),
        ("y = [*moved]", "moved"),
        (SCALE + "y = scale(*moved)", "scale(*moved)"),
        (SCALE + "y = scale(x, 2, 3, moved)", "scale(x, 2, 3, moved)"),
        (SCALE + "y = scale(x, 2, **moved)", "scale(x, 2, **moved)"),
        (CLEAR + "clear(moved)", "value.zero_"),
        (CLEAR + "y = clear(x, other=moved)", "return other"),
        (NET.format("clamp_(0)") + "y = net(moved, mask)", "x.clamp_"),
        ("y = moved\ny += 1", "y"),
        ("y = z = moved\nz.zero_()", "z.zero_"),
        ("y = moved\n" + "y = y.view(-1)\n" * 6, "y"),
        ("def step():\n  global kept\n  kept = moved", "kept"),
        ("def step():\n  y = moved\n  def inner():\n    return y\n  return inner", "y"),
    ],
)  # fmt: skip
def test_may_be_changed(text: str, where: str) -> None:
    script = script_of(text)
    found = changed_at(script, marked(script, "moved"))
    assert found is not None
    assert script.text(found).strip() == where
