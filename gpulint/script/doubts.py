"""Why a place may be one that no program, run as usual, ever comes to.

What is found there is no less true, so it is of low confidence and not left out.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Function
from gpulint.index.walk import walk
from gpulint.script.batches_taken import is_handed_to_none, places
from gpulint.script.branches import all_of, branches_of
from gpulint.script.commands import option_of
from gpulint.script.doubtful import may_never_run
from gpulint.script.failures import fails, fails_around
from gpulint.script.given import values_given
from gpulint.script.left_over import is_imported_by_none, is_only_imported
from gpulint.script.neighbours import MAX_FILES, programs
from gpulint.torch_prose import prose, text_of

if TYPE_CHECKING:
    from gpulint.index import Project
    from gpulint.script.loaders import Loader
    from gpulint.script.model import Script

# How a package may have names that it does not write.
_MAKES_NAMES = re.compile(r"__getattr__|__all__|globals\(|setattr\(|_LazyModule|exec\(")
_BUILT = re.compile(r"^_|version|_pb2|ext|cuda|cpp|native|build|generated")
# Packages whose names projects have for folders of their own as well.
_PACKAGES = frozenset("datasets evaluate tokenizers transformers keras".split())
MAX_IMPORTS = 3  # from a file to one that it imports, and so on
MAX_STARS = 3  # modules from which one takes all names, and these in turn
MAX_CALLS = 3  # from a place, back to what surely runs


def is_doubtful(script: Script, node: ast.AST) -> bool:
    """Whether a place is behind what is off, called by nobody, or in a broken file.

    A loader also where that holds for all that iterates it, and what a loop does in
    each step where that holds for its backward passes.
    """
    if _is_spared(script, node, MAX_CALLS) or _cannot_start(script.index):
        return True
    loop = script.loop_of(node)
    if loop is not None and loop.train and loop.backward:
        steps = [(script.of(call), call) for call in loop.backward]
        if all(_is_left_out(its, call) for its, call in steps):
            return True  # no step of a training
    call = script.index.parent(node)
    loader = next((x for x in script.loaders if x.call is call), None)
    return loader is not None and _is_left(script, loader)


def _is_left(script: Script, loader: Loader) -> bool:
    """Whether nothing that runs iterates a loader, or reads it in a file of loops."""
    read = list(places(script, loader))
    if read and all(is_handed_to_none(script, place) for place in read):
        return any(map(script.index.all, (ast.For, ast.While)))
    if loader.loops:
        return all(
            _is_spared(script.of(loop.node), loop.node, MAX_CALLS)
            for loop in loader.loops
        )
    return not read and any(map(script.index.all, (ast.For, ast.While)))


def _is_spared(script: Script, node: ast.AST, depth: int) -> bool:
    """Whether a place, or each known way to it, is off by default or nobody's."""
    if may_never_run(script, node) or _is_left_out(script, node):
        return True
    if is_only_imported(script, node) or is_imported_by_none(script, node):
        return True
    if _is_replaced(script, node):
        return True
    if fails_around(script, node, names=depth < MAX_CALLS):
        return True
    function = script.index.function(node)
    if function is None or not depth:
        return False
    if depth < MAX_CALLS and function.name == "__init__" and fails(script, function, 0):
        return True  # there is no object that could do anything
    callers = script.resolver.callers(function) or _by_name(script, function)
    callers = callers or _making(script, function)
    return bool(callers) and all(
        _is_spared(script.of(call), call, depth - 1) for call in callers
    )


def _is_replaced(script: Script, node: ast.AST) -> bool:
    """Whether the function around a place is defined again further down.

    At the top of a file, or in a class, and nothing in between names it.
    """
    function = script.index.function(node)
    holder = script.index.parent(function) if function is not None else None
    if function is None or not isinstance(holder, (ast.Module, ast.ClassDef)):
        return False
    later = [
        other
        for other in holder.body
        if isinstance(other, ast.FunctionDef)
        and other.name == function.name
        and other.lineno > function.lineno
    ]
    if not later or any(f.decorator_list for f in (function, *later)):
        return False
    reads = script.index.reads.get(function.name, ())
    rows = (function.end_lineno or 0, later[0].lineno)
    return not any(rows[0] < read.lineno < rows[1] for read in reads)


