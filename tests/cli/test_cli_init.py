"""`gpulint init`: what it adds to a repository, and what it leaves as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from gpulint import __version__
from gpulint.cli import interactive, main
from gpulint.settings import Resolver, parse_toml
from gpulint.setup import EditError
from gpulint.setup.toml_edit import add_to_list
from gpulint.setup.yaml_edit import add_entry, add_item

URL = "https://example.invalid/group/gpulint"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository; the command is called in a folder of it."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    return tmp_path


def init(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["init", *words], input=text)


def files(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in root.rglob("*.*")
        if p.is_file()
    }


def test_everything_in_an_empty_repository(root: Path) -> None:
    done = init("--all", "-y")
    assert done.exit_code == 0, done.output
    written = files(root)
    assert set(written) == {
        ".pre-commit-config.yaml",
        ".github/workflows/gpulint.yml",
        ".gitlab-ci.yml",
        "gpulint.toml",
    }
    for name, data in written.items():
        if not name.endswith(".toml"):
            assert yaml.safe_load(data), name
    assert Resolver().of_folder(root).file == root / "gpulint.toml"

    again = init("--all", "-y")
    assert again.exit_code == 0
    assert "Nothing to do." in again.output
    assert ".gitlab-ci.yml: has job gpulint already" in again.output
    assert files(root) == written


def test_without_options_only_what_is_in_use(root: Path) -> None:
    (root / ".gitlab-ci.yml").write_text("lint:\n  script: [make lint]\n", "utf-8")
    (root / "pyproject.toml").write_text('[project]\nname = "x"\n', "utf-8")
    assert init("-y").exit_code == 0
    assert set(files(root)) == {".gitlab-ci.yml", "pyproject.toml"}
    assert "gpulint" in parse_toml((root / "pyproject.toml").read_bytes())["tool"]


def test_asks_and_takes_no_for_an_answer(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interactive, "is_terminal", lambda: True)
    refused = init("--gitlab", text="n\n")
    assert refused.exit_code == 0
    assert "+gpulint:" in refused.output
    assert "Nothing is written." in refused.output
    assert files(root) == {}
    assert init("--gitlab", text="y\n").exit_code == 0
    assert set(files(root)) == {".gitlab-ci.yml"}


def test_nobody_to_ask(root: Path) -> None:
    done = init("--gitlab")
    assert done.exit_code == 2
    assert "-y writes without asking" in done.stderr
    assert files(root) == {}


ODD = """\
---
# hooks of ours
repos:
- repo: local
  hooks:
    - id: a
      args: [ --x, 'y' ]   # two
      files: ~

- repo: https://example.invalid/ruff
  rev: 'v1'
  hooks: [ {id: ruff} ]
  # stays with ruff

# the end
"""
ADDED = f"""\

- repo: {URL}
  rev: v{__version__}
  hooks:
    - id: gpulint-check
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_the_rest_of_a_file_stays(root: Path, newline: str, bom: bytes) -> None:
    path = root / ".pre-commit-config.yaml"
    path.write_bytes(bom + ODD.replace("\n", newline).encode())
    assert init("--pre-commit", "--repo", URL, "-y").exit_code == 0
    expected = ODD.replace("ruff\n\n#", f"ruff\n{ADDED}\n#")
    assert path.read_bytes() == bom + expected.replace("\n", newline).encode()
    assert "Nothing to do." in init("--pre-commit", "-y").output


@pytest.mark.parametrize(
    "before, after",
    [
        ("", "repos:\n  - a: 1\n"),
        ("# empty\n", "# empty\n\nrepos:\n  - a: 1\n"),
        ("x: 1", "x: 1\n\nrepos:\n  - a: 1\n"),
        ("repos: []  # none\nx: 1\n", "repos:  # none\n  - a: 1\nx: 1\n"),
        ("repos:\nx: 1\n", "repos:\n  - a: 1\nx: 1\n"),
        ("repos: [{b: 2}]\n", 'repos: [{b: 2}, {"a": 1}]\n'),
        (
            "repos:\n    - b: |\n        text\n",
            "repos:\n    - b: |\n        text\n    - a: 1\n",
        ),
        ("x: &x [1]\nrepos:\n- b: *x\n", "x: &x [1]\nrepos:\n- b: *x\n- a: 1\n"),
        ("repos:\n- b: # why\n", "repos:\n- b: # why\n- a: 1\n"),
    ],
)
def test_an_item_at_the_end_of_a_list(before: str, after: str) -> None:
    assert add_item(before, "repos", "- a: 1\n") == after


