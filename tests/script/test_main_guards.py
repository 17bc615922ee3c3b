"""Whether what stands under a main guard comes to a training."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index import build_index
from gpulint.script import Script
from gpulint.script.reaching.started import why_not_at_start
from gpulint.source import Source

TRAIN = """
def train(model, loader, optimizer):
    for x, y in loader:
        model(x.cuda()).sum().backward()
        optimizer.step()

"""


@pytest.mark.parametrize(
    "top, guarded, trains",
    [
        ("", "train(*parts())", True),
        ("def main():\n    train(*parts())\n", "main()", True),
        (
            "class Runner:\n    def run(self):\n        train()\n",
            "Runner().run()",
            True,
        ),
        ("MODES = {'train': train}\n", "MODES[mode]()", True),
        ("import fire\n", "fire.Fire()", True),
        ("app = Typer()\n@app.command()\ndef run():\n    train()\n", "app()", True),
        ("runner = Runner(train)\n", "runner.run()", True),
        ("runner: Runner = Runner(train)\n", "runner.run()", True),
        ("", "print(parts())", False),
        ("def main():\n    print(parts())\n", "main()", False),
    ],
)
def test_guards_that_train(top: str, guarded: str, trains: bool) -> None:
    guard = f'if __name__ == "__main__":\n    {guarded}\n'
    source = Source(Path("/a/train.py"), f"import torch\n{TRAIN}{top}\n\n{guard}")
    why = why_not_at_start(Script(source, build_index(source)))
    assert ("trains nothing" in (why or "")) is not trains
