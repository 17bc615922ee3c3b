"""Which old torch is the newest that can run a script."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpulint.engine import Options, check_path, check_source
from gpulint.finding import Confidence
from gpulint.index import Projects, build_index
from gpulint.registry import select_rules
from gpulint.script import Script
from gpulint.script.numerics.half import has_float32_kernels
from gpulint.script.reaching.old_torch import needs_older_torch, runs_only_before
from gpulint.source import Source

EMPTY = "from torchvision.ops import _new_empty_tensor"
THREE = "import torchvision\nif float(torchvision.__version__[:3])"
ROOT = Path(__file__).resolve().parent.parent.parent


def script(text: str, newest: tuple[int, int] | None = None) -> Script:
    source = Source(Path("train.py"), text)
    made = Script(source, build_index(source))
    made.newest_torch = newest
    return made


@pytest.mark.parametrize(
    "newest, old", [((1, 10), True), ((2, 3), True), ((2, 4), False), (None, False)]
)
def test_declared_release(newest: tuple[int, int] | None, old: bool) -> None:
    assert runs_only_before(script("import torch\n", newest), (2, 4)) is old


@pytest.mark.parametrize(
    "line, old",
    [
        ("from torch._six import inf", True),
        ("from torch import _six", True),
        ("import torch._six as six", True),
        ("import torch.utils.ffi", True),
        ("from torchtext import data\ntext = data.Field()", True),
        ("from torchtext.data import BucketIterator", True),
        ("import torchtext\ntorchtext.data.BucketIterator.splits(sets)", True),
        ("from torchtext.data import get_tokenizer", False),
        ("from torchtext import data\ntext = data.get_tokenizer()", False),
        ("from torchtext.legacy.data import Field", True),
        ("import torchtext\ntext = torchtext.legacy.data.Field()", True),
        ("from torchvision.models.utils import load_state_dict_from_url", True),
        ("from torchvision.transforms import functional_tensor", True),
        ("import torchaudio\nlength = torchaudio.info(path)[0].length", True),
        ("import torchaudio\nlength = torchaudio.info(path).num_frames", False),
        (f"{THREE} < 0.7:\n    from torchvision.ops import _new_empty_tensor", True),
        (f"{THREE} < 0.7:\n    from torchvision.ops import nms", False),
        (f"{THREE} < 0.2:\n    from torchvision.ops import _new_empty_tensor", False),
        (f"{THREE} < 0.7:\n    pass  # _new_empty_tensor", False),
        (f"{THREE} < 0.7:\n    try:\n        {EMPTY}\n    except E:\n        0", False),
        (f"{THREE} > 0.7:\n    from torchvision.ops import _new_empty_tensor", False),
        ("spectrum = torch.fft(x, 2)", True),
        ("spectrum = torch.ifft(x, 2)", True),
        ("spectrum = torch.fft.fft(x)", False),
        ("def f():\n    import torch._six", False),
        ("if OLD:\n    import torch._six", False),
        ("from ._six import inf", False),
        ("from torch import inf  # not torch._six", False),
        ("from torch._sixth import inf", False),
    ],
)
def test_modules_that_are_gone(line: str, old: bool) -> None:
    assert runs_only_before(script(f"{line}\n"), (2, 4)) is old


@pytest.mark.parametrize(
    "line, old",
    [
        ("from _ext import pointnet2", True),
        ("from ._ext import nms", True),
        ("import utils._ext.pointnet2", True),
        ("import extensions", False),
    ],
)
def test_extensions_that_a_gone_module_built(
    line: str, old: bool, tmp_path: Path
) -> None:
    build = "from torch.utils.ffi import create_extension\n"
    (tmp_path / ".git").mkdir()
    (tmp_path / "build_ffi.py").write_text(build)
    text = (ROOT / "fixtures/gpu106_host_sync_in_loop/bad.py").read_text("utf-8")
    path = tmp_path / "train.py"
    path.write_text(f"{line}\n{text}")
    projects = Projects(lambda root: tuple(sorted(root.rglob("*.py"))))
    options = Options(select_rules(("GPU106",)), projects=projects)
    assert bool(check_path(path, options).findings) is not old


@pytest.mark.parametrize(
    "module, last",
    [
        ("torchvision.models.utils", (1, 9)),
        ("torchtext.legacy", (1, 10)),
        ("torch._six", (1, 13)),
        ("torchvision.transforms.functional_tensor", (2, 1)),
    ],
)
def test_the_last_torch_that_has_a_module(module: str, last: tuple[int, int]) -> None:
    """That of torchvision 0.10 and 0.16, and of torchtext 0.11."""
    found = script(f"import {module}\n")
    assert not runs_only_before(found, last)
    assert runs_only_before(found, (last[0], last[1] + 1))


ACCURACY = """
import torch


