"""Values that stand in settings files: which reach a call, and which are meant so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index import Function, Value, Values
from gpulint.index.flow import enclosing_function
from gpulint.index.loaded_settings import is_settings, root_of
from gpulint.index.settings_file import Dialect
from gpulint.index.targets import item_of, qualified_name, settings_arguments

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

MAX_NEIGHBOURS = 50
_TRIAL = re.compile(
    r"debug|smoke|dummy|(^|[^a-z])(tests?|toy|tiny|ci)([^a-z]|$)", re.IGNORECASE
)
_REASON = re.compile(
    r"#.*(debug|windows|\bwin\b|macos|notebook|jupyter|colab|kaggle|fork|spawn|pickl|"
    r"hang|deadlock|freez|process|memory|\bram\b|oom|vram|\bfit|thread|shm|crash|bug|"
    r"fail|error|nan\b|overflow|diverg|unstable|stab|determinis|reproduc|paper|tuned|"
    r"best|slow|fast|because|since|avoid|must|need|only|keep|don'?t|do not|not support|"
    r"otherwise|never|temporar|for now|cpu|local)",
    re.IGNORECASE,
)


def is_setting(script: Script, node: ast.AST) -> bool:
    """Whether a node stands in a settings file."""
    return is_settings(script.index.home(node))


def setting_name(script: Script, node: ast.AST) -> str:
    """The keys that lead to a value, `data.num_workers`."""
    return ".".join(setting_keys(script, node))


def setting_keys(script: Script, node: ast.AST) -> tuple[str, ...]:
    """The keys from the root of a settings file to a value; no list positions."""
    keys: list[str] = []
    child = node
    for above in script.index.ancestors(node):
        if isinstance(above, ast.Dict) and child in above.values:
            key = above.keys[above.values.index(child)]
            if isinstance(key, ast.Constant):
                keys.append(str(key.value))
        child = above
    return tuple(reversed(keys))


def is_meant(script: Script, node: ast.expr) -> bool:
    """Whether a setting is for a trial run, or a comment gives a reason for it."""
    source = script.source_of(node)
    home = script.index.home(node)
    path = source.path
    if home.project is not None and home.project.root in path.parents:
        path = path.relative_to(home.project.root)
    words = [*path.parts, *setting_keys(script, node)[:-1]]
    return any(map(_TRIAL.search, words)) or says_why(script, node)


def says_why(script: Script, node: ast.expr) -> bool:
    """Whether a comment at a value, or above it, gives a reason for it."""
    source = script.source_of(node)
    above = source.said(node.lineno - 1) if node.lineno > 1 else ""
    comments = [source.said(node.lineno)]
    if above.lstrip().startswith("#"):
        comments.append(above)
    return any(map(_REASON.search, comments))


def settings_of(script: Script, nodes: Iterable[ast.expr]) -> list[Values]:
    """What an argument is in each run that takes it from settings files.

    A class that several files name as a `_target_` has a value for each of them.
    """
    nodes = list(nodes)
    if len(nodes) == 1:
        parameter = _parameter(script, nodes[0])
        if parameter is not None:
            found = list(_given_by_targets(script, *parameter))
            if found:
                return [Values((v,)) for v in found]
    its = [script.evaluator.values(n) for n in nodes]
    known = tuple(v for part in its for v in part.known)
    if not known or not all(is_setting(script, v.node) for v in known):
        return []
    complete = all(part.complete for part in its)
    if complete and all(script.evaluator.settings.is_matched(v.node) for v in known):
        return [Values((value,)) for value in known]
    return [Values(known, complete)]


def option_settings(script: Script, loader: Loader, option: str) -> list[Values]:
    """What a loader's option is in each run that takes it from settings files."""
    argument = loader.argument(option)
    return settings_of(script, argument.nodes) if argument.given else []


def comes_from_settings(script: Script, loader: Loader, option: str) -> bool:
    """Whether a settings file has the word on a loader's option, not the script."""
    return bool(option_settings(script, loader, option))


# Arguments of classes that settings name


def _parameter(script: Script, node: ast.expr) -> tuple[Function, str] | None:
    """The parameter of an `__init__` that a value is, and nothing else."""
    resolver, index = script.resolver, script.index
    holder = node.value if isinstance(node, ast.Attribute) else None
    if isinstance(holder, ast.Attribute) and holder.attr == "hparams":
        owner = index.owner(node)
        init = (
            resolver.classes.methods(owner).get("__init__")
            if owner is not None
            else None
        )
        assert isinstance(node, ast.Attribute)
        return (init, node.attr) if init is not None else None
    found: set[tuple[Function, str]] = set()
    for origin in resolver.origins(node):
        definition = origin.definition
        if is_setting(script, origin.node):
            continue
        if definition is None or definition.kind != "parameter" or origin.path:
            return None
        function = enclosing_function(index, definition)
        if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
            return None
        found.add((function, definition.name))
    return found.pop() if len(found) == 1 else None


def _given_by_targets(script: Script, init: Function, name: str) -> Iterator[Value]:
    home = script.index.home(init)
    owner = script.index.parent(init)
    if home.project is None or not isinstance(owner, ast.ClassDef):
        return
    for node in settings_arguments(home.project, qualified_name(home, owner), name):
        if isinstance(node, ast.Constant) and not _overridden(script, node, name):
            yield Value(node.value, node)


def _overridden(script: Script, node: ast.expr, name: str) -> bool:
    """Whether the main file of hydra's folder sets a group's value anew."""
    home = script.index.home(node)
    path = home.source.path
    if len(setting_keys(script, node)) > 1 or home.project is None:
        return False
    mains = home.project.in_folder(path.parent.parent, "*.yaml")
    for main in mains[:MAX_NEIGHBOURS]:
        if name in _keys_of(script, main, path.parent.name):
            return True
    return False


def _keys_of(script: Script, path: Path, group: str) -> set[object]:
    """The keys of one mapping at the root of a settings file."""
    project = script.index.project
    index = project.settings(path, Dialect.OMEGACONF) if project is not None else None
    inner = item_of(root_of(index), group) if index is not None else None
    keys = inner.keys if isinstance(inner, ast.Dict) else []
    return {k.value for k in keys if isinstance(k, ast.Constant)}
