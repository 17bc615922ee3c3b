"""Where values live, and which calls move them."""

from __future__ import annotations

import ast
import itertools
import sys
from pathlib import Path

import pytest

from gpulint.engine import RECURSION_LIMIT
from gpulint.index import Target, Where, build_index
from gpulint.script import Script
from gpulint.source import Source

HEAD = """
import torch, numpy as np
import torch.nn as nn
import torch.nn.functional as F
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(2, 2).to(device)
criterion = nn.MSELoss()
h = torch.zeros(3)
d = torch.zeros(3, device=device)
"""


OPTION = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--d', "


def script_of(text: str) -> Script:
    source = Source(Path("a.py"), text)
    return Script(source, build_index(source))


def where(text: str) -> Where:
    """Where the argument of `use(…)` lives."""
    script = script_of(HEAD + text)
    (call,) = script.index.calls["use"]
    return script.where(call.args[0])


@pytest.mark.parametrize(
    "text",
    [
        "b = load()\nfor k in b:\n  b[k] = b[k].to(device)\nuse(b['x'])",
        "b = load()\nfor k in b:\n  if k != 'y':\n    b[k] = b[k].to(device)\nuse(b['x'])",
        "b = load()\nfor k, v in b.items():\n  b[k] = v.to(device)\nuse(b['x'])",
        "b = load()\nfor k in ('x', 'y'):\n  b[k] = b[k].to(device)\nuse(b['x'])",
        "b = load()\nb['x'] = b['x'].to(device)\nuse(b['x'])",
        "parts = {'x': d, 'rate': 0.1, 'other': load()}\nuse(parts['x'])",
        "use(d)", "use(h.to(device))", "use(h.cuda())", "use(d[0])", "use(d.sum(0))",
        "use(d + h)", "use(model(d))", "use(criterion(model(d), d))", "use(F.relu(d))",
        "use(torch.stack([d, d]))", "use(torch.randn(2, device='cuda'))", "use(-d)",
        "use(d.detach())", "use(d.T)", "use(d == h)", "use(torch.zeros_like(d))",
        "a, b = h.to(device), h\nuse(a)", "x = d\nx = x * 2\nuse(x)",
        "def f(x):\n  return x.to(device)\nuse(f(h))", "def f(x):\n  use(x)\nf(d)",
        "out = model(d)\nuse(out.logits)", "for x in d:\n  use(x)",
        "total = 0\nfor i in range(3):\n  total = total + d\nuse(total)",
        "use([x.to(device) for x in h])", "t = {k: v.cuda() for k, v in b.items()}\nuse(t['x'])",
        "class A:\n def __init__(self):\n  self.w = d\n def f(self):\n  use(self.w)",
        "use(torch.cuda.FloatTensor(3))", "use(h.type(torch.cuda.FloatTensor))",
        "use(torch.autograd.grad(model(d).sum(), d)[0])", "use(d if a else d * 2)",
        "for k, (v, w) in model(d).items():\n  use(v)",
        "use((y := d))", "use(torch.tensor(d))", "p = (h, d)\na, b = p\nuse(b)", "use({'a': d})", "use(d or d * 2)", "use(sum([d, d]))",
        "a, *b = [d, d, h]\nuse(a)", "for i, x in enumerate(d):\n  use(x)",
        "use(d.type(torch.float32))", "models = nn.ModuleList()\nuse(models[0](d))",
        "def f():\n  if a:\n    return\n  return nn.Identity()\ng = f()\nuse(g(d))",
        "f = torch.compile(net)\nuse(f(d))", "f = Auto.from_pretrained('a')\nuse(f(d))",
        "use(torch.zeros(3, device=torch.cuda.current_device()))",
        "o = SGD(d.parameters())\nuse(d.loss.mean())", "use(d.edges)",
    ],
)  # fmt: skip
def test_on_the_device(text: str) -> None:
    assert where(text).device


