"""Take out of the facts what names a machine, its user or a folder."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from gpulint.doctor.probes import Facts

UUID = re.compile(r"\b(GPU|MIG)-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
PATH = re.compile(r"(?<![\w<./])/[^\s'\"(),:;/]+(?:/[^\s'\"(),:;]+)+")
WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\[^\s'\",;]+")
# Paths that every machine of a kind has.
COMMON = ("/dev/", "/proc/", "/sys/", "/opt/ml/", "/run/.containerenv")


def redact(facts: Facts) -> Facts:
    """The same facts without host name, user, paths and identifiers of GPUs.

    An identifier becomes a digest, so that GPUs can still be told apart.
    """
    its = facts.get("identity") or {}
    names = {
        its.get("folder", "").rstrip("/"): "<folder>",
        _home(): "<home>",
        its.get("hostname"): "<host>",
        its.get("user"): "<user>",
    }
    kept = {key: value for key, value in facts.items() if key != "identity"}
    hidden = [
        (re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])"), stand_in)
        for name, stand_in in names.items()
        if name
    ]
    found = _each(kept, hidden)
    assert isinstance(found, dict)
    return found


def _home() -> str | None:
    """The user's folder; None where there is none, as for users without a name."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return None if home == Path(home.anchor) else str(home)


def _each(value: Any, hidden: list[tuple[re.Pattern[str], str]]) -> Any:
    if isinstance(value, dict):
        return {key: _each(item, hidden) for key, item in value.items()}
    if isinstance(value, list):
        return [_each(item, hidden) for item in value]
    return _text(value, hidden) if isinstance(value, str) else value


def _text(text: str, hidden: list[tuple[re.Pattern[str], str]]) -> str:
    text = UUID.sub(_digest, text)
    for name, stand_in in hidden:
        # A user called "docker" hides no container.
        if "/" in text or not name.fullmatch(text):
            text = name.sub(stand_in, text)
    return WINDOWS_PATH.sub("<path>", PATH.sub(_path, text))


def _digest(match: re.Match[str]) -> str:
    return f"{match[1]}-{hashlib.sha256(match[2].lower().encode()).hexdigest()[:8]}"


def _path(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith(COMMON) else "<path>"
