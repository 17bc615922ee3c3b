"""Which changes on the disk concern what was found in the texts of an editor."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from lsprotocol import types
from pygls.uris import to_fs_path

# Settings, declared releases, modules, and what scripts read as their settings.
PATTERNS = (
    "**/*.{cfg,lock,py,toml,json,yaml,yml}",
    "**/{requ,Requ,REQU}*.txt",
    "**/requirements/*.txt",
)


class Watched(NamedTuple):
    """What to do: `forget` all that is known of settings and lists of files, or read
    single files anew.
    """

    forget: bool
    reread: tuple[Path, ...]


def sort_out(events: Iterable[types.FileEvent], held: Collection[Path]) -> Watched:
    """What changes come to; the texts of files that the editor holds are newer."""
    forget, reread = False, []
    for event in events:
        path = Path(to_fs_path(event.uri) or "")
        is_module = path.suffix == ".py" and path.name != "setup.py"
        if not is_module or event.type != types.FileChangeType.Changed:
            forget = True
        elif path not in held:
            reread.append(path)
    return Watched(forget, tuple(reread))
