"""Which loops train, evaluate or count epochs, and what belongs to their batch."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from gpulint.index import build_index
from gpulint.script import Script
from gpulint.script.set_before import is_set_at
from gpulint.source import Source

from .code import script_in

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm
from itertools import islice
device = torch.device("cuda")
loader = DataLoader(data)
"""
STEP = "loss = crit(model(x), y)\n{0}loss.backward()\n{0}opt.step()\n"


def script_of(text: str) -> Script:
    source = Source(Path("a.py"), HEAD + text)
    return Script(source, build_index(source))


def kinds(text: str) -> list[str]:
    return [loop.kind for loop in script_of(text).loops]


def body(indent: str) -> str:
    return indent + STEP.format(indent)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("for x, y in loader:\n" + body("  "), ["train"]),
        ("for i, (x, y) in enumerate(loader, 1):\n" + body("  "), ["train"]),
        ("for x, y in tqdm(loader, desc='a'):\n" + body("  "), ["train"]),
        ("bar = tqdm(enumerate(loader))\nfor i, (x, y) in bar:\n" + body("  "), ["train"]),
        ("for (x, y), z in zip(loader, other):\n" + body("  "), ["train"]),
        ("for x, y in islice(loader, 10):\n" + body("  "), ["train"]),
        ("for e in range(3):\n for x, y in loader:\n" + body("  "), ["epoch", "train"]),
        ("while True:\n for x, y in loader:\n" + body("  "), ["epoch", "train"]),
        ("for i in range(100):\n x, y = get_batch()\n" + body(" "), ["train"]),
        ("for x, y in loader:\n for _ in range(5):\n" + body("  "), ["train", "train"]),
        (
            "def step(x, y):\n" + body("  ") + "for x, y in loader:\n  step(x, y)\n",
            ["train"],
        ),
        (
            "def train():\n for x, y in loader:\n" + body("  ")
            + "for e in range(3):\n train()\n",
            ["train", "epoch"],
        ),
        ("@torch.no_grad()\ndef f():\n for x in loader:\n  model(x)\n", ["eval"]),
        ("with torch.no_grad():\n for x in loader:\n  model(x)\n", ["eval"]),
        ("def evaluate():\n for x in loader:\n  model(x)\n", ["eval"]),
        ("def f():\n model.eval()\n for x in loader:\n  model(x)\n", ["eval"]),
        ("for x in loader:\n  count(x)\n", ["other"]),
        ("for i in range(3):\n  print(i)\n", ["other"]),
        (
            "class T:\n def __init__(self, l):\n  self.l = l\n def fit(self):\n"
            "  for x, y in self.l:\n" + body("   ") + "T(loader)\n",
            ["train"],
        ),
        ("def fit(train_loader):\n for x, y in train_loader:\n" + body("  "), ["train"]),
        ("for pair in enumerate(loader):\n x, y = pair[1]\n" + body(" "), ["train"]),
        ("for x, y in loader:\n scaler.scale(l).backward()\n scaler.step(opt)\n", ["train"]),
        (("def step(x):\n loss(x).backward()\n opt.step()\n"
          "def fit(dataloader_train):\n for x in dataloader_train:\n  step(x)\n"
          "for part in range(9):\n fit(load(part))\n"), ["train", "epoch"]),
        (("for test_loader in test_loaders:\n with torch.no_grad():\n"
          "  for x in test_loader:\n   model(x)\n"), ["other", "eval"]),
        (("with torch.no_grad():\n for test_loader in test_loaders:\n"
          "  print(score(model, test_loader))\n"), ["other"]),
        (("with torch.no_grad():\n for x in test_loader:\n  step(x)\n"
          "for x in loader:\n step(x)\n"
          "def step(x):\n loss(x).backward()\n opt.step()\n"), ["eval", "train"]),
        ("for x, y in loader:\n  scaler(crit(model(x), y), optimizer)\n", ["train"]),
        ("for x, y in loader:\n  self.amp_scaler(loss, opt.optim)\n", ["train"]),
        ("model.eval()\nfor x, y in loader:\n  print(model(x))\n", ["eval"]),
        ("model.eval()\nfor x in loader:\n  opt.zero_grad()\n  fit(x)\n", ["other"]),
        ("model.eval()\nfor x, y in loader:\n  scaler(model(x), y)\n", ["eval"]),
    ],
)  # fmt: skip
def test_kinds_of_loops(text: str, expected: list[str]) -> None:
    assert kinds(text) == expected


