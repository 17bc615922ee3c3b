"""What is float32 under autocast, and where a model's half precision may not go."""

from __future__ import annotations

import ast

import pytest

from gpulint.script import Script
from gpulint.script.numerics.half import Formats
from gpulint.script.numerics.half_outputs import Outputs
from gpulint.script.numerics.hazards import hazard
from gpulint.script.training.training_step import model_calls
from tests.script.code import script_of

HEAD = """
model = nn.Linear(2, 2)
crit = nn.MSELoss().to("cuda")
class Dice(nn.Module):
    def forward(self, a, b):
        return 1 - (a * b).sum() / (a + b).sum()
class Mean(nn.Module):
    def forward(self, a, b):
        return (a * b).mean()
dice, mean = Dice(), Mean()
def both(a, b):
    return crit(a, b), a
def perhaps(a, b):
    if a is None:
        return
    return crit(a, b)
"""


def argument_of(text: str) -> tuple[Script, ast.expr]:
    script = script_of(HEAD + text)
    (call,) = script.index.calls["use"]
    return script, call.args[0]


@pytest.mark.parametrize(
    "text",
    [
        "use(crit(x, y))", "use(nn.MSELoss()(x, y))", "use(F.cross_entropy(x, y))",
        "use(((x - y) ** 2).mean())", "use(-crit(x, y))", "use(2 * crit(x, y) + x)",
        "losses = [crit(x, y), F.l1_loss(x, y)]\nuse(losses[0])",
        "use(crit(x, y) if a else F.l1_loss(x, y))",
        "use(sum([crit(x, y), crit(y, x)]))", "use(sum(crit(a, b) for a, b in z))",
        "use(sum([crit(a, b) for a, b in z]))", "use(torch.sum(x * y))",
        "use(torch.stack([crit(x, y), crit(y, x)]).mean())",
        "use(torch.mean((x - y) ** 2))", "use(x.pow(2).mean())", "use(dice(x, y))",
        "loss, out = both(x, y)\nuse(loss)",
        "loss = crit(x, y)\nfor a in z:\n  loss = loss + crit(a, y)\nuse(loss)",
        "total = 0\nfor a, b in z:\n  total += crit(a, b)\nuse(total)",
    ],
)  # fmt: skip
def test_surely_float32(text: str) -> None:
    script, node = argument_of(text)
    assert Formats(script).float32(node)


@pytest.mark.parametrize(
    "text",
    [
        "use(x)", "use(model(x))", "use(x * y)", "use(x.mean())", "use(mean(x, y))",
        "use(crit(x, y) if a else model(x))", "use([crit(x, y), x])", "use([])",
        "loss, out = both(x, y)\nuse(out)", "loss, out = model(x)\nuse(loss)",
        "loss, out = pair\nuse(loss)", "use(perhaps(x, y))", "use(f'{x}')",
        "use(torch.mean(x))", "use(torch.relu(x ** 2))", "use(load()(x))",
        "(loss, out), more = both(x, y)\nuse(loss)",
        "total = crit(x, y)\nfor a in z:\n  total += model(a)\nuse(total)",
    ],
)  # fmt: skip
def test_perhaps_not_float32(text: str) -> None:
    script, node = argument_of(text)
    assert not Formats(script).float32(node)


@pytest.mark.parametrize(
    "code, reason",
    [
        ("y = model(x).numpy()", "bfloat16"),
        ("y = np.mean(model(x))", "bfloat16"),
        ("y = torch.sparse.mm(w, model(x))", "no half-precision form"),
        ("y = w.index_add_(0, i, model(x))", "another precision"),
        ("y = model(x) + 1e-9", "0 in float16"),
        ("y = model(x).masked_fill(m, -1e9)", "float16 cannot"),
        ("y = model(x).clamp(min=1e-9)", "0 in float16"),
        ("y = model(x) + 1e-3", None),
        ("y = model(x).masked_fill(m, -1e4)", None),
        ("y = model(x).clamp(min=1e-3)", None),
    ],
)
def test_hazards(code: str, reason: str | None) -> None:
    script = script_of(HEAD + code + "\n")
    found = hazard(script, (script.index.tree.body[-1],))
    assert (reason is None and found is None) or (reason or "") in (found or "")


