"""The index: facts of a file that need only its `ast`."""

from __future__ import annotations

from gpulint.index.build import FileIndex, Function, build_index
from gpulint.index.flow import Definition, Flow
from gpulint.index.resolve import Origin, Resolver
from gpulint.index.tensors import Move, Target, Tensors, Where
from gpulint.index.values import Argument, Evaluator, Mapping, Value, Values

__all__ = [
    "Argument",
    "Definition",
    "Evaluator",
    "FileIndex",
    "Flow",
    "Function",
    "Mapping",
    "Move",
    "Origin",
    "Resolver",
    "Target",
    "Tensors",
    "Value",
    "Values",
    "Where",
    "build_index",
]
