"""Which settings hold for a file, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Effect, Severity
from gpulint.settings import (
    Globs,
    Overrides,
    Resolver,
    Settings,
    SettingsError,
    read_settings,
)

ALL_KEYS = """\
select = ["GPU1", "missing-amp"]
ignore = ["GPU105"]
allow = ["random", "numerics"]
exclude = ["old"]
extend-exclude = ["gen/*.py"]
respect-gitignore = false
force-exclude = true
torch-version = ">=2.1,<3"
fail-level = "note"
output-format = "concise"
"""


def test_all_keys(tmp_path: Path) -> None:
    path = tmp_path / "gpulint.toml"
    path.write_text(ALL_KEYS)
    assert read_settings(path, tmp_path) == Settings(
        select=("GPU1", "missing-amp"),
        ignore=("GPU105",),
        allow=frozenset({Effect.EXACT, Effect.RANDOM, Effect.NUMERICS}),
        exclude=Globs(("old",), tmp_path),
        extend_exclude=(Globs(("gen/*.py",), tmp_path),),
        respect_gitignore=False,
        force_exclude=True,
        torch_version=(2, 1),
        fail_level=Severity.NOTE,
        output_format="concise",
        file=path,
    )


@pytest.mark.parametrize(
    "text,message",
    [
        ("selct = []", "unknown setting `selct`; did you mean `select`?"),
        ("fail_level = 1", "unknown setting `fail_level`; did you mean `fail-level`?"),
        ("x = 1", "unknown setting `x`; there are select, ignore, allow"),
        ("select = 'ALL'", "`select`: expected a list of strings, found 'ALL'"),
        ("ignore = [1]", "`ignore`: expected a list of strings, found [1]"),
        ("allow = ['luck']", "`allow`: 'luck' is not an effect; there are exact"),
        ("allow = ['none']", "`allow`: 'none' is not an effect"),
        ("force-exclude = 1", "`force-exclude`: expected true or false, found 1"),
        ("torch-version = 2.1", '`torch-version`: expected a string such as "2.1"'),
        ("torch-version = '<3'", "`torch-version`: '<3' gives no lowest version"),
        ("fail-level = 'bad'", "`fail-level`: expected one of note, warning, error"),
        ("output-format = ['json']", "`output-format`: expected one of full, conc"),
        ("select = ", "not TOML: "),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "gpulint.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        Resolver().of_folder(tmp_path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_nearest_file_holds_alone(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.gpulint]\nselect = ["GPU1"]')
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\nx = 1")
    resolver = Resolver()
    assert resolver.of_file(inner / "x.py").select == ("GPU1",)
    (inner / "gpulint.toml").write_text('ignore = ["GPU2"]')
    again = Resolver().of_file(inner / "x.py")
    assert (again.select, again.ignore) == (("ALL",), ("GPU2",))
    assert resolver.of_file(inner / "x.py") is resolver.of_folder(inner)


def test_order_within_a_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.gpulint]\nselect = ["GPU3"]')
    assert Resolver().of_folder(tmp_path).select == ("GPU3",)
    (tmp_path / "gpulint.toml").write_text('select = ["GPU2"]')
    assert Resolver().of_folder(tmp_path).select == ("GPU2",)
    (tmp_path / ".gpulint.toml").write_text('select = ["GPU1"]')
    assert Resolver().of_folder(tmp_path).select == ("GPU1",)


@pytest.mark.parametrize(
    "text", ["[tool", "[tool]\nx = 'gpulint'", "tool = 'gpulint'", "\xff gpulint"]
)
def test_foreign_pyproject_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="latin-1")
    assert Resolver().of_folder(tmp_path) == Settings()


def test_own_pyproject_must_be_toml(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.gpulint]\nselect = [")
    with pytest.raises(SettingsError, match=r"pyproject\.toml: not TOML"):
        Resolver().of_folder(tmp_path)


def test_byte_order_mark(tmp_path: Path) -> None:
    text = '\ufeff[tool.gpulint]\nselect = ["GPU3"]'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    assert Resolver().of_folder(tmp_path).select == ("GPU3",)


def test_unreadable_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.gpulint]")
    (tmp_path / "gpulint.toml").write_text("")

    def denied(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(SettingsError, match=r"gpulint\.toml: Permission denied"):
        Resolver().of_folder(tmp_path)
    (tmp_path / "gpulint.toml").unlink()
    assert Resolver().of_folder(tmp_path) == Settings()


def test_ignore_on_the_command_line_adds(tmp_path: Path) -> None:
    (tmp_path / "gpulint.toml").write_text('select=["GPU1"]\nignore=["GPU105"]')
    added = Resolver(Overrides(ignore=("GPU101",))).of_folder(tmp_path)
    assert (added.select, added.ignore) == (("GPU1",), ("GPU105", "GPU101"))
    anew = Resolver(Overrides(select=("GPU1",))).of_folder(tmp_path)
    assert (anew.select, anew.ignore) == (("GPU1",), ())


def test_isolated_and_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpulint.toml").write_text('select = ["GPU1"]')
    config = tmp_path / "sub" / "pyproject.toml"
    config.parent.mkdir()
    config.write_text('[tool.gpulint]\nexclude = ["x"]')
    assert Resolver(isolated=True).of_folder(tmp_path) == Settings()
    found = Resolver(config=config).of_folder(tmp_path)
    assert found.exclude == Globs(("x",), tmp_path)
    assert found.select == ("ALL",)
