"""Which files are read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpulint.files import FilesError, list_files
from gpulint.globs import Globs
from gpulint.settings import Overrides, Resolver

Git = Callable[..., str]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["git", "git missing", "no repository"])
def kind(
    request: pytest.FixtureRequest, git: Git, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The three ways in which a folder is listed."""
    if request.param != "no repository":
        git("init", "-q")
    if request.param == "git missing":
        monkeypatch.setenv("PATH", "")
    return str(request.param)


def make(*names: str) -> None:
    """Empty files in the current folder."""
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()


def listed(*arguments: str, **values: object) -> list[str]:
    """Paths relative to the current folder."""
    overrides = Overrides(values=tuple(values.items()))
    listing = list_files(arguments or (".",), Resolver(overrides))
    assert not listing.errors
    here = Path.cwd()
    return [
        p.relative_to(here).as_posix() if p.is_relative_to(here) else str(p)
        for p in listing.files
    ]


def test_python_files_in_order(kind: str) -> None:
    make("b.py", "a/z.py", "a.py", "a.pyw", "n.ipynb", "c.txt", "x.py/y.py", "数据.py")
    assert listed() == ["a.py", "a/z.py", "b.py", "n.ipynb", "x.py/y.py", "数据.py"]


def test_named_files_always(kind: str) -> None:
    make("build/a.py", "script", "x.txt", ".gitignore", "n.ipynb", "s.yaml")
    Path(".gitignore").write_text("build\nscript\n")
    assert listed("build/a.py", "script", "x.txt") == ["build/a.py", "script", "x.txt"]
    assert listed("n.ipynb", "s.yaml") == ["n.ipynb"]


def test_missing_path() -> None:
    with pytest.raises(FilesError, match="no such file or folder: nope"):
        list_files(["nope"], Resolver())


def test_duplicates_once(kind: str, tmp_path: Path) -> None:
    make("a/b.py")
    assert listed(".", "a", "a/b.py", "a/../a/b.py", str(tmp_path)) == ["a/b.py"]


def test_default_excludes(kind: str) -> None:
    make("a.py", ".venv/b.py", "x/node_modules/b.py", "build/b.py", "env/train.py")
    make("._a.py", "x/._b.py")  # of macOS
    make("lib/site-packages/b.py", "x/__pycache__/b.py", "builds/b.py")
    make("log/best/models/b.py", "lightning_logs/version_0/b.py", "wandb/run/code/b.py")
    assert listed() == ["a.py", "builds/b.py", "env/train.py"]
    assert listed("build") == ["build/b.py"]


