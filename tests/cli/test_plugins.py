"""Rules of other packages: the worked example, and what is wrong with others."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpulint import registry
from gpulint.cli import main
from gpulint.settings import parse_toml

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "plugin-example"
SCRIPT = """\
import acme_metrics
import torch
from torch.utils.data import DataLoader


def train(model, criterion, optimizer, dataset):
    for step, (images, labels) in enumerate(DataLoader(dataset, num_workers=2)):
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        acme_metrics.upload("step", step)
        answer = acme_metrics.upload("again", step)
    acme_metrics.upload("done", answer)
"""


@pytest.fixture(name="site")
def _site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that packages are imported from; the work is done in another."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(registry, "_named", [])
    registry.plugin_rules.cache_clear()
    project = tmp_path / "project"
    project.mkdir()
    (project / "gpulint.toml").write_text('plugins = ["acme"]\n', "utf-8")
    (project / "train.py").write_text(SCRIPT, "utf-8")
    monkeypatch.chdir(project)
    yield folder
    registry.plugin_rules.cache_clear()
    for name in [name for name in sys.modules if name.startswith("acme")]:
        del sys.modules[name]


def install(
    site: Path, value: str = "acme_rules", name: str = "acme", dist: str = "acme"
) -> None:
    """What an installer writes beside a package."""
    info = site / f"{dist}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n", "utf-8"
    )
    (info / "entry_points.txt").write_text(
        f"[gpulint.rules]\n{name} = {value}\n", "utf-8"
    )


@pytest.fixture
def example(site: Path) -> Path:
    """The worked example, as its pyproject.toml says."""
    shutil.copytree(EXAMPLE / "acme_rules", site / "acme_rules")
    project = parse_toml((EXAMPLE / "pyproject.toml").read_bytes())["project"]
    [(name, value)] = project["entry-points"]["gpulint.rules"].items()
    install(site, value, name)
    return site


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_the_example_finds_and_fixes(example: Path) -> None:
    done = run("check", "--select", "ACME", "--output-format", "concise")
    assert done.exit_code == 1, done.output
    assert "train.py:12:9: ACME101" in done.output
    assert "train.py:13:18: ACME101" in done.output
    assert done.output.count("ACME101") == 2
    assert run("fix", "--select", "upload-in-step", "--exit-zero").exit_code == 0
    after = SCRIPT.replace('acme_metrics.upload("step"', 'acme_metrics.queue("step"')
    assert Path("train.py").read_text("utf-8") == after


def test_its_rules_are_rules_like_others(example: Path) -> None:
    assert "ACME101 upload-in-step" in run("explain", "acme101").output
    assert "did you mean `ACME101`?" in run("explain", "ACME102").stderr
    listed = run("rules").output
    assert "ACME101" in listed
    assert "GPU101" in listed
    assert "ACME101" in run("check").output
    sarif = run("check", "--select", "ACME1", "--output-format", "sarif").output
    assert "waits for a metric to reach the server" in sarif
    text = SCRIPT.replace(
        "step)\n", "step)  # gpulint: ignore[acme101] -- on purpose\n"
    )
    Path("train.py").write_text(text, "utf-8")
    assert run("check", "--select", "ACME,GPU002").exit_code == 0


def test_the_guide_s_test_runs(example: Path) -> None:
    guide = (EXAMPLE.parent / "plugins.md").read_text("utf-8")
    [code] = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    Path("bad.py").write_text(SCRIPT, "utf-8")
    names: dict[str, Any] = {}
    exec(code, names)
    assert [finding.code for finding in names["found"]] == ["ACME101", "ACME101"]
    assert [finding.fix is None for finding in names["found"]] == [False, True]


def test_nothing_runs_that_is_not_named(example: Path) -> None:
    Path("gpulint.toml").write_text("", "utf-8")
    assert "ACME" not in run("check").output
    assert run("check", "--select", "ACME").exit_code == 2
    assert "acme_rules" not in sys.modules


def test_the_cache_knows_plugins_and_their_files(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPULINT_NO_CACHE")
    words = ("check", "--select", "ACME,GPU202", "--output-format", "json")
    first = run(*words).output
    assert run(*words).output == first
    rule = example / "acme_rules" / "acme101_upload_in_step.py"
    text = rule.read_text("utf-8")
    rule.write_text(text.replace("each training step waits", "training waits"), "utf-8")
    registry.plugin_rules.cache_clear()
    for name in [name for name in sys.modules if name.startswith("acme")]:
        del sys.modules[name]
    assert "training waits for the metrics server" in run(*words).output


def refused(line: str) -> None:
    for words in (("check",), ("fix",), ("rules",), ("explain", "GPU101")):
        done = run(*words)
        assert done.exit_code == 2, words
        assert line in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_plugin_that_is_not_there(site: Path) -> None:
    refused("no plugin `acme` is installed; there are none")
    install(site, "other_rules", "other")
    refused("no plugin `acme` is installed; there are other")


def test_a_package_that_is_not_there(site: Path) -> None:
    install(site)
    refused("plugin `acme` cannot be used: there is no package acme_rules")


def test_a_package_that_raises(site: Path) -> None:
    (site / "acme_rules").mkdir()
    (site / "acme_rules" / "__init__.py").write_text("1 / 0\n", "utf-8")
    (site / "acme_rules" / "acme101_x.py").touch()
    install(site)
    refused("plugin `acme` cannot be used: ZeroDivisionError: division by zero")
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text(
        "[gpulint.rules]\nacme = acme_rules.inner\n", "utf-8"
    )
    refused("plugin `acme` cannot be used: ZeroDivisionError: division by zero")


def test_a_package_without_rules(site: Path) -> None:
    (site / "acme_rules").mkdir()
    (site / "acme_rules" / "__init__.py").touch()
    (site / "acme_rules" / "gpu101_mine.py").touch()
    install(site)
    refused("acme_rules holds no module such as acme101_upload_in_step.py")
    (site / "acme_rules" / "acme101_x.py").touch()
    refused("TypeError: acme_rules.acme101_x: one Rule expected, found 0")


def test_codes_and_names_that_clash(example: Path) -> None:
    rules = example / "acme_rules"
    text = (rules / "acme101_upload_in_step.py").read_text("utf-8")
    again = rules / "acme101_other.py"
    again.write_text(text, "utf-8")
    refused("ACME101 is there twice")
    again.rename(rules / "acme102_missing_amp.py")
    refused("ACME102 and GPU301 are both called missing-amp")


@pytest.mark.parametrize("name", ["gpu", "gpux", "all", "a", "Acme", "ac_me"])
def test_prefixes_that_are_not_a_plugin_s_own(site: Path, name: str) -> None:
    Path("gpulint.toml").write_text(f'plugins = ["{name}"]\n', "utf-8")
    install(site, name=name)
    refused(f"plugin `{name}` cannot be used: the prefix of codes")


def test_two_plugins_of_one_name(example: Path) -> None:
    install(example, "acme_again", dist="again")
    refused("plugin `acme` is there twice: in acme_again and acme_rules")
