"""Operations that make the host wait for the device, though they read nothing."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Where
from gpulint.index.walk import compares_values, dotted, walk_scope

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Their results are as large as the values say, which the host has to ask for. Not
# `masked_select`, whose sums and means need no selection.
MEASURING = frozenset(
    f"torch.{name}"
    for name in "nonzero argwhere where unique unique_consecutive bincount".split()
) | frozenset(
    f"{module}.{name}"
    for module in ("torch_cluster", "torch_geometric.nn", "torch_geometric.nn.pool")
    for name in "radius radius_graph knn knn_graph".split()
)
# They look whether it went well; not those that end in `_ex`, by themselves.
_CHECKED = frozenset(
    f"torch.linalg.{name}"
    for name in "cholesky cond eig eigh eigvals eigvalsh inv ldl_factor lu_factor "
    "matrix_rank pinv solve svd svdvals".split()
) | frozenset(f"torch.{name}" for name in "cholesky inverse pinverse svd".split())
# torchvision's, which copy the mean and deviation of pictures from lists.
_NORMALIZES = re.compile(
    r"torchvision\.transforms\.(v2\.)?functional\.normalize(_image|_video)?$"
)
_NORMALIZER = re.compile(r"torchvision\.transforms\.(v2\.)?Normalize$")
_OF_LISTS = ("torch.tensor", "torch.as_tensor", "torch.Tensor", "numpy.array")
# They return what all ranks have made of it; those that end in `_async` do not wait.
_OF_RANKS = frozenset(
    f"horovod.torch.{name}"
    for name in "allgather allreduce allreduce_ alltoall broadcast broadcast_ "
    "grouped_allreduce synchronize".split()
)
# Not `numpy.random.randint(n)`, which may be one number.
_ARRAY = re.compile(
    r"numpy\.(random\.(choice|permutation)|arange|array|where|argsort)$"
)
_IN_FEW_BITS = "bitsandbytes.optim."
_UPDATES = ("update", "update_parameters")
_AVERAGE_OF_TORCH = "torch.optim.swa_utils.AveragedModel"


def measures_size(script: Script, node: ast.AST) -> bool:
    """Whether a call waits for values of the device, to know how much it gives.

    `mask.nonzero()`, `torch.bincount(labels)`, `losses[labels > 0]`; what is joined
    with others by `torch.where(mask, x, y)` has a known size.
    """
    if isinstance(node, ast.Subscript):
        read = isinstance(node.ctx, ast.Load)
        return read and _is_mask(script, node.slice) and _is_there(script, node.value)
    if not isinstance(node, ast.Call):
        return False
    name = script.index.qualified(node.func) or ""
    func = node.func
    if name in MEASURING:
        given = node.args[:1]
        if name == "torch.where" and len(node.args) + len(node.keywords) != 1:
            return False
    elif isinstance(func, ast.Attribute) and f"torch.{func.attr}" in MEASURING:
        given = [] if func.attr == "where" else [func.value]
    else:
        return False
    return any(_is_there(script, value) for value in given)


def checks_result(script: Script, node: ast.AST) -> bool:
    """`torch.linalg.inv(x)`, `x.inverse()`, which ask the device whether they failed.

    Source: notes of the functions' documentation.
    """
    if not isinstance(node, ast.Call):
        return False
    func = node.func
    if (script.index.qualified(func) or "") in _CHECKED:
        return bool(node.args) and _is_there(script, node.args[0])
    if not isinstance(func, ast.Attribute) or f"torch.{func.attr}" not in _CHECKED:
        return False
    return _is_there(script, func.value)


def normalizes(script: Script, node: ast.AST) -> bool:
    """`Normalize(mean, std)(images)` of torchvision, for pictures on the device.

    Source: `torch.as_tensor(mean, device=…)` in torchvision's `_functional_tensor.py`
    and `v2/functional/_misc.py`.
    """
    if not isinstance(node, ast.Call) or not node.args:
        return False
    its = script.of(node)
    if not _NORMALIZES.match(its.index.qualified(node.func) or ""):
        made = [origin.call for origin in its.resolver.origins(node.func)]
        names = ((c and its.index.home(c).qualified(c.func)) or "" for c in made)
        if not made or not all(map(_NORMALIZER.match, names)):
            return False
    return _is_there(its, node.args[0])


def _is_there(script: Script, node: ast.expr) -> bool:
    return Where.DEVICE in script.where(node)


def _is_mask(script: Script, node: ast.expr, depth: int = 2) -> bool:
    """Whether an index is a comparison of a tensor on the device, or made of some."""
    if isinstance(node, ast.Compare):
        return compares_values(node) and _is_there(script, node.left)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return _is_mask(script, node.operand, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        return _is_mask(script, node.left, depth)
    made = script.definitions(node) if isinstance(node, ast.Name) and depth else ()
    return bool(made) and all(
        d.kind == "assign"
        and d.value is not None
        and not d.path
        and _is_mask(script, d.value, depth - 1)
        for d in made
    )


def reads_list(script: Script, node: ast.AST) -> bool:
    """`torch.tensor(losses)` of a list of tensors on the device: reads each of them."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    if script.index.qualified(node.func) not in _OF_LISTS:
        return False
    made = [origin.node for origin in script.resolver.origins(node.args[0])]
    listed = bool(made) and all(isinstance(m, (ast.List, ast.ListComp)) for m in made)
    return listed and _is_there(script, node.args[0])


