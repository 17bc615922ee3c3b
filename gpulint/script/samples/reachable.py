"""What the functions of a dataset may run, all of them together."""

from __future__ import annotations

import ast

from gpulint.index import Evaluator, Function
from gpulint.index.build import last_name
from gpulint.index.walk import COMPREHENSIONS, dotted, walk

MAX_FUNCTIONS = 20
_COPIES_FIELDS = frozenset(
    "clone copy deepcopy isinstance is_tensor asarray from_numpy getattr".split()
)


def reachable(entry: Function, evaluator: Evaluator) -> tuple[Function, ...]:
    """The entry method and the functions of this file that it calls or reads."""
    known = evaluator.resolver.calls.reached
    if entry not in known:
        found = [entry]
        for function in found:
            for node in walk(function):
                for used in functions_of(node, evaluator):
                    if used not in found and len(found) < MAX_FUNCTIONS:
                        found.append(used)
        known[entry] = tuple(found)
    return known[entry]


def functions_of(node: ast.AST, evaluator: Evaluator) -> list[Function]:
    """Functions of this file that a node calls, names, or runs by a subscript."""
    resolver = evaluator.resolver
    if isinstance(node, ast.Call):
        callee = resolver.calls.callee(node)
        return [callee] if callee is not None else []
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
        reached = (d.node for d in resolver.definitions(node))
        return [
            d for d in reached if isinstance(d, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
    if isinstance(node, ast.Subscript):
        owners = resolver.classes.of(node.value)
        its = (resolver.classes.methods(owner).get("__getitem__") for owner in owners)
        return [f for f in its if f is not None]
    return []


def looks_up(node: ast.AST) -> bool:
    """`tuple(a[i] for a in self.arrays)`: one look-up in each of a few arrays.

    Or a copy of each field: `{k: v.clone() for k, v in self.samples[i].items()}`, also
    of a record's; or by names that the dataset keeps: `{k: self.data[k][i] for k in
    self.data}`.
    """
    if not isinstance(node, COMPREHENSIONS) or len(node.generators) > 1:
        return False
    made = node.value if isinstance(node, ast.DictComp) else node.elt
    items = node.generators[0].iter
    if isinstance(items, ast.Call) and last_name(items) in ("items", "fields"):
        called = [last_name(n) for n in walk(made) if isinstance(n, ast.Call)]
        return all(name in _COPIES_FIELDS for name in called)
    taken = made.value if isinstance(made, ast.Subscript) else None
    targets = (n.id for n in walk(node.generators[0].target) if isinstance(n, ast.Name))
    if isinstance(taken, ast.Name) and taken.id in targets:
        return True
    asked = items.func if isinstance(items, ast.Call) else None
    keys = isinstance(asked, ast.Attribute) and asked.attr == "keys"
    held = asked.value if isinstance(asked, ast.Attribute) and keys else items
    inside = (n for n in walk(made) if isinstance(n, (ast.Call, ast.BinOp)))
    return (
        (dotted(held) or "").startswith("self.")
        and taken is not None
        and not any(inside)
    )
