"""Objects that others keep and never ask for again, so that their methods never run."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.targets import qualified_name
from gpulint.index.walk import walk
from gpulint.script.by_name import chooses_among_its_own, chooses_by_name, holds_all
from gpulint.script.named_calls import kept_as
from gpulint.script.neighbours import MAX_FILES, programs, run_together
from gpulint.script.reaching.left_over import asks_objects
from gpulint.script.reaching.offered import is_offered
from gpulint.script.reaching.surely_called import is_self
from gpulint.script.reaching.unused import reads_of

if TYPE_CHECKING:
    from gpulint.index import FileIndex
    from gpulint.script.model import Script

_PLAIN = ("object", "torch.nn.Module")
# What a module does with all of its parts.
_OF_PARTS = frozenset(
    "apply cpu cuda eval extra_repr reset_parameters to train".split()
)
# What takes the parts of a module one by one, without their names.
_TAKES_PARTS = re.compile(r"\b(children|named_children|_modules|__dict__)\b")
# What a module has that neither runs it nor is the module.
_BESIDE = frozenset(
    "load_state_dict named_parameters parameters state_dict training".split()
)


def is_never_asked(script: Script, function: Function) -> bool:
    """Whether a method is of objects that are kept under a name which nothing reads.

    `self.penalty = Penalty()`, with no `x.penalty` in any file of a project that is no
    library, and nothing that looks for attributes by other names. Or with none but
    `x.penalty.scale(…)`, of what an object has that is no method.
    """
    index = script.index.home(function)
    owner, project = index.parent(function), index.project
    if project is None or not isinstance(owner, ast.ClassDef):
        return False
    name = getattr(function, "name", "_")
    if name in _OF_PARTS or (name.startswith("_") and name != "__call__"):
        return False
    its = script.of(function)
    if index.parent(owner) is not index.tree or not _waits_to_be_asked(its, owner):
        return False
    names = kept_as(its, owner)
    if not names or is_offered(its, owner.name):
        return False
    makers = its.resolver.classes.constructors(owner)
    called = {id(call.func) for call in makers}
    if not all(id(read) in called for read in reads_of(its, owner)):
        return False  # the class is handed on, or has heirs
    if project.targeting(qualified_name(index, owner)):
        return False
    return not _may_be_chosen(its) and not any(
        _may_read(its, makers, name) for name in names
    )


def _waits_to_be_asked(script: Script, owner: ast.ClassDef) -> bool:
    """Whether an object does nothing but what others call it for.

    Its constructor calls no method of its own, and hands neither one nor the object on.
    """
    index = script.index
    if owner.decorator_list or owner.keywords:
        return False
    if any(index.qualified(base) not in _PLAIN for base in owner.bases):
        return False
    methods = {s.name for s in owner.body if isinstance(s, ast.FunctionDef)}
    made = [s for s in owner.body if getattr(s, "name", "") == "__init__"]
    names = {n: script.resolver.self_name(init) for init in made for n in walk(init)}
    for node, own in names.items():
        if not isinstance(node, ast.Name) or node.id != own:
            continue
        above = index.parent(node)
        if isinstance(above, ast.Call) and getattr(above.func, "id", "") == "super":
            continue
        if not isinstance(above, ast.Attribute) or above.attr in methods:
            return False
    return methods.isdisjoint(("__new__", "__init_subclass__", "__del__"))


def _may_be_chosen(script: Script) -> bool:
    """Whether a program may choose what a file holds by a name."""
    users = programs(script)
    if len(users) >= MAX_FILES or chooses_among_its_own(script.index):
        return True
    return any(chooses_by_name(u) and holds_all(u, script.index) for u in users)


def _may_read(script: Script, makers: list[ast.Call], name: str) -> bool:
    """Whether anything reads an attribute of a name, or may do so in another way.

    Not what another class has under that name itself, nor for what the object holds.
    """
    project = script.index.project
    assert project is not None
    for file in map(project.index, project.mentioning(f".{name}")):
        reads = file.reads.get(name, ()) if file is not None else ()
        if file is None or any(
            isinstance(read, ast.Attribute)
            and not _is_of_another(script, read, makers)
            and not _asks_for_a_part(script, read, makers[0])
            for read in reads
        ):
            return True
    quoted = re.compile(rf"['\"]{re.escape(name)}\b")
    around = {f: None for call in makers for f in run_together(script.of(call))}
    return len(around) >= MAX_FILES or any(
        f.source.has(_TAKES_PARTS)
        or f.source.has(quoted)
        or asks_objects(f)
        or _takes_all(script, f)
        for f in around
    )


def _is_of_another(script: Script, read: ast.Attribute, makers: list[ast.Call]) -> bool:
    """Whether `self.penalty` is of a class that gives its objects one of their own."""
    if not isinstance(read.value, ast.Name) or not is_self(script, read.value):
        return False
    owner, classes = script.index.owner(read), script.resolver.classes
    given = classes.member(owner, read.attr) if owner is not None else []
    return bool(given) and all(
        d.value is not None and d.value not in makers for d in given
    )


def _asks_for_a_part(script: Script, read: ast.Attribute, made: ast.Call) -> bool:
    """Whether `self.penalty.scale` is what a constructor gives an object to hold."""
    above, owner = script.index.parent(read), script.resolver.classes.named(made.func)
    if not isinstance(above, ast.Attribute) or owner is None:
        return False
    if above.attr in script.resolver.classes.methods(owner):
        return False
    held = script.resolver.classes.member(owner, above.attr)
    return bool(held) or above.attr in _BESIDE


def _takes_all(script: Script, file: FileIndex) -> bool:
    """Whether a file asks for all that an object holds: `vars(x)`, but of options."""
    for read in file.reads.get("vars", ()):
        call = file.parent(read)
        if not isinstance(call, ast.Call) or call.func is not read or not call.args:
            return True
        if script.of(read).evaluator.command_line.all_of(call.args[0]) is None:
            return True
    return False
