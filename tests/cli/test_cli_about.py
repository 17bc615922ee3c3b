"""`gpulint clean`, `config`, `version` and `completion`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from gpulint import __version__
from gpulint.cli import main
from gpulint.cli.config import _toml
from gpulint.finding import Confidence, Effect, Severity
from gpulint.globs import Globs
from gpulint.registry import choose_rules
from gpulint.settings import FIXES, RULES, Settings, read_settings
from gpulint.settings_values import READERS

ROOT = Path(__file__).resolve().parents[2]
SCHEMA: dict[str, Any] = json.loads(
    (ROOT / "gpulint/settings.schema.json").read_text("utf-8")
)
KEYS: dict[str, dict[str, Any]] = SCHEMA["properties"]
# The fields of `Settings`, where they are called otherwise.
FIELDS = {
    **dict.fromkeys(("extend", *RULES), "rules"),
    **dict.fromkeys(FIXES, "fixes"),
    "required-version": "file",  # which every settings file has
}


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a cache."""
    monkeypatch.delenv("GPULINT_NO_CACHE")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.gpulint]\n", "utf-8")
    (tmp_path / "train.py").write_text("import torch\n", "utf-8")
    return tmp_path


def test_clean_removes_the_cache(project: Path) -> None:
    assert run("check").exit_code == 0
    folder = project / ".gpulint_cache"
    assert list(folder.glob("*.jsonl"))
    (folder / "gpulint-x1").touch()  # of a run that was killed
    done = run("clean")
    assert (done.exit_code, done.output) == (0, f"{folder}: removed\n")
    assert not folder.exists()
    again = run("clean")
    assert (again.exit_code, again.output) == (0, f"{folder}: no cache of gpulint\n")


def test_clean_leaves_what_is_not_ours(project: Path) -> None:
    (project / ".gitignore").write_text("data\n", "utf-8")
    assert run("check", "--cache-dir", ".").exit_code == 0
    assert list(project.glob("*.jsonl"))
    samples = project / "samples.jsonl"
    samples.write_text("{}\n", "utf-8")
    done = run("clean", "--cache-dir", ".")
    assert "files of others stay" in done.output
    left = {path.name for path in project.iterdir()}
    assert left == {".gitignore", "pyproject.toml", "samples.jsonl", "train.py"}


def test_clean_takes_the_folder_of_the_settings(project: Path) -> None:
    (project / "gpulint.toml").write_text('cache-dir = "kept"\n', "utf-8")
    assert run("check").exit_code == 0
    assert (project / "kept").is_dir()
    other = project / "other.toml"
    other.write_text('cache-dir = "nothing"\n', "utf-8")
    assert "no cache" in run("clean", "--config", str(other)).output
    assert run("clean").exit_code == 0
    assert not (project / "kept").exists()


