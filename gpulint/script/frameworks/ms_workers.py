"""Workers of MindSpore's datasets: how many there are, and what they would do."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Value
from gpulint.index.walk import walk
from gpulint.script.frameworks.ms_pipelines import DATA, GENERATOR, WORKERS, Stage
from gpulint.script.neighbours import run_together
from gpulint.script.samples.datasets import Dataset, Work, first_work, read_class
from gpulint.script.samples.reachable import reachable

if TYPE_CHECKING:
    from gpulint.index import Function
    from gpulint.script.model import Script

_NAMED = re.compile(r"workers|num_parallel", re.IGNORECASE)
_PYTHON = ("py_transforms", "py_transforms_util")
_NETWORK = re.compile(r"mindspore\.(nn|ops|numpy|Tensor|common|Parameter)\b")


def is_one(stage: Stage) -> bool:
    """Whether a stage surely has one worker: a generator also where nothing is said."""
    argument = stage.argument(WORKERS)
    if argument.absent:
        return stage.kind == GENERATOR
    return stage.values(WORKERS).all_in(1)


def has_processes(stage: Stage) -> bool | None:
    """Whether a stage runs Python in worker processes; None: not known.

    A source does from two workers on, `map` and `batch` where they are told to.
    """
    shared = stage.values("python_multiprocessing")
    if stage.argument("python_multiprocessing").absent:
        if stage.kind != GENERATOR:
            return False
    elif shared.all_in(False):
        return False
    if is_one(stage):
        return False
    known = stage.kind == GENERATOR or shared.all_in(True)
    workers = stage.argument(WORKERS).absent or stage.values(WORKERS).complete
    return True if known and workers else None


def is_stream(script: Script, dataset: Dataset) -> bool:
    """Whether samples come in the order in which they are asked for, at any index."""
    if not dataset.mutated or dataset.owner is None:
        return False
    method = script.resolver.classes.methods(dataset.owner).get("__getitem__")
    if method is None or len(method.args.args) < 2:
        return False
    asked = method.args.args[1].arg
    return not any(isinstance(n, ast.Name) and n.id == asked for n in walk(method))


def values_of(stage: Stage) -> tuple[Value, ...]:
    """The numbers of workers as they are written."""
    return stage.values(WORKERS).known


def source_of(stage: Stage) -> Dataset:
    """What the source of a `GeneratorDataset` does for each sample."""
    script = stage.script
    found: list[Dataset] = []
    for node in stage.argument("source").nodes:
        for origin in script.resolver.origins(node):
            made = origin.call
            owner = (
                script.resolver.classes.named(made.func) if made is not None else None
            )
            if owner is None:
                return Dataset(Work.UNKNOWN)
            found.append(read_class(owner, script.evaluator))
    if len({d.owner for d in found}) != 1:
        return Dataset(Work.UNKNOWN)
    return found[0]


def computes_on_device(script: Script, dataset: Dataset) -> bool:
    """Whether samples are made by MindSpore's own operators, which cannot be forked."""
    return any(
        isinstance(node, ast.Call)
        and _NETWORK.match(script.index.qualified(node.func) or "")
        for method in dataset.methods
        for node in walk(*method.body)
    )


def unread_parameter(stage: Stage) -> ast.arg | None:
    """The parameter for a number of workers that the function around never reads."""
    function = stage.script.index.function(stage.call)
    if function is None:
        return None
    its = function.args
    read = {n.id for n in walk(*function.body) if isinstance(n, ast.Name)}
    named = (a for a in (*its.args, *its.kwonlyargs) if _NAMED.search(a.arg))
    return next((a for a in named if a.arg not in read), None)


def operations(stage: Stage) -> list[ast.expr] | None:
    """What `.map` runs, one after the other; None where that is not clear."""
    found: list[ast.expr] = []
    for node in stage.argument("operations").nodes:
        origins = stage.script.resolver.origins(node)
        if len(origins) != 1:
            return None
        expression = origins[0].expression
        if isinstance(expression, (ast.List, ast.Tuple)):
            for item in expression.elts:
                its = stage.script.resolver.origins(item)
                if len(its) != 1:
                    return None
                found.append(its[0].expression or item)
                if its[0].kind == "function":
                    found[-1] = item
        elif expression is None or _grows(node):
            found.append(node)
        else:
            found.append(expression)
    return found


def _grows(node: ast.expr) -> bool:
    """Whether an expression puts operations together, as `[a] + b` does."""
    return not isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Lambda))


def is_native(script: Script, operation: ast.expr) -> bool:
    """Whether an operation is one of MindSpore's own that run without Python."""
    if not isinstance(operation, ast.Call):
        return False
    name = script.index.qualified(operation.func) or ""
    return name.startswith(f"{DATA}.") and not any(p in name for p in _PYTHON)


def draws(script: Script, operation: ast.expr) -> bool:
    """Whether an operation may draw random numbers."""
    if not is_native(script, operation):
        return True
    assert isinstance(operation, ast.Call)
    name = script.index.qualified(operation.func) or ""
    nested = any(isinstance(n, ast.Call) for a in operation.args for n in walk(a))
    return nested or "Rand" in name or "Cut" in name or "Mix" in name


def repeats_numpy(script: Script) -> bool:
    """Whether a program draws from NumPy's generator, of which each worker has a copy.

    MindSpore seeds Python's own in its workers, not NumPy's: all draw the same numbers,
    and the same again in each epoch.
    """
    return any(
        name.startswith("numpy.random.") and not name.endswith(".seed")
        for index in run_together(script)
        for name in index.calls
    )


def python_work(script: Script, operation: ast.expr) -> tuple[ast.AST, str] | None:
    """What a Python function in `.map` does for each sample that takes time."""
    name = script.index.qualified(getattr(operation, "func", operation)) or ""
    if any(f".{part}." in name for part in _PYTHON):
        last = name.rpartition(".")[2]
        return operation, f"`{last}` of `py_transforms` runs in Python"
    functions = _functions(script, operation)
    bodies = [f.body for one in functions for f in reachable(one, script.evaluator)]
    place, reason = first_work(bodies, script.evaluator)
    return (place, reason) if place is not None else None


def _functions(script: Script, operation: ast.expr) -> list[Function]:
    """The function, or the `__call__` of the object, that an operation is."""
    made = (origin.node for origin in script.resolver.origins(operation))
    found: list[Function] = [n for n in made if isinstance(n, ast.FunctionDef)]
    for owner in script.resolver.classes.of(operation):
        method = script.resolver.classes.methods(owner).get("__call__")
        found += [method] if method is not None else []
    return found
