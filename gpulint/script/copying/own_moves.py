"""Batches that may be objects, whose `to` takes no `non_blocking`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeGuard

from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.frameworks.trainer_calls import (
    allows_before,
    may_have,
    surely_has,
)
from gpulint.script.loading.collation import run_by, tokenizes
from gpulint.script.loops import Loop

if TYPE_CHECKING:
    from gpulint.script.copying.transfers import Transfer
    from gpulint.script.model import Script

TAKES_OPTIONS = (1, 5)  # PyG's `Data.to(device, *keys, **kwargs)`
IS_PINNED = (1, 7)  # its `Data.pin_memory`
_OWN_MOVE = r"def %s\(\s*self\b([^)]*)\)"
_CLASS = re.compile(r"^class (\w+)(.*)", re.MULTILINE)
_MAKES_BATCHES = re.compile(r"def (?:__getitem__|__iter__|__next__|\w*collate\w*)\(")
_OBJECTS = re.compile(r"target|annot|box|instance|graph", re.IGNORECASE)
# What batches that are tensors have, beside the methods.
TENSOR_ATTRIBUTES = frozenset(
    "shape ndim dtype device T mT H mH real imag data grad grad_fn requires_grad "
    "is_cuda is_leaf is_sparse layout names".split()
)
# Methods that other batches with a `to` of their own do not have. They may well have
# `shape`, `reshape` (nerfstudio's bundles of rays), `clone` (meshes) or `repeat`.
_OF_ARRAYS = frozenset(
    "dim view permute transpose unsqueeze squeeze expand mean sum float long half "
    "numel T".split()
)
_COMPUTES = re.compile(
    r"^torch\.(nn\.functional\.\w+|(?!save$|is_|typename$|device$|tensor$|as_tensor$|"
    r"asarray$|numel$)[a-z]\w*)$"
)
# What people call nothing but tensors.
_OF_TENSORS = re.compile(
    r"(x|y|z|imgs?|images?|pictures?|pixels?|frames?|videos?|clips?|labels?|targets?|"
    r"tensors?|points?|audios?|wavs?|waveforms?|mels?|noise|latents?|masks?|real\w*|"
    r"features?|batch_(x|y|images?))(_\w+|\d)?$",
    re.IGNORECASE,
)
# The first release of transformers whose encodings take `non_blocking`.
ENCODINGS_SINCE = (4, 48)
_VARIABLE = "torch.autograd.Variable"
_TAKES_NONE = "whose `to` takes no `non_blocking` before transformers 4.48"
_TAKES_DEVICE = "whose `to` takes a device alone"
_MAKES_MASK = "create_block_mask("  # of FlexAttention
_OWN_TO = "`%s` is an object, and its `to` may take no `non_blocking`"


def has_own_to(script: Script, transfer: Transfer) -> bool:
    """Whether a whole batch is moved where the project has batches of its own."""
    source = transfer.source
    items = {target for _, target in transfer.loop.items}  # `enumerate` is left out
    whole = isinstance(source, ast.Name) and any(
        d.node in items or (d.path == () and d.kind in ("for", "parameter"))
        for d in script.definitions(source)
    )
    if not whole or _gives_tensor(script, transfer.call):
        return False
    return any(own_moves(script, "to"))


def _gives_tensor(script: Script, moved: ast.Call) -> bool:
    """`part.to(device).long()`: what is moved has a tensor's methods."""
    above = script.index.parent(moved)
    return isinstance(above, ast.Attribute) and above.attr in _OF_ARRAYS


def own_moves(script: Script, method: str) -> Iterator[str]:
    """The project's classes, no modules, whose `to` does not take the option."""
    project = script.index.project
    part = f"def {method}("
    texts = [script.source.text] if project is None else project.texts(part)
    for text in texts:
        for found in re.finditer(_OWN_MOVE % method, text):
            options = found[1]
            if "non_blocking" not in options and "**" not in options:
                classes = _CLASS.findall(text[: found.start()])
                if classes and "Module" not in classes[-1][1]:
                    yield classes[-1][0]


