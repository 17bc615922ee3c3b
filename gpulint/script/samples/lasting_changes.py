"""Changes that outlive a sample: of the dataset, of an object, of global variables."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.index import Evaluator, Function
from gpulint.index.build import last_name
from gpulint.index.walk import walk, whole_of
from gpulint.script.samples.reachable import reachable

MAX_DEPTH = 3  # names and calls, from a change back to the dataset
_MUTATORS = frozenset(
    "append extend insert pop popitem remove clear update setdefault add discard sort "
    "reverse appendleft popleft".split()
)
_CHAINS = ("Compose", "Sequential")  # what puts several transforms into one
_WRITERS = frozenset(
    "numpy.copyto numpy.put numpy.place numpy.putmask numpy.random.shuffle setattr "
    "random.shuffle heapq.heappush heapq.heappop heapq.heapify heapq.heapreplace "
    "next".split()
)


def changes_its_object(method: Function, evaluator: Evaluator) -> bool:
    """Whether a method, or what it calls, changes the object or global variables."""
    return change_their_object(reachable(method, evaluator), evaluator)


def change_their_object(bodies: tuple[Function, ...], evaluator: Evaluator) -> bool:
    """Whether a sample changes the dataset: each worker would change its own copy."""
    for function in bodies:
        for node in walk(*function.body):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                return True
            changed = changed_by(node, evaluator)
            if isinstance(node, ast.Call) and node.args:
                changed += _changed_by_object(node, evaluator)
            if any(_outlives(x, function, bodies, evaluator, 0) for x in changed):
                return True
    return False


def _changed_by_object(call: ast.Call, evaluator: Evaluator) -> list[ast.expr]:
    """What `self.transform(points)` changes in place, if a class of the project does.

    Or one in the list of a `Compose`.
    """
    resolver = evaluator.resolver
    made = [o.call for o in resolver.origins(call.func) if o.call is not None]
    for one in made:
        if last_name(one) in _CHAINS:
            inner = [e for a in one.args if isinstance(a, ast.List) for e in a.elts]
            made += [e for e in inner if isinstance(e, ast.Call)]
    for owner in filter(None, (resolver.classes.named(one.func) for one in made)):
        methods = resolver.classes.methods(owner)
        method = methods.get("__call__") or methods.get("forward")
        if method is not None and _changes_its_argument(method, evaluator):
            return call.args[:1]
    return []


def _changes_its_argument(method: Function, evaluator: Evaluator) -> bool:
    """Whether a method writes into what it is given first, before it is copied."""
    names = [arg.arg for arg in method.args.args[1:2]]
    for node in walk(*method.body):
        for target in changed_by(node, evaluator):
            root = whole_of(target)
            if isinstance(root, ast.Name) and root.id in names:
                reached = evaluator.resolver.definitions(root)
                if any(d.kind == "parameter" for d in reached):
                    return True
    return False


def changed_by(node: ast.AST, evaluator: Evaluator) -> list[ast.expr]:
    """What a statement or call stores to or changes in place."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        parts = walk(*node.targets)
        kinds = (ast.Attribute, ast.Subscript)
        return [p for p in parts if isinstance(p, kinds) and not _is_load(p)]
    if isinstance(node, ast.AnnAssign):
        return [node.target] if node.value is not None else []
    if isinstance(node, ast.AugAssign):
        return [node.target]
    if not isinstance(node, ast.Call):
        return []
    name = evaluator.index.qualified(node.func) or ""
    found = [k.value for k in node.keywords if k.arg == "out"]
    if node.args and (name in _WRITERS or name.endswith(".at")):
        found.append(node.args[0])
    if isinstance(node.func, ast.Attribute):
        last = node.func.attr
        in_place = last.endswith("_") and not last.endswith("__")
        if last in _MUTATORS or in_place:
            found.append(node.func.value)
    return found


def _is_load(node: ast.Attribute | ast.Subscript) -> bool:
    return isinstance(node.ctx, ast.Load)


def _outlives(
    target: ast.expr,
    function: Function,
    bodies: tuple[Function, ...],
    evaluator: Evaluator,
    depth: int,
) -> bool:
    """Whether what is changed is part of the dataset, or global.

    Also what a function that makes samples is given: `dropout(self.points[i])`.
    """
    own = evaluator.resolver.self_name(function)
    root = whole_of(target)
    if not isinstance(root, ast.Name):
        return False
    if root.id == own:
        return root is not target
    for definition in evaluator.resolver.definitions(root):
        if definition.kind == "parameter":
            passed = _given(definition.name, function, bodies, evaluator)
            if depth < MAX_DEPTH and any(
                _outlives(given, caller, bodies, evaluator, depth + 1)
                for given, caller in passed
            ):
                return True
            continue
        if isinstance(evaluator.index.scope(definition.node), ast.Module):
            stored = root is target and isinstance(root.ctx, ast.Store)
            if definition.kind in ("assign", "augment") and not stored:
                return True
            continue
        value = definition.value if definition.kind == "assign" else None
        part = depth < MAX_DEPTH and isinstance(value, (ast.Attribute, ast.Subscript))
        if part and value and _outlives(value, function, bodies, evaluator, depth + 1):
            return True
    return False


def _given(
    name: str, function: Function, bodies: tuple[Function, ...], evaluator: Evaluator
) -> Iterator[tuple[ast.expr, Function]]:
    """What the functions that make samples pass to one of them for a parameter."""
    resolver = evaluator.resolver
    position = resolver.calls.position(function, name)
    for call in resolver.calls.callers(function):
        caller = resolver.index.home(call).function(call)
        given = evaluator.argument(call, name, position).direct
        if caller in bodies and caller is not function and given is not None:
            yield given, caller
