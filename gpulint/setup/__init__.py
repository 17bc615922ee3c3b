"""Edits that switch gpulint on in a repository, each proven before it is kept."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from gpulint import __version__


class EditError(Exception):
    """A file that cannot be edited; the message is one line for the user."""


class Plan(NamedTuple):
    """What one file is to be: `before` is None where it has to be made.

    `done`: what is there already, of which nothing is written a second time. Both
    texts are without the byte order mark, which `bom` stands for.
    """

    path: Path
    before: str | None
    after: str
    done: tuple[str, ...] = ()
    bom: bool = False

    @property
    def changes(self) -> bool:
        """Whether anything would be written."""
        return self.before != self.after

    @property
    def data(self) -> bytes:
        """The bytes of the new file."""
        return self.after.encode("utf-8-sig" if self.bom else "utf-8")


class Origin(NamedTuple):
    """Where gpulint comes from: a git repository, or None for an installed package."""

    url: str | None = None
    revision: str = f"v{__version__}"

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        if self.url is None:
            return "gpulint"
        return f"gpulint @ git+{self.url}@{self.revision}"

    @property
    def action(self) -> str | None:
        """`OWNER/NAME@REVISION` where the repository is one of GitHub's."""
        pattern = r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?"
        found = re.fullmatch(pattern, self.url or "")
        return f"{found.group(1)}@{self.revision}" if found else None


class Text(NamedTuple):
    """A file as it is edited: lines end in `\\n`, whatever they end in on the disk."""

    text: str
    crlf: bool = False
    bom: bool = False

    def plan(self, path: Path, after: str, *done: str) -> Plan:
        """What the file is to be, with the ends of lines that it has."""
        before = self.text
        if self.crlf:
            before, after = (t.replace("\n", "\r\n") for t in (before, after))
        return Plan(path, before, after, done, self.bom)


def read(path: Path) -> Text | None:
    """A file's text, or None where there is no such file. EditError: not readable."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EditError(f"{path.name}: {error.strerror or error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise EditError(f"{path.name}: not UTF-8") from None
    crlf = "\r\n" in text and not re.search(r"(?<!\r)\n|\r(?!\n)", text)
    bom = data.startswith(b"\xef\xbb\xbf")
    return Text(text.replace("\r\n", "\n") if crlf else text, crlf, bom)


def appended(text: str, block: str) -> str:
    """The text with a block of lines after it, and an empty line between them."""
    if not text.strip():
        return text + block
    return text + ("\n" if text.endswith("\n") else "\n\n") + block
