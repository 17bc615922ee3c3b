"""Tensors in ordinary memory that no loader could pin: made from arrays and lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Definition, Origin
from gpulint.index.walk import COMPREHENSIONS, compares_values, walk, whole_of
from gpulint.script.copying.columns import SAME_VALUES

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_MAKES_HOST = frozenset(
    f"torch.{n}"
    for n in "from_numpy tensor as_tensor stack cat concat zeros ones full empty rand "
    "randn randint arange".split()
)
HOST_TYPE = re.compile(r"torch\.\w*Tensor$")
_PARTS = frozenset("split chunk unbind iterrows itertuples items".split())


def made_by_hand(script: Script, source: ast.expr, loop: Loop) -> bool:
    """Whether a tensor lies in ordinary memory that no loader could pin.

    Made from an array in the loop, or the loop iterates a list, an array, a generator
    of this file, or the samples of a dataset.
    """
    if made(script, source) or _iterates_by_hand(script, loop):
        return True
    if loop.loaders or not _is_made_a_batch(source):
        return False
    moved = [move.receiver for move, of in script.batch_moves if of is loop]
    return all(map(_is_made_a_batch, moved))  # a batch has its labels beside it


def _is_made_a_batch(source: ast.expr) -> bool:
    """`sample["image"][None]`, `image.unsqueeze(0)`: of what is no batch yet."""
    if isinstance(source, ast.Subscript):
        cut = source.slice
        first = cut.elts[0] if isinstance(cut, ast.Tuple) and cut.elts else cut
        new = isinstance(first, ast.Constant) and first.value is None
        return new or _is_made_a_batch(source.value)
    func = source.func if isinstance(source, ast.Call) else None
    if not isinstance(source, ast.Call) or not isinstance(func, ast.Attribute):
        return False
    axes = [getattr(axis, "value", None) for axis in source.args]
    return (func.attr == "unsqueeze" and axes == [0]) or _is_made_a_batch(func.value)


def made(script: Script, node: ast.expr, depth: int = 0) -> bool:
    """Whether a tensor is made on the host, from an array, a list or nothing."""
    if isinstance(node, ast.Call):
        name = script.index.qualified(node.func) or ""
        if name in _MAKES_HOST or name.startswith("numpy.") or HOST_TYPE.match(name):
            return True
        if name == "torch.autograd.Variable" and node.args:
            return made(script, node.args[0], depth)
        if isinstance(node.func, ast.Attribute) and _keeps_memory(node.func.attr):
            return made(script, node.func.value, depth)
        return False
    if isinstance(node, ast.Subscript):
        return made(script, node.value, depth) or compares_values(node.slice)
    if isinstance(node, ast.Name) and depth < 6:
        return any(_defined(script, d, depth) for d in script.definitions(node))
    return False


def casts_to_host_type(script: Script, call: ast.Call) -> bool:
    """`x.type(torch.FloatTensor)`: who writes that mostly has another type."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "type":
        return False
    name = script.index.qualified(call.args[0]) if len(call.args) == 1 else None
    return HOST_TYPE.match(name or "") is not None


def sends_made(script: Script, loop: Loop) -> bool:
    """Whether a loop copies a tensor that it makes of an array or a list itself."""
    calls = (node for node in walk(loop.node) if isinstance(node, ast.Call))
    return any(
        move is not None and made(script, move.receiver)
        for move in map(script.devices.move, calls)
    )


def _keeps_memory(method: str) -> bool:
    """A view, or a change in place: `.zero_()`, `.fill_(1)`."""
    return method in SAME_VALUES or re.fullmatch(r"[a-z]\w*[a-z]_", method) is not None


def _defined(script: Script, definition: Definition, depth: int) -> bool:
    if definition.kind != "assign" or definition.value is None or definition.path:
        return False
    return made(script, definition.value, depth + 1)


def _iterates_by_hand(script: Script, loop: Loop) -> bool:
    if loop.loaders or not loop.items:
        return False
    origins = [o for i, _ in loop.items for o in script.resolver.origins(i)]
    return bool(origins) and all(_by_hand(script, o) for o in origins)


def _by_hand(script: Script, origin: Origin) -> bool:
    node = origin.expression
    if isinstance(node, (ast.List, ast.Tuple, ast.Dict, *COMPREHENSIONS)):
        return True
    if not isinstance(node, ast.Call):
        return False
    if made(script, node):
        return True  # rows of `torch.from_numpy(images).float()`
    name = script.index.qualified(node.func) or ""
    if name.startswith("numpy.") or name in ("list", "torch.split", "torch.chunk"):
        return True
    if isinstance(node.func, ast.Attribute) and node.func.attr in _PARTS:
        return True
    if any(k.arg == "device" for k in node.keywords):
        return True
    function = script.resolver.calls.callee(node)
    if function is not None:
        return bool(script.resolver.flow(function).yields)
    owner = script.resolver.classes.named(node.func)
    if owner is None:
        return False
    names = script.resolver.classes.base_names(owner)
    return not any(n.endswith(("DataLoader", "Loader")) for n in names)


