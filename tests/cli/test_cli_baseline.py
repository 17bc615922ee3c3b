"""Baselines: what they accept, how they shrink, and what makes them unusable."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Run

NAME = "gpulint-baseline.json"
Git = Callable[..., str]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Two findings that look alike, and one of another rule."""
    path = tmp_path / "a.py"
    path.write_text("slow_copy()\nslow_copy()\nbroken_api()\n")
    return path


def entries(folder: Path, name: str = NAME) -> list[tuple[str, str, int]]:
    data = json.loads((folder / name).read_text("utf-8"))
    assert data["schema"] == 1
    return [(e["path"], e["code"], e["count"]) for e in data["entries"]]


def test_only_what_is_new_is_reported(run: Run, script: Path, tmp_path: Path) -> None:
    created = run("baseline", "create")
    assert (created.exit_code, created.stdout) == (
        0,
        f"{NAME}: accepts 3 findings in 1 file\n",
    )
    assert entries(tmp_path) == [("a.py", "GPU101", 2), ("a.py", "GPU303", 1)]
    checked = run("check", "--baseline", NAME)
    assert checked.exit_code == 0
    assert checked.stdout == "All checks passed!\n3 findings accepted by the baseline\n"
    script.write_text(
        "# moved\n\nbroken_api()\nslow_copy()\nslow_copy()\nslow_copy()\n"
    )
    checked = run("check", "--baseline", NAME, "--output-format", "concise")
    assert checked.exit_code == 1
    assert checked.stdout.splitlines() == [
        "a.py:6:1: GPU101 [*] `slow_copy` is slow",
        "Found 1 finding in 1 file (1 warning)",
        "[*] 1 fixable with `gpulint fix`",
        "3 findings accepted by the baseline",
    ]
    told = json.loads(
        run("check", "--baseline", NAME, "--output-format", "json").stdout
    )
    assert [f["suppressed"] for f in told] == ["baseline"] * 3 + [None]
    assert run("check").exit_code == 1


