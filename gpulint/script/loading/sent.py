"""What loops send to a device: made anew of batches, cast, or cut with gaps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import Target
from gpulint.index.walk import compares_values, dotted, walk
from gpulint.script.loading.pageable import casts_to_host_type, made
from gpulint.script.reads import SHARES

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_COPIES = frozenset(
    f"torch.{n}"
    for n in "cat concat stack hstack vstack tensor Tensor FloatTensor LongTensor "
    "from_numpy gather index_select masked_select clamp clip where "
    "nn.functional.pad".split()
)
_PICKS = frozenset("gather index_select masked_select clamp clip".split())  # methods
_VIEWS = frozenset("transpose permute view squeeze unsqueeze flatten".split())
_TURNS = frozenset("transpose permute t T mT swapaxes swapdims movedim".split())
_LAYS_OUT = frozenset("reshape contiguous flatten".split())
_CASTS = frozenset("float double half bfloat16 long int".split())
_FORMATS = frozenset(
    f"torch.{n}" for n in "float16 half bfloat16 float32 float float64 double".split()
)
_SCALES = re.compile(r"(^|_)(normali[sz]e|standardi[sz]e)(_|$)", re.IGNORECASE)
_LENGTHS = re.compile(r"(^|[._])len(gth)?s?$")
_LABELS = re.compile(r"_?(targets?|labels?|y|cls|class(es)?|gt)(_\w+)?\d?$")


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


def is_cast(script: Script, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is `x.type(torch.FloatTensor)`, by whatever name.

    A new tensor in ordinary memory, unless `x` is of that type.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if casts_to_host_type(script, node):
            return True
        return node.func.attr in SHARES and is_cast(script, node.func.value, depth)
    if not isinstance(node, ast.Name) or depth > 3:
        return False
    values = [d.value for d in script.definitions(node)]
    return bool(values) and all(
        v is not None and is_cast(script, v, depth + 1) for v in values
    )


def sends_strided_alone(script: Script, loops: Iterable[Loop]) -> bool:
    """Whether all that loops copy is `x[:, 3:]` or the like, which no memory is of.

    PyTorch lays out a part with gaps anew before it copies that, in ordinary memory
    (`copy_requires_temporaries` in ATen's Copy.cu). A length of each sample may be sent
    as it is, and what is made beside the batch.
    """
    sent = [
        _is_strided(its, node, 0)
        for its, node in _sent(script, loops)
        if not _LENGTHS.search(dotted(node) or "") and not made(its, node)
    ]
    return bool(sent) and all(sent)


def is_strided(script: Script, node: ast.expr) -> bool:
    """Whether an expression is a part with gaps, of whatever it is cut from."""
    return _is_strided(script, node, 0)


def _is_strided(script: Script, node: ast.expr, depth: int) -> bool:
    if isinstance(node, ast.Name) and depth < 3:
        defined = script.definitions(node)
        return bool(defined) and all(
            d.kind == "assign"
            and d.value is not None
            and not d.path
            and _is_strided(script, d.value, depth + 1)
            for d in defined
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
    """`x.float()`, `x.type(torch.float16)`, or a part or view of what is that."""
    if isinstance(node, ast.Subscript):
        return _is_cast(script, node.value, depth)
    if isinstance(node, ast.Name) and depth < 3:
        defined = script.definitions(node)
        return bool(defined) and all(
            d.kind == "assign"
            and d.value is not None
            and _is_cast(script, d.value, depth + 1)
            for d in defined
        )
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if script.devices.move(node) is not None or node.func.attr in _VIEWS:
        return _is_cast(script, node.func.value, depth)
    if node.func.attr in ("type", "to") and len(node.args) == 1:
        return script.index.qualified(node.args[0]) in _FORMATS
    return node.func.attr in _CASTS and not node.args


def _is_joined(script: Script, node: ast.expr, depth: int) -> bool:
    """Whether a tensor is made of a batch by `torch.cat`, `torch.tensor` or a cast.

    Or by arithmetic, `(x - mean) / deviation`.
    """
    if _computes(node):
        return _holds_batch(script, node)
    for part in walk(node):
        if isinstance(part, ast.Call) and script.index.qualified(part.func) in _COPIES:
            return any(_holds_batch(script, value) for value in part.args)
        if _picks(script, part) or _casts(script, part) or _joins(script, part, depth):
            return True
        if _rearranges(script, part) or _is_filtered(script, part):
            return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return depth < 4 and _is_joined(script, node.func.value, depth + 1)
    if not isinstance(node, ast.Name) or depth > 3:
        return False
    defined = script.definitions(node)
    if defined and all(d.kind == "parameter" for d in defined):
        return _is_given_joined(script, node, depth)
    values = [d.value for d in defined if d.kind == "assign"]
    return any(v is not None and _is_joined(script, v, depth + 1) for v in values)


def _holds_batch(script: Script, node: ast.AST) -> bool:
    """Whether an expression names a batch of a loop, or a part of one."""
    names = (n for n in walk(node) if isinstance(n, ast.Name))
    return any(script.batches.loop_of(n) is not None for n in names)


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
        named = _SCALES.search((dotted(node.func) or "").rpartition(".")[2])
        return bool(named) and _holds_batch(script, node)
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


def _computes(node: ast.AST | None) -> bool:
    """`x - mean`, which makes a new tensor; `+` may join lists."""
    operators = (ast.Sub, ast.Mult, ast.Div)
    return isinstance(node, ast.BinOp) and isinstance(node.op, operators)


def _is_copy(script: Script, node: ast.AST) -> bool:
    """`torch.cat(…)`, or a name that is given one or computed."""
    if isinstance(node, ast.Call):
        picks = isinstance(node.func, ast.Attribute) and node.func.attr in _PICKS
        return picks or script.index.qualified(node.func) in _COPIES
    values = (
        [d.value for d in script.definitions(node)]
        if isinstance(node, ast.Name)
        else []
    )
    return any(
        _computes(v) or (isinstance(v, ast.Call) and _is_copy(script, v))
        for v in values
    )


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
    if not isinstance(node, ast.Subscript) or not compares_values(node.slice):
        return False
    return script.batches.loop_of(node.value) is not None


def _casts(script: Script, node: ast.AST) -> bool:
    """`x.type(torch.FloatTensor)` of a batch."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    whole = script.batches.loop_of(node.func.value)
    return whole is not None and casts_to_host_type(script, node)