@pytest.mark.parametrize(
    "code",
    [
        "use(x)", "use(x[0])", "use(x.float())", "use(x.to(device))", "a = x\nuse(a)",
        "a, b = x\nuse(b)", "use({k: v for k, v in x.items()})", "use([x, 1])",
        "use(torch.autograd.Variable(x))", "z = x.cuda()\nuse(z.view(-1))",
        "use(x if c else x * 1)", "use(dict(a=x)) if 0 else use(x)",
        "use([t.to(device) for t in x])", "use({'a': x})", "use(to_gpu(x))",
    ],
)  # fmt: skip
def test_parts_of_a_batch(code: str) -> None:
    lines = "".join(f"  {line}\n" for line in code.splitlines())
    helper = "def to_gpu(t):\n  if t is None:\n    return\n  return t.cuda()\n"
    script = script_of(helper + "for x, y in loader:\n" + lines)
    call = script.index.calls["use"][-1]
    assert script.batches.loop_of(call.args[0]) is script.loops[0]


@pytest.mark.parametrize(
    "code",
    [
        "use(model(x))", "use(1)", "use(w)", "use(len(x))", "use(size(x))",
        "f = lambda t: use(t)", "use(next(weights))", "use(next(others))",
    ],
)  # fmt: skip
def test_no_parts_of_a_batch(code: str) -> None:
    script = script_of(
        "w = torch.ones(3)\nothers = iter(loader)\ndef size(t):\n  return len(t)\n"
        f"for x, y in loader:\n  {code}\n"
    )
    call = script.index.calls["use"][-1]
    assert script.batches.loop_of(call.args[0]) is None


def test_rows_of_data_in_memory_are_batches_of_a_training_loop() -> None:
    script = script_of("for x, y in data:\n" + body("  ") + "  use(x)\n")
    (call,) = script.index.calls["use"]
    assert script.batches.loop_of(call.args[0]) is script.loops[0]


def test_the_test_of_a_loop_runs_in_each_round() -> None:
    script = script_of(
        "for e in r:\n while use(e):\n  f(e)\n for x in use(e):\n  f(x)\n"
    )
    epochs, inner, _ = script.loops
    first, second = script.index.calls["use"]
    assert script.loop_of(first) is inner
    assert script.loop_of(second) is epochs
    assert script.loop_of(inner.node) is epochs
    assert script.loop_of(epochs.node) is None


def test_a_batch_goes_through_helpers_and_iterators() -> None:
    script = script_of(
        "def to_gpu(t):\n  return t.cuda()\n"
        "def step(a, b):\n  loss = model(to_gpu(a))\n  loss.backward()\n"
        "it = iter(loader)\n"
        "for i in range(10):\n  x, y = next(it)\n  step(x, y)\n  opt.step()\n"
    )
    (move,) = script.moves
    loop = script.batches.loop_of(move.receiver)
    assert loop is not None
    assert loop.train
    assert script.step_loop(move.call) is loop


@pytest.mark.parametrize(
    "parts, kind",
    [
        ("range(0, len(x), size)", "train"),
        ("range(0, len(x), 8)", "train"),
        ("range(4)", "other"),
        ("x.split(size)", "other"),
    ],
)
def test_parts_of_a_batch_whose_gradients_add_up(parts: str, kind: str) -> None:
    """The loop over them is no training of its own: the step is taken behind it."""
    script = script_of(
        "def run_step(x):\n  add(x)\n  opt.step()\n"
        f"def add(x):\n  for i in {parts}:\n    model(x[i:i + size]).backward()\n"
        "while True:\n  run_step(get(3))\n"
    )
    assert [loop.kind for loop in script.loops] == ["other", kind]


