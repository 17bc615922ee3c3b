"""Options of a trainer that are fields of a class, off unless somebody says so."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gpulint.finding import Confidence
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
