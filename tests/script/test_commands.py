"""Commands of READMEs and shell scripts that pass an option to a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules

OPTION = (
    Path(__file__).parents[2] / "fixtures/gpu306_amp_switched_off/option.py"
).read_text()


@pytest.mark.parametrize(
    "name, text, sure",
    [
        ("README.md", "Run\n\n    python src/train.py --amp --epochs 20\n", Confidence.LOW),
        ("README.md", "    python train.py \\\n      --epochs 20 \\\n      --amp\n", Confidence.LOW),
        ("README.md", "`--amp` - use mixed precision. Without it float32.\n", Confidence.HIGH),
        ("README.md", "    python train.py --amp-level O2\n", Confidence.HIGH),
        ("README.md", "    python train.py --no-amp --epochs 20\n", Confidence.HIGH),
        ("run.sh", "torchrun --nproc 8 train.py --amp\n", Confidence.LOW),
        ("scripts/run.sh", "CMD=x\npython train.py ${MORE} --amp\n", Confidence.LOW),
        ("scripts/run.txt", "python train.py --amp\n", Confidence.HIGH),
        ("run.py", "os.system('python src/train.py --amp=1')\n", Confidence.LOW),
        ("run.py", "run(f'src/train.py --amp {amp} --epochs 9')\n", Confidence.LOW),
        ("run.py", "print('give --amp to train faster')\n", Confidence.HIGH),
        ("run.py", "parser.add_argument('--amp', type=int)\n", Confidence.HIGH),
    ],
)  # fmt: skip
def test_options_that_commands_pass(
    tmp_path: Path, name: str, text: str, sure: Confidence
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(OPTION)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU306",)), projects=projects)
    found = check_path(tmp_path / "src" / "train.py", options).findings
    assert [f.confidence for f in found] == [sure]


ACCELERATED = (
    Path(__file__).parents[2] / "fixtures/gpu365_accelerate_precision/bad.py"
).read_text()


@pytest.mark.parametrize(
    "text, sure",
    [
        ("num_processes: 1\nmixed_precision: bf16\n", Confidence.LOW),
        ("mixed_precision: 'fp16'  # or no\nnum_processes: 8\n", Confidence.LOW),
        ("num_processes: 1\nmixed_precision: 'no'\n", Confidence.HIGH),
        ("name: base\nmixed_precision: bf16\n", Confidence.HIGH),
    ],
)
def test_settings_of_the_launcher(tmp_path: Path, text: str, sure: Confidence) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(ACCELERATED)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "one_gpu.yaml").write_text(text)
    projects = Projects(lambda root: sorted(p for p in root.rglob("*.*")))
    options = Options(select_rules(("GPU365",)), projects=projects)
    found = check_path(tmp_path / "train.py", options).findings
    assert [f.confidence for f in found] == [sure] * 2


OWN = """\
from accelerate import Accelerator


class Driver:
    def __init__(self, cfg):
        self.accelerator = Accelerator(mixed_precision={})
"""
DRIVEN = """\
import torch
from torchvision.models import vit_b_16

from driver import Driver


