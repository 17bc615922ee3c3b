"""Parts of a dict that are moved one by one, and put back under their keys."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.walk import LOOPS, walk

if TYPE_CHECKING:
    from gpulint.index.build import FileIndex
    from gpulint.index.resolve import Resolver

_TENSOR_TESTS = frozenset({"is_tensor", "isinstance", "hasattr"})


class PutBack(NamedTuple):
    """What is put under the keys of a dict, and whether it is for each of them.

    `keys` are those of a written list (None: all that the dict has), without those in
    `but`. Not `sure`: only where a value is a tensor, beside texts that stay.
    """

    value: ast.expr
    keys: frozenset[object] | None
    but: frozenset[object]
    sure: bool

    def has(self, key: ast.expr | None) -> bool | None:
        """Whether a key, or each of them (None), is put there; None: nobody knows."""
        if key is None:
            return self.keys is None and not self.but
        if not isinstance(key, ast.Constant):
            return None
        written = self.keys is None or key.value in self.keys
        return written and key.value not in self.but


def put_back(
    resolver: Resolver, name: ast.Name, key: ast.expr | None
) -> PutBack | None:
    """What the last statement before a place puts under a key of a dict.

    `batch["x"] = batch["x"].to(device)`, or for all keys (and `key` None: the dict as a
    whole) `for k in batch: batch[k] = batch[k].to(device)`. Nothing where a statement
    behind that may put something else there, be it under a condition.
    """
    index = resolver.index.home(name)
    for statement in reversed(index.item_writes.get(name.id, ())):
        if (statement.end_lineno or statement.lineno) >= name.lineno:
            continue
        if index.scope(statement) is not index.scope(name):
            continue
        target = _only_target(statement)
        if target is None:
            return None
        if not _is_same(resolver, target.value, name):
            continue
        found = _put(index, statement, target, name)
        its = found.has(key) if found is not None else None
        if found is not None and its:
            updated = _is_updated(index, name, statement)
            return found if not updated else None
        if its is None and not _is_another(target.slice, key):
            return None
    return None


def _only_target(statement: ast.Assign) -> ast.Subscript | None:
    target = statement.targets[0]
    alone = len(statement.targets) == 1 and isinstance(target, ast.Subscript)
    return target if alone and isinstance(target, ast.Subscript) else None


def _is_another(one: ast.expr, key: ast.expr | None) -> bool:
    """Whether two keys are written out and differ."""
    return (
        isinstance(one, ast.Constant)
        and isinstance(key, ast.Constant)
        and one.value != key.value
    )


def _is_updated(index: FileIndex, name: ast.Name, since: ast.Assign) -> bool:
    """`batch.update(others)` between a statement and a place."""
    return any(
        since.lineno < call.lineno < name.lineno
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == name.id
        for call in index.calls_by_name.get("update", ())
    )


def _is_same(resolver: Resolver, one: ast.expr, other: ast.expr) -> bool:
    its = {d.node for d in resolver.definitions(one)}
    return bool(its) and its == {d.node for d in resolver.definitions(other)}


def _put(
    index: FileIndex, statement: ast.Assign, target: ast.Subscript, place: ast.Name
) -> PutBack | None:
    """What a statement puts back before a place that it leads to, if it surely does."""
    around = [a for a in index.ancestors(statement) if not index.inside(place, a)]
    loops = [above for above in around if isinstance(above, LOOPS)]
    keys: frozenset[object] | None = None
    if isinstance(target.slice, ast.Constant) and not loops:
        keys = frozenset([target.slice.value])
    elif len(loops) == 1 and isinstance(loops[0], ast.For):
        over = loops[0]
        if not _is_named(over.target, target.slice):
            return None
        literal = _constants(over.iter)
        if literal is None and not _is_named(over.iter, target.value):
            return None
        keys = literal
    else:
        return None
    but: frozenset[object] = frozenset()
    sure = True
    for above in around:
        if isinstance(above, (ast.ExceptHandler, ast.Match)):
            return None
        if not isinstance(above, ast.If):
            continue
        if not any(index.inside(statement, inner) for inner in above.body):
            return None
        if _asks_for_tensor(above.test):
            sure = False
            continue
        left_out = _left_out(above.test, target.slice)
        if left_out is None:
            return None
        but |= left_out
    return PutBack(statement.value, keys, but, sure)


def _is_named(where: ast.AST, name: ast.expr) -> bool:
    """Whether a name occurs in a loop's targets, or in what it iterates."""
    return isinstance(name, ast.Name) and any(
        isinstance(node, ast.Name) and node.id == name.id for node in walk(where)
    )


def _constants(node: ast.expr) -> frozenset[object] | None:
    """The values of a written list, tuple or set of constants."""
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return None
    if not all(isinstance(item, ast.Constant) for item in node.elts):
        return None
    return frozenset(item.value for item in node.elts if isinstance(item, ast.Constant))


def _asks_for_tensor(test: ast.expr) -> bool:
    """`torch.is_tensor(value)`, `isinstance(value, torch.Tensor)`."""
    func = test.func if isinstance(test, ast.Call) else None
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return name in _TENSOR_TESTS


def _left_out(test: ast.expr, key: ast.expr) -> frozenset[object] | None:
    """The keys for which a test fails: `k != "name"`; None: nobody knows."""
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return None
    if ast.dump(test.left) != ast.dump(key):
        return None
    compared = test.comparators[0]
    if isinstance(test.ops[0], ast.NotEq) and isinstance(compared, ast.Constant):
        return frozenset([compared.value])
    return _constants(compared) if isinstance(test.ops[0], ast.NotIn) else None
