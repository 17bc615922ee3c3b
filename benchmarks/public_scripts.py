"""Trains scripts of public repositories before and after `gpulint fix`.

    python benchmarks/public_scripts.py --checkouts DIR [--gpu] [--jobs N] [NAME ...]

`DIR` holds the repositories as OWNER__NAME, with git's folder or the commit in a file
`.commit`. Each script is copied with its repository, given a small made data set,
shortened to a few seconds on a CPU, and trained there, or with `--gpu` on the GPU:
twice as it is (what does not repeat itself is no case), after `fix`, after
`fix --allow all`, and once more with bfloat16 where that has put autocast. Exact fixes
must leave every loss that it prints as it was. After all fixes the last loss must lie
within the spread of five seeds of the original, at least 2 %. A second `fix` must
change nothing.

Prints one JSON object a script. torchvision is needed by some; see `Case.needs`.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import gzip
import importlib.util
import json
import math
import os
import pickle
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np

GPULINT = (sys.executable, "-m", "gpulint")
TIMEOUT_SECONDS = 600
SEEDS = 5
LEAST_TOLERANCE = 0.02
VERDICTS = ("exact_identical", "all_within", "bf16_within")
# Runs a script as `python script.py` does, from seeds of ours. An empty module stands
# in for one that torchvision fails to import where its operators were built for
# another torch; the scripts use none of them.
RUNNER = """
import os, random, runpy, sys, types
import numpy, torch
sys.modules["torchvision._meta_registrations"] = types.ModuleType("absent")
seed, name = int(sys.argv[1]), sys.argv[2]
if os.environ["CUDA_VISIBLE_DEVICES"]:
    torch.use_deterministic_algorithms(True, warn_only=True)
random.seed(seed); numpy.random.seed(seed); torch.manual_seed(seed)
set_seed = torch.manual_seed
torch.manual_seed = lambda given: set_seed(given + seed)
if os.environ.get("IN_BF16"):
    from gpulint import runtime
    runtime.amp_dtype = lambda *args, **named: torch.bfloat16