def main(cfg, loader):
    driver = Driver(cfg)
    model = vit_b_16().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "given, text, sure",
    [
        ("cfg.mixed_precision", "driver:\n  mixed_precision: BF16\n", Confidence.LOW),
        ("cfg.mixed_precision", "driver:\n  mixed_precision: 'NO'\n", Confidence.HIGH),
        ("'no'", "driver:\n  mixed_precision: BF16\n", Confidence.HIGH),
    ],
)
def test_settings_that_an_accelerator_is_given(
    tmp_path: Path, given: str, text: str, sure: Confidence
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(DRIVEN)
    (tmp_path / "driver.py").write_text(OWN.format(given))
    (tmp_path / "base.yaml").write_text(text)
    projects = Projects(lambda root: sorted(p for p in root.rglob("*.*")))
    options = Options(select_rules(("GPU302",)), projects=projects)
    found = check_path(tmp_path / "train.py", options).findings
    assert [f.confidence for f in found] == [sure]


SERIAL = """\
import argparse
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()


class Photos(Dataset):
    paths = sorted(Path("photos").iterdir())

    def __getitem__(self, index):
        return Image.open(self.paths[index])


model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(Photos(), batch_size=32, num_workers=args.workers):
    loss = model(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "words, sure",
    [("--workers 8", Confidence.LOW), ("--epochs 8", Confidence.HIGH)],
)
def test_numbers_of_workers_that_commands_give(
    tmp_path: Path, words: str, sure: Confidence
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(SERIAL)
    (tmp_path / "README.md").write_text(f"Run\n\n    python train.py {words}\n")
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU201",)), projects=projects)
    found = check_path(tmp_path / "train.py", options).findings
    assert [f.confidence for f in found] == [sure]


@pytest.mark.parametrize(
    "text, sure",
    [
        ("CUDA_VISIBLE_DEVICES=0 python train.py\n", Confidence.LOW),
        ("CUDA_VISIBLE_DEVICES='1' python train.py --a \\\n  --b\n", Confidence.LOW),
        ("export CUDA_VISIBLE_DEVICES=0\npython train.py\n", Confidence.LOW),
        ("export CUDA_VISIBLE_DEVICES=0; python train.py\n", Confidence.LOW),
        ("CUDA_VISIBLE_DEVICES=0,1 python train.py\n", Confidence.HIGH),
        ("CUDA_VISIBLE_DEVICES=$1 python train.py\n", Confidence.HIGH),
        ("CUDA_VISIBLE_DEVICES=$GPU python train.py\n", Confidence.LOW),
        ("CUDA_VISIBLE_DEVICES=${gpu_id} python train.py\n", Confidence.LOW),
        ("CUDA_VISIBLE_DEVICES=<DEVICE ID> python train.py\n", Confidence.LOW),
        ("CUDA_VISIBLE_DEVICES=<gpu_ids> python train.py\n", Confidence.HIGH),
        ("CUDA_VISIBLE_DEVICES=${GPUS} python train.py\n", Confidence.HIGH),
        ("CUDA_VISIBLE_DEVICES=$GPU,1 python train.py\n", Confidence.HIGH),
        ("CUDA_VISIBLE_DEVICES=0 python train.py\npython train.py\n", Confidence.HIGH),
        ("CUDA_VISIBLE_DEVICES=0 python test.py\n", Confidence.HIGH),
        ("export CUDA_VISIBLE_DEVICES=0\npython test.py\n", Confidence.LOW),
        ("export CUDA_VISIBLE_DEVICES=0,1\npython test.py\n", Confidence.HIGH),
    ],
)
def test_cards_that_commands_leave(tmp_path: Path, text: str, sure: Confidence) -> None:
    wrapped = Path(__file__).parents[2] / "fixtures/gpu701_data_parallel/bad.py"
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(wrapped.read_text())
    (tmp_path / "run.sh").write_text(text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU701",)), projects=projects)
    found = check_path(tmp_path / "train.py", options).findings
    assert {f.confidence for f in found} == {sure}


WRAPPED = """\
import torch
from engine import Trainer


def main(model, loader):
    model = torch.nn.DataParallel(model.cuda())
    Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1)).run(loader)


main(torch.nn.Linear(4096, 4096), [])
"""
ENGINE = """\
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def run(self, loader):
        for x in loader:
            loss = self.model(x).sum()
            self.optimizer.zero_grad()
            {pass_}
            self.optimizer.step()
"""


@pytest.mark.parametrize("pass_, found", [("loss.backward()", 1), ("print(loss)", 0)])
def test_what_a_program_runs_trains(tmp_path: Path, pass_: str, found: int) -> None:
    engine = tmp_path / "engine"
    engine.mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(WRAPPED)
    (engine / "__init__.py").write_text("from .trainer import *\n")
    (engine / "trainer.py").write_text(ENGINE.format(pass_=pass_))
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU701",)), projects=projects)
    assert len(check_path(tmp_path / "train.py", options).findings) == found


PINNING = """
import argparse

