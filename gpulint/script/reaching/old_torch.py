"""The newest torch that can run a script: as declared, or as its code needs."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import FileIndex
from gpulint.index.walk import walk_scope
from gpulint.script.neighbours import run_together
from gpulint.script.reaching.extensions import builds_only_until
from gpulint.script.reaching.implicit_imports import (
    imports_of,
    imports_what_lies_beside,
)
from gpulint.script.training.two_passes import steps_between_passes

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Modules that are gone, and the last torch (or the torch of the last torchvision or
# torchtext) that may have them.
_GONE = {
    "torch.utils.ffi": (0, 4),
    "torchtext.legacy": (1, 10),
    "torchvision.models.utils": (1, 9),
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
_FUNCTIONS = ("torch.autograd.Function", "torch.autograd.function.Function")
_BUILDS, _BUILT = "torch.utils.ffi", "_ext"
# Functions and classes that are gone, and the last torch that may have them.
_GONE_NAMES = {
    "torch.rfft": (1, 7),
    "torch.irfft": (1, 7),
    "torch.fft": (1, 7),  # a module since
    "torch.ifft": (1, 7),
    "torchvision.transforms.Scale": (1, 10),
    "torchvision.transforms.RandomSizedCrop": (1, 10),
    "torch.set_deterministic": (1, 10),
    "torch.symeig": (1, 13),
    "torch.eig": (1, 13),
    "torch.lstsq": (1, 13),
    "torch.solve": (1, 13),
    "torch._utils._accumulate": (2, 2),
    # Of scipy before 1.2, for Python 3.7 at most, for which 1.13 was the last torch.
    "scipy.misc.imread": (1, 13),
    "scipy.misc.imsave": (1, 13),
    "scipy.misc.imresize": (1, 13),
    "scipy.misc.toimage": (1, 13),
}
# How programs ask for what a release has, and do something else without it.
_ASKS = re.compile(r"hasattr\(torch|torch\.__version__|torch_version|TORCH_VERSION")
_BINARY = ("torch.nn.BCELoss", "torch.nn.functional.binary_cross_entropy")
_WITH_LOGITS = (
    "torch.nn.BCEWithLogitsLoss",
    "torch.nn.functional.binary_cross_entropy_with_logits",
)
_THREE_CHARACTERS = re.compile(
    r"^float\(torchvision\.__version__\[:3\]\) (<= 0\.[2-9]|< 0\.[3-9])$"
)
_ADDRESSES = re.compile(r"^torchvision\.models\.\w+\.model_urls$")
# What a loss is until torch 0.4: later, it has no element to take.
_LOSS = re.compile(
    r"\b(loss|(\w+_)?loss_\w+|\w+_loss|err\w*)(['\"]\])?"
    r"(\.data|(\.cpu\(\)|\.data)+\.numpy\(\))\[0\]"
)


class _Sign(NamedTuple):
    """Code that no torch behind `last` runs; `part` is a string of its text."""

    part: str
    last: tuple[int, int]
    is_in: Callable[[list[FileIndex]], bool]


def runs_only_before(script: Script, release: tuple[int, int]) -> bool:
    """Whether no torch from a release on can run a script in its project."""
    newest, project = script.newest_torch, script.index.project
    if newest is not None and newest < release:
        return True
    if project is None:
        return _has_signs(script, release)
    return project.remembered(
        f"before {release}", script.index.tree, lambda: _has_signs(script, release)
    )


def _has_signs(script: Script, release: tuple[int, int]) -> bool:
    """The same, by the texts of the project and of what runs with the script."""
    signs = [s for s in _SIGNS if s.last < release and script.mentions(s.part)]
    if signs:
        together = run_together(script)
        if any(sign.is_in(together) for sign in signs):
            return True
    if script.mentions("Extension") and any(
        (last := builds_only_until(index)) is not None and last < release
        for index in run_together(script)
    ):
        return True
    gone = [name for name, last in _GONE.items() if last < release]
    return any(_is_named(script, name) for name in gone) and any(
        _needs(index, name) for index in run_together(script) for name in gone
    )


def needs_older_torch(script: Script) -> bool:
    """Whether a program needs what is in no torch that its project allows.

    `from torch._six import inf` beside `torch==2.0.0`: it stops as it starts. Or its
    file has code that all of these refuse.
    """
    oldest = script.torch_version
    if oldest is None:
        return False
    signs = (s for s in _SIGNS if s.last < oldest and s.part in script.source.text)
    if any(sign.is_in([script.index]) for sign in signs):
        return True
    gone = [name for name, last in _GONE.items() if last < oldest]
    named = [name for name in gone if _is_named(script, name)]
    return bool(named) and any(
        imported == name or imported.startswith(f"{name}.")
        for index in run_together(script)
        for imported in imports_of(index)
        for name in named
    )


def _is_named(script: Script, module: str) -> bool:
    """Whether texts of the project have the names of a module; a cheap look."""
    parent, _, last = module.rpartition(".")
    ways = [[module], [f"from {parent} import", last]]
    return any(all(script.mentions(part) for part in way) for way in ways)


def _needs(index: FileIndex, module: str) -> bool:
    """Whether a file cannot be run without a module, or what it has built.

    It is imported with the file, or what is called is named by way of it.
    """
    used = any(name.startswith(f"{module}.") for name in index.called_names)
    if used and not index.source.has(_ASKS):
        return True
    return any(
        name == module
        or name.startswith(f"{module}.")
        or (module == _BUILDS and _BUILT in name.split("."))
        for name in imports_of(index)
    )


def _reads_three_characters(files: list[FileIndex]) -> bool:
    """`if float(torchvision.__version__[:3]) < 0.7:`, which "0.10" is as well.

    Behind it is an import of what torchvision has had before 0.10 alone.
    """
    return any(
        _THREE_CHARACTERS.match(ast.unparse(branch.test))
        and any(isinstance(s, ast.ImportFrom) and _is_of_empty(s) for s in branch.body)
        for index in files
        if "_new_empty_tensor" in index.source.text
        for branch in index.tree.body
        if isinstance(branch, ast.If)
    )


def _is_of_empty(statement: ast.ImportFrom) -> bool:
    return any(alias.name == "_new_empty_tensor" for alias in statement.names)


def _takes_an_element(files: list[FileIndex]) -> bool:
    """`loss.data[0]`, which torch 0.5 raises for: a loss has no dimension."""
    return any(index.source.has(_LOSS) for index in files)


def _unpacks_a_pair(files: list[FileIndex]) -> bool:
    """`scores, _ = pack_padded_sequence(…)`, which gives four parts since torch 1.1."""
    return any(
        isinstance(above, ast.Assign)
        and isinstance(above.targets[0], ast.Tuple)
        and len(above.targets[0].elts) == 2
        for index, call in _calls_of("pack_padded_sequence", files)
        for above in [index.parent(call)]
    )


def _has_functions_with_a_state(files: list[FileIndex]) -> bool:
    """A `torch.autograd.Function` whose `forward` takes `self`: an error since 1.5."""
    return any(
        isinstance(method, ast.FunctionDef)
        and method.name == "forward"
        and not method.decorator_list
        and any(index.qualified(b) in _FUNCTIONS for b in owner.bases)
        for index in files
        for owner in index.classes.values()
        for method in owner.body
    )


def _judges_by_whole_numbers(files: list[FileIndex]) -> bool:
    """`BCELoss()(judged, torch.full((size,), 1))`: integers as labels since 1.6.

    Beside other losses of two classes, of which one is given such labels by a name.
    """
    return any(
        all(k.arg != "dtype" for k in call.keywords)
        and len(call.args) > 1
        and _is_whole(index, call.args[1])
        and (any(map(index.calls.get, _BINARY)) or _is_label(index, call))
        for index in files
        if any(map(index.calls.get, (*_BINARY, *_WITH_LOGITS)))
        for call in index.calls.get("torch.full", ())
    )


def _is_label(index: FileIndex, made: ast.Call) -> bool:
    """Whether `labels = torch.full(…).to(device)` is what a call judges by.

    `criterion(judged, labels)`, of a criterion that is made in the file.
    """
    above = index.statement(made)
    names = {t.id for t in getattr(above, "targets", ()) if isinstance(t, ast.Name)}
    judges = {
        target.id
        for name in _WITH_LOGITS
        for call in index.calls.get(name, ())
        for target in getattr(index.parent(call), "targets", ())
        if isinstance(target, ast.Name)
    }
    return any(
        len(call.args) > 1
        and isinstance(call.args[1], ast.Name)
        and call.args[1].id in names
        for judge in sorted(judges)
        for call in index.calls_by_name.get(judge, ())
    )


def _is_whole(index: FileIndex, node: ast.expr) -> bool:
    """`1`, or a name that only such numbers are given to."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    given = [
        assign.value
        for assign in index.all(ast.Assign)
        if isinstance(node, ast.Name)
        and any(isinstance(t, ast.Name) and t.id == node.id for t in assign.targets)
    ]
    return bool(given) and all(
        isinstance(value, ast.Constant) and type(value.value) is int for value in given
    )