def read_as_arrays(script: Script, loop: Loop) -> bool:
    """Whether all that a loop passes batches to makes arrays of them first.

    Functions of the project: `image = image.squeeze(0).numpy()`, cut there by NumPy.
    """
    passed = [c for c in loop.calls if any(_of_batch(script, loop, c))]
    return bool(passed) and all(_makes_arrays(script, loop, call) for call in passed)


def _of_batch(script: Script, loop: Loop, call: ast.Call) -> Iterator[ast.expr]:
    """The arguments of a call that are parts of a loop's batches, as they are."""
    for node in (*call.args, *(k.value for k in call.keywords)):
        root = whole_of(node)
        taken = script.definitions(root) if isinstance(root, ast.Name) else ()
        if any(d.kind == "for" for d in taken) and script.batches.loop_of(root) is loop:
            yield node


def _makes_arrays(script: Script, loop: Loop, call: ast.Call) -> bool:
    function = script.resolver.calls.callee(call)
    if function is None:
        return False
    taken = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    left = set(_of_batch(script, loop, call))
    its = script.of(function)
    for name in (a.arg for a in taken):
        given, clear = script.resolver.calls.given(call, function, name)
        if left.isdisjoint(given):
            continue
        reads = [
            node
            for node in walk(function)
            if isinstance(node, ast.Name)
            and node.id == name
            and isinstance(node.ctx, ast.Load)
            and any(d.kind == "parameter" for d in its.definitions(node))
        ]
        if not clear or not reads or not all(_becomes_array(its, n) for n in reads):
            return False
        left.difference_update(given)
    return not left


def _becomes_array(script: Script, node: ast.expr) -> bool:
    """`x` of `x.squeeze(0).cpu().numpy()`."""
    above = script.index.parent(node)
    while isinstance(above, (ast.Attribute, ast.Call, ast.Subscript)):
        part = above.func if isinstance(above, ast.Call) else above.value
        if part is not node:
            return False
        if isinstance(above, ast.Attribute) and above.attr == "numpy":
            return True
        node, above = above, script.index.parent(above)
    return False


def never_pinned(script: Script, source: ast.expr, loop: Loop) -> str | None:
    """Why a copy of a batch waits whatever its options: its memory is not pinned."""
    copied = _copied(script, source, 0)
    if copied is not None:
        line = getattr(copied, "lineno", 0)
        return f"line {line} copies the batch to memory that is not pinned"
    origins = [o for i, _ in loop.items for o in script.resolver.origins(i)]
    names = [_unpinned_of_graphs(script, o.call) for o in origins]
    if not names or None in names:
        return None
    return f"`{names[0]}` does not pin its batches"


def _copied(script: Script, node: ast.expr, depth: int) -> ast.Call | None:
    """Where a tensor on the host is cloned before it goes to the device."""
    if isinstance(node, ast.Call):
        name = script.index.qualified(node.func) or ""
        method = isinstance(node.func, ast.Attribute) and node.func.attr
        if name == "copy.deepcopy" or (method == "clone" and not node.args):
            return node
        if isinstance(node.func, ast.Attribute) and method in SAME_VALUES:
            return _copied(script, node.func.value, depth)
    if not isinstance(node, ast.Name) or depth > 3:
        return None
    values = [d.value for d in script.definitions(node) if d.kind == "assign"]
    found = [_copied(script, v, depth + 1) for v in values if v is not None]
    return found[0] if len(found) == len(script.definitions(node)) == 1 else None


def _unpinned_of_graphs(script: Script, call: ast.Call | None) -> str | None:
    """The name of a graph library's loader that is made without pinned memory."""
    name = script.index.qualified(call.func) or "" if call is not None else ""
    head, _, last = name.rpartition(".")
    if call is None or head.partition(".")[0] not in ("torch_geometric", "dgl"):
        return None
    pins = script.evaluator.argument(call, "pin_memory")
    off = [script.evaluator.values(n).all_in(False, 0) for n in pins.nodes]
    unpinned = pins.absent or (pins.given and all(off))
    return last if last.endswith(("Loader", "Sampler")) and unpinned else None
