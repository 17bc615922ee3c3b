"""Settings of rules over the real engine, its cache, and the language server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import gpulint
from gpulint import dependencies
from gpulint.cli import main

FIXTURES = Path(gpulint.__file__).resolve().parent.parent / "fixtures"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project with two scripts, and a cache that trusts files as young as these."""
    monkeypatch.delenv("GPULINT_NO_CACHE")
    monkeypatch.setattr("gpulint.cache.stamps.MARGIN", 0)
    monkeypatch.chdir(tmp_path)
    for name in ("gpu303_deprecated_amp_api", "gpu106_host_sync_in_loop"):
        shutil.copy(FIXTURES / name / "bad.py", tmp_path / f"{name}.py")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "requirements.txt").write_text("torch>=2.4\n")


def run(*words: str) -> Result:
    dependencies._find.cache_clear()
    dependencies._in_folder.cache_clear()
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def check(*words: str) -> list[dict[str, Any]]:
    """What is found, the same with a cache and without."""
    plain = run("check", "--output-format", "json", "--no-cache", *words)
    for _ in range(2):
        kept = run("check", "--output-format", "json", *words)
        assert (kept.exit_code, kept.stdout) == (plain.exit_code, plain.stdout)
    assert plain.exit_code in (0, 1), plain.output
    found: list[dict[str, Any]] = json.loads(plain.stdout)
    return found


def check_all() -> list[dict[str, Any]]:
    return check("--min-confidence", "low")


def write(text: str) -> None:
    Path("gpulint.toml").write_text(text, "utf-8")


def test_what_was_kept_is_not_of_files_that_are_ignored_now() -> None:
    assert {f["code"] for f in check_all()} >= {"GPU303", "GPU106"}
    write('per-file-ignores = {"gpu303*" = ["GPU303"]}')
    assert "GPU303" not in {f["code"] for f in check_all()}
    write('per-file-ignores = {"gpu303*" = ["GPU106"]}')
    assert {f["code"] for f in check_all()} >= {"GPU303", "GPU106"}


def test_mistakes_are_said_whatever_was_kept() -> None:
    check()
    write('per-file-ignores = {"nowhere.py" = ["GPU9999"]}')
    for _ in range(2):
        assert "no rule matches 'GPU9999'" in run("check").stderr


def test_what_was_kept_is_not_of_files_that_have_other_settings_now() -> None:
    assert {f["code"] for f in check_all()} >= {"GPU303", "GPU106"}
    write('per-path = [{ path = "gpu3*", torch-version = "1.6" }]')
    assert "GPU303" not in {f["code"] for f in check_all() if f["fix"]}
    assert "GPU106" in {f["code"] for f in check_all() if f["fix"]}
    write('per-path = [{ path = "gpu3*", torch-version = "2.4" }]')
    assert "GPU303" in {f["code"] for f in check_all() if f["fix"]}
    write('per-path = [{ path = "gpu1*", ignore = ["GPU9999"] }]')
    for _ in range(2):
        assert "no rule matches 'GPU9999'" in run("check").stderr


def test_settings_files_can_be_ignored_too() -> None:
    shutil.copytree(FIXTURES / "projects" / "gpu902_yaml", ".", dirs_exist_ok=True)
    assert {"GPU902"} == {f["code"] for f in check("--select", "GPU902")}
    write('per-file-ignores = {"*.yaml" = ["GPU902"]}')
    [left] = check("--select", "GPU902")
    assert left["filename"].endswith("train.json")  # which can have no comment
    write('per-file-ignores = {"*.yaml" = ["GPU902"], "*.json" = ["GPU902"]}')
    assert not check("--select", "GPU902")
    assert run("fix", "--select", "GPU902").exit_code == 0


def severities() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in check("--min-confidence", "low"):
        found.setdefault(finding["code"], set()).add(finding["severity"])
    return found


def test_severities_of_settings() -> None:
    before = severities()
    assert before["GPU303"] == before["GPU106"] == {"warning"}
    write('severity = { ALL = "note", GPU3 = "error", GPU106 = "off" }')
    after = severities()
    assert after.keys() == before.keys() - {"GPU106"}
    assert {its for code, its in after.items() for its in its} == {"note", "error"}
    assert after["GPU303"] == {"error"}
    assert run("check", "--select", "GPU303").exit_code == 1
    write('severity = { ALL = "note" }')
    assert run("check").exit_code == 0
    assert run("fix", "--diff", "--unfixable", "ALL").exit_code == 0
    Path("broken.py").write_text("import torch\nprint(\n")
    assert severities()["GPU000"] == {"note"}
    write("")
    assert severities()["GPU000"] == {"error"}