def _calls(name: str, files: list[FileIndex]) -> bool:
    """Whether a file calls what is gone, and does not ask for it."""
    return any(f.calls.get(name) and not f.source.has(_ASKS) for f in files)


def _imports_addresses(files: list[FileIndex]) -> bool:
    """`from torchvision.models.resnet import model_urls`."""
    return any(_ADDRESSES.match(name) for f in files for name in imports_of(f))


def _reads_with_fields(files: list[FileIndex]) -> bool:
    """`data.Field()` of `from torchtext import data`."""
    used = (name for f in files for name in {*f.calls, *f.imported})
    return any(".".join(name.split(".")[:3]) in _OLD_TEXT for name in used)


def _views_a_turned_part(files: list[FileIndex]) -> bool:
    """`correct[:k].view(-1)` of several predictions that were turned by `.t()`.

    Of comparisons of a turned tensor with a copied one, torch 1.7 and later give
    results that lie turned as well, and a part of them has no view of that shape.
    """
    for index, call in _calls_of("view", files):
        function = index.function(call)
        its = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not isinstance(its, ast.Subscript) or not isinstance(its.value, ast.Name):
            continue
        if function is None or not isinstance(its.slice, ast.Slice):
            continue
        if ast.unparse(call.args[0] if call.args else its) != "-1":
            continue
        if _is_turned(function, its.value.id) and _asks_for_several(files, function):
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


