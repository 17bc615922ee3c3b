"""Programs that read an attribute which an object surely lacks, before a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH
ADDED = """\
import argparse


def get_parser():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--width", type=int)
    return parser
"""
OWN = """\
import argparse

from engine import Trainer
from nets import Net, build
from adding import get_parser


def main(args):
    network = build(args)
    Trainer().fit(network, network.loader, network.optimizer)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(parents=[get_parser()])
    args = parser.parse_args()
    main(args)
"""
NETS = """\
class Net:
    def __init__(self, config, speed=1):
        self.config = config
        self.width = self.config.width
        self.speed = speed


def make(wanted):
    print(wanted.width)
    return Net(wanted, wanted.depth)


def build(args):
    if args.width:
        print(args.width)
    return make(args)
"""
# Another program of the project, with options of its own.
OTHER = """\
import argparse

from nets import build

parser = argparse.ArgumentParser()
parser.add_argument("--depth")
args = parser.parse_args()
for name in ("width", "speed"):
    setattr(args, name, 3)
build(args)
"""
FILES = {
    "adding.py": ADDED,
    "engine.py": LOOP,
    "main.py": OWN,
    "nets.py": NETS,
    "other.py": OTHER,
    ".git/HEAD": "",
}


def of_files(folder: Path, *changes: tuple[str, str, str]) -> Confidence:
    """Of the wait in a step, where texts of some files are replaced."""
    files = dict(FILES)
    for name, old, new in changes:
        assert old in files[name]
        files[name] = files[name].replace(old, new, 1)
    found = confidences(folder, files)
    return found[min(found)]


@pytest.mark.parametrize(
    "name, old, new",
    [
        ("nets.py", "", ""),
        ("nets.py", "return Net(wanted, wanted.depth)", "return Net(wanted.depth)"),
        ("nets.py", "    print(wanted.width)\n", "    with open('a'):\n        wanted.depth\n"),
        ("nets.py", "return Net(wanted, wanted.depth)", "Net(depth=wanted.depth)"),
        ("nets.py", "self.config.width", "self.config.depth"),
        ("nets.py", "return make(args)", "return make(wanted=args)"),
        ("main.py", "[get_parser()]", "[shared]"),
        ("other.py", "build(args)", "args.depth = 4\nbuild(args)"),
        ("main.py", "    main(args)", "    print(args.__dict__)\n    main(args)"),
    ],
    ids=["two calls on", "in an argument", "in a block", "by its name", "kept",
         "named", "parents of a name", "set elsewhere", "shown"],
)  # fmt: skip
def test_options_that_a_function_of_another_file_reads(
    tmp_path: Path, name: str, old: str, new: str
) -> None:
    changes = [(name, old, new)]
    if new == "[shared]":
        changes.append(
            ("main.py", "    parser =", "    shared = get_parser()\n    parser =")
        )
    assert of_files(tmp_path, *changes) is LOW


@pytest.mark.parametrize(
    "name, old, new",
    [
        ("adding.py", "    return", '    parser.add_argument("--depth")\n    return'),
        ("adding.py", "    return", "    extend(parser)\n    return"),
        ("main.py", "    args =", '    parser.add_argument("--depth")\n    args ='),
        ("main.py", "    main(args)", "    args.depth = 3\n    main(args)"),
        ("main.py", "    main(args)", "    prepared.fill(args)\n    main(args)"),
        ("nets.py", "    return make(args)",
         "    from outer import prepared\n    prepared.fill(args)\n    return make(args)"),
        ("nets.py", "    return make(args)",
         ("    show(args)\n    return make(args)\n\n\n"
          "def show(options):\n    from outer import prepared\n    prepared.fill(options)")),
        ("main.py", "[get_parser()]", "[get_parser(), others.get_parser()]"),
        ("main.py", "import argparse\n", "import argparse\nimport importlib\n"),
        ("nets.py", "    return make(args)", "    args.depth = 4\n    return make(args)"),
        ("nets.py", "    return make(args)", "    return args.width and make(args)"),
        ("nets.py", "    return make(args)", "    args = args or 3\n    return make(args)"),
        ("nets.py", "    print(wanted.width)", "    if wanted.width:\n        return"),
        ("nets.py", "wanted.depth)", "getattr(wanted, 'depth', 3))"),
        ("nets.py", "    print(wanted.width)", "    if hasattr(wanted, 'depth'):\n        pass"),
        ("nets.py", "    return Net(wanted, wanted.depth)",
         "    try:\n        Net(wanted, wanted.depth)\n    except KeyError:\n        pass"),
    ],
    ids=["added by a parent", "a parent handed on", "added", "set", "handed to others",
         "handed to others on the way", "a function hands it to others",
         "parents not seen", "imports by name", "set on the way", "on a condition",
         "another object", "returns before", "a default", "asked for", "caught"],
)  # fmt: skip
def test_options_that_may_be_there(
    tmp_path: Path, name: str, old: str, new: str
) -> None:
    assert of_files(tmp_path, (name, old, new)) is HIGH


@pytest.mark.parametrize(
    "given, sure",
    [
        ("16", LOW),
        ("'small'", LOW),
        ("Wide(3)", HIGH),
        ("width", LOW),
        ("more", HIGH),
        ("None or args", HIGH),
        ("{'width': 3}", LOW),
        ("kept", LOW),
        ("[kept]", LOW),
        ("dict(kept, width=3)", HIGH),
        ("several", LOW),
        ("changed", HIGH),
    ],
)
def test_numbers_where_settings_are_read(
    tmp_path: Path, given: str, sure: Confidence
) -> None:
    lines = (
        "    width = 16\n    more = 3 if width else args\n    kept = {'width': width}\n"
        "    several = [kept]\n    changed = kept\n    if width:\n"
        f"        changed = args\n    network = Net({given})"
    )
    assert of_files(tmp_path, ("main.py", "    network = build(args)", lines)) is sure


PARTS = """\
class Small:
    def __init__(self):
        self.width = 3


