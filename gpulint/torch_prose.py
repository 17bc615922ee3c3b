r"""The torch that people are told to run a project with, where nothing declares it.

READMEs, installation notes, Dockerfiles and installation scripts. Every release they
name is a lower bound: what is older than the oldest must still run. An upper bound
(`highest`) is taken from commands alone (`pip install torch==1.8.0`,
`FROM pytorch/pytorch:1.7.1-cuda11.0`, or an image of NVIDIA's): whoever follows them
has that release and no other, from lists of requirements ("- torch == 1.7.1",
"* PyTorch 1.7", "* PyTorch 0.4-1.1", lines such as "PyTorch 1.7" beside "Python 3.6")
and from limits that are written out ("PyTorch >= 1.1, < 1.5"). "Tested on PyTorch 1.6"
and "* PyTorch 1.4 or 1.5" forbid nothing newer, and "* PyTorch 0.4" may well run with
1.0. None is an upper bound where a text also says "or later".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpulint.releases import (
    ANY_MINOR,
    FIRST_TORCH,
    Declared,
    Range,
    Version,
    allowed,
    newest,
)

_LIMIT = 200_000  # bytes of a file; what to install stands at the top
_INSTALL = re.compile(
    r"(?i)install[^.]*(\.(md|rst|txt))?"
    r"|(setup|get(ting)?[-_]?started|quick[-_]?start)[^.]*\.(md|rst)"
)
_IMAGES = re.compile(r"(?i)dockerfile.*")
_TEXTS = re.compile(
    rf"(?i)readme[^.]*(\.(md|rst|txt))?|{_INSTALL.pattern[4:]}"
    rf"|{_IMAGES.pattern[4:]}|(\w+[_-])?(install|setup|env|environment)([_-]\w+)?\.sh"
)
_SIGNS = {  # in addresses of badges and in HTML
    "%20": " ",
    "%2B": "+",
    "%3D": "=",
    "%3E": ">",
    "&ge;": ">=",
    "&gt;": ">",
    "&le;": "<=",
    "&lt;": "<",
    "≥": ">=",
    "≤": "<=",
    "=>": ">=",
    "=<": "<=",
}
_RELEASE = r"""
    v?[012]\.(?:\d{1,2}(?!\d)|x\b|\*)(?:\.(?:\d+|x\b|\*))*
    (?:\+(?:cu|cpu|rocm|xpu)\w*|\.?(?:post|dev|rc)\d+|[ab]\d+)?
    (?!\ ?(?:%|[x×](?!\w)|[smh]\b|ms\b|sec|min|hours?\b|times\b|[kMGT]i?B\b))