@pytest.mark.parametrize(
    "text",
    [
        "{repos: [1], x: 2}\nmore",
        "repos: 3\n",
        "{x: 1}\n",
        "x: 1\n...\n",
        "repos:\n- b: |\n    x",
    ],
)
def test_what_cannot_be_proven_is_refused(text: str) -> None:
    with pytest.raises(EditError, match=r"not YAML|by hand: - a: 1|by hand: repos"):
        add_item(text, "repos", "- a: 1\n")


def test_anchors_that_make_rings_are_compared() -> None:
    ring = "a: &a\n  b: *a\n"
    assert add_entry(ring, "c: 1\n") == f"{ring}\nc: 1\n"


BROKEN = [
    (".pre-commit-config.yaml", "repos: [\n", "not YAML: line 2"),
    (".pre-commit-config.yaml", "- a\n", "expected a mapping"),
    (".pre-commit-config.yaml", "[" * 1200, "not YAML"),
    (".gitlab-ci.yml", "a: 1\n---\nb: 1\n", "not YAML"),
    (".github/workflows/test.yml", "a: 'b\n", "not YAML"),
    ("pyproject.toml", "[tool\n", "not TOML"),
    ("ruff.toml", "a = \n", "not TOML"),
]


@pytest.mark.parametrize("name, text, complaint", BROKEN)
def test_broken_files(root: Path, name: str, text: str, complaint: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    before = files(root)
    done = init("--all", "-y")
    assert done.exit_code == 2
    assert f"{path.name}: {complaint}" in done.stderr
    assert done.stderr.count("\n") == 1
    assert files(root) == before


def test_files_that_are_no_text(root: Path) -> None:
    (root / ".gitlab-ci.yml").write_bytes(b"a: \xff\n")
    done = init("--gitlab", "-y")
    assert (done.exit_code, "not UTF-8" in done.stderr) == (2, True)
    (root / ".pre-commit-config.yaml").mkdir()
    done = init("--pre-commit", "-y")
    assert (done.exit_code, ".pre-commit-config.yaml: " in done.stderr) == (2, True)


def test_a_job_of_the_same_name_stays(root: Path) -> None:
    own = root / ".github" / "workflows" / "lint.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("jobs:\n  gpulint: {runs-on: x}\n", "utf-8")
    (root / ".gitlab-ci.yml").write_text("gpulint:\n  script: [x]\n", "utf-8")
    before = files(root)
    done = init("--github", "--gitlab", "-y")
    assert "lint.yaml: has job gpulint already" in done.output
    assert "Nothing to do." in done.output
    assert files(root) == before

    own.rename(own.with_name("gpulint.yml"))
    own.with_name("gpulint.yml").write_text("jobs:\n  lint: {}\n", "utf-8")
    assert "has another workflow of this name already" in init("--github", "-y").output


def test_the_stage_is_one_of_the_pipeline(root: Path) -> None:
    text = "stages: [check, ship]\n.base: &b\n  tags: !reference [x, y]\n"
    (root / ".gitlab-ci.yml").write_text(text, "utf-8")
    assert init("--gitlab", "-y").exit_code == 0
    after = (root / ".gitlab-ci.yml").read_text("utf-8")
    assert after.startswith(f"{text}\ngpulint:\n  stage: check\n")


@pytest.mark.parametrize(
    "url, line",
    [
        (None, '- run: python -m pip install "gpulint"'),
        (URL, f'- run: python -m pip install "gpulint @ git+{URL}@v2"'),
        ("https://github.com/owner/gpulint.git", "- uses: owner/gpulint@v2"),
    ],
)
def test_where_a_workflow_takes_gpulint_from(
    root: Path, url: str | None, line: str
) -> None:
    words = ("--repo", url, "--rev", "v2") if url else ()
    assert init("--github", "-y", *words).exit_code == 0
    workflow = (root / ".github/workflows/gpulint.yml").read_text("utf-8")
    assert f"      {line}\n" in workflow
    assert list(yaml.safe_load(workflow)["jobs"]) == ["gpulint"]


@pytest.mark.parametrize(
    "words", [("--rev", "v1"), ("--repo", "a b"), ("--repo", 'x"')]
)
def test_addresses_that_cannot_be(root: Path, words: tuple[str, ...]) -> None:
    assert init("--all", "-y", *words).exit_code == 2
    assert files(root) == {}


RUFF = [
    ("[tool.ruff]\nline-length = 88 # wide\n", ["GPU"]),
    (
        '[tool.ruff.lint]\nexternal = [\n    "ABC",  # ours\n]\nselect = ["E"]\n',
        ["ABC", "GPU"],
    ),
    ('[tool.ruff]\nlint.select = ["E"]\n\n[tool.x]\ny = 1\n', ["GPU"]),
    ('[tool.ruff.lint]\nselect = ["E"]\n\n[other]\n\n[tool.black]\na = 1\n', ["GPU"]),
]


@pytest.mark.parametrize("text, external", RUFF)
def test_ruff_leaves_our_comments(root: Path, text: str, external: list[str]) -> None:
    path = root / "pyproject.toml"
    path.write_text(text, "utf-8")
    assert init("--pyproject", "-y").exit_code == 0
    after = path.read_text("utf-8")
    tool = parse_toml(after.encode())["tool"]
    assert tool["ruff"]["lint"]["external"] == external
    assert tool["gpulint"] == {"allow": ["exact"], "fail-level": "warning"}
    assert all(line in after.splitlines() for line in text.splitlines())
    again = init("--pyproject", "-y")
    assert "Nothing to do." in again.output
    assert path.read_text("utf-8") == after


def test_ruff_in_files_of_its_own(root: Path) -> None:
    (root / "ruff.toml").write_text('external = ["A"]\n', "utf-8")
    (root / "gpulint.toml").write_text("", "utf-8")
    assert init("-y").exit_code == 0
    assert (root / "ruff.toml").read_text("utf-8") == 'external = ["A", "GPU"]\n'
    assert (root / "gpulint.toml").read_text("utf-8") == ""
    assert not (root / "pyproject.toml").exists()


def test_ruff_is_not_switched_on(root: Path) -> None:
    (root / "pyproject.toml").write_bytes(b"[project]\r\nname = 'x'\r\n")
    assert init("--pyproject", "-y").exit_code == 0
    after = (root / "pyproject.toml").read_bytes()
    assert b"ruff" not in after
    assert after.startswith(b"[project]\r\nname = 'x'\r\n\r\n[tool.gpulint]\r\n")
    assert after.count(b"\n") == after.count(b"\r\n")


@pytest.mark.parametrize(
    "text", ["[tool]\nruff = 3\n", "external = 3\n", "[tool.ruff]\nlint = 3\n"]
)
def test_lists_that_are_none(text: str) -> None:
    keys = (
        ("external",)
        if text.startswith("ext")
        else ("tool", "ruff", "lint", "external")
    )
    with pytest.raises(EditError, match=r"is no (list|table)"):
        add_to_list(text, keys, "GPU")


def test_an_inline_table_of_tools_is_left_alone(root: Path) -> None:
    (root / "pyproject.toml").write_text("tool = {x = 1}\n", "utf-8")
    done = init("--pyproject", "-y")
    assert done.exit_code == 2
    assert "pyproject.toml: cannot be edited safely; add this by hand" in done.stderr


def test_tomlkit_is_missing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    (root / "ruff.toml").write_text("", "utf-8")
    done = init("--all", "-y")
    assert done.exit_code == 2
    assert "gpulint[init]" in done.stderr
    assert set(files(root)) == {"ruff.toml"}
    (root / "ruff.toml").unlink()
    assert init("--all", "-y").exit_code == 0


def test_a_folder_that_cannot_be_made(root: Path) -> None:
    (root / ".github").write_text("", "utf-8")
    done = init("--github", "-y")
    assert done.exit_code == 2
    assert "gpulint.yml: Not a directory" in done.stderr


def test_a_file_that_cannot_be_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpulint.atomic.replace_file", full)
    done = init("--github", "-y")
    assert done.exit_code == 2
    assert ".github/workflows/gpulint.yml: not written: No space" in done.stderr


def test_help_names_every_option() -> None:
    command = main.get_command(click.Context(main), "init")
    assert command is not None
    text = init("--help").output
    for name in ("--pre-commit", "--github", "--gitlab", "--pyproject", "--all", "-y"):
        assert name in text
