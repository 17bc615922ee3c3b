"""Whether a loader's samples are surely made by one process, with work for each."""

from __future__ import annotations

import ast

from gpulint.index import Resolver
from gpulint.script.changes import everywhere
from gpulint.script.datasets import Work
from gpulint.script.loaders import Loader


def is_serial(loader: Loader) -> bool:
    """Whether 0 or 1 workers are certain and each sample takes work.

    Not for datasets that workers must not touch: open handles, samples on the device.
    """
    workers = loader.argument("num_workers")
    its = [loader.evaluator.values(n) for n in workers.nodes]
    few = workers.absent or all(v.all_in(0, 1) for v in its)
    few = few and workers.state != "unknown"
    return few and wants_workers(loader)


def wants_workers(loader: Loader) -> bool:
    """Whether each sample takes work that worker processes could do."""
    if loader.decided_by_runtime:
        return False
    dataset = loader.dataset
    usable = dataset.handle is None and dataset.device is None
    works = dataset.work is Work.SOME and not dataset.same
    return usable and works and not set_later(loader)


def set_later(loader: Loader) -> bool:
    """Whether other code sets the number, on the loader or where it is kept."""
    resolver = loader.evaluator.resolver
    nodes = loader.argument("num_workers").nodes
    kept = {n.attr for n in nodes if isinstance(n, ast.Attribute) and _own(resolver, n)}
    for attribute in everywhere(loader, ast.Attribute):
        if not isinstance(attribute.ctx, ast.Store):
            continue
        if attribute.attr in kept and not _own(resolver, attribute):
            return True
        if attribute.attr == "num_workers":
            made = resolver.origins(attribute.value)
            if any(loader.is_made_by(o.node) for o in made):
                return True
    return False


def _own(resolver: Resolver, node: ast.Attribute) -> bool:
    """Whether an attribute is one of `self`."""
    own = resolver.self_name(resolver.index.scope(node))
    return isinstance(node.value, ast.Name) and node.value.id == own


def declared(loader: Loader) -> bool:
    """Whether the number is an attribute of a class, which objects may replace."""
    evaluator = loader.evaluator
    return any(
        isinstance(evaluator.index.scope(definition.node), ast.ClassDef)
        for node in loader.argument("num_workers").nodes
        if isinstance(node, ast.Attribute)
        for definition in evaluator.resolver.definitions(node)
    )
