"""Settings of a file: its nearest `[tool.gpulint]`, then the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpulint.finding import Confidence, Effect, Severity
from gpulint.globs import FileGlob, Globs
from gpulint.settings_values import READERS, Codes, PathSettings, closest

if TYPE_CHECKING:
    from gpulint.releases import Range
    from gpulint.targets import Target

TOML = "tomllib" if sys.version_info >= (3, 11) else "tomli"
NAMES = (".gpulint.toml", "gpulint.toml", "pyproject.toml")
UNUSED_IGNORE = "GPU002"
EXCLUDES = (
    ".bzr .direnv .eggs .git .git-rewrite .hg .ipynb_checkpoints .mypy_cache .nox "
    ".pants.d .pyenv .pytest_cache .pytype .ruff_cache .svn .tox .venv .vscode "
    "__pycache__ __pypackages__ _build buck-out build dist node_modules "
    "site-packages venv "
    "lightning_logs log logs mlruns wandb"  # what runs leave behind, code as well
).split()
ALL = "ALL"
# How keys come together where one settings file stands over another one.
RULES = ("select", "extend-select", "ignore", "extend-ignore")
FIXES = ("fixable", "unfixable")
TABLES = ("package-versions", "per-file-ignores", "severity")
ADDED = ("extend-exclude", "per-path")


class SettingsError(Exception):
    """Settings that cannot be used; the message is one line for the user."""


class Choice(NamedTuple):
    """Rules that one settings file or the command line chooses, and leaves out.

    `anew`: what was chosen before it counts no more. Where both name a rule, the word
    that says it most exactly decides; between two of the same kind, `ignore`. Those
    of `keep` stay as they were, whatever less exact words say. `asked`: a user has
    said so.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    anew: bool = False
    keep: tuple[str, ...] = ()
    asked: bool = True


Choices = tuple[Choice, ...]
EVERY_RULE = (Choice((ALL,), asked=False),)  # before anybody has chosen


def chosen(before: Choices, choice: Choice) -> Choices:
    """Choices with one that comes after them."""
    if choice.anew:
        return (choice,)
    return (*before, choice) if choice.select or choice.ignore else before


@dataclass(frozen=True)
class Settings:
    """What holds for a file. `file` is where it was read, None for the defaults."""

    rules: Choices = EVERY_RULE
    fixes: Choices = EVERY_RULE
    allow: frozenset[Effect] = frozenset({Effect.EXACT})
    severity: tuple[tuple[str, Severity | None], ...] = ()
    min_confidence: Confidence | None = None
    per_file_ignores: tuple[tuple[FileGlob, Codes], ...] = ()
    per_path: tuple[PathSettings, ...] = ()
    protect: tuple[str, ...] = ()
    exclude: Globs = field(default_factory=lambda: Globs(tuple(EXCLUDES)))
    extend_exclude: tuple[Globs, ...] = ()
    respect_gitignore: bool = True
    force_exclude: bool = False
    torch_version: tuple[int, int] | None = None
    target: tuple[Target, ...] = ()
    package_versions: tuple[tuple[str, Range], ...] = ()
    fail_level: Severity = Severity.WARNING
    output_format: str = "full"
    cache_dir: Path | None = None
    jobs: int | None = None
    baseline: Path | None = None
    runtime: str = "import"
    plugins: tuple[str, ...] = ()
    file: Path | None = None

    @property
    def excludes(self) -> tuple[Globs, ...]:
        """All patterns of files to leave out."""
        return (self.exclude, *self.extend_exclude)

    @property
    def asked_for(self) -> Choices:
        """Rules that the user has named, be it by `ALL`: nobody does so by default."""
        return tuple(Choice(c.select) for c in self.rules if c.asked)

    @property
    def named(self) -> tuple[str, ...]:
        """Codes, prefixes and names outside of `rules` and `fixes`."""
        words = [code for _, codes in self.per_file_ignores for code in codes]
        words += [word for word, _ in self.severity]
        for key, value in (pair for its in self.per_path for pair in its.given):
            if key in (*RULES, *FIXES):
                words += value
            elif key == "severity":
                words += [word for word, _ in value]
        return tuple(words)

    @property
    def judged(self) -> tuple[object, ...]:
        """What decides which findings there are, and what they look like."""
        terms = (self.fixes, self.severity, self.min_confidence)
        return (self.rules, *terms, self.protect)

    @property
    def switched(self) -> Settings:
        """The same without rules whose severity is `off`."""
        off = tuple(word for word, level in self.severity if level is None)
        on = tuple(word for word, level in self.severity if level is not None)
        if not off:
            return self
        rules = chosen(self.rules, Choice(ignore=off, keep=on))
        return replace(self, rules=rules)


