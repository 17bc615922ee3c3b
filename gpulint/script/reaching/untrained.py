"""Lightning's modules in projects that make no trainer: they only infer with them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Project
from gpulint.script.reaching.offered import is_offered, notebooks_in
from gpulint.torch_prose import prose, text_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

_PACKAGES = ("lightning.", "pytorch_lightning.")
_MODULES = ("LightningModule", "DataModule")
_MAKERS = ("Trainer", "LightningCLI", "from_argparse_args", "Fabric", "LightningLite")
_NAMED = re.compile(r"(Trainer|Fabric)\b")
_STARTED = re.compile(r"\b(lightning|fabric)[ \t]+(fit|run)\b")  # in a shell
# What a program may call itself, besides a module's own methods.
_OWN = frozenset(["__init__", "forward", "__call__"])


def is_untrained(script: Script, node: ast.AST) -> bool:
    """Whether a place is in what a trainer calls of a module, and there is no trainer.

    In a project with programs that is no library, and calls it nowhere itself.
    """
    function, owner = script.index.function(node), script.index.owner(node)
    if function is None or owner is None or function.name in _OWN:
        return False
    names = script.resolver.classes.base_names(owner)
    project = script.index.project
    if project is None or not any(map(_is_module, names)) or is_offered(script):
        return False
    if project.mentions(f".{function.name}("):
        return False
    tree = script.index.tree
    return project.remembered("no trainer", tree, lambda: _makes_no_trainer(project))


def _is_module(name: str) -> bool:
    return name.startswith(_PACKAGES) and name.endswith(_MODULES)


def _makes_no_trainer(project: Project) -> bool:
    if not project.mentions("__main__") or project.settings_have("Trainer"):
        return False
    files = {path for name in _MAKERS for path in project.mentioning(name)}
    if any(_may_make_one(project.index(path)) for path in sorted(files)):
        return False
    root = project.root
    notebooks = notebooks_in(project, {root})
    if any(_NAMED.search(text_of(notebook)) for notebook in notebooks):
        return False
    scripts = (
        s for f in (root, root / "scripts") for s in project.in_folder(f, "*.sh")
    )
    texts = [*prose(root), *scripts]
    project.noted.files.update(texts)
    return not any(_STARTED.search(text_of(text)) for text in texts)


def _may_make_one(index: FileIndex | None) -> bool:
    """Whether a file reads or imports a trainer's class, or has its name in a text.

    But for a class that derives from it by the name of a trainer; one of another name
    may be made, and so may anything in a file that cannot be read.
    """
    if index is None:
        return True
    derived = {
        base
        for owner in index.all(ast.ClassDef)
        if owner.name.endswith(_MAKERS)
        for base in owner.bases
    }
    reads = (
        node
        for name, nodes in index.reads.items()
        if name.endswith(_MAKERS)
        for node in nodes
    )
    texts = (node.value for node in index.all(ast.Constant))
    return (
        any(node not in derived for node in reads)
        or any(name.endswith(_MAKERS) for name in index.imported)
        or any(isinstance(text, str) and _NAMED.search(text) for text in texts)
    )
