"""The newest torch that can run a script: as declared, or as its code needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import FileIndex
from gpulint.index.walk import walk_scope
from gpulint.script.extensions import builds_only_until
from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Modules that are gone, and the last torch (or the torch of the last torchvision or
# torchtext) that may have them.
_GONE = {
    "torch.utils.ffi": (0, 4),
    "torchtext.legacy": (1, 11),
    "torchvision.models.utils": (1, 12),
    "torch._six": (1, 13),
    "torchvision.transforms.functional_tensor": (2, 1),
}
# What `torchtext.data` had before it became `torchtext.legacy.data`.
_OLD_TEXT = frozenset(
    f"torchtext.data.{name}"
    for name in "Field LabelField NestedField RawField BucketIterator Iterator "
    "TabularDataset".split()
)
# What made extensions in C until torch 0.4, and where these were put.
_BUILDS, _BUILT = "torch.utils.ffi", "_ext"
FIRST_TORCH = (1, 0)  # the first release that gpulint speaks of
# What a loss is until torch 0.4: later, it has no element to take.
_LOSS = re.compile(r"\b(loss|(\w+_)?loss_\w+|\w+_loss|err\w*)\.data\[0\]")


class _Sign(NamedTuple):
    """Code that no torch behind `last` runs; `part` is a string of its text."""

    part: str
    last: tuple[int, int]
    is_in: Callable[[FileIndex], bool]


def runs_only_before(script: Script, release: tuple[int, int]) -> bool:
    """Whether no torch from a release on can run a script in its project."""
    newest = script.newest_torch
    if newest is not None and newest < release:
        return True
    signs = [s for s in _SIGNS if s.last < release and _has(script, s.part)]
    if signs and any(s.is_in(index) for index in run_together(script) for s in signs):
        return True
    if _has(script, "Extension(") and any(
        (last := builds_only_until(index)) is not None and last < release
        for index in run_together(script)
    ):
        return True
    gone = [name for name, last in _GONE.items() if last < release]
    return any(_is_named(script, name) for name in gone) and any(
        _needs(index, name) for index in run_together(script) for name in gone
    )


def _is_named(script: Script, module: str) -> bool:
    """Whether texts of the project have the names of a module; a cheap look."""
    parent, _, last = module.rpartition(".")
    ways = [[module], [f"from {parent} import", last]]
    return any(all(_has(script, part) for part in way) for way in ways)


def _has(script: Script, part: str) -> bool:
    """Whether texts of the project have a string; a cheap look."""
    project = script.index.project
    if project is None or not project.files:
        return part in script.source.text
    return project.mentions(part)


def _needs(index: FileIndex, module: str) -> bool:
    """Whether a file cannot be imported without a module, or what it has built."""
    return any(
        name == module
        or name.startswith(f"{module}.")
        or (module == _BUILDS and _BUILT in name.split("."))
        for name in imports_of(index)
    )


def imports_of(index: FileIndex) -> Iterator[str]:
    """What the import statements name that run whenever the file is imported."""
    for statement in index.tree.body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            yield module
            yield from (f"{module}.{alias.name}" for alias in statement.names)


def _takes_an_element(index: FileIndex) -> bool:
    """`loss.data[0]`, which torch 0.5 raises for: a loss has no dimension."""
    return _LOSS.search(index.source.text) is not None


def _reads_with_fields(index: FileIndex) -> bool:
    """`data.Field()` of `from torchtext import data`."""
    used = {*index.calls, *index.imports.values()}
    heads = (name.split(".")[:3] for name in used)
    return any(".".join(head) in _OLD_TEXT for head in heads)


def _views_a_turned_part(index: FileIndex) -> bool:
    """`correct[:k].view(-1)` of several predictions that were turned by `.t()`.

    Of comparisons of a turned tensor with a copied one, torch 1.7 and later give
    results that lie turned as well, and a part of them has no view of that shape.
    """
    for call in index.calls_by_name.get("view", ()):
        function = index.function(call)
        its = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not isinstance(its, ast.Subscript) or not isinstance(its.value, ast.Name):
            continue
        if function is None or not isinstance(its.slice, ast.Slice):
            continue
        if ast.unparse(call.args[0] if call.args else its) != "-1":
            continue
        if _is_turned(function, its.value.id) and _asks_for_several(index, function):
            return True
    return False


def _is_turned(function: ast.AST, name: str) -> bool:
    """Whether `name` is `pred.eq(…)` where `pred` is what `.t()` gives."""
    made: dict[str, list[ast.expr]] = {}
    for node in walk_scope(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            made.setdefault(node.targets[0].id, []).append(node.value)
    compared = [
        value.func.value
        for value in made.get(name, ())
        if isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "eq"
    ]
    return any(
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "t"
        for turned in compared
        if isinstance(turned, ast.Name)
        for value in made.get(turned.id, ())
    )


def _asks_for_several(index: FileIndex, function: ast.AST) -> bool:
    """Whether a call of a function in its file, or its default, is for `(1, 5)`."""
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    name = getattr(function, "name", "")
    calls = index.calls_by_name.get(name, ())
    given = [k.value for c in calls for k in c.keywords]
    given += [a for c in calls for a in c.args]
    numbers = (
        item.value
        for node in (*given, *function.args.defaults)
        if isinstance(node, (ast.Tuple, ast.List))
        for item in node.elts
        if isinstance(item, ast.Constant)
    )
    return any(isinstance(n, int) and n > 1 for n in numbers)


_SIGNS = (
    _Sign(".data[0]", (0, 4), _takes_an_element),
    _Sign("].view(-1)", (1, 6), _views_a_turned_part),
    _Sign("torchtext", (1, 7), _reads_with_fields),
)