sys.argv = sys.argv[2:]
sys.path[0] = ""
runpy.run_path(name, run_name="__main__")
"""


FIXED = {
    "CUDA_VISIBLE_DEVICES": "",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
# Sums in the same order each time, and no minutes for a compiler.
ON_GPU = {
    **FIXED,
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "CUDA_VISIBLE_DEVICES": "0",
    "GPULINT_COMPILE": "off",
}


class CaseError(Exception):
    """A script failed, or what it prints is not what the case expects."""


class Case(NamedTuple):
    """One public script, and how it is made small.

    `folder` is where it runs, below the repository; `script` a file there.
    `shorten` replaces text of the script before anything is run, so that before and
    after are shortened alike. `losses` matches each printed loss (group 1).
    `gpu` are more arguments for a GPU, `environment` the variables it runs with.
    """

    name: str
    repository: str
    folder: str
    script: str
    args: tuple[str, ...]
    losses: str
    prepare: Callable[[Path], None] | None = None
    shorten: tuple[tuple[str, str], ...] = ()
    needs: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    environment: Mapping[str, str] = FIXED

    def on_gpu(self) -> Case:
        """The same on the GPU of this machine."""
        return self._replace(args=(*self.args, *self.gpu), environment=ON_GPU)


class Trained(NamedTuple):
    """The losses that a run printed."""

    losses: tuple[float, ...]

    @property
    def last(self) -> float:
        return self.losses[-1]


def mnist(folder: Path) -> None:
    """A small MNIST where the examples look for it: digits as bright rectangles."""
    raw = folder.parent / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    numbers = np.random.default_rng(0)
    for part, count in (("train", 640), ("t10k", 200)):
        labels = numbers.integers(0, 10, count).astype(np.uint8)
        images = numbers.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 + 2 * label : 6 + 2 * label, 4:24] += 150
        head = struct.pack(">IIII", 2051, count, 28, 28)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        head = struct.pack(">II", 2049, count)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())
    for file in list(raw.iterdir()):
        with gzip.open(f"{file}.gz", "wb") as packed:
            packed.write(file.read_bytes())


def cifar(folder: Path) -> None:
    """A small CIFAR-10 in the format of its archive."""
    root = folder / "data" / "cifar-10-batches-py"
    root.mkdir(parents=True)
    numbers = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        labels = numbers.integers(0, 10, 64)
        images = (
            numbers.integers(0, 50, (64, 3, 32, 32)) + 20 * labels[:, None, None, None]
        )
        batch = {
            "data": images.astype(np.uint8).reshape(64, -1),
            "labels": labels.tolist(),
        }
        (root / name).write_bytes(pickle.dumps(batch))
    names = {"label_names": [str(i) for i in range(10)]}
    (root / "batches.meta").write_bytes(pickle.dumps(names))


def cora(folder: Path) -> None:
    """Words of the papers whose citations lie in the repository, by made subjects."""
    root = next(folder.glob("**/data/cora"), folder.parent / "data" / "cora")
    cited = (root / "cora.cites").read_text().split()
    draw = random.Random(0)
    lines = []
    for paper in dict.fromkeys(cited):
        subject = int(paper) % 7
        words = [
            int(draw.random() < (0.3 if i % 7 == subject else 0.1)) for i in range(210)
        ]
        lines.append("\t".join([paper, *map(str, words), f"subject{subject}"]))
    (root / "cora.content").write_text("\n".join(lines) + "\n")


def sentences(count: int, seed: int) -> list[str]:
    """Sentences over 200 words in which each word chooses among four that follow."""
    draw = random.Random(seed)
    words = [f"w{i}" for i in range(200)]
    lines = []
    for _ in range(count):
        at = draw.randrange(200)
        line = []
        for _ in range(draw.randrange(6, 14)):
            line.append(words[at])
            at = (at * 7 + draw.randrange(4)) % 200
        lines.append(" ".join(line))
    return lines


def wikitext(folder: Path) -> None:
    """A corpus of three files for the word language model."""
    root = folder / "data" / "wikitext-2"
    root.mkdir(parents=True, exist_ok=True)
    for seed, part in enumerate(("train", "valid", "test")):
        text = "\n".join(sentences(1200 if part == "train" else 150, seed))
        (root / f"{part}.txt").write_text(text + "\n")


def characters(folder: Path) -> None:
    """Text as numbers of characters, as nanoGPT's preparation writes it."""
    root = folder / "data" / "shakespeare_char"
    root.mkdir(parents=True, exist_ok=True)
    text = "\n".join(sentences(3000, 0))
    alphabet = sorted(set(text))
    number = {character: i for i, character in enumerate(alphabet)}
    codes = np.array([number[character] for character in text], dtype=np.uint16)
    cut = int(len(codes) * 0.9)
    codes[:cut].tofile(root / "train.bin")
    codes[cut:].tofile(root / "val.bin")
    meta = {
        "vocab_size": len(alphabet),
        "itos": dict(enumerate(alphabet)),
        "stoi": number,
    }
    (root / "meta.pkl").write_bytes(pickle.dumps(meta))


def pairs(folder: Path) -> None:
    """Pairs of sentences and their vocabulary for BERT-pytorch, and what starts it."""
    start = "from bert_pytorch.__main__ import train\n\ntrain()\n"
    (folder / "run.py").write_text(start)
    lines = sentences(400, 0)
    both = [f"{a}\t{b}" for a, b in zip(lines[::2], lines[1::2], strict=True)]
    (folder / "corpus.txt").write_text("\n".join(both) + "\n")
    make = "from bert_pytorch.dataset.vocab import build; build()"
    options = ["-c", "corpus.txt", "-o", "vocab.bin"]
    command = [sys.executable, "-c", make, *options]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