def updates_average(script: Script, node: ast.AST) -> bool:
    """`average.update_parameters(model)`, `ema.update()` of ema-pytorch on the device.

    Both count their updates in a tensor. The host reads it; or torch's copies it to the
    device, if it has stayed on the host.
    """
    func = node.func if isinstance(node, ast.Call) else None
    if not isinstance(func, ast.Attribute) or func.attr not in _UPDATES:
        return False
    made = [origin.call for origin in script.resolver.origins(func.value)]
    names = {call and script.index.qualified(call.func) for call in made}
    if names == {_AVERAGE_OF_TORCH}:
        return True
    moved = {dotted(move.receiver) for move in script.moves}
    return names == {"ema_pytorch.EMA"} and dotted(func.value) in moved


def joins_ranks(script: Script, node: ast.AST) -> bool:
    """`hvd.allgather(x)`: Horovod waits until the device has what it gives."""
    if not isinstance(node, ast.Call):
        return False
    return (script.of(node).index.qualified(node.func) or "") in _OF_RANKS


def steps_engine(script: Script, node: ast.AST) -> bool:
    """`engine.step()` of DeepSpeed, behind `engine.backward(loss)`.

    Its throughput timer waits for the device at the end of each step.
    """
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr != "step" or node.args:
        return False
    return "backward" in _asked_of_engine(script, node, node.func.value)


def steps_in_few_bits(script: Script, node: ast.AST) -> bool:
    """`optimizer.step()` of bitsandbytes, which waits behind each weight's update."""
    func = node.func if isinstance(node, ast.Call) else None
    if not isinstance(func, ast.Attribute) or func.attr != "step":
        return False
    if not script.mentions("bitsandbytes"):
        return False
    return any(
        origin.call is not None
        and (
            script.index.home(origin.call).qualified(origin.call.func) or ""
        ).startswith(_IN_FEW_BITS)
        for origin in script.of(node).resolver.origins(func.value)
    )


def runs_engine(script: Script, node: ast.AST) -> bool:
    """`engine(batch)` of DeepSpeed, in front of its `backward` and `step`.

    Its throughput timer waits for the device before each forward pass of a training.
    """
    if not isinstance(node, ast.Call):
        return False
    return {"backward", "step"} <= _asked_of_engine(script, node, node.func)


def _asked_of_engine(script: Script, node: ast.AST, engine: ast.expr) -> set[str]:
    """What the function around a node calls of DeepSpeed's engine that has a name."""
    name = dotted(engine)
    if name is None or not script.mentions("deepspeed"):
        return set()
    return {
        call.func.attr
        for call in walk_scope(script.index.home(node).scope(node))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and bool(call.args) is (call.func.attr == "backward")
        and dotted(call.func.value) == name
    }


def picks_by_values(script: Script, node: ast.AST) -> bool:
    """`points[:, numpy.random.choice(n, k)]`, `x[:, [2, 1, 0]]`: a copied index.

    Or a part of an array of the host's, `advantages[order[start:end]]`.
    """
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return False
    cut = node.slice
    parts = cut.elts if isinstance(cut, ast.Tuple) else [cut]
    its = script.of(node)
    made = [o.call for part in parts for o in its.resolver.origins(part)]
    arrays = (its.index.qualified(call.func) or "" for call in made if call is not None)
    written = any(isinstance(part, ast.List) for part in parts)
    taken = any(_is_part_of_array(its, part) for part in parts)
    picked = written or taken or any(map(_ARRAY.match, arrays))
    return picked and _is_of_device(its, node.value)


def _is_part_of_array(script: Script, index: ast.expr) -> bool:
    """`chosen`, where `chosen = order[start:end]` takes some of an array's numbers."""
    made = [origin.expression for origin in script.resolver.origins(index)]
    return bool(made) and all(
        isinstance(part, ast.Subscript)
        and isinstance(part.slice, ast.Slice)
        and _is_array(script, part.value)
        for part in made
    )


def _is_array(script: Script, node: ast.expr) -> bool:
    made = [origin.call for origin in script.resolver.origins(node)]
    return bool(made) and all(
        call is not None and _ARRAY.match(script.index.qualified(call.func) or "")
        for call in made
    )


def _is_of_device(script: Script, node: ast.expr) -> bool:
    """Whether a tensor is on the device, or made by a call that is given one there."""
    if script.where(node) == Where.DEVICE:
        return True
    made = [origin.call for origin in script.resolver.origins(node)]
    return bool(made) and all(
        call is not None
        and script.where(call) == Where.UNKNOWN
        and any(script.where(value) == Where.DEVICE for value in call.args)
        for call in made
    )
