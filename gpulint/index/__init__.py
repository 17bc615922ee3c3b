"""The index: facts of files that need only their `ast`."""

from __future__ import annotations

from gpulint.index.build import FileIndex, Function, build_index
from gpulint.index.flow import Definition, Flow
from gpulint.index.known import Argument, Mapping, Value, Values
from gpulint.index.project import SETTINGS, Project, Projects
from gpulint.index.resolve import Origin, Resolver
from gpulint.index.tensors import Move, Target, Tensors, Where
from gpulint.index.values import Evaluator

__all__ = [
    "SETTINGS",
    "Argument",
    "Definition",
    "Evaluator",
    "FileIndex",
    "Flow",
    "Function",
    "Mapping",
    "Move",
    "Origin",
    "Project",
    "Projects",
    "Resolver",
    "Target",
    "Tensors",
    "Value",
    "Values",
    "Where",
    "build_index",
]