def _is_part_of_batches(
    script: Script, name: str, seen: frozenset[str] = frozenset()
) -> bool:
    """Whether a file that makes samples or batches names a class, or one of its heirs.

    Outside of the class, or in a collate function of its own.
    """
    project = script.index.project
    own = re.compile(rf"^class {name}\b.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
    heir = re.compile(rf"^class (\w+)\(.*\b{name}\b", re.MULTILINE)
    named = re.compile(rf"\b{name}\b")
    for text in () if project is None else project.texts(name):
        if any("collate" in its[0] for its in own.finditer(text)):
            return True
        others = own.sub("", text)
        if _MAKES_BATCHES.search(text) and named.search(others):
            return True
        known = seen | {name}
        heirs = (h for h in heir.findall(others) if h not in known)
        if any(_is_part_of_batches(script, h, known) for h in heirs):
            return True
    return False


def foreign(script: Script, transfer: Transfer) -> str | None:
    """Why the source may be an object whose `to` takes no `non_blocking`."""
    func = transfer.call.func
    if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda"):
        return None
    above = script.index.parent(transfer.call)
    if isinstance(above, ast.Call) and script.index.qualified(above.func) == _VARIABLE:
        return None  # of which tensors alone are made
    source = transfer.source
    for owner in script.index.classes.values():
        if script.modules.is_module_class(owner):
            continue
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == func.attr:
                names = [a.arg for a in [*method.args.args, *method.args.kwonlyargs]]
                if "non_blocking" not in names and method.args.kwarg is None:
                    return f"`{owner.name}.{func.attr}` takes no `non_blocking`"
    for name in own_moves(script, func.attr):
        if _is_part_of_batches(script, name):
            return f"`{name}.{func.attr}` takes no `non_blocking`"
    if _is_any_part(script, source) and script.mentions(_MAKES_MASK):
        return f"`{script.text(source)}` may be a `BlockMask`, {_TAKES_DEVICE}"
    if _may_be_encoding(script, transfer):
        return f"`{script.text(source)}` may be what a tokenizer gives, {_TAKES_NONE}"
    if "torch_geometric" in _heads(script):
        whole = isinstance(source, ast.Name) and _is_target(transfer, source)
        return _of_old_graphs(script) if whole else None
    keyed = _keyed(script, transfer)
    while isinstance(source, ast.Subscript) and isinstance(source.slice, ast.Slice):
        source = source.value  # a part of an object is one of its kind
    if keyed is not None or not isinstance(source, ast.Name):
        return _OWN_TO % keyed if keyed is not None else None
    if _of_detection(script, source, transfer.loop):
        return f"`{source.id}` may be something other than a tensor"
    whole = _is_target(transfer, source)
    in_place = isinstance(script.index.parent(transfer.call), ast.Expr)
    sure = not in_place and _is_surely_tensor(script, transfer, source)
    return _OWN_TO % source.id if whole and not sure else None


def _is_target(transfer: Transfer, source: ast.Name) -> bool:
    """Whether a name is a whole batch, as a loop has it."""
    names = (t for _, t in transfer.loop.items if _is_name(t))
    return any(name.id == source.id for name in names)


def _of_old_graphs(script: Script) -> str | None:
    """Why a graph of PyG, of the releases that the project allows, is no tensor."""
    if allows_before(script, "torch_geometric", TAKES_OPTIONS):
        return "graphs of PyG before 1.5 take no `non_blocking`"
    pinned = may_have(script, "torch_geometric", IS_PINNED)
    return None if pinned else "graphs of PyG before 1.7 are never pinned"


def _is_any_part(script: Script, source: ast.expr) -> bool:
    """Whether a loop takes all values of a dict: `for k, v in batch.items()`."""
    reached = script.definitions(source) if isinstance(source, ast.Name) else ()
    return any(
        isinstance(d.value, ast.Call)
        and isinstance(d.value.func, ast.Attribute)
        and d.value.func.attr in ("items", "values")
        for d in reached
    )


def _is_surely_tensor(script: Script, transfer: Transfer, source: ast.Name) -> bool:
    """Whether a whole batch is a tensor: collated, called or used as only these are.

    Of a loader that nobody sees it may be an object of any package, whose `to` may take
    less than that of a tensor.
    """
    loaders = transfer.loop.loaders
    plain = [x.argument("collate_fn").absent and x.dataset.known for x in loaders]
    if _OF_TENSORS.match(source.id) or (plain and all(plain)):
        return True
    above = script.index.parent(transfer.call)
    given = above.targets if isinstance(above, ast.Assign) else []
    names = {n.id for n in (source, *given) if isinstance(n, ast.Name)}
    return any(
        isinstance(node, ast.Name)
        and node.id in names
        and _is_used_as_tensor(script, node)
        for node in walk(transfer.loop.node)
    )


def _is_used_as_tensor(script: Script, name: ast.Name) -> bool:
    """`x.view(…)`, `x[:, 0]`, `2 * x`, `torch.cat([x])`."""
    above = script.index.parent(name)
    if isinstance(above, ast.Attribute):
        return above.attr in _OF_ARRAYS
    if isinstance(above, ast.Subscript) and above.value is name:
        return isinstance(above.slice, ast.Tuple)
    if isinstance(above, (ast.BinOp, ast.UnaryOp)):
        return not isinstance(above.op, (ast.Mod, ast.Not))
    if isinstance(above, (ast.List, ast.Tuple)):
        above = script.index.parent(above)
    called = script.index.qualified(above.func) if isinstance(above, ast.Call) else ""
    return bool(_COMPUTES.match(called or ""))


def _keyed(script: Script, transfer: Transfer) -> str | None:
    """The name of what is moved, where it is used by keys that no tensor has."""
    above = script.index.parent(transfer.call)
    given = above.targets if isinstance(above, ast.Assign) else []
    names = [n for n in (transfer.source, *given) if isinstance(n, ast.Name)]
    return next((n.id for n in names if _has_keys(script, n, transfer.loop)), None)


def _may_be_encoding(script: Script, transfer: Transfer) -> bool:
    """Whether a loader's collate function may give what a tokenizer makes, whole."""
    source = transfer.source
    key = source.slice if isinstance(source, ast.Subscript) else None
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return False  # a tensor of it
    if isinstance(source, ast.Name) and any(
        last_name(d.value) in ("items", "values")
        for d in script.definitions(source)
        if isinstance(d.value, ast.Call)
    ):
        return False
    return not surely_has(script, "transformers", ENCODINGS_SINCE) and any(
        tokenizes(function) is not None
        for loader in transfer.loop.loaders
        for node in loader.argument("collate_fn").nodes
        for origin in script.resolver.origins(node)
        for function in run_by(origin.node, loader.evaluator)
    )


def _heads(script: Script) -> set[str]:
    return {v.partition(".")[0] for v in script.index.imported}


def _has_keys(script: Script, source: ast.Name, loop: Loop) -> bool:
    """Whether a batch is used by keys or attributes that tensors do not have.

    `source`: a name that reads it, or the one that is given what is moved.
    """
    given = isinstance(source.ctx, ast.Store)
    mine = {source} if given else {d.node for d in script.definitions(source)}
    for node in walk(loop.node):
        if not (isinstance(node, ast.Name) and node.id == source.id):
            continue
        if mine.isdisjoint(d.node for d in script.definitions(node)):
            continue  # another value of that name
        above = script.index.parent(node)
        if isinstance(above, ast.keyword) and above.arg is None:
            return True
        key = above.slice if isinstance(above, ast.Subscript) else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return True
        if isinstance(above, ast.Attribute) and above.attr not in TENSOR_ATTRIBUTES:
            call = script.index.parent(above)
            if not (isinstance(call, ast.Call) and call.func is above):
                return True
    return False


def _of_detection(script: Script, source: ast.Name, loop: Loop) -> bool:
    """Images beside a list of targets, or such targets: often types of their own."""
    for definition in script.definitions(source):
        iterated = dotted(definition.value) or ""
        above = script.index.parent(definition.node)
        if isinstance(above, ast.comprehension) and _OBJECTS.search(iterated):
            return True
    lists = [n for n in walk(loop.node) if isinstance(n, ast.ListComp)]
    boxes = any(isinstance(n.elt, ast.DictComp) for n in lists)
    return boxes and any(source.id == t.id for t in loop.targets)


def _is_name(node: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)
