"""Findings of earlier runs: those of a run without them, and only while they hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import gpulint.engine
from gpulint import dependencies
from gpulint.cache.record import Record, dump, load
from gpulint.cli import main
from gpulint.engine import Checked, Options

FIXTURES = Path(__file__).parents[2] / "fixtures" / "projects"
PAIRS = sorted(p for p in FIXTURES.iterdir() if not p.name.endswith("_unknown"))
FORMATS = ("json", "full", "concise")
Said = tuple[int, str, str]


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache in the test's folder, which trusts files as young as the test's."""
    monkeypatch.delenv("GPULINT_NO_CACHE")
    monkeypatch.setattr("gpulint.cache.stamps.MARGIN", 0)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were looked into, since it was cleared."""
    names: list[str] = []
    check_path = gpulint.engine.check_path

    def check(path: Path, options: Options) -> Checked:
        names.append(path.name)
        return check_path(path, options)

    monkeypatch.setattr(gpulint.engine, "check_path", check)
    return names


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Loaders whose callers, in another file, say how many workers there are."""
    copy(FIXTURES / "callers_elsewhere", tmp_path)
    return tmp_path


def copy(source: Path, folder: Path) -> None:
    """Make a folder hold what another one holds."""
    for path in list(folder.iterdir()):
        if path.name != ".gpulint_cache":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(source, folder, dirs_exist_ok=True)
    (folder / "pyproject.toml").touch()  # the root of a project


def check(*options: str) -> Said:
    """What a run says; nothing that an earlier run knows of is kept in memory."""
    dependencies._find.cache_clear()
    dependencies._in_folder.cache_clear()
    result = CliRunner().invoke(main, ["check", *options], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def check_both(*options: str) -> Said:
    """The same without and with a cache."""
    plain = check("--no-cache", *options)
    assert check(*options) == plain
    return plain


def replace(path: Path, *pairs: tuple[str, str]) -> None:
    text = path.read_text("utf-8")
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, "utf-8")


def test_nothing_is_looked_into_twice(project: Path, looked: list[str]) -> None:
    check()
    assert sorted(looked) == ["data.py", "loaders.py", "loop.py", "train.py"]
    looked.clear()
    before = [check("--output-format", form) for form in FORMATS]
    assert not looked
    assert before == [check("--no-cache", "--output-format", f) for f in FORMATS]
    assert "GPU201" in before[0][1]


def test_one_changed_file(project: Path, looked: list[str]) -> None:
    (project / "alone.py").write_text("import os\n")
    check()
    looked.clear()
    replace(project / "alone.py", ("os", "sys"))
    check()
    assert looked == ["alone.py"]


def test_a_copy_of_the_same_bytes_has_not_changed(
    project: Path, looked: list[str]
) -> None:
    check()
    looked.clear()
    for path in project.glob("*.py"):
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    check()
    assert not looked


def fewer_workers(folder: Path) -> None:
    replace(folder / "train.py", ("32, 0", "32, 8"), ("workers=0", "workers=8"))


def new_caller(folder: Path) -> None:
    text = "from loaders import make_loader\n\nloader = make_loader([], 8, workers=8)\n"
    (folder / "new.py").write_text(text)


def no_caller(folder: Path) -> None:
    (folder / "train.py").unlink()


def module_renamed(folder: Path) -> None:
    (folder / "data.py").rename(folder / "photos.py")


def package_that_shadows(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "__init__.py").write_text("Photos = list\n")


def base_class_elsewhere(folder: Path) -> None:
    replace(folder / "data.py", ("(Dataset):", "(Rows):"), ("def __getitem__", "def g"))
    text = "from rows import Rows\n"
    replace(folder / "data.py", ("from torch.utils.data import Dataset\n", text))
    (folder / "rows.py").write_text("class Rows:\n    pass\n")


def own_suppression(folder: Path) -> None:
    ignored = "# gpulint: ignore[GPU201]"
    replace(folder / "loaders.py", ("# expect: GPU201", ignored))


