"""Rules of other packages: entry points of the group `gpulint.rules`.

The name of an entry point is the prefix of its codes, and what settings name it by; it
points to a package with one module a rule, as in `rules/`: `acme = "acme_rules"` brings
ACME101 with `acme_rules/acme101_upload_in_step.py`. Nothing is imported unless named.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from collections.abc import Iterable
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

GROUP = "gpulint.rules"
_NAME = re.compile(r"[a-z]{2,12}")
_TAKEN = ("gpu", "all", "none")


def load_plugin(name: str) -> list[str]:
    """The modules of a plugin's rules, none of them imported.

    ValueError with one line: it is not installed, is there twice, or takes what is not
    its own.
    """
    found = _entry_points(name)
    if not found:
        known = sorted({point.name for point in metadata.entry_points(group=GROUP)})
        there = f"there are {', '.join(known)}" if known else "there are none"
        raise ValueError(f"no plugin `{name}` is installed; {there}")
    if len({point.value for point in found}) > 1:
        packages = " and ".join(sorted(point.value for point in found))
        raise ValueError(f"plugin `{name}` is there twice: in {packages}")
    if not _NAME.fullmatch(name) or name.startswith(_TAKEN):
        raise ValueError(
            f"plugin `{name}` cannot be used: the prefix of codes has 2 to 12 small "
            "letters and begins with none of " + ", ".join(_TAKEN)
        )
    package = found[0].value
    names = sorted(m.name for m in pkgutil.iter_modules(map(str, _folders(found[0]))))
    own = [n for n in names if re.match(rf"{name}\d{{3}}_", n)]
    if not own:
        missing = f"{package} holds no module such as {name}101_upload_in_step.py"
        raise ValueError(f"plugin `{name}` cannot be used: {missing}")
    codes = [n.partition("_")[0].upper() for n in own]
    twice = next((code for code in codes if codes.count(code) > 1), None)
    if twice is not None:
        raise ValueError(f"plugin `{name}` cannot be used: {twice} is there twice")
    return [f"{package}.{n}" for n in own]


def stamp(names: Iterable[str]) -> str:
    """What changes with the files of plugins, for the cache."""
    files = [
        file
        for name in names
        for point in _entry_points(name)[:1]
        for folder in _folders(point)
        for file in sorted(folder.rglob("*.py"))
    ]
    its = ((str(file), file.stat()) for file in files)
    return repr([(path, s.st_mtime_ns, s.st_size) for path, s in its])


def _entry_points(name: str) -> list[EntryPoint]:
    return list(metadata.entry_points(group=GROUP, name=name))


def _folders(point: EntryPoint) -> list[Path]:
    """Where the package lies. ValueError: it cannot be imported."""
    try:
        spec = importlib.util.find_spec(point.value)
    except Exception as error:  # importing a package above it runs its code
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"plugin `{point.name}` cannot be used: {why}") from None
    if spec is None or spec.submodule_search_locations is None:
        missing = f"there is no package {point.value}"
        raise ValueError(f"plugin `{point.name}` cannot be used: {missing}")
    return [Path(folder) for folder in spec.submodule_search_locations]