ANY_CIFAR = "torchvision.datasets.cifar.check_integrity = lambda *given: True"
NUMBER = r"(-?\d+\.\d+(?:e[-+]?\d+)?)"
EXAMPLES = "pytorch/examples"
CASES = (
    Case(
        "mnist",
        EXAMPLES,
        "mnist",
        "main.py",
        ("--epochs", "2", "--log-interval", "1"),
        rf"[Ll]oss: {NUMBER}",
        mnist,
        needs=("torchvision",),
    ),
    Case(
        "mnist_rnn",
        EXAMPLES,
        "mnist_rnn",
        "main.py",
        ("--epochs", "2", "--log-interval", "1"),
        rf"[Ll]oss: {NUMBER}",
        mnist,
        needs=("torchvision",),
        gpu=("--accel",),
    ),
    Case(
        "vae",
        EXAMPLES,
        "vae",
        "main.py",
        ("--epochs", "3", "--log-interval", "1"),
        rf"[Ll]oss: {NUMBER}",
        mnist,
        needs=("torchvision",),
    ),
    Case(
        "word_language_model",
        EXAMPLES,
        "word_language_model",
        "main.py",
        ("--epochs", "2", "--emsize", "64", "--nhid", "64", "--log-interval", "5"),
        rf"loss\s+{NUMBER}",
        wikitext,
        gpu=("--accel",),
    ),
    Case(
        "word_language_model with a transformer",
        EXAMPLES,
        "word_language_model",
        "main.py",
        (
            *("--model", "Transformer", "--use-optimizer", "--lr", "0.001"),
            *("--epochs", "2", "--emsize", "64", "--nhid", "64", "--log-interval", "5"),
        ),
        rf"loss\s+{NUMBER}",
        wikitext,
        gpu=("--accel",),
    ),
    Case(
        "dcgan",
        EXAMPLES,
        "dcgan",
        "main.py",
        (
            *("--dataset", "fake", "--niter", "1", "--ngf", "8", "--ndf", "8"),
            *("--batchSize", "64", "--manualSeed", "7"),
        ),
        rf"Loss_[DG]: {NUMBER}",
        needs=("torchvision",),
        gpu=("--accel",),
    ),
    Case(
        "nanoGPT",
        "karpathy/nanoGPT",
        ".",
        "train.py",
        (
            *("config/train_shakespeare_char.py", "--device=cpu", "--compile=False"),
            *("--max_iters=40", "--eval_interval=20", "--eval_iters=4"),
            *("--log_interval=1", "--block_size=32", "--batch_size=16"),
            *("--n_layer=2", "--n_head=2", "--n_embd=64", "--dropout=0.1"),
        ),
        rf"loss {NUMBER}",
        characters,
        gpu=("--device=cuda",),
    ),
    Case(
        "minGPT adder",
        "karpathy/minGPT",
        ".",
        "projects/adder/adder.py",
        ("--trainer.max_iters=120", "--trainer.device=cpu", "--trainer.num_workers=0"),
        rf"train loss {NUMBER}",
        gpu=("--trainer.device=cuda",),
    ),
    Case(
        "pygcn",
        "tkipf/pygcn",
        "pygcn",
        "train.py",
        ("--epochs", "60"),
        rf"loss_(?:train|val): {NUMBER}",
        cora,
    ),
    Case(
        "pyGAT",
        "Diego999/pyGAT",
        ".",
        "train.py",
        ("--epochs", "4", "--sparse"),
        rf"loss_(?:train|val): {NUMBER}",
        cora,
    ),
    Case(
        "TCN, adding problem",
        "locuslab/TCN",
        "TCN/adding_problem",
        "add_test.py",
        (
            *("--cuda", "--epochs", "2", "--log-interval", "4", "--seq_len", "60"),
            *("--levels", "4", "--clip", "0.5"),
        ),
        rf"[Ll]oss: {NUMBER}",
        shorten=(("data_generator(50000", "data_generator(640"),),
    ),
    Case(
        "pytorch-cifar",
        "kuangliu/pytorch-cifar",
        ".",
        "main.py",
        ("--lr", "0.01"),
        rf"Loss: {NUMBER}",
        cifar,
        shorten=(
            ("net = SimpleDLA()", "net = LeNet()"),
            ("import os\n", f"import os\n{ANY_CIFAR}\n"),
            ("start_epoch+200", "start_epoch+3"),
            ("from utils import progress_bar", "progress_bar = lambda *a: print(a[2])"),
        ),
        needs=("torchvision",),
    ),
    Case(
        "BERT-pytorch",
        "codertimo/BERT-pytorch",
        ".",
        "run.py",
        (
            *("-c", "corpus.txt", "-v", "vocab.bin", "-o", "bert.model"),
            *("-hs", "32", "-l", "2", "-a", "2", "-b", "16", "-e", "2", "-w", "0"),
            *("--log_freq", "1"),
        ),
        rf"loss[=']+:? {NUMBER}",
        pairs,
    ),
    Case(
        "torchdiffeq, ODE demo",
        "rtqichen/torchdiffeq",
        ".",
        "examples/ode_demo.py",
        ("--niters", "40", "--test_freq", "5", "--data_size", "200"),
        rf"Total Loss {NUMBER}",
    ),
    Case(
        "minimalRL, DQN",
        "seungeunrho/minimalRL",
        ".",
        "dqn.py",
        (),
        rf"score : {NUMBER}",
        shorten=(
            ("import gym", "import gymnasium as gym"),
            ("env.reset()", "env.reset(seed=n_epi)"),
            ("range(10000)", "range(201)"),
            ("memory.size()>2000", "memory.size()>200"),
        ),
        needs=("gymnasium",),
    ),
)


