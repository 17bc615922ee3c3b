"""Releases of a package: what a specifier allows, and what a project says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

Version = tuple[int, int]

TORCH = "torch"
NUMPY = "numpy"
FIRST_TORCH = (1, 0)  # the first release of torch that gpulint speaks of
ANY_MINOR = 999  # `<3` allows 2 with whatever comes after it

# The last torch that was built for a Python; PyPI's files of each release.
_LAST_FOR_PYTHON = {
    (3, 5): (1, 5),
    (3, 6): (1, 10),
    (3, 7): (1, 13),
    (3, 8): (2, 4),
    (3, 9): (2, 8),
}
# The last Python that NumPy was built for, up to each of these releases; PyPI's files.
_PYTHON_OF_NUMPY = (
    ((1, 16), (3, 7)),
    ((1, 18), (3, 8)),
    ((1, 20), (3, 9)),
    ((1, 22), (3, 10)),
    ((1, 25), (3, 11)),
    ((2, 0), (3, 12)),
    ((2, 2), (3, 13)),
)

_LOWER_OPERATORS = ("==", "===", "~=", ">=", ">")
_SHORT = re.compile(
    r"(\^|~(?!=)|(?<![<>=!~])=(?!=))\s*(\d+)(?:\.(\d+))?[\d.*]*(?:\+\w+)?"
)


@dataclass(frozen=True)
class Range:
    """The lowest and the highest release (major, minor) allowed; None: no bound."""

    lowest: Version | None = None
    highest: Version | None = None

    def __bool__(self) -> bool:
        return self.lowest is not None or self.highest is not None


@dataclass(frozen=True)
class Declared:
    """The lower bound (major, minor), its file and its row (1-based).

    `highest` is the newest release that any declaration of the project allows, and
    `here` the newest that this file does; None for any: there is no such bound.
    """

    version: Version | None
    path: Path
    row: int
    highest: Version | None = field(default=None, compare=False)
    here: Version | None = field(default=None, compare=False)


def for_numpy(python: Range, numpy: Range) -> Range:
    """The Pythons of a project that its newest NumPy was built for.

    Unchanged where none of them is allowed: the two are of different environments.
    """
    newest_numpy = numpy.highest or (ANY_MINOR, 0)
    fitting = (last for upto, last in _PYTHON_OF_NUMPY if newest_numpy <= upto)
    return _capped(python, next(fitting, None))


def for_python(torch: Range, python: Range) -> Range:
    """The releases of torch that the newest Python of a project can have.

    Unchanged where none of them is allowed: the two are of different environments.
    """
    return _capped(torch, _LAST_FOR_PYTHON.get(python.highest or (0, 0)))


def _capped(its: Range, last: Version | None) -> Range:
    """Releases up to a last one; unchanged where they end before, or begin behind."""
    if last is None or (its.highest is not None and its.highest <= last):
        return its
    if its.lowest is not None and its.lowest > last:
        return its
    return Range(its.lowest, last)


def lower_bound(text: str) -> Version | None:
    """Lowest release that a specifier allows: `2.1`, `>=1.13,<3`, `^2.0 || ~1.13`."""
    return allowed(text).lowest


def allowed(text: str) -> Range:
    """The releases between which a specifier's choices lie; no bound is ignored."""
    ranges = [r for r in map(_conjunction, text.split("||")) if r]
    lowest = [r.lowest for r in ranges if r.lowest is not None]
    return Range(min(lowest, default=None), newest(r.highest for r in ranges))


def newest(bounds: Iterable[Version | None]) -> Version | None:
    """The highest of several upper bounds; None where one of them has none."""
    found = list(bounds)
    known = [bound for bound in found if bound is not None]
    return max(known) if known and len(known) == len(found) else None


def _conjunction(text: str) -> Range:
    """What bounds that are joined by commas or spaces leave together."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    text = _SHORT.sub(_in_full, text.strip())
    if re.match(r"v?\d", text):
        text = f"=={text}"
    try:
        specifiers = SpecifierSet(re.sub(r"(?<=[\w*])\s+(?=[<>=!~])", ",", text))
    except InvalidSpecifier:
        return Range()
    bounds = [_bounds(s.operator, s.version) for s in specifiers]
    lowest = (b.lowest for b in bounds if b.lowest is not None)
    highest = (b.highest for b in bounds if b.highest is not None)
    return Range(max(lowest, default=None), min(highest, default=None))


def _in_full(match: re.Match[str]) -> str:
    """`^1.13` of Poetry, `~1.13` and `=1.13` of Conda as a PEP 440 specifier."""
    sign, major, minor = match[1], int(match[2]), match[3]
    if sign != "^":
        return f"=={major}.{minor}.*" if minor else f"=={major}.*"
    limit = f"0.{int(minor) + 1}" if minor and not major else str(major + 1)
    return f">={major}.{minor or 0},<{limit}"


def _bounds(operator: str, text: str) -> Range:
    """The releases that one specifier allows."""
    from packaging.version import Version as Release

    release = Release(text.removesuffix(".*"))
    version = (release.major, release.minor)
    open_ended = len(release.release) < 2 + (operator == "~=")
    series = (release.major, ANY_MINOR) if open_ended else version
    lowest = version if operator in _LOWER_OPERATORS else None
    if operator == "~=" or text.endswith(".*"):
        return Range(lowest, series) if lowest else Range()
    if operator in ("==", "===", "<="):
        return Range(lowest, version)
    if operator == "<":
        before = (release.major, release.minor - 1)
        if not release.minor:
            before = (release.major - 1, ANY_MINOR)
        return Range(None, version if release.micro else before)
    return Range(lowest)