def test_a_loop_around_the_epoch_of_a_method_is_one_of_epochs() -> None:
    """Whether the file has it before or behind the loop that trains."""
    run = " def run(self):\n  for e in range(9):\n   self.epoch(e)\n"
    epoch = " def epoch(self, e):\n  for x, y in loader:\n   self.step(x, y)\n"
    step = " def step(self, x, y):\n" + body("  ")
    assert kinds(f"class T:\n{run}{epoch}{step}") == ["epoch", "train"]
    assert kinds(f"class T:\n{epoch}{step}{run}") == ["train", "epoch"]


def test_loaders_know_their_loops_and_purpose() -> None:
    script = script_of(
        "val = DataLoader(data, 4, False, num_workers=2)\n"
        "for e in range(2):\n"
        " for x, y in loader:\n" + body("  ") + " with torch.no_grad():\n"
        "  for x, y in val:\n   model(x)\n"
    )
    first, second = script.loaders
    assert (first.train, second.train) == (True, False)
    assert first.reused
    assert second.reused
    assert second.values("num_workers").all_in(2)
    assert second.argument("batch_size").given
    assert second.argument("shuffle").given
    assert first.argument("num_workers").absent


@pytest.mark.parametrize(
    "text, train",
    [
        ("train_loader = DataLoader(a)\n", True),
        ("x = DataLoader(train_set)\n", True),
        ("test_loader = DataLoader(a)\n", False),
        ("x = DataLoader(val_set)\n", False),
        ("loaders = {'train': DataLoader(a), 'b': 1}\n", True),
        ("loaders = {'val': DataLoader(a)}\n", False),
        ("x = DataLoader(a, shuffle=True)\n", True),
        ("x = DataLoader(a)\n", None),
        ("f(DataLoader(a))\n", None),
    ],
)
def test_names_tell_what_a_loader_is_for(text: str, train: bool | None) -> None:
    loader = script_of(text).loaders[-1]
    assert loader.train is train


@pytest.mark.parametrize(
    "options, decided",
    [("**runtime.loader_kwargs(a)", True), ("**options()", False), ("**k", False)],
)
def test_whether_the_runtime_decides(options: str, decided: bool) -> None:
    text = f"from gpulint import runtime\nx = DataLoader(a, {options})\n"
    assert script_of(text).loaders[-1].decided_by_runtime is decided


def nested(depth: int) -> str:
    calls = "".join(f"def f{n}():\n f{n - 1}()\n" for n in range(1, depth))
    first = "def f0():\n for x in loader:\n  count(x)\n"
    return first + calls + f"for e in range(3):\n f{depth - 1}()\n"


@pytest.mark.parametrize(
    "text, reused",
    [
        ("for x in loader:\n count(x)\n", False),
        ("for e in r:\n for x in loader:\n  count(x)\n", True),
        (nested(1), True),
        (nested(3), True),
        (nested(9), False),  # not followed so far
    ],
)
def test_whether_a_loader_is_iterated_again(text: str, reused: bool) -> None:
    assert script_of(text).loaders[0].reused is reused


@pytest.mark.parametrize(
    "text, expected",
    [
        ("def f():\n  use()\n", True),
        ("def f(device):\n  use()\n", True),
        ("def f():\n  if a:\n    device = 1\n  use()\n", False),
        ("def f():\n  device = 1\n  use()\n", True),
        ("def f():\n  use()\n  device = 1\n", False),
        ("use()\n", True),
    ],
)
def test_whether_a_name_is_set_where_code_runs(text: str, expected: bool) -> None:
    script = script_of(text)
    (call,) = script.index.calls["use"]
    node = ast.parse("device", mode="eval").body
    assert is_set_at(script, node, call) is expected