@pytest.mark.parametrize(
    "text",
    [
        "use(h)", "use(d.cpu())", "use(d.to('cpu'))", "use(h * 2)", "use(torch.ones(3))",
        "use((np.arange(3) * d).astype(int))",
        "use(torch.from_numpy(a))", "use(np.zeros(3))", "use(d.cpu().numpy())",
        "use(torch.tensor([d.sum(), d.max()]))", "x = [i for i in d]\nuse(torch.tensor(x))",
        "class A:\n def f(self):\n  self.s = (h, d)\n def g(self):\n  a, b = self.s\n  use(a)",
        "use(h.to(torch.float64))", "use(torch.tensor([1, 2]))", "use(model(h))",
        "use(torch.zeros(3, device='cpu'))", "use(d.cpu() if args.gpus else d)",
        "use(d if not torch.cuda.is_available() else d.detach().cpu())",
        "x = d\nif torch.cuda.is_available():\n  x = x.cpu()\nuse(x)",
        "to = torch.device('cpu' if kind == 'gloo' else 'cuda')\nuse(h.to(to))",
        "for x, y in loader:\n  use(x)", "for i, batch in enumerate(loader):\n  use(batch['x'])",
        "from tqdm import tqdm\nfor batch in tqdm(train_loader):\n  x, y = batch\n  use(x)",
    ],
)  # fmt: skip
def test_on_the_host(text: str) -> None:
    assert where(text).host


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n  n = 0.0\n  for y in x:\n    n += y.item()\n  n /= len(x)\n  return x, n\n_, a = f(d)\nuse(a)",
        "use(1)", "use(d.item())", "use(d.shape[0])", "use(len(d))", "use(f'{d}')",
        "use(d.size(0))", "use(d.device)", "use(float(d))", "use(d is None)",
        "for i, x in enumerate(d):\n  use(i)", "for i in range(3):\n  use(i)",
        "use(model.state_dict())", "use(d.tolist())", "use(nn.Linear(2, 2))",
        "def f(m):\n  for k in m:\n    print(m[k])\n    use(k)\nf(model(d))",
        "def f(x, k):\n  return x.to(device), k\na, b = f(h, ['a'])\nuse(b)",
        "parts = {'net': d, 'rate': 0.1, 'other': load()}\nuse(parts['rate'] + 1)",
        "parts = {'net': d, 'rate': 0.1}\nuse(parts['rate'] + 1)",
    ],
)  # fmt: skip
def test_no_tensor(text: str) -> None:
    assert where(text) is Where.PLAIN


@pytest.mark.parametrize(
    "text",
    [
        "b = load()\nfor k in b:\n  if k != 'x':\n    b[k] = b[k].cuda()\nuse(b['x'])",
        "b = load()\nfor k in b:\n  if want(k):\n    b[k] = b[k].cuda()\nuse(b['x'])",
        "b = load()\nfor k in ['y']:\n  b[k] = b[k].cuda()\nuse(b['x'])",
        "b = load()\nb['y'] = b['y'].cuda()\nuse(b['x'])",
        "b = load()\nfor k in b:\n  b[k] = b[k].cuda()\nb = load()\nuse(b['x'])",
        "b = load()\nuse(b['x'])\nfor k in b:\n  b[k] = b[k].cuda()",
        "use(x)", "use(load(d))", "def f(x):\n  use(x)", "use(torch.load('a'))",
        "use(something.attribute)", "use(h if a else d)", "x = d\nif a:\n  x = f()\nuse(x)",
        "import lib\nuse(lib.accuracy(d))",
        "for x in cuda_prefetcher_loader:\n  use(x)", "use(nn.Parameter(d))",
        "use(d.cpu() if a else d)", "x = d\nif a:\n  x = x.cpu()\nuse(x)",
        "f = lambda x: use(x)", "use(torch.zeros(3, device=x))", "use(h or d)",
        "for k, (v, w) in model(d).items():\n  use(w)",
        "def f():\n  x = yield\n  use(x)",
        "def f(x, n):\n  n += 1\n  return x.to(device), n\nn = 0\nwhile d:\n  a, n = f(h, n)\nuse(n)",
        "o = SGD(model.parameters())\nuse(model.linear_dim)",
        "parts = {'net': d, 'rate': 0.1, 'all': load()}\nuse(parts['other'])",
        "b = load()\nfor k in b:\n  if hasattr(k, 'to'):\n    b[k] = b[k].cuda()\nuse(b['x'])",
        "b = load()\nfor k in b:\n  b[k] = b[k].cuda()\nif a:\n  b['x'] = b['x'].cpu()\nuse(b['x'])",
        "b = load()\nfor k in b:\n  b[k] = b[k].cuda()\nb[a] = a.cpu()\nuse(b['x'])",
        "b = load()\nfor k in b:\n  b[k] = b[k].cuda()\nb['x'], b['y'] = f(b)\nuse(b['x'])",
        "b = load()\nfor k in b:\n  b[k] = b[k].cuda()\nb.update(f(b))\nuse(b['x'])",
        "parts = {'x': 0.0, 'net': d}\nparts['x'] = load()\nuse(parts['x'] or f())",
    ],
)  # fmt: skip
def test_not_sure(text: str) -> None:
    found = where(text)
    assert not found.device
    assert not found.host
    assert found is not Where.PLAIN


@pytest.mark.parametrize(
    "code, target",
    [
        ("x.to(device)", Target.ANY),
        ("x.to('cuda')", Target.CUDA),
        ("x.to('cuda:1', non_blocking=True)", Target.CUDA),
        ("x.to(f'cuda:{i}')", Target.CUDA),
        ("x.to('cuda:' + str(i))", Target.CUDA),
        ("x.to(0)", Target.CUDA),
        ("x.cuda()", Target.CUDA),
        ("x.cuda(rank)", Target.CUDA),
        ("x.to('cpu')", Target.CPU),
        ("x.to('mps')", Target.MPS),
        ("x.to(torch.device('cpu'))", Target.CPU),
        ("x.to(device=self.device)", Target.ANY),
        ("x.to(y.device)", Target.ANY),
        ("x.to(device, torch.float32)", Target.ANY),
        ("x.to(args.gpu)", Target.ANY),
        ("x.to(torch.cuda.current_device())", Target.CUDA),
        ("x.to(y.get_device())", Target.ANY),
        ("x.to({'d': 'cuda'}['d'])", Target.CUDA),
        ("x.to({'d': 'cuda'}.get('d'))", Target.CUDA),
        ("x.cuda(True)", Target.CUDA),
    ],
)
def test_moves(code: str, target: Target) -> None:
    script = script_of(HEAD + code)
    move = script.devices.move(script.index.all(ast.Call)[-1])
    moves = [m for m in script.moves if script.text(m.call) == code]
    assert [m.target for m in moves] == [target]
    assert move is None or move.call is not None


