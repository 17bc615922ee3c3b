"""Whether each step surely fills all gradients, and what keeps it from being proven."""

from __future__ import annotations

import textwrap

import pytest

from gpulint.script.training.gradients import trained_model, why_gradients_may_miss

from .code import script_of

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(8, 8)
        self.two = {part}
    def forward(self, x):
        {line}
        return self.two(self.one(x))
"""
STEP = """
for x, y in loader:
    opt.zero_grad()
    {line}
    loss = F.mse_loss(model(x.cuda()), y.cuda())
    loss.backward()
    opt.step()
"""
PLAIN = "model = nn.Linear(8, 1).cuda()\nopt = torch.optim.SGD(model.parameters())\n"


def reason(text: str) -> str | None:
    script = script_of(text)
    loop = next(x for x in script.loops if x.train)
    return why_gradients_may_miss(script, loop)


def net(part: str = "nn.Linear(8, 1)", line: str = "x = x + 1") -> str:
    made = "model = Net().cuda()\nopt = torch.optim.SGD(model.parameters())\n"
    return NET.format(part=part, line=line) + made


def step(line: str = "x = x + 1") -> str:
    return STEP.format(line=textwrap.indent(line, "    ").strip())


@pytest.mark.parametrize(
    "text",
    [
        PLAIN + step(),
        net() + step(),
        net("nn.Linear(8, 1)", "x = x[0]") + step(),
        net("nn.Linear(8, 1)", "x = x + self.one[0](x)") + step(),
        net("Tail()") + "class Tail(nn.Module):\n  pass\n" + step(),
        net().replace("Net().cuda()", "nn.DataParallel(Net()).cuda()") + step(),
        net("Net()") + step(),
        PLAIN + step("if len(x) > 3:\n    print(x)"),
        PLAIN + step("y = y.float()") + "    if n:\n      y = y + 1\n",
        PLAIN + "model.requires_grad_(True)\n" + step(),
        PLAIN + "schedule = torch.optim.lr_scheduler.StepLR(opt, 1)\n" + step()
        + "    schedule.step()\n",
        "from torch.autograd import grad\n" + PLAIN + step(),
    ],
)  # fmt: skip
def test_every_step_fills_all(text: str) -> None:
    assert reason(text) is None


@pytest.mark.parametrize(
    "text, part",
    [
        ("opt = make()\n" + step(), "no optimizers are built"),
        (PLAIN + "two = torch.optim.Adam(model.parameters())\n" + step(), "2 optimizers"),
        (PLAIN.replace("SGD", "LBFGS") + step(), "LBFGS"),
        (PLAIN.replace("model.parameters()", "parts") + step(), "more or less than"),
        (PLAIN.replace("model.parameters()", "model.parameters(False)") + step(), "more or less"),
        (PLAIN.replace("model.parameters()", "parts()") + step(), "more or less than"),
        (PLAIN + step("model.weight.requires_grad = False"), "`requires_grad` is written"),
        (PLAIN + step("print(model.weight.grad)"), "is used elsewhere"),
        (PLAIN + step("getattr(model.weight, 'grad')"), "looked up by its name"),
        (PLAIN + "model.requires_grad_(False)\n" + step(), "are frozen"),
        (PLAIN + "model = FSDP(model)\n" + step(), "sharded"),
        (PLAIN + "m = DDP(model, find_unused_parameters=True)\n" + step(), "stay unused"),
        (PLAIN + step("(model(x) - 1).sum().backward()"), "exactly one place"),
        (PLAIN + step().replace("loss.backward()", "if x is not None:\n        loss.backward()"), "not called in every step"),
        (PLAIN + step("opt.step()"), "the optimizer does not step at exactly one"),
        (PLAIN + step("if len(x) > 3:\n    x = x * 2"), "depends on a condition"),
        (PLAIN + step("x = x * 2 if len(x) > 3 else model.half(x)"), "depends on a condition"),
        (PLAIN + step("x = model(x)[len(y)]"), "may pick another part"),
        (PLAIN + "import random\n" + step("x = random.choice(y)"), "may pick another part"),
        (PLAIN + step("x = getattr(model, x)(y)"), "may pick another part"),
        ("def make():\n  return nn.Linear(1, 1)\nmodel = build()\n" + PLAIN.partition("\n")[2] + step(), "how the model is made"),
        (PLAIN.partition("\n")[2] + step(), "how the model is made"),
        (net(line="x = x if x.any() else -x") + step(), "`Net.forward` computes by a condition"),
        (net(line="x = self.parts[len(x)](x)") + step(), "`Net.forward` picks parts"),
        (net(line="x = self.parts[self.turn(x)](x)") + step(), "`Net.forward` picks parts"),
        ("import random\n" + net(line="x = x * random.random()") + step(), "picks parts"),
        (net(line="x = first_of(self.parts)(x)") + step(), "picks parts"),
        ("import timm\n" + net("timm.create_model('x')") + step(), "`timm.create_model` computes"),
        ("import timm\n" + PLAIN.replace("nn.Linear(8, 1)", "nn.Sequential(timm.block())") + step(), "`timm.block` computes"),
        (net("Tail()") + NET.replace("Net", "Tail").format(part="None", line="x = x if x.any() else 0") + step(), "`Tail.forward` computes"),
    ],
)  # fmt: skip
def test_a_gradient_may_be_missed(text: str, part: str) -> None:
    found = reason(text)
    assert found is not None
    assert part in found


def test_a_step_outside_a_loop_proves_nothing() -> None:
    script = script_of(PLAIN + "def once(x):\n  model(x).sum().backward()\n")
    found = why_gradients_may_miss(script, script.index.functions[0])
    assert found == "the step is not seen in a loop"


def test_helper_that_steps_in_two_places() -> None:
    helper = "def update(loss):\n  loss.backward()\n  opt.step()\n"
    text = (
        PLAIN
        + helper
        + step().replace("    loss.backward()\n    opt.step()\n", "    update(loss)\n")
    )
    assert reason(text) is None or "backward" in (reason(text) or "")
    twice = reason(text + "    update(x.mean())\n")
    assert twice is not None


def test_loop_that_zeroes_does_not_count() -> None:
    text = PLAIN + step("for p in model.parameters():\n    p.grad.zero_()")
    script = script_of(text)
    loop = next(x for x in script.loops if x.train)
    inner = loop.node.body[1]
    apart = [n for n in script.index.all(type(inner)) if n is inner]
    import ast

    assert why_gradients_may_miss(script, loop, ast.walk(inner)) is None
    assert why_gradients_may_miss(script, loop, apart) == "`p.grad` is used elsewhere"


@pytest.mark.parametrize(
    "text, name",
    [(PLAIN, "model"), (PLAIN.replace("model.", "self.net."), "self.net"), ("", None)],
)
def test_model_whose_parameters_are_trained(text: str, name: str | None) -> None:
    assert trained_model(script_of(text)) == name
