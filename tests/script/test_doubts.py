"""Places to which nothing shows that a program comes: their findings are not sure."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpulint.engine import Options, check_path, check_source
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.notebook import compose_notebook
from gpulint.registry import select_rules
from gpulint.source import Source
from tests.script.code import script_of

LOOP = """\
import torch


class Trainer:
    def fit(self, model, loader, optimizer):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item())


def assess(model, loader):
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            hits = (model(x.cuda()).argmax(1) == y.cuda()).sum()
            print(hits.item(), hits.float().item())
"""
MAIN = """\
import argparse

from engine import Trainer, assess
from parts import loader, make_trainer, model, optimizer

parser = argparse.ArgumentParser()
parser.add_argument("--evaluate", action="store_true")
args = parser.parse_args()
trainer = make_trainer(Trainer, args)
trainer.fit(model, loader, optimizer)
if args.evaluate:
    assess(model, loader)
"""


def confidences(
    folder: Path, files: dict[str, str], checked: str = "engine.py"
) -> dict[int, Confidence]:
    """Of GPU106 in one of the files, by row."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU106",)), projects=projects)
    found = check_path(folder / checked, options).findings
    return {f.place.start.row: f.confidence for f in found}


LOW, HIGH = Confidence.LOW, Confidence.HIGH


@pytest.mark.parametrize(
    "given, sure",
    [("", LOW), ("from line_profiler import profile\n", HIGH), ("import *\n", HIGH)],
)
def test_what_a_profiler_runs_line_by_line(
    tmp_path: Path, given: str, sure: Confidence
) -> None:
    given = given.replace("import *", "from tools import *")
    timed = LOOP.replace("    def fit", "    @profile\n    def fit")
    files = {"engine.py": given + timed, "main.py": MAIN}
    assert confidences(tmp_path, files)[12 + bool(given)] is sure


@pytest.mark.parametrize(
    "old, new, trained, evaluated",
    [
        ("", "", HIGH, LOW),
        ("if args.evaluate:", "if True:", HIGH, HIGH),
        ("trainer.fit(", "if args.evaluate:\n    trainer.fit(", LOW, LOW),
        ("    assess(model, loader)", "    print(args)", HIGH, LOW),
        ("    assess(model, loader)", "    print(assess)", HIGH, HIGH),
        ("    assess(model, loader)", "    model.assess(loader)", HIGH, LOW),
        ("from engine import Trainer, assess", "from engine import *", HIGH, LOW),
    ],
    ids=[
        "as it is",
        "evaluates",
        "fits by option",
        "only imported",
        "is named",
        "another's method",
        "all by a star",
    ],
)
def test_what_an_option_or_nobody_runs(
    tmp_path: Path, old: str, new: str, trained: Confidence, evaluated: Confidence
) -> None:
    assert old in MAIN
    files = {"engine.py": LOOP, "main.py": MAIN.replace(old, new) if old else MAIN}
    assert confidences(tmp_path, files) == {11: trained, 19: evaluated}


@pytest.mark.parametrize(
    "package, sure",
    [
        ("intel_extension_for_pytorch as ipex", LOW),
        ("torch_xla.core.xla_model as xm", LOW),
        ("optimum.habana.transformers as gaudi", LOW),
        ("habana_frameworks.torch.core  # not cuda", LOW),
        ("optimum.onnxruntime as optimum", HIGH),
        ("torchvision", HIGH),
    ],
)
def test_a_program_for_other_chips(
    tmp_path: Path, package: str, sure: Confidence
) -> None:
    engine = f"import {package}\n" + LOOP.replace(".cuda()", ".to(device)")
    found = confidences(tmp_path, {"engine.py": engine, "main.py": MAIN})
    assert found[12] is sure


@pytest.mark.parametrize(
    "branch, sure",
    [
        ("if not args.fetch:", LOW),
        ("if args.fetch:", HIGH),
        ("if args.no_fetch:", LOW),
        ("if not args.other:", HIGH),
    ],
)
def test_branches_that_what_options_give_leaves_out(
    tmp_path: Path, branch: str, sure: Confidence
) -> None:
    text = MAIN.replace("--evaluate", "--no-fetch").replace(
        "trainer = ", "args.fetch = not args.no_fetch\ntrainer = "
    )
    text = text.replace("if args.evaluate:", branch)
    files = {"engine.py": LOOP, "main.py": text}
    assert confidences(tmp_path, files) == {11: HIGH, 19: sure}


@pytest.mark.parametrize(
    "taken, calls, sure",
    [
        ("kind", 'run("test")', LOW),
        ("kind", 'run("test")\nrun("val")', HIGH),
        ("kind", "run(args.split)", HIGH),
        ("kind", "run(split)", HIGH),
        ("kind", 'run(kind="test")', LOW),
        ('kind="val"', 'run("test")', LOW),
        ('kind="val"', 'run("test")\nrun()', HIGH),
        ('kind="val"', "run(split)", HIGH),
    ],
)
def test_branches_that_no_call_asks_for(
    tmp_path: Path, taken: str, calls: str, sure: Confidence
) -> None:
    text = f"""\
import argparse

from engine import assess
from parts import loader, model, split

parser = argparse.ArgumentParser()
parser.add_argument("--split", default="test")
args = parser.parse_args()


def run({taken}):
    if kind == "val":
        assess(model, loader)


{calls}
"""
    found = confidences(tmp_path, {"engine.py": LOOP, "main.py": text})
    assert found[19] is sure


@pytest.mark.parametrize(
    "default, calls, sure",
    [
        ("=True", "run(False)", LOW),
        ("=True", "run(checked=False)\nrun(False)", LOW),
        ("=True", "run(False)\nrun()", HIGH),
        ("=True", "run(False)\nrun(True)", HIGH),
        ("=True", "run(args.split)", HIGH),
        ("=True", "print(run)", HIGH),
        ("=False", "run()", LOW),
        ("=False", "run(True)", HIGH),
    ],
)
def test_defaults_that_every_call_replaces(
    tmp_path: Path, default: str, calls: str, sure: Confidence
) -> None:
    text = f"""
import argparse

from engine import assess
from parts import loader, model

parser = argparse.ArgumentParser()
parser.add_argument("--split", default="test")
args = parser.parse_args()


def run(checked{default}):
    if checked:
        assess(model, loader)


{calls}
"""
    found = confidences(tmp_path, {"engine.py": LOOP, "main.py": text})
    assert found[19] is sure


