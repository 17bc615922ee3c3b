"""Files in a folder of a project that holds other people's code, or what is left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpulint.script.neighbours import programs

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Programs of other projects, most of which nobody starts in this one, and old ones.
_FOLDER = re.compile(
    r"_?(third[-_]?party|3rd[-_]?party|external(s|_?libs?)?|submodules?|vendor(ed)?"
    r"|old|legacy|deprecated|archived?|backups?|bak|obsolete|unused|attic)",
    re.IGNORECASE,
)


def is_set_aside(script: Script) -> bool:
    """Whether a file lies in such a folder, and no file outside of that imports it."""
    path, project = script.source.path, script.index.project
    if project is None or not path.is_relative_to(project.root):
        return False
    inner = [folder for folder in path.parents if folder.is_relative_to(project.root)]
    aside = [f for f in inner if f != project.root and _FOLDER.fullmatch(f.name)]
    return bool(aside) and all(
        user.source.path.is_relative_to(aside[-1]) for user in programs(script)
    )
