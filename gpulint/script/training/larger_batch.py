"""The rewrite that lets the machine choose a batch, and the learning rate with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.index.walk import COMPREHENSIONS, dotted, walk, whole_of
from gpulint.script.rewriting.edits import (
    CannotFix,
    Edit,
    InsertBefore,
    Replace,
    Rewrite,
)
from gpulint.script.rewriting.syntax import code, set_keywords
from gpulint.script.set_before import is_set_at
from gpulint.script.training.batch_size_reasons import files_of
from gpulint.script.training.learning_rates import OF_BATCH, Rate, rates_to_scale

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script
    from gpulint.script.training.small_batches import SmallBatch

_SIZE = re.compile(r"batch_?size|(^|_)bs(z|$|_)", re.IGNORECASE)
# Whose arguments are sizes of tensors, or numbers of rounds.
_SIZED = frozenset(
    "view reshape zeros ones empty full rand randn randint expand repeat range arange "
    "new_zeros new_ones new_empty unflatten tile randperm".split()
)
_COUNTED = re.compile(
    r"^(global|cur|current)_?(step|iter|iteration)s?$|"
    r"^(max|total|num|n|warm_?up)_?(train_?|training_?)?(steps?|iters?|iterations|updates)$",
    re.IGNORECASE,
)
_SUMMED = re.compile(r"""reduction\s*=\s*["']sum["']|size_average\s*=\s*False""")
# Expressions that are computed later, or not at all.
_LATER = (ast.Lambda, ast.IfExp, ast.BoolOp, *COMPREHENSIONS)
MAX_COLUMNS = 88
_ONE_REFUSED = "BatchNorm1d"
_GPU_CHOICE = "CUDA_VISIBLE_DEVICES"


def larger_batch(script: Script, batch: SmallBatch) -> Rewrite:
    """`runtime.batch_size` and `runtime.scaled_lr`, both or, with CannotFix, none."""
    target = _target(script, batch)
    files = files_of(script, batch.loader)
    loops = _whole_passes(script, batch)
    _check_numbers(script, batch, files)
    runtime, imports = script.names.runtime
    chosen = f"{runtime}.batch_size({batch.size})"
    edits: list[Edit] = [Replace(target, lambda text: f"{runtime}.batch_size({text})")]
    for rate in rates_to_scale(script, loops, files):
        size = _name_at(script, batch, rate.call) or chosen
        edits += _scaled(script, rate, size, batch.size)
    title = "Let the runtime choose the batch size, and the learning rate with it"
    return Rewrite(title, tuple(edits), imports)


def _scaled(script: Script, rate: Rate, size: str, base: int) -> list[Edit]:
    """A variable for the scaled rate, or the call in place where none can be set."""
    options = f'batch_size={size}, base_batch_size={base}, rule="{rate.rule}"'
    function = f"{script.names.runtime[0]}.scaled_lr"
    call = f"{function}({rate.text}, {options})"
    statement = script.index.statement(rate.call)
    name = f"scaled_{rate.option}"
    simple = isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return))
    between = takewhile(lambda n: n is not statement, script.index.ancestors(rate.call))
    simple = simple and not any(isinstance(n, _LATER) for n in between)
    if not simple or name in script.index.bound_names:
        return [_put(rate, call)]
    line = f"{name} = {call}"
    if statement.col_offset + len(line) > MAX_COLUMNS:
        line = f"{name} = {function}(\n    {rate.text}, {options}\n)"
    return [InsertBefore(statement, line), _put(rate, name)]


def _put(rate: Rate, text: str) -> Edit:
    if rate.node is None:
        return Replace(rate.call, set_keywords(**{rate.option: text}))
    return Replace(rate.node, code(text))


def _target(script: Script, batch: SmallBatch) -> ast.expr:
    """The expression that becomes `runtime.batch_size(…)`."""
    value = batch.value
    if value.default:
        raise CannotFix("the number is a default that a caller or user may replace")
    if len(batch.loader.values("batch_size").known) > 1:
        raise CannotFix("the number is written in several places")
    direct = batch.loader.argument("batch_size").direct
    if not script.index.holds(value.node):
        raise CannotFix("the number stands in another file")
    if not isinstance(value.node, ast.Constant) or value.node.value != batch.size:
        raise CannotFix("the number is computed")
    target: ast.expr = value.node
    if direct is not None and not _is_of_batches(script, value.node):
        target = direct
    if _chosen_later(script, target):
        raise CannotFix(f"the GPU is chosen later, by `{_GPU_CHOICE}`")
    return target


def _is_of_batches(script: Script, node: ast.expr) -> bool:
    """Whether a number is written under a name that speaks of batches."""
    above = script.index.parent(node)
    names: list[str] = []
    if isinstance(above, ast.keyword):
        names = [above.arg or ""]
    elif isinstance(above, ast.Dict) and node in above.values:
        key = above.keys[above.values.index(node)]
        names = [str(getattr(key, "value", ""))]
    elif isinstance(above, (ast.Assign, ast.AnnAssign, ast.Tuple)):
        statement = script.index.statement(node)
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        names = [dotted(n) or "" for t in targets if t for n in walk(t)]
    elif isinstance(above, ast.Call) and node in above.args:
        names = [_parameter(script, above, above.args.index(node))]
    return any(map(OF_BATCH.search, names))


