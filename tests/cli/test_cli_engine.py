"""The command line over the real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import gpulint
from gpulint.cli import main

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
    (tmp_path / "broken.py").write_text("import torch\nloss.backward(\n")
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


@pytest.mark.parametrize(
    "declared, prose, fixed",
    [
        ("torch~=1.13", "", False),
        ("torch<2.3", "", False),
        ("torch>=1.8", "", False),
        ("torch>=2.3", "PyTorch 1.8", True),
        ("", "", True),
        ("torch", "Tested on PyTorch 1.6.", False),
        ("torch", "pip install torch==1.8.0", False),
        ("torch", "PyTorch 1.6 or later", False),
        ("torch", "Tested on PyTorch 1.6 and 2.4.", False),
        ("torch", "Tested on PyTorch 2.4.", True),
    ],
)
def test_no_helpers_in_a_project_whose_torch_they_cannot_run_with(
    tmp_path: Path, declared: str, prose: str, fixed: bool
) -> None:
    text = (REPO / "fixtures" / "gpu201_serial_loading" / "bad.py").read_text()
    script = tmp_path / "train.py"
    script.write_text(text)
    (tmp_path / "requirements.txt").write_text(f"{declared}\n")
    (tmp_path / "README.md").write_text(prose)
    run = CliRunner().invoke
    rule = ["--select", "GPU201", str(tmp_path)]
    shown = json.loads(run(main, ["check", "--output-format", "json", *rule]).stdout)
    reasons = {str(finding["fix_withheld"]) for finding in shown}
    assert ("needs torch 2.3, the project allows" in " ".join(reasons)) is not fixed
    run(main, ["fix", "--allow", "all", *rule], catch_exceptions=False)
    assert ("gpulint import runtime" in script.read_text()) is fixed


@pytest.mark.parametrize(
    "example, declared, reported",
    [
        ("gpu203_restarting_workers/bad.py", "torch==1.6.0", False),
        ("gpu203_restarting_workers/bad.py", "torch==1.7.1", False),
        ("gpu203_restarting_workers/bad.py", "torch<=1.8", True),
        ("gpu301_missing_amp/bad.py", "torch==1.5.1", False),
        ("gpu301_missing_amp/bad.py", "torch<1.7", True),
        ("gpu302_missing_tf32/bad.py", "torch==1.10.1", False),
        ("gpu302_missing_tf32/bad.py", "torch<1.12", False),
        ("gpu302_missing_tf32/bad.py", "torch>=1.8", True),
    ],
)
def test_nothing_sure_that_every_torch_of_the_project_lacks(
    tmp_path: Path, example: str, declared: str, reported: bool
) -> None:
    """Before 1.12 TF32 is on by default; the others are not, or not old, yet."""
    text = (REPO / "fixtures" / example).read_text()
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "requirements.txt").write_text(f"{declared}\n")
    rule = ["--select", example[:6].upper(), str(tmp_path)]
    shown = CliRunner().invoke(main, ["check", "--output-format", "json", *rule])
    sure = [f for f in json.loads(shown.stdout) if f["confidence"] != "low"]
    assert bool(sure) is reported


@pytest.mark.parametrize("pin", ["pip install torch==1.4.0", "- torch == 1.4.0+cu92"])
def test_commands_of_the_readme_pin_as_a_declaration_does(
    tmp_path: Path, pin: str
) -> None:
    text = (REPO / "fixtures" / "gpu301_missing_amp" / "bad.py").read_text()
    text = text.replace("from data", "from acme")
    (tmp_path / "train.py").write_text(text)
    check = ["check", "--output-format", "json", "--select", "GPU301", str(tmp_path)]
    run = CliRunner().invoke
    (tmp_path / "README.md").write_text("Tested on PyTorch 1.4.")
    assert json.loads(run(main, check).stdout)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "train.py").write_text(text)
    (tmp_path / "a" / "README.md").write_text(pin)
    shown = json.loads(run(main, check).stdout)
    sure = [f for f in shown if f["confidence"] != "low"]
    assert [Path(f["filename"]).parent.name for f in sure] == [tmp_path.name]


def test_an_old_torch_keeps_what_it_has(tmp_path: Path) -> None:
    """Pinned memory is older than torch 1.1, persistent workers are not."""
    text = (REPO / "fixtures" / "gpu203_restarting_workers" / "bad.py").read_text()
    script = tmp_path / "train.py"
    script.write_text(text)
    (tmp_path / "requirements.txt").write_text("torch>=1.1\n")
    rules = ["--select", "GPU202,GPU203", "--min-confidence", "high", str(tmp_path)]
    shown = CliRunner().invoke(main, ["check", "--output-format", "json", *rules])
    findings = json.loads(shown.stdout)
    kept = {f["code"] for f in findings if f["fix_withheld"]}
    assert kept == {"GPU203"}
    assert {f["code"] for f in findings if f["fix"]} == {"GPU202"}
    number = sum(f["code"] == "GPU203" for f in findings)
    for command in (["check"], ["fix", "--diff"], ["fix"]):
        said = CliRunner().invoke(main, [*command, *rules]).output
        assert f"{number} findings without a fix for torch 1.1: `--torch-" in said
    newer = ["check", "--torch-version", "2.13", *rules]
    assert "without a fix" not in CliRunner().invoke(main, newer).output


def test_a_series_has_no_last_release(tmp_path: Path) -> None:
    text = (REPO / "fixtures" / "gpu203_restarting_workers" / "bad.py").read_text()
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "requirements.txt").write_text("torch<2\n")
    said = CliRunner().invoke(main, ["check", "--select", "GPU203", str(tmp_path)])
    assert "2 findings without a fix for torch 1.x: `--torch-version`" in said.output