def test_project_below_a_folder_with_an_excluded_name(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("build/project/a.py")
    monkeypatch.chdir("build/project")
    assert listed() == ["a.py"]


def test_gitignore(kind: str) -> None:
    make("a.py", "out/b.py", "sub/c.py", "sub/keep.py", "sub/deep/c.py", "sub/d.py")
    Path(".gitignore").write_text("/out/\nc.py\n!/sub/c.py\n")
    Path("sub/.gitignore").write_text("d.py\n!keep.py\ndeep\n")
    assert listed() == ["a.py", "sub/c.py", "sub/keep.py"]
    assert len(listed(respect_gitignore=False)) == 6


def test_gitignore_of_a_parent(kind: str) -> None:
    make("sub/deep/a.py", "sub/deep/b.py", "sub/deep/c.py")
    Path(".gitignore").write_text("b.py\n")
    Path("sub/.gitignore").write_text("c.py\n")
    found = listed("sub/deep")
    if kind == "no repository":  # nothing says that these files belong together
        assert len(found) == 3
    else:
        assert found == ["sub/deep/a.py"]


def test_ignored_folder_that_is_named(kind: str) -> None:
    make("out/a.py", "out/b.txt")
    Path(".gitignore").write_text("/out\n")
    assert listed("out") == ["out/a.py"]
    assert listed() == []


def test_broken_gitignore(kind: str) -> None:
    make("a.py")
    Path(".gitignore").write_bytes(b"\xff\n!\n[\n")
    assert listed() == ["a.py"]


def test_exclude(kind: str) -> None:
    make("a.py", "gen/a.py", "gen/keep.py", "x/gen/b.py", "old/c.py", "x/a_pb2.py")
    here = Path.cwd()
    globs = Globs(("/gen/*", "!/gen/keep.py", "old", "*_pb2.py"), here)
    assert listed(exclude=globs) == ["a.py", "gen/keep.py", "x/gen/b.py"]
    # A folder that is named is searched, without what its settings leave out there.
    assert listed("x", exclude=globs) == ["x/gen/b.py"]
    assert listed("old", exclude=globs) == ["old/c.py"]
    assert listed("old", exclude=globs, force_exclude=True) == []
    assert listed("gen", exclude=Globs(("gen", "a*"), here)) == ["gen/keep.py"]


def test_exclude_of_each_folders_settings(kind: str) -> None:
    make("a/x.py", "a/y.py", "b/x.py", "gen/x.py")
    Path("gpulint.toml").write_text('exclude = ["/gen"]')
    Path("a/gpulint.toml").write_text('extend-exclude = ["/x.*"]')
    assert listed() == ["a/y.py", "b/x.py"]


def test_force_exclude(kind: str, tmp_path: Path) -> None:
    make("a.py", "build/a.py", "gen/b.py", "sub/build/c.py")
    Path("gpulint.toml").write_text('extend-exclude = ["gen/*"]\nforce-exclude = true')
    paths = ("a.py", "build/a.py", "gen/b.py", str(tmp_path / "sub/build/c.py"))
    assert listed(*paths) == ["a.py"]
    assert listed("build", "sub") == []
    assert len(listed(*paths, force_exclude=False)) == 4


def test_force_exclude_outside_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("build/a.py", "here/b.py")
    monkeypatch.chdir("here")
    outside = str(tmp_path / "build" / "a.py")
    assert listed(outside, force_exclude=True) == [outside]


def test_virtual_environment_under_any_name() -> None:
    make("a.py", "myenv/pyvenv.cfg", "myenv/lib/b.py")
    assert listed() == ["a.py"]
    assert listed("myenv") == ["myenv/lib/b.py"]


def test_links(kind: str) -> None:
    make("a/real.py", "z.py")
    Path("a/again.py").symlink_to("real.py")
    Path("broken.py").symlink_to("nothing.py")
    Path("a/loop").symlink_to("..")
    Path("folder.py").symlink_to("a")
    assert listed() == ["a/real.py", "z.py"]
    outside = Path.cwd().parent / f"{Path.cwd().name}-outside.py"
    outside.touch()
    Path("link.py").symlink_to(outside)
    assert listed() == ["a/real.py", "link.py", "z.py"]


def test_deleted_and_staged_files(git: Git) -> None:
    git("init", "-q")
    make("gone.py", "kept.py", "new.py")
    git("add", "gone.py", "kept.py")
    Path("gone.py").unlink()
    assert listed() == ["kept.py", "new.py"]


def test_repositories_inside(git: Git, tmp_path: Path) -> None:
    git("init", "-q")
    for name in ("nested", "module", "build"):
        make(f"{name}/a.py", f"{name}/skip.py", f"{name}/.gitignore")
        Path(name, ".gitignore").write_text("skip.py\n")
        git("init", "-q", cwd=tmp_path / name)
        git("add", ".", cwd=tmp_path / name)
        git("commit", "-qm", "first", cwd=tmp_path / name)
    make("a.py")
    git("-c", "advice.addEmbeddedRepo=false", "add", "module")
    assert listed() == ["a.py", "module/a.py", "nested/a.py"]


def test_submodule_that_is_not_checked_out(git: Git, tmp_path: Path) -> None:
    git("init", "-q")
    make("a.py")
    commit = "0123456789012345678901234567890123456789"
    git("update-index", "--add", "--cacheinfo", f"160000,{commit},module")
    (tmp_path / "module").mkdir()
    assert listed() == ["a.py"]
    assert listed(tmp_path / "module") == []


def test_within_a_hook(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    git("init", "-q")
    make("sub/a.py")
    monkeypatch.setenv("GIT_DIR", ".git")
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
    assert listed("sub") == ["sub/a.py"]


def test_one_git_call_for_a_folder(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    git("init", "-q")
    make(*(f"p{n}/m{m}.py" for n in range(5) for m in range(5)))
    calls = []
    run = subprocess.run

    def counted(*words: object, **named: object) -> object:
        calls.append(words)
        return run(*words, **named)

    monkeypatch.setattr(subprocess, "run", counted)
    assert len(listed()) == 25
    assert len(calls) == 1


def test_folder_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    make("a.py", "secret/b.py")
    scandir = os.scandir

    def guarded(folder: Path) -> object:
        if Path(folder).name == "secret":
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    listing = list_files(["."], Resolver())
    assert [path.name for path in listing.files] == ["a.py"]
    assert listing.errors == [f"{Path.cwd() / 'secret'}: Permission denied"]
