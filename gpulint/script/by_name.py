"""How a program chooses among what modules hold, by a name that it is given."""

from __future__ import annotations

import ast
import re

from gpulint.index import FileIndex

# How a program may choose among all that a module holds, by a name of its options.
BY_NAME = re.compile(
    r"__dict__\[|\bglobals\(\)|\bfire\.Fire|(?<![.\w])(?<!def )eval\("
    r"|\bgetattr\(\s*[\w.]+\s*,(?!\s*['\"])"
)
# The same among its own names.
BY_OWN_NAME = re.compile(
    r"__dict__\[|\bglobals\(\)|\bfire\.Fire|(?<![.\w])(?<!def )eval\("
    r"|\bsys\.modules\b"
)
IMPORTS = ("import_module", "__import__")
Kept = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def holds_all(user: FileIndex, home: FileIndex) -> bool:
    """Whether a file has a module, or all of its names, to choose from by name.

    Or a package around it, or a module that has all of its names in turn.
    """
    assert user.project is not None
    for origin in (*user.imports.values(), *user.stars):
        member = user.project.resolve(user, origin)
        if member is None or member[1]:
            continue
        its = member[0]
        if its is home or its.stars:
            return True
        path = its.source.path
        if path.name == "__init__.py" and path.parent in home.source.path.parents:
            return True
    return False