def test_severities_in_settings_files() -> None:
    for name in ("gpu303_deprecated_amp_api.py", "gpu106_host_sync_in_loop.py"):
        Path(name).unlink()
    shutil.copytree(FIXTURES / "projects" / "gpu902_yaml", "code")
    Path("conf").mkdir()
    for name in ("train.yaml", "train.json"):
        text = Path("code", name).read_text("utf-8")
        Path("code", name).unlink()
        Path("conf", name).write_text(text, "utf-8")
    for name in ("train.py", "json_file.py"):
        text = Path("code", name).read_text("utf-8").replace("train.", "conf/train.")
        Path(name).write_text(text, "utf-8")
    shutil.rmtree("code")
    assert {f["severity"] for f in check("--select", "GPU902")} == {"warning"}
    Path("conf/gpulint.toml").write_text('severity = { GPU902 = "error" }')
    assert {f["severity"] for f in check("--select", "GPU902")} == {"error"}
    Path("conf/gpulint.toml").write_text('select = ["GPU1"]')
    assert not [f for f in check() if f["code"] == "GPU902"]


BOTH = ("--select", "GPU106,GPU303")


def fixable() -> set[str]:
    return {f["code"] for f in check(*BOTH) if f["fix"] is not None}


def test_rules_that_are_only_reported() -> None:
    assert fixable() == {"GPU303", "GPU106"}
    write('unfixable = ["GPU1"]')
    assert fixable() == {"GPU303"}
    reasons = {f["fix_withheld"] for f in check(*BOTH)}
    before = {f["fix_withheld"] for f in check(*BOTH, "--isolated")}
    [reason] = reasons - before
    assert reason == "the settings leave this rule to you (`fixable`, `unfixable`)"
    text = Path("gpu106_host_sync_in_loop.py").read_text()
    assert run("fix", "-q", *BOTH).exit_code == 1
    assert Path("gpu106_host_sync_in_loop.py").read_text() == text
    assert "torch.amp.GradScaler" in Path("gpu303_deprecated_amp_api.py").read_text()
    write('fixable = ["host-sync-in-loop"]\nunfixable = ["GPU1"]')
    assert fixable() == {"GPU106"}


@pytest.mark.parametrize(
    "settings, words, fixed",
    [
        ('fixable = ["GPU3"]', ("--fixable", "GPU1"), "GPU106"),
        ('fixable = ["GPU1"]', ("--unfixable", "GPU1"), ""),
        ('unfixable = ["GPU1"]', ("--fixable", "ALL"), "GPU106 GPU303"),
        ("", ("--fixable", "ALL", "--unfixable", "GPU303"), "GPU106"),
    ],
)
def test_fixable_on_the_command_line(
    settings: str, words: tuple[str, ...], fixed: str
) -> None:
    write(settings)
    report = Path("fixes.json")
    run("fix", "--report", str(report), *BOTH, *words)
    made = {fix["code"] for fix in json.loads(report.read_text())}
    assert made == set(fixed.split())


def test_findings_that_are_not_sure_enough() -> None:
    _by_hand()
    write('min-confidence = "high"')
    assert "GPU381" not in {f["code"] for f in check()}
    assert "GPU381" in {f["code"] for f in check("--min-confidence", "low")}
    write("")
    assert "GPU381" in {f["code"] for f in check()}
    assert "GPU381" not in {f["code"] for f in check("--min-confidence", "high")}


def _by_hand() -> Path:
    """A step of MindSpore by hand, whose precision is decided elsewhere, perhaps."""
    path = Path("gpu303_deprecated_amp_api.py")
    text = (FIXTURES / "gpu381_ms_amp" / "by_hand.py").read_text("utf-8")
    path.write_text(f"from mindcv.models import resnet50 as network\n{text}", "utf-8")
    return path


def test_comments_on_unsure_findings_are_no_idle_ones() -> None:
    path = _by_hand()
    before = path.read_text("utf-8")
    assert run("check", "-q", "--add-ignore", "--select", "GPU381").exit_code == 0
    assert path.read_text("utf-8") != before
    write('min-confidence = "high"')
    assert "GPU002" not in {f["code"] for f in check(str(path))}


@pytest.mark.parametrize(
    "settings, words, shown",
    [
        ("", "", False),
        ("", "--select ALL", True),
        ("", "--select GPU163", True),
        ("", "--select GPU2 --extend-select accelerate-manual-transfer", True),
        ("", "--extend-select GPU163", True),
        ("", "--extend-select ALL", True),
        ("", "--extend-select GPU2", False),
        ("", "--ignore GPU2", False),
        ("", "--min-confidence low", True),
        ("", "--select ALL --min-confidence medium", False),
        ('select = ["ALL"]', "", True),
        ('extend-select = ["ALL"]', "", True),
        ('min-confidence = "medium"', "--select ALL", False),
    ],
)
def test_what_is_hardly_sure_shows_where_it_is_asked_for(
    settings: str, words: str, shown: bool
) -> None:
    low = FIXTURES / "gpu163_accelerate_manual_transfer" / "bad.py"
    shutil.copy(low, "accelerated.py")
    write(settings)
    assert ("GPU163" in {f["code"] for f in check(*words.split())}) is shown
