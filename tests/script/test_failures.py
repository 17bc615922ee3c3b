"""Programs that raise before a place, by what the project's own code shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules
from gpulint.releases import Range
from tests.script.test_doubts import LOOP, MAIN, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH
NAMES = ("options", "verbose", "widths", "width", "folder")
ADDED = "".join(f'parser.add_argument("--{name}")\n' for name in NAMES)
OF_OPTIONS = MAIN.replace("args = parser", f"{ADDED}args = parser")

PARTS = """\
import functools
from collections import namedtuple
from dataclasses import dataclass


def make(width):
    return width


def triple(path):
    if path:
        return path, 1, 2
    return 1, 2, 3


Found = namedtuple("Found", ["loss", "scores", "parts"])


def named_triple(path):
    return Found(path, 1, 2)


def picky(path):
    if not path:
        raise ValueError(path)
    make()


def returns_or_raises(path):
    if not path:
        raise ValueError(path)
    if path > 1:
        return
    make()


def placed(width, /, **more):
    return width, more


def some(path):
    return (path, 1) if path else None


def pair_or_triple(path):
    if path:
        return path, 1
    return 1, 2, 3


def empty(path):
    print(path)


def inner():
    return make()


def early(path):
    if path:
        return
    make()


def asked(parser):
    parser.error("no path")
    make()


class Bare:
    def init(self, width):
        self.width = width


class Named(str):
    pass


class Wrong(Exception):
    pass


def undefined():
    return width_of_all(3)


def caught():
    try:
        open("widths")
    except OSError as error:
        print(error)
    import os.path

    print(os, __file__, len([error]))


def matched(width):
    match width:
        case [first, *others]:
            pass
        case {"width": first, **more}:
            pass
        case int() as number:
            pass
    print(first, others, more, number)


def lazy():
    yield make()


async def later():
    make()


def given(function):
    return functools.partial(function, 1)


@given
def decorated(width):
    return width


class Stopper:
    def __init__(self, patience):
        self.patience = patience


class Small(Stopper):
    pass


class Meta(type):
    def __call__(cls):
        return super().__call__(3)


class Counted(Stopper, metaclass=Meta):
    pass


class Cached(Stopper):
    def __new__(cls):
        return object()


@dataclass
class Record:
    width: int = 3


def noted(kept):
    kept.noted = True
    return kept


def since(release):
    def decorate(kept):
        @functools.wraps(kept)
        def wrapper(*args, **kwargs):
            return kept(*args, **kwargs)

        return wrapper

    return decorate


def filled(kept):
    def wrapper(*args, **kwargs):
        return kept(3, **kwargs)

    return wrapper


@noted
@since("1.2")
class Noted(Stopper):
    pass


@filled
class Filled(Stopper):
    pass
