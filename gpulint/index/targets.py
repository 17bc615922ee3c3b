"""Settings that name a class to build, or hold the arguments of one.

`_target_` of hydra, `class_path` of Lightning's command line, `target` of others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.settings_file import Dialect
from gpulint.index.walk import dotted
from gpulint.index.words import its_target, packages_around

if TYPE_CHECKING:
    from gpulint.index.build import FileIndex, Function
    from gpulint.index.project import Project

# Keys that name a class, and those beside them whose mappings have its arguments.
_BESIDE = {"target": "params", "class_path": "init_args"}

# Keys of Lightning's command line, and the arguments whose classes they are for.
_SECTIONS = {"model": "model_class", "data": "datamodule_class"}


def settings_arguments(
    project: Project, owner_qualified_name: str, parameter: str
) -> list[ast.expr]:
    """What settings files pass for a parameter of a class's `__init__`.

    The class is named from the root of the project, `src.data.mnist.MNISTData`; a
    target may name it from a folder further in. The nodes stand in the trees of
    settings files.
    """
    found = []
    for mapping in target_mappings(project, owner_qualified_name):
        for key, value in zip(mapping.keys, mapping.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == parameter:
                found.append(value)
    return found


def is_given_beside(
    project: Project, owner_qualified_name: str, parameter: str
) -> bool:
    """Whether `instantiate(config.trainer, pin_memory=…)` may give a parameter.

    Whatever settings say, and the default. Of a class whose settings stand under such
    a key, or in a file or folder of that name.
    """
    mappings = target_mappings(project, owner_qualified_name)
    if not mappings:
        return False
    named = {name for mapping in mappings for name in _keys_of(project, mapping)}
    for path in project.mentioning("instantiate("):
        index = project.index(path)
        for call in index.calls_by_name.get("instantiate", ()) if index else ():
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            if given.keys().isdisjoint({parameter, None}):
                continue
            settings = call.args[0] if call.args else given.get("config")
            asked = _last_of(settings) if settings is not None else None
            if asked is None or asked in named or not project.having_keys([asked]):
                return True  # the key of other settings is another object's
    return False


def _keys_of(project: Project, mapping: ast.Dict) -> Iterator[str]:
    """The names by which a mapping of a settings file may be asked for."""
    home = project.holder(mapping)
    if home is None:
        return
    yield from (home.source.path.stem, home.source.path.parent.name)
    child: ast.AST = mapping
    for above in home.ancestors(mapping):
        if isinstance(above, ast.Dict):
            key = above.keys[above.values.index(child)]  # type: ignore[arg-type]
            if isinstance(key, ast.Constant):
                yield str(key.value)
        child = above


def _last_of(settings: ast.expr) -> str | None:
    """`trainer` of `config.trainer` and `config["trainer"]`; None: not written."""
    if isinstance(settings, ast.Attribute):
        return settings.attr
    key = settings.slice if isinstance(settings, ast.Subscript) else None
    written = key.value if isinstance(key, ast.Constant) else None
    return written if isinstance(written, str) else None


def target_mappings(project: Project, owner_qualified_name: str) -> list[ast.Dict]:
    """The mappings whose keys are the arguments of a class, in all settings files."""
    found = []
    for path, targets in project.targeting(owner_qualified_name):
        for target in targets:
            if _names(project, owner_qualified_name, target):
                index = project.settings(path, Dialect.OMEGACONF)
                found += list(_arguments_in(index, target)) if index else []
    return [*found, *_of_command_line(project, owner_qualified_name)]


def _of_command_line(project: Project, owner_qualified_name: str) -> Iterator[ast.Dict]:
    """What files give a class that a program hands `LightningCLI(Model, Data)`."""
    name = owner_qualified_name.rpartition(".")[2]
    for path in project.mentioning("LightningCLI"):
        index = project.index(path)
        made = list(index.calls_by_name.items()) if index is not None else []
        for call in (c for maker, its in made if maker.endswith("CLI") for c in its):
            given = {k.arg: k.value for k in call.keywords}
            for position, (key, option) in enumerate(_SECTIONS.items()):
                taken = dict(enumerate(call.args)).get(position, given.get(option))
                if (dotted(taken) or "").rpartition(".")[2] == name:
                    names = _parameters(index, taken) if index is not None else None
                    yield from _sections(project, key, names)


def _parameters(user: FileIndex, taken: ast.expr | None) -> set[str] | None:
    """What the class takes that a file names so; None: not seen, or anything."""
    name = user.qualified(taken)
    member = user.member(name) if name is not None else None
    home, rest = member if member is not None else (user, (name,))
    owner = home.classes.get(str(rest[-1])) if rest else None
    for method in owner.body if owner is not None else ():
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            args = method.args
            names = {a.arg for a in [*args.posonlyargs, *args.args, *args.kwonlyargs]}
            return names if args.kwarg is None else None
    return None


def _sections(project: Project, key: str, names: set[str] | None) -> Iterator[ast.Dict]:
    """The mappings under a key of settings files, or under it of a subcommand.

    Whose keys are all among the names, if there are such: others are not the class's.
    """
    for path in project.having_keys([key]):
        index = project.settings(path, Dialect.OMEGACONF)
        root = index.tree.body[0].value if index is not None else None  # type: ignore[attr-defined]
        for above in (root, item_of(root, "fit")):
            its = item_of(above, key)
            if not isinstance(its, ast.Dict) or item_of(its, "class_path") is not None:
                continue
            if names is None or names.issuperset(
                getattr(given, "value", None) for given in its.keys
            ):
                yield its


def item_of(node: ast.expr | None, name: str) -> ast.expr | None:
    """The value under a key of a mapping; None: there is none, or no mapping."""
    if not isinstance(node, ast.Dict):
        return None
    pairs = zip(node.keys, node.values, strict=True)
    its = [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == name]
    return its[-1] if its else None


def _names(project: Project, owner_qualified_name: str, target: str) -> bool:
    """Whether a target names a class, by a package that hands it on or by its own."""
    if its_target(owner_qualified_name, target):
        return True
    modules = owner_qualified_name.split(".")
    for package in packages_around(owner_qualified_name, target):
        index = project.index(project.root.joinpath(*package, "__init__.py"))
        if index is not None:
            taken = index.imports.get(modules[-1], "").split(".")[:-1]
            taken += [part for star in index.stars for part in star.split(".")]
            if modules[len(package)] in taken:
                return True
    return False


def qualified_name(home: FileIndex, owner: ast.ClassDef | Function) -> str:
    """The name of a class or function from the root of its project."""
    path = home.source.path
    root = home.project.root if home.project is not None else path.parent
    parts = list(path.relative_to(root).with_suffix("").parts)
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join([*parts, owner.name])


def _arguments_in(index: FileIndex, target: str) -> Iterator[ast.Dict]:
    for mapping in index.all(ast.Dict):
        pairs = zip(mapping.keys, mapping.values, strict=True)
        items = {k.value: v for k, v in pairs if isinstance(k, ast.Constant)}
        if _is(items.get("_target_"), target):
            yield mapping
        for name, arguments in _BESIDE.items():
            given = items.get(arguments)
            if _is(items.get(name), target) and isinstance(given, ast.Dict):
                yield given


def _is(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text
