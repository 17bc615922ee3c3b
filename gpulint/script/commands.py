"""The commands that start a project's programs, as its prose and shell scripts say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpulint.torch_prose import prose, text_of

if TYPE_CHECKING:
    import ast
    from pathlib import Path

    from gpulint.index.project import Project
    from gpulint.script.model import Script

# A line that starts a program, or goes on with the options of one.
_COMMAND = re.compile(
    r"(?m)^[ \t]*(?:--|.*\b(?:python[\d.]*|torchrun|accelerate launch|deepspeed)\b)"
    r"[^\n]*(?:\\\n[^\n]*)*"
)
_INNER = ("scripts", "script")  # folders of shell scripts, beside the programs
MAX_FOLDERS = 6  # from a file up to the root of its project


def passes_option(script: Script, node: ast.AST, option: str) -> bool:
    """Whether a known command gives an option, such as `--amp`, to a program.

    Of a project that `node` belongs to; in no known command it is for users to pass.
    """
    project = script.index.home(node).project
    if project is None:
        return False
    given = re.compile(rf"(?<![\w-]){re.escape(option)}(?![\w-])")
    for path in _texts(project, script.index.home(node).source.path):
        project.noted.files.add(path)
        commands = _COMMAND.finditer(text_of(path))
        if any(given.search(command[0]) for command in commands):
            return True
    return False


def _texts(project: Project, path: Path) -> list[Path]:
    found: list[Path] = []
    for folder in [*path.parents][:MAX_FOLDERS]:
        found += prose(folder)
        for within in (folder, *(folder / name for name in _INNER)):
            found += project.in_folder(within, "*.sh")
        if folder == project.root:
            break
    return list(dict.fromkeys(found))