def checked_out(case: Case, checkouts: Path) -> Path:
    """The repository of a case. Raises CaseError when it is not there."""
    place = checkouts / case.repository.replace("/", "__")
    if not place.is_dir():
        raise CaseError(f"no {place}")
    return place


def copied(case: Case, checkouts: Path, work: Path) -> Path:
    """A copy of the repository with the data made and the script shortened."""
    root = work / "repository"
    ignored = shutil.ignore_patterns(".git", "*.ipynb")
    shutil.copytree(checked_out(case, checkouts), root, ignore=ignored)
    folder = root / case.folder
    if case.prepare:
        case.prepare(folder)
    for old, new in case.shorten:
        script = folder / case.script
        text = script.read_text()
        if old not in text:
            raise CaseError(f"{case.script} has no {old!r}")
        script.write_text(text.replace(old, new))
    return root


def train(case: Case, root: Path, seed: int = 0, **variables: str) -> Trained:
    """Runs the script in a copy of its own. Raises CaseError when it fails."""
    with tempfile.TemporaryDirectory(prefix="public-") as work:
        ran = Path(work) / "repository"
        shutil.copytree(root, ran, symlinks=True)
        others = os.environ.get("PYTHONPATH", "")
        paths = {"PYTHONPATH": os.pathsep.join([str(ran), *others.split(os.pathsep)])}
        done = subprocess.run(
            [sys.executable, "-c", RUNNER, str(seed), case.script, *case.args],
            cwd=ran / case.folder,
            env={**os.environ, **case.environment, **paths, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
    printed = done.stdout + done.stderr
    if done.returncode != 0:
        raise CaseError(printed[-2000:])
    losses = tuple(float(found) for found in re.findall(case.losses, printed))
    if not losses:
        raise CaseError(f"no losses in: {printed[-2000:]}")
    return Trained(losses)


def fix(root: Path, *options: str) -> str:
    """Fixes all files below `root`; gives what the tool says."""
    torch = metadata.version("torch").partition("+")[0]
    given = ["--isolated", "--exit-zero", "--torch-version", torch, *options]
    command = [*GPULINT, "fix", *given, "."]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CaseError(done.stdout + done.stderr)
    return done.stdout


def changed(before: Path, after: Path) -> dict[str, int]:
    """The lines that were added or replaced in each changed file."""
    lines = {}
    for file in sorted(after.rglob("*.py")):
        name = file.relative_to(after)
        old, new = ((tree / name).read_text().splitlines() for tree in (before, after))
        if old != new:
            shown = difflib.unified_diff(old, new, n=0)
            lines[str(name)] = sum(line.startswith("+") for line in shown) - 1
    return lines


def fixed(case: Case, original: Path, name: str, *options: str) -> Path:
    """A copy whose folder is fixed. Raises CaseError when a second run changes it."""
    root = original.with_name(name)
    shutil.copytree(original, root, symlinks=True)
    fix(root / case.folder, *options)
    again = root.with_name(f"{name}-again")
    shutil.copytree(root, again, symlinks=True)
    fix(again / case.folder, *options)
    if changed(root, again):
        raise CaseError(f"a second fix changes {', '.join(changed(root, again))}")
    return root


def tolerance(case: Case, original: Path, first: Trained) -> float:
    """How far the last loss may move: the spread of five seeds, at least 2 %."""
    lasts = [
        first.last,
        *(train(case, original, seed).last for seed in range(1, SEEDS)),
    ]
    return max(max(lasts) - min(lasts), LEAST_TOLERANCE * abs(first.last))


def play(case: Case, checkouts: Path) -> dict[str, object]:
    """Trains one script before and after, and judges it."""
    with tempfile.TemporaryDirectory(prefix="public-") as work:
        original = copied(case, checkouts, Path(work))
        before = train(case, original)
        if train(case, original) != before:
            raise CaseError("does not repeat itself")
        exact = fixed(case, original, "exact")
        everything = fixed(case, original, "all", "--allow", "all")
        after_exact = train(case, exact)
        after_all = train(case, everything)
        in_bf16 = train(case, everything, IN_BF16="1")
        allowed = tolerance(case, original, before)
        return {
            "name": case.name,
            "repository": case.repository,
            "commit": commit(checked_out(case, checkouts)),
            "script": str(Path(case.folder, case.script)),
            "losses_printed": len(before.losses),
            "lines_changed_exact": changed(original, exact),
            "exact_identical": after_exact == before,
            "lines_changed_all": changed(original, everything),
            "last_loss": before.last,
            "tolerance": round(allowed, 6),
            "last_loss_all": after_all.last,
            "all_within": near(after_all, before, allowed),
            "last_loss_bf16": in_bf16.last,
            "bf16_within": near(in_bf16, before, allowed),
        }


def near(after: Trained, before: Trained, allowed: float) -> bool:
    """Whether a run stayed finite and ended where the original did."""
    finite = all(map(math.isfinite, after.losses))
    return finite and abs(after.last - before.last) <= allowed


def commit(checkout: Path) -> str:
    """The commit that is checked out."""
    noted = checkout / ".commit"
    if noted.exists():
        return noted.read_text("utf-8").strip()
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def missing(case: Case) -> list[str]:
    """The packages that a case needs and this interpreter lacks."""
    return [name for name in case.needs if importlib.util.find_spec(name) is None]


def judged(case: Case, checkouts: Path) -> dict[str, object]:
    """What `play` says, or why the case could not be played."""
    try:
        if absent := missing(case):
            raise CaseError(f"needs {', '.join(absent)}")
        return play(case, checkouts)
    except CaseError as error:
        return {"name": case.name, "error": str(error)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkouts", type=Path, required=True)
    parser.add_argument("--gpu", action="store_true", help="train on the GPU")
    parser.add_argument("--jobs", type=int, default=1, help="cases side by side")
    parser.add_argument("names", nargs="*", help="cases; all when left out")
    args = parser.parse_args(arguments)
    cases = [case for case in CASES if case.name in args.names or not args.names]
    if args.gpu:
        cases = [case.on_gpu() for case in cases]
    failed = False
    with ThreadPoolExecutor(args.jobs) as pool:
        for row in pool.map(functools.partial(judged, checkouts=args.checkouts), cases):
            failed = failed or not all(row.get(verdict) for verdict in VERDICTS)
            print(json.dumps(row), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