"""
FAIL = [
    "make(1, width=2)",
    "picky(2)",
    "loss, scores = named_triple(1)",
    "make()",
    "make(1, 2)",
    "make(depth=1)",
    "width = make()",
    "print(make())",
    "first, second = triple(1)",
    "[first, second] = triple(1)",
    "first, second = empty(1)",
    "Stopper()",
    "Small()",
    "Noted()",
    "inner()",
    "import parts\nparts.make()",
    "with open(path) as file:\n    make()",
    "for width in range(3):\n    make()",
    "for width in range(3):\n    if width == 0 or args.widths:\n        make()",
    "for width in range(3):\n    if width % 2 == 0:\n        make()",
    "for width in make():\n    print(width)",
    "if make():\n    print(args)",
    "found = make() or 3",
    "found = [width for width in make()]",
    "found = [make() for width in args.widths]",
    "found = {make(): width for width in args.widths}",
    "undefined()",
    "Bare(3)",
    "Bare(width=3)",
    "if args.evaluate:\n    print(args)\nelse:\n    make()",
    "if not args.evaluate:\n    make()",
    "print([1, 2][: args.widths / 2])",
    "for width in range(args.widths / 2):\n    print(width)",
]
RUN = [
    "if not args.evaluate:\n    print(args)\nelse:\n    make()",
    "if args.verbose is None:\n    make()",
    "if args.widths:\n    if not args.width:\n        make()",
    "print([1, 2][: args.widths // 2])",
    "print([1, 2][: int(args.widths / 2)])",
    "print({0.5: 1}[1 / 2])",
    "import numpy as np\nprint(np.r_[0 : 1 : 1 / 3], np.mgrid[-1 : 1 : 2 / 3])",
    "print(range(args.widths // 2))",
    "for width in range(1, 3):\n    if width == 0:\n        make()",
    "for width in range(3):\n    if width == 0 and args.widths:\n        make()",
    "for width in args.widths:\n    if width == 0 or args.folder:\n        make()",
    "make(*args.widths, width=2)",
    "returns_or_raises(2)",
    "placed(1, width=2)",
    "loss, scores, parts = named_triple(1)",
    "loss, *others = named_triple(1)",
    "make(1)",
    "make(*args.widths)",
    "make(**args.options)",
    "first, second, third = triple(1)",
    "first, *others = triple(1)",
    "first, second = some(1)",
    "first, second = pair_or_triple(1)",
    "first, second = lazy()",
    "first = empty(1)",
    "Stopper(3)",
    "Noted(3)",
    "Filled()",
    "Counted()",
    "Cached()",
    "Record()",
    "decorated()",
    "early(1)",
    "asked(parser)",
    "lazy()",
    "later()",
    "if args.verbose:\n    make()",
    "try:\n    make()\nexcept TypeError:\n    print(args)",
    "with contextlib.suppress(TypeError):\n    make()",
    "found = args.width or make()",
    "found = make() if args.width else 3",
    "found = [make() for width in args.widths if width]",
    "found = [make() for width in args.widths for depth in width]",
    "found = (make() for width in args.widths)",
    "found = width_of_all",
    "Bare()",
    "Named(3)",
    "Wrong(3)",
    "caught()",
    "matched(1)",
    "found = lambda: make()",
    "found = 1 < args.width < make()",
]


def of_main(folder: Path, lines: str) -> Confidence:
    """Of the wait that `trainer.fit` comes to, behind other lines of its program."""
    text = OF_OPTIONS.replace("trainer.fit(", f"{lines}\ntrainer.fit(")
    text = f"from parts import *\nimport contextlib\n{text}"
    named = "loader = model = optimizer = make_trainer = print\n"
    files = {"engine.py": LOOP, "main.py": text, "parts.py": PARTS + named}
    return confidences(folder, files)[11]


@pytest.mark.parametrize("lines", FAIL)
def test_programs_that_raise_before(tmp_path: Path, lines: str) -> None:
    assert of_main(tmp_path, lines) is LOW


@pytest.mark.parametrize("lines", RUN)
def test_programs_that_may_run(tmp_path: Path, lines: str) -> None:
    assert of_main(tmp_path, lines) is HIGH


@pytest.mark.parametrize(
    "lines, there, sure",
    [
        ('shutil.copytree("layers", "kept")', "", LOW),
        ('shutil.copytree("layers", "kept")', "layers/block.py", HIGH),
        ('shutil.copytree("layers", "kept")', "layers/notes.txt", HIGH),
        ('shutil.copytree("../layers", "kept")', "", HIGH),
        ("shutil.copytree(args.folder, 'kept')", "", HIGH),
        ('os.makedirs("layers")\nshutil.copytree("layers", "kept")', "", HIGH),
        ('shutil.copy("layers", "kept")', "", HIGH),
    ],
)
def test_a_folder_that_is_not_there(
    tmp_path: Path, lines: str, there: str, sure: Confidence
) -> None:
    text = OF_OPTIONS.replace("trainer.fit(", f"{lines}\ntrainer.fit(")
    files = {"engine.py": LOOP, "main.py": f"import os\nimport shutil\n{text}"}
    files[".git/HEAD"] = ""
    if there:
        files[there] = ""
    assert confidences(tmp_path, files)[11] is sure


STATE = """\
    def state(self):
        return {}


