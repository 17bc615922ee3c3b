"""Scripts made of a few lines, to ask the model of a script about."""

from __future__ import annotations

import ast
from pathlib import Path

from gpulint.index import Projects, build_index
from gpulint.script import Script
from gpulint.source import Source

HEAD = """
import math
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
"""


def script_of(text: str) -> Script:
    """The script model of a text that starts with the usual imports."""
    source = Source(Path("a.py"), HEAD + text)
    return Script(source, build_index(source))


def script_in(folder: Path, files: dict[str, str], name: str) -> Script:
    """The script model of one of the files of a project, which are written first."""
    for file, text in files.items():
        (folder / file).write_text(text)
    path = folder / name
    project = Projects(lambda root: sorted(root.rglob("*.py"))).enter(path)
    index = project.index(path)
    assert index is not None
    return Script(index.source, index)


def with_last(text: str) -> tuple[Script, ast.expr]:
    """A script, and the expression that it ends with."""
    script = script_of(text)
    statement = script.index.tree.body[-1]
    assert isinstance(statement, ast.Expr)
    return script, statement.value


def marked(script: Script, name: str) -> ast.Name:
    """Where a name is read first."""
    return next(
        n
        for n in script.index.all(ast.Name)
        if n.id == name and isinstance(n.ctx, ast.Load)
    )
