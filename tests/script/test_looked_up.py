"""What is looked for by names, what decorators tell, and what packages make."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH
OTHER = """\
from loops import fit

if __name__ == "__main__":
    fit()
"""
BY_TARGET = """\
import importlib


def load(name):
    module, cls = name.rsplit(".", 1)
    return getattr(importlib.import_module(module), cls)
"""
LISTED = """\
import importlib
import os

for name in os.listdir("nets"):
    module, _ = name.rsplit(".", 1)
    importlib.import_module(module)
"""


@pytest.mark.parametrize(
    "files, sure",
    [
        ({"any.py": "importlib.import_module('lib.' + name)"}, LOW),
        ({"any.py": "importlib.import_module('nets.' + name)"}, HIGH),
        ({"any.py": "importlib.import_module(f'nets.{name}')"}, HIGH),
        ({"any.py": "importlib.import_module('.' + name, package)"}, HIGH),
        ({"any.py": "importlib.import_module('.' + name, 'lib')"}, LOW),
        ({"any.py": "importlib.import_module('.' + name, package='nets')"}, HIGH),
        ({"any.py": "importlib.import_module(name)"}, HIGH),
        ({"any.py": BY_TARGET}, LOW),
        ({"any.py": LISTED}, HIGH),
        ({"any.py": BY_TARGET, "use.py": "load('nets.engine.assess')"}, HIGH),
        ({"any.py": BY_TARGET, "use.yaml": "net: nets.engine.assess\n"}, HIGH),
        ({"any.py": BY_TARGET, "use.yaml": "net: nets.engines.assess\n"}, LOW),
        ({"other.py": "def f():\n    from lightning.engine import x\n\nf()\n"}, LOW),
        ({"other.py": "def f():\n    from lib.engine import x\n\nf()\n"}, HIGH),
        ({"tools/other.py": "start('engine')\n"}, LOW),
        ({"README.md": "From `nets.engine import assess` ...\n"}, LOW),
        ({"README.md": "    from nets.engine import assess\n"}, HIGH),
        ({"nets/README.md": "See engine.py.\n"}, HIGH),
        ({"nets/engine.py": f"{LOOP}\n\n@register_model\nclass Net: ...\n"}, HIGH),
        ({"tools/other.py": "start('nets/engine.py')\n"}, HIGH),
        ({"nets/other.py": "start('engine')\n"}, HIGH),
        ({"other.py": "start('engine')\n"}, HIGH),
    ],
)
def test_files_that_are_looked_for(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    files = {"main.py": OTHER, ".git/HEAD": "", **files}
    given = {f"../{name}": text for name, text in files.items()}
    assert confidences(tmp_path / "nets", {"engine.py": LOOP, **given})[19] is sure


@pytest.mark.parametrize(
    "files, sure",
    [
        ({"b/any.py": "importlib.import_module(name)"}, LOW),
        ({"a/any.py": "importlib.import_module(name)"}, HIGH),
        ({"any.py": "importlib.import_module(name)"}, HIGH),
        ({"a/nets/any.py": "importlib.import_module(name)"}, HIGH),
        (
            {
                "a/other/any.py": "importlib.import_module(name)",
                "a/nets/README.md": "Nets\n",
                "a/nets/__init__.py": "",
            },
            HIGH,
        ),
        ({f"b/{n}.py": "engine = 1\n" for n in range(70)}, LOW),
        ({f"a/{n}.py": "engine = 1\n" for n in range(70)}, HIGH),
    ],
    ids=[
        "beside",
        "own",
        "above",
        "own folder",
        "a package",
        "names elsewhere",
        "own names",
    ],
)
def test_a_repository_of_many_projects(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    """Each has a README, and looks for its own modules."""
    files = {"a/main.py": OTHER, "a/README.md": "A\n", "b/README.md": "B\n", **files}
    given = {f"../../{name}": text for name, text in files.items()}
    given["../../.git/HEAD"] = ""
    folder = tmp_path / "a" / "nets"
    assert confidences(folder, {"engine.py": LOOP, **given})[19] is sure


LOG = """\
from functools import wraps

KNOWN = {}


def log(f):
    '''Say what runs.'''
    @wraps(f)
    def run(*args, **kwargs):
        print(f.__name__)
        return f(*args, **kwargs)
    return run
