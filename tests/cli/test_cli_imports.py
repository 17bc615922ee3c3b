"""What a plain `gpulint check` imports: nothing that only an option needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from gpulint.cli import main
try:
    main(["check", "train.py", "--no-cache", "--output-format", "concise"])
finally:
    print("modules:", *sys.modules)
"""
# Each takes a few milliseconds at least, of which a commit hook is made.
OPTIONAL = """
    gpulint.cli.git gpulint.cli.since gpulint.ignores gpulint.monitor gpulint.notebook
    gpulint.nvml gpulint.plugins gpulint.profiling gpulint.report.sarif gpulint.runtime
    gpulint.server gpulint.setup importlib.metadata libcst pygls rich tomlkit torch yaml
""".split()


def test_a_plain_check_imports_no_more_than_it_needs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nloss.backward()\n")
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *_, modules = done.stdout.partition("modules:")
    assert "gpulint.engine" in modules.split()
    assert sorted(set(OPTIONAL) & set(modules.split())) == []