SHOWN = "print(assess(torch.nn.Linear(9, 3), torch.load('x')))"
GUARD = 'if __name__ == "__main__":\n'
BROKEN = "import engine\nfrom loops import gone\n\ngone(engine.assess)\n"
OTHER = """\
from loops import fit

if __name__ == "__main__":
    fit()
"""


@pytest.mark.parametrize(
    "files, sure",
    [
        ({"main.py": OTHER}, LOW),
        ({"main.py": f"{OTHER}# see engine\n"}, LOW),
        ({"main.py": f"{OTHER}run('engine.py')\n"}, HIGH),
        ({"main.py": f"from lib import engine\n{OTHER}"}, HIGH),
        ({"main.py": f"from lib import engine\n{OTHER}", "lib/engine.py": ""}, LOW),
        ({"main.py": OTHER, "setup.py": "setup(packages=[])", "a/b.py": ""}, HIGH),
        ({"main.py": f"import engines\n\ndef assess(): ...\n\n{OTHER}"}, LOW),
        ({"main.py": OTHER, "any.py": "importlib.import_module(name)"}, HIGH),
        ({"main.py": OTHER, "any.py": "importlib.import_module('engine')"}, HIGH),
        ({"main.py": OTHER, "any.py": "importlib.import_module('lib.nets')"}, LOW),
        ({"main.py": OTHER, "run.py": BROKEN}, HIGH),
        (
            {
                "main.py": OTHER,
                "run.py": BROKEN,
                "loops.py": "def fit(): ...\n",
            },
            LOW,
        ),
        ({"main.py": OTHER, "setup.py": "setup(packages=[])"}, HIGH),
        ({"main.py": OTHER, "setup.py": "setup(ext_modules=[])"}, LOW),
        ({"main.py": OTHER, "engine.py": f"{LOOP}\nassess(model, loader)\n"}, HIGH),
        ({"main.py": OTHER, "engine.py": f'{LOOP}\n{GUARD}    print("engine")\n'}, LOW),
        ({"main.py": OTHER, "engine.py": f"{LOOP}\n{GUARD}    {SHOWN}\n"}, HIGH),
    ],
    ids=[
        "nobody",
        "a word",
        "named",
        "imported",
        "another",
        "package",
        "same names",
        "by name",
        "by its name",
        "by another",
        "by what may start",
        "by what cannot start",
        "library",
        "extension",
        "program",
        "says its name",
        "says a result",
    ],
)
def test_a_file_that_nobody_imports(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    found = confidences(tmp_path, {"engine.py": LOOP, **files})
    assert found[19] is sure


def run(script: str) -> str:
    return f"{LOOP}\n\ndef main():\n    assess({script})\n"


@pytest.mark.parametrize(
    "name, text, sure",
    [
        ("pyproject.toml", '[project.scripts]\nassess = "net.engine:main"\n', HIGH),
        ("pyproject.toml", '[tool.poetry.scripts]\nassess = "engine:main"\n', HIGH),
        ("pyproject.toml", '[project.scripts]\nassess = "net.engine:other"\n', LOW),
        ("pyproject.toml", '[project.scripts]\nassess = "net.other:main"\n', LOW),
        ("setup.cfg", "[options]\nconsole_scripts =\n  a = net.engine:main\n", HIGH),
        ("setup.py", "setup(packages=['net'], x=['a=net.engine:main'])\n", HIGH),
        ("net/setup.py", "setup(packages=['.'], x=['a = engine:main'])\n", HIGH),
    ],
)
def test_commands_that_packaging_makes(
    tmp_path: Path, name: str, text: str, sure: Confidence
) -> None:
    files = {
        name: text,
        "net/__init__.py": "",
        "net/engine.py": run("*given"),
        "tests/test_engine.py": "from net.engine import Trainer\n\nTrainer()\n",
    }
    assert confidences(tmp_path, files, "net/engine.py")[19] is sure


@pytest.mark.parametrize(
    "package, sure",
    [("net", HIGH), ("net_examples", LOW), ("examples", LOW), ("counterexample", HIGH)],
)
def test_the_packages_that_a_library_offers(
    tmp_path: Path, package: str, sure: Confidence
) -> None:
    files = {
        "setup.py": "setup(packages=find_packages())\n",
        f"{package}/__init__.py": "",
        f"{package}/engine.py": LOOP,
        f"{package}/loops.py": "def fit(): ...\n",
        f"{package}/main.py": OTHER,
    }
    assert confidences(tmp_path, files, f"{package}/engine.py")[19] is sure


@pytest.mark.parametrize(
    "main, sure",
    [
        ("from parts.loops import fit\n\nfor epoch in range(9):\n    fit()\n", LOW),
        ("from parts.engine import assess\n\nfor x in y:\n    assess(x, x)\n", HIGH),
        ("from others.loops import fit\n\nfor epoch in range(9):\n    fit()\n", HIGH),
        ("from parts.loops import fit\n\n\ndef run():\n    fit()\n", HIGH),
    ],
    ids=["beside", "imported", "elsewhere", "no program"],
)
def test_a_file_beside_what_a_program_without_a_guard_imports(
    tmp_path: Path, main: str, sure: Confidence
) -> None:
    (tmp_path / ".git").mkdir()
    for name, text in (("parts/engine.py", LOOP), ("main.py", main)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU106",)), projects=projects)
    found = check_path(tmp_path / "parts" / "engine.py", options).findings
    assert {f.place.start.row: f.confidence for f in found}[19] is sure


@pytest.mark.parametrize(
    "helpers, sure",
    [
        ("def other(): ...\n", LOW),
        ("def set_up_logs(): ...\n", HIGH),
        ("from elsewhere import *\n", HIGH),
        ("exec(names)\n", HIGH),
        (None, HIGH),
    ],
)
def test_names_that_a_star_does_not_bring(
    tmp_path: Path, helpers: str | None, sure: Confidence
) -> None:
    engine = LOOP.replace("    model.eval()\n", "    set_up_logs()\n    model.eval()\n")
    main = MAIN.replace("if args.evaluate:", "if True:")
    files = {"engine.py": f"from helpers import *\n{engine}", "main.py": main}
    files["engine.py"] += "# ...\n" * 25
    if helpers is not None:
        files["helpers.py"] = helpers
    assert confidences(tmp_path, files)[21] is sure


MADE = """\
import torch


class Trainer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, width)
        self.last = GraphConv(width)

    def fit(self, loader, optimizer):
        for x in loader:
            loss = self.layer(x.cuda()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item())


class Other(Trainer):
    def __init__(self, width):
        torch.nn.Module.__init__(self)
        self.layer = torch.nn.Linear(width, width)


def main(loader, optimizer, name):
    made = {"other": Other}[name](2000) if name else Trainer(2000)
    made.cuda().fit(loader, optimizer)
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("", "", HIGH),  # others are made, and do the same
        ("class Other(Trainer)", "class Other(torch.nn.Module)", LOW),
        ("GraphConv(width)", "torch.nn.Tanh()", HIGH),
        ("    def fit(self,", "    @staticmethod\n    def fit(self,", HIGH),
    ],
)
def test_methods_of_a_class_whose_constructor_raises(
    old: str, new: str, sure: Confidence
) -> None:
    text = MADE.replace(old, new, 1)
    if old.startswith("    def fit"):
        text = text.replace("class Other(Trainer)", "class Other(torch.nn.Module)")
    options = Options(select_rules(("GPU106",)))
    (finding,) = check_source(Source(Path("a.py"), text), options).findings
    assert finding.confidence is sure


UNDEFINED = """\
import torch

model = torch.nn.Linear(2000, 2000).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(loader):
    log(rank)
    for x in loader:
        loss = model(x.cuda()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


train(make_batches())
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("", "", HIGH),  # three names: a part of a program
        ("log(rank)", "log(0)", LOW),
        ("log(rank)", "log(0)  # one of the dummy vars", LOW),
        ("    log(rank)\n", "", HIGH),
        ("log(rank)", "print(rank)", LOW),
        ("log(rank)", "if loader:\n        log(0)", HIGH),
        ("make_batches()", "[]", LOW),
        ("make_batches()", "[log, rank]", LOW),
        ("import torch\n", "import torch\nexec(names)\n", HIGH),
        ("log(rank)", "log(vars(torch))", LOW),
        ("log(rank)", "vars().update(torch.load('x'))", HIGH),
        ("import torch\n", "import torch\nfrom elsewhere import *\n", HIGH),
    ],
)
def test_names_that_nothing_defines(old: str, new: str, sure: Confidence) -> None:
    text = UNDEFINED.replace(old, new, 1)
    if "make_batches" in text and "log(rank)" not in text:
        text = f"from elsewhere import make_batches\n{text}"
    options = Options(select_rules(("GPU106",)))
    for lines, confidence in ((60, sure), (0, HIGH)):
        source = Source(Path("train.py"), text + "# ...\n" * lines)
        [finding] = check_source(source, options).findings
        assert finding.confidence is confidence, lines


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("", "", LOW),
        ("enumerate(loader)", "enumerate(loader, 1)", HIGH),
        ("enumerate(loader)", "bar(enumerate(loader))", LOW),
        ("enumerate(loader)", "loader.pairs()", HIGH),
        ("i % 4 == 0", "i % 4 == 3", HIGH),
        ("i % 4 == 0", "i % 4", HIGH),
        ("i % 4 == 0", "i % 4 == 0 and model.training", HIGH),
        ("i % 4 == 0", "epoch % 4 == 0", HIGH),
    ],
)
def test_what_the_first_pass_of_a_loop_runs(
    old: str, new: str, sure: Confidence
) -> None:
    text = UNDEFINED.replace("make_batches()", "range(9)")
    text = text.replace("    log(rank)\n", "")
    text = text.replace("for x in loader:", "for i, x in enumerate(loader):")
    text = text.replace(
        "        print(", "        if i % 4 == 0:\n            log(i)\n" * 1
    )
    text = text.replace("log(i)\nloss", "log(i)\n        print(loss")
    text = text.replace("def train(loader):", "def train(loader, bar=list, epoch=0):")
    text = text.replace(old, new, 1) + "# ...\n" * 60
    [finding] = check_source(
        Source(Path("train.py"), text), Options(select_rules(("GPU106",)))
    ).findings
    assert finding.confidence is sure


