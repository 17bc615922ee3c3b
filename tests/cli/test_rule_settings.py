"""Which rules run in which files: what settings and options choose and leave out."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import Run

ALL_FIVE = "slow_copy()\nslow_math()\nbroken_api()\nsmall_batch()\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The same findings in three files: GPU101, GPU301, GPU303 and GPU401."""
    for name in ("train.py", "tests/test_a.py", "src/old/model.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ALL_FIVE)
    return tmp_path


def found(run: Run, *words: str) -> dict[str, list[str]]:
    """The last two digits' codes that are reported, by file."""
    result = run("check", "-q", "--output-format", "concise", *words)
    assert result.exit_code in (0, 1), result.output
    codes: dict[str, list[str]] = {}
    for line in result.stdout.splitlines():
        place, code = line.split()[:2]
        codes.setdefault(place.partition(":")[0], []).append(code)
    return codes


EVERY = ["GPU101", "GPU301", "GPU303", "GPU401"]


@pytest.mark.parametrize(
    "table, left",
    [
        ('"tests/**" = ["GPU1", "slow-math"]', {"tests": EVERY[2:]}),
        ('"tests" = ["ALL"]', {"tests": None}),
        ('"model.py" = ["GPU3"]', {"src": ["GPU101", "GPU401"]}),
        ('"/model.py" = ["GPU3"]', {}),
        ('"!src/**" = ["GPU4"]', {"tests": EVERY[:3], "train": EVERY[:3]}),
        ('"src" = ["GPU1"]\n"*.py" = ["GPU4"]', {"src": EVERY[1:3], "*": EVERY[:3]}),
    ],
)
def test_rules_are_left_out_in_some_files(
    run: Run, files: Path, table: str, left: dict[str, list[str] | None]
) -> None:
    (files / "gpulint.toml").write_text(f"[per-file-ignores]\n{table}\n")
    for name, codes in found(run).items():
        key = next((k for k in left if name.startswith(k)), "*")
        assert codes == left.get(key, EVERY), name
    assert all(n.split("/")[0] not in found(run) for n, c in left.items() if c is None)


def test_patterns_count_from_the_settings_file(run: Run, files: Path) -> None:
    table = '[per-file-ignores]\n"old/*.py" = ["ALL"]\n'
    (files / "gpulint.toml").write_text(table)
    assert len(found(run)) == 3
    (files / "src" / "gpulint.toml").write_text(table)
    assert sorted(found(run)) == ["tests/test_a.py", "train.py"]


def test_per_file_ignores_on_the_command_line(run: Run, files: Path) -> None:
    (files / "gpulint.toml").write_text('per-file-ignores = {"train.py" = ["ALL"]}')
    assert sorted(found(run)) == ["src/old/model.py", "tests/test_a.py"]
    given = ("--per-file-ignores", "tests/**:GPU3,GPU4, !tests/**:ALL")
    assert found(run, *given) == {"tests/test_a.py": ["GPU101"]}
    repeated = ("--per-file-ignores=src:ALL", "--per-file-ignores=tests:ALL")
    assert list(found(run, *repeated)) == ["train.py"]


def test_select_on_the_command_line_leaves_them(run: Run, files: Path) -> None:
    (files / "gpulint.toml").write_text('per-file-ignores = {"train.py" = ["GPU1"]}')
    assert "train.py" not in found(run, "--select", "GPU101")
    left = ["GPU101"]
    assert found(run, "--select", "GPU101", "--isolated")["train.py"] == left


@pytest.mark.parametrize("given", ["train.py", ":GPU1", "train.py:", "GPU1,a:GPU1"])
def test_wrong_per_file_ignores(run: Run, files: Path, given: str) -> None:
    result = run("check", "--per-file-ignores", given)
    assert result.exit_code == 2
    assert "gpulint: error: --per-file-ignores: " in result.stderr


def test_fixes_stay_away_from_them(run: Run, files: Path) -> None:
    run("fix", "--per-file-ignores", "train.py:GPU101")
    assert "slow_copy" in (files / "train.py").read_text()
    assert "fast_copy" in (files / "src/old/model.py").read_text()


def test_standard_input_has_a_name(run: Run, files: Path) -> None:
    words = ("check", "-q", "--per-file-ignores", "tests/**:ALL", "-")
    assert run(*words, stdin="slow_copy()\n").exit_code == 1
    named = run(*words, "--stdin-filename", "tests/x.py", stdin="slow_copy()\n")
    assert named.exit_code == 0


@pytest.mark.parametrize(
    "settings, words, left",
    [
        ('select = ["GPU1"]\nextend-select = ["GPU401"]', "", "GPU101 GPU401"),
        ('select = ["GPU1"]', "--extend-select GPU401,slow-math", "101 301 401"),
        ('extend-ignore = ["GPU3"]\nignore = ["GPU1"]', "", "GPU401"),
        ('ignore = ["GPU1"]', "--extend-ignore GPU3 --extend-ignore GPU401", ""),
        # The more exact word decides within one file, and the later place over it.
        ('ignore = ["GPU3"]\nextend-select = ["GPU301"]', "", "101 301 401"),
        ('ignore = ["GPU301"]\nextend-select = ["GPU3"]', "", "101 303 401"),
        ('extend-ignore = ["GPU301"]', "--extend-select GPU3", "101 301 303 401"),
        ('extend-select = ["GPU301"]', "--extend-ignore GPU3", "101 401"),
        ('extend-select = ["GPU301"]', "--ignore GPU3", "101 401"),
        # `--select` starts anew.
        ('extend-ignore = ["GPU1"]', "--select GPU101", "GPU101"),
        ('extend-select = ["GPU1"]', "--select GPU3 --extend-ignore GPU301", "303"),
        ('select = ["GPU1"]', "--select GPU3 --extend-select GPU4", "301 303 401"),
    ],
)
def test_choices_follow_one_another(
    run: Run, files: Path, settings: str, words: str, left: str
) -> None:
    (files / "gpulint.toml").write_text(settings)
    codes = [f"GPU{code.removeprefix('GPU')}" for code in left.split()]
    assert found(run, "train.py", *words.split()).get("train.py", []) == codes


@pytest.mark.parametrize(
    "table, words, left",
    [
        ('slow-math = "off"', "", "101 303 401"),
        ('GPU3 = "off"\nGPU301 = "error"', "", "101 301 401"),
        ('ALL = "off"\nGPU3 = "note"\nGPU301 = "off"', "", "303"),
        ('GPU3 = "off"', "--select GPU301", "301"),  # as asked for in the end
        ('GPU3 = "off"', "--extend-select GPU301", "101 301 401"),
        ('GPU3 = "off"\nGPU301 = "note"', "--ignore GPU3", "101 401"),
    ],
)
def test_rules_that_are_off(
    run: Run, files: Path, table: str, words: str, left: str
) -> None:
    (files / "gpulint.toml").write_text(f"[severity]\n{table}\n")
    codes = [f"GPU{code}" for code in left.split()]
    assert found(run, "train.py", *words.split())["train.py"] == codes


def test_settings_of_some_files(run: Run, files: Path) -> None:
    text = '[[per-path]]\npath = "src"\nselect = ["GPU3"]\nfail-level = "error"\n'
    (files / "gpulint.toml").write_text(text)
    assert found(run) == {
        "src/old/model.py": ["GPU301", "GPU303"],
        "tests/test_a.py": EVERY,
        "train.py": EVERY,
    }
    assert run("check", "src", "--ignore", "GPU303").exit_code == 0
    assert run("check", "train.py", "--ignore", "GPU303").exit_code == 1
    assert found(run, "src", "--select", "GPU101")["src/old/model.py"] == ["GPU101"]
    (files / "gpulint.toml").write_text(f"{text}allow = ['numerics']\n")
    run("fix")
    assert "amp_math" in (files / "src/old/model.py").read_text()
    assert "amp_math" not in (files / "train.py").read_text()


def test_settings_that_extend_others(run: Run, files: Path) -> None:
    (files / "base.toml").write_text('select = ["GPU3"]\nignore = ["GPU303"]')
    (files / "src" / "gpulint.toml").write_text(
        'extend = "../base.toml"\nextend-select = ["GPU1"]'
    )
    assert found(run, "src")["src/old/model.py"] == ["GPU101", "GPU301"]
    (files / "base.toml").write_text('extend = "src/gpulint.toml"')
    for command in ("check", "fix", "baseline create"):
        result = run(*command.split())
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        assert "`extend`: a cycle: " in result.stderr


@pytest.mark.parametrize(
    "settings, message",
    [
        ('extend-select = ["gpu9"]', "no rule matches 'gpu9'; see `gpulint rules`"),
        ('extend-ignore = ["slow-cpy"]', "did you mean `slow-copy`?"),
        ('severity = { GPU9 = "off" }', "no rule matches 'GPU9'; see `gpulint rules`"),
        ('severity = { slow-cpy = "note" }', "did you mean `slow-copy`?"),
        ('per-path = [{ path = "x", ignore = ["GPU9"] }]', "no rule matches 'GPU9'"),
        ('per-path = [{ path = "x", fixable = ["GPU9"] }]', "no rule matches 'GPU9'"),
        ('per-path = [{ path = "x", severity = { GPU9 = "off" } }]', "no rule match"),
        ('fixable = ["GPU9"]', "no rule matches 'GPU9'; see `gpulint rules`"),
        ('unfixable = ["slow-cpy"]', "did you mean `slow-copy`?"),
        ('per-file-ignores = {"x.py" = ["GPU9"]}', "no rule matches 'GPU9'; see `gpu"),
        (
            'per-file-ignores = {"x.py" = ["slow-cpy"]}',
            "no rule matches 'slow-cpy'; did you mean `slow-copy`?",
        ),
    ],
)
def test_unknown_rules(run: Run, files: Path, settings: str, message: str) -> None:
    (files / "gpulint.toml").write_text(settings)
    for command in ("check", "fix"):
        result = run(command)
        assert result.exit_code == 2
        assert message in result.stderr