def _asks_for_several(files: list[FileIndex], function: ast.AST) -> bool:
    """Whether a call of a function, or its default, is for `(1, 5)`."""
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    name = getattr(function, "name", "")
    calls = [call for _, call in _calls_of(name, files)]
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


def _calls_of(
    name: str, files: list[FileIndex]
) -> Iterator[tuple[FileIndex, ast.Call]]:
    """The calls of whatever has that name, each with its file."""
    return ((f, call) for f in files for call in f.calls_by_name.get(name, ()))


def _asks_a_loader_for_its_next(files: list[FileIndex]) -> bool:
    """`iter(loader).next()`, which the iterators of loaders had until torch 1.12."""
    for index, call in _calls_of("next", files):
        if not isinstance(call.func, ast.Attribute) or call.args or call.keywords:
            continue
        its = call.func.value
        if _iterates_a_loader(its):
            return True
        scope = index.function(call) or index.tree
        made = [
            node.value
            for node in walk_scope(scope)
            if isinstance(node, ast.Assign)
            and any(ast.unparse(t) == ast.unparse(its) for t in node.targets)
        ]
        if made and all(_iterates_a_loader(value) for value in made):
            return True
    return False


def _iterates_a_loader(value: ast.expr) -> bool:
    """`iter(train_loader)`, by the name of what it is given."""
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == "iter"
        and len(value.args) == 1
        and "load" in ast.unparse(value.args[0]).lower()
    )


def _keeps_data_and_targets(files: list[FileIndex]) -> bool:
    """`TensorDataset(data_tensor=x, target_tensor=y)`: any tensors since torch 0.4."""
    return any(
        keyword.arg == "data_tensor"
        for _, call in _calls_of("TensorDataset", files)
        for keyword in call.keywords
    )


def _takes_parts_of_information(files: list[FileIndex]) -> bool:
    """`torchaudio.info(path)[0]`: one object since torchaudio 0.8, of torch 1.8."""
    return any(
        isinstance(above, ast.Subscript) and above.value is call
        for index, call in _calls_of("info", files)
        if index.qualified(call.func) == "torchaudio.info"
        for above in [index.parent(call)]
    )


def uses_first_spconv(files: list[FileIndex]) -> bool:
    """`spconv.SubMConv3d(…)`, which spconv 2 has in `spconv.pytorch`.

    The first builds with headers that torch 1.11 has no more, and computes in float32
    alone. A program that asks for both runs with the newer.
    """
    return not any("spconv.pytorch" in index.source.text for index in files) and any(
        _OF_SPCONV.match(name) for index in files for name in index.calls
    )


_OF_SPCONV = re.compile(r"spconv\.(SubMConv|Sparse(Conv|Sequential|Inverse|MaxPool))")
_SIGNS = (
    _Sign("spconv", (1, 10), uses_first_spconv),
    _Sign("torchvision.__version__[:3]", (1, 8), _reads_three_characters),
    _Sign("torchaudio.info(", (1, 7), _takes_parts_of_information),
    _Sign("retain_graph=True", (1, 4), steps_between_passes),
    _Sign("data_tensor", (0, 3), _keeps_data_and_targets),
    _Sign(".data[0]", (0, 4), _takes_an_element),
    _Sign(".numpy()[0]", (0, 4), _takes_an_element),
    _Sign("pack_padded_sequence", (1, 0), _unpacks_a_pair),
    _Sign("torch.full(", (1, 5), _judges_by_whole_numbers),
    _Sign("import", (1, 4), imports_what_lies_beside),
    _Sign("Function", (1, 4), _has_functions_with_a_state),
    *(
        _Sign(name.rpartition(".")[2] + "(", last, functools.partial(_calls, name))
        for name, last in _GONE_NAMES.items()
    ),
    _Sign("model_urls", (1, 13), _imports_addresses),
    _Sign("].view(-1)", (1, 6), _views_a_turned_part),
    _Sign("torchtext", (1, 7), _reads_with_fields),
    _Sign(".next()", (1, 12), _asks_a_loader_for_its_next),
)
