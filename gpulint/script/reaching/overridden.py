"""Methods that all objects of their class have another in the place of."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.build import last_name
from gpulint.index.targets import qualified_name
from gpulint.index.words import has_word
from gpulint.script.by_name import chooses_among_its_own, chooses_by_name
from gpulint.script.neighbours import MAX_FILES, programs
from gpulint.script.reaching.looked_up import looks_for_modules
from gpulint.script.reaching.offered import is_offered
from gpulint.script.reaching.unused import reads_of
from gpulint.torch_prose import prose, text_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

_ASKS = frozenset("isinstance issubclass super".split())


def is_overridden(script: Script, function: Function) -> bool:
    """Whether a method's class is only there for others, which all have their own.

    Nothing makes an object of it, nor chooses among classes by their names, and no heir
    asks for the method by `super()`.
    """
    index, owner = script.index, script.index.parent(function)
    project = index.project
    if not isinstance(owner, ast.ClassDef) or project is None:
        return False
    if index.parent(owner) is not index.tree:
        return False
    classes, outside = script.resolver.classes, script.resolver.outside
    heirs = list(outside.descendants(owner))
    if not heirs or any(
        classes.methods(heir).get(function.name, function) is function for heir in heirs
    ):
        return False
    others = dict.fromkeys(base for heir in heirs for base in classes.bases(heir))
    if any(True for x in others for _ in outside.super_calls(x, function.name)):
        return False  # in an heir, or what stands before the class among its bases
    if owner.decorator_list or owner.keywords or is_offered(script, owner.name):
        return False
    users = programs(script)
    if len(users) > MAX_FILES or any(map(chooses_by_name, users)):
        return False
    if chooses_among_its_own(index) or looks_for_modules(script):
        return False
    texts = list(prose(project.root))
    project.noted.files.update(texts)
    if any(has_word(text_of(text), owner.name) for text in texts):
        return False
    if any(project.mentions(f"{q}{owner.name}{q}") for q in "'\""):
        return False
    if project.targeting(qualified_name(index, owner)):
        return False
    return all(_is_for_heirs(script, read) for read in reads_of(script, owner))


def _is_for_heirs(script: Script, read: ast.AST) -> bool:
    """Whether a class is read as the base of another, or only asked about."""
    above = script.of(read).index.parent(read)
    if isinstance(above, ast.ClassDef):
        return read in above.bases
    return isinstance(above, ast.Call) and last_name(above) in _ASKS