def test_what_a_branch_of_a_loop_runs() -> None:
    text = UNDEFINED.replace("make_batches()", "range(9)")
    text = text.replace("    log(rank)\n", "")
    text = text.replace("for x in loader:", "for x in loader:\n      if x.numel():")
    text = text.replace("print(loss.item())", "print(loss.item())\n        log(0)")
    text += "# ...\n" * 60
    options = Options(select_rules(("GPU301",)))
    for behind, sure in (("log(0)", LOW), ("print(0)", HIGH)):
        source = Source(Path("train.py"), text.replace("log(0)", behind))
        found = check_source(source, options).findings
        assert [f.confidence for f in found] == [sure]


STEPS = """\
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2)
args = parser.parse_args()
first = int(args.steps)
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(args.steps):
    x = torch.randn(8, 8).cuda()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("", "", LOW),
        ("range(args.steps)", "range(first, first + args.steps)", LOW),
        ("default=2", "default=20", HIGH),
        ("default=2", "required=True", HIGH),
        ("range(args.steps)", "range(first, args.steps)", HIGH),
        ("for step in range(args.steps)", "while step := first", HIGH),
        (
            "    loss.backward()\n",
            "    for part in loss:\n        part.backward()\n",
            HIGH,
        ),
    ],
    ids=["two", "two more", "many", "asked for", "until", "while", "in epochs"],
)
def test_trainings_of_a_few_steps(old: str, new: str, sure: Confidence) -> None:
    options = Options(select_rules(("GPU106",)))
    source = Source(Path("train.py"), STEPS.replace(old, new, 1))
    found = check_source(source, options).findings
    assert {f.confidence for f in found} == {sure}


TRIED = """\
import torch


def try_network(model):
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 8).cuda()
    for _ in range(10):
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("", "", LOW),
        ("range(10)", "range(1000)", HIGH),
        ("range(10)", "tqdm.trange(10)", LOW),
        ("range(10)", "(bar := trange(10))", LOW),
        ("(model)", "(model, optimizer)", HIGH),  # goes on with a training, perhaps
        ("for _ in range(10):", "for x in loader:", HIGH),
    ],
)
def test_functions_that_try_a_network(old: str, new: str, sure: Confidence) -> None:
    text = TRIED.replace(old, new, 1)
    if "optimizer)" in new:
        made = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
        text = text.replace(
            made, "rate = torch.optim.lr_scheduler.StepLR(optimizer, 9)"
        )
    found = check_source(
        Source(Path("a.py"), text), Options(select_rules(("GPU106",)))
    ).findings
    assert {f.confidence for f in found} == {sure}


@pytest.mark.parametrize(
    "name, steps, sure",
    [
        ("example_usage", 200, LOW),
        ("demo", 500, LOW),
        ("demo", 501, HIGH),
        ("fit", 200, HIGH),
        ("democratize", 200, HIGH),
    ],
)
def test_functions_that_show_a_network(name: str, steps: int, sure: Confidence) -> None:
    text = TRIED.replace("try_network", name).replace("range(10)", f"range({steps})")
    options = Options(select_rules(("GPU106",)))
    found = check_source(Source(Path("a.py"), text), options).findings
    assert {f.confidence for f in found} == {sure}


