"""The releases of torch and other packages that a project allows, and where it says."""

from __future__ import annotations

import configparser
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gpulint.dependency_files import (
    LOCKS,
    MENTIONED,
    PACKAGES,
    READERS,
    Reader,
    each_of,
    environment,
    explicit,
    other_environment,
    requirements,
)
from gpulint.releases import (
    ANY_MINOR,
    NUMPY,
    TORCH,
    Declared,
    Range,
    allowed,
    newest,
)

_INSTALLS = re.compile(
    r"""^[ \t]*[!%]?[ ]*(?:[!\w./-]*python[\d.]*[ ]-m[ ])?(?:uv[ ])?
    (?:pip[\d.]*|conda|mamba)[ ](?:install|create)\b(?P<packages>(?:\\\n|[^\n#])*)""",
    re.MULTILINE | re.VERBOSE,
)
_PINS = re.compile(
    r"^[ \t]*```.*\n(?P<pins>(?:[ \t]*[\w.-]+(?:\[[\w,-]+\])?==[\w.+*]+[ \t]*\r?\n)+)"
    r"[ \t]*```",
    re.MULTILINE,
)
_CONDA_PIN = re.compile(r"^([\w-]+)=(\d[\d.]*\d|\d)(?:\.\*)?(?:=.*)?$")
# `requirments.txt` and `REQUIREMENTS.txt` as well.
_REQUIREMENTS = re.compile(r"^requ\w{1,4}ment.*\.txt$", re.IGNORECASE)
# Folders beside the scripts in which lists of dependencies are kept.
_INNER = ("requirements", "scripts", "conda", "docker", "envs", "env")
# What a repository has, or each of several projects in one.
_IS_PROJECT = re.compile(r"\.git$|(readme|install)[^/]*\.(md|rst|txt)$", re.IGNORECASE)
_CONDA_FILE = re.compile(
    r"(^env|^requirements?|environment|conda|[_-]env\.).*\.ya?ml$|[_-]env\.ya?ml$",
    re.IGNORECASE,
)
_EXPLICIT_FILE = re.compile(r"(spec|explicit|conda|env).*\.txt$")
Facts = dict[str, list[Declared]]


def find_torch_version(folder: Path) -> Declared | None:
    """The bounds on torch of the project that an absolute folder path belongs to.

    Looks upwards to the root of the repository; without one, only as far as the
    first folder that declares dependencies. Where no declaration bounds torch, what
    people are told to install does; pins of packages that need a torch of their own
    bound it too. Where these two do not fit together, as somebody raised one of them
    alone, what people are told to install decides. None: nothing says it.
    """
    rooted = _is_rooted(folder)
    found = _find(folder, rooted)
    found = found if found and _bounds(found) else _find_prose(folder, rooted)
    beside, is_told = _find_beside(folder, rooted)
    if found and beside and beside.highest and beside.highest < (found.version or ()):
        prose = _find_prose(folder, rooted)
        low = prose.version if prose is not None else None
        if low is not None and (beside.version or low) <= low <= beside.highest:
            return beside
    return _within(found, beside, is_told)


def _within(
    found: Declared | None, beside: Declared | None, told: bool
) -> Declared | None:
    """What is declared, as far as what is pinned beside it allows.

    What people are only told to install, perhaps on some machines, is no lower bound.
    """
    if found is None or beside is None or beside.highest is None:
        return found or beside
    if found.here and beside.version and found.here < beside.version:
        return found  # what is pinned is of another environment
    lows = (found.version, None if told else beside.version)
    version = max(filter(None, lows), default=None)
    highest = min(filter(None, (found.highest, beside.highest)))
    if version is not None and version > highest:
        return found  # the two do not fit together: one of them is not true
    place = found if found.version == version else beside
    return Declared(version, place.path, place.row, highest)


def find_versions(folder: Path) -> dict[str, Range]:
    """The bounds on the packages other than torch.

    Found in the same way, but of prose only the commands that install are read, and
    lists of pins. What they name is the oldest release of a package that is declared
    without a bound.
    """
    rooted = _is_rooted(folder)
    names = dict.fromkeys(PACKAGES.values())
    found = {n: _find(folder, rooted, n) for n in names if n != TORCH}
    declared = {n: _bounds(its) for n, its in found.items() if its and _bounds(its)}
    said = {
        n: its if found.get(n) is None else Range(its.lowest)
        for n, its in _find_commands(folder, rooted).items()
    }
    return said | declared


def installed_by(commands: str) -> dict[str, Range]:
    """The bounds that commands, a line each, install packages with; the last counts."""
    return {name: its for name, its in _installed(commands) if its}


def _installed(commands: str) -> Iterator[tuple[str, Range]]:
    """Each package that commands install, with its bounds."""
    words = [w for c in _INSTALLS.finditer(commands) for w in c["packages"].split()]
    plain = (_CONDA_PIN.sub(r"\1==\2.*", word.strip("\"'")) for word in words)
    for name, its, _ in each_of(plain):
        yield name, its


def _listed(prose: str) -> Iterator[tuple[str, Range]]:
    """Each package in the lists of pins of a text: blocks of `accelerate==0.17.1`."""
    for block in _PINS.finditer(prose):
        for name, its, _ in requirements(block["pins"]):
            yield name, its


def forget() -> None:
    """Files may have changed on the disk since they were read."""
    for known in (
        _is_rooted,
        _find,
        _find_prose,
        _find_beside,
        _find_commands,
        _in_folder,
    ):
        known.cache_clear()


@functools.lru_cache(maxsize=4096)
def _is_rooted(folder: Path) -> bool:
    """Whether a folder lies in a repository."""
    if (folder / ".git").exists():
        return True
    return folder.parent != folder and _is_rooted(folder.parent)


