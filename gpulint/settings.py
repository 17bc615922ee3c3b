"""Settings of a file: its nearest `[tool.gpulint]`, then the command line."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from gpulint.finding import Effect, Severity

TOML = "tomllib" if sys.version_info >= (3, 11) else "tomli"
NAMES = (".gpulint.toml", "gpulint.toml", "pyproject.toml")
FORMATS = ("full", "concise", "json")
EFFECTS = tuple(e.value for e in Effect if e is not Effect.NONE)
RUNTIMES = ("import", "vendor")
LEVELS = tuple(severity.value for severity in Severity)
EXCLUDES = (
    ".bzr .direnv .eggs .git .git-rewrite .hg .ipynb_checkpoints .mypy_cache .nox "
    ".pants.d .pyenv .pytest_cache .pytype .ruff_cache .svn .tox .venv .vscode "
    "__pycache__ __pypackages__ _build buck-out build dist node_modules "
    "site-packages venv "
    "lightning_logs log logs mlruns wandb"  # what runs leave behind, code as well
).split()


class SettingsError(Exception):
    """Settings that cannot be used; the message is one line for the user."""


class Globs(NamedTuple):
    """Patterns as in a .gitignore, relative to `root` (None: the folder searched)."""

    patterns: tuple[str, ...]
    root: Path | None = None


@dataclass(frozen=True)
class Settings:
    """What holds for a file. `file` is where it was read, None for the defaults."""

    select: tuple[str, ...] = ("ALL",)
    ignore: tuple[str, ...] = ()
    allow: frozenset[Effect] = frozenset({Effect.EXACT})
    exclude: Globs = field(default_factory=lambda: Globs(tuple(EXCLUDES)))
    extend_exclude: tuple[Globs, ...] = ()
    respect_gitignore: bool = True
    force_exclude: bool = False
    torch_version: tuple[int, int] | None = None
    fail_level: Severity = Severity.WARNING
    output_format: str = "full"
    cache_dir: Path | None = None
    runtime: str = "import"
    file: Path | None = None

    @property
    def excludes(self) -> tuple[Globs, ...]:
        """All patterns of files to leave out."""
        return (self.exclude, *self.extend_exclude)


class Overrides(NamedTuple):
    """What the command line says; None or empty: not given there."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    values: tuple[tuple[str, Any], ...] = ()
    extend_exclude: tuple[Globs, ...] = ()

    def apply(self, settings: Settings) -> Settings:
        """`--select` starts anew; `--ignore` alone adds to the settings' list."""
        if self.select:
            settings = replace(settings, select=self.select, ignore=())
        return replace(
            settings,
            ignore=settings.ignore + self.ignore,
            extend_exclude=settings.extend_exclude + self.extend_exclude,
            **dict(self.values),
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
        self._folders: dict[Path, Settings] = {}
        self._fixed: Settings | None = None
        if isolated:
            self._fixed = self._overrides.apply(Settings())
        elif config is not None:
            self._fixed = self._overrides.apply(read_settings(config, Path.cwd()))

    def of_file(self, path: Path) -> Settings:
        """Settings of an absolute file path. SettingsError: they cannot be used."""
        return self.of_folder(path.parent)

    def of_folder(self, folder: Path) -> Settings:
        """Settings of the files that lie directly in an absolute folder path."""
        if self._fixed is not None:
            return self._fixed
        if folder not in self._folders:
            self._folders[folder] = self._resolve(folder)
        return self._folders[folder]

    def _resolve(self, folder: Path) -> Settings:
        for name in NAMES:
            path = folder / name
            if path.is_file() and (name != "pyproject.toml" or _has_table(path)):
                return self._overrides.apply(read_settings(path, folder))
        if folder.parent == folder:
            return self._overrides.apply(Settings())
        return self.of_folder(folder.parent)


def read_settings(path: Path, root: Path) -> Settings:
    """The settings in a TOML file; globs are relative to `root`."""
    try:
        data = parse_toml(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise SettingsError(f"{path}: not TOML: {error}") from None
    if path.name == "pyproject.toml":
        data = _table(data) or {}
    values: dict[str, Any] = {"file": path}
    for key, value in data.items():
        if key not in READERS:
            raise SettingsError(f"{path}: unknown setting `{key}`{_suggest(key)}")
        try:
            values[key.replace("-", "_")] = READERS[key](value, root)
        except ValueError as error:
            raise SettingsError(f"{path}: `{key}`: {error}") from None
    return Settings(**values)


def parse_toml(data: bytes) -> dict[str, Any]:
    """The tables of a TOML file. ValueError: it is not TOML."""
    tables = importlib.import_module(TOML).loads(data.decode("utf-8-sig"))
    assert isinstance(tables, dict)
    return tables


def parse_effects(names: Iterable[str]) -> frozenset[Effect]:
    """A set of effects by their names; `exact` is always in it, `all` is all."""
    chosen = {Effect.EXACT}
    for name in names:
        if name == "all":
            chosen.update(Effect(value) for value in EFFECTS)
        elif name in EFFECTS:
            chosen.add(Effect(name))
        else:
            known = ", ".join((*EFFECTS, "all"))
            raise ValueError(f"{name!r} is not an effect; there are {known}")
    return frozenset(chosen)


def parse_torch_version(text: str) -> tuple[int, int]:
    """`2.1` or a specifier with a lower bound such as `>=2.1,<3`."""
    from gpulint.torch_range import lower_bound

    bound = lower_bound(text)
    if bound is None:
        raise ValueError(f"{text!r} gives no lowest version, as `2.1` or `>=2.1` does")
    return bound


def closest(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing where no known word is near."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean `{near[0]}`?" if near else ""


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


def _strings(value: Any, _: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ValueError(f"expected a list of strings, found {value!r}")
    return tuple(value)


def _boolean(value: Any, _: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, found {value!r}")
    return value


def _one_of(known: tuple[str, ...]) -> Callable[[Any, Path], str]:
    def read(value: Any, _: Path) -> str:
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}, found {value!r}")
        return str(value)

    return read


def _level(value: Any, root: Path) -> Severity:
    return Severity(_one_of(LEVELS)(value, root))


def _globs(value: Any, root: Path) -> Globs:
    return Globs(_strings(value, root), root)


def _folder(value: Any, root: Path) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a folder, found {value!r}")
    return root / value


def _more_globs(value: Any, root: Path) -> tuple[Globs, ...]:
    return (_globs(value, root),)


def _effects(value: Any, root: Path) -> frozenset[Effect]:
    return parse_effects(_strings(value, root))


def _torch(value: Any, _: Path) -> tuple[int, int]:
    if not isinstance(value, str):
        raise ValueError(f'expected a string such as "2.1", found {value!r}')
    return parse_torch_version(value)


READERS: dict[str, Callable[[Any, Path], Any]] = {
    "select": _strings,
    "ignore": _strings,
    "allow": _effects,
    "exclude": _globs,
    "extend-exclude": _more_globs,
    "respect-gitignore": _boolean,
    "force-exclude": _boolean,
    "torch-version": _torch,
    "fail-level": _level,
    "output-format": _one_of(FORMATS),
    "cache-dir": _folder,
    "runtime": _one_of(RUNTIMES),
}