class Overrides(NamedTuple):
    """What the command line says; None or empty: not given there."""

    rules: Choice = Choice()
    fixes: Choice = Choice()
    values: tuple[tuple[str, Any], ...] = ()
    extend_exclude: tuple[Globs, ...] = ()

    def apply(self, settings: Settings) -> Settings:
        """`--select` starts anew; other choices of rules add to the settings'."""
        values = dict(self.values)
        rules = chosen(settings.rules, self.rules)
        unused = values.pop("unused_ignores", None)
        if unused is not None:
            word = (UNUSED_IGNORE,)
            rules = chosen(rules, Choice(word) if unused else Choice(ignore=word))
        return replace(
            settings,
            rules=rules,
            fixes=chosen(settings.fixes, self.fixes),
            extend_exclude=settings.extend_exclude + self.extend_exclude,
            **values,
        )


class Resolver:
    """Finds the settings of files, each settings file being read once."""

    def __init__(
        self,
        overrides: Overrides | None = None,
        config: Path | None = None,
        isolated: bool = False,
    ) -> None:
        self._overrides = overrides or Overrides()
        self._read: dict[Path, Settings] = {}  # as the files say
        self._made: dict[tuple[object, ...], Settings] = {}
        self._fixed: Settings | None = None
        if isolated:
            self._fixed = Settings()
        elif config is not None:
            self._fixed = read_settings(config, Path.cwd())

    def of_file(self, path: Path) -> Settings:
        """Settings of an absolute file path. SettingsError: they cannot be used."""
        read = self._fixed or self._nearest(path.parent)
        settings = self._whole(read, [i for i in read.per_path if i.matches(path)])
        ignored = tuple(
            code
            for glob, codes in settings.per_file_ignores
            if glob.matches(path)
            for code in codes
        )
        if not ignored:
            return settings
        key = id(settings), ignored
        if key not in self._made:
            rules = chosen(settings.rules, Choice(ignore=ignored))
            self._made[key] = replace(settings, rules=rules)
        return self._made[key]

    def of_folder(self, folder: Path) -> Settings:
        """What holds in an absolute folder path, but for patterns of single files."""
        return self._whole(self._fixed or self._nearest(folder))

    def _whole(self, read: Settings, more: Sequence[PathSettings] = ()) -> Settings:
        """What was read, then `more` for some files, then the command line."""
        key = id(read), *map(id, more)
        if key not in self._made:
            settings = read
            for its in more:
                settings = laid_over(settings, dict(its.given))
            self._made[key] = self._overrides.apply(settings.switched)
        return self._made[key]

    def _nearest(self, folder: Path) -> Settings:
        """What the file of settings says that is nearest to a folder."""
        if folder not in self._read:
            self._read[folder] = self._search(folder)
        return self._read[folder]

    def _search(self, folder: Path) -> Settings:
        for name in NAMES:
            path = folder / name
            if path.is_file() and (name != "pyproject.toml" or _has_table(path)):
                return read_settings(path, folder)
        return Settings() if folder.parent == folder else self._nearest(folder.parent)


