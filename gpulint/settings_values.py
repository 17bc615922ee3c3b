"""What stands behind the keys of the settings, read and refused in one line."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpulint import __version__, formats
from gpulint.finding import Confidence, Effect, Severity
from gpulint.globs import FileGlob, Globs

if TYPE_CHECKING:
    from gpulint.releases import Range
    from gpulint.targets import Target

FORMATS = tuple(formats.FORMATS)
EFFECTS = tuple(e.value for e in Effect if e is not Effect.NONE)
RUNTIMES = ("import", "vendor")
LEVELS = tuple(severity.value for severity in Severity)
OFF = "off"
CONFIDENCES = tuple(confidence.value for confidence in Confidence)
PATHS = ("path", "glob")
# What decides what is found in one file, and what is done about it.
PER_PATH = (
    *("select", "ignore", "extend-select", "extend-ignore", "fixable", "unfixable"),
    *("allow", "severity", "min-confidence", "target", "torch-version"),
    *("package-versions", "fail-level", "runtime", "protect"),
)
Codes = tuple[str, ...]  # of rules, and prefixes and names of them


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
    from gpulint.releases import lower_bound

    bound = lower_bound(text)
    if bound is None:
        raise ValueError(f"{text!r} gives no lowest version, as `2.1` or `>=2.1` does")
    return bound


def parse_package_version(text: str) -> tuple[str, Range]:
    """`keras=2.15` or `transformers>=4.40,<5`: a package and the releases of it."""
    from gpulint.dependency_files import PACKAGES
    from gpulint.releases import TORCH, allowed

    known = sorted({*PACKAGES.values()} - {TORCH})
    end = next((n for n, sign in enumerate(text) if sign in "=<>~!^ "), len(text))
    name, specifier = text[:end], text[end:].strip()
    if name not in known:
        raise ValueError(f"{name!r} is none of {', '.join(known)}")
    if specifier.startswith("=") and not specifier.startswith("=="):
        specifier = specifier[1:]
    its = allowed(specifier)
    if not its:
        raise ValueError(f"{text!r} bounds no release, as `{name}=2.1` does")
    return name, its


class PathSettings(NamedTuple):
    """Values by their keys, for files of these patterns.

    A file is meant that one matches; `!` in front of a pattern takes its files out.
    """

    globs: tuple[FileGlob, ...]
    given: tuple[tuple[str, Any], ...]

    def matches(self, path: Path) -> bool:
        """Whether they hold for an absolute path of a file."""
        without = [glob for glob in self.globs if glob.pattern.startswith("!")]
        those = [glob for glob in self.globs if glob not in without]
        if not all(glob.matches(path) for glob in without):
            return False
        return not those or any(glob.matches(path) for glob in those)


def closest(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing where no known word is near."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean `{near[0]}`?" if near else ""


def parse_file_codes(
    texts: Iterable[str], root: Path
) -> tuple[tuple[FileGlob, Codes], ...]:
    """`tests/**:GPU1,missing-amp,old.py:ALL`: patterns of files, each with rules."""
    found: dict[FileGlob, Codes] = {}
    glob = None
    for part in (part.strip() for text in texts for part in text.split(",")):
        pattern, colon, code = part.rpartition(":")
        if colon:
            glob = file_glob(pattern.strip(), root)
        if glob is None or not code.strip():
            raise ValueError(f"{part!r} is not as `tests/**:GPU1` is")
        found[glob] = (*found.get(glob, ()), code.strip())
    return tuple(found.items())


def file_glob(pattern: str, root: Path) -> FileGlob:
    """A pattern of files. ValueError: there is none."""
    glob = FileGlob(pattern, root)
    try:
        glob.matches(root / "train.py")
    except ValueError:
        raise ValueError(f"{pattern!r} is no pattern of files") from None
    if not pattern.removeprefix("!").strip():
        raise ValueError("a pattern of files is empty")
    return glob


def _strings(value: Any, _: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ValueError(f"expected a list of strings, found {value!r}")
    return tuple(value)


def _names(value: Any, root: Path) -> tuple[str, ...]:
    names = _strings(value, root)
    if not all(name.strip() for name in names):
        raise ValueError(f"the name of a function is empty in {value!r}")
    return tuple(name.strip() for name in names)


def _boolean(value: Any, _: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, found {value!r}")
    return value


def read_jobs(value: Any, _: Path) -> int | None:
    """A number of processes; `auto`: None."""
    if value == "auto":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"expected a whole number from 1 on, or auto, found {value!r}")
    return value


def _one_of(known: tuple[str, ...]) -> Callable[[Any, Path], str]:
    def read(value: Any, _: Path) -> str:
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}, found {value!r}")
        return str(value)

    return read


def _level(value: Any, root: Path) -> Severity:
    return Severity(_one_of(LEVELS)(value, root))


def _severities(value: Any, _: Path) -> tuple[tuple[str, Severity | None], ...]:
    if not isinstance(value, dict):
        example = '{GPU301 = "error"}'
        raise ValueError(f"expected a table such as {example}, found {value!r}")
    for level in value.values():
        if level not in (*LEVELS, OFF):
            known = ", ".join((*LEVELS, OFF))
            raise ValueError(f"expected one of {known}, found {level!r}")
    return tuple(
        (word, None if level == OFF else Severity(level))
        for word, level in value.items()
    )


def _confidence(value: Any, root: Path) -> Confidence:
    return Confidence(_one_of(CONFIDENCES)(value, root))


def _globs(value: Any, root: Path) -> Globs:
    return Globs(_strings(value, root), root)


def _folder(value: Any, root: Path) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a folder, found {value!r}")
    return root / value


def _file(value: Any, root: Path) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a file, found {value!r}")
    return Path(os.path.normpath(root / value))


def _per_path(value: Any, root: Path) -> tuple[PathSettings, ...]:
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise ValueError(f"expected a list of tables, found {value!r}")
    return tuple(_path_settings(table, root) for table in value)


def _path_settings(table: dict[str, Any], root: Path) -> PathSettings:
    named = [key for key in PATHS if key in table]
    if len(named) != 1:
        raise ValueError(f"each table needs `path` or `glob`, found {table!r}")
    patterns = table[named[0]]
    if isinstance(patterns, str):
        patterns = [patterns]
    globs = tuple(file_glob(pattern, root) for pattern in _strings(patterns, root))
    if not globs:
        raise ValueError(f"`{named[0]}`: there is no pattern of files")
    given = []
    for key, its in table.items():
        if key in PATHS:
            continue
        if key not in PER_PATH:
            near = closest(key.replace("_", "-").lower(), PER_PATH)
            known = f"; there are {', '.join(PER_PATH)}"
            raise ValueError(f"`{key}` is no setting of some files{near or known}")
        try:
            given.append((key, READERS[key](its, root)))
        except ValueError as error:
            raise ValueError(f"`{key}`: {error}") from None
    return PathSettings(globs, tuple(given))


def _parent(value: Any, root: Path) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a file, found {value!r}")
    return Path(os.path.normpath(root / Path(value).expanduser()))


def _required(value: Any, _: Path) -> str:
    """A specifier that this version is one of."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if not isinstance(value, str):
        raise ValueError(f'expected a specifier such as ">=0.2", found {value!r}')
    try:
        wanted = SpecifierSet(value if value.strip()[:1] in "=<>~!" else f"=={value}")
    except InvalidSpecifier:
        example = '">=0.2"'
        raise ValueError(f"{value!r} is no specifier such as {example}") from None
    if not wanted.contains(__version__, prereleases=True):
        raise ValueError(f"{value} is asked for, and this is gpulint {__version__}")
    return value


