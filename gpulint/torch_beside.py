"""The torch that other packages need, where a project pins them.

Each release of torchvision and torchaudio runs with one of torch alone. timm before 0.4
imports `torch._six.container_abcs`, which torch 1.9 has no more. Conda has no build of
a new torch for an old CUDA.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpulint.releases import Declared, Version
from gpulint.torch_prose import text_of

_PINNED = re.compile(
    r"(?<![\w.-])(?P<package>torchvision|torchaudio|timm)[`*_\]]*\s*={1,3}\s*"
    r"(?P<release>\d+\.\d+)",
    re.IGNORECASE,
)
# Lines of prose that tell what to install.
_TOLD = re.compile(
    r"""^(?:
        .*\b(?:pip[\d.]*|conda|mamba|micromamba|uv|poetry)\s.*\b(?:install|add|create)\b.*
        (?:\\\r?\n.*)*
        |\s*(?:[-*+]\s+)?[`*_\[]*(?:torchvision|torchaudio|timm)\b.*
    )$""",
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
# The last torch that a channel of conda has for a CUDA; 10.2 and later have many.
_LAST_FOR_CUDA = {
    "8.0": (1, 0),
    "9.0": (1, 1),
    "9.2": (1, 8),
    "10.0": (1, 8),
    "10.1": (1, 8),
}
_ENTRY = r"^\s*-\s*(?:[\w./-]+::)?"
_CUDA = re.compile(rf"{_ENTRY}cudatoolkit\s*={{1,2}}\s*(\d+\.\d)", re.MULTILINE)
_CONDA_TORCH = re.compile(rf"{_ENTRY}pytorch\b", re.MULTILINE)
_PIP_TORCH = re.compile(r"^\s*-\s*torch(vision|audio)?\b", re.MULTILINE)
_OF_TORCH_2 = 15  # torchvision 0.15 came with torch 2.0, 0.14 with 1.13
_LAST_TIMM, _ITS_TORCH = (0, 4), (1, 8)


def find_beside(declaring: list[Path], prose: Iterable[Path]) -> Declared | None:
    """What the pins of some files allow, with the place of the first.

    In prose those of commands and of lists of requirements. Where they differ, as for
    several machines, the oldest and the newest count.
    """
    found: list[tuple[Version | None, Version, Path, int]] = []
    pins = [
        (path, pin)
        for path in declaring
        for pin in _PINNED.finditer(text_of(path))
        if "#" not in _before(pin)
    ]
    for path in prose:
        lines = _TOLD.finditer(text_of(path))
        pins += [
            (path, pin)
            for line in lines
            for pin in _PINNED.finditer(line.string, line.start(), line.end())
        ]
    for path, pin in pins:
        major, minor = map(int, pin["release"].split("."))
        row = pin.string.count("\n", 0, pin.start()) + 1
        its = _torch(pin["package"].lower(), (major, minor))
        if its is not None:
            found.append((*its, path, row))
    if not found:
        return next((bound for path in declaring for bound in _of_cuda(path)), None)
    lows = [lowest for lowest, *_ in found]
    lowest = None if None in lows else min(low for low in lows if low is not None)
    _, _, path, row = found[0]
    return Declared(lowest, path, row, max(highest for _, highest, *_ in found))


def _before(pin: re.Match[str]) -> str:
    """What stands before a pin in its line: behind a `#` it says nothing."""
    return pin.string[pin.string.rfind("\n", 0, pin.start()) + 1 : pin.start()]


def _of_cuda(path: Path) -> Iterator[Declared]:
    """What an environment of conda has for its CUDA, unless pip brings a torch."""
    text = text_of(path)
    listed = text[text.find("dependencies:") :]
    of_conda, _, of_pip = listed.partition("- pip:")
    cuda = _CUDA.search(of_conda)
    if cuda is None or cuda[1] not in _LAST_FOR_CUDA or _PIP_TORCH.search(of_pip):
        return
    if _CONDA_TORCH.search(of_conda):
        place = text.count("\n", 0, len(text) - len(listed) + cuda.end()) + 1
        yield Declared(None, path, place, _LAST_FOR_CUDA[cuda[1]])


def _torch(package: str, release: Version) -> tuple[Version | None, Version] | None:
    """The lowest and the highest torch for a release; the lowest may not be known."""
    major, minor = release
    if package == "timm":
        return (None, _ITS_TORCH) if release < _LAST_TIMM else None
    if package == "torchaudio" and major:
        return release, release
    if major or not minor:
        return None
    is_one = minor < _OF_TORCH_2 or package == "torchaudio"
    torch = (1, minor) if package == "torchaudio" else (1, minor - 1)
    its = torch if is_one else (2, minor - _OF_TORCH_2)
    if package == "torchvision" and minor == 3:
        return (1, 1), (1, 1)
    # 0.4.0 ran with 1.2, 0.4.2 with 1.3
    low = (1, 2) if package == "torchvision" and minor == 4 else its
    return low, its