def _is_left_out(script: Script, node: ast.AST) -> bool:
    """Whether a branch is for no GPU, for no step, or not taken by default.

    As far as defaults, or all values, are known: `if not args.prefetcher:`, behind
    `args.prefetcher = not args.no_prefetcher`. What tests give counts for nothing.
    """
    for branch, holds in branches_of(script.index, node):
        if isinstance(branch, ast.If) and _is_without_step(branch, holds):
            return True
        if isinstance(branch, (ast.If, ast.IfExp)):
            tests = all_of(branch.test, holds)
            if any(_has_gpu(script, test) is (not holds) for test in tests):
                return True
            values = script.evaluator.values(branch.test)
            known = values_given(script, values.known)
            left_so = values.complete or all(v.default for v in known)
            if known and left_so and all(bool(v.constant) != holds for v in known):
                return True
            if holds and _is_never_chosen(script, branch.test):
                return True
            if holds and _asks_a_truth(script, branch.test):
                return True
            if any(_is_always(script, test, not holds) for test in tests):
                return True
    return False


def _has_gpu(script: Script, test: ast.expr, depth: int = 0) -> bool | None:
    """What a test is on a machine with a GPU; None: it asks for something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _has_gpu(script, test.operand, depth)
        return None if inner is None else not inner
    if isinstance(test, ast.Call):
        asks = script.index.qualified(test.func) == "torch.cuda.is_available"
        return True if asks else None
    if not isinstance(test, (ast.Name, ast.Attribute)) or depth:
        return None
    origins = script.resolver.origins(test)
    found = {
        _has_gpu(script, o.expression, 1) if o.expression is not None else None
        for o in origins
    }
    return found.pop() if len(found) == 1 else None


def _is_without_step(branch: ast.If, holds: bool) -> bool:
    """Whether a branch is for losses that are not good for a step: the other has it.

    `if loss < limit: loss.backward() … else: skipped += 1`.
    """
    own, other = branch.body, branch.orelse
    if not holds:
        own, other = other, own
    losses = {name for call in _backward(other) for name in _names(call)}
    return not losses.isdisjoint(_names(branch.test)) and not any(_backward(own))


def _backward(statements: list[ast.stmt]) -> Iterator[ast.Call]:
    for node in walk(*statements):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "backward":
            yield node


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in walk(node) if isinstance(n, ast.Name)} - {"self"}


def _is_always(script: Script, test: ast.expr, answer: bool) -> bool:
    """Whether `kind == "a"` has one answer for all that calls are seen to give.

    Of a parameter that a call writes out; what an option gives is for users to choose.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return False
    operator, asked = test.ops[0], test.comparators[0]
    if not isinstance(operator, (ast.Eq, ast.NotEq)):
        return False
    if not isinstance(asked, ast.Constant) or not isinstance(asked.value, str):
        return False
    if not any(d.kind == "parameter" for d in script.definitions(test.left)):
        return False
    known = values_given(script, script.evaluator.values(test.left).known)
    equal = isinstance(operator, ast.Eq)
    return (
        not all(v.default for v in known)
        and not any(option_of(script, v) for v in known)
        and all((v.constant == asked.value) is (equal is answer) for v in known)
    )