@pytest.mark.parametrize(
    "code",
    [
        "x.to(torch.float32)", "x.to(dtype=torch.half)", "x.to(y.dtype)", "x.to(y)",
        "x.to(*a)", "x.to(**k)", "torch.cuda.empty_cache()", "x.type(torch.long)",
        "path.to('file.txt')", "x.to(memory_format=torch.channels_last)", "to(device)",
        "x.to(torch.zeros(3))", "x.to(None)", "x.to(0.5)", "np.to(device)",
    ],
)  # fmt: skip
def test_no_moves(code: str) -> None:
    script = script_of(HEAD + code)
    assert not [m for m in script.moves if script.text(m.call) == code]


@pytest.mark.parametrize(
    "text, targets",
    [
        ("def f(x, where='cpu'):\n  x.to(where)\n", [Target.ANY]),
        ("def f(x, where='cpu'):\n  x.to(where)\nf(h)\n", [Target.CPU]),
        ("def f(x, where='cuda'):\n  x.to(where)\n", [Target.CUDA]),
        ("f = lambda x, where='cpu': x.to(where)\n", [Target.CPU]),
        ("kind = torch.float64\nx.to(kind)\n", []),
        ("kind = torch.float64 if a else pick()\nx.to(kind)\n", []),
        ("def pick():\n  return h\nx.to(pick)\n", []),
        (OPTION + "default='cuda')\nx.to(p.parse_args().d)\n", [Target.CUDA]),
        (OPTION + "default='cpu')\nx.to(p.parse_args().d)\n", [Target.ANY]),
        (OPTION + "default=None)\nx.to(p.parse_args().d)\n", []),
    ],
)
def test_devices_by_way_of_names(text: str, targets: list[Target]) -> None:
    moves = script_of(HEAD + text).moves[len(script_of(HEAD).moves) :]
    assert [m.target for m in moves] == targets


def test_the_first_of_two_positions_was_once_whether_to_wait() -> None:
    move = script_of(HEAD + "x.cuda(True)\n").moves[-1]
    assert move.device is None
    assert move.non_blocking is not None


def test_a_move_tells_what_it_converts() -> None:
    script = script_of(HEAD + "x.to(device, torch.float32, True)\ny.cuda(None, True)\n")
    first, second = script.moves[-2:]
    assert first.dtype
    assert first.non_blocking is not None
    assert second.non_blocking is not None


def test_long_chains_of_values_end_as_unknown() -> None:
    names = [f"x{n}" for n in range(900)]
    links = itertools.pairwise(names)
    text = "x0 = d\n" + "".join(f"{b} = {a} + 1\n" for a, b in links)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(RECURSION_LIMIT)
    try:
        assert Where.UNKNOWN in where(f"{text}use({names[-1]})\n")
        assert where(f"{text}use({names[200]})\n") == Where.DEVICE
    finally:
        sys.setrecursionlimit(before)


def test_a_call_far_within_others_is_not_told_apart() -> None:
    outer = "".join(
        f"def f{n}(x):\n  return f{n - 1}(x)\nf{n}(d)\n" for n in range(1, 40)
    )
    text = f"def f0(x):\n  return x\nf0(d)\n{outer}"
    assert where(f"{text}use(f0(h))\n") == Where.HOST
    assert where(f"{text}use(f39(h))\n") == Where.HOST | Where.DEVICE


@pytest.mark.parametrize("first", ["a", "b", "c"])
def test_what_comes_from_itself_is_the_same_whoever_asks_first(first: str) -> None:
    """A value round a loop, of which one part is not known and one on the device."""
    text = (
        "a = unknown()\nb = h\n"
        "for _ in range(3):\n    c = b\n    b = a + h\n    a = model(c) + d\n"
        "use(a, b, c)\n"
    )
    script = script_of(HEAD + text)
    (call,) = script.index.calls["use"]
    asked = {n.id: n for n in call.args if isinstance(n, ast.Name)}
    script.tensors.where(asked[first])
    found = {name: script.tensors.where(node) for name, node in asked.items()}
    assert found == {
        "a": Where.UNKNOWN | Where.DEVICE,
        "b": Where.HOST | Where.DEVICE,  # a sum is where a part of it is for certain
        "c": Where.HOST | Where.DEVICE,
    }