def test_one_entry_a_line_sorted(run: Run, script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "数据 a"
    folder.mkdir()
    (folder / "b.py").write_text("slow_math()\n")
    run("baseline", "create")
    lines = (tmp_path / NAME).read_text("utf-8").splitlines()
    assert len(lines) == 3 + 3 + 2
    assert lines[3:6] == sorted(lines[3:6])
    assert '{"path": "数据 a/b.py", "code": "GPU301", "fingerprint": "' in lines[5]


def test_a_name_that_is_no_text(run: Run, tmp_path: Path) -> None:
    try:
        (tmp_path / "\udcff.py").write_text("slow_math()\n")
    except (OSError, UnicodeError):
        pytest.skip("the file system takes text only")
    assert run("baseline", "create").exit_code == 0
    assert run("check", "--baseline", NAME).exit_code == 0


def test_notes_are_accepted_too_and_comments_need_no_entry(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("small_batch()\nslow_copy()  # ignore\n")
    run("baseline", "create")
    assert entries(tmp_path) == [("a.py", "GPU401", 1)]
    assert run("check", "--baseline", NAME, "--fail-level", "note").exit_code == 0


def test_a_file_that_is_no_python_is_never_accepted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def def\n")
    (tmp_path / "b.py").write_text("slow_copy()\n")
    created = run("baseline", "create")
    assert created.exit_code == 0
    assert "a.py:1:1: GPU000 is never accepted" in created.stderr
    assert entries(tmp_path) == [("b.py", "GPU101", 1)]
    checked = run("check", "--baseline", NAME)
    assert checked.exit_code == 1
    assert "GPU000" in checked.stdout
    assert run("baseline", "status").exit_code == 0
    forged = (tmp_path / NAME).read_text().replace("GPU101", "GPU000")
    (tmp_path / NAME).write_text(forged)
    assert "entry 1 is not one" in run("check", "--baseline", NAME).stderr


def test_a_run_that_failed_makes_none(run: Run, script: Path, tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("internal_error\n")
    result = run("baseline", "create")
    assert result.exit_code == 2
    assert "not all files could be checked" in result.stderr
    assert not (tmp_path / NAME).exists()


def test_create_replaces_nothing(run: Run, script: Path, tmp_path: Path) -> None:
    run("baseline", "create")
    before = (tmp_path / NAME).read_bytes()
    script.write_text("slow_copy()\n" * 9)
    result = run("baseline", "create")
    assert result.exit_code == 2
    assert result.stderr == (
        f"gpulint: error: {NAME} is there already; `gpulint baseline update` changes it\n"
    )
    assert (tmp_path / NAME).read_bytes() == before


def test_update_refuses_to_grow(run: Run, script: Path, tmp_path: Path) -> None:
    run("baseline", "create")
    before = (tmp_path / NAME).read_bytes()
    script.write_text("slow_copy()\n" * 3)
    result = run("baseline", "update")
    assert result.exit_code == 1
    assert result.stdout == "a.py:3:1: GPU101 [*] `slow_copy` is slow\n"
    assert "not written: 1 finding in 1 file new; --allow-growth" in result.stderr
    assert (tmp_path / NAME).read_bytes() == before
    result = run("baseline", "update", "--allow-growth")
    assert (result.exit_code, result.stdout) == (0, f"{NAME}: 1 added, 1 removed\n")
    assert entries(tmp_path) == [("a.py", "GPU101", 3)]
    script.write_text("slow_copy()\n")
    assert run("baseline", "update", "-q").stdout == ""
    assert entries(tmp_path) == [("a.py", "GPU101", 1)]


def test_prune_only_removes(run: Run, script: Path, tmp_path: Path) -> None:
    run("baseline", "create")
    script.write_text("slow_copy()\nslow_math()\n")
    checked = run("check", "--baseline", NAME, "--ignore", "GPU301")
    assert checked.exit_code == 0
    assert f"note: {NAME} accepts 2 findings too many" in checked.stderr
    assert run("check", "--baseline", NAME, "-q", "--ignore", "GPU301").stderr == ""
    strict = ("check", "--baseline", NAME, "--strict-baseline", "--ignore", "GPU301")
    assert run(*strict).exit_code == 1
    assert f"error: {NAME} accepts 2 findings too many" in run(*strict, "-q").stderr
    assert run(*strict, "--exit-zero").exit_code == 0
    status = run("baseline", "status")
    assert status.exit_code == 1
    assert status.stdout.splitlines() == [
        "2  GPU101",
        "1  GPU303",
        f"{NAME}: 3 accepted, 1 new, 2 no longer there",
    ]
    diff = run("baseline", "diff")
    assert diff.exit_code == 1
    gone = [line for line in diff.stdout.splitlines() if line.startswith("- ")]
    assert [line.split()[:3] for line in gone] == [
        ["-", "a.py:", "GPU101"],
        ["-", "a.py:", "GPU303"],
    ]
    assert diff.stdout.splitlines()[2] == "+ a.py:2:1: GPU301 [**] `slow_math` is slow"
    pruned = run("baseline", "prune")
    assert (pruned.exit_code, pruned.stdout) == (0, f"{NAME}: 2 removed\n")
    assert entries(tmp_path) == [("a.py", "GPU101", 1)]
    before = (tmp_path / NAME).stat().st_mtime_ns
    assert run("baseline", "prune").exit_code == 0
    assert (tmp_path / NAME).stat().st_mtime_ns == before


def test_what_was_not_looked_at_is_not_stale(run: Run, tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text("slow_copy()\nbroken_api()\n")
    run("baseline", "create")
    before = entries(tmp_path)
    strict = ("check", "--baseline", NAME, "--strict-baseline")
    (tmp_path / "b.py").write_text("print(\n")  # no Python for now
    (tmp_path / "c.py").write_text("\n")
    assert run(*strict, "a.py").exit_code == 0
    assert run(*strict, "a.py", "b.py", "--select", "GPU1").exit_code == 0
    assert run(*strict, "c.py").exit_code == 1
    run("baseline", "prune", "--select", "GPU3")
    assert entries(tmp_path) == [e for e in before if e[:2] != ("c.py", "GPU303")]
    (tmp_path / "b.py").unlink()
    assert "3 removed" in run("baseline", "prune").stdout
    assert {path for path, _, _ in entries(tmp_path)} == {"a.py"}
    text = (tmp_path / NAME).read_text().replace("GPU303", "GPU999")
    (tmp_path / NAME).write_text(text)  # a rule that there was once
    assert "1 removed" in run("baseline", "prune", "a.py").stdout


def test_paths_are_those_of_its_folder(
    run: Run, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ci"
    folder.mkdir()
    file = folder / "known.json"
    run("baseline", "create", "--file", "ci/known.json")
    assert [path for path, _, _ in entries(folder, file.name)] == ["../a.py"] * 2
    monkeypatch.chdir(folder)
    assert run("check", "--baseline", "known.json", "..").exit_code == 0
    assert run("baseline", "status", "--file", "known.json", "..").exit_code == 0


def test_the_setting(run: Run, script: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "b.py").write_text("slow_copy()\n")
    (tmp_path / "gpulint.toml").write_text('baseline = "known.json"\n')
    result = run("check")
    assert result.exit_code == 2
    assert result.stderr == (
        f"gpulint: error: {tmp_path / 'known.json'}: No such file or directory\n"
    )
    assert run("baseline", "create").exit_code == 0
    assert run("check").exit_code == 0
    assert run("check", "inner").exit_code == 0
    assert run("check", "--no-baseline").exit_code == 1
    assert run("check", "--isolated").exit_code == 1
    (inner / "gpulint.toml").write_text("")
    assert run("check").exit_code == 1  # another folder, other settings
    both = run("check", "--baseline", "known.json", "--no-baseline")
    assert both.exit_code == 2
    (inner / "gpulint.toml").write_text("baseline = 1\n")
    assert "`baseline`: expected a file, found 1" in run("check").stderr


def test_standard_input(run: Run, script: Path) -> None:
    run("baseline", "create")
    known = ("check", "-", "--baseline", NAME)
    assert run(*known, "--stdin-filename", "a.py", stdin="slow_copy()\n").exit_code == 0
    assert run(*known, stdin="slow_copy()\n").exit_code == 1
    missing = run("check", "-", "--baseline", "missing.json", stdin="")
    assert missing.exit_code == 2
    assert run("baseline", "create", "-").exit_code == 2


@pytest.mark.parametrize(
    "text,message",
    [
        ("", "not a baseline: Expecting value"),
        ("<<<<<<< HEAD\n{}", "not a baseline: "),
        ("[]", "not a baseline: it has no list of entries"),
        ('{"schema": 1}', "it has no list of entries"),
        ('{"schema": 2, "entries": []}', "schema 2; this gpulint reads 1"),
        ('{"schema": 1, "entries": [3]}', "entry 1 is not one: 3"),
        ('{"schema": 1, "entries": [{"path": "a.py"}]}', "entry 1 is not one: {"),
        ("[" * 100_000, "not a baseline: "),
        ("\udcff", "not a baseline: "),
    ],
)
@pytest.mark.parametrize("words", ["check --baseline", "baseline prune --file"])
def test_a_broken_one_is_an_error(
    run: Run, script: Path, tmp_path: Path, text: str, message: str, words: str
) -> None:
    (tmp_path / NAME).write_bytes(text.encode("utf-8", "surrogateescape"))
    result = run(*words.split(), NAME)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr


@pytest.mark.parametrize("count", ["0", "-1", "true", '"1"', "1.5"])
def test_counts_are_whole_numbers(
    run: Run, script: Path, tmp_path: Path, count: str
) -> None:
    entry = f'{{"path": "a", "code": "GPU101", "fingerprint": "x", "count": {count}}}'
    (tmp_path / NAME).write_text(f'{{"schema": 1, "entries": [{entry}]}}')
    assert run("check", "--baseline", NAME).exit_code == 2
    entry = '{"path": "a", "code": 1, "fingerprint": "x", "count": 1}'
    (tmp_path / NAME).write_text(f'{{"schema": 1, "entries": [{entry}]}}')
    assert run("check", "--baseline", NAME).exit_code == 2


def test_where_it_cannot_be_written(run: Run, script: Path, tmp_path: Path) -> None:
    result = run("baseline", "create", "--file", "nowhere/known.json")
    assert result.exit_code == 2
    assert "known.json: not written: No such file" in result.stderr
    (tmp_path / "folder").mkdir()
    assert run("baseline", "create", "--file", "folder").exit_code == 2


def test_branches_that_remove_different_entries_merge(
    run: Run, tmp_path: Path, git: Git
) -> None:
    names = [f"{letter}.py" for letter in "abcdefgh"]
    for name in names:
        (tmp_path / name).write_text("slow_copy()\n")
    run("baseline", "create")
    git("init", "-q", "-b", "main")
    git("config", "user.email", "a@b.c")
    git("config", "user.name", "A")
    git("add", ".")
    git("commit", "-qm", "all")
    for branch, name in (("one", "b.py"), ("two", "g.py")):
        git("checkout", "-qb", branch, "main")
        (tmp_path / name).write_text("\n")
        run("baseline", "prune")
        git("commit", "-qam", branch)
    git("merge", "-q", "-m", "both", "one")
    left = [path for path, _, _ in entries(tmp_path)]
    assert left == [name for name in names if name not in ("b.py", "g.py")]
    assert run("baseline", "status").exit_code == 0


def test_entries_of_both_sides_of_a_merge(
    run: Run, script: Path, tmp_path: Path
) -> None:
    run("baseline", "create")
    data = json.loads((tmp_path / NAME).read_text())
    data["entries"] += [{**entry, "count": 1} for entry in data["entries"]]
    (tmp_path / NAME).write_text(json.dumps(data))
    assert run("check", "--baseline", NAME).exit_code == 0


def test_fix_still_fixes_and_does_not_count_the_rest(
    run: Run, script: Path, tmp_path: Path
) -> None:
    (tmp_path / "latin.py").write_bytes(b"# \xff\n")
    run("baseline", "create")
    (tmp_path / "latin.py").unlink()
    result = run("fix", "--baseline", NAME)
    assert result.exit_code == 0
    assert script.read_text() == "fast_copy()\nfast_copy()\nbroken_api()\n"
    assert result.stdout.splitlines()[-3:] == [
        "Fixed 2 findings in 1 file",
        "All checks passed!",
        "1 finding accepted by the baseline",
    ]
    assert run("fix", "--baseline", "missing.json").exit_code == 2
    (tmp_path / "latin.py").write_bytes(b"# \xff\n")
    assert run("fix", "--baseline", NAME).exit_code == 1