def _is_never_chosen(script: Script, test: ast.expr) -> bool:
    """`args.data == "old"`, where that is none of the choices of the option."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    asked = test.comparators[0]
    if len(test.ops) > 1 or not isinstance(asked, ast.Constant):
        return False
    line = script.evaluator.command_line
    origins = script.resolver.origins(test.left)
    options = [o.expression for o in origins]
    offered = [
        line.choices(option.value, option.attr)
        for option in options
        if isinstance(option, ast.Attribute)
    ]
    return (
        bool(options)
        and len(offered) == len(options)
        and all(
            choices is not None and asked.value not in choices for choices in offered
        )
    )


def _asks_a_truth(script: Script, test: ast.expr) -> bool:
    """`args.train == "True"`, where `args.train = args.train == "True"` stands before.

    In the file that has the option: then it is a truth value, which equals no text.
    """
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    asked, left, project = test.comparators[0], test.left, script.index.project
    if not isinstance(asked, ast.Constant) or not isinstance(asked.value, str):
        return False
    if not isinstance(left, ast.Attribute) or project is None:
        return False
    files = map(project.index, project.mentioning(f"--{left.attr}"))
    writes = [
        w for f in files if f is not None for w in f.attribute_writes.get(left.attr, ())
    ]
    kept = [script.index.home(write).parent(write) for write in writes]
    return bool(kept) and all(
        isinstance(its, ast.Assign) and test is not its.value and _is_truth(its.value)
        for its in kept
    )


def _is_truth(node: ast.expr) -> bool:
    """Whether an expression is True or False."""
    if isinstance(node, ast.IfExp):
        return _is_truth(node.body) and _is_truth(node.orelse)
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    constant = isinstance(node, ast.Constant) and isinstance(node.value, bool)
    return negated or constant or isinstance(node, ast.Compare)


def _by_name(script: Script, function: Function) -> list[ast.Call]:
    """Calls of any object's method of that name, in the programs that import the file.

    Of a method alone, where nothing says of which class the objects are.
    """
    if not isinstance(script.index.parent(function), ast.ClassDef):
        return []
    name = getattr(function, "name", "")
    others = [index for index in programs(script) if index is not script.index]
    return [call for index in others for call in index.calls_by_name.get(name, ())]


def _making(script: Script, function: Function) -> list[ast.Call]:
    """Calls of the class whose method a function is, if no class derives from it."""
    owner = script.index.parent(function)
    if not isinstance(owner, ast.ClassDef):
        return []
    if any(True for _ in script.resolver.outside.descendants(owner)):
        return []
    return script.resolver.constructors(owner)


def _cannot_start(index: FileIndex) -> bool:
    """Whether a file, or one of the project that it imports, lacks what it imports."""
    project = index.project
    if project is None:
        return False
    return project.remembered("cannot start", index.tree, lambda: _lacks_any(index))


def _lacks_any(index: FileIndex) -> bool:
    folder = index.source.path.parent
    depths = {index: 0}
    for its in (found := [index]):
        beside = depths[its] < 2 and its.source.path.parent == folder
        if _cannot_be_imported(its, guess=beside):
            return True
        for imported in _imported_by(its) if depths[its] < MAX_IMPORTS else ():
            if imported not in depths and len(depths) < MAX_FILES:
                depths[imported] = depths[its] + 1
                found.append(imported)
    return False


def _imported_by(index: FileIndex) -> Iterator[FileIndex]:
    """The files of the project from which a file takes names whenever it starts."""
    for statement in index.tree.body:
        if isinstance(statement, ast.ImportFrom) and index.project is not None:
            found = index.project.resolve(index, _module_of(statement))
            if found is not None:
                yield found[0]


def _module_of(statement: ast.ImportFrom) -> str:
    return f"{'.' * statement.level}{statement.module or ''}"


def _cannot_be_imported(index: FileIndex, guess: bool) -> bool:
    """Whether a file imports what its project's own package or module does not have.

    `guess`: also what only looks as if it had been the project's.
    """
    return index.project is not None and any(
        _imports_nothing(index, statement, guess)
        for statement in index.tree.body
        if isinstance(statement, ast.ImportFrom)
    )


def _imports_nothing(index: FileIndex, statement: ast.ImportFrom, guess: bool) -> bool:
    module = _module_of(statement)
    if _is_missing(index, module) or _is_not_beside(index, statement):
        return True
    if (
        guess
        and not statement.level
        and (_has_moved(index, statement) or _lies_nowhere(index, module))
    ):
        return True
    return any(
        _is_missing(index, f"{module}.{alias.name}", written=True)
        for alias in statement.names
        if statement.module is not None
    )


def _is_not_beside(index: FileIndex, statement: ast.ImportFrom) -> bool:
    """`from .minions import *`, where the folder has nothing of that name.

    Nor is it one of which builds make files: versions, extensions, messages.
    """
    project, first = index.project, (statement.module or "").partition(".")[0]
    if project is None or not statement.level or not first or _BUILT.search(first):
        return False
    folder = index.source.path.parents[statement.level - 1]
    if project.root not in (folder, *folder.parents):
        return False
    there = (path.name.partition(".")[0] for path in project.in_folder(folder, "*"))
    return first not in there


def _has_moved(index: FileIndex, statement: ast.ImportFrom) -> bool:
    """`from old.layers import Block`, where only `new/layers.py` has a `Block`.

    And nothing of the project is called `old`: no folder, file or requirement.
    """
    project, module = index.project, statement.module or ""
    package, _, last = module.rpartition(".")
    head = package.partition(".")[0]
    if project is None or not head or project.owns(index, module):
        return False
    names = [alias.name for alias in statement.names]
    if "*" in names or _is_required(index, head):
        return False
    files = [p for p in project.mentioning(names[0]) if p.name == f"{last}.py"]
    found = [home for home in map(project.index, files) if home not in (None, index)]
    return any(all(name in home.bound_names for name in names) for home in found)


def _lies_nowhere(index: FileIndex, module: str) -> bool:
    """Whether a module is of a folder of the project that has no such file anywhere.

    `problems.heat`, where each `problems` of the project has other modules; one that
    the standard library or a requirement may be is not asked about.
    """
    project = index.project
    head, _, rest = module.partition(".")
    if project is None or not rest or project.owns(index, module):
        return False
    if (
        head in sys.stdlib_module_names
        or head in _PACKAGES
        or _is_required(index, head, True)
    ):
        return False
    folders = {parent for path in project.files for parent in path.parents}
    named = [f for f in folders if f.name == head and f.is_relative_to(project.root)]
    first = rest.partition(".")[0]
    there = (path.name for f in named for path in project.in_folder(f, "*"))
    return bool(named) and first not in {name.partition(".")[0] for name in there}


def _is_required(index: FileIndex, package: str, folder: bool = False) -> bool:
    """Whether a package is asked for, or there where the project does not look.

    `folder`: whether one of that name in the project does not count.
    """
    project = index.project
    assert project is not None
    named = re.compile(rf"\b{package.replace('_', '[-_]')}\b", re.IGNORECASE)
    root = project.root
    asking = (*project.in_folder(root, "*.txt"), *project.in_folder(root, "*.toml"))
    more = (*project.in_folder(root, "*.y*ml"), *project.in_folder(root, "setup.*"))
    texts = (text_of(path) for path in (*asking, *more, *prose(root)))
    return any(map(named.search, texts)) or (
        not folder and any(package in path.parts for path in project.files)
    )


def _is_missing(index: FileIndex, name: str, written: bool = False) -> bool:
    """`package.gone`, where neither the folder nor the module has a `gone`.

    And nothing that it binds, imports or makes up is of that name. `written`: only of
    a package with anything in its `__init__.py`; else another may be meant. A module
    counts where no other file of that name has it.
    """
    project = index.project
    found = project.resolve(index, name) if project is not None else None
    if project is None or found is None or not found[1]:
        return False
    home, (gone, *_) = found
    if gone == "*" or not _lacks(project, home, gone, MAX_STARS):
        return False
    path = home.source.path
    if path.name != "__init__.py":
        others = [p for p in project.mentioning(gone) if p.name == path.name]
        return written and all(
            its is home or gone not in its.bound_names | its.imports.keys()
            for its in map(project.index, others)
            if its is not None
        )
    if written and not home.tree.body:
        return False
    named = (p.name.partition(".")[0] for p in project.in_folder(path.parent, "*"))
    return gone not in named  # nor as what is built or generated


def _lacks(project: Project, home: FileIndex, name: str, depth: int) -> bool:
    """Whether a module has no such name, nor one that it takes all names from."""
    if name in home.bound_names or name in home.imports:
        return False
    if home.source.has(_MAKES_NAMES):
        return False
    for star in home.stars:
        found = project.resolve(home, star)
        if found is None and f".{star}" in home.stars:
            continue  # in a script that lies beside it
        if found is None or found[1] or found[0] is home or not depth:
            return False
        if not _lacks(project, found[0], name, depth - 1):
            return False
    return True