def _parameter(script: Script, call: ast.Call, position: int) -> str:
    """What a function of the project, or a loader, calls an argument by position."""
    if any(call is loader.call for loader in script.loaders):
        return "batch_size"
    function = script.resolver.calls.callee(call)
    if function is None:
        return ""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    bound = isinstance(call.func, ast.Attribute) and bool(
        script.resolver.self_name(function)
    )
    return names[position + bound] if position + bound < len(names) else ""


def _chosen_later(script: Script, target: ast.expr) -> bool:
    """Whether the GPU is named when the helper may have looked at one already."""
    return any(
        node.value == _GPU_CHOICE and node.lineno > target.lineno
        for node in script.index.all(ast.Constant)
    )


def _whole_passes(script: Script, batch: SmallBatch) -> list[Loop]:
    """The training loops of the loader, if they go through all of it, and it alone."""
    loops = [loop for loop in batch.loader.loops if loop.train]
    others = [x for x in script.loaders if x is not batch.loader and x.train]
    for loop in loops:
        if len(loop.items) != 1 or any(loop in other.loops for other in others):
            raise CannotFix("the training loop takes batches of several loaders")
        if any(map(_leaves, loop.node.body)):
            raise CannotFix("the training loop may stop before its loader ends")
        around = script.of(loop.node).loops_around(loop.node)
        if any(isinstance(outer.node, ast.While) for outer in around):
            raise CannotFix("training ends after a number of steps")
    return loops


def _leaves(node: ast.AST) -> bool:
    """Whether a statement may end the loop that it is in."""
    if isinstance(node, (ast.Break, ast.Return)):
        return True
    if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
        return False
    if isinstance(node, (ast.For, ast.While)):
        return any(isinstance(n, ast.Return) for n in walk(node))
    return any(map(_leaves, ast.iter_child_nodes(node)))


def _check_numbers(script: Script, batch: SmallBatch, files: list[FileIndex]) -> None:
    """No other number may stand for the batch size, or count steps."""
    ragged = not batch.loader.values("drop_last").all_in(True)
    for index in files:
        if index.source.has(_SUMMED):
            raise CannotFix("the loss is a sum over the batch")
        if _ONE_REFUSED in index.source.text and ragged:
            raise CannotFix(f"`{_ONE_REFUSED}` refuses a last batch of one sample")
        for node in index.all(ast.Compare):
            if any(map(_COUNTED.search, _compared(node))):
                raise CannotFix("something depends on the number of steps")
        for call in index.all(ast.Call):
            if is_given_size(script, call, batch.size, batch.value.node):
                place = f"line {call.lineno}"
                raise CannotFix(f"`{batch.size}` is written as a size in {place} too")


def _compared(node: ast.Compare) -> Iterator[str]:
    """Names that are compared themselves: not in `step % 100 == 0`."""
    for side in (node.left, *node.comparators):
        if isinstance(side, (ast.Name, ast.Attribute)):
            yield (dotted(side) or "").rpartition(".")[2]


def names_batch_size(script: Script, call: ast.Call) -> bool:
    """Whether a call is given something called a batch size, other than a loader."""
    if _makes_loader(script, call):
        return False
    given = [*call.args, *(k.value for k in call.keywords)]
    names = (dotted(node) or "" for node in given)
    return any(_SIZE.search(name.rpartition(".")[2]) for name in names)


def _makes_loader(script: Script, call: ast.Call) -> bool:
    return (script.index.qualified(call.func) or "").endswith("DataLoader")


def is_given_size(script: Script, call: ast.Call, size: int, written: ast.expr) -> bool:
    """Whether a call is given a size again, which is `written` first, as a number."""
    if _makes_loader(script, call):
        return False
    given = [k.value for k in call.keywords if OF_BATCH.search(k.arg or "")]
    if last_name(call) in _SIZED:
        given += call.args
    return any(
        isinstance(node, ast.Constant)
        and type(node.value) is int
        and node.value == size
        and node is not written
        for value in given
        for node in (
            value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
        )
    )


def _name_at(script: Script, batch: SmallBatch, at: ast.Call) -> str | None:
    """How the batch size is called where an optimizer is made, if it has a name."""
    direct = batch.loader.argument("batch_size").direct
    if direct is None or isinstance(direct, ast.Constant):
        return None
    root = whole_of(direct)
    if not isinstance(root, ast.Name) or not _is_of_batches(script, batch.value.node):
        return None
    here, there = script.index.scope(at), script.index.scope(batch.loader.call)
    bound = (root.id in script.resolver.flow(s).definitions for s in (here, there))
    module = script.index.tree
    same = here is there or (
        root is direct
        and not any(
            is_bound and scope is not module
            for is_bound, scope in zip(bound, (here, there), strict=True)
        )
    )
    return script.text(direct) if same and is_set_at(script, root, at) else None