"""
_MENTION = re.compile(
    r"""
    (?P<least>\b(?:at\ least|(?:newer|later|higher|greater)\ than)\W{1,4})?
    (?:(?<![\w.-])|(?<=\s\d\.))(?:py)?torch(?:\.__version__)?
    (?P<between>(?:                    # what may stand between a name and a release
        [ \t`*_"'\]|):(-] | \(https?://[^()\s]*\) | \[\d+\] | </?\w+>
        | (?:versions?|ver|releases?|install|library|framework|tested|recommended|stable
           |minimum|or|on|with|using|is|we|use[ds]?|at|least
           |(?:newer|later|higher|greater|equal)|than|to)\b\.?
        | 版本[在为是]?
    ){0,40})
    (?P<sign>(?:[<>!~=^]=?=?)?)[ \t`*"'(]*(?:(?<=[=>~\ ])versions?\ )?
    (?P<releases>RELEASE
        (?:(?:[ \t,/|~、&–-]|or|and|to|(?:py)?torch)+RELEASE)*)
    (?P<later>
        [\])`*"'_]*\+(?![A-Za-z])
        | [ \t,#(（)\]`*"'_]{0,4}(?:(?:or|and)\ (?:an?y?\ |more\ )?|或|及)?
          (?:later|higher|newer|above|greater|recent|up\b|upwards?|onwards?
           |以上|更高|更新)
    )?
    """.replace("RELEASE", _RELEASE),
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_LIMITED = re.compile(
    r"""
    (?P<first>RELEASE)\s*(?P<turned><=?)\s*(?:py)?torch\s*(?P<under><=?)\s*(?P<most>RELEASE)
    |(?<![\w.-])(?:py)?torch[ \t`*_"'(:]*(?:versions?\b)?[ \t`*_"'(:]*
     (?P<over>>=?)\s*(?P<least>RELEASE)[ \t]*(?:,|and\b|&+)?[ \t]*(?:(?:py)?torch)?
     \s*(?P<below><=?)\s*(?P<last>RELEASE)
    """.replace("RELEASE", r"[012]\.\d{1,2}(?:\.\d+)*"),
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_NUMBER = re.compile(
    r"(?P<release>[012](?:\.\d+)+|[012](?=\.[x*]))(?P<series>\.[x*])?(?:\+\w+)?"
)
_ASIDE = re.compile(
    r"[ \t]*\((?!(?i:[^()]*(?:python|cuda|vision)))(?P<releases>[^()\n]*)\)"
)
_FROM_TO = re.compile(r"[^-–~]*\d\s?(?:[-–~]|to\b)\s?v?\d[\w.*]*")
_OPEN = re.compile(r"(?i)least|minimum|newer|later|higher|greater")
_IMAGE = re.compile(r"\bpytorch/pytorch:(\d+\.\d+[\d.]*)")
# The month of the first NVIDIA image with a torch, or one on the way to it.
_NVIDIA_IMAGE = re.compile(r"\bnvcr\.io/nvidia/pytorch:(\d\d\.\d\d)-py3")
_NVIDIA_TORCH = {
    "19.02": "1.1", "19.07": "1.2", "19.10": "1.3", "19.11": "1.4", "20.03": "1.5",
    "20.06": "1.6", "20.08": "1.7", "20.11": "1.8", "21.03": "1.9", "21.07": "1.10",
    "21.11": "1.11", "22.03": "1.12", "22.06": "1.13", "22.12": "2.0", "23.04": "2.1",
    "23.11": "2.2", "24.02": "2.3", "24.05": "2.4", "24.08": "2.5", "24.11": "2.6",
    "25.02": "2.7", "25.05": "2.8", "25.09": "2.9", "25.11": "2.10",
}  # fmt: skip
_LAST_KNOWN = "25.12"
_TENSORFLOW_IMAGE = re.compile(r"\bnvcr\.io/nvidia/tensorflow:(\d\d\.\d\d)-tf2-py3")
_TENSORFLOW = {
    "20.03": "2.1", "20.06": "2.2", "20.09": "2.3", "21.02": "2.4", "21.06": "2.5",
    "21.09": "2.6", "22.01": "2.7", "22.04": "2.8", "22.06": "2.9", "22.10": "2.10",
    "23.01": "2.11", "23.04": "2.12", "23.08": "2.13", "23.11": "2.14", "24.02": "2.15",
    "24.06": "2.16", "24.12": "2.17",
}  # fmt: skip
_COMMAND = re.compile(
    r"""\b(?:pip[\d.]*|conda|mamba|micromamba|uv|poetry)\s
    (?:[^\n`;&|]|\\\n){0,200}?\b(?:install|create|add)\b
    (?P<packages>(?:\\\r?\n|[^\n`;&|#])*)""",
    re.VERBOSE,
)
_PACKAGE = re.compile(
    r"""(?<![\w./-])(?<!-c\ )(?<!channel\ )(?:[\w-]+::)?(?:py)?torch(?![\w./:-])
    (?P<bounds>(?:\s*[<>!~=]=?=?\s*[\d.*]+(?:\+\w+|\.?post\d+)?,?)+|(?!\s*[<>!~=]))
    |(?<=[/\ ])torch-(?P<wheel>\d+\.\d+)[^\s/]*\.whl""",
    re.VERBOSE,
)
# An item of a list that is written as a requirement is, also behind others.
_PINNED = re.compile(
    r"\s*(?:[-*+]\s+)?(?:[\w.-]+\s*[<>=!~]=\s*[\d.]+\s*[,;]\s*)*"
    r"[`*_\[]*(?:py)?torch[`*_\]]*(?:\([^()\s]*\))?"
    r"(?:\s+(?:install|version))?\s*(?:={1,2}|~=)\s*",
    re.IGNORECASE,
)
# So is an item that begins with the name and a release, and a line of such items.
_LISTED = re.compile(
    r"\s*(?:(?:[-*+]|\d{1,2}[.)])\s+|(?=\S+\s+v?[\d.]+\s*,\s*torchvision\b))[`*_\[]*"
    r"(?:py)?torch[`*_\]]*(?:\([^()\s]*\)|\[\d+\])?\s*(?:version)?[\s:(`*_]*",
    re.IGNORECASE,
)
# And a line of a name and a release alone, beside others of that kind.
_BARE = re.compile(
    r"[ \t]*[`*_]*[A-Za-z][\w.-]*(?:[ \t]+version)?[ \t:]+"
    r"v?\d+(?:\.\d+)+[`*_]*[ \t]*\r?",
    re.IGNORECASE,
)
# What may follow it there: no "- PyTorch 2.0 is supported".
_ENDS = re.compile(r"[`*_)\] \t.]*(?:$|[,;/&#|({（，。]|and\b|with\b)", re.MULTILINE)
# Where this is named, an unnamed torch is not the newest, but at most the last one that
# was built for it.
_OLD_CUDA = re.compile(
    r"\bcuda(?:toolkit\s*=+\s*(?P<release>\d+\.\d)|(?P<short>\d{2,3})\b)"
)
_LAST_FOR_CUDA = {
    "8.0": (1, 0), "9.0": (1, 1), "9.1": (1, 0), "9.2": (1, 7), "10.0": (1, 4),
    "10.1": (1, 8), "10.2": (1, 12), "11.0": (1, 8), "11.1": (1, 10), "11.3": (1, 12),
    "11.6": (1, 13),
}  # fmt: skip


@dataclass(frozen=True)
class _Said:
    """What one place says; `binds`: a command, a pin, or limits on both sides."""

    range: Range
    path: Path
    row: int
    binds: bool


def find_in_prose(folder: Path) -> Declared | None:
    """The bounds that the prose of one folder gives, with the place of the lowest."""
    said = [its for path in prose(folder) for its in _read(path)]
    if not any(its.range for its in said):
        return None
    lowest = min(said, key=lambda its: its.range.lowest or (ANY_MINOR, 0))
    highest = None
    if any(its.binds for its in said):
        highest = newest(its.range.highest for its in said)
    return Declared(lowest.range.lowest, lowest.path, lowest.row, highest)


def has_prose(folder: Path) -> bool:
    """Whether a folder has a file that may say which torch to use."""
    return bool(prose(folder))


def prose(folder: Path) -> list[Path]:
    """The texts of a folder and of its folders of documentation, in order."""
    found = []
    folders = [("", _TEXTS), ("docker", _IMAGES)]
    folders += [("docs", _INSTALL), ("docs/source", _INSTALL)]
    for inner, names in folders:
        try:
            inside = sorted((folder / inner).iterdir())
        except OSError:
            continue
        found += [path for path in inside if names.fullmatch(path.name)]
    return found


def text_of(path: Path, limit: int = _LIMIT) -> str:
    """The beginning of a text, so many bytes; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8-sig", "replace")
    except OSError:
        return ""


def _read(path: Path) -> Iterator[_Said]:
    text = text_of(path)
    for sign, meant in _SIGNS.items():
        text = text.replace(sign, meant)
    limits = list(_limits(text))
    for its, start, end in limits:  # a sentence is read once
        text = text[:start] + "-" * (end - start) + text[end:]
        yield _Said(its, path, text.count("\n", 0, start) + 1, True)
    for its, offset in _commands(text):
        yield _Said(its, path, text.count("\n", 0, offset) + 1, True)
    for its, offset, listed in _mentions(text):
        start = text.rfind("\n", 0, offset) + 1
        pinned = _PINNED.fullmatch(text, start, offset) is not None
        if listed and not pinned:
            pinned = True
            its = Range(its.lowest, newest([its.highest, FIRST_TORCH]))
        yield _Said(its, path, text.count("\n", 0, offset) + 1, pinned)


def _limits(text: str) -> Iterator[tuple[Range, int, int]]:
    """Ranges that are written out with both limits, where they start and end."""
    for limit in _LIMITED.finditer(text):
        if limit["first"]:  # `1.1 <= PyTorch < 1.5`
            sign = limit["turned"].replace("<", ">")
            written = f"{sign}{limit['first']},{limit['under']}{limit['most']}"
        else:
            least, last = limit["least"], limit["last"]
            written = f"{limit['over']}{least},{limit['below']}{last}"
        yield allowed(written), limit.start(), limit.end()


def _commands(text: str) -> Iterator[tuple[Range, int]]:
    """What commands install, and where; an empty range: whatever is the newest."""
    for image in _IMAGE.finditer(text):
        yield allowed(image[1]), image.start()
    for image in _NVIDIA_IMAGE.finditer(text):
        yield _of_image(image[1], _NVIDIA_TORCH), image.start()
    for command in _COMMAND.finditer(text):
        for package in _PACKAGE.finditer(command["packages"]):
            written = package["wheel"] or re.sub(r"\s", "", package["bounds"])
            start = command.start("packages") + package.start()
            last = None if written else _last_for_cuda(command["packages"])
            if last is not None:
                yield Range(None, last), start
            elif written or "cudatoolkit" not in command["packages"]:
                yield allowed(written), start


def _last_for_cuda(packages: str) -> Version | None:
    """The last torch that was built for the CUDA in a list of packages."""
    named = _OLD_CUDA.search(packages)
    if named is None:
        return None
    short = named["short"] or ""
    return _LAST_FOR_CUDA.get(named["release"] or f"{short[:-1]}.{short[-1:]}")


def tensorflow_images(text: str) -> list[Range]:
    """The releases of TensorFlow 2 in the images of NVIDIA that a text names."""
    months = (image[1] for image in _TENSORFLOW_IMAGE.finditer(text))
    found = (_of_image(month, _TENSORFLOW) for month in months)
    return [its for its in found if its]


def _of_image(month: str, releases: dict[str, str]) -> Range:
    """What an image of a month has; no bound where that is not known."""
    known = [release for first, release in releases.items() if first <= month]
    return allowed(known[-1]) if known and month <= _LAST_KNOWN else Range()


def _mentions(text: str) -> Iterator[tuple[Range, int, bool]]:
    """The releases that sentences, lists, tables and badges name, and where.

    Also whether one is an item of a list. Those in brackets behind that are named as
    well: `- PyTorch 1.1 (works with 0.4 - 1.2)`.
    """
    for mention in _MENTION.finditer(text):
        sign = mention["sign"]
        if sign.startswith(("<", "!")):
            continue
        between = _OPEN.search(mention["between"])
        opened = bool(between or mention["least"] or mention["later"])
        numbers = list(_NUMBER.finditer(mention["releases"]))
        is_one = len(numbers) == 1 or _FROM_TO.fullmatch(mention["releases"])
        listed = bool(is_one) and _is_listed(text, mention)
        aside = _ASIDE.match(text, mention.end()) if listed else None
        numbers += _NUMBER.finditer(aside["releases"]) if aside is not None else ()
        for number in numbers:
            series = ".*" if number["series"] and not sign else ""
            its = allowed(f"{sign}{number['release']}{series}")
            if its.lowest is not None and _exists(its.lowest):
                its = Range(its.lowest) if opened else its
                yield its, mention.start("releases"), listed


def _is_listed(text: str, mention: re.Match[str]) -> bool:
    """Whether a line is about this release of torch alone: `* PyTorch 1.7, CUDA 11`."""
    offset = mention.start("releases")
    start = text.rfind("\n", 0, offset) + 1
    item = _LISTED.match(text, start)
    if item is None or item.end() != offset:
        return _is_bare(text, start) and not mention["later"]
    return bool(mention["later"]) or bool(_ENDS.match(text, mention.end()))


def _is_bare(text: str, start: int) -> bool:
    """Whether a line is of a name and a release, and one right beside it as well."""
    lines = text[start:].split("\n", 2)[:2]
    lines.append(text[text.rfind("\n", 0, max(start - 1, 0)) + 1 : max(start - 1, 0)])
    own, *beside = [_BARE.fullmatch(line) is not None for line in lines]
    return own and any(beside)


def _exists(release: Version) -> bool:
    """Whether a number may be a release of torch; 0.5 is what some call 1.0."""
    last = {0: 5, 1: 13}.get(release[0], ANY_MINOR)
    return release[1] <= last
