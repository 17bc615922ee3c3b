"""Tensors in ordinary memory that no loader could pin: made from arrays and lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import Definition, Origin, Target
from gpulint.index.walk import COMPREHENSIONS, dotted, walk, whole_of
from gpulint.script.copying.columns import SAME_VALUES

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_MAKES_HOST = frozenset(
    f"torch.{n}"
    for n in "from_numpy tensor as_tensor stack cat concat zeros ones full empty rand "
    "randn randint arange".split()
)
_COPIES = frozenset(
    f"torch.{n}"
    for n in "cat concat stack hstack vstack tensor Tensor FloatTensor LongTensor "
    "from_numpy gather index_select masked_select clamp clip where "
    "nn.functional.pad".split()
)
_PICKS = frozenset("gather index_select masked_select clamp clip".split())  # methods
_TURNS = frozenset("transpose permute t T mT swapaxes swapdims movedim".split())
_LAYS_OUT = frozenset("reshape contiguous flatten".split())
_CASTS = frozenset("float double half bfloat16 long int".split())
_FORMATS = frozenset(
    f"torch.{n}" for n in "float16 half bfloat16 float32 float float64 double".split()
)
_HOST_TYPE = re.compile(r"torch\.\w*Tensor$")
_LABELS = re.compile(r"_?(targets?|labels?|y|cls|class(es)?|gt)(_\w+)?\d?$")
_PARTS = frozenset("split chunk unbind iterrows itertuples items".split())


def made_by_hand(script: Script, source: ast.expr, loop: Loop) -> bool:
    """Whether a tensor lies in ordinary memory that no loader could pin.

    Made from an array in the loop, or the loop iterates a list, an array or a
    generator of this file.
    """
    return made(script, source) or _iterates_by_hand(script, loop)


def made(script: Script, node: ast.expr, depth: int = 0) -> bool:
    """Whether a tensor is made on the host, from an array or a list."""
    if isinstance(node, ast.Call):
        name = script.index.qualified(node.func) or ""
        if name in _MAKES_HOST or name.startswith("numpy.") or _HOST_TYPE.match(name):
            return True
        if name == "torch.autograd.Variable" and node.args:
            return made(script, node.args[0], depth)
        if isinstance(node.func, ast.Attribute) and _keeps_memory(node.func.attr):
            return made(script, node.func.value, depth)
        return False
    if isinstance(node, ast.Subscript):
        return made(script, node.value, depth) or _is_mask(node.slice)
    if isinstance(node, ast.Name) and depth < 6:
        return any(_defined(script, d, depth) for d in script.definitions(node))
    return False


def _is_mask(cut: ast.expr) -> bool:
    """`index >= 0` of `images[index >= 0]`, which are put together anew."""
    plain = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
    return isinstance(cut, ast.Compare) and isinstance(cut.ops[0], plain)


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


def joined_on_host(script: Script, loops: Iterable[Loop]) -> bool:
    """Whether all that loops copy is made anew of batches before: never pinned.

    But for a single sample's part, as the one number of `batch["focal"][0]`.
    """
    sent = [(its, node) for its, node in _sent(script, loops)]
    joined = [_is_joined(its, node, 0) for its, node in sent if not _is_one(its, node)]
    return bool(joined) and all(joined)


def sends_labels_alone(script: Script, loops: Iterable[Loop]) -> bool:
    """Whether what loops copy is made anew of batches before, but for labels."""
    sent = list(_sent(script, loops))
    anew = [_is_joined(its, node, 0) or made(its, node) for its, node in sent]
    left = [node for (_, node), is_anew in zip(sent, anew, strict=True) if not is_anew]
    names = [(dotted(node) or "").rpartition(".")[2] for node in left]
    return len(left) < len(sent) and all(map(_LABELS.match, names))


def cast_on_host(script: Script, loops: Iterable[Loop]) -> bool:
    """Whether all that loops copy is `x.float()` or the like of a batch.

    Of a batch of another type that is a copy, which is not pinned.
    """
    cast = [_is_cast(its, sent, 0) for its, sent in _sent(script, loops)]
    return bool(cast) and all(cast)


def sends_strided_alone(script: Script, loops: Iterable[Loop]) -> bool:
    """Whether all that loops copy is `x[:, 3:]` or the like, which no memory is of.

    PyTorch lays out a part with gaps anew before it copies that, in ordinary memory
    (`copy_requires_temporaries` in ATen's Copy.cu).
    """
    sent = [_is_strided(its, node, 0) for its, node in _sent(script, loops)]
    return bool(sent) and all(sent)


def is_strided(script: Script, node: ast.expr) -> bool:
    """Whether an expression is a part with gaps, of whatever it is cut from."""
    return _is_strided(script, node, 0)


def _is_strided(script: Script, node: ast.expr, depth: int) -> bool:
    if isinstance(node, ast.Name) and depth < 3:
        made = script.definitions(node)
        return bool(made) and all(
            d.kind == "assign"
            and d.value is not None
            and not d.path
            and _is_strided(script, d.value, depth + 1)
            for d in made
        )
    cut = node.slice if isinstance(node, ast.Subscript) else None
    if not isinstance(cut, ast.Tuple) or len(cut.elts) < 2 or not _is_all(cut.elts[0]):
        return False
    later = cut.elts[1:]
    known = all(
        isinstance(its, (ast.Slice, ast.Constant, ast.UnaryOp)) for its in later
    )
    return known and not all(map(_is_all, later))


def _is_all(part: ast.expr) -> bool:
    """`:`, `...` or a new axis, of which nothing is left out."""
    if isinstance(part, ast.Slice):
        return part.lower is part.upper is part.step is None
    return isinstance(part, ast.Constant) and part.value in (Ellipsis, None)


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


def _sent(script: Script, loops: Iterable[Loop]) -> Iterator[tuple[Script, ast.expr]]:
    """What loops send to a device, with the script of each.

    Where none of them does itself, what the functions send that they call.
    """
    near = list(loops)
    for bodies in ([x.node for x in near], list(_helpers(script, near))):
        found = [
            (its, move.receiver)
            for body in bodies
            for its in [script.of(body)]
            for move in its.moves
            if move.target is not Target.CPU and its.index.inside(move.call, body)
        ]
        if found:
            yield from found
            return


def _helpers(script: Script, loops: Iterable[Loop]) -> Iterator[ast.AST]:
    """The functions to which loops hand their batches, or what these become."""
    for loop in loops:
        its = script.of(loop.node)
        for call in its.index.calls_below(loop.node):
            function = its.resolver.calls.callee(call)
            if function is not None and any(
                its.batches.loop_of(given) is not None or _is_joined(its, given, 0)
                for given in call.args
            ):
                yield function


def _is_cast(script: Script, node: ast.expr, depth: int) -> bool:
    """`x.float()`, `x.type(torch.float16)`, or a part of what has become that."""
    if isinstance(node, ast.Subscript):
        return _is_cast(script, node.value, depth)
    if isinstance(node, ast.Name) and depth < 3:
        made = script.definitions(node)
        return bool(made) and all(
            d.kind == "assign"
            and d.value is not None
            and _is_cast(script, d.value, depth + 1)
            for d in made
        )
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if script.devices.move(node) is not None:
        return _is_cast(script, node.func.value, depth)
    if node.func.attr in ("type", "to") and len(node.args) == 1:
        return script.index.qualified(node.args[0]) in _FORMATS
    return node.func.attr in _CASTS and not node.args


def _is_joined(script: Script, node: ast.expr, depth: int) -> bool:
    """Whether a tensor is made of a batch by `torch.cat`, `torch.tensor` or a cast."""
    for part in walk(node):
        if isinstance(part, ast.Call) and script.index.qualified(part.func) in _COPIES:
            names = (n for a in part.args for n in walk(a) if isinstance(n, ast.Name))
            return any(script.batches.loop_of(n) is not None for n in names)
        if _picks(script, part) or _casts(script, part) or _joins(script, part, depth):
            return True
        if _rearranges(script, part) or _is_filtered(script, part):
            return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return depth < 4 and _is_joined(script, node.func.value, depth + 1)
    if not isinstance(node, ast.Name) or depth > 3:
        return False
    made = script.definitions(node)
    if made and all(d.kind == "parameter" for d in made):
        return _is_given_joined(script, node, depth)
    values = [d.value for d in made if d.kind == "assign"]
    return any(v is not None and _is_joined(script, v, depth + 1) for v in values)


def _is_given_joined(script: Script, parameter: ast.Name, depth: int) -> bool:
    """Whether all callers of a function give it what is made anew of a batch."""
    function = script.index.function(parameter)
    if function is None:
        return False
    given = script.resolver.calls.arguments(function, parameter.id)
    return bool(given) and all(
        _is_joined(script.of(value), value, depth + 1) for value in given or ()
    )


def _is_one(script: Script, node: ast.expr, depth: int = 0) -> bool:
    """Whether a tensor is of one sample of a batch: `x[0]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        held = isinstance(node.value, ast.Subscript)  # `batch["focal"]`
        return held and type(node.slice.value) is int
    if not isinstance(node, ast.Name) or depth:
        return False
    values = [d.value for d in script.definitions(node)]
    return bool(values) and all(v is not None and _is_one(script, v, 1) for v in values)


def _joins(script: Script, node: ast.AST, depth: int) -> bool:
    """Whether a function of the project makes new tensors of a batch that it is given.

    All that it returns holds what `torch.cat` and its like make, or it is given that.
    """
    if not isinstance(node, ast.Call):
        return False
    function = script.resolver.calls.callee(node)
    given = [*node.args, *(k.value for k in node.keywords)]
    if function is None:
        return False
    if any(isinstance(a, ast.Name) and _is_joined(script, a, depth + 1) for a in given):
        return True
    if not any(map(script.batches.loop_of, given)):
        return False
    its = script.of(function)
    returned = its.resolver.flow(function).returns
    return bool(returned) and all(
        value is not None and any(_is_copy(its, part) for part in walk(value))
        for value in returned
    )


def _is_copy(script: Script, node: ast.AST) -> bool:
    """`torch.cat(…)`, or a name that is given one."""
    if isinstance(node, ast.Call):
        picks = isinstance(node.func, ast.Attribute) and node.func.attr in _PICKS
        return picks or script.index.qualified(node.func) in _COPIES
    values = (
        [d.value for d in script.definitions(node)]
        if isinstance(node, ast.Name)
        else []
    )
    return any(isinstance(v, ast.Call) and _is_copy(script, v) for v in values)


def _picks(script: Script, node: ast.AST) -> bool:
    """`x.gather(1, index)` of a batch."""
    func = node.func if isinstance(node, ast.Call) else None
    if not isinstance(func, ast.Attribute) or func.attr not in _PICKS:
        return False
    return script.batches.loop_of(func.value) is not None


def _rearranges(script: Script, node: ast.AST) -> bool:
    """`x.transpose(0, 1).reshape(shape)` of a batch: its numbers in another order."""
    func = node.func if isinstance(node, ast.Call) else None
    if not isinstance(func, ast.Attribute) or func.attr not in _LAYS_OUT:
        return False
    turned = func.value
    names = turned.args if isinstance(turned, ast.Call) else []
    its = turned.func if isinstance(turned, ast.Call) else turned
    if not isinstance(its, ast.Attribute) or its.attr not in _TURNS:
        return False
    of_torch = script.index.qualified(its) == f"torch.{its.attr}"
    source = names[0] if of_torch and names else its.value
    return any(
        script.batches.loop_of(part) is not None
        for part in walk(source)
        if isinstance(part, ast.Name)
    )


def _is_filtered(script: Script, node: ast.AST) -> bool:
    """`images[index >= 0]` of a batch."""
    if not isinstance(node, ast.Subscript) or not _is_mask(node.slice):
        return False
    return script.batches.loop_of(node.value) is not None


def _casts(script: Script, node: ast.AST) -> bool:
    """`x.type(torch.FloatTensor)` of a batch: who writes that has another type."""
    if not isinstance(node, ast.Call) or len(node.args) != 1:
        return False
    func = node.func
    if not isinstance(func, ast.Attribute) or func.attr != "type":
        return False
    host = _HOST_TYPE.match(script.index.qualified(node.args[0]) or "")
    return host is not None and script.batches.loop_of(func.value) is not None


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
