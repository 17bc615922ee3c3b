"""Options of a trainer that are fields of a class, off unless somebody says so."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules
from tests.script.test_doubts import LOOP, MAIN, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH
FIELDS = """\
from dataclasses import dataclass, field


@dataclass
class Options:
    verbose: bool = field(default=False)
"""


@pytest.mark.parametrize(
    "files, sure",
    [
        ({}, LOW),
        ({"options.py": FIELDS.replace("field(default=False)", "False")}, LOW),
        ({"options.py": FIELDS.replace("field(default=False)", "True")}, HIGH),
        ({"options.py": FIELDS.replace("default=False", "default_factory=f")}, HIGH),
        ({"options.py": FIELDS.replace("verbose", "loud")}, HIGH),
        ({"run.sh": "python main.py --verbose True\n"}, HIGH),
        ({"options.yaml": "verbose: true\n"}, HIGH),
        ({"more.py": "Options(verbose=True)\n"}, HIGH),
        ({"more.py": "options.verbose = True\n"}, HIGH),
        ({"more.py": "from options import Options\nOptions(True)\n"}, HIGH),
        ({"more.py": "import options\noptions.Options(**given)\n"}, HIGH),
        ({"more.py": "given = dict(\n    verbose = True\n)\n"}, HIGH),
    ],
    ids="field plain on computed another command settings call set made given "
    "spaced".split(),
)
def test_what_stands_behind_a_field(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    head, _, rest = LOOP.partition("        for x, y in loader:\n")
    body, _, end = f"        for x, y in loader:\n{rest}".partition("\n\n\n")
    head = head.replace("class Trainer:", "class Trainer(base.Trainer):")
    inside = textwrap.indent(body, "    ")
    engine = f"import base\n{head}        if self.args.verbose:\n{inside}\n\n\n{end}"
    given = {"engine.py": engine, "main.py": MAIN, "options.py": FIELDS}
    found = confidences(tmp_path, {".git/HEAD": ""} | given | files)
    assert found[13] is sure


DEFAULT = """\
from dataclasses import dataclass, field

import yaml
from transformers import Trainer, TrainingArguments


@dataclass
class Config:
    files: str
    length: int
    training: TrainingArguments = field(
        default_factory=lambda: TrainingArguments(output_dir="out")
    )

    @classmethod
    def read(cls, path):
        return cls(**yaml.safe_load(open(path)))


def main(path, model, data):
    config = Config.read(path)
    Trainer(model, config.training, train_dataset=data).train()
"""
GIVEN = "files: a.json\nlength: 64\ntraining:\n  output_dir: out\n"


@pytest.mark.parametrize(
    "files, sure",
    [
        ({"a.yaml": GIVEN, "b.yaml": GIVEN}, LOW),
        ({"a.yaml": GIVEN, "b.yaml": "files: b.json\n"}, LOW),
        ({"a.yaml": GIVEN, "b.yaml": "files: b.json\nlength: 8\n"}, HIGH),
        ({}, HIGH),
        ({"a.yaml": GIVEN, "main.py": "Config('a', 8, TrainingArguments('o'))"}, LOW),
        ({"a.yaml": GIVEN, "main.py": "Config('a', training=None, length=8)"}, LOW),
        ({"a.yaml": GIVEN, "main.py": "Config('a', length=8)"}, HIGH),
    ],
    ids="given others without nothing third named left".split(),
)
def test_the_default_of_a_field(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    for name, text in {"config.py": DEFAULT, **files}.items():
        head = "from config import Config, TrainingArguments\n\nmade = "
        (tmp_path / name).write_text(head + text if name == "main.py" else text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU361",)), projects=projects)
    found = check_path(tmp_path / "config.py", options).findings
    assert [finding.confidence for finding in found] == [sure]