def accuracy(output, target, topk={default}):
    maxk = max(topk)
    _, pred = output.topk(maxk, 1, True, True)
    pred = pred{turned}
    correct = pred.eq(target.view(1, -1).expand_as(pred))
    return [correct[:k].{view}(-1).float().sum(0) for k in topk]


print(accuracy(scores, labels, topk={given}))
"""


@pytest.mark.parametrize(
    "default, given, turned, view, old",
    [
        ("(1,)", "(1, 5)", ".t()", "view", True),
        ("(1, 5)", "tops", ".t()", "view", True),
        ("(1,)", "(1,)", ".t()", "view", False),
        ("(1,)", "(1, 5)", ".t()", "reshape", False),
        ("(1,)", "(1, 5)", ".t().contiguous()", "view", False),
        ("(1,)", "(1, 5)", "", "view", False),
    ],
)
def test_views_of_turned_predictions(
    default: str, given: str, turned: str, view: str, old: bool
) -> None:
    text = ACCURACY.format(default=default, given=given, turned=turned, view=view)
    assert runs_only_before(script(text), (1, 7)) is old
    assert not runs_only_before(script(text), (1, 6))


TWO_PASSES = """
import torch


def train(vae, net_d, loader, optim_vae, optim_d):
    for x in loader:
        z = vae(x)
        score = net_d(z{kept})
        vae_loss = score.mean()
        optim_vae.zero_grad()
        vae_loss.backward(retain_graph={retained})
        optim_vae.step(){again}
        d_loss = score.sum()
        d_loss.backward()
        optim_d.step()
"""


@pytest.mark.parametrize(
    "changes, old",
    [
        ({}, True),
        ({"retained": "False"}, False),
        ({"again": "\n        score = net_d(z.detach())"}, False),
        ({"again": "\n        score = vae.scale * x"}, False),
    ],
)
def test_steps_between_two_passes(changes: dict[str, str], old: bool) -> None:
    text = TWO_PASSES.format(**{"kept": "", "retained": "True", "again": ""} | changes)
    assert runs_only_before(script(text), (1, 5)) is old
    assert not runs_only_before(script(text), (1, 4))


def test_torch_refuses_such_a_step() -> None:
    """The fact behind it."""
    text = TWO_PASSES.format(kept="", retained="True", again="")
    names: dict[str, object] = {}
    exec(compile(text, "passes", "exec"), names)
    vae, net = torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (vae, net)]
    together = torch.optim.SGD([*vae.parameters(), *net.parameters()], lr=0.1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        names["train"](vae, net, [torch.rand(2, 4)], together, optimizers[1])  # type: ignore[operator]


def test_torch_refuses_that_view() -> None:
    """The fact behind it; a torch that gives the view must not count as too new."""
    text = ACCURACY.format(default="(1,)", given="(1, 5)", turned=".t()", view="view")
    names = {"scores": torch.rand(8, 10), "labels": torch.arange(8)}
    with pytest.raises(RuntimeError, match="view"):
        exec(compile(text, "accuracy", "exec"), names)


def test_a_turned_part_that_another_file_asks_for(tmp_path: Path) -> None:
    alone = ACCURACY.format(default="(1,)", given="(1,)", turned=".t()", view="view")
    (tmp_path / ".git").mkdir()
    (tmp_path / "utils.py").write_text(alone)
    text = (ROOT / "fixtures/gpu203_restarting_workers/bad.py").read_text("utf-8")
    path = tmp_path / "train.py"
    projects = Projects(lambda root: tuple(sorted(root.rglob("*.py"))))
    options = Options(select_rules(("GPU203",)), projects=projects)
    for tops, old in (("(1,)", False), ("(1, 5)", True)):
        asks = f"from utils import accuracy\naccuracy(out, y, topk={tops})\n"
        path.write_text(f"{text}\n{asks}")
        found = check_path(path, options).findings
        assert found
        assert all((f.confidence is Confidence.LOW) is old for f in found)


@pytest.mark.parametrize(
    "lines, old",
    [
        ("batch = iter(train_loader).next()", True),
        ("batches = iter(loader)\nx, y = batches.next()", True),
        ("self.batches = iter(self.loader)\nx, y = self.batches.next()", True),
        ("batches = iter(loader)\nx, y = next(batches)", False),
        ("batches = iter(names)\nx = batches.next()", False),
        ("batches = Prefetcher(loader)\nx, y = batches.next()", False),
        ("x = batches.next()", False),
        ("batches = iter(loader)\nx = batches.next(timeout=3)", False),
    ],
)
def test_the_next_of_an_iterator_of_a_loader(lines: str, old: bool) -> None:
    assert runs_only_before(script(f"import torch\n{lines}\n"), (2, 0)) is old
    assert not runs_only_before(script(f"import torch\n{lines}\n"), (1, 12))


@pytest.mark.parametrize(
    "line, old",
    [
        ("scores, _ = pack_padded_sequence(scores, lengths)", True),
        ("scores = pack_padded_sequence(scores, lengths)", False),
        ("scores = pack_padded_sequence(scores, lengths).data", False),
        ("data, sizes, a, b = pack_padded_sequence(scores, lengths)", False),
    ],
)
def test_sequences_of_two_parts(line: str, old: bool) -> None:
    text = f"from torch.nn.utils.rnn import pack_padded_sequence\n{line}\n"
    assert runs_only_before(script(text), (1, 1)) is old
    assert not runs_only_before(script(text), (1, 0))


def test_sequences_have_four_parts() -> None:
    scores, lengths = torch.ones(3, 2), [3, 2]
    packed = torch.nn.utils.rnn.pack_padded_sequence(scores, lengths)
    assert len(packed) == 4


FUNCTION = """\
from torch.autograd import Function


