"""Work that a collate function does for each batch: text made into tokens."""

from __future__ import annotations

import ast
import re

from gpulint.index import Argument, Evaluator
from gpulint.index.walk import dotted, walk
from gpulint.script.samples.datasets import Dataset, Work
from gpulint.script.samples.reachable import reachable
from gpulint.script.samples.sample_device import is_cuda, sent_to_device

_TOKENIZER = re.compile(
    r"(^|[._])(tokeni[sz]er|feature_extractor|(auto_?|image_?)?processor)"
    r"(\.(pad|encode\w*|batch_encode\w*|tokenize|__call__))?$",
    re.IGNORECASE,
)
_COLLATORS = "transformers.DataCollator"
_CALLABLES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def with_collation(
    dataset: Dataset, collate: Argument, evaluator: Evaluator
) -> Dataset:
    """A dataset's facts, with the work of the collate function if it has none."""
    for node in collate.nodes:
        for origin in evaluator.resolver.origins(node):
            for function in run_by(origin.node, evaluator):
                if dataset.device is None:
                    dataset = dataset._replace(device=_on_device(function, evaluator))
    if dataset.work is Work.SOME:
        return dataset
    known = dataset.known and dataset.work is not Work.UNKNOWN
    for node in collate.nodes:
        for origin in evaluator.resolver.origins(node):
            for function in run_by(origin.node, evaluator):
                place = tokenizes(function)
                if place is not None:
                    return dataset._replace(
                        work=Work.SOME,
                        reason=f"`{dotted(place.func)}` runs for each batch",
                        place=place,
                        random=None,
                        torch_math=True,
                        known=known,
                    )
            if _is_collator(origin.node, evaluator):
                assert isinstance(origin.node, ast.Call)
                name = dotted(origin.node.func)
                return dataset._replace(
                    work=Work.SOME,
                    reason=f"`{name}` runs for each batch",
                    place=origin.node,
                    random=None,
                    known=known,
                )
    return dataset


def collators(collate: Argument, evaluator: Evaluator) -> list[list[ast.AST]]:
    """The functions that each of the collate functions runs, which there may be."""
    return [
        run_by(origin.node, evaluator)
        for node in collate.nodes
        for origin in evaluator.resolver.origins(node)
    ]


def run_by(node: ast.AST, evaluator: Evaluator) -> list[ast.AST]:
    """The function that a collate function is, or that an object runs when called."""
    if isinstance(node, _CALLABLES):
        return [node]
    classes = evaluator.resolver.classes
    if isinstance(node, ast.Attribute):
        owners = classes.of(node.value)
        found = [classes.methods(owner).get(node.attr) for owner in owners]
        return [method for method in found if method is not None]
    if not isinstance(node, ast.Call):
        return []
    if evaluator.index.qualified(node.func) == "functools.partial" and node.args:
        its = evaluator.resolver.origins(node.args[0])
        return [o.node for o in its if isinstance(o.node, _CALLABLES)]
    owner = classes.named(node.func)
    method = classes.methods(owner).get("__call__") if owner else None
    return [method] if method is not None else []


def _on_device(function: ast.AST, evaluator: Evaluator) -> ast.AST | None:
    """Where a function, or one that it calls, puts or makes a tensor on the device."""
    run: list[ast.AST] = [function]
    if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        run += reachable(function, evaluator)[1:]
    places = (sent_to_device(its) or _made_there(its) for its in run)
    return next(filter(None, places), None)


def _made_there(function: ast.AST) -> ast.AST | None:
    """`torch.zeros(n, device=device)`, where that is written as a GPU in a function."""
    cuda = {
        name
        for node in walk(function)
        if isinstance(node, ast.Assign) and is_cuda(node.value)
        for name in map(dotted, node.targets)
    }
    given = [
        node.value
        for node in walk(function)
        if isinstance(node, ast.keyword) and node.arg == "device"
    ]
    named = cuda - {None}
    return next((v for v in given if is_cuda(v) or dotted(v) in named), None)


def tokenizes(function: ast.AST) -> ast.Call | None:
    """Where a function calls a tokenizer, or what else makes the inputs of a model."""
    for node in walk(function):
        if isinstance(node, ast.Call) and _TOKENIZER.search(dotted(node.func) or ""):
            return node
    return None


def _is_collator(node: ast.AST, evaluator: Evaluator) -> bool:
    name = evaluator.index.qualified(node.func) if isinstance(node, ast.Call) else None
    return (name or "").startswith(_COLLATORS)
