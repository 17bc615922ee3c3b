"""The torch releases that a project allows, and where that is written."""

from __future__ import annotations

import ast
import configparser
import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpulint.settings import parse_toml
from gpulint.torch_range import (
    ANY_MINOR,
    Range,
    TorchVersion,
    allowed,
    newest,
)

_NAME = re.compile(r"^torch(?![\w.-])", re.IGNORECASE)
_WHEEL = re.compile(r"(?:^|[/\s@])torch-(\d+)\.(\d+)")
_CONDA = re.compile(r"^\s*-\s*['\"]?(?:[\w./-]+::)?(pytorch|torch)(?![\w.-])(.*)$")
_LOCKED = re.compile(
    r"""^name\s*=\s*["']torch["']\s*\r?\nversion\s*=\s*["']([^"']+)""", re.MULTILINE
)


# Folders beside the scripts in which lists of dependencies are kept.
_INNER = ("requirements", "scripts", "conda", "docker", "envs", "env")
_CONDA_FILE = re.compile(r"(^env|environment|conda).*\.ya?ml$")
# What is allowed and the text that says so, to find the row.
Bound = tuple[Range, str]


def find_torch_version(folder: Path) -> TorchVersion | None:
    """The bounds on torch of the project that an absolute folder path belongs to.

    Looks upwards to the root of the repository; without one, only as far as the
    first folder that declares dependencies. Where no declaration bounds torch, what
    people are told to install does. None: nothing says it.
    """
    rooted = _is_rooted(folder)
    return _find(folder, rooted) or _find_prose(folder, rooted)


@functools.lru_cache(maxsize=4096)
def _is_rooted(folder: Path) -> bool:
    """Whether a folder lies in a repository."""
    if (folder / ".git").exists():
        return True
    return folder.parent != folder and _is_rooted(folder.parent)


@functools.lru_cache(maxsize=4096)
def _find(folder: Path, rooted: bool) -> TorchVersion | None:
    declared, locked, seen = _in_folder(folder)
    found = _joined(declared or locked)
    last = (folder / ".git").exists() if rooted else seen
    if found or last or folder.parent == folder:
        return found
    return _find(folder.parent, rooted)


@functools.lru_cache(maxsize=4096)
def _find_prose(folder: Path, rooted: bool) -> TorchVersion | None:
    """What the prose says in the nearest folder where it says anything."""
    from gpulint.torch_prose import find_in_prose, has_prose

    found = find_in_prose(folder)
    if rooted:
        last = (folder / ".git").exists()
    else:
        last = has_prose(folder) or _in_folder(folder)[2]
    if found or last or folder.parent == folder:
        return found
    return _find_prose(folder.parent, rooted)


def _joined(facts: list[TorchVersion]) -> TorchVersion | None:
    """The fact with the lowest bound, and the newest release that any allows."""
    if not facts:
        return None
    lowest = min(facts, key=lambda fact: fact.version or (ANY_MINOR, 0))
    return replace(lowest, highest=newest(fact.highest for fact in facts))


def _in_folder(folder: Path) -> tuple[list[TorchVersion], list[TorchVersion], bool]:
    """What a folder's files declare, what they lock, and whether there are any."""
    declared: list[TorchVersion] = []
    locked: list[TorchVersion] = []
    seen = False
    for path, read, is_lock in _sources(folder):
        seen = True
        (locked if is_lock else declared).extend(_read(path, read))
    return declared, locked, seen


def _sources(folder: Path) -> Iterator[tuple[Path, Callable[[str], list[Bound]], bool]]:
    names = _names(folder)
    for name in sorted(names):
        if name in READERS:
            yield folder / name, READERS[name], name in LOCKS
        elif name.startswith("requirements") and name.endswith(".txt"):
            yield folder / name, _requirements, False
        elif _CONDA_FILE.search(name):
            yield folder / name, _environment, False
    for within in [folder / name for name in _INNER if name in names]:
        for name in sorted(_names(within)):
            plain = within.name == "requirements" or name.startswith("requirements")
            if plain and name.endswith(".txt"):
                yield within / name, _requirements, False
            elif _CONDA_FILE.search(name):
                yield within / name, _environment, False


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208 - of many folders
    except OSError:
        return set()