class Reverse(Function):
{decorated}    def forward(self, x):
        return x


reverse = Reverse()
"""


@pytest.mark.parametrize("decorated, old", [("", True), ("    @staticmethod\n", False)])
def test_functions_with_a_state(decorated: str, old: bool) -> None:
    text = FUNCTION.format(decorated=decorated)
    assert runs_only_before(script(text), (1, 5)) is old
    assert not runs_only_before(script(text), (1, 4))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
def test_torch_refuses_functions_with_a_state() -> None:
    names: dict[str, object] = {}
    exec(compile(FUNCTION.format(decorated=""), "reverse", "exec"), names)
    with pytest.raises(RuntimeError, match="Legacy"):
        names["reverse"](torch.ones(2, requires_grad=True))  # type: ignore[operator]


LABELS = """\
import torch

real = 1
soft = 0.9
judge = torch.nn.BCELoss()
label = torch.full((8,), {value})
"""


@pytest.mark.parametrize(
    "value, old",
    [
        ("1", True),
        ("real", True),
        ("1.0", False),
        ("soft", False),
        ("1, dtype=torch.float", False),
        ("1, device='cuda'", True),
    ],
)
def test_labels_of_whole_numbers(value: str, old: bool) -> None:
    text = LABELS.format(value=value)
    assert runs_only_before(script(text), (1, 6)) is old
    assert not runs_only_before(script(text), (1, 5))
    assert not runs_only_before(script(text.replace("BCELoss", "MSELoss")), (1, 6))


@pytest.mark.parametrize(
    "line, old",
    [("judge(model(x), label)", True), ("judge(model(x, label), y)", False)],
)
def test_labels_of_logits(line: str, old: bool) -> None:
    text = LABELS.format(value="1").replace("BCELoss", "BCEWithLogitsLoss") + line
    assert runs_only_before(script(text), (1, 6)) is old


def test_torch_refuses_labels_of_whole_numbers() -> None:
    judged, labels = torch.rand(8), torch.full((8,), 1)
    with pytest.raises(RuntimeError, match="Found dtype Long"):
        torch.nn.BCELoss()(judged, labels)
    with pytest.raises(RuntimeError, match="desired output type Long"):
        torch.nn.BCEWithLogitsLoss()(judged, labels)


@pytest.mark.parametrize(
    "line, newer",
    [
        ("torch.rfft(x, 1)", (1, 8)),
        ("torch.irfft(x, 1)", (1, 8)),
        ("torch.symeig(x)", (2, 0)),
        ("from scipy.misc import imread\nimread('a.png')", (2, 0)),
        ("torch.set_deterministic(True)", (1, 11)),
        ("import torchvision\ntorchvision.transforms.Scale(32)", (1, 11)),
        ("from torchvision import transforms\ntransforms.RandomSizedCrop(9)", (1, 11)),
        ("from torchvision.models.resnet import model_urls", (2, 0)),
        ("torch.fft.rfft(x)", None),
        ("if hasattr(torch, 'rfft'):\n    torch.rfft(x, 1)", None),
        ("from mine import Scale\nScale(32)", None),
        ("from mine.resnet import model_urls", None),
    ],
)
def test_names_that_are_gone(line: str, newer: tuple[int, int] | None) -> None:
    its = script(f"import torch\n{line}\n")
    assert runs_only_before(its, (2, 4)) is (newer is not None)
    if newer is not None:
        last = (newer[0], newer[1] - 1) if newer[1] else (1, 13)
        assert runs_only_before(its, newer)
        assert not runs_only_before(its, last)


@pytest.mark.parametrize("name", ["rfft", "irfft", "symeig", "eig", "lstsq", "solve"])
def test_torch_has_them_no_more(name: str) -> None:
    matrix = torch.eye(2)
    given = (matrix, matrix) if name in ("lstsq", "solve") else (matrix,)
    with pytest.raises((AttributeError, RuntimeError)):
        getattr(torch, name)(*given)


def test_torch_sets_nothing_deterministic_by_its_old_name() -> None:
    assert not hasattr(torch, "set_deterministic")


@pytest.mark.parametrize(
    "statement, files, old",
    [
        ("from resnet import *", {}, True),
        ("from resnet import Net", {}, True),
        ("import resnet", {}, True),
        ("import json", {}, False),
        ("from .resnet import *", {}, False),
        ("from models.resnet import *", {}, False),
        ("from resnet import *", {"resnet.py": "Net = 1\n"}, False),
        ("from torch import *", {}, False),
        ("try:\n    from resnet import *\nexcept ImportError:\n    pass", {}, False),
    ],
)
def test_packages_that_import_what_lies_beside(
    tmp_path: Path, statement: str, files: dict[str, str], old: bool
) -> None:
    files = {"models/resnet.py": "Net = 2\n", ".git/HEAD": "", **files}
    files["models/__init__.py"] = f"{statement}\n"
    files["train.py"] = "import torch\nfrom models import Net\n"
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    projects = Projects(lambda root: tuple(sorted(root.rglob("*.py"))))
    path = tmp_path / "train.py"
    index = projects.of(path).index(path)
    assert index is not None
    its = Script(index.source, index)
    assert runs_only_before(its, (1, 5)) is old
    assert not runs_only_before(its, (1, 4))


FALLBACK = """\
try:
    import spconv.pytorch as spconv
