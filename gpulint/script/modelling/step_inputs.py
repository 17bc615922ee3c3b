"""How large the inputs of a training step are: rows of a batch, pixels of a picture."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import inf, prod
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted
from gpulint.script.bounds import at_most
from gpulint.script.loading.iterated_loaders import loaders_of
from gpulint.script.loading.loader_classes import LOADER
from gpulint.script.neighbours import run_together
from gpulint.script.reaching.commands import is_passed
from gpulint.script.samples.small_samples import small_samples

if TYPE_CHECKING:
    from gpulint.script.model import Script
    from gpulint.script.training.training_step import Step

MAX_DEPTH = 6  # calls and subscripts around the rows that are taken
_MOVES = frozenset("to cuda float long double half int contiguous".split())
_SHAPED = frozenset(["view", "reshape"])


def most_rows(script: Script, step: Step) -> float:
    """The most rows that a batch of a step has; infinite where that is not known."""
    made = loaders_of(script, step.loop)
    sizes = [loader.values("batch_size") for loader in made]
    if not sizes:
        return min(_rows_of_any(script, step), _rows_taken(script, step))
    if not all(its.complete for its in sizes):
        return inf
    numbers = [v.constant for its in sizes for v in its.known]
    whole = [n for n in numbers if isinstance(n, int)]
    return max(whole, default=inf) if len(whole) == len(numbers) else inf


def largest_side(script: Script, step: Step) -> float:
    """The side of the largest pictures that a step takes; infinite: not known."""
    made = loaders_of(script, step.loop)
    found = [small_samples(script.of(loader.call), loader) for loader in made]
    sides = [its.side if its is not None else None for its in found]
    known = [side for side in sides if side is not None]
    return max(known, default=inf) if len(known) == len(sides) else inf


def most_positions(script: Script, step: Step) -> float:
    """The pixels of a picture, or points of a sequence, that a step takes at most.

    The batch may be given its shape on the way: `x.view(-1, channels, 1, 128)`.
    """
    if (side := largest_side(script, step)) < inf:
        return side**2
    given = step.forward.args if step.forward is not None else []
    made = script.resolver.origins(given[0]) if given else ()
    return max((_positions(script, o.expression) for o in made), default=inf)


def _positions(script: Script, node: ast.expr | None) -> float:
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in _SHAPED:
        return inf
    sizes = node.args
    if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
        sizes = sizes[0].elts
    if len(sizes) not in (3, 4):
        return inf
    numbers = [at_most(script, size) for size in sizes[2:]]
    return prod(numbers) if min(numbers) > 0 else inf


def _rows_of_any(script: Script, step: Step) -> float:
    """The most rows in batches of any loader, where a step takes those of one."""
    names = [dotted(_holder(iterable)) or "" for iterable, _ in step.loop.items]
    if not any("loader" in name.lower() for name in names):
        return inf
    return rows_of_all(script)


def rows_of_all(script: Script) -> float:
    """The most rows in batches of all loaders of a program; infinite: not known."""
    return max((_rows(script, call) for call in _loaders(script)), default=inf)


def gives_single_rows(script: Script) -> bool:
    """Whether all loaders of a program give one row, unless a command asks for more."""
    if rows_of_all(script) > 1:
        return False
    sizes = [
        script.evaluator.argument(call, "batch_size", 1) for call in _loaders(script)
    ]
    values = [
        v for s in sizes for n in s.nodes for v in script.evaluator.values(n).known
    ]
    return not any(v.default and is_passed(script, v) for v in values)


def _holder(node: ast.expr) -> ast.expr:
    """`loaders` of `loaders[task]`."""
    return _holder(node.value) if isinstance(node, ast.Subscript) else node


def _loaders(script: Script) -> Iterator[ast.Call]:
    """All calls of a program that may make a loader, those of its functions aside."""
    for index in run_together(script):
        for name, calls in index.calls.items():
            if name.lower().endswith("loader"):
                yield from (c for c in calls if not _makes_no_loader(script, c))


def _makes_no_loader(script: Script, call: ast.Call) -> bool:
    """Whether a call runs a function of the program, or makes a dataset of it."""
    if script.resolver.calls.callees(call) or _runs_lambda(script, call):
        return True
    owner = script.resolver.classes.named(call.func)
    names = script.resolver.classes.base_names(owner) if owner is not None else ()
    return any(name.endswith("Dataset") for name in names)


def _runs_lambda(script: Script, call: ast.Call) -> bool:
    """`make_loader()`, of `make_loader = lambda: DataLoader(…)`."""
    if not isinstance(call.func, ast.Name):
        return False
    made = [origin.expression for origin in script.resolver.origins(call.func)]
    return any(isinstance(node, ast.Lambda) for node in made)


def _rows(script: Script, call: ast.Call) -> float:
    """The most rows in batches of a DataLoader of PyTorch; infinite: not known."""
    argument = script.evaluator.argument
    if script.index.home(call).qualified(call.func) != LOADER:
        return inf
    if not argument(call, "batch_sampler", 4).absent:
        return inf
    size = argument(call, "batch_size", 1)
    if size.absent:
        return 1
    return max((at_most(script, n) for n in size.nodes if size.given), default=inf)


def _rows_taken(script: Script, step: Step) -> float:
    """The most rows of `x[i : i + size]`, which a step itself takes of its data."""
    given = step.forward.args if step.forward is not None else []
    return _rows_of(script, given[0], 0) if given else inf


def _rows_of(script: Script, node: ast.expr, depth: int) -> float:
    made = [origin.expression for origin in script.resolver.origins(node)]
    found = [_rows_in(script, n, depth) if n is not None else inf for n in made]
    return max(found, default=inf)


def _rows_in(script: Script, node: ast.expr, depth: int) -> float:
    """The same, of `x[i : i + size]`, `x[order[i : i + size]]`, and moves of these."""
    if depth > MAX_DEPTH:
        return inf
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in _MOVES:
            return inf
        return _rows_of(script, node.func.value, depth + 1)
    if not isinstance(node, ast.Subscript):
        return inf
    rows = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
    if not isinstance(rows, ast.Slice):
        return _rows_of(script, rows, depth + 1)
    if rows.upper is None or rows.step is not None:
        return inf
    if rows.lower is None:
        return at_most(script, rows.upper)
    return _beyond(script, rows.lower, rows.upper)


def _beyond(script: Script, start: ast.expr, end: ast.expr) -> float:
    """How far `i + size` is beyond `i`."""
    made = [origin.expression for origin in script.resolver.origins(end)]
    sums = [n for n in made if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Add)]
    if len(sums) < len(made) or any(ast.dump(n.left) != ast.dump(start) for n in sums):
        return inf
    return max((at_most(script, n.right) for n in sums), default=inf)
