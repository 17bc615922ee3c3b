"""Imports of what the project lacks: a program that starts with one never runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules
from tests.script.test_doubts import LOOP, MAIN, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH
README = {"README.md": "# Net\n\nRun `python main.py`.\n", ".git/HEAD": ""}


@pytest.mark.parametrize(
    "statement, files, sure",
    [
        ("from center_loss import CenterLoss", {}, LOW),
        ("import rotation", {}, LOW),
        ("from checkpoint_saver import CheckpointSaver", {}, LOW),
        ("import numpy, loss_function", {}, LOW),
        ("from data_set import Samples", {}, LOW),
        ("from modeling_glm import Glm", {}, LOW),
        ("from modeling_glm import Glm", {"README.md": "Get modeling_glm.py\n"}, HIGH),
        ("import focal_loss", {"old/focal_loss.py": ""}, HIGH),
        ("import focal_loss", {"requirements.txt": "focal-loss\n"}, HIGH),
        ("import focal_loss", {"setup.py": "requires = ['focal_loss']\n"}, HIGH),
        ("import focal_loss", {"README.md": "pip install focal_loss\n"}, HIGH),
        ("import focal_loss", {".gitmodules": "[submodule]\n"}, HIGH),
        ("import sys\nsys.path.append('../old')\nimport focal_loss", {}, HIGH),
        ("try:\n    import focal_loss\nexcept ImportError:\n    pass", {}, HIGH),
        ("import focal_frob", {}, HIGH),
        ("from pyglib import timer", {}, LOW),
        ("import google3.learning as learning", {}, LOW),
        ("import pyglib", {"pyglib/__init__.py": "timer = 1\n"}, HIGH),
    ],
    ids=[
        "from",
        "import",
        "saver",
        "one of two",
        "of data",
        "of transformers",
        "to be copied",
        "elsewhere",
        "required",
        "set up",
        "prose",
        "submodule",
        "other folders",
        "without it",
        "a package",
        "of Google alone",
        "of its repository",
        "its own",
    ],
)
def test_modules_that_were_left_out(
    tmp_path: Path, statement: str, files: dict[str, str], sure: Confidence
) -> None:
    given = {"engine.py": f"{statement}\n{LOOP}", "main.py": MAIN}
    found = confidences(tmp_path, README | given | files)
    assert found[11 + statement.count("\n") + 1] is sure


@pytest.mark.parametrize(
    "statement, sure",
    [
        ("from parts import small, large", LOW),
        ("from parts import large", HIGH),
        ("from parts import small", HIGH),
    ],
)
def test_a_module_beside_the_one_that_is_there(
    tmp_path: Path, statement: str, sure: Confidence
) -> None:
    """Where `parts` is empty, another package may be meant, but not with `small`."""
    files = {"parts/__init__.py": "", "parts/small.py": ""}
    given = {"engine.py": f"{statement}\n{LOOP}", "main.py": MAIN}
    assert confidences(tmp_path, README | given | files)[12] is sure


COPY = "import sys\nfrom pathlib import Path\n{}\nimport prepare\n"
ABOVE = "sys.path.insert(0, str(Path(__file__).parent.parent))"
STARTS = "\nif __name__ == '__main__':\n    Trainer().fit(prepare.model, [], None)\n"


@pytest.mark.parametrize(
    "adds, files, sure",
    [
        (ABOVE, {}, LOW),
        (ABOVE, {"first/prepare.py": ""}, HIGH),
        (ABOVE, {"requirements.txt": "prepare\n"}, HIGH),
        (f"{ABOVE}\nsys.path.append(sys.argv[1])", {}, HIGH),
        (f"{ABOVE}\nsys.path += sys.argv[1:]", {}, HIGH),
        ("folder = '..'", {}, HIGH),
    ],
    ids=["a copy", "above", "required", "unknown", "otherwise", "as it is started"],
)
def test_a_copy_whose_module_stayed_where_it_was(
    tmp_path: Path, adds: str, files: dict[str, str], sure: Confidence
) -> None:
    text = COPY.format(adds) + LOOP + STARTS
    moved = {"engine.py": "", "first/runs/engine.py": text, "new/prepare.py": ""}
    found = confidences(tmp_path, README | moved | files, "first/runs/engine.py")
    assert found[11 + text.partition("class")[0].count("\n") - 3] is sure


@pytest.mark.parametrize(
    "files, sure",
    [
        ({"new/user.py": "from new.prepare import model\n"}, LOW),
        ({}, HIGH),
        ({"runs/user.py": "import sys\nsys.path.append('new')\n"}, HIGH),
        ({"run.sh": "PYTHONPATH=new python runs/engine.py\n"}, HIGH),
        ({"prepare.py": "model = None\n"}, HIGH),
    ],
    ids=["in a package", "of no package", "not imported so", "by a script", "above"],
)
def test_a_module_that_went_into_a_package(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    text = f"import prepare\n{LOOP}{STARTS}"
    moved = {"runs/engine.py": text, "new/prepare.py": "model = None\n"}
    found = confidences(tmp_path, README | moved | files, "runs/engine.py")
    assert found[12] is sure


@pytest.mark.parametrize(
    "files, sure",
    [
        ({"runs/README.md": "```\npython engine.py --rate 3\n```\n"}, LOW),
        ({"runs/go.sh": "python -u engine.py\n"}, LOW),
        ({"runs/go.sh": "PYTHONPATH=../new python engine.py\n"}, HIGH),
        ({"runs/go.sh": "python runs/engine.py\n"}, HIGH),
        ({"runs/go.sh": "python engine.py\n", "runs/prepare.py": ""}, HIGH),
    ],
    ids=["in prose", "by a script", "with a path", "from above", "beside"],
)
def test_a_program_that_is_started_where_it_lies(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    text = f"import prepare\n{LOOP}{STARTS}"
    given = {"runs/engine.py": text, "new/prepare.py": "model = None\n"}
    found = confidences(tmp_path, README | given | files, "runs/engine.py")
    assert found[12] is sure


@pytest.mark.parametrize(
    "files, sure",
    [
        ({"tasks/waves.py": ""}, LOW),
        ({"tasks/waves.py": "", "tasks/heat.py": "h = 1\n"}, HIGH),
        ({"tasks/waves.py": "", "tasks/heat/net.py": ""}, HIGH),
        ({"tasks/waves.py": "", "tasks/heat.so": ""}, HIGH),
    ],
    ids=["missing", "there", "a folder", "built"],
)
@pytest.mark.parametrize("line", ["import tasks.heat as h", "from tasks.heat import h"])
def test_a_folder_without_an_init_that_lacks_a_module(
    tmp_path: Path, line: str, files: dict[str, str], sure: Confidence
) -> None:
    given = {"engine.py": f"{line}\n{LOOP}", "main.py": MAIN, ".git/HEAD": ""}
    assert confidences(tmp_path, given | files)[12] is sure


@pytest.mark.parametrize(
    "files, sure",
    [
        ({}, LOW),
        ({"first/user.py": "import sys\nsys.path.append('../new')\n"}, LOW),
        ({"tasks/heat.py": "h = 1\n"}, HIGH),
        ({"src/tasks/heat.py": "h = 1\n"}, HIGH),
        ({"first/tasks/heat.py": "h = 1\n"}, HIGH),
        ({"run.py": "import sys\nsys.path.append('new')\nimport engine\n"}, HIGH),
        ({"run.sh": "PYTHONPATH=new python first/engine.py\n"}, HIGH),
    ],
    ids=["elsewhere", "added", "above", "in src", "beside", "imported", "by a script"],
)
def test_a_module_of_another_folder(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    """`first` and `new` are copies of one program; its `tasks` are not the same."""
    text = f"from tasks.heat import h\n{LOOP}{STARTS}"
    given = {
        "first/engine.py": text,
        "first/tasks/waves.py": "",
        "new/tasks/heat.py": "",
    }
    found = confidences(tmp_path, README | given | files, "first/engine.py")
    assert found[12] is sure


def test_prose_is_full_of_plain_words(tmp_path: Path) -> None:
    prose = "# Net\n\nThe dataset is split.\n"
    files = {
        "engine.py": f"from dataset.blend import Blend\n{LOOP}",
        "main.py": MAIN,
        "train/dataset/faces.py": "",
        "train/dataset/__init__.py": "",
        ".git/HEAD": "",
    }
    assert confidences(tmp_path, files | {"README.md": prose})[12] is LOW
    required = {"requirements.txt": "dataset\n"}
    assert confidences(tmp_path, files | required)[12] is HIGH


def test_a_single_file_may_have_modules_elsewhere(tmp_path: Path) -> None:
    files = {"engine.py": f"import focal_loss\n{LOOP}", "main.py": MAIN}
    assert confidences(tmp_path, {".git/HEAD": ""} | files)[12] is HIGH


@pytest.mark.parametrize(
    "call, beside, sure",
    [
        ("tools.init_run()", "def start():\n    pass\n", LOW),
        ("tools.start()", "def start():\n    pass\n", HIGH),
        ("tools.init_run()", "from runs import *\n", HIGH),
        ("tools.init_run()", "def __getattr__(name):\n    return print\n", HIGH),
        ("tools.init_run()", "globals().update(init_run=print)\n", HIGH),
    ],
    ids=["lacks it", "has it", "all of others", "makes names", "sets names"],
)
def test_a_module_that_lacks_what_is_called(
    tmp_path: Path, call: str, beside: str, sure: Confidence
) -> None:
    loop = "        for x, y in loader:\n"
    text = LOOP.replace(loop, f"        {call}\n{loop}", 1)
    files = {"engine.py": f"import tools\n{text}", "main.py": MAIN, "tools.py": beside}
    assert confidences(tmp_path, README | files)[13] is sure


def test_a_package_that_is_required_may_be_another(tmp_path: Path) -> None:
    loop = "        for x, y in loader:\n"
    text = LOOP.replace(loop, f"        tools.init_run()\n{loop}", 1)
    files = {"engine.py": f"import tools\n{text}", "main.py": MAIN}
    files["tools/__init__.py"] = "start = print\n"
    assert confidences(tmp_path, README | files)[13] is LOW
    assert confidences(tmp_path, {"requirements.txt": "tools\n"})[13] is HIGH


@pytest.mark.parametrize(
    "files, sure",
    [
        ({"nets/__init__.py": "from . import small, large\n"}, LOW),
        ({"nets/__init__.py": "from nets import small, large\n"}, LOW),
        ({"nets/__init__.py": "import nets.large\n"}, LOW),
        ({"nets/__init__.py": "from . import small\n"}, HIGH),
        ({"nets/__init__.py": "large = 3\nfrom . import small, large\n"}, HIGH),
        ({"nets/__init__.py": "from .more import *\n", "nets/more.py": ""}, HIGH),
        ({}, HIGH),
    ],
    ids=[
        "by points",
        "by name",
        "whole",
        "without",
        "of its own",
        "stars",
        "no package",
    ],
)
def test_a_package_whose_init_lacks_something(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    """Who imports a module of it runs that first."""
    given = {
        "engine.py": f"from nets.small import Net\n{LOOP}",
        "main.py": MAIN,
        "nets/small.py": "class Net:\n    pass\n",
        "nets/large.py": "from nets.small import Gone\n",
    }
    assert confidences(tmp_path, README | given | files)[12] is sure


@pytest.mark.parametrize(
    "files, sure",
    [
        ({}, LOW),
        ({"test.py": MAIN}, HIGH),
        ({"center_loss.py": "loss = None\n"}, HIGH),
        ({"look.ipynb": '{"cells": [], "note": "engine"}'}, HIGH),
        ({"pick.py": "import importlib\nimportlib.import_module(name)\n"}, HIGH),
        ({"setup.py": "from setuptools import setup\nsetup(packages=[])\n"}, HIGH),
        ({"run.py": "from engine import Trainer\nTrainer().fit(0, [], 0)\n"}, HIGH),
        ({"run.sh": "python -c 'from engine import Trainer'\n"}, HIGH),
        ({"README.md": "Try `from engine import Trainer`.\n"}, HIGH),
    ],
    ids=[
        "none",
        "another",
        "there",
        "a notebook",
        "by names",
        "for others",
        "calls alone",
        "a command",
        "prose",
    ],
)
def test_programs_none_of_which_starts(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    """What they import does something when it is imported, so it is no mere part."""
    given = {
        "engine.py": f"print('engine')\n{LOOP}",
        "main.py": f"import center_loss\n{MAIN}",
    }
    assert confidences(tmp_path, README | given | files)[12] is sure


@pytest.mark.parametrize(
    "files, sure",
    [
        ({}, LOW),
        ({"README.md": "# Net\n\nThe code is in `lib/`.\n"}, LOW),
        ({"old/lib/utils.py": ""}, HIGH),
        ({".gitmodules": ""}, HIGH),
        ({"lib/utils.cpp": ""}, HIGH),
        ({"lib.so": ""}, HIGH),
    ],
    ids=["nowhere", "in prose", "elsewhere", "a submodule", "to be built", "built"],
)
def test_a_folder_that_is_ignored_by_git(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    given = {"engine.py": f"import lib.utils\n{LOOP}", "main.py": MAIN}
    assert confidences(tmp_path, README | given | files)[12] is sure


@pytest.mark.parametrize(
    "decorator, sure",
    [
        ("amp.custom_fwd", LOW),
        ("amp.custom_bwd()", LOW),
        ("amp.custom_fwd(cast_inputs=torch.float32)", LOW),
        ('amp.custom_fwd(device_type="cuda")', HIGH),
        ("amp.custom_fwd(**options)", HIGH),
        ("torch.cuda.amp.custom_fwd", HIGH),
    ],
)
def test_decorators_that_ask_for_a_device(
    tmp_path: Path, decorator: str, sure: Confidence
) -> None:
    made = f"class Swish(torch.autograd.Function):\n    @{decorator}\n"
    made += "    def forward(ctx, x):\n        return x\n"
    text = f"import torch\nfrom torch import amp\n\noptions = {{}}\n\n\n{made}"
    engine = LOOP.replace("import torch\n", "import torch\nimport swish\n", 1)
    given = {"engine.py": engine, "main.py": MAIN, "swish.py": text}
    assert confidences(tmp_path, README | given)[12] is sure


@pytest.mark.parametrize(
    "line, parts, sure",
    [
        ("name = f'{__name__}'", "def f():\n\tif 1:\n        return 2\n", LOW),
        ("rate: float = 0.1", "print 'old'\n", LOW),
        ("rate: float = 0.1", "x = 'n'\nraise ValueError, x\n", LOW),
        ("rate: float = 0.1", "rate = 0777\n", LOW),
        ("rate: float = 0.1", "rate = (1\n", HIGH),
        ("rate = 0.1", "def f():\n    x = 1\n     y = 2\n", LOW),
        ("rate = 0.1", "def f():\nreturn 2\n", LOW),
        ("rate = 0.1", "print 'old'\n", HIGH),  # all of it may be for Python 2
        ("name = f'{__name__}'", "def f():\n    return 2\n", HIGH),
    ],
    ids=[
        "tabs",
        "prints",
        "raises",
        "octal",
        "broken",
        "indented",
        "not indented",
        "of Python 2",
        "sound",
    ],
)
def test_an_import_of_what_does_not_parse(
    tmp_path: Path, line: str, parts: str, sure: Confidence
) -> None:
    text = f"from tools.parts import f\n{LOOP}\n{line}\n"
    files = {"engine.py": text, "main.py": MAIN, "tools/parts.py": parts}
    assert confidences(tmp_path, README | files)[12] is sure


@pytest.mark.parametrize(
    "start, taken, sure",
    [
        ("", "large", LOW),
        ("", "small", HIGH),
        ("import sys\nsys.path.insert(0, '.')\n", "large", HIGH),
    ],
    ids=["lacks", "has", "other folders"],
)
def test_a_module_beside_a_program(
    tmp_path: Path, start: str, taken: str, sure: Confidence
) -> None:
    """It is the one that the program imports, whatever another has."""
    run = "if __name__ == '__main__':\n    Trainer().fit(1, 2, 3)\n"
    files = {
        "parts.py": "def small(): ...\n",
        "engine.py": f"from parts import {taken}\n{LOOP}\n{start}{run}",
        "../parts.py": "def large(): ...\n",
    }
    given = {f"../{name}": text for name, text in README.items()}
    assert confidences(tmp_path / "torch", files | given)[12] is sure


@pytest.mark.parametrize(
    "other, sure",
    [("tools/parts.py", LOW), ("tools/nets/parts.py", HIGH), ("none.py", LOW)],
    ids=["not of such a package", "of another such package", "nowhere"],
)
def test_a_module_of_a_package_that_lacks_a_name(
    tmp_path: Path, other: str, sure: Confidence
) -> None:
    """Another file counts that is called so with its folder."""
    files = {
        "engine.py": f"from nets.parts import large\n{LOOP}",
        "main.py": MAIN,
        "nets/__init__.py": "",
        "nets/parts.py": "def small(): ...\n",
        other: "def large(): ...\n",
    }
    assert confidences(tmp_path, files | README)[12] is sure


def test_a_program_that_is_started_as_a_module(tmp_path: Path) -> None:
    """Then the folder that it is started in comes first."""
    run = "if __name__ == '__main__':\n    Trainer().fit(1, 2, 3)\n"
    files = {
        "parts.py": "def small(): ...\n",
        "engine.py": f"from parts import large\n{LOOP}\n{run}",
        "../parts.py": "def large(): ...\n",
        "../README.md": "# Net\n\nRun `python -m torch.engine`.\n",
        "../.git/HEAD": "",
    }
    assert confidences(tmp_path / "torch", files)[12] is HIGH


TRAINED = """\
import mindspore as ms
from nets.net import Net