def read_settings(path: Path, root: Path) -> Settings:
    """The settings in a TOML file and those it extends.

    Globs are relative to `root`; those of files that are extended to the folders of
    these, unless `root` is not the folder of `path`. SettingsError: what is wrong.
    """
    return replace(_extended(path, root, ()), file=path)


def _extended(path: Path, root: Path, below: tuple[Path, ...]) -> Settings:
    """The settings in a file, over those that it extends; `below`: who extends it."""
    given = _given(path, root)
    parent = given.pop("extend", None)
    if parent is None:
        return laid_over(Settings(), given)
    files = (*below, path)
    if any(_same(parent, file) for file in files):
        cycle = " extends ".join(map(str, (*files, parent)))
        raise SettingsError(f"{path}: `extend`: a cycle: {cycle}")
    if not parent.is_file():
        raise SettingsError(f"{path}: `extend`: no such file: {parent}")
    if parent.name == "pyproject.toml" and not _has_table(parent):
        raise SettingsError(f"{path}: `extend`: {parent} has no [tool.gpulint]")
    around = parent.parent if root == path.parent else root
    return laid_over(_extended(parent, around, files), given)


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _given(path: Path, root: Path) -> dict[str, Any]:
    """The values of a file's own keys."""
    try:
        data = parse_toml(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise SettingsError(f"{path}: not TOML: {error}") from None
    if path.name == "pyproject.toml":
        data = _table(data) or {}
    given: dict[str, Any] = {}
    # Another version may have other keys, so that this one is read first.
    for key in sorted(data, key=lambda key: key != "required-version"):
        if key not in READERS:
            raise SettingsError(f"{path}: unknown setting `{key}`{_suggest(key)}")
        try:
            given[key] = READERS[key](data[key], _root(key, path, root))
        except ValueError as error:
            raise SettingsError(f"{path}: `{key}`: {error}") from None
    given.pop("required-version", None)
    return given


def _root(key: str, path: Path, root: Path) -> Path:
    """What a value is relative to."""
    return path.parent if key == "extend" else root


def laid_over(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Settings with values of other ones, by their keys, in front of theirs.

    Tables are merged key by key, and what `extend-` begins adds to what is there; a
    `select` (`fixable`) starts anew, and without it rules are added and left out.
    """
    changes = {}
    for key, value in given.items():
        name = key.replace("-", "_")
        if key in TABLES:
            value = tuple({**dict(getattr(settings, name)), **dict(value)}.items())
        elif key in ADDED:
            value = (*getattr(settings, name), *value)
        if key not in (*RULES, *FIXES):
            changes[name] = value
    select, more, ignore, less = (given.get(key, ()) for key in RULES)
    rules = Choice((*select, *more), (*ignore, *less), "select" in given)
    fixable, unfixable = (given.get(key, ()) for key in FIXES)
    fixes = Choice(fixable, unfixable, "fixable" in given)
    return replace(
        settings,
        rules=chosen(settings.rules, rules),
        fixes=chosen(settings.fixes, fixes),
        **changes,
    )


def parse_toml(data: bytes) -> dict[str, Any]:
    """The tables of a TOML file. ValueError: it is not TOML."""
    tables = importlib.import_module(TOML).loads(data.decode("utf-8-sig"))
    assert isinstance(tables, dict)
    return tables


def _suggest(key: str) -> str:
    near = closest(key.replace("_", "-").lower(), READERS)
    return near or f"; there are {', '.join(READERS)}"


def _has_table(path: Path) -> bool:
    """Whether a pyproject.toml is meant for gpulint; a broken one of others is not."""
    try:
        data = path.read_bytes()
        if b"gpulint" not in data:
            return False
        return _table(parse_toml(data)) is not None
    except OSError:
        return False
    except ValueError:
        return b"tool.gpulint" in data


def _table(data: dict[str, Any]) -> dict[str, Any] | None:
    tool = data.get("tool")
    table = tool.get("gpulint") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None
