"""What worker processes cannot receive, must not share, or would have copies of."""

from __future__ import annotations

import ast
import re

from gpulint.index import Evaluator, Function
from gpulint.index.walk import dotted, walk

_HANDLES = frozenset(
    "h5py.File lmdb.open sqlite3.connect zipfile.ZipFile tarfile.open open "
    "lmdb.Environment cv2.VideoCapture".split()
)
_GENERATORS = frozenset(
    "numpy.random.default_rng numpy.random.RandomState numpy.random.Generator "
    "random.Random torch.Generator".split()
)
_GENERATOR_NAME = re.compile(
    r"^(self|cls)\.(\w+\.)*_?(rng|generator|random_state|prng)$"
)
_NOT_PICKLED = (
    "threading.", "queue.", "socket.", "concurrent.futures.", "subprocess.Popen",
)  # fmt: skip


def holds_unpicklable(owner: ast.ClassDef, evaluator: Evaluator) -> ast.AST | None:
    """A lambda, local function, generator or lock that a dataset keeps."""
    init = evaluator.resolver.classes.methods(owner).get("__init__")
    if init is None:
        return None
    for node in walk(*init.body):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        if not any(isinstance(t, ast.Attribute) for t in targets):
            continue
        value: ast.expr = node.value  # type: ignore[attr-defined]
        found = (p for p in walk(value) if _stays_here(p, init, evaluator))
        first = next(found, None)
        if first is not None:
            return first
    return None


def _stays_here(node: ast.AST, init: Function, evaluator: Evaluator) -> bool:
    """Whether a part of what a dataset keeps cannot be pickled."""
    if isinstance(node, ast.GeneratorExp):
        kept = evaluator.index.parent(node)
        return isinstance(kept, (ast.Assign, ast.AnnAssign))
    if isinstance(node, ast.Name):
        reached = evaluator.resolver.definitions(node)
        local = (d for d in reached if d.kind in ("function", "class"))
        return any(evaluator.index.function(d.node) is init for d in local)
    if isinstance(node, ast.Call):
        name = evaluator.index.qualified(node.func) or ""
        return name.startswith(_NOT_PICKLED)
    return isinstance(node, ast.Lambda)


def open_handle(owner: ast.ClassDef, evaluator: Evaluator) -> ast.AST | None:
    """A file or database opened in `__init__`, or a method that it calls, and kept."""
    methods = evaluator.resolver.classes.methods(owner)
    init = methods.get("__init__")
    if init is None:
        return None
    called = {dotted(n.func) for n in walk(*init.body) if isinstance(n, ast.Call)}
    opening = [init, *(m for name, m in methods.items() if f"self.{name}" in called)]
    for node in (node for function in opening for node in walk(*function.body)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = evaluator.index.qualified(node.value.func) or ""
            kept = any(isinstance(t, ast.Attribute) for t in node.targets)
            if name in _HANDLES and kept:
                return node.value
    return None


def kept_generator(
    bodies: tuple[Function, ...], evaluator: Evaluator
) -> ast.AST | None:
    """A draw from a generator that lives longer than a sample."""
    resolver = evaluator.resolver
    for function in bodies:
        for node in walk(*function.body):
            if isinstance(node, ast.keyword) and node.arg == "generator":
                return node.value
            if not isinstance(node, ast.Call) or not isinstance(
                node.func, ast.Attribute
            ):
                continue
            holder = node.func.value
            if _GENERATOR_NAME.search(dotted(holder) or ""):
                return node
            for made in (origin.call for origin in resolver.origins(holder)):
                if made is None or evaluator.index.function(made) in bodies:
                    continue
                if evaluator.index.qualified(made.func) in _GENERATORS:
                    return node
    return None
