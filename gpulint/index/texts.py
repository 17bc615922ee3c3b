"""The texts of a project's files, those that are newer than the disk among them."""

from __future__ import annotations

from pathlib import Path

from gpulint.source import Source, SourceError, decode, read_source

MAX_TEXT = 64_000_000  # characters that are kept of files


class Texts:
    """What files hold, read as text only, and kept as far as memory allows."""

    def __init__(self) -> None:
        self._newer: dict[Path, str] = {}  # than what is on the disk
        self._read: dict[Path, str | None] = {}  # what is on the disk
        self._kept = 0  # characters of it

    def replace(self, path: Path, text: str) -> None:
        """A file has a new text, which need not be written yet."""
        self._newer[path] = text

    def forget(self, path: Path) -> None:
        """A file is what lies on the disk now, whatever it was before."""
        self._newer.pop(path, None)
        if path in self._read:
            self._kept -= len(self._read.pop(path) or "")

    def release(self) -> None:
        """Let go of what can be read again."""
        self._read.clear()
        self._kept = 0

    def source(self, path: Path) -> Source:
        """A file with its newest text. SourceError: it cannot be read."""
        text = self._newer.get(path)
        if text is None:
            return read_source(path)
        return (
            read_source(path).with_text(text) if path.is_file() else Source(path, text)
        )

    def plain(self, path: Path, loaded: Source | None = None) -> str | None:
        """The text of a file with plain newlines; None: it cannot be read."""
        if path in self._newer or loaded is not None:
            return _plain(loaded.text if loaded else self._newer[path])
        if path in self._read:
            return self._read[path]
        text = _read(path)
        if self._kept + len(text or "") <= MAX_TEXT:
            self._kept += len(text or "")
            self._read[path] = text
        return text


def _read(path: Path) -> str | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    try:
        return _plain(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        try:
            return _plain(decode(data, path).text)
        except SourceError:
            return _plain(data.decode("utf-8", "replace"))


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
