"""Objects that surely lack an attribute: reading it raises.

Options of a command line that has none of that name, numbers, texts, dicts and lists,
objects of the project's own classes, and settings read from files none of which has
such a key.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Function
from gpulint.index.walk import dotted, walk
from gpulint.script.frameworks.tf_names import is_for_tf1
from gpulint.script.neighbours import MAX_FILES, programs, run_together
from gpulint.script.reaching.needed import given_to, needed
from gpulint.script.reaching.surely_called import is_self
from gpulint.script.reaching.written_out import is_written_out

if TYPE_CHECKING:
    from gpulint.script.model import Script

_OPTIONS = re.compile(r"(?i)arg|opt|conf|cfg|flags|param|^hp")
_LOADS_ANY = re.compile(r"import_module|__import__|importlib|\bexec\(")
# Sets attributes of other objects than `self` or options by names that are computed.
_SETS_ANY = re.compile(
    r"\bsetattr\(\s*(?!self\b|args?\b|opts?\b)[\w.\[\]]+\s*,\s*(?!['\"])"
    r"|(?<!self)\.__dict__(\.update|\[)|\bvars\((?!self\b|args?\b)[^()]*\)(\[|\.update)"
)
# How a class takes in what a file says, and other ways to get attributes.
_FROM_FILE = re.compile(r"self\.__dict__\.update\(")
_OTHERWISE = re.compile(r"\bsetattr\(|__dict__\s*(=|\[|\|)|\bvars\(|__slots__")
_LOADS = frozenset("json.load json.loads yaml.load yaml.safe_load".split())
_DISPLAYS = (ast.Constant, ast.Dict, ast.List)
MIN_KEYS = 2  # that the files with the settings have, of what is read of them


def raises_by_reading(script: Script, node: ast.Attribute) -> bool:
    """Whether an object has no attribute that is read of it.

    `args.gpu_id`, `self.args.gpu_id`, `self.never_set`, `params.no_key`, `tf.python`.
    """
    if not isinstance(node.ctx, ast.Load) or node.attr.startswith("_"):
        return False
    if _is_hidden(script, node):
        return True
    holder = node.value
    named = holder.attr if isinstance(holder, ast.Attribute) else ""
    named = holder.id if isinstance(holder, ast.Name) else named
    if named == "self":
        above = script.index.parent(node)
        called = isinstance(above, ast.Call) and above.func is node
        return not called and _is_never_set(script, node)
    kept = holder.value if isinstance(holder, ast.Attribute) else None
    if kept is not None and not (isinstance(kept, ast.Name) and is_self(script, kept)):
        return False
    if not any(d.kind == "parameter" for d in script.definitions(holder)):
        plain = _plain_values(script, holder)  # what callers give is of these alone
        if plain and not any(hasattr(its, node.attr) for its in plain):
            return True
    if not _OPTIONS.search(named):
        return False
    return _has_no_option(script, holder, node.attr) or _has_no_key(
        script, holder, node.attr, lambda: _read_of(script, holder)
    )


def _is_hidden(script: Script, node: ast.Attribute) -> bool:
    """`tf.python`, which TensorFlow 2 takes away when it has been imported."""
    if node.attr != "python" or script.index.qualified(node) != "tensorflow.python":
        return False
    highest = script.releases("tensorflow").highest
    first = highest is not None and highest < (2,)
    named = "tensorflow.python" in script.source.text
    return script.index.is_import(node) and not (first or named or is_for_tf1(script))


def raises_by_giving(script: Script, call: ast.Call, functions: list[Function]) -> bool:
    """Whether a call gives what lacks an attribute that its function surely reads.

    Whichever of the functions it runs.
    """
    return bool(functions) and all(
        any(
            _lacks_any(script, value, function, parameter)
            for parameter, value in given_to(script, call, function)
            if isinstance(value, (ast.Name, ast.Attribute, *_DISPLAYS))
        )
        for function in functions
    )


def _lacks_any(
    script: Script, value: ast.expr, function: Function, parameter: str
) -> bool:
    """Whether a value lacks what a function needs of one of its parameters."""
    if script.evaluator.command_line.all_of(value) is not None:
        names = needed(script, function, parameter)
        return any(_has_no_option(script, value, name) for name in names)
    plain = _plain_values(script, value)
    if plain:
        names = needed(script, function, parameter)
        return any(not any(hasattr(its, n) for its in plain) for n in names)
    owner = _class_of(script, value)
    names = needed(script, function, parameter) if owner is not None else frozenset()
    return owner is not None and any(
        _has_no(script, owner, name) or _has_no_key(script, value, name, lambda: names)
        for name in names
    )


def _plain_values(script: Script, node: ast.expr) -> list[object]:
    """The numbers, texts, dicts and lists that a name may hold, the last two empty.

    None where it may hold others.
    """
    nodes: list[ast.AST] = [node]
    if isinstance(node, ast.Name):
        origins = script.resolver.origins(node)
        if any(o.kind != "expression" or o.path or o.default for o in origins):
            return []
        nodes = [origin.node for origin in origins]
    values = [_plain_value(node) for node in nodes]
    return [] if None in values else values


def _plain_value(node: ast.AST) -> object:
    if isinstance(node, (ast.Dict, ast.DictComp)):
        return {}
    if isinstance(node, (ast.List, ast.ListComp)):
        return []
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, (int, float, str)) else None


# Options


def _has_no_option(script: Script, holder: ast.expr, name: str) -> bool:
    def together(home: FileIndex) -> list[FileIndex] | None:
        return _together(script, home)

    return script.evaluator.command_line.missing.has_no(holder, name, together)


def _together(script: Script, home: FileIndex) -> list[FileIndex] | None:
    """All files that run in the programs of one; None: there may be more of them.

    As what is imported is chosen while it runs, or others may import it.
    """
    project = home.project
    if project is None:
        return None

    def find() -> list[FileIndex] | None:
        its = script.of(home.tree)
        starting = programs(its)
        if any(user not in starting for user in project.users(home)):
            return None
        found = run_together(its)
        if len(found) >= MAX_FILES or any(f.source.has(_LOADS_ANY) for f in found):
            return None
        return found

    return project.remembered("files that run with it", home.tree, find)


# Objects of own classes


def _class_of(script: Script, node: ast.expr) -> ast.ClassDef | None:
    """The class of an object that is made by calls of it, and by nothing else."""
    if not isinstance(node, ast.Name):
        return None
    made = [origin.call for origin in script.resolver.origins(node)]
    owners = {script.resolver.classes.named(c.func) if c else None for c in made}
    return owners.pop() if len(owners) == 1 else None


def _has_no(script: Script, owner: ast.ClassDef, name: str) -> bool:
    """Whether a class has no such attribute, nor does anything give its objects one."""
    project, classes = script.index.project, script.resolver.classes
    if project is None or not is_written_out(script, owner, name):
        return False
    if name in classes.methods(owner) or classes.member(owner, name):
        return False
    homes = [script.index, *map(script.index.home, classes.bases(owner))]
    if any(name in home.attribute_writes for home in homes):
        return False
    if project.writing(name) != []:
        return False
    if any(map(project.mentions, (f'"{name}"', f"'{name}'"))):
        return False
    return not any(f.source.has(_SETS_ANY) for f in run_together(script))


def _is_never_set(script: Script, node: ast.Attribute) -> bool:
    """`self.depth`, which neither the class nor one that derives from it ever sets.

    Of a class that is made somewhere: others may be for users to derive from.
    """
    if not isinstance(node.value, ast.Name) or not is_self(script, node.value):
        return False
    owner, classes = script.index.owner(node), script.resolver.classes
    if owner is None or node.attr in classes.methods(owner):
        return False
    if classes.member(owner, node.attr) or not classes.constructors(owner):
        return False
    heirs = script.resolver.outside.descendants(owner)
    return all(_has_no(script, heir, node.attr) for heir in (owner, *heirs))


# Settings


def _has_no_key(
    script: Script, holder: ast.expr, name: str, read: Callable[[], frozenset[str]]
) -> bool:
    """`params.cuda`, where the object has what JSON or YAML files say, and none does.

    They have other attributes that are `read` of it, so they are its files.
    """
    project = script.index.project
    origins = script.resolver.origins(holder)
    if project is None or not origins or not isinstance(holder, ast.Name):
        return False
    if not all(_is_from_file(script, origin.call, name) for origin in origins):
        return False
    others = sorted(read() - {name})
    kept = [key for key in others if project.having_keys([key])]
    if len(kept) < MIN_KEYS or not project.having_keys(kept):
        return False
    if project.having_keys([name]):
        return False
    if project.writing(name) != [] or project.mentions(f"--{name}"):
        return False
    if any(map(project.mentions, (f'"{name}"', f"'{name}'"))):
        return False
    sets = re.compile(rf"\b{name}\s*=(?!=)|{_SETS_ANY.pattern}")
    return not any(f.source.has(sets) for f in run_together(script))


def _read_of(script: Script, holder: ast.expr) -> frozenset[str]:
    """What else a function reads of an object that it has under a name."""
    named = dotted(holder)
    return frozenset(
        node.attr
        for node in walk(script.index.scope(holder))
        if isinstance(node, ast.Attribute) and dotted(node.value) == named
    )


def _is_from_file(script: Script, call: ast.Call | None, name: str) -> bool:
    """`Params("params.json")`, of a class with what a file that it loads says."""
    classes = script.resolver.classes
    owner = classes.named(call.func) if call is not None else None
    if owner is None or len(classes.bases(owner)) > 1:
        return False
    its = script.of(owner)
    if not is_written_out(script, owner, name, settings=True):
        return False
    if name in classes.methods(owner) or classes.member(owner, name):
        return False
    if _OTHERWISE.search(its.text(owner)):
        return False
    calls = [node for node in walk(owner) if isinstance(node, ast.Call)]
    updates = [c for c in calls if _FROM_FILE.match(its.text(c))]
    loaded = [c for c in updates if _is_loaded(its, c)]
    return bool(updates) and loaded == updates


def _is_loaded(script: Script, call: ast.Call) -> bool:
    """`self.__dict__.update(params)`, of what `json.load(file)` gave."""
    if len(call.args) != 1 or call.keywords:
        return False
    made = [origin.call for origin in script.resolver.origins(call.args[0])]
    return bool(made) and all(
        c is not None and script.index.qualified(c.func) in _LOADS for c in made
    )
