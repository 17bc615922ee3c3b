"""Exit codes and the one line on stderr, per command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeEngine, Run

import gpulint

REPO = Path(gpulint.__file__).resolve().parent.parent
FILES = {
    "clean.py": "x = 1\n",
    "copy.py": "slow_copy(x)\n",
    "math.py": "slow_math(x)\n",
    "note.py": "small_batch(x)\n",
    "error.py": "broken_api(x)\n",
    "ignored.py": "broken_api(x)  # ignore\n",
    "latin.py": b"# \xff\n",
    "internal.py": "internal_error\n",
}


@pytest.fixture(autouse=True)
def _scripts(tmp_path: Path) -> None:
    for name, text in FILES.items():
        data = text if isinstance(text, bytes) else text.encode()
        (tmp_path / name).write_bytes(data)


@pytest.mark.parametrize(
    "words,code",
    [
        ("check clean.py", 0),
        ("check copy.py", 1),
        ("check error.py", 1),
        ("check ignored.py", 0),
        ("check note.py", 0),
        ("check note.py --fail-level note", 1),
        ("check copy.py --fail-level error", 0),
        ("check error.py --fail-level error", 1),
        ("check copy.py --exit-zero", 0),
        ("check copy.py -e", 0),
        ("check latin.py", 1),
        ("check copy.py --ignore GPU101", 0),
        ("check copy.py --select broken-api", 0),
        ("check copy.py --output-format json", 1),
        ("check copy.py --statistics", 1),
        ("check copy.py --no-cache --isolated", 1),
        ("check clean.py missing.py", 2),
        ("check --no-such-option", 2),
        ("check --select GPU9", 2),
        ("check --ignore nothing", 2),
        ("check --allow luck", 2),
        ("check --torch-version new", 2),
        ("check --fail-level fatal", 2),
        ("check --config missing.toml", 2),
        ("check --config missing.toml --isolated", 2),
        ("check - clean.py", 2),
        ("check internal.py", 2),
        ("check internal.py --exit-zero", 2),
        ("check clean.py -o missing/out.txt", 2),
        ("check clean.py --baseline missing.json", 2),
        ("check clean.py --baseline a.json --no-baseline", 2),
        ("baseline", 2),
        ("baseline create copy.py", 0),
        ("baseline create internal.py --file latin.py", 2),
        ("baseline status", 2),
        ("baseline shrink", 2),
        ("check copy.py -o sarif:out.sarif -o github:-", 1),
        ("check copy.py --statistics --output-format sarif", 2),
        ("config schema --output", 0),
        ("config schema", 2),
        ("fix clean.py", 0),
        ("fix copy.py", 0),
        ("fix copy.py --exit-non-zero-on-fix", 1),
        ("fix copy.py --exit-non-zero-on-fix --exit-zero", 0),
        ("fix clean.py --exit-non-zero-on-fix", 0),
        ("fix math.py", 1),
        ("fix math.py --exit-zero", 0),
        ("fix math.py --allow numerics", 0),
        ("fix math.py --allow random,all", 0),
        ("fix math.py --allow random", 1),
        ("fix note.py", 0),
        ("fix note.py --fail-level note", 1),
        ("fix latin.py", 1),
        ("fix copy.py -i", 2),
        ("fix copy.py --commit-per-rule", 2),
        ("fix copy.py --backup .orig --report fixes.json", 0),
        ("fix copy.py --backup .py", 2),
        ("fix copy.py --diff", 1),
        ("fix copy.py --diff --exit-zero", 0),
        ("fix math.py --diff", 0),
        ("fix missing.py", 2),
        ("fix internal.py copy.py", 2),
        ("rules", 0),
        ("rules --json", 0),
        ("rules --select GPU3", 0),
        ("rules --json --markdown", 2),
        ("rules --select GPU9", 2),
        ("explain GPU101", 0),
        ("explain slow-math --json", 0),
        ("explain GPU999", 2),
        ("explain", 2),
        ("--version", 0),
        ("--help", 0),
        ("", 0),
        ("check --help", 0),
        ("no-such-command", 2),
    ],
)
def test_exit_code(run: Run, words: str, code: int) -> None:
    result = run(*words.split())
    assert result.exit_code == code, result.output
    if code == 2:
        assert len(result.stderr.splitlines()) == 1
        assert result.stderr.startswith("gpulint: error: ")


@pytest.mark.parametrize(
    "words,line",
    [
        ("check --selct x", "no such option '--selct'. (did you mean"),
        ("check nowhere", "no such file or folder: nowhere"),
        ("check --allow luck", "'luck' is not an effect; there are exact, random"),
        ("check --select GPU9", "no rule matches 'gpu9'; see `gpulint rules`"),
        ("explain gpu10", "no rule is called 'gpu10'; did you mean `gpu101`?"),
        ("explain slow-cop", "did you mean `slow-copy`?"),
        ("chekc", "no such command 'chekc'"),
    ],
)
def test_says_what_is_wrong(run: Run, words: str, line: str) -> None:
    assert line in run(*words.split()).stderr.lower()


def test_internal_error_leaves_the_other_files_checked(run: Run) -> None:
    result = run("check", "internal.py", "copy.py", "--output-format", "concise")
    assert result.exit_code == 2
    assert "copy.py:1:1: GPU101" in result.stdout
    assert "internal error: KeyError: 'x'" in result.stderr
    assert "GPULINT_TRACEBACK=1" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("words", [("check", "-v"), ("check",)])
def test_traceback_on_request(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    if "-v" not in words:
        monkeypatch.setenv("GPULINT_TRACEBACK", "1")
    result = run(*words, "internal.py")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr


@pytest.mark.parametrize("traceback", [True, False])
def test_error_outside_of_files(
    run: Run, monkeypatch: pytest.MonkeyPatch, traceback: bool
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no listing")

    monkeypatch.setattr("gpulint.cli.run.list_files", broken)
    if traceback:
        monkeypatch.setenv("GPULINT_TRACEBACK", "1")
    result = run("check", "copy.py")
    assert result.exit_code == 2
    assert "internal error: RuntimeError: no listing" in result.stderr
    assert ("Traceback" in result.stderr) is traceback


def test_interrupt(
    run: Run, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "check_path", interrupted)
    result = run("check", "copy.py")
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["check", "fix"])
def test_file_that_may_not_be_read(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def guarded(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Path, *rest: Any, **named: Any) -> Any:
            if path.name == "copy.py":
                raise PermissionError(13, "Permission denied")
            return original(path, *rest, **named)

        return call

    for method in ("open", "read_bytes"):
        monkeypatch.setattr(Path, method, guarded(getattr(Path, method)))
    result = run(command, "copy.py", "error.py")
    assert result.exit_code == 2
    assert "copy.py: Permission denied" in result.stderr
    assert "GPU303" in result.stdout


@pytest.mark.parametrize("command", ["check", "fix"])
def test_file_that_vanishes(
    run: Run, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    checked = engine.check_path

    def vanishing(path: Path, options: object) -> object:
        if path.name == "clean.py":
            path.unlink()
        return checked(path, options)

    monkeypatch.setattr(engine, "check_path", vanishing)
    result = run(command, "clean.py", "error.py")
    assert result.exit_code == 1
    assert "cannot be read: No such file" in result.stdout
    assert "GPU303" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["check", "--help"]])
def test_start_imports_little(
    words: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    code = (
        "import sys\n"
        "from gpulint.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'libcst', 'torch', 'rich', 'yaml', 'pathspec', 'packaging'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path_factory.mktemp("empty"),
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )
    assert done.stderr == "[]\n"
    assert done.stdout


def test_module_is_a_program(tmp_path_factory: pytest.TempPathFactory) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpulint", "check", "missing.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path_factory.mktemp("empty"),
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )
    assert done.returncode == 2
    assert done.stderr == "gpulint: error: no such file or folder: missing.py\n"
