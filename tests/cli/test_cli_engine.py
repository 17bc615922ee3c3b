"""The command line over the real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpulint

REPO = Path(gpulint.__file__).resolve().parent.parent
LISTING = """\
import sys
from gpulint.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    print(stop.code, sorted({'rich', 'torch'} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("form", ["concise", "json"])
def test_formats_for_programs_import_no_rich(tmp_path: Path, form: str) -> None:
    (tmp_path / "broken.py").write_text("import torch\nprint(\n")
    done = subprocess.run(
        [sys.executable, "-c", LISTING, "check", "--output-format", form],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )
    assert done.stderr == "1 []\n"
    assert "GPU000" in done.stdout


def test_rules_are_listed_with_a_summary() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpulint", "rules", "--json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPO,
    )
    listed = json.loads(done.stdout)
    assert listed[0]["code"] == "GPU000"
    assert all(rule["summary"] for rule in listed)
