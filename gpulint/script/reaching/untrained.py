"""Lightning's modules in projects that make no trainer: they only infer with them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Project
from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.script.reaching.offered import is_offered, notebooks_in
from gpulint.torch_prose import text_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

_MODULES = ("LightningModule", "DataModule")
_MAKERS = ("Trainer", "LightningCLI", "from_argparse_args")
# What a program may call itself, besides a module's own methods.
_OWN = frozenset(["__init__", "forward", "__call__"])


def is_untrained(script: Script, node: ast.AST) -> bool:
    """Whether a place is in what a trainer calls of a module, and there is no trainer.

    In a project with programs that is no library.
    """
    function, owner = script.index.function(node), script.index.owner(node)
    if function is None or owner is None or function.name in _OWN:
        return False
    names = script.resolver.classes.base_names(owner)
    project = script.index.project
    if project is None or not any(name.endswith(_MODULES) for name in names):
        return False
    if is_offered(script):
        return False
    tree = script.index.tree
    return project.remembered("no trainer", tree, lambda: _makes_no_trainer(project))


def _makes_no_trainer(project: Project) -> bool:
    if not project.mentions("__main__") or project.settings_have("Trainer"):
        return False
    files = {path for name in _MAKERS for path in project.mentioning(name)}
    if any(_makes_one(project.index(path)) for path in sorted(files)):
        return False
    notebooks = notebooks_in(project, {project.root})
    return not any("Trainer(" in text_of(notebook) for notebook in notebooks)


def _makes_one(index: FileIndex | None) -> bool:
    """Whether a file calls a trainer or imports one; one that cannot be read may.

    So may one with a trainer of another name.
    """
    if index is None:
        return True
    made = (last_name(call) for call in index.all(ast.Call))
    renamed = (
        dotted(base) or ""
        for owner in index.all(ast.ClassDef)
        if not owner.name.endswith(_MAKERS)
        for base in owner.bases
    )
    named = (*made, *index.imports.values(), *renamed)
    return any(name.endswith(_MAKERS) for name in named)