def old_torch(folder: Path) -> None:
    (folder / "requirements.txt").write_text("torch==1.4\n")


def other_settings(folder: Path) -> None:
    text = '[tool.gpulint]\nignore = ["GPU201"]\n'
    (folder / "pyproject.toml").write_text(text)


def excluded_caller(folder: Path) -> None:
    text = '[tool.gpulint]\nextend-exclude = ["train.py"]\n'
    (folder / "pyproject.toml").write_text(text)


def no_python(folder: Path) -> None:
    (folder / "data.py").write_bytes(b"# \xff\n")


def syntax_error(folder: Path) -> None:
    replace(folder / "loaders.py", ("def make_loader", "def def"))


CHANGES = (
    fewer_workers,
    new_caller,
    no_caller,
    module_renamed,
    package_that_shadows,
    base_class_elsewhere,
    own_suppression,
    old_torch,
    other_settings,
    excluded_caller,
    no_python,
    syntax_error,
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_change(project: Path, change: Callable[[Path], None]) -> None:
    before = check_both("--output-format", "json")
    change(project)
    after = check_both("--output-format", "json")
    assert after != before, "nothing rests on it"
    assert check("--output-format", "json") == after
    copy(FIXTURES / "callers_elsewhere", project)
    assert check_both("--output-format", "json") == before


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p.name)
def test_every_way_in_which_files_depend_on_each_other(
    tmp_path: Path, pair: Path
) -> None:
    copy(pair, tmp_path)
    check("--output-format", "json")
    copy(pair.with_name(f"{pair.name}_unknown"), tmp_path)
    check_both("--output-format", "json")
    paths = sorted(p for p in tmp_path.rglob("*.*") if p.suffix in (".py", ".yaml"))
    first, last = paths[0], paths[-1]
    edits: tuple[Callable[[], object], ...] = (
        first.unlink,
        lambda: first.write_text(f"{first.read_text('utf-8')}\nx = 1\n", "utf-8"),
        lambda: last.write_text(first.read_text("utf-8"), "utf-8"),
        lambda: last.rename(last.with_name(f"other{last.suffix}")),
    )
    edits[PAIRS.index(pair) % len(edits)]()
    check_both("--output-format", "json")


def test_a_part_of_the_files(project: Path, looked: list[str]) -> None:
    check()
    fewer_workers(project)
    assert check("loaders.py") == check("--no-cache", "loaders.py")
    looked.clear()
    said = check()
    assert "train.py" in looked
    assert "loaders.py" not in looked
    assert said == check("--no-cache")


def test_what_is_not_python_complains_again(project: Path) -> None:
    (project / "gone.py").symlink_to(project / "nowhere.py")
    (project / "data.py").write_bytes(b"\xff")
    check()
    assert check("gone.py", "data.py")[0] == 2
    check_both("data.py")


def test_selections_do_not_disturb_each_other(project: Path, looked: list[str]) -> None:
    check("--select", "GPU1")
    check("--select", "GPU2")
    looked.clear()
    assert "GPU201" not in check("--select", "GPU1")[1]
    assert "GPU201" in check("--select", "GPU2")[1]
    assert "GPU201" in check("--select", "GPU2", "--allow", "all", "--isolated")[1]
    assert len(looked) == 4  # --isolated


def test_a_rule_that_does_not_exist(project: Path) -> None:
    check()
    code, _, error = check("--select", "GPU77")
    assert code == 2
    assert "GPU77" in error


def test_broken_files_are_none(project: Path) -> None:
    said = check()
    [file] = (project / ".gpulint_cache").glob("*.jsonl")
    data = file.read_bytes()
    broken = (b"", b"{}\n", data[:-20], data.replace(b"GPU201", b"GPU202"), b"\xff\n[]")
    for text in broken:
        file.write_bytes(text)
        assert check() == said
        assert file.read_bytes() == data or json.loads(
            file.read_bytes().split(b"\n")[1]
        )
    file.unlink()
    file.mkdir()
    assert check() == said