TIMED = """\
import time

import torch

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    torch.cuda.synchronize()
    start = time.perf_counter()
    loss = model(torch.randn(8, 8).cuda()).sum()
    torch.cuda.synchronize()
    forward = time.perf_counter() - start
    loss.backward()
    optimizer.step()
    print(forward)
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("", "", LOW),
        ("    torch.cuda.synchronize()\n    forward", "    forward", HIGH),
        ("    start = time.perf_counter()\n", "    start = 0\n", HIGH),
    ],
    ids=["measures", "one wait", "one time"],
)
def test_what_a_loop_measures(old: str, new: str, sure: Confidence) -> None:
    options = Options(select_rules(("GPU104",)))
    source = Source(Path("train.py"), TIMED.replace(old, new, 1))
    found = check_source(source, options).findings
    assert {f.confidence for f in found} == {sure}


@pytest.mark.parametrize(
    "line, doubtful",
    [
        ("os.environ['CUDA_VISIBLE_DEVICES'] = ''", True),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '-1'", True),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'", False),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = str(args.steps)", False),
        ("if args.steps > 9:\n    os.environ['CUDA_VISIBLE_DEVICES'] = ''", False),
        ("os.environ['TF_CPP_MIN_LOG_LEVEL'] = ''", False),
    ],
)
def test_programs_that_hide_all_gpus(line: str, doubtful: bool) -> None:
    text = STEPS.replace("default=2", "default=2000").replace(
        "first =", f"import os\n{line}\nfirst ="
    )
    script = script_of(text)
    [read] = script.index.calls_by_name["item"]
    assert script.is_doubtful(read.func) is doubtful


@pytest.mark.parametrize("steps, doubtful", [(5, True), (500, False)])
def test_optimizers_of_a_few_steps(steps: int, doubtful: bool) -> None:
    script = script_of(STEPS.replace("range(args.steps)", f"range({steps})"))
    [made] = script.index.calls["torch.optim.SGD"]
    assert script.is_doubtful(made.func) is doubtful


LOOK = """\
import argparse

import torch

from parts import loader, model


def look(model, loader, most):
    model.eval()
    with torch.no_grad():
        for number, (x, y) in enumerate(loader):
            if number >= most:
                break
            hits = (model(x.cuda()).argmax(1) == y.cuda()).sum()
            print(hits.item(), hits.float().item())


parser = argparse.ArgumentParser()
parser.add_argument("--most", type=int, default=5)
args = parser.parse_args()
look(model, loader, args.most)
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("", "", LOW),
        ("default=5", "default=500", HIGH),
        ("if number >= most:", "if y is None:", HIGH),
        ("look(model, loader, args.most)\n", "look(model, loader, 5)\n", LOW),
        ("\nlook(", "\nfor _ in range(9):\n    look(", HIGH),
    ],
    ids=["five", "many", "another reason", "written out", "in each epoch"],
)
def test_evaluations_of_a_few_batches(old: str, new: str, sure: Confidence) -> None:
    options = Options(select_rules(("GPU106",)))
    source = Source(Path("train.py"), LOOK.replace(old, new, 1))
    found = check_source(source, options).findings
    assert {f.confidence for f in found} == {sure}


def test_the_cells_of_a_notebook_run_alone() -> None:
    text = UNDEFINED.replace("make_batches()", "[]") + "# ...\n" * 60
    loop = text.replace("def train(loader):", "if True:").replace("train([])", "")
    loop = loop.replace("    log(rank)", "    loader = []\n    log(rank)")
    options = Options(select_rules(("GPU106",)))
    cells = loop.partition("if True:\n    loader = []\n    log(rank)\n")
    assert all(cells)
    apart = ["".join(cells[:2]), "if True:\n" + cells[2]]
    for source, sure in (
        (Source(Path("train.py"), loop), LOW),
        (_notebook(loop), LOW),
        (_notebook(*apart), HIGH),
    ):
        [finding] = check_source(source, options).findings
        assert finding.confidence is sure


def _notebook(*cells: str) -> Source:
    made = ({"cell_type": "code", "source": text} for text in cells)
    return compose_notebook(made, Path("train.ipynb"))