class Wide(Small):
    pass


class Asking(Small):
    def __getattr__(self, name):
        return 3


def deepen(part):
    return part.depth
"""


@pytest.mark.parametrize(
    "made, more, sure",
    [
        ("Small()", "", LOW),
        ("Wide()", "", LOW),
        ("Asking()", "", HIGH),
        ("Wide() if args else Asking()", "", HIGH),
        ("Wide()", "    part.depth = 3\n", HIGH),
        ("Wide()", "    setattr(part, name, 3)\n", HIGH),
        ("Wide()", "    print('depth')\n", HIGH),
    ],
)
def test_objects_of_own_classes(
    tmp_path: Path, made: str, more: str, sure: Confidence
) -> None:
    lines = f"    part = {made}\n{more}    deepen(part)\n    network = Net(args)"
    changes = [("main.py", "    network = build(args)", lines)]
    changes += [("nets.py", "class Net:", f"{PARTS}\n\nclass Net:")]
    changes += [("main.py", "Net, build", "Asking, Net, Small, Wide, build, deepen")]
    assert of_files(tmp_path, *changes) is sure


OF_SELF = """\
import torch
from torch import nn


class Net(nn.Module):
    depth = 2

    def __init__(self, config, speed=1):
        super().__init__()
        self.config = config
        print(self.READ)


def build(args):
    return Net(args)
"""


@pytest.mark.parametrize(
    "read, old, new, sure",
    [
        ("never_set", "", "", LOW),
        ("depth", "", "", HIGH),
        ("training", "", "", HIGH),
        ("config", "", "", HIGH),
        ("never_set", "nn.Module", "nn.Linear", HIGH),
        ("never_set", "(nn.Module)", "", LOW),
        ("never_set", "        print(", "        self.never_set = 1\n        print(", HIGH),
        ("never_set", "    depth = 2", "    never_set: int = 2", HIGH),
        ("never_set", "        print(", "        self.add_module(name, net)\n        print(",
         HIGH),
        ("never_set", "def build", "class Heir(Net):\n    never_set = 1\n\n\ndef build", HIGH),
        ("never_set", "return Net(args)", "return make_nets(args)", HIGH),
        ("never_set", "import torch\n", "import torch\nKEYS = ['never_set']\n", HIGH),
    ],
)  # fmt: skip
def test_attributes_that_no_class_sets(
    tmp_path: Path, read: str, old: str, new: str, sure: Confidence
) -> None:
    text = OF_SELF.replace("READ", read)
    assert old in text
    if "make_nets" in new:  # made by others, if at all
        text += "\n\ndef later(made):\n    made.Net()\n"
    changed = text.replace(old, new, 1)
    assert of_files(tmp_path, ("nets.py", NETS, changed)) is sure


PARAMS = """\
import json


