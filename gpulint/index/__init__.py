"""The index: facts of files that need only their `ast`."""

from __future__ import annotations

from gpulint.index.build import FileIndex, Function, build_index
from gpulint.index.devices import NOT_CUDA, Devices, Move, Target, Where
from gpulint.index.flow import Definition, Flow
from gpulint.index.known import Argument, Mapping, Value, Values
from gpulint.index.modules import Modules
from gpulint.index.project import SETTINGS, Project
from gpulint.index.projects import Projects
from gpulint.index.resolve import Origin, Resolver
from gpulint.index.tensors import Tensors
from gpulint.index.values import Evaluator

__all__ = [
    "NOT_CUDA",
    "SETTINGS",
    "Argument",
    "Definition",
    "Devices",
    "Evaluator",
    "FileIndex",
    "Flow",
    "Function",
    "Mapping",
    "Modules",
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