def test_clean_says_what_it_cannot_do(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    assert run("check").exit_code == 0
    monkeypatch.setattr(Path, "unlink", refuse)
    done = run("clean")
    assert done.exit_code == 2
    assert "not removed: Permission denied" in done.stderr
    (project / "gpulint.toml").write_text("x = 1\n", "utf-8")
    assert run("clean").exit_code == 2


def test_config_lists_all_keys() -> None:
    lines = run("config").output.splitlines()
    assert [line.split()[0] for line in lines] == list(READERS)


@pytest.mark.parametrize("key", READERS)
def test_config_describes_each_key(key: str) -> None:
    done = run("config", key)
    assert done.exit_code == 0
    assert KEYS[key]["description"] in done.output
    assert f"Example: {key} = " in done.output


def test_config_forms() -> None:
    assert (
        'Type: "import" | "vendor"\nDefault: "import"\n'
        in run("config", "runtime").output
    )
    assert (
        "Type: list of strings or string\nDefault: []\n"
        in run("config", "TARGET").output
    )
    text = run("config", "package_versions").output
    assert 'Example: package-versions = { keras = "2.15", ' in text
    assert "Type: table of strings\nDefault: {}\n" in text
    assert "Type: string\nDefault: -\n" in run("config", "baseline").output
    done = run("config", "alow")
    assert done.exit_code == 2
    assert "did you mean `allow`?" in done.stderr
    assert run("config", "--nothing").exit_code == 2
    assert run("config", "allow", "more").exit_code == 2


def test_the_schema_has_the_keys_that_are_read() -> None:
    done = run("config", "schema", "--config")
    assert json.loads(done.output) == SCHEMA
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert list(KEYS) == list(READERS)
    for words in ([], ["--config", "--output"]):
        assert run("config", "schema", *words).exit_code == 2


def plain(value: Any) -> Any:
    """A setting as it stands in a file."""
    if isinstance(value, frozenset):
        return [effect.value for effect in Effect if effect in value]
    if isinstance(value, Globs):
        return list(value.patterns)
    if isinstance(value, (Confidence, Severity)):
        return value.value
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("key", READERS)
def test_the_schema_states_defaults_and_allows_examples(
    key: str, tmp_path: Path
) -> None:
    (tmp_path / "gpulint.toml").write_text('select = ["GPU1"]')  # of `extend`
    file = tmp_path / "inner" / "gpulint.toml"
    file.parent.mkdir()
    stated, field = KEYS[key]["default"], FIELDS.get(key, key.replace("-", "_"))
    if key in FIELDS and key != "required-version":
        file.write_text(f"{key} = {_toml(stated)}\n" if stated is not None else "")
        default = read_settings(file, file.parent)
        written, plainly = (getattr(its, field) for its in (default, Settings()))
        if field in ("rules", "fixes"):  # the same ones, though nobody asks for them
            written, plainly = choose_rules(written), choose_rules(plainly)
        assert written == plainly
    elif key not in FIELDS:
        default = plain(getattr(Settings(), field))
        assert stated == default or (stated, default) == ({}, [])
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for example in KEYS[key]["examples"]:
        validator.validate({key: example})
        file.write_text(f"{key} = {_toml(example)}\n", "utf-8")
        found = read_settings(file, file.parent)
        assert getattr(found, field) != getattr(Settings(), field)


@pytest.mark.parametrize("key", READERS)
def test_the_schema_refuses_what_is_refused(key: str, tmp_path: Path) -> None:
    for wrong in (3, [3], {"unknown": 3}, "\n", [], True):
        try:
            READERS[key](wrong, tmp_path)
        except ValueError:
            accepted = False
        else:
            accepted = True
        valid = jsonschema.Draft202012Validator(KEYS[key]).is_valid(wrong)
        assert valid or not accepted, (key, wrong)
        if not isinstance(wrong, str):  # the meaning of strings is not the schema's
            assert valid == accepted, (key, wrong)


def test_version() -> None:
    assert run("version").output == f"gpulint {__version__}\n"
    found = json.loads(run("version", "--json").output)
    assert found["gpulint"] == __version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["packages"]["click"]


def test_version_without_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulint.cli.about.PACKAGES", ("no-such-package",))
    found = json.loads(run("version", "--json").output)
    assert found["packages"] == {"no-such-package": None}


@pytest.mark.parametrize(
    "shell, word",
    [
        ("bash", "complete -o"),
        ("zsh", "#compdef gpulint"),
        ("fish", "complete --no-files"),
    ],
)
def test_completion(shell: str, word: str) -> None:
    done = run("completion", shell)
    assert done.exit_code == 0
    assert word in done.output
    assert f"_GPULINT_COMPLETE={shell}_complete" in done.output
    assert run("completion", "tcsh").exit_code == 2


def test_bash_asks_for_words_and_gets_them(tmp_path: Path) -> None:
    program = tmp_path / "gpulint"
    program.write_text(
        f"#!{sys.executable}\nfrom gpulint.cli import main\nmain()\n", "utf-8"
    )
    program.chmod(0o755)
    script = (
        f"{run('completion', 'bash').output}\n"
        "COMP_WORDS=(gpulint comp) COMP_CWORD=1\n"
        '_gpulint_completion gpulint comp gpulint; echo "${COMPREPLY[@]}"\n'
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "completion\n", done.stderr