except ImportError:
    import spconv
"""
PARSED = "import torch\nfrom {} import Net\n\noptions = parser.parse_args()\n"


@pytest.mark.parametrize(
    "changed, old",
    [
        ({}, True),
        ({"models/net.py": "from .layers import Block\n\nNet = Block\n"}, False),
        ({"layers.py": "Block = 3\n"}, False),
        ({"models/layers.py": "Other = 1\n"}, False),
        ({"train.py": "import torch\nfrom models.net import Net\n"}, False),
        ({"tools.py": "import sys\n\nsys.path.append('models')\n"}, False),
        ({"README.md": "export PYTHONPATH=models\n"}, False),
        ({"train.py": PARSED.format("models.net")}, True),
        (
            {
                "train.py": PARSED.format("models.nets"),
                "models/nets/__init__.py": "from models.net import Net\n",
            },
            True,
        ),
    ],
    ids=[
        "beside",
        "relative",
        "above",
        "another",
        "no program",
        "path",
        "prose",
        "options",
        "in turn",
    ],
)
def test_modules_that_import_what_lies_beside(
    tmp_path: Path, changed: dict[str, str], old: bool
) -> None:
    files = {
        "train.py": "import torch\nfrom models.net import Net\n\n"
        "if __name__ == '__main__':\n    print(Net)\n",
        "models/__init__.py": "",
        "models/net.py": "from layers import Block\n\nNet = Block\n",
        "models/layers.py": "Block = 1\n",
        ".git/HEAD": "",
    }
    for name, text in (files | changed).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    projects = Projects(lambda root: tuple(sorted(root.rglob("*.py"))))
    index = projects.of(tmp_path / "train.py").index(tmp_path / "train.py")
    assert index is not None
    its = Script(index.source, index)
    assert runs_only_before(its, (1, 5)) is old


def test_iterators_of_loaders_have_no_next_any_more() -> None:
    loader = torch.utils.data.DataLoader(list(range(4)))
    assert not hasattr(iter(loader), "next")


@pytest.mark.parametrize(
    "line, old",
    [
        ("total += loss.data[0]", True),
        ("print(d_loss.data[0])", True),
        ("meter.add(state['loss'].data[0])", True),
        ("meter.add(state['labels'].data[0])", False),
        ("print(d_loss_real.data[0])", True),
        ("print(losses.data[0])", False),
        ("total.append(loss.cpu().data.numpy()[0])", True),
        ("total.append(loss.data.numpy()[0])", True),
        ("total.append(losses.numpy()[0])", False),
        ("print(x.data[0])", False),
    ],
)
def test_elements_of_a_loss(line: str, old: bool) -> None:
    assert runs_only_before(script(f"import torch\n{line}\n"), (1, 0)) is old


def test_a_program_for_torch_0_has_no_findings() -> None:
    path = ROOT / "fixtures/gpu106_host_sync_in_loop/bad.py"
    text = path.read_text("utf-8")
    options = Options(select_rules(("GPU106",)))
    assert check_source(Source(path, text), options).findings
    text += "\nprint(loss.data[0])\n"
    assert not check_source(Source(path, text), options).findings


@pytest.mark.parametrize("newest, codes", [((1, 2), []), ((1, 13), ["GPU306"])])
def test_a_switch_is_off_for_good_where_torch_has_no_autocast(
    newest: tuple[int, int], codes: list[str]
) -> None:
    path = Path("fixtures/gpu306_amp_switched_off/bad.py")
    options = Options(select_rules(("GPU306",)), newest_torch=newest)
    found = check_source(Source(path, (ROOT / path).read_text("utf-8")), options)
    assert [finding.code for finding in found.findings] == codes


@pytest.mark.parametrize(
    "given, old",
    [
        ("data_tensor=x, target_tensor=y", True),
        ("x, y", False),
        ("*tensors", False),
    ],
)
def test_datasets_of_data_and_targets(given: str, old: bool) -> None:
    text = f"from torch.utils.data import TensorDataset\nTensorDataset({given})\n"
    assert runs_only_before(script(text), (0, 4)) is old
    assert not runs_only_before(script(text), (0, 3))


def test_torch_refuses_datasets_of_data_and_targets() -> None:
    given = {"data_tensor": torch.ones(2), "target_tensor": torch.ones(2)}
    with pytest.raises(TypeError, match="data_tensor"):
        torch.utils.data.TensorDataset(**given)


@pytest.mark.parametrize(
    "line, oldest, needed",
    [
        ("from torch._six import inf", (2, 0), True),
        ("from torch._six import inf", (1, 13), False),
        ("from torch._six import inf", None, False),
        ("from torch import inf", (2, 0), False),
        ("def f():\n    from torch._six import inf", (2, 0), False),
        ("torch.symeig(x)", (2, 0), True),
        ("torch.symeig(x)", (1, 13), False),
    ],
)
def test_an_older_torch_than_is_allowed(
    line: str, oldest: tuple[int, int] | None, needed: bool
) -> None:
    its = script(f"import torch\n{line}\n")
    its.torch_version = oldest
    assert needs_older_torch(its) is needed


def test_programs_that_start_with_no_allowed_torch_are_doubtful() -> None:
    text = (ROOT / "fixtures/gpu106_host_sync_in_loop/bad.py").read_text("utf-8")
    source = Source(Path("train.py"), f"from torch._six import inf\n{text}")
    rules = select_rules(("GPU106",))
    for oldest, low in (((1, 13), False), ((2, 0), True)):
        found = check_source(source, Options(rules, torch_version=oldest)).findings
        assert found
        assert all((f.confidence is Confidence.LOW) is low for f in found)


@pytest.mark.parametrize(
    "imports, name, old",
    [
        ("import spconv", "spconv.SubMConv3d", True),
        ("import spconv.pytorch as spconv", "spconv.SubMConv3d", False),
        ("import spconv", "spconv.pytorch.SubMConv3d", False),
        (FALLBACK, "spconv.SubMConv3d", False),
    ],
    ids=["first", "second", "written out", "either"],
)
def test_first_release_of_spconv(imports: str, name: str, old: bool) -> None:
    its = script(f"import torch\n{imports}\nlayer = {name}(4, 8, 3)\n")
    assert runs_only_before(its, (1, 11)) is old
    assert not runs_only_before(its, (1, 10))
    assert has_float32_kernels(its) is old
