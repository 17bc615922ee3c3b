"""Which settings hold for a file, and what is wrong with others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpulint import __version__
from gpulint.finding import Confidence, Effect, Severity
from gpulint.globs import FileGlob, Globs
from gpulint.releases import ANY_MINOR, Range
from gpulint.settings import (
    EVERY_RULE,
    Choice,
    Overrides,
    Resolver,
    Settings,
    SettingsError,
    read_settings,
)

ALL_KEYS = """\
select = ["GPU1", "missing-amp"]
ignore = ["GPU105"]
fixable = ["GPU1"]
unfixable = ["GPU102"]
allow = ["random", "numerics"]
severity = { GPU2 = "error", GPU201 = "off" }
min-confidence = "high"
per-file-ignores = { "tests/**" = ["GPU2"], "!src/**" = [] }
protect = ["Solver.*"]
exclude = ["old"]
extend-exclude = ["gen/*.py"]
respect-gitignore = false
force-exclude = true
torch-version = ">=2.1,<3"
package-versions = { keras = "2.15", transformers = ">=4.40,<5" }
fail-level = "note"
output-format = "concise"
baseline = "known.json"
"""


def only(*words: str) -> tuple[Choice, ...]:
    return (Choice(words, anew=True),)


def test_all_keys(tmp_path: Path) -> None:
    path = tmp_path / "gpulint.toml"
    path.write_text(ALL_KEYS)
    assert read_settings(path, tmp_path) == Settings(
        rules=(Choice(("GPU1", "missing-amp"), ("GPU105",), anew=True),),
        allow=frozenset({Effect.EXACT, Effect.RANDOM, Effect.NUMERICS}),
        fixes=(Choice(("GPU1",), ("GPU102",), anew=True),),
        severity=(("GPU2", Severity.ERROR), ("GPU201", None)),
        min_confidence=Confidence.HIGH,
        per_file_ignores=(
            (FileGlob("tests/**", tmp_path), ("GPU2",)),
            (FileGlob("!src/**", tmp_path), ()),
        ),
        protect=("Solver.*",),
        exclude=Globs(("old",), tmp_path),
        extend_exclude=(Globs(("gen/*.py",), tmp_path),),
        respect_gitignore=False,
        force_exclude=True,
        torch_version=(2, 1),
        package_versions=(
            ("keras", Range((2, 15), (2, 15))),
            ("transformers", Range((4, 40), (4, ANY_MINOR))),
        ),
        fail_level=Severity.NOTE,
        output_format="concise",
        baseline=tmp_path / "known.json",
        file=path,
    )


@pytest.mark.parametrize(
    "text,message",
    [
        ("selct = []", "unknown setting `selct`; did you mean `select`?"),
        ("fail_level = 1", "unknown setting `fail_level`; did you mean `fail-level`?"),
        ("x = 1", "unknown setting `x`; there are extend, required-"),
        ("select = 'ALL'", "`select`: expected a list of strings, found 'ALL'"),
        ("ignore = [1]", "`ignore`: expected a list of strings, found [1]"),
        ("per-file-ignores = ['x']", "`per-file-ignores`: expected a table such as {"),
        ("per-file-ignores = {x = 'y'}", "`per-file-ignores`: expected a list of str"),
        ("per-file-ignores = {'' = []}", "`per-file-ignores`: a pattern of files is"),
        ("per-file-ignores = {'!' = []}", "`per-file-ignores`: a pattern of files is"),
        ("per-file-ignores = {'[z-a]' = []}", "`per-file-ignores`: '[z-a]' is no patt"),
        ("per-path = [{path = '!a\\'}]", "`per-path`: '!a\\\\' is no pattern of fil"),
        ("severity = 'error'", "`severity`: expected a table such as {GPU301 = "),
        ("severity = {GPU1 = 'bad'}", "`severity`: expected one of note, warning, err"),
        ("min-confidence = 1", "`min-confidence`: expected one of low, medium, high"),
        ("protect = ['']", "`protect`: the name of a function is empty in ['']"),
        ("extend = ''", "`extend`: expected a file, found ''"),
        ("extend = 'no.toml'", "`extend`: no such file: "),
        ("x = 1\nrequired-version = '<0.1'", "`required-version`: <0.1 is asked for, "),
        (
            "required-version = '0.0.9'",
            "`required-version`: 0.0.9 is asked for, and th",
        ),
        ("required-version = 'new'", "`required-version`: 'new' is no specifier such"),
        ("required-version = 1", "`required-version`: expected a specifier such as "),
        ("per-path = {}", "`per-path`: expected a list of tables, found {}"),
        ("per-path = ['x']", "`per-path`: expected a list of tables, found ['x']"),
        ("[[per-path]]\nignore = []", "`per-path`: each table needs `path` or `glob`"),
        ("per-path = [{path = 'a', glob = 'b'}]", "`per-path`: each table needs `pa"),
        ("per-path = [{path = []}]", "`per-path`: `path`: there is no pattern of file"),
        ("per-path = [{path = ['']}]", "`per-path`: a pattern of files is empty"),
        ("per-path = [{path = 1}]", "`per-path`: expected a list of strings, found 1"),
        (
            "per-path = [{path = 'a', selct = []}]",
            "`per-path`: `selct` is no setting of some files; did you mean `select`?",
        ),
        (
            "per-path = [{path = 'a', plugins = []}]",
            "`per-path`: `plugins` is no setting of some files; there are select, ",
        ),
        ("per-path = [{path = 'a', allow = 1}]", "`per-path`: `allow`: expected a li"),
        ("allow = ['luck']", "`allow`: 'luck' is not an effect; there are exact"),
        ("allow = ['none']", "`allow`: 'none' is not an effect"),
        ("force-exclude = 1", "`force-exclude`: expected true or false, found 1"),
        ("torch-version = 2.1", '`torch-version`: expected a string such as "2.1"'),
        ("torch-version = '<3'", "`torch-version`: '<3' gives no lowest version"),
        ("package-versions = ['x']", "`package-versions`: expected a table such as"),
        ("package-versions = {keras = 2}", "`package-versions`: expected strings such"),
        ("package-versions = {jax = '1'}", "`package-versions`: 'jax' is none of acc"),
        ("package-versions = {keras = 'x'}", "`package-versions`: 'keras=x' bounds no"),
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
    assert resolver.of_file(inner / "x.py").rules == only("GPU1")
    (inner / "gpulint.toml").write_text('ignore = ["GPU2"]')
    again = Resolver().of_file(inner / "x.py")
    assert again.rules == (*EVERY_RULE, Choice(ignore=("GPU2",)))
    assert resolver.of_file(inner / "x.py") is resolver.of_folder(inner)


def test_order_within_a_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.gpulint]\nselect = ["GPU3"]')
    assert Resolver().of_folder(tmp_path).rules == only("GPU3")
    (tmp_path / "gpulint.toml").write_text('select = ["GPU2"]')
    assert Resolver().of_folder(tmp_path).rules == only("GPU2")
    (tmp_path / ".gpulint.toml").write_text('select = ["GPU1"]')
    assert Resolver().of_folder(tmp_path).rules == only("GPU1")


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
    assert Resolver().of_folder(tmp_path).rules == only("GPU3")


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
    more = Choice(ignore=("GPU101",))
    added = Resolver(Overrides(more)).of_folder(tmp_path)
    assert added.rules == (Choice(("GPU1",), ("GPU105",), anew=True), more)
    other = Choice(("GPU1",), anew=True)
    assert Resolver(Overrides(other)).of_folder(tmp_path).rules == (other,)


def test_isolated_and_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpulint.toml").write_text('select = ["GPU1"]')
    config = tmp_path / "sub" / "pyproject.toml"
    config.parent.mkdir()
    config.write_text('[tool.gpulint]\nexclude = ["x"]')
    assert Resolver(isolated=True).of_folder(tmp_path) == Settings()
    found = Resolver(config=config).of_folder(tmp_path)
    assert found.exclude == Globs(("x",), tmp_path)
    assert found.rules == EVERY_RULE


MONOREPO = """\
ignore = ["GPU105"]
severity = { GPU1 = "note" }