def test_names_of_modules_in_another_part_of_a_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name, text in {
        "one/engine.py": LOOP,
        "one/main.py": OTHER,
        "two/any.py": "importlib.import_module(name)",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU106",)), projects=projects)

    def confidence() -> list[Confidence]:
        found = check_path(tmp_path / "one" / "engine.py", options).findings
        return [f.confidence for f in found if f.place.start.row == 19]

    assert confidence() == [LOW]
    (tmp_path / "two" / "any.py").rename(tmp_path / "one" / "any.py")
    options = Options(
        select_rules(("GPU106",)),
        projects=Projects(lambda root: sorted(root.rglob("*.py"))),
    )
    assert confidence() == [HIGH]


@pytest.mark.parametrize("package, sure", [("jax", LOW), ("numpy", HIGH)])
def test_loaders_of_another_framework(
    tmp_path: Path, package: str, sure: Confidence
) -> None:
    text = f"import {package}\n" + LOOP[LOOP.index("def assess") :]
    main = "from engine import assess\nassess(model, loader)\n"
    found = confidences(
        tmp_path, {"engine.py": f"import torch\n{text}", "main.py": main}
    )
    assert set(found.values()) == {sure}


def test_a_function_that_names_itself_alone(tmp_path: Path) -> None:
    engine = f"{LOOP}    assess.done = True\n"
    unused = MAIN.replace("    assess(model, loader)", "    print(args)")
    files = {"engine.py": engine, "main.py": unused}
    assert confidences(tmp_path, files)[19] is LOW
    named = unused.replace("print(args)", "print(assess)")
    assert confidences(tmp_path, {"main.py": named})[19] is HIGH


@pytest.mark.parametrize(
    "more, sure",
    [
        ("def assess(model, loader):\n    print(model)\n", LOW),
        ("first = assess\n\n\ndef assess(model, loader):\n    first()\n", HIGH),
        ("def other(model, loader):\n    print(model)\n", HIGH),
        ("@first\ndef assess(model, loader):\n    print(model)\n", HIGH),
    ],
    ids=["again", "kept", "another", "registered"],
)
def test_functions_that_are_defined_again(
    tmp_path: Path, more: str, sure: Confidence
) -> None:
    main = MAIN.replace("if args.evaluate:", "if True:")
    files = {"engine.py": f"{LOOP}\n\n{more}", "main.py": main}
    assert confidences(tmp_path, files)[19] is sure


@pytest.mark.parametrize("name, sure", [("fit", LOW), ("other", HIGH)])
def test_methods_that_an_object_is_given_anew(
    tmp_path: Path, name: str, sure: Confidence
) -> None:
    given = f"""\
class Trainer:
    def __init__(self, quick):
        if quick:
            self.{name} = self.fit_quickly
"""
    engine = LOOP.replace("class Trainer:\n", given)
    files = {"engine.py": engine, "main.py": MAIN}
    row = 11 + given.count("\n") - 1
    assert confidences(tmp_path, files)[row] is sure


GIVEN = """\
from engine import assess
from parts import loader, model


def run(assessing):
    if assessing:
        assess(model, loader)


run({})
"""


@pytest.mark.parametrize(
    "given, sure", [("False", LOW), ("True", HIGH), ("False)\nrun(True", HIGH)]
)
def test_branches_that_all_calls_leave_out(
    tmp_path: Path, given: str, sure: Confidence
) -> None:
    files = {"engine.py": LOOP, "main.py": GIVEN.format(given)}
    assert confidences(tmp_path, files)[19] is sure


RUN = """\
from engine import assess
from parts import loader, model


def run(assessing=False):
    if assessing:
        assess(model, loader)


if __name__ == "__main__":
    run()
"""


@pytest.mark.parametrize("name, sure", [("tests/test_run.py", LOW), ("again.py", HIGH)])
def test_what_tests_give_turns_nothing_on(
    tmp_path: Path, name: str, sure: Confidence
) -> None:
    call = "run(assessing=True)"
    given = f"from main import run\n\n\ndef test_run():\n    {call}\n"
    found = confidences(tmp_path, {"engine.py": LOOP, "main.py": RUN, name: given})
    assert found[19] is sure


@pytest.mark.parametrize(
    "there, sure",
    [
        ("", False),
        ("tools/options.py", True),
        ("tools/options.pyx", True),
        ("tools/options/part.py", True),
    ],
)
def test_files_that_import_what_their_package_lacks(
    tmp_path: Path, there: str, sure: bool
) -> None:
    text = f"from tools.options import parse\n{LOOP}"
    files = {"engine.py": text, "main.py": MAIN, "tools/__init__.py": ""}
    more = {there: "parse = print\n"} if there else {}
    found = confidences(tmp_path, files | more)
    assert found[12] is (HIGH if sure else LOW)


BLOCK = "class Block:\n    pass\n"


@pytest.mark.parametrize(
    "files, sure",
    [
        ({"new/layers.py": BLOCK}, LOW),
        ({"new/layers.py": "class Other:\n    pass\n"}, HIGH),
        ({"new/blocks.py": BLOCK}, HIGH),
        ({"new/layers.py": BLOCK, "old/layers.py": BLOCK}, HIGH),
        ({"new/layers.py": BLOCK, "requirements.txt": "old>=1.2\n"}, HIGH),
    ],
    ids=["moved", "another name", "another file", "is there", "a requirement"],
)
def test_packages_that_have_moved(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    text = f"from old.layers import Block\n{LOOP}"
    given = {"engine.py": text, "main.py": MAIN, ".git/HEAD": ""}
    found = confidences(tmp_path, given | files)
    assert found[12] is sure


SIMULATOR = "class SimulatorGraphCut:\n    pass\n"


@pytest.mark.parametrize(
    "files, sure",
    [
        ({"tools/env.py": SIMULATOR}, LOW),
        ({"tools/env.py": "class Simulator:\n    pass\n"}, HIGH),
        ({"tools/env.py": SIMULATOR, "old/graph_cut_simulator.py": SIMULATOR}, HIGH),
        (
            {"tools/env.py": SIMULATOR, "requirements.txt": "graph-cut-simulator\n"},
            HIGH,
        ),
    ],
    ids=["renamed", "another name", "lies elsewhere", "a requirement"],
)
@pytest.mark.parametrize("inside", [True, False])
def test_modules_that_were_renamed(
    tmp_path: Path, files: dict[str, str], sure: Confidence, inside: bool
) -> None:
    line = "from graph_cut_simulator import SimulatorGraphCut\n"
    text = MAIN.replace("trainer.fit(", f"{line}trainer.fit(")
    given = {
        "engine.py": LOOP if inside else f"{line}{LOOP}",
        "main.py": text if inside else MAIN,
        ".git/HEAD": "",
    }
    found = confidences(tmp_path, given | files)
    assert found[11 if inside else 12] is sure


@pytest.mark.parametrize(
    "line, made",
    [
        ("from graph_cuts import GraphCuts", "class GraphCuts:\n    pass\n"),
        ("from torch_ema import MovingAverage", "class MovingAverage:\n    pass\n"),
        ("from torch.utils.data import DataLoader", "class DataLoader:\n    pass\n"),
    ],
)
def test_packages_with_a_class_that_a_project_has_too(
    tmp_path: Path, line: str, made: str
) -> None:
    files = {"engine.py": f"{line}\n{LOOP}", "main.py": MAIN, "tools/data.py": made}
    assert confidences(tmp_path, files | {".git/HEAD": ""})[12] is HIGH


def test_a_package_of_which_a_file_has_a_class_of_its_own(tmp_path: Path) -> None:
    text = f"from old.engine import Trainer as Base\n{LOOP}"
    found = confidences(tmp_path, {"engine.py": text, "main.py": MAIN, ".git/HEAD": ""})
    assert found[12] is HIGH


def test_what_an_imported_file_imports_of_packages(tmp_path: Path) -> None:
    files = {
        "engine.py": f"from parts.nets import Net\n{LOOP}",
        "main.py": MAIN,
        "parts/__init__.py": "",
        "parts/nets.py": "from old.layers import Block\n\nNet = Block\n",
        "new/layers.py": "class Block:\n    pass\n",
        ".git/HEAD": "",
    }
    assert confidences(tmp_path, files)[12] is HIGH
    missing = {"parts/nets.py": "from parts import rows\n\nNet = rows\n"}
    filled = {"parts/__init__.py": "from parts import nets\n"}
    assert confidences(tmp_path, missing | filled)[12] is LOW


@pytest.mark.parametrize(
    "module, files, sure",
    [
        ("tasks.heat", {"pde/tasks/waves.py": ""}, LOW),
        ("tasks.heat", {"pde/tasks/waves.py": "", "pde/tasks/heat.py": ""}, HIGH),
        ("tasks.heat", {"pde/tasks/heat.cpython-311-linux.so": ""}, HIGH),
        ("tasks.heat", {"pde/tasks/a.py": "", "pde/tasks/heat.so": ""}, HIGH),
        ("tasks.heat", {"pde/tasks/a.py": "", "requirements.txt": "tasks\n"}, HIGH),
        ("json.heat", {"pde/json/waves.py": ""}, HIGH),
        ("tasks", {"pde/tasks/waves.py": ""}, HIGH),
        ("src.heat", {"src/waves.py": "", "setup.cfg": "where = src\n"}, LOW),
    ],
    ids=[
        *("nowhere", "there", "no folder", "built", "required", "library", "package"),
        "source folder",
    ],
)
def test_modules_that_no_folder_of_their_package_has(
    tmp_path: Path, module: str, files: dict[str, str], sure: Confidence
) -> None:
    given = {"engine.py": f"from {module} import Heat\n{LOOP}", "main.py": MAIN}
    found = confidences(tmp_path, given | {".git/HEAD": ""} | files)
    assert found[12] is sure


@pytest.mark.parametrize(
    "handled, sure",
    [
        ("raise ImportError('install tools')", LOW),
        ("print('no tools')\n    raise", LOW),
        ("parse = None", HIGH),
    ],
)
def test_imports_without_which_a_file_stops(
    tmp_path: Path, handled: str, sure: Confidence
) -> None:
    asks = f"try:\n    from tools.options import parse\nexcept ImportError:\n    {handled}\n"
    files = {"engine.py": f"{asks}{LOOP}", "main.py": MAIN, "tools/__init__.py": ""}
    found = confidences(tmp_path, files)
    assert (
        found[LOOP.count("\n", 0, LOOP.index("loss.item")) + 1 + asks.count("\n")]
        is sure
    )


def test_a_file_beside_that_cannot_be_imported(tmp_path: Path) -> None:
    names = "loader = make_trainer = model = optimizer"
    beside = f"from tools.options import parse\n\n{names} = parse\n"
    files = {"parts.py": beside, "tools/__init__.py": "", "main.py": MAIN}
    files["engine.py"] = f"from parts import loader\n{LOOP}"
    assert confidences(tmp_path, files)[12] is LOW
    assert confidences(tmp_path, {"tools/options.py": "parse = 1\n"})[12] is HIGH


@pytest.mark.parametrize(
    "ends, sure",
    [
        ("exit()", LOW),
        ("sys.exit(3)", LOW),
        ("raise SystemExit", LOW),
        ("if args.evaluate:\n    exit()", HIGH),
        ("leave()", HIGH),
        ("def quit(): ...\n\nquit()", HIGH),
    ],
)
def test_what_stands_behind_an_end(tmp_path: Path, ends: str, sure: Confidence) -> None:
    files = {"engine.py": LOOP, "main.py": MAIN}
    files["main.py"] = "from parts import leave\nimport sys\n" + MAIN.replace(
        "trainer.fit(", f"{ends}\ntrainer.fit("
    )
    assert confidences(tmp_path, files)[11] is sure


@pytest.mark.parametrize(
    "asked, parts, sure",
    [
        ("from parts import loader", "from .tools import loader\n", LOW),
        ("import parts", "from .tools import loader\n", LOW),
        ("from parts import loader", "from tools import loader\n", HIGH),
        (
            "from parts import loader",
            "try:\n    from .tools import loader\nexcept ImportError:\n    loader = []\n",
            HIGH,
        ),
    ],
    ids=["a part", "the module", "a module", "either"],
)
def test_a_module_beside_that_is_a_part_of_a_package(
    tmp_path: Path, asked: str, parts: str, sure: Confidence
) -> None:
    """A module of its own has no package that `.tools` could be of."""
    tools = "from torch.hub import load as loader\n"
    parts = f"{parts}\nmake_trainer = model = optimizer = loader\n"
    files = {"parts.py": parts, "tools.py": tools, "main.py": MAIN}
    files["engine.py"] = f"{asked}\n{LOOP}"
    assert confidences(tmp_path, files)[12] is sure


def test_names_that_a_package_binds_are_no_missing_modules(tmp_path: Path) -> None:
    text = f"from tools.options import parse\n{LOOP}"
    files = {"engine.py": text, "main.py": MAIN, "tools/__init__.py": "options = 1\n"}
    assert confidences(tmp_path, files)[12] is HIGH


@pytest.mark.parametrize(
    "package, sure",
    [
        ("from tools.options import parse\n", LOW),
        ("from tools.output import write\n", HIGH),
        ("write = print\n", HIGH),
        ("", HIGH),
        ("from tools.options import *\n", LOW),
        ("from tools.output import *\n", HIGH),
        ("from elsewhere import *\n", HIGH),
        ("VERSION = 1\n\n\ndef __getattr__(name):\n    return print\n", HIGH),
        ('__all__ = ["options"]\n', LOW),
        ('__all__ = ["options", "write"]\n', HIGH),
        ("__all__ = read_names()\n", HIGH),
    ],
    ids=[
        "lacks it",
        "imports it",
        "binds it",
        "is empty",
        "has a star",
        "by a star",
        "a star of others",
        "makes it up",
        "lists others",
        "lists it",
        "lists names of others",
    ],
)
def test_files_that_import_a_name_their_package_lacks(
    tmp_path: Path, package: str, sure: Confidence
) -> None:
    parts = {
        "tools/options.py": "parse = print\n",
        "tools/output.py": "write = print\n",
    }
    text = f"from tools import write\n{LOOP}"
    files = {"engine.py": text, "main.py": MAIN, "tools/__init__.py": package, **parts}
    assert confidences(tmp_path, files)[12] is sure


SELF = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.first = nn.Linear(512, 512)
        self.grow(depth)

    def grow(self, depth):
        self.add_module(str(depth), nn.Linear(512, 512))
        if depth:
            self.grow(depth - 1)


model = Net(3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_models_whose_methods_call_themselves_are_analysed() -> None:
    options = Options(select_rules(("GPU001", "GPU302")))
    found = check_source(Source(Path("train.py"), SELF), options).findings
    assert {f.code for f in found} == {"GPU302"}


@pytest.mark.parametrize("dim, sure", [(1024, HIGH), (128, LOW)])
def test_tokens_of_few_features_are_no_large_network(
    dim: int, sure: Confidence
) -> None:
    text = f"""\
import torch
from vit_pytorch import ViT

model = ViT(dim={dim}, depth=6, heads=8, mlp_dim=512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    options = Options(select_rules(("GPU301", "GPU302")))
    found = check_source(Source(Path("train.py"), text), options).findings
    assert {f.code: f.confidence for f in found} == {"GPU301": sure, "GPU302": sure}


@pytest.mark.parametrize(
    "test, sure",
    [
        ("torch.cuda.is_available()", LOW),
        ("use_cuda", LOW),
        ("use_cuda and args.evaluate", HIGH),
        ("use_cuda or args.evaluate", LOW),
        ("args.fast", HIGH),
    ],
)
def test_branches_of_machines_without_a_gpu(
    tmp_path: Path, test: str, sure: Confidence
) -> None:
    text = MAIN.replace("import argparse\n", "import argparse\n\nimport torch\n")
    text = text.replace(
        "trainer.fit(model",
        "use_cuda = torch.cuda.is_available()\n"
        f"if {test}:\n    print(args)\nelse:\n    trainer.fit(model",
    )
    found = confidences(tmp_path, {"engine.py": LOOP, "main.py": text})
    assert found[11] is sure
    if "args.evaluate" not in test:
        text = text.replace(f"if {test}:", f"if not {test}:")
        assert confidences(tmp_path, {"main.py": text})[11] is HIGH


SKIPPED = """\
for loss in losses:
    if loss < limit:
        loss.backward()
        optimizer.step()
    else:
        skipped += 1
"""


@pytest.mark.parametrize(
    "old, new, doubtful",
    [
        ("", "", True),
        ("loss < limit", "model.training", False),
        ("        skipped", "        loss.backward()\n        skipped", False),
        ("    else:\n", "", False),
    ],
    ids=["bad loss", "another question", "has a step", "beside the step"],
)
def test_branches_for_losses_that_are_no_good(
    old: str, new: str, doubtful: bool
) -> None:
    script = script_of(SKIPPED.replace(old, new))
    (count,) = script.index.all(ast.AugAssign)
    assert script.is_doubtful(count) is doubtful


HANDLED = """\
try:
    send(model)
except RuntimeError:
    torch.save(model, "local.pt")
"""


@pytest.mark.parametrize(
    "old, new, doubtful",
    [
        ("", "", True),
        ("RuntimeError", "(OSError, MemoryError) as error", True),
        (" RuntimeError", "", True),
        (" RuntimeError", " StopIteration", False),
        (" RuntimeError", " (KeyError, OSError)", False),
        ("send(model)\nexcept RuntimeError", "import client\nexcept Exception", False),
        ("send(model)\nexcept RuntimeError", "batch = next(batches)\nexcept", False),
        ("except RuntimeError", "finally", False),
        ("send(model)\nexcept RuntimeError", "m = x['m'].y()\nexcept Exception", False),
        (
            "send(model)\nexcept RuntimeError",
            "m = send(x['m'])\nexcept Exception",
            True,
        ),
    ],
)
def test_handlers_of_errors(old: str, new: str, doubtful: bool) -> None:
    script = script_of("import torch\n" + HANDLED.replace(old, new))
    save = script.index.calls["torch.save"][0]
    assert script.is_doubtful(save) is doubtful


TRUTH = """\
import argparse

from engine import Trainer, assess
from parts import loader, make_trainer, model, optimizer

parser = argparse.ArgumentParser()
parser.add_argument("--train", type=str, default="True")
args = parser.parse_args()
{made}
trainer = make_trainer(Trainer, args)
if args.train == "True":
    trainer.fit(model, loader, optimizer)
else:
    assess(model, loader)
"""


@pytest.mark.parametrize(
    "made, trained",
    [
        ('args.train = True if args.train == "True" else False', LOW),
        ('args.train = args.train == "True"', LOW),
        ('args.train = args.train or "True"', HIGH),
        ("", HIGH),
    ],
)
def test_truth_values_that_equal_no_text(
    tmp_path: Path, made: str, trained: Confidence
) -> None:
    files = {"engine.py": LOOP, "main.py": TRUTH.format(made=made)}
    assert confidences(tmp_path, files)[11] is trained


def test_functions_that_a_package_passes_on_by_another_name(tmp_path: Path) -> None:
    files = {
        "engine.py": LOOP,
        "api.py": "from engine import Trainer, assess as run_assess\n",
        "main.py": MAIN.replace(
            "from engine import Trainer, assess",
            "from api import Trainer, run_assess as evaluate",
        ).replace("if args.evaluate:\n    assess(", "if True:\n    evaluate("),
    }
    assert confidences(tmp_path, files)[19] is HIGH
    unused = files["main.py"].replace("    evaluate(model, loader)", "    model.eval()")
    assert confidences(tmp_path, files | {"main.py": unused})[19] is LOW


@pytest.mark.parametrize(
    "statement, tools, sure",
    [
        ("from tools import write", {"tools.py": "read = print\n"}, LOW),
        ("from tools import read", {"tools.py": "read = print\n"}, HIGH),
        ("from tools import write", {"tools.py": "from numpy import *\n"}, HIGH),
        ("from tools import write", {"tools.py": "globals().update(names)\n"}, HIGH),
        (
            "from tools import write",
            {"tools.py": "a = 1\n", "other/tools.py": "def write():\n    pass\n"},
            HIGH,
        ),
        ("from .tools import write", {"other.py": "write = print\n"}, LOW),
        ("from .tools import write", {"tools.pyx": ""}, HIGH),
        ("from .version import number", {}, HIGH),
        ("from ._C import number", {}, HIGH),
        (
            "try:\n    from tools import write\nexcept ImportError:\n    pass",
            {"tools.py": "read = print\n"},
            HIGH,
        ),
    ],
)
def test_names_and_modules_that_are_not_there(
    tmp_path: Path, statement: str, tools: dict[str, str], sure: Confidence
) -> None:
    main = (
        MAIN.replace("from engine", "from .engine") if "from ." in statement else MAIN
    )
    text = f"{statement}\n{LOOP}"
    files = {"engine.py": text, "main.py": main, ".git/HEAD": "", **tools}
    number = 11 + len(statement.splitlines())
    assert confidences(tmp_path, files)[number] is sure


TRAINS = """\
from engine import Trainer

for x in range(9):
    Trainer().fit(x, x, x)
"""


@pytest.mark.parametrize(
    "folder, given, sure",
    [
        ("model copy", {}, LOW),
        ("model_copy", {}, HIGH),  # somebody's own program may import it
        ("model copy", {"run.py": "import torch\nfor x in range(9):\n    x\n"}, HIGH),
        ("model copy", {"run.py": "for x in range(9):\n    x.backward()\n"}, LOW),
        ("model copy", {"run.py": TRAINS}, HIGH),
        ("model_copy", {"run.py": "for x in range(9):\n    x.backward()\n"}, LOW),
        ("model copy", {"../paths.py": "FOLDER = 'model copy'\n"}, HIGH),
    ],
)
def test_a_folder_that_has_no_name_for_imports(
    tmp_path: Path, folder: str, given: dict[str, str], sure: Confidence
) -> None:
    engine = LOOP[: LOOP.index("def assess")]
    files = {"engine.py": engine, "../.git/HEAD": "", **given}
    (tmp_path / folder).mkdir()
    assert confidences(tmp_path / folder, files)[11] is sure


def test_a_copy_that_no_package_has(tmp_path: Path) -> None:
    """A class that nothing makes is offered by a package, not by a copy beside it."""
    files = {
        "setup.py": 'from setuptools import setup\n\nsetup(packages=["net"])\n',
        "net/__init__.py": "",
        "net/engine.py": LOOP,
        "old/net/__init__.py": "",
        "old/net/engine.py": LOOP,
        "old/run.py": "from net.engine import assess\n\n\n"
        'if __name__ == "__main__":\n    assess(model, loader)\n',
        ".git/HEAD": "",
    }
    for folder, offered in (("net", True), ("old/net", False)):
        given = {f"{'../' * len(folder.split('/'))}{n}": t for n, t in files.items()}
        assert (11 in confidences(tmp_path / folder, given)) is offered, folder


@pytest.mark.parametrize(
    "calls, sure",
    [
        ("    # assess(model, loader)", LOW),
        ("    print('assess')", LOW),
        ("    assess(model, loader)", HIGH),
        ("    globals()[name]()", HIGH),
        ("    run(assess)", HIGH),
    ],
)
def test_what_a_program_leaves_out(
    tmp_path: Path, calls: str, sure: Confidence
) -> None:
    """Nothing imports it, so it uses what it defines, or nobody does."""
    run = "Trainer().fit(model, loader, optimizer)"
    main = f'\n\nif __name__ == "__main__":\n    {run}\n{calls}\n'
    files = {"engine.py": LOOP + main, "other.py": "x = 1\n", ".git/HEAD": ""}
    found = confidences(tmp_path, files)
    assert (found[11], found[19]) == (HIGH, sure)


def test_what_a_program_without_a_guard_leaves_out(tmp_path: Path) -> None:
    run = "Trainer().fit(model, loader, optimizer)"
    main = f"\n\nargs = parser.parse_args()\n{run}\n# assess(model, loader)\n"
    files = {"engine.py": LOOP + main, "other.py": "x = 1\n", ".git/HEAD": ""}
    found = confidences(tmp_path, files)
    assert (found[11], found[19]) == (HIGH, LOW)
    files["engine.py"] = LOOP + main.replace("# assess", "assess")
    assert confidences(tmp_path, files)[19] is HIGH


@pytest.mark.parametrize(
    "more, sure",
    [
        ({}, LOW),
        (
            {"other.py": "from net.engine import assess\n\n# assess(model, loader)\n"},
            LOW,
        ),
        (
            {"tests/test_net.py": "from net.engine import assess\n\nassess(len, 2)\n"},
            HIGH,
        ),
        ({"net/__init__.py": "from net.engine import assess\n"}, HIGH),
        ({"net/__init__.py": "from net.engine import *\n"}, HIGH),
        ({"README.md": "Call `assess(model, loader)`.\n"}, HIGH),
        ({"docs/use.rst": "assess\n"}, HIGH),
        ({"other.py": "run('assess')\n"}, HIGH),
        ({"try.ipynb": "assess(model, loader)"}, HIGH),
    ],
)
def test_what_a_package_offers_to_nobody(
    tmp_path: Path, more: dict[str, str], sure: Confidence
) -> None:
    files = {
        "setup.py": 'from setuptools import setup\n\nsetup(packages=["net"])\n',
        "net/__init__.py": "",
        "net/engine.py": LOOP,
        "net/main.py": "from net.engine import Trainer\n\nTrainer().fit(m, l, o)\n",
        ".git/HEAD": "",
        **more,
    }
    given = {f"../{name}": text for name, text in files.items()}
    assert confidences(tmp_path / "net", given)[19] is sure


@pytest.mark.parametrize(
    "more, sure",
    [
        ({}, LOW),
        ({"other.py": "run('assess')\n"}, LOW),
        ({"README.md": "Call `assess(model, loader)`.\n"}, LOW),
        ({"README.md": "Call `net.engine.assess(model, loader)`.\n"}, HIGH),
        ({"other.py": "from net.engine import Trainer\n\nassess = 1\n"}, LOW),
        ({"net/__init__.py": "from net.engine import *\n"}, HIGH),
        ({"conf.yaml": "_target_: net.engine.assess\n"}, HIGH),
        ({"net/engine.py": "    assess(model, loader)\n"}, HIGH),
        ({"net/engine.py": "    globals()[args.mode](model, loader)\n"}, HIGH),
    ],
)
def test_what_a_program_of_a_package_leaves_out(
    tmp_path: Path, more: dict[str, str], sure: Confidence
) -> None:
    """Nothing but its command line is for others."""
    main = (
        '\n\nif __name__ == "__main__":\n'
        "    from argparse import ArgumentParser\n\n"
        "    args = ArgumentParser().parse_args()\n"
        "    Trainer().fit(model, loader, optimizer)\n"
    )
    files = {
        "setup.py": 'from setuptools import setup\n\nsetup(packages=["net"])\n',
        "net/__init__.py": "",
        "other.py": "x = 1\n",
        ".git/HEAD": "",
        **more,
        "net/engine.py": LOOP + main + more.get("net/engine.py", ""),
    }
    given = {f"../{name}": text for name, text in files.items()}
    found = confidences(tmp_path / "net", given)
    assert (found[11], found[19]) == (HIGH, sure)


def test_what_a_module_of_a_package_tries_itself(tmp_path: Path) -> None:
    """Without a command line it may be there for others to import."""
    main = '\n\nif __name__ == "__main__":\n    Trainer().fit(m, l, o)\n'
    files = {
        "setup.py": 'from setuptools import setup\n\nsetup(packages=["net"])\n',
        "net/__init__.py": "",
        "other.py": "x = 1\n",
        "net/engine.py": LOOP + main,
        ".git/HEAD": "",
    }
    given = {f"../{name}": text for name, text in files.items()}
    assert confidences(tmp_path / "net", given)[19] is HIGH
