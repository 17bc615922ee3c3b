"""Names that new code may use: of modules, of torch and the runtime, and free ones."""

from __future__ import annotations

import ast
from collections.abc import Collection
from functools import cached_property

from gpulint.index import FileIndex
from gpulint.runtime_name import RUNTIME, VENDORED
from gpulint.script.rewriting.edits import CannotFix


class Names:
    """The names of one file, for code that is written into it."""

    def __init__(self, index: FileIndex, vendor: bool) -> None:
        self.index = index
        self.vendor = vendor
        self.imported: dict[str, ast.stmt] = {}

    def module(self, module: str, preferred: str) -> tuple[str, tuple[str, ...]]:
        """The local name of a module, and the import statement if it lacks one.

        `module("torch", "torch")` → `("th", ())` in a file with
        `import torch as th`; `("torch", ("import torch",))` in one without.
        """
        written: list[ast.Import | ast.ImportFrom] = [
            *self.index.all(ast.Import),
            *self.index.all(ast.ImportFrom),
        ]
        for statement in written:
            if self._always_runs(statement):
                for alias in statement.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    same = self.index.imports.get(name) == module
                    if same and not self._is_shadowed(name):
                        self.imported[name] = statement
                        return name, ()
        parent, _, last = module.rpartition(".")
        taken = preferred in self.index.bound_names or preferred in self.index.imports
        name = f"gpulint_{preferred}" if taken else preferred
        renamed = f" as {name}" if name != last else ""
        if parent:
            return name, (f"from {parent} import {last}{renamed}",)
        return name, (f"import {module}{renamed}",)

    def _always_runs(self, statement: ast.stmt) -> bool:
        """Whether the module runs a statement, under no condition."""
        index = self.index
        conditions = (a for a in index.ancestors(statement) if isinstance(a, ast.If))
        return index.scope(statement) is index.tree and not any(conditions)

    def _is_shadowed(self, name: str) -> bool:
        """Whether a function has a parameter or variable of a module's name."""
        index = self.index
        return any(a.arg == name for a in index.all(ast.arg)) or any(
            n.id == name
            and not isinstance(n.ctx, ast.Load)
            and index.scope(n) is not index.tree
            for n in index.all(ast.Name)
        )

    @cached_property
    def torch(self) -> tuple[str, tuple[str, ...]]:
        """Local name of `torch`, and the import it lacks."""
        return self.module("torch", "torch")

    @cached_property
    def runtime(self) -> tuple[str, tuple[str, ...]]:
        """Local name of `gpulint.runtime`, and the import it lacks.

        A file that imports it already, as a package or vendored, keeps its form.
        """
        name, imports = self.module(RUNTIME, "runtime")
        if imports and self.vendor:
            imports = (f"import {VENDORED} as {name}",)
        return name, imports

    def free(self, *names: str, given: Collection[str] = ()) -> str:
        """The first of some names that the file uses for nothing, or CannotFix.

        `given`: names that other rewrites of the same file give.
        """
        index = self.index
        taken = set(given) | {a.attr for a in index.all(ast.Attribute)}
        taken |= {n.id for n in index.all(ast.Name)} | index.bound_names
        taken |= set(index.imports)
        for name in names:
            if name not in taken:
                return name
        raise CannotFix(f"the name `{names[-1]}` is taken")