[[per-path]]
path = "legacy/**"
extend-ignore = ["GPU3"]
torch-version = "1.13"
runtime = "vendor"

[[per-path]]
glob = ["*.ipynb", "legacy/new/*.py", "!legacy/new/_*.py"]
select = ["GPU3"]
unfixable = ["GPU301"]
allow = ["numerics"]
severity = { GPU1 = "off", GPU2 = "error" }
fail-level = "error"
torch-version = "2.4"
"""


def test_settings_of_some_files(tmp_path: Path) -> None:
    file = settings(tmp_path / "gpulint.toml", MONOREPO)
    resolver = Resolver(Overrides(Choice(ignore=("GPU2",))))
    read, less = read_settings(file, tmp_path), Choice(ignore=("GPU2",))
    plain = replace(read, rules=(*read.rules, less))
    assert resolver.of_file(tmp_path / "train.py") == plain
    legacy = resolver.of_file(tmp_path / "legacy" / "deep" / "train.py")
    assert legacy == replace(
        plain,
        rules=(*read.rules, Choice(ignore=("GPU3",)), less),
        torch_version=(1, 13),
        runtime="vendor",
    )
    assert legacy is resolver.of_file(tmp_path / "legacy" / "other.py")
    assert resolver.of_file(tmp_path / "legacy" / "new" / "_x.py") is legacy
    off = Choice(ignore=("GPU1",), keep=("GPU2",))
    both = replace(
        plain,
        rules=(*only("GPU3"), off, less),
        fixes=(*EVERY_RULE, Choice(ignore=("GPU301",))),
        allow=frozenset({Effect.EXACT, Effect.NUMERICS}),
        severity=(("GPU1", None), ("GPU2", Severity.ERROR)),
        fail_level=Severity.ERROR,
        torch_version=(2, 4),
        runtime="vendor",
    )
    assert resolver.of_file(tmp_path / "legacy" / "new" / "train.py") == both
    notebook = resolver.of_file(tmp_path / "docs" / "train.ipynb")
    assert notebook == replace(both, runtime="import")
    assert resolver.of_folder(tmp_path / "legacy") == plain


def test_what_is_extended_has_settings_of_some_files_too(tmp_path: Path) -> None:
    table = "[[per-path]]\npath = 'a.py'\nfail-level = 'note'\n"
    settings(tmp_path / "base.toml", table + "allow = ['random']")
    child = 'extend = "base.toml"\n' + table.replace("note", "error")
    settings(tmp_path / "gpulint.toml", child)
    found = Resolver().of_file(tmp_path / "a.py")
    assert found.fail_level is Severity.ERROR
    assert Effect.RANDOM in found.allow


def settings(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_stands_over_the_one_it_extends(tmp_path: Path) -> None:
    settings(
        tmp_path / "common" / "base.toml",
        """\