def _more_globs(value: Any, root: Path) -> tuple[Globs, ...]:
    return (_globs(value, root),)


def _file_codes(value: Any, root: Path) -> tuple[tuple[FileGlob, Codes], ...]:
    if not isinstance(value, dict):
        example = '{"tests/**" = ["GPU1"]}'
        raise ValueError(f"expected a table such as {example}, found {value!r}")
    return tuple(
        (file_glob(pattern, root), _strings(codes, root))
        for pattern, codes in value.items()
    )


def _effects(value: Any, root: Path) -> frozenset[Effect]:
    return parse_effects(_strings(value, root))


def _torch(value: Any, _: Path) -> tuple[int, int]:
    if not isinstance(value, str):
        raise ValueError(f'expected a string such as "2.1", found {value!r}')
    return parse_torch_version(value)


def _packages(value: Any, _: Path) -> tuple[tuple[str, Range], ...]:
    if not isinstance(value, dict):
        raise ValueError(
            f'expected a table such as {{keras = "2.15"}}, found {value!r}'
        )
    if not all(isinstance(release, str) for release in value.values()):
        raise ValueError(f'expected strings such as "2.15", found {value!r}')
    return tuple(parse_package_version(f"{k}={v}") for k, v in value.items())


def _targets(value: Any, root: Path) -> tuple[Target, ...]:
    from gpulint.targets import find_target

    names = (value,) if isinstance(value, str) else _strings(value, root)
    return tuple(find_target(name, root) for name in names)


READERS: dict[str, Callable[[Any, Path], Any]] = {
    "extend": _parent,
    "required-version": _required,
    "select": _strings,
    "ignore": _strings,
    "extend-select": _strings,
    "extend-ignore": _strings,
    "fixable": _strings,
    "unfixable": _strings,
    "allow": _effects,
    "severity": _severities,
    "min-confidence": _confidence,
    "per-file-ignores": _file_codes,
    "per-path": _per_path,
    "protect": _names,
    "exclude": _globs,
    "extend-exclude": _more_globs,
    "respect-gitignore": _boolean,
    "force-exclude": _boolean,
    "target": _targets,
    "torch-version": _torch,
    "package-versions": _packages,
    "fail-level": _level,
    "output-format": _one_of(FORMATS),
    "cache-dir": _folder,
    "jobs": read_jobs,
    "baseline": _file,
    "runtime": _one_of(RUNTIMES),
    "plugins": _strings,
}