model = ms.Model(Net(), loss, optimizer)
model.train(10, data)
"""
NET = "from parts import Part\n\n\nclass Net(Part):\n    pass\n"


@pytest.mark.parametrize(
    "files, sure",
    [
        ({}, LOW),
        ({"nets/net.py": NET.replace("parts", ".parts")}, HIGH),
        ({"main.py": f"import sys\nsys.path.append('nets')\n{TRAINED}"}, HIGH),
        ({"parts.py": "class Part:\n    pass\n"}, HIGH),
        (
            {"nets/run.py": "import net\nif __name__ == '__main__':\n    net.Net()\n"},
            HIGH,
        ),
        ({"README.md": "Set `PYTHONPATH=nets`.\n"}, HIGH),
        ({"Makefile": "train:\n\tPYTHONPATH=.:nets python main.py\n"}, HIGH),
        ({"scripts/train.sh": "export PYTHONPATH=nets\npython main.py\n"}, HIGH),
        ({"torch_main.py": "import torch\n"}, HIGH),
    ],
    ids=[
        "beside the module alone",
        "with a point",
        "other folders",
        "beside the program as well",
        "a program beside it",
        "told in a text",
        "told by make",
        "told by a script",
        "of Python 2, perhaps",
    ],
)
def test_modules_that_need_their_own_folder(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    """What frameworks without a release for Python 2 do not find."""
    given = {"main.py": TRAINED, "nets/net.py": NET, "nets/parts.py": "class Part: 0\n"}
    for name, text in (README | given | files).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU584",)), projects=projects)
    found = check_path(tmp_path / "main.py", options).findings
    assert [f.confidence for f in found] == [sure]


TYPED = "def build(width: int) -> int:\n    return width\n"


@pytest.mark.parametrize(
    "old, new, files, sure",
    [
        ("", "", {}, LOW),
        ("from . import extra\n", "", {}, HIGH),
        ("from . import extra\n", "try:\n    from . import extra\nexcept E: ...\n", {}, HIGH),
        ("from beside import build\n", "from .beside import build\n", {}, HIGH),
        ("", "", {"nets/extra.py": "width = 4\n", "nets/beside.py": "build = 3\n"}, HIGH),
        ("", "", {"beside.py": TYPED}, HIGH),
        ("", "", {"requirements.txt": "beside\n"}, HIGH),
        ("", "", {"run.py": "import sys\nsys.path += ['nets']\nimport nets.main\n"}, HIGH),
    ],
    ids=[
        "both",
        "one way",
        "tried",
        "the other way",
        "perhaps for Python 2",
        "above",
        "required",
        "other folders",
    ],
)  # fmt: skip
def test_a_file_that_imports_in_two_ways(
    tmp_path: Path, old: str, new: str, files: dict[str, str], sure: Confidence
) -> None:
    text = f"from . import extra\nfrom beside import build\n{LOOP}\n\nif __name__ == '__main__':\n    Trainer().fit(*build(extra.width))\n"
    written = {
        "nets/__init__.py": "",
        "nets/main.py": text.replace(old, new) if old else text,
        "nets/extra.py": f"width = 4\n{TYPED}",
        "nets/beside.py": TYPED,
        **files,
        ".git/HEAD": "",
    }
    found = confidences(tmp_path, written, "nets/main.py")
    assert next(iter(found.values())) is sure