class Params:
    def __init__(self, path):
        with open(path) as file:
            params = json.load(file)
            self.__dict__.update(params)


def build(params):
    print(params.width, params.speed)
    return params.depth
"""
READ = "    params = Params(args.width)\n    network = build(params)"


@pytest.mark.parametrize(
    "kept, old, new, sure",
    [
        ('{"width": 1, "speed": 2}', "", "", LOW),
        ('{"width": 1, "speed": 2, "depth": 3}', "", "", HIGH),
        ('{"width": 1}', "", "", HIGH),
        ("", "", "", HIGH),
        ('{"width": 1, "speed": 2}', "json.load(file)", "loaded(file)", HIGH),
        ('{"width": 1, "speed": 2}', "(params)\n", "(params)\n            self.depth = 1\n",
         HIGH),
        ('{"width": 1, "speed": 2}', "def build", "print(dict(depth=3))\n\n\ndef build",
         HIGH),
    ],
    ids=["no such key", "a key", "of another program", "no file", "made otherwise", "set",
         "a keyword"],
)  # fmt: skip
@pytest.mark.parametrize("given", [False, True])
def test_settings_of_which_no_file_has_a_key(
    tmp_path: Path, given: bool, kept: str, old: str, new: str, sure: Confidence
) -> None:
    calls = "from nets import build\n\nbuild(3)\n" if given else ""
    changes = [
        ("main.py", "    network = build(args)", READ),
        ("main.py", "import Net, build", "import Params, build"),
        ("nets.py", NETS, PARAMS.replace(old, new, 1)),
        ("other.py", OTHER, calls),
    ]
    if kept:
        (tmp_path / "params.json").write_text(kept)
    assert of_files(tmp_path, *changes) is sure


CHOSEN = """\
    import importlib

    module = importlib.import_module(NAME)
    network = module.Small(args)
"""


@pytest.mark.parametrize(
    "named, others, sure",
    [
        ("args.width", "", LOW),
        ("'nets'", "", LOW),
        ("'timm.models'", "", HIGH),
        ("args.width", "class Small:\n    def __init__(self, it):\n        it.depth\n", LOW),
        ("args.width", "class Small:\n    def __init__(self, it):\n        it.real\n", HIGH),
        ("args.width", "Small = print\n", HIGH),
        ("args.width", "if args:\n    Small = None\n", HIGH),
    ],
    ids=["the only one", "named", "of a package", "both fail", "one does not", "a name",
         "in a branch"],
)  # fmt: skip
def test_what_a_chosen_module_makes(
    tmp_path: Path, named: str, others: str, sure: Confidence
) -> None:
    small = "class Small:\n    def __init__(self, config):\n        config.depth\n\n\n"
    lines = CHOSEN.replace("NAME", named).replace("(args)", "(16)")
    files = [("main.py", "    network = build(args)\n", lines)]
    files += [("nets.py", "class Net:", f"{small}class Net:")]
    files += [("adding.py", ADDED, f"{ADDED}\n\n{others}")]
    assert of_files(tmp_path, *files) is sure


@pytest.mark.parametrize(
    "imported, sure",
    [
        ("import tensorflow as tf", LOW),
        ("import tensorflow as tf\nimport tensorflow.python.ops", HIGH),
        ("import tensorflow as tf\nsession = tf.Session()", HIGH),
        ("import other as tf", HIGH),
    ],
)
def test_what_tensorflow_hides(tmp_path: Path, imported: str, sure: Confidence) -> None:
    head = "    def fit(self, model, loader, optimizer):\n"
    read = "        number = tf.python.data.experimental.AUTOTUNE\n"
    text = f"{imported}\n{LOOP}".replace(head, f"{head}{read}")
    found = confidences(tmp_path, {"engine.py": text})
    assert found[min(found)] is sure