def misuse_of(text: str) -> str | None:
    """The misuse when the first statement after the imports runs in autocast."""
    helpers = HEAD + "def show(a):\n  print(a)\ndef keep(a):\n  kept.append(a)\n"
    helpers += "def plot(a):\n  np.save('a', a)\n"
    script = script_of(helpers + text)
    count = len(script_of(helpers).index.tree.body)
    region = (script.index.tree.body[count],)
    calls = [c for s in region for c in model_calls(script, s)]
    assert calls, "no model runs in the region"
    return Outputs(script, Formats(script), region).misuse(calls, script.index.tree)


@pytest.mark.parametrize(
    "text",
    [
        "y = model(x).mm(w)\nprint(y)\n", "y = model(x) @ w\nprint(y)\n",
        "y = model(x)\nloss = crit(y, z)\n", "y = model(x)\nhits = y.argmax(1) == z\n",
        "y = model(x)\nprint(y)\n", "y = model(x)\nn = len(y)\n", "y = model(x)\nshow(y)\n",
        "y = model(x)\nif y > 0:\n  f()\n", "y = model(x)\nprint(f'{y}')\n",
        "y = model(x)\nbest, at = y.max(1)\n", "y = model(x)\nbest = torch.max(y, 1)\n",
        "y = model(x)\nz = y.max(1)[1]\nelsewhere(y > 0)\n",
        "y = model(x)\nfor row in zip(y, z):\n  print(row)\n",
        "y = model(x)\nn = y.float().numpy()\n", "loss = crit(model(x), z)\nkeep(loss)\n",
        "y = torch.relu(model(x))\nprint(y)\n", "y: object = model(x)\nprint(y)\n",
        "loss, y = both(model(x), z)\nkeep(loss)\n",
    ],
)  # fmt: skip
def test_results_that_may_take_half_precision(text: str) -> None:
    assert misuse_of(text) is None


@pytest.mark.parametrize(
    "text, place",
    [
        ("y = model(x)\nn = y.numpy()\n", "y.numpy"),
        ("y = model(x)\nkeep(y)\n", "keep(y)"),
        ("y = model(x)\nplot(y)\n", "plot(y)"),
        ("y = model(x)\nelsewhere(y)\n", "elsewhere(y)"),
        ("y = model(x)\nz = y\nelsewhere(z)\n", "elsewhere(z)"),
        ("y = model(x)\nstate.last = y\n", "state.last = y"),
        ("state['y'] = model(x)\n", "state['y'] = model(x)"),
        ("y = elsewhere(model(x))\n", "elsewhere(model(x))"),
        ("y = model(x)\nfor row in y:\n  elsewhere(row)\n", "elsewhere(row)"),
        ("y = model(x)\nz = [elsewhere(a) for a in y]\n", "y"),
        ("y = model(x)\nz = y.mm(w)\n", "y.mm(w)"),
        ("y = model(x)\nz = y @ w\n", "y @ w"),
    ],
)
def test_results_that_may_not_take_half_precision(text: str, place: str) -> None:
    assert misuse_of(text) == place


@pytest.mark.parametrize("word", ["return", "yield"])
def test_results_that_leave_the_function(word: str) -> None:
    script = script_of(HEAD + f"def step(x):\n  y = model(x)\n  {word} y\n")
    (function,) = [f for f in script.index.functions if f.name == "step"]
    region = (function.body[0],)
    calls = list(model_calls(script, region[0]))
    found = Outputs(script, Formats(script), region).misuse(calls, function)
    assert found == f"{word} y"