"""
MAY_END = """\
            if self.enough:
                break
            self.state(1)
"""
MAY_EXIT = """\
            if self.enough:
                exit(1)
            self.state(1)
"""
MAY_GO_ON = """\
            if self.speaks:
                print(loss.item())
                continue
            self.state(1)
"""
HEIR = """\


class Other(Trainer):
    def state(self, number):
        return {number: 1}
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("            loss.back", "            self.state(1)\n            loss.back", LOW),
        ("            print(loss", "            self.state(1)\n            print(loss", LOW),
        ("(loss.item())\n", "(loss.item())\n            self.state(1)\n", LOW),
        ("(loss.item())\n", "(loss.item())\n        self.state(1)\n", HIGH),
        ("(loss.item())\n", "(loss.item())\n            self.state()\n", HIGH),
        ("(loss.item())", "(loss.item(), self.state(1))", LOW),
        ("(loss.item())", "(loss.item(), self.others(1))", LOW),
        ("(loss.item())\n", f"(loss.item())\n{MAY_END}", HIGH),
        ("(loss.item())\n", f"(loss.item())\n{MAY_EXIT}", LOW),
        ("            print(loss.item())\n", MAY_GO_ON, HIGH),
    ],
    ids=["before", "just before", "behind, in the loop", "behind the loop", "takes it",
         "beside", "no method", "a loop that may end", "a program that may",
         "a pass that ends"],
)  # fmt: skip
def test_methods_of_the_object_itself(
    tmp_path: Path, old: str, new: str, sure: Confidence
) -> None:
    assert old in LOOP
    text = LOOP.replace(old, new, 1).replace("\n\ndef assess", f"{STATE}def assess")
    found = confidences(tmp_path, {"engine.py": text, "main.py": MAIN})
    assert found[min(found)] is sure


@pytest.mark.parametrize(
    "old, new",
    [
        ("def assess", f"{HEIR.strip()}\n\n\ndef assess"),
        ("class Trainer:", "from tools import Base\n\n\nclass Trainer(Base):"),
        ("    def state(", "    @property\n    def state("),
        ("        return {}\n", "        self.state = print\n        return {}\n"),
    ],
    ids=["an heir takes it", "a strange base", "decorated", "set by itself"],
)
def test_methods_that_may_be_others(tmp_path: Path, old: str, new: str) -> None:
    text = LOOP.replace(
        "            loss.back", "            self.state(1)\n            loss.back"
    )
    text = text.replace("\n\ndef assess", f"{STATE}def assess").replace(old, new, 1)
    found = confidences(tmp_path, {"engine.py": text, "main.py": MAIN})
    assert found[min(found)] is HIGH