def _read(path: Path, read: Callable[[str], list[Bound]]) -> Iterator[TorchVersion]:
    """The bounds of one file; a broken file says nothing."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "replace")
        if "torch" not in text.lower():
            return
        bounds = read(text)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return
    except (SyntaxError, MemoryError, configparser.Error):
        return
    for its, written in bounds:
        row = text.count("\n", 0, max(text.find(written), 0)) + 1
        yield TorchVersion(its.lowest, path, row, its.highest)


def _requirement(text: str) -> list[Bound]:
    """The bound in one PEP 508 requirement, a URL of a wheel among them."""
    text = text.strip()
    wheel = _WHEEL.search(text)
    if wheel:
        version = (int(wheel[1]), int(wheel[2]))
        return [(Range(version, version), text)]
    if not _NAME.match(text):
        return []
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        its = allowed(str(Requirement(text).specifier))
    except InvalidRequirement:
        return []
    return [(its, text)] if its else []


def _each(requirements: Iterable[Any]) -> list[Bound]:
    return [
        bound
        for requirement in requirements
        if isinstance(requirement, str)
        for bound in _requirement(requirement)
    ]


def _requirements(text: str) -> list[Bound]:
    lines = (re.split(r"\s#|\s--|\\$", line)[0] for line in text.splitlines())
    return _each(line for line in lines if not line.startswith("#"))


def _environment(text: str) -> list[Bound]:
    """Conda packages and the pip list under them, line by line."""
    bounds = []
    for line in text.splitlines():
        match = _CONDA.match(line)
        if not match:
            continue
        specifier = re.split(r"\s#|['\"]", match[2])[0].strip()
        version = re.sub(r"^(=?=?[\d.*]+)=.*$", r"\1", specifier).lstrip(" ")
        its = allowed(version)
        if its:
            bounds.append((its, line))
    return bounds


def _pyproject(text: str) -> list[Bound]:
    data = parse_toml(text.encode("utf-8"))
    project = data.get("project", {})
    bounds = _each(project.get("dependencies", ()))
    groups = {"a": project.get("optional-dependencies", {})}
    groups["b"] = data.get("dependency-groups", {})
    for group in groups.values():
        for requirements in group.values():
            bounds += _each(requirements)
    poetry = data.get("tool", {}).get("poetry", {})
    tables = [poetry, *poetry.get("group", {}).values()]
    for table in tables:
        for key in ("dependencies", "dev-dependencies"):
            bounds += _poetry(table.get(key, {}).get("torch"))
    return bounds


def _poetry(value: Any) -> list[Bound]:
    """`"^2.1"`, `{version = "^2.1"}`, or a list of such tables."""
    if isinstance(value, list):
        return [bound for item in value for bound in _poetry(item)]
    if isinstance(value, dict):
        url = value.get("url")
        return _poetry(value.get("version")) or _each([url] if url else [])
    its = allowed(value) if isinstance(value, str) else Range()
    return [(its, f'"{value}"')] if its else []


def _setup_cfg(text: str) -> list[Bound]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    lines = parser.get("options", "install_requires", fallback="").splitlines()
    if parser.has_section("options.extras_require"):
        for _, value in parser.items("options.extras_require"):
            lines += value.splitlines()
    return _each(lines)


def _setup_py(text: str) -> list[Bound]:
    """String literals that are requirements; nothing is run."""
    strings = (
        n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)
    )
    return _each(strings)


def _toml_lock(text: str) -> list[Bound]:
    """`[[package]]` tables; read by pattern, as lock files are large."""
    found = ((allowed(m[1]), m[0]) for m in _LOCKED.finditer(text))
    return [(its, written) for its, written in found if its]


def _pipfile_lock(text: str) -> list[Bound]:
    data = json.loads(text)
    bounds = []
    for section in ("default", "develop"):
        version = data.get(section, {}).get("torch", {}).get("version", "")
        its = allowed(version)
        if its:
            bounds.append((its, '"torch"'))
    return bounds


LOCKS: dict[str, Callable[[str], list[Bound]]] = {
    "Pipfile.lock": _pipfile_lock,
    "pdm.lock": _toml_lock,
    "poetry.lock": _toml_lock,
    "uv.lock": _toml_lock,
}
READERS: dict[str, Callable[[str], list[Bound]]] = {
    "pyproject.toml": _pyproject,
    "setup.cfg": _setup_cfg,
    "setup.py": _setup_py,
    **LOCKS,
}
