"""Work that a collate function does for each batch: text made into tokens."""

from __future__ import annotations

import ast
import re

from gpulint.index import Argument, Evaluator
from gpulint.index.walk import dotted, walk
from gpulint.script.datasets import Dataset, Work, sent_to_device

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
                        device=dataset.device or sent_to_device(function),
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


def run_by(node: ast.AST, evaluator: Evaluator) -> list[ast.AST]:
    """The function that a collate function is, or that an object runs when called."""
    if isinstance(node, _CALLABLES):
        return [node]
    if not isinstance(node, ast.Call):
        return []
    owner = evaluator.resolver.class_of(node.func)
    method = evaluator.resolver.methods(owner).get("__call__") if owner else None
    return [method] if method is not None else []


def tokenizes(function: ast.AST) -> ast.Call | None:
    """Where a function calls a tokenizer, or what else makes the inputs of a model."""
    for node in walk(function):
        if isinstance(node, ast.Call) and _TOKENIZER.search(dotted(node.func) or ""):
            return node
    return None


def _is_collator(node: ast.AST, evaluator: Evaluator) -> bool:
    name = evaluator.index.qualified(node.func) if isinstance(node, ast.Call) else None
    return (name or "").startswith(_COLLATORS)