MAIN_PROCESS = """\
            if self.accelerator.is_main_process:
                self.others(1)
            loss.back"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("            loss.back", MAIN_PROCESS, LOW),
        ("            loss.back", MAIN_PROCESS.replace("is_main_", "is_slow_"), HIGH),
        ("def assess", HEIR.strip().replace("state", "others") + "\n\n\ndef assess", HIGH),
        ("class Trainer:", "from tools import Base\n\n\nclass Trainer(Base):", HIGH),
        ("        return {}\n", "        self.others = print\n        return {}\n", HIGH),
        ("        return {}\n", "        setattr(self, n, print)\n        return {}\n", HIGH),
        ("def state(self)", "def __getattr__(self, name)", HIGH),
    ],
    ids=["in one process", "in some", "an heir", "a strange base", "set", "set by name",
         "looked for"],
)  # fmt: skip
def test_methods_that_no_class_has(
    tmp_path: Path, old: str, new: str, sure: Confidence
) -> None:
    text = LOOP
    if old != "            loss.back":
        text = text.replace(
            "            loss.back", "            self.others(1)\n            loss.back"
        )
    text = text.replace("\n\ndef assess", f"{STATE}def assess")
    assert old in text
    text = text.replace(old, new, 1)
    found = confidences(tmp_path, {"engine.py": text, "main.py": MAIN})
    assert found[min(found)] is sure


@pytest.mark.parametrize(
    "option, sure",
    [("discrete=True", LOW), ("in_order=False", HIGH), ("**options", HIGH)],
)
def test_options_that_no_loader_has(
    tmp_path: Path, option: str, sure: Confidence
) -> None:
    made = f"        DataLoader([1], {option})\n        for x, y in"
    text = LOOP.replace("        for x, y in", made, 1)
    text = text.replace(
        "import torch\n", "import torch\nfrom torch.utils.data import DataLoader\n"
    )
    found = confidences(tmp_path, {"engine.py": text, "main.py": MAIN})
    assert found[min(found)] is sure


MADE = """\
class Trainer:
    def __init__(self, width):
        self.width = width

    def __call__("""
BUILD = """\


def build():
    return Trainer(WIDTH)
"""


@pytest.mark.parametrize("given, sure", [("depth=3", LOW), ("width=3", HIGH)])
def test_objects_that_are_never_made(
    tmp_path: Path, given: str, sure: Confidence
) -> None:
    text = LOOP.replace("class Trainer:\n    def fit(", MADE)
    text += BUILD.replace("WIDTH", given)
    files = {"engine.py": text, "main.py": "from engine import build\n\nbuild()\n"}
    found = confidences(tmp_path, files)
    assert found[min(found)] is sure


DERIVED = """

class Wide(Trainer):
    def __init__(self, width):
        super().__init__(GIVEN)


def build():
    wide = Wide(3)
    assess(rows(wide), rows())
"""


@pytest.mark.parametrize(
    "given, old, new, sure",
    [
        ("width, 3", "", "", LOW),
        ("depth=width", "", "", LOW),
        ("width", "", "", HIGH),
        ("width, 3", "super()", "super(Wide, self)", LOW),
        ("width, 3", "super()", "super(Trainer, self)", HIGH),
        ("width, 3", "(Trainer)", "(Trainer, Named)", HIGH),
        ("width, 3", "def build", "class Both(Wide, Named): ...\n\n\ndef build", HIGH),
    ],
)
def test_what_the_class_above_does_not_take(
    tmp_path: Path, given: str, old: str, new: str, sure: Confidence
) -> None:
    derived = DERIVED.replace("GIVEN", given).replace(old or "GIVEN", new)
    text = LOOP.replace("class Trainer:\n    def fit(", MADE) + derived
    text = text.replace(
        "import torch\n", "import torch\n\nfrom names import Named, rows\n", 1
    )
    files = {"engine.py": text, "main.py": "from engine import build\n\nbuild()\n"}
    found = confidences(tmp_path, files)
    assert found[max(found)] is sure


CHOICES = 'parser.add_argument("--data", default="new", choices=["new", "small"])\n'


@pytest.mark.parametrize(
    "option, test, sure",
    [
        (CHOICES, 'args.data == "old"', LOW),
        (CHOICES, 'args.data == "small"', HIGH),
        (CHOICES, 'args.data == "new"', HIGH),
        (CHOICES, 'args.data != "old"', HIGH),
        (CHOICES.replace('"small"', "*names"), 'args.data == "old"', HIGH),
        (CHOICES.replace('"new",', '"old",', 1), 'args.data == "old"', HIGH),
        ('parser.add_argument("--data")\n', 'args.data == "old"', HIGH),
        (f"{CHOICES}args = parser.parse_args()\nargs.data = name()\n",
         'args.data == "old"', HIGH),
    ],
    ids=["no choice", "a choice", "the default", "another", "open", "default beside",
         "any", "set later"],
)  # fmt: skip
def test_choices_of_an_option(
    tmp_path: Path, option: str, test: str, sure: Confidence
) -> None:
    text = MAIN.replace("args = ", f"{option}args = ")
    if "args.data = " in option:
        text = MAIN.replace("args = parser.parse_args()\n", option)
    text = text.replace("if args.evaluate:", f"if {test}:")
    files = {"engine.py": LOOP, "main.py": text}
    assert confidences(tmp_path, files)[19] is sure


PLAIN = "args.depth"
SEEN = """\
loader = model = optimizer = print


def make_trainer(kind, args):
    return kind(args)
"""
AGAIN = """\
for number in range(3):
    parser = argparse.ArgumentParser(parents=[parser])
"""
IN_TEST = "if args.depth:\n    print(1)"


@pytest.mark.parametrize(
    "more, lines, sure",
    [
        ("", PLAIN, LOW),
        ("", IN_TEST, LOW),
        ("Path('logs').mkdir(parents=True)", PLAIN, LOW),
        ("new = argparse.ArgumentParser(parents=[parser])", PLAIN, LOW),
        ("new = argparse.ArgumentParser(parents=[parser, *others])", PLAIN, HIGH),
        (AGAIN, PLAIN, HIGH),
        ("", "if args.always:\n    print(args.depth)", LOW),
        ("", "if args.never:\n    print(args.depth)", HIGH),
        ("", "args.evaluate", HIGH),
        ("", "if args.evaluate:\n    print(args.depth)", HIGH),
        ("", "found = args.evaluate or args.depth", HIGH),
        ("", "print(getattr(args, 'depth', 3))\nargs.depth", HIGH),
        ("", "args.depth = 3\nprint(args.depth)", HIGH),
        ("", "vars(args).update(depth=3)\nprint(args.depth)", HIGH),
        ("", "for k in names:\n    setattr(args, k, 3)\nprint(args.depth)", HIGH),
        ('parser.add_argument("--depth")', PLAIN, HIGH),
        ('parser.add_argument("-d", dest="depth")', PLAIN, HIGH),
        ("parser.set_defaults(depth=3)", PLAIN, HIGH),
        ("parser.set_defaults(**defaults)", PLAIN, HIGH),
        ("parser.add_argument(*flags)", PLAIN, HIGH),
        ("more(parser)", PLAIN, HIGH),
        ("parser = more()", PLAIN, HIGH),
        ("from options import parse_args\nargs = parse_args()", PLAIN, HIGH),
        ("parser.add_subparsers()", PLAIN, HIGH),
    ],
)
def test_options_that_no_command_line_has(
    tmp_path: Path, more: str, lines: str, sure: Confidence
) -> None:
    always = 'parser.add_argument("--always", action="store_true")\n'
    always += 'parser.add_argument("--never", action="store_true")\n'
    always += "parser.set_defaults(always=True)"
    more = (
        f"{more}\n{always}" if "args.always" in lines or "args.never" in lines else more
    )
    text = MAIN.replace("args = parser", f"{more}\nargs = parser")
    if "parse_args()" in more:
        text = text.replace("args = parser.parse_args()\n", "")
    text = text.replace("trainer.fit(", f"{lines}\ntrainer.fit(")
    files = {"engine.py": LOOP, "main.py": text, "parts.py": SEEN, ".git/HEAD": ""}
    assert confidences(tmp_path, files)[11] is sure


HELD = """\
import argparse


class Options:
    def __init__(self):
        self.parser = argparse.ArgumentParser()

    def parse(self):
        self.parser.add_argument("--evaluate", action="store_true")
        self.args = self.parser.parse_args()
        pass
        return self.args
"""


@pytest.mark.parametrize(
    "more, sure",
    [
        ("pass", LOW),
        ("print(dir(self.args))", LOW),
        ("extend(self.parser)", HIGH),
        ("self.args.depth = 3", HIGH),
    ],
)
def test_a_parser_that_an_object_holds(
    tmp_path: Path, more: str, sure: Confidence
) -> None:
    start, end = MAIN.index("parser = "), MAIN.index("trainer = ")
    text = f"{MAIN[:start]}from options import Options\n\nargs = Options().parse()\n"
    text += MAIN[end:].replace("trainer.fit(", "print(args.depth)\ntrainer.fit(")
    files = {"engine.py": LOOP, "main.py": text, "parts.py": SEEN, ".git/HEAD": ""}
    files["options.py"] = HELD.replace("pass", more)
    assert confidences(tmp_path, files)[11] is sure


def test_a_parser_whose_name_then_holds_what_it_parsed(tmp_path: Path) -> None:
    text = MAIN.replace("parser = arg", "args = arg").replace("parser.", "args.")
    text = text.replace("trainer.fit(", "print(args)\nprint(args.depth)\ntrainer.fit(")
    files = {"engine.py": LOOP, "main.py": text, "parts.py": SEEN, ".git/HEAD": ""}
    assert confidences(tmp_path, files)[11] is LOW
    (tmp_path / "parts.py").unlink()
    unseen = {name: text for name, text in files.items() if name != "parts.py"}
    assert confidences(tmp_path, unseen)[11] is HIGH
    more = text.replace("args = args.parse", "more(args)\nargs = args.parse")
    assert confidences(tmp_path, files | {"main.py": more})[11] is HIGH


@pytest.mark.parametrize(
    "body, sure",
    [
        ('p.add_argument("--size")', LOW),
        ('p.add_argument("--size")\n    return p', LOW),
        ('p.add_argument("--depth")', HIGH),
        ("extend(p)", HIGH),
        ("for name in p.names:\n        p.add_argument(name)", HIGH),
    ],
)
def test_a_function_that_adds_options(
    tmp_path: Path, body: str, sure: Confidence
) -> None:
    text = MAIN.replace("args = parser", "add(parser)\nargs = parser")
    text = text.replace("trainer.fit(", "print(args.depth)\ntrainer.fit(")
    text = f"from adding import add\n{text}"
    files = {"engine.py": LOOP, "main.py": text, "parts.py": SEEN, ".git/HEAD": ""}
    files["adding.py"] = f"def add(p):\n    {body}\n"
    assert confidences(tmp_path, files)[11] is sure


def test_options_that_another_file_adds_or_sets(tmp_path: Path) -> None:
    text = MAIN.replace("trainer.fit(", "print(args.depth)\ntrainer.fit(")
    text = f"import others\n{text}"
    files = {"engine.py": LOOP, "main.py": text, "parts.py": SEEN, ".git/HEAD": ""}
    for others, sure in [
        ("def widen(args):\n    args.width = 3\n", LOW),
        ("def deepen(args):\n    args.depth = 3\n", HIGH),
        ("def read(args, it):\n    args.__dict__.update(it)\n", HIGH),
        ('def more(p):\n    p.add_argument("--depth")\n', HIGH),
    ]:
        files["others.py"] = others
        assert confidences(tmp_path, files)[11] is sure, others


@pytest.mark.parametrize(
    "newest, line, sure",
    [
        ((1, 7), "torch.optim.RAdam(model.parameters())", LOW),
        ((1, 10), "torch.optim.RAdam(model.parameters())", HIGH),
        (None, "torch.optim.RAdam(model.parameters())", HIGH),
        ((1, 7), "torch.optim.Adam(model.parameters())", HIGH),
        ((1, 13), "torch.compile(model)", LOW),
        ((1, 13), "if args.evaluate:\n    torch.compile(model)", HIGH),
    ],
)
def test_names_that_no_allowed_torch_has(
    tmp_path: Path, newest: tuple[int, int] | None, line: str, sure: Confidence
) -> None:
    text = "import torch\n" + MAIN.replace("trainer.fit(", f"{line}\ntrainer.fit(")
    for name, content in {"engine.py": LOOP, "main.py": text}.items():
        (tmp_path / name).write_text(content)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    rules = select_rules(("GPU106",))
    options = Options(rules, projects=projects, newest_torch=newest)
    found = check_path(tmp_path / "engine.py", options).findings
    assert {f.place.start.row: f.confidence for f in found}[11] is sure


@pytest.mark.parametrize(
    "start, sure",
    [
        ("sys.path.append('.')\nfrom parts import *\n", LOW),
        ("from parts import *\nsys.path.append('.')\n", HIGH),
        ("import sys\nsys.path.append('.')\nfrom parts import *\n", HIGH),
    ],
    ids=["before", "behind", "imported"],
)
def test_names_that_stand_above_all_that_brings_names(
    tmp_path: Path, start: str, sure: Confidence
) -> None:
    loop = LOOP[LOOP.index("        for x, y") : LOOP.index("\n\ndef assess")]
    lines = (line[8:] for line in loop.splitlines())
    text = f"import torch\n{start}" + "\n".join(lines)
    files = {"engine.py": text + "\n", "parts.py": "from elsewhere import *\n"}
    assert set(confidences(tmp_path, files).values()) == {sure}


@pytest.mark.parametrize(
    "call, oldest, sure",
    [
        ("yaml.load(f)", (6, 0), LOW),
        ("yaml.load(f)", (5, 4), HIGH),
        ("yaml.load(f)", None, HIGH),
        ("yaml.load(f, yaml.FullLoader)", (6, 0), HIGH),
        ("yaml.safe_load(f)", (6, 0), HIGH),
    ],
)
def test_settings_without_a_loader(
    tmp_path: Path, call: str, oldest: tuple[int, int] | None, sure: Confidence
) -> None:
    text = """\
import torch
import yaml

with open("settings.yaml") as f:
    settings = CALL
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = model(x.cuda()).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
    path = tmp_path / "train.py"
    path.write_text(text.replace("CALL", call))
    packages = (("pyyaml", Range(oldest, None)),) if oldest else ()
    options = Options(select_rules(("GPU106",)), packages=packages)
    assert [f.confidence for f in check_path(path, options).findings] == [sure]


@pytest.mark.parametrize(
    "line, sure",
    [
        ("if args.missing:", LOW),
        ("for width in args.missing:", LOW),
        ("with open(args.missing) as file:", LOW),
        ("while make():", LOW),
        ("match args.missing:\n  case _:", LOW),
        ("if args.width:", HIGH),
        ("if True:", HIGH),
    ],
)
def test_what_a_block_around_a_place_evaluates_first(
    tmp_path: Path, line: str, sure: Confidence
) -> None:
    """What stands behind the place in the block has not been run before it."""
    text = OF_OPTIONS.replace(
        "trainer.fit(model, loader, optimizer)",
        f"{line}\n    trainer.fit(model, loader, optimizer)\n    make()",
    )
    named = "loader = model = optimizer = make_trainer = print\n"
    files = {
        "engine.py": LOOP,
        "main.py": f"from parts import *\n{text}",
        "parts.py": PARTS + named,
    }
    assert confidences(tmp_path, files)[11] is sure


@pytest.mark.parametrize(
    "lines, sure",
    [
        ("draw(device)\ndevice = 'cuda'", LOW),
        ("draw(device)\nimport device", LOW),
        (
            "for x in loader:\n    if x:\n        draw(device)\n    device = 'cuda'",
            HIGH,
        ),
        ("device = 'cuda'\ndraw(device)", HIGH),
        ("if loader:\n    device = 'cuda'\ndraw(device)", HIGH),
        ("draw(input)\ninput = loader", HIGH),
        ("__file__ = draw(__file__)", HIGH),
        ("set_up()\ndraw(device)\ndevice = 'cuda'", HIGH),
        ("exec(loader)\ndraw(device)\ndevice = 'cuda'", HIGH),
        ("print(lambda: draw(device))\ndevice = 'cuda'", HIGH),
    ],
)
def test_names_at_the_top_that_have_no_value_yet(
    tmp_path: Path, lines: str, sure: Confidence
) -> None:
    text = f"from parts import draw\n{MAIN.replace('trainer.fit', f'{lines}{chr(10)}trainer.fit')}"
    if "set_up" in lines:
        text = f"def set_up():\n    global device\n    device = 1\n\n\n{text}"
    parts = "loader = model = optimizer = make_trainer = draw = print\n"
    files = {"engine.py": LOOP, "main.py": text, "parts.py": parts}
    assert confidences(tmp_path, files)[11] is sure


@pytest.mark.parametrize(
    "engine, main, sure",
    [
        ("", "fit_all(loader)", HIGH),
        ("", "other(loader)", LOW),
        ("", "fit_all", HIGH),
        ("# trainer.fit_all(loader)", "other(loader)", LOW),
        ("'''Calls fit_all of all.'''", "other(loader)", LOW),
        ("METHOD = 'engine.Trainer.fit_all'", "other(loader)", HIGH),
        ("NAMES = ['fit_all']", "other(loader)", HIGH),
        ("def run(its, name):\n    getattr(its, name)()", "other(loader)", HIGH),
        ("def run(its, by):\n    getattr(its, 'fit_' + by)()", "other(loader)", HIGH),
        ("import fire\n\nfire.Fire(Trainer)", "other(loader)", HIGH),
    ],
)
def test_methods_that_only_a_method_calls_which_nobody_names(
    tmp_path: Path, engine: str, main: str, sure: Confidence
) -> None:
    calls = (
        "    def fit_all(self, loader):\n        self.fit(loader, loader, loader)\n\n"
    )
    others = "    def other(self, loader):\n        print(loader)\n"
    text = LOOP.replace("\n\ndef assess", f"\n{calls}{others}\n\ndef assess")
    program = MAIN.replace("fit(model, loader, optimizer)", main)
    files = {
        "engine.py": f"{text}\n\n{engine}\n",
        "main.py": program.replace("make_trainer(Trainer, args)", "Trainer()"),
        "parts.py": "loader = model = optimizer = make_trainer = print\n",
    }
    assert confidences(tmp_path, files)[11] is sure


UNBOUND = "\n".join(f"note_{number} = {number}" for number in range(30))


@pytest.mark.parametrize(
    "lines, sure",
    [
        ("if torch.cuda.is_available():\n    os.environ['A'] = args", LOW),
        ("gpu = torch.cuda.is_available()\nif gpu:\n    os.environ['A'] = args", LOW),
        ("gpu = args and torch.cuda.is_available()\nif gpu:\n    shown.x = os", LOW),
        ("if not torch.cuda.is_available():\n    print()\nelse:\n    print(os)", LOW),
        ("if not torch.cuda.is_available():\n    os.environ['A'] = args", HIGH),
        ("gpu = torch.cuda.is_available() or args\nif gpu:\n    shown.x = os", HIGH),
        ("if torch.cuda.device_count() > 1:\n    os.environ['A'] = args", HIGH),
        ("if torch.cuda.is_available():\n    os = args\n    os.environ['A'] = 1", HIGH),
    ],
)
def test_names_that_a_program_lacks_on_a_gpu(
    tmp_path: Path, lines: str, sure: Confidence
) -> None:
    text = MAIN.replace("import argparse", f"import argparse\nimport torch\n{UNBOUND}")
    text = text.replace("trainer.fit(", f"shown = args\n{lines}\ntrainer.fit(")
    files = {"engine.py": LOOP, "main.py": text, ".git/HEAD": ""}
    assert confidences(tmp_path, files)[11] is sure
