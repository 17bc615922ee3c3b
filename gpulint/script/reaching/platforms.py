"""Settings that a script chooses by the name of the place in which it runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import dotted, walk

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Variables and folders by which scripts know Colab, Kaggle, SageMaker, Vertex, Azure,
# Aliyun, Kubernetes and their like.
_SIGN = re.compile(
    r"COLAB_\w+|KAGGLE_\w+|KUBERNETES_SERVICE_HOST|SM_(TRAINING_ENV|HOSTS|NUM_\w+)|"
    r"CLOUD_ML_\w+|CLOUD_SHELL|AZUREML_\w+|DATABRICKS_\w+|RUNPOD_\w+|VAST_\w+|PAI_\w+|"
    r"PAPERSPACE_\w+|google\.colab|/kaggle(/\w*)*|/opt/ml(/\w*)*|/mnt/data/?|/content/?"
)
_LOOKS = re.compile(r"(^|\.)(getenv|get|exists|is_?dir|Path|find_spec)$")
_SETTING = re.compile(
    r"(^|_)(batch_?size|batch|num_workers|n_workers|workers|prefetch\w*|threads|"
    r"pin_memory|accum\w*|amp|fp16|bf16|tf32|precision|queue_size|parallel_calls)$",
    re.IGNORECASE,
)
_SWITCHES = re.compile(
    r"set_(float32_matmul_precision|num_threads|num_interop_threads|memory_growth|"
    r"(inter|intra)_op_parallelism_threads)$|tensor_float_32_execution$"
)


@dataclass(frozen=True)
class Choice:
    """A setting, the test that chooses it, and what the test knows the place by."""

    setting: str
    at: ast.AST
    sign: ast.AST


def choices(script: Script) -> list[Choice]:
    """Settings of speed and memory that depend on a platform's name, in order."""
    signs = {n for n in script.index.all(ast.Constant) if _is_sign(script, n)}
    if not signs:
        return []
    tests: list[ast.If | ast.IfExp] = [
        *script.index.all(ast.If),
        *script.index.all(ast.IfExp),
    ]
    found = []
    for branch in sorted(tests, key=lambda n: (n.lineno, n.col_offset)):
        settings = list(_settings(script, branch))
        sign = _sign(script, branch.test, signs) if settings else None
        if sign is not None:
            found += [Choice(name, at, sign) for name, at in settings]
    return found


def _is_sign(script: Script, node: ast.Constant) -> bool:
    """Whether a text names a platform and is looked for, as a variable or folder."""
    if not isinstance(node.value, str) or not _SIGN.fullmatch(node.value):
        return False
    parent = script.index.parent(node)
    if isinstance(parent, ast.Call):
        return bool(_LOOKS.search(dotted(parent.func) or ""))
    return isinstance(
        parent, (ast.Compare, ast.Subscript, ast.List, ast.Tuple, ast.Set)
    )


def _settings(
    script: Script, branch: ast.If | ast.IfExp
) -> Iterator[tuple[str, ast.AST]]:
    """What both ways of a branch set to something of their own."""
    if isinstance(branch, ast.IfExp):
        if _is_value(branch.body) and _is_value(branch.orelse):
            name = _set_to(script, branch)
            if name is not None and _SETTING.search(name):
                yield name, branch
        return
    for statement in branch.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                name = (dotted(target) or "").rpartition(".")[2]
                if _SETTING.search(name) and _is_value(statement.value):
                    yield name, target
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            name = dotted(statement.value.func) or ""
            if _SWITCHES.search(name):
                yield name.rpartition(".")[2], statement.value.func


def _is_value(node: ast.expr) -> bool:
    """A number or switch, or what is counted from one: `min(64, n // 100)`."""
    constants = (n for n in walk(node) if isinstance(n, ast.Constant))
    return any(isinstance(c.value, (int, float)) for c in constants)


def _set_to(script: Script, value: ast.expr) -> str | None:
    """The name that a value is given: of a variable, an argument or a key."""
    parent = script.index.parent(value)
    if isinstance(parent, ast.keyword):
        return parent.arg
    if isinstance(parent, ast.Assign):
        return (dotted(parent.targets[0]) or "").rpartition(".")[2]
    if isinstance(parent, ast.Dict) and value in parent.values:
        key = parent.keys[parent.values.index(value)]
        text = key.value if isinstance(key, ast.Constant) else None
        return text if isinstance(text, str) else None
    return None


def _sign(script: Script, test: ast.expr, signs: set[ast.Constant]) -> ast.AST | None:
    """The sign of a platform that a test goes back to."""
    for node in walk(test):
        if node in signs:
            return node
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
            for origin in script.resolver.origins(node):
                found = _made_of(script, origin.node, signs)
                if found is not None:
                    return found
    return None


def _made_of(script: Script, node: ast.AST, signs: set[ast.Constant]) -> ast.AST | None:
    """A sign in an expression, in the function around it, or in the one it calls."""
    places: list[ast.AST | Function | None] = [node]
    if isinstance(node, ast.Call):
        places.append(script.resolver.calls.callee(node))
    home = script.index.function(node) if script.index.holds(node) else None
    label = isinstance(node, ast.Constant) and isinstance(node.value, str)
    if home is not None and (label or _returns(home)):
        places.append(home)
    for place in places:
        for part in walk(place) if place is not None else ():
            if part in signs:
                return part
    return None


def _returns(function: Function) -> bool:
    """Whether a function tells its caller where it runs, by a constant or a test."""
    return any(
        isinstance(node, ast.Return)
        and isinstance(node.value, (ast.Constant, ast.Compare, ast.BoolOp, ast.IfExp))
        for node in walk(function)
    )