def test_where_nothing_can_be_written(project: Path) -> None:
    (project / ".gpulint_cache").write_text("a file")
    assert check() == check("--no-cache")
    assert (project / ".gpulint_cache").read_text() == "a file"


def test_nothing_is_read_or_written(
    project: Path, monkeypatch: pytest.MonkeyPatch, looked: list[str]
) -> None:
    check("--no-cache")
    monkeypatch.setenv("GPULINT_NO_CACHE", "1")
    check()
    CliRunner().invoke(main, ["fix", "--diff"])
    assert not (project / ".gpulint_cache").exists()
    monkeypatch.delenv("GPULINT_NO_CACHE")
    check()
    looked.clear()
    check("--no-cache")
    assert len(looked) == 4


def test_settings_of_other_files_that_cannot_be_used(project: Path) -> None:
    (project / "inner").mkdir()
    (project / "inner" / "a.py").touch()
    (project / "inner" / "gpulint.toml").write_text("selct = []\n")
    check_both("loop.py")
    check_both("loaders.py")
    assert check_both()[0] == 2


def test_stdin_is_not_kept(project: Path) -> None:
    text = (project / "loaders.py").read_text()
    run = ["check", "-", "--stdin-filename", "loaders.py"]
    CliRunner().invoke(main, run, input=text, catch_exceptions=False)
    assert not (project / ".gpulint_cache").exists()


def test_fix_looks_for_itself(project: Path, looked: list[str]) -> None:
    check()
    [file] = (project / ".gpulint_cache").glob("*.jsonl")
    data = file.read_bytes()
    CliRunner().invoke(main, ["fix", "--allow", "all"], catch_exceptions=False)
    assert file.read_bytes() == data
    check_both()


def test_where_it_lies(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = project / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    check(str(project))
    default = project / ".gpulint_cache"
    assert (default / ".gitignore").read_text() == "*\n"
    tag = (default / "CACHEDIR.TAG").read_text()
    assert tag.startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    (inner / "gpulint.toml").write_text('cache-dir = "set"\n')
    check(str(project))
    assert list((inner / "set").glob("*.jsonl"))
    monkeypatch.setenv("GPULINT_CACHE_DIR", str(project / "variable"))
    check(str(project))
    assert list((project / "variable").glob("*.jsonl"))
    check(str(project), "--cache-dir", "option")
    assert list((inner / "option").glob("*.jsonl"))


def test_the_number_of_files_is_bounded(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpulint.cache.MAX_FILES", 2)
    for number in range(1, 6):
        check("--select", f"GPU{number}")
    assert len(list((project / ".gpulint_cache").glob("*.jsonl"))) == 2


def test_files_that_are_gone_are_forgotten(project: Path) -> None:
    for number in range(5):
        (project / f"more_{number}.py").write_text("import torch\n")
    check()
    [file] = (project / ".gpulint_cache").glob("*.jsonl")
    for number in range(5):
        (project / f"more_{number}.py").unlink()
    check()
    first = json.loads(file.read_bytes().split(b"\n")[1])
    assert len(first["results"]) == 4


@pytest.mark.parametrize("there", [True, False])
def test_a_script_beside_a_large_package(there: bool) -> None:
    """What one script looks up in files of another project is not grown too much."""
    record = Record(python={0})
    for number in range(100):
        record.paths.number(f"package/{number}.py")
        record.files[number] = (0, 0, 0) if there else None, "digest"
    for number in range(2000):
        record.entries.number(("package", str(number)))
        record.values.append(0)
    found = load(dump(record, "head"), "head")
    assert (found is not None) == there


def test_a_file_that_changes_meanwhile(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_path = gpulint.engine.check_path

    def check_and_write(path: Path, options: Options) -> Checked:
        found = check_path(path, options)
        if path.name == "train.py":
            fewer_workers(project)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(gpulint.engine, "check_path", check_and_write)
        check()
    check_both()
