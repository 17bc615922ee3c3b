"""Imports of what a project of their own lacks."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.module_search import is_run
from gpulint.index.paths import adds_known_folders
from gpulint.index.words import has_word
from gpulint.script.reaching.implicit_imports import ADDS_FOLDERS, is_only_beside
from gpulint.torch_prose import has_prose, prose, text_of

if TYPE_CHECKING:
    from gpulint.index.project import Project

# How a package may have names that it does not write.
_MAKES_NAMES = re.compile(
    r"__getattr__|__all__(?! *= *[\[(])|globals\(|setattr\(|_LazyModule|exec\("
)
_NAMES_PACKAGE = re.compile(r"\b__package__\s*=(?!=)")
_BUILT = re.compile(r"^_|version|_pb2|ext|cuda|cpp|native|build|generated")
# Packages whose names projects have for folders of their own as well.
_PACKAGES = frozenset("datasets evaluate keras tokenizers torch transformers".split())
# What texts name as places in a project, and nobody installs.
_FOLDERS = frozenset("src lib libs scripts".split())
# What modules of training code are called, and packages that are installed seldom.
_PLAIN_WORDS = frozenset(
    "attention augment augmentation augmentations base batch block blocks builder "
    "center checkpoint checkpoints class classes common contrastive criterion custom "
    "data dataloader dataloaders dataset decoder discriminator embedding encoder eval "
    "evaluation evaluator feature features focal func funcs function functions "
    "generator helper helpers layer layers load loader loaders loss losses lr margin "
    "metric metrics misc model modeling models module modules my net nets network "
    "networks new op ops optim optimizer option options opts parser prepare "
    "preprocess preprocessing process resnet rotation sampler saver scheduler set "
    "solver test tool tools train training transform transforms triplet unet util "
    "utilities utility utils vgg vis visualization".split()
)
# How transformers calls the files of a model, which others copy out of it.
_OF_TRANSFORMERS = re.compile(r"(modeling|tokenization|configuration)_\w+")
LEAST_WORDS = 3  # of the name that a module and its class have
_WORD = re.compile(r"[A-Z][a-z0-9]*")
MAX_STARS = 3  # modules from which one takes all names, and these in turn


def module_of(statement: ast.ImportFrom) -> str:
    """`..nets.parts` of `from ..nets.parts import Block`."""
    return f"{'.' * statement.level}{statement.module or ''}"


def is_missing(index: FileIndex, statement: ast.ImportFrom) -> bool:
    """Whether an import raises: the project has no such module, or it no such name."""
    project = index.project
    if project is None:
        return False

    def found() -> bool:
        return imports_nothing(index, statement, guess=True)

    return project.remembered("is missing", statement, found)


def lacks(index: FileIndex, name: str) -> bool:
    """Whether `package.module.name` is of the project, which has none of that name.

    A package that is required may be another one than a folder of its name, and so may
    one in whose folder the file lies.
    """
    head, _, rest = name.partition(".")
    folders = index.source.path.parent.parts
    if head in folders or _is_required(index, head, folder=True):
        return False
    return bool(rest) and _is_missing(index, name, written=True)


def imports_nothing(
    index: FileIndex, statement: ast.Import | ast.ImportFrom, guess: bool
) -> bool:
    """Whether an import asks the project's own package or module for what it lacks.

    `guess`: also of what only looks as if it had been the project's.
    """
    if isinstance(statement, ast.Import):
        if any(_is_part_of_a_package(index, a.name, []) for a in statement.names):
            return True
        return guess and any(
            _lies_nowhere(index, alias.name)
            or _was_left_out(index, alias.name)
            or _lies_elsewhere(index, alias.name)
            for alias in statement.names
        )
    module = module_of(statement)
    taken = [alias.name for alias in statement.names]
    modules = index.project.modules if index.project is not None else None
    if modules is not None and modules.plainly_binds(index, module, taken):
        return False
    if _is_missing(index, module) or _is_not_beside(index, statement):
        return True
    if _is_part_of_a_package(index, module, taken):
        return True
    if _needs_its_folder(index, statement):
        return True
    if (
        guess
        and not statement.level
        and (
            _has_moved(index, statement)
            or _asks_two_ways(index, module)
            or _was_renamed(index, statement)
            or _lies_nowhere(index, module)
            or _was_left_out(index, module)
            or _lies_elsewhere(index, module)
        )
    ):
        return True
    if statement.module is None:
        return False
    names = [f"{module}.{name}" for name in taken]
    # A package with one of the modules is the one that is meant.
    known = any((member := index.member(n)) and not member[1] for n in names)
    return any(_is_missing(index, name, written=not known) for name in names)


def _is_not_beside(index: FileIndex, statement: ast.ImportFrom) -> bool:
    """`from .minions import *`, where the folder has nothing of that name.

    Nor is it one of which builds make files: versions, extensions, messages.
    """
    project, first = index.project, (statement.module or "").partition(".")[0]
    if project is None or not statement.level or not first or _BUILT.search(first):
        return False
    above = index.source.path.parents
    if statement.level > len(above):
        return True
    folder = above[statement.level - 1]
    if project.root not in (folder, *folder.parents):
        return False
    there = (path.name.partition(".")[0] for path in project.in_folder(folder, "*"))
    return first not in there


def _is_part_of_a_package(index: FileIndex, module: str, taken: list[str]) -> bool:
    """`from model import Net`, of a `model.py` beside it that has `from .op import …`.

    As a module of its own it has no package that the point could mean. Not where a
    file may be started as a part of its package (`python -m`), as one that imports by
    points or the package's name is, and some other `model` be meant.
    """
    if not module.isidentifier() or module in sys.stdlib_module_names:
        return False
    path = index.source.path
    found = index.member(module)
    if found is None or found[0].source.path != path.with_name(f"{module}.py"):
        return False
    project = index.project
    outer = [f for f in path.parents[1:] if project and f.is_relative_to(project.root)]
    if project is None or any(project.has_module(f, module) for f in outer):
        return False
    origins = (*index.imported, *index.stars)
    if any(origin.partition(".")[0] in ("", path.parent.name) for origin in origins):
        return False
    home = found[0]
    if not all(name in home.bound_names | home.imports.keys() for name in taken):
        return False
    if home.source.has(_NAMES_PACKAGE) or _is_required(index, module, folder=True):
        return False
    return any(isinstance(s, ast.ImportFrom) and s.level for s in home.tree.body)


def _asks_two_ways(index: FileIndex, module: str) -> bool:
    """`from engine import train` of a file beside, where `from . import utils` is too.

    A program has no package that the point could mean, and a part of one does not look
    beside itself. Of a project for Python 3, in which nothing adds folders.
    """
    project, path = index.project, index.source.path
    if project is None or not module.isidentifier():
        return False
    if not any(isinstance(s, ast.ImportFrom) and s.level for s in index.tree.body):
        return False
    if not project.is_file(path.with_name(f"{module}.py")):
        return False
    outer = [f for f in path.parents[1:] if f.is_relative_to(project.root)]
    if any(project.has_module(folder, module) for folder in outer):
        return False
    if module in sys.stdlib_module_names or _is_required(index, module, folder=True):
        return False
    return project.mentions(") -> ") and not _looks_around(index, project)


def _has_moved(index: FileIndex, statement: ast.ImportFrom) -> bool:
    """`from old.layers import Block`, where only `new/layers.py` has a `Block`.

    And nothing of the project is called `old`: no folder, file or requirement.
    """
    project, module = index.project, statement.module or ""
    package, _, last = module.rpartition(".")
    head = package.partition(".")[0]
    if project is None or not head or index.owns(module):
        return False
    names = [alias.name for alias in statement.names]
    if "*" in names or head in _PACKAGES or _is_required(index, head):
        return False
    files = [p for p in project.mentioning(names[0]) if p.name == f"{last}.py"]
    found = [home for home in map(project.index, files) if home not in (None, index)]
    return any(all(name in home.bound_names for name in names) for home in found)


def _was_renamed(index: FileIndex, statement: ast.ImportFrom) -> bool:
    """`from graph_cut_simulator import SimulatorGraphCut`, which other modules define.

    And nothing of the project is called `graph_cut_simulator`: no file or requirement.
    One that is not called as its class may be a package with a class of that name.
    """
    project, module = index.project, statement.module or ""
    names = [alias.name for alias in statement.names]
    words = set(module.split("_"))
    if (
        project is None
        or len(words) < LEAST_WORDS
        or not any(
            {word.lower() for word in _WORD.findall(name)} == words for name in names
        )
    ):
        return False
    if index.owns(module) or _is_required(index, module):
        return False
    if any(path.stem == module for path in project.files):
        return False
    found = [project.index(path) for path in project.mentioning(names[0])]
    return any(
        all(name in home.classes for name in names)
        for home in found
        if home is not None and home is not index
    )


def _lies_nowhere(index: FileIndex, module: str) -> bool:
    """Whether a module is of a folder of the project that has no such file anywhere.

    `problems.heat`, where each `problems` of the project has other modules, or each
    beside and above a file that looks nowhere else; one that the standard library or a
    requirement may be is not asked about.
    """
    project = index.project
    head, _, rest = module.partition(".")
    if project is None or not rest or index.member(module) is not None:
        return False
    if head in sys.stdlib_module_names or head in _PACKAGES:
        return False
    if head not in _FOLDERS and _is_required(index, head, True):
        return False
    folders = {parent for path in project.files for parent in path.parents}
    named = [f for f in folders if f.name == head and f.is_relative_to(project.root)]
    if index.source.path.parent / head in named and not _looks_around(index, project):
        above = (f for f in index.source.path.parents if f.is_relative_to(project.root))
        seen = {f / place / head for f in above for place in ("", "src")}
        named = [f for f in named if f in seen]
    first = rest.partition(".")[0]
    there = (path.name for f in named for path in project.in_folder(f, "*"))
    return bool(named) and first not in {name.partition(".")[0] for name in there}


def _was_left_out(index: FileIndex, module: str) -> bool:
    """`import center_loss`, where nothing of the project is called so, nor required.

    Of a project with a README, a module of it by its name: packages that are installed
    have names of their own. Not where the file, or a submodule, adds other folders.
    """
    project, head = index.project, module.partition(".")[0]
    if project is None:
        return False
    plain = set(head.split("_")) <= _PLAIN_WORDS or _OF_TRANSFORMERS.fullmatch(head)
    if head not in _FOLDERS and not plain:
        return False
    if index.source.has(ADDS_FOLDERS) or index.owns(module):
        return False
    if head in sys.stdlib_module_names:
        return False
    if not has_prose(project.root) or project.in_folder(project.root, ".gitmodules*"):
        return False
    around = [f for f in index.source.path.parents if f.is_relative_to(project.root)]
    if any(project.in_folder(folder, f"{head}*") for folder in around):
        return False  # of what is built, perhaps
    if head in project.folders | project.stems:
        return False
    return head in _FOLDERS or not _is_required(index, head)


def _lies_elsewhere(index: FileIndex, module: str) -> bool:
    """`import prepare` in a script's copy: only beside the first one is a `prepare.py`.

    Of a program that says itself where it looks, all by constant paths, or where
    nothing adds folders and it lies in a package whose name other imports have. Or of
    one that texts beside it start there.
    """
    project, head = index.project, module.partition(".")[0]
    if project is None or not is_run(index) or index.owns(module):
        return False
    if not set(head.split("_")) <= _PLAIN_WORDS or _is_required(index, head, True):
        return False
    there = [path for path in project.files if path.name == f"{head}.py"]
    if adds_known_folders(index, project.root):
        return bool(there)
    if there and module == head and _is_started_beside(index, project):
        return True
    if module != head or _names_folders(index, project):
        return False
    return bool(there) and all(
        project.mentions(f"from {path.parent.name}.{head} import") for path in there
    )


def _is_started_beside(index: FileIndex, project: Project) -> bool:
    """`python train.py` in a text that lies beside it, where nothing adds folders."""
    if _looks_around(index, project):
        return False
    folder, name = index.source.path.parent, re.escape(index.source.path.name)
    texts = [*prose(folder), *project.in_folder(folder, "*.sh")]
    project.noted.files.update(texts)
    started = re.compile(rf"\bpython[\d.]*[ \t]+(-u[ \t]+)?{name}(?![\w.])")
    return any(started.search(text_of(path)) for path in texts)


def _needs_its_folder(index: FileIndex, statement: ast.ImportFrom) -> bool:
    """`from resnet import Net` in `models/net.py`, where others import `models.net`.

    Of a project without torch: those of other frameworks that run today are not for
    Python 2, which looks beside a module as well.
    """
    project, path = index.project, index.source.path
    if project is None or is_run(index) or project.starts_in(path.parent):
        return False
    around = path.parent.parent
    users = project.mentioning(f"from {path.parent.name}.{path.stem} import")
    if not any(user.is_relative_to(around) for user in users):
        return False
    others = (*project.mentioning("sys.path"), *project.mentioning("import torch"))
    if any(other.is_relative_to(around) for other in others):
        return False
    scripts = [
        script
        for folder in (project.root, project.root / "scripts", around)
        for kind in ("*.sh", "Makefile*")
        for script in project.in_folder(folder, kind)
    ]
    project.noted.files.update(scripts)
    if any(ADDS_FOLDERS.search(text_of(script)) for script in scripts):
        return False
    return is_only_beside(index, statement) and not _is_told_of_folders(index, project)


def _names_folders(index: FileIndex, project: Project) -> bool:
    """Whether anything of a project says where Python is to look for modules."""
    if project.mentions("sys.path") or index.source.has(ADDS_FOLDERS):
        return True
    return _is_told_of_folders(index, project)


def _looks_around(index: FileIndex, project: Project) -> bool:
    """Whether a file may look in other folders: itself, or what has its name."""
    stem = index.source.path.stem
    if any(has_word(text, stem) for text in project.texts("sys.path")):
        return True
    return index.source.has(ADDS_FOLDERS) or _is_told_of_folders(index, project)


def _is_told_of_folders(index: FileIndex, project: Project) -> bool:
    """Whether the texts and scripts around a file say where Python is to look."""
    folders = (project.root, index.source.path.parent)
    scripts = (path for f in folders for path in project.in_folder(f, "*.sh"))
    texts = (text_of(path) for path in (*prose(project.root), *scripts))
    return any(ADDS_FOLDERS.search(text) for text in texts)


def _is_required(index: FileIndex, package: str, folder: bool = False) -> bool:
    """Whether a package is asked for, or there where the project does not look.

    `folder`: whether one of that name in the project does not count. Prose is full of
    plain words, and only of other names does it say that a package is needed.
    """
    project = index.project
    assert project is not None
    named = re.compile(rf"\b{package.replace('_', '[-_]')}\b", re.IGNORECASE)
    root = project.root
    asking = (*project.in_folder(root, "*.txt"), *project.in_folder(root, "*.toml"))
    more = (*project.in_folder(root, "*.y*ml"), *project.in_folder(root, "setup.*"))
    if package not in _PLAIN_WORDS:
        more = (*more, *prose(root))
    texts = (text_of(path) for path in (*asking, *more))
    return any(map(named.search, texts)) or (not folder and package in project.folders)


def _is_missing(index: FileIndex, name: str, written: bool = False) -> bool:
    """`package.gone`, where neither the folder nor the module has a `gone`.

    And nothing that it binds, imports or makes up is of that name. `written`: only of
    a package with anything in its `__init__.py`; else another may be meant. A module
    counts where no other file that the import may mean has it, by its name and those of
    the folders, or it lies beside a program, which looks there first.
    """
    project = index.project
    found = index.member(name)
    if project is None or found is None or not found[1]:
        return False
    home, (gone, *_) = found
    if gone == "*" or not _lacks(home, gone, MAX_STARS):
        return False
    path = home.source.path
    if path.name != "__init__.py":
        if written and _looks_here_first(index, path):
            return True
        parts = name.strip(".").split(".")[: -len(found[1])] or [path.stem]
        others = [p for p in project.mentioning(gone) if _ends_with(p, parts)]
        return written and all(
            its is home or gone not in its.bound_names | its.imports.keys()
            for its in map(project.index, others)
            if its is not None
        )
    if written and not home.tree.body:
        return False
    named = (p.name.partition(".")[0] for p in project.in_folder(path.parent, "*"))
    return gone not in named  # nor as what is built or generated


def _ends_with(path: Path, parts: list[str]) -> bool:
    """Whether a file may be `nets.blocks` for something around it."""
    return list(path.with_suffix("").parts[-len(parts) :]) == parts


def _looks_here_first(index: FileIndex, module: Path) -> bool:
    """Whether a file is a program, and a module lies in its folder.

    Which no text says to start in another way: `python -m tools.train`.
    """
    path, project = index.source.path, index.project
    beside = path.parent == module.parent
    if project is None or not beside or not is_run(index):
        return False
    above = [f for f in path.parents if f == project.root or project.root in f.parents]
    texts = [t for f in above for t in (*prose(f), *project.in_folder(f, "*.sh"))]
    project.noted.files.update(texts)
    by_module = re.compile(rf"-m[ \t]+[\w.]*\b{re.escape(path.stem)}\b")
    return "sys.path" not in index.source.text and not any(
        by_module.search(text_of(text)) for text in texts
    )


def _lacks(home: FileIndex, name: str, depth: int) -> bool:
    """Whether a module has no such name, nor one that it takes all names from."""
    if name in home.bound_names or name in home.imports:
        return False
    if home.source.has(_MAKES_NAMES) or re.search(
        rf"['\"]{name}['\"]", home.source.text
    ):
        return False
    for star in home.stars:
        found = home.member(star)
        if found is None and f".{star}" in home.stars:
            continue  # in a script that lies beside it
        if found is None or found[1] or found[0] is home or not depth:
            return False
        if not _lacks(found[0], name, depth - 1):
            return False
    return True