@functools.lru_cache(maxsize=4096)
def _find(folder: Path, rooted: bool, package: str = TORCH) -> Declared | None:
    declared, locked, seen = _in_folder(folder)
    its = declared.get(package, [])
    if not any(map(_bounds, its)):
        its = locked.get(package) or its
    if package == NUMPY and not all(map(_is_exact, its)):
        return None  # what a test or an old Python asks for is not for all
    found = _joined(its)
    last = (folder / ".git").exists() if rooted else seen
    if found or last or folder.parent == folder:
        return found
    return _find(folder.parent, rooted, package)


def _is_exact(fact: Declared) -> bool:
    """`numpy==1.21.6`, one release and no other."""
    return fact.version is not None and fact.version == fact.highest


@functools.lru_cache(maxsize=4096)
def _find_prose(folder: Path, rooted: bool) -> Declared | None:
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


@functools.lru_cache(maxsize=4096)
def _find_beside(folder: Path, rooted: bool) -> tuple[Declared | None, bool]:
    """What packages pinned in the nearest folder that pins any need.

    And whether it is its prose alone that pins them.
    """
    from gpulint.torch_beside import find_beside
    from gpulint.torch_prose import prose

    declaring = [path for path, _, _ in _sources(folder)]
    texts = prose(folder)
    found = find_beside(declaring, texts)
    last = (folder / ".git").exists() if rooted else bool(declaring or texts)
    if found or last or folder.parent == folder:
        return found, found is not None and find_beside(declaring, ()) is None
    return _find_beside(folder.parent, rooted)


@functools.lru_cache(maxsize=4096)
def _find_commands(folder: Path, rooted: bool) -> dict[str, Range]:
    """What the commands of the prose install, in the nearest folder that has any.

    Torch has a search of its own; here only releases that all commands pin count, from
    the oldest to the newest of them.
    """
    from gpulint.python_prose import pythons
    from gpulint.torch_prose import prose, tensorflow_images, text_of

    texts = prose(folder)
    named: dict[str, list[Range]] = {}
    for text in map(text_of, texts):
        for name, its in (*_installed(text), *_listed(text)):
            named.setdefault(name, []).append(its)
        if images := tensorflow_images(text):
            named.setdefault("tensorflow", []).extend(images)
        if releases := [allowed(f"=={its}.*") for its in pythons(text)]:
            named.setdefault("python", []).extend(releases)
    found: dict[str, Range] = {}
    for name, ranges in named.items():
        lows = [its.lowest for its in ranges if its.lowest is not None]
        highest = newest(its.highest for its in ranges)
        if name != TORCH and len(lows) == len(ranges) and highest is not None:
            found[name] = Range(min(lows), highest)
    if rooted:
        last = (folder / ".git").exists()
    else:
        last = bool(texts) or _in_folder(folder)[2]
    if found or last or folder.parent == folder:
        return found
    return _find_commands(folder.parent, rooted)


def _joined(facts: list[Declared]) -> Declared | None:
    """The fact with the lowest bound, and the newest release that any allows.

    Those without a bound count where there are no others: the search ends with them.
    """
    facts = [fact for fact in facts if _bounds(fact)] or facts
    if not facts:
        return None
    lowest = min(facts, key=lambda fact: fact.version or (ANY_MINOR, 0))
    highest = newest(fact.highest for fact in facts)
    return replace(lowest, highest=highest, here=lowest.highest)


def _bounds(declared: Declared) -> Range:
    return Range(declared.version, declared.highest)


@functools.lru_cache(maxsize=4096)
def _in_folder(folder: Path) -> tuple[Facts, Facts, bool]:
    """What a folder's files declare, what they lock, and whether there are any."""
    declared: Facts = {}
    locked: Facts = {}
    seen = False
    for path, read, is_lock in _sources(folder):
        seen = True
        for package, fact in _read(path, read):
            (locked if is_lock else declared).setdefault(package, []).append(fact)
    return declared, locked, seen


def _sources(folder: Path) -> Iterator[tuple[Path, Reader, bool]]:
    names = _names(folder)
    whole = any(map(_IS_PROJECT.match, names))
    for name in sorted(names):
        if name in READERS:
            yield folder / name, READERS[name], name in LOCKS
        elif _lists_requirements(folder / name):
            yield folder / name, requirements, False
        elif _CONDA_FILE.search(name):
            yield folder / name, environment, False
        elif _EXPLICIT_FILE.search(name):
            yield folder / name, explicit, False
        elif whole and name.endswith((".yml", ".yaml")):
            yield folder / name, other_environment, False
    for within in [folder / name for name in _INNER if name in names]:
        for name in sorted(_names(within)):
            plain = within.name == "requirements" and name.endswith(".txt")
            if plain or _REQUIREMENTS.match(name):
                yield within / name, requirements, False
            elif _CONDA_FILE.search(name):
                yield within / name, environment, False


def _lists_requirements(path: Path) -> bool:
    """`requirements-dev.txt`, `requirements`; a folder may have that name as well."""
    if _REQUIREMENTS.match(path.name):
        return True
    return path.name.lower() == "requirements" and path.is_file()


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208 - of many folders
    except OSError:
        return set()


def _read(path: Path, read: Reader) -> Iterator[tuple[str, Declared]]:
    """The bounds of one file; a broken file says nothing."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "replace")
        if not MENTIONED.search(text):
            return
        bounds = read(text)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return
    except (SyntaxError, MemoryError, configparser.Error):
        return
    for package, its, written in bounds:
        row = text.count("\n", 0, max(text.find(written), 0)) + 1
        yield package, Declared(its.lowest, path, row, its.highest)