"""
DECORATED = """\
from engine import assess
from logs import log


@log
def check(model, loader):
    assess(model, loader)
"""


@pytest.mark.parametrize(
    "logs, more, sure",
    [
        (LOG, "", LOW),
        (LOG, "from checks import check\n\ncheck(print, print)\n", HIGH),
        (LOG.replace("    @wraps", "    KNOWN[1] = f\n    @wraps"), "", HIGH),
        (LOG.replace("return run", "return keep(run)"), "", HIGH),
        (LOG.replace("wraps(f)", "known(f)"), "", HIGH),
        (LOG.replace("@wraps(f)", "pass"), "", HIGH),
        ("from elsewhere import log\n", "", HIGH),
    ],
    ids=["wraps", "called", "keeps", "hands on", "decorates", "does more", "not found"],
)
def test_decorators_that_tell_nobody(
    tmp_path: Path, logs: str, more: str, sure: Confidence
) -> None:
    main = f"import checks\n\nchecks.fit()\n{more}"
    checks = f"{DECORATED}\n\ndef fit(): ...\n"
    files = {"engine.py": LOOP, "logs.py": logs, "checks.py": checks, "main.py": main}
    assert confidences(tmp_path, files)[19] is sure


CHOICE = "from runs import *\n\neval(args.run)(args)\n"


@pytest.mark.parametrize(
    "runs, sure",
    [
        ("from fits import fit\n", None),
        ("from fits import *\n", HIGH),
        ("from engine import *\n", HIGH),
        ("from engine import assess\n", HIGH),
    ],
    ids=["one", "all of a user", "all", "itself"],
)
def test_names_that_a_program_may_choose(
    tmp_path: Path, runs: str, sure: Confidence | None
) -> None:
    """`eval` sees what stars give the program, and what those modules have."""
    fits = "from engine import Trainer\n\ndef fit(args): Trainer().fit(args)\n"
    files = {"engine.py": LOOP, "fits.py": fits, "runs.py": runs, "main.py": CHOICE}
    assert confidences(tmp_path, files).get(19) is sure


BLOCKS = """\
from net.engine import assess


class Block:
    def run(self, model, loader):
        assess(model, loader)


class Stack:
    def __init__(self):
        self.block = Block()
"""


@pytest.mark.parametrize(
    "more, sure",
    [
        ({}, LOW),
        ({"net/more.py": "class Block: ...\n\nBlock()\n"}, LOW),
        (
            {
                "net/more.py": "class Block: ...\n",
                "net/use.py": "from net.more import Block\n\nBlock()\n",
            },
            LOW,
        ),
        (
            {
                "net/more.py": "class Block: ...\n",
                "net/use.py": "from net import blocks\nfrom net.more import Block\n\n"
                "blocks.Block()\n",
            },
            HIGH,
        ),
        ({"net/use.py": "from net.blocks import Stack\n\nStack()\n"}, HIGH),
        ({"net/use.py": "import net.blocks as b\n\nb.Block()\n"}, HIGH),
        ({"README.md": "Use `Stack`.\n"}, HIGH),
        ({"net/load.py": BY_TARGET}, LOW),
        ({"net/load.py": BY_TARGET, "use.yaml": "net: net.blocks.Stack\n"}, HIGH),
        ({"net/load.py": "importlib.import_module(name)\n"}, HIGH),
    ],
    ids=[
        "nobody",
        "another",
        "another's",
        "both",
        "made",
        "by its module",
        "described",
        "by target",
        "in settings",
        "by name",
    ],
)
def test_classes_that_a_package_makes_for_nobody(
    tmp_path: Path, more: dict[str, str], sure: Confidence
) -> None:
    files = {
        "setup.py": 'from setuptools import setup\n\nsetup(packages=["net"])\n',
        "net/__init__.py": "",
        "net/engine.py": LOOP,
        "net/blocks.py": BLOCKS,
        "net/main.py": "import net.blocks\nimport net.engine\n",
        ".git/HEAD": "",
        **more,
    }
    given = {f"../{name}": text for name, text in files.items()}
    assert confidences(tmp_path / "net", given)[19] is sure