extend = "../root.toml"
allow = ["random"]
exclude = ["old"]
extend-exclude = ["gen"]
severity = { GPU1 = "note", GPU2 = "note" }
per-file-ignores = { "a.py" = ["GPU1"] }
baseline = "known.json"
package-versions = { keras = "2.15", accelerate = "1.0" }
""",
    )
    settings(tmp_path / "root.toml", 'fail-level = "note"\nallow = ["numerics"]')
    child = settings(
        tmp_path / "project" / "pyproject.toml",
        """\
[tool.gpulint]
extend = "../common/base.toml"
exclude = ["third_party"]
extend-exclude = ["gen"]
severity = { GPU2 = "error" }
per-file-ignores = { "a.py" = ["GPU2"] }
package-versions = { keras = "3.0" }
""",
    )
    found = Resolver().of_folder(child.parent)
    shared, project = tmp_path / "common", tmp_path / "project"
    assert found == Settings(
        fail_level=Severity.NOTE,
        allow=frozenset({Effect.EXACT, Effect.RANDOM}),
        exclude=Globs(("third_party",), project),
        extend_exclude=(Globs(("gen",), shared), Globs(("gen",), project)),
        severity=(("GPU1", Severity.NOTE), ("GPU2", Severity.ERROR)),
        per_file_ignores=(
            (FileGlob("a.py", shared), ("GPU1",)),
            (FileGlob("a.py", project), ("GPU2",)),
        ),
        baseline=shared / "known.json",
        package_versions=(
            ("keras", Range((3, 0), (3, 0))),
            ("accelerate", Range((1, 0), (1, 0))),
        ),
        file=child,
    )


def test_rules_of_a_file_that_is_extended(tmp_path: Path) -> None:
    base = settings(tmp_path / "base.toml", 'select = ["GPU1"]\nignore = ["GPU101"]')
    text = 'extend = "base.toml"\nextend-select = ["GPU2"]\nignore = ["GPU102"]'
    child = settings(tmp_path / "gpulint.toml", text)
    first = Choice(("GPU1",), ("GPU101",), anew=True)
    added = Choice(("GPU2",), ("GPU102",))
    assert read_settings(child, tmp_path).rules == (first, added)
    settings(child, f'{text}\nselect = ["GPU3"]\nfixable = ["GPU1"]')
    found = read_settings(child, tmp_path)
    assert found.rules == (Choice(("GPU3", "GPU2"), ("GPU102",), anew=True),)
    assert found.fixes == only("GPU1")
    settings(base, "required-version = '<0.1'")
    with pytest.raises(
        SettingsError, match=r"base\.toml: `required-version`: <0\.1 is"
    ):
        read_settings(child, tmp_path)


def test_a_severity_of_a_file_that_is_extended_is_off_no_more(tmp_path: Path) -> None:
    settings(tmp_path / "base.toml", "severity = { GPU1 = 'off' }")
    text = 'extend = "base.toml"\nseverity = { GPU2 = "note" }'
    settings(tmp_path / "gpulint.toml", text)
    off = Choice(ignore=("GPU1",), keep=("GPU2",))
    assert Resolver().of_folder(tmp_path).rules == (*EVERY_RULE, off)
    settings(tmp_path / "gpulint.toml", text.replace("GPU2", "GPU1"))
    assert Resolver().of_folder(tmp_path).rules == EVERY_RULE


@pytest.mark.parametrize(
    "extended",
    [
        {"gpulint.toml": "gpulint.toml"},
        {"gpulint.toml": "a.toml", "a.toml": "gpulint.toml"},
        {"gpulint.toml": "a.toml", "a.toml": "a.toml"},
    ],
)
def test_files_that_extend_each_other(tmp_path: Path, extended: dict[str, str]) -> None:
    for name, other in extended.items():
        settings(tmp_path / name, f'extend = "./x/../{other}"')
    first = tmp_path / "gpulint.toml"
    with pytest.raises(SettingsError, match="`extend`: a cycle: ") as caught:
        Resolver().of_folder(tmp_path)
    assert str(caught.value).count(" extends ") >= 1
    assert str(first) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_extended_projects_need_a_table(tmp_path: Path) -> None:
    settings(tmp_path / "pyproject.toml", "[tool.ruff]")
    child = settings(tmp_path / "inner" / "gpulint.toml", 'extend="../pyproject.toml"')
    with pytest.raises(
        SettingsError, match=r"pyproject\.toml has no \[tool\.gpulint\]$"
    ):
        read_settings(child, child.parent)
    settings(tmp_path / "pyproject.toml", "[tool.gpulint]\nforce-exclude = true")
    assert read_settings(child, child.parent).force_exclude


def test_extend_counts_from_the_file_and_globs_of_config_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings(tmp_path / "conf" / "base.toml", 'exclude = ["x"]\nbaseline = "b.json"')
    config = settings(tmp_path / "conf" / "own.toml", 'extend = "base.toml"')
    found = Resolver(config=config.relative_to(tmp_path)).of_folder(tmp_path)
    assert found.exclude == Globs(("x",), tmp_path)
    assert found.baseline == tmp_path / "b.json"
    monkeypatch.setenv("HOME", str(tmp_path / "conf"))
    settings(tmp_path / "gpulint.toml", 'extend = "~/base.toml"')
    assert Resolver().of_folder(tmp_path).exclude == Globs(("x",), tmp_path / "conf")


@pytest.mark.parametrize(
    "wanted", [__version__, f">={__version__},<99", f" >={__version__}.dev1"]
)
def test_versions_that_are_asked_for(tmp_path: Path, wanted: str) -> None:
    path = settings(tmp_path / "gpulint.toml", f"required-version = '{wanted}'")
    assert read_settings(path, tmp_path) == Settings(file=path)