import torch
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

parser = argparse.ArgumentParser()
parser.add_argument("--pin-mem", action="store_true")
args = parser.parse_args()
photos = datasets.ImageFolder("photos", transforms.ToTensor())
loader = DataLoader(photos, 64, num_workers=8, pin_memory=args.pin_mem)
model = models.resnet18().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "name, text, sure",
    [
        ("README.md", "    python train.py --pin-mem\n", Confidence.LOW),
        ("README.md", "    python train.py --epochs 20\n", Confidence.HIGH),
        (
            "README.md",
            "    python train.py\n\n    python other.py --pin-mem\n",
            Confidence.HIGH,
        ),
        ("README.md", "    python other.py --pin-mem\n", Confidence.LOW),
        (
            "README.md",
            "    python other.py\n\n    python train.py --epochs 9 \\\n  --pin-mem\n",
            Confidence.LOW,
        ),
        ("config.json", '{"pin_mem": true, "epochs": 20}', Confidence.LOW),
        ("config.yaml", "epochs: 20\npin_mem: true\n", Confidence.LOW),
        ("config.yaml", "epochs: 20\npin_mem: false\n", Confidence.HIGH),
        ("README.md", "    python train.py --config other.json\n", Confidence.HIGH),
        ("README.md", "    python train.py --config mine.json\n", Confidence.LOW),
    ],
)
def test_switches_that_commands_or_settings_have_on(
    tmp_path: Path, name: str, text: str, sure: Confidence
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(PINNING)
    if "--config" in text:
        (tmp_path / "mine.json").write_text('{"pin_mem": true}')
    (tmp_path / name).write_text(text)
    files = ("*.py", "*.json", "*.yaml")
    projects = Projects(lambda root: sorted(p for f in files for p in root.rglob(f)))
    options = Options(select_rules(("GPU202",)), projects=projects)
    found = check_path(tmp_path / "train.py", options).findings
    assert [f.confidence for f in found] == [sure]


@pytest.mark.parametrize(
    "said, sure",
    [
        ("Train it.", Confidence.LOW),
        ("    python train.py --lr 0.1", Confidence.LOW),
        ("    python train.py --batch-size 32", Confidence.HIGH),
    ],
)
def test_commands_that_ask_for_larger_batches(
    tmp_path: Path, said: str, sure: Confidence
) -> None:
    fixtures = Path(__file__).parents[2] / "fixtures" / "gpu701_data_parallel"
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text(f"# Net\n\n{said}\n")
    (tmp_path / "data.py").write_text("class Pictures: ...\n")
    network = "from torch import nn\n\ndef Network():\n    return nn.Linear(900, 900)\n"
    (tmp_path / "network.py").write_text(network)
    path = tmp_path / "train.py"
    path.write_text((fixtures / "batches_of_one.py").read_text("utf-8"))
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU701",)), projects=projects)
    [finding] = check_path(path, options).findings
    assert finding.confidence is sure


SHOWN = """\
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--show", action="store_true")
args = parser.parse_args()
shown = (1, 2) if args.show else None
for x in loader:
    loss = model(x.to("cuda")).mean()
    loss.backward()
    optimizer.step()
    if shown:
        print(loss.item())
"""


@pytest.mark.parametrize("options, found", [("--show", True), ("--lr 0.1", False)])
def test_what_an_option_of_a_command_chooses(
    tmp_path: Path, options: str, found: bool
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text(f"# Net\n\n    python train.py {options}\n")
    path = tmp_path / "train.py"
    path.write_text(SHOWN)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    rules = select_rules(("GPU106",))
    findings = check_path(path, Options(rules, projects=projects)).findings
    assert bool(findings) is found