RUN = """{before}for x, y in loader:
  {make}
  for i in range(100):
    loss = crit(net(x), y)
    loss.backward()
    opt.step()
{after}"""
MADE = "opt = torch.optim.Adam(net.parameters())"


@pytest.mark.parametrize(
    "before, make, after, expected",
    [
        ("", MADE, "", ["epoch", "train"]),
        ("", f"net = nn.Linear(2, 2); {MADE}", "  print(loss)\n", ["epoch", "train"]),
        (f"{MADE}\n", "x = x + 1", "", ["train", "train"]),
        ("", MADE, "  crit(net(x), y).backward()\n", ["train", "train"]),
    ],
)
def test_a_run_for_each_sample(
    before: str, make: str, after: str, expected: list[str]
) -> None:
    text = RUN.format(before=before, make=make, after=after)
    loops = script_of(text).loops
    assert [loop.kind for loop in loops] == expected
    assert loops[0].batches is (expected[0] == "train")


def test_a_run_for_each_sample_in_a_function() -> None:
    fit = f"def fit(x, net):\n  {MADE}\n  for i in range(9):\n"
    fit += "    crit(net(x), x).backward()\n    opt.step()\n"
    loops = script_of(fit + "for x in loader:\n  fit(x, model)\n").loops
    assert [loop.kind for loop in loops] == ["train", "epoch"]
    assert not loops[1].batches


STEPS = """
def step(model, optimizer, batch):
    loss = model(batch).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def epoch(model, optimizer, train_loader, quiet):
    {pairs}
    for i, batch in pairs:
        step(model, optimizer, batch)
"""


@pytest.mark.parametrize(
    "pairs, kind",
    [
        ("pairs = enumerate(train_loader)", "epoch"),
        ("rows = enumerate(train_loader); pairs = tqdm(rows)", "epoch"),
        ("pairs = enumerate(quiet)", "train"),
    ],
)
def test_epochs_of_another_file(tmp_path: Path, pairs: str, kind: str) -> None:
    """A loop there is over batches if what it is made of has a loader's name."""
    files = {
        "steps.py": STEPS.format(pairs=pairs.replace("; ", "\n    ")),
        "main.py": "from steps import epoch\nfor number in range(9):\n"
        "    epoch(model, optimizer, rows, True)\n",
    }
    script = script_in(tmp_path, files, "main.py")
    assert [loop.kind for loop in script.loops] == [kind]


def test_a_monitor_hides_neither_epochs_nor_batches() -> None:
    text = (
        "from gpulint import runtime\n"
        "monitor = runtime.Monitor()\n"
        "for epoch in monitor.epochs(range(3)):\n"
        "    for x, y in monitor.batches(loader):\n" + body("        ")
    )
    script = script_of(text)
    epochs, steps = script.loops
    assert (epochs.kind, steps.kind) == ("epoch", "train")
    assert steps.loaders == script.loaders
    other = script_of(text.replace("runtime.Monitor()", "make_monitor()"))
    assert other.loops[1].loaders == ()


SHARED = """
import torch


def forward(model, x, backprop=True):
    loss = model(x).mean()
    if backprop:
        loss.backward()
    return loss


def evaluate(model, loader):
    for x in loader:
{body}
"""


@pytest.mark.parametrize(
    "body, kind",
    [
        ("with torch.no_grad():\n    forward(model, x, False)", "eval"),
        ("forward(model, x)\nwith torch.no_grad():\n    print(model(x))", "train"),
        ("forward(model, x)", "train"),
    ],
)
def test_an_evaluation_by_a_shared_step(body: str, kind: str) -> None:
    """One that adapts the model as it goes, and then looks at it, trains."""
    text = SHARED.format(body=textwrap.indent(body, " " * 8))
    script = script_of(text)
    assert [loop.kind for loop in script.loops] == [kind]
