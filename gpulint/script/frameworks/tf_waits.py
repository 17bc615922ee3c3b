"""Where a training loop of TensorFlow waits for values in every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Definition, Function
from gpulint.index.build import last_name
from gpulint.index.flow import enclosing_function
from gpulint.index.walk import LOOPS, dotted, walk, whole_of
from gpulint.script.every_step import EveryStep
from gpulint.script.frameworks.tf_names import name_of
from gpulint.script.frameworks.tf_pipelines import is_looked_at
from gpulint.script.frameworks.tf_steps import holds_tape, is_compiled, tapes
from gpulint.script.loops import Loop
from gpulint.script.waiting.waits import acts

if TYPE_CHECKING:
    from gpulint.script.model import Script

_SHOWS = re.compile(
    r"^(print|info|debug|write|set_postfix|set_postfix_str|set_description|format|"
    r"set_description_str)$"
)
_UPDATES = (
    "apply_gradients",
    "apply",
    "minimize",
    "assign",
    "assign_sub",
    "assign_add",
)
MAX_HELPERS = 3  # that a batch is handed on to
_EPOCHS = re.compile(r"epoch", re.IGNORECASE)


def step_loops(script: Script) -> list[Loop]:
    """Loops an iteration of which is one step on one of many batches."""
    nodes = [n for kind in LOOPS for n in script.index.all(kind)]
    whiles = (ast.For, ast.While)
    steps = [n for n in nodes if isinstance(n, whiles) and _steps(script, n)]
    least = [n for n in steps if not any(m is not n and m in walk(n) for m in steps)]
    inner = [n for n in least if isinstance(n, ast.For)]
    many = [n for n in inner if not (_is_epoch(n) or _takes_all(script, n))]
    many = [n for n in many if not any(map(is_looked_at, _calls_in(n.iter)))]
    found = [script.loop_at(n) for n in many]
    return [loop for loop in found if loop is not None]


def _calls_in(node: ast.expr) -> Iterator[ast.Call]:
    return (part for part in walk(node) if isinstance(part, ast.Call))


def updates_weights(script: Script) -> bool:
    """Whether anything of a file changes what it computes gradients of."""
    return any(name in script.index.calls_by_name for name in _UPDATES)


def _steps(script: Script, node: ast.For | ast.While) -> bool:
    below = [n for n in walk(*node.body) if isinstance(n, ast.Call)]
    if any(tape in below for tape in tapes(script)):
        return True
    functions = [script.resolver.calls.callee(call) for call in below]
    return any(f is not None and holds_tape(script, f) for f in functions)


def _takes_all(script: Script, node: ast.For) -> bool:
    """`for step in range(40): loss = step(inputs, targets)`: all data in each step."""
    if not isinstance(node.iter, ast.Call) or last_name(node.iter) != "range":
        return False
    bound = _stored(node.target, *node.body)
    calls = [n for n in walk(*node.body) if isinstance(n, ast.Call)]
    if any(last_name(call) in ("next", "sample") for call in calls):
        return False
    for call in calls:
        function = script.resolver.calls.callee(call)
        if function is not None and holds_tape(script, function):
            own = {a.arg for a in (*function.args.posonlyargs, *function.args.args)}
            given = _given(call)
            return not given & bound and bool(own & _read_under_tapes(script, function))
    read = _read_under_tapes(script, node)
    return bool(read) and not read & bound


def _read_under_tapes(script: Script, node: ast.AST) -> set[str]:
    """The names that calls under a tape are given, but for what is made there."""
    made = tapes(script)
    blocks = [
        n
        for n in walk(node)
        if isinstance(n, ast.With) and any(i.context_expr in made for i in n.items)
    ]
    inside = [statement for block in blocks for statement in block.body]
    calls = (n for n in walk(*inside) if isinstance(n, ast.Call))
    return {name for c in calls for name in _given(c)} - _stored(*inside)


def _given(call: ast.Call) -> set[str]:
    values = [*call.args, *(k.value for k in call.keywords)]
    return {n.id for n in walk(*values) if isinstance(n, ast.Name)}


def _stored(*nodes: ast.AST) -> set[str]:
    names = (n for n in walk(*nodes) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Store)}


def _is_epoch(node: ast.For) -> bool:
    names = (dotted(n) or "" for n in walk(node.target, node.iter))
    return any(_EPOCHS.search(name) for name in names)


class Wait(NamedTuple):
    """An expression that needs a value of the device, and the call that shows it."""

    value: ast.expr
    place: ast.expr


def waits(script: Script, loop: Loop) -> list[Wait]:
    """What of this file needs a value of the device in every step.

    Nothing in a loop that acts in an environment, which waits anyway.
    """
    if _is_timed(loop):
        return []
    parts = list(EveryStep(script, loop).parts())
    if acts([part.node for part in parts if isinstance(part.node, ast.Call)]):
        return []
    found: dict[ast.expr, ast.expr] = {}
    for part in parts:
        node = part.node
        if part.helper is not None and is_compiled(script, part.helper):
            continue
        if not isinstance(node, ast.Call) or not script.index.holds(node):
            continue
        for value in _read(script, node):
            if not _of_batch(script, loop, value):
                found[value] = value if value is node else node.func
    return [Wait(value, place) for value, place in found.items()]


def _is_timed(loop: Loop) -> bool:
    """Whether steps are timed, for which somebody has to wait."""
    calls = (n for n in walk(*loop.node.body) if isinstance(n, ast.Call))
    return any(last_name(c) in ("time", "perf_counter", "monotonic") for c in calls)


def _read(script: Script, call: ast.Call) -> list[ast.expr]:
    """What a call reads of the device."""
    name = last_name(call)
    if name == "numpy" and not call.args and isinstance(call.func, ast.Attribute):
        return [] if _is_counter(script, call.func.value) else [call]
    given = [*call.args, *(k.value for k in call.keywords)]
    if isinstance(call.func, ast.Name) and name in ("float", "int"):
        return [call] if given and _is_tensor(script, given[0]) else []
    if not _SHOWS.match(name):
        return []
    parts = [n for value in given for n in walk(value)]
    parts = [n for n in parts if isinstance(n, (ast.Name, ast.Call, ast.Attribute))]
    shown = [n for n in parts if isinstance(n, ast.expr) and _is_tensor(script, n)]
    return [n for n in shown if not _is_part(script, n, shown)]


def _is_counter(script: Script, node: ast.expr) -> bool:
    """Whether a value is a variable of int32, which TensorFlow keeps on the host.

    `tf.Variable(0)`, also as `checkpoint.step` of `tf.train.Checkpoint(step=…)`.
    """
    made = [o.call for o in script.resolver.origins(node)]
    if isinstance(node, ast.Attribute):
        holders = [o.call for o in script.resolver.origins(node.value)]
        made = [
            keyword.value if isinstance(keyword.value, ast.Call) else None
            for holder in holders
            if holder is not None
            and name_of(script, holder.func) == "tensorflow.train.Checkpoint"
            for keyword in holder.keywords
            if keyword.arg == node.attr
        ] or made
    return bool(made) and all(
        call is not None
        and name_of(script, call.func) == "tensorflow.Variable"
        and bool(call.args)
        and isinstance(call.args[0], ast.Constant)
        and type(call.args[0].value) is int
        and not any(k.arg == "dtype" for k in call.keywords)
        for call in made
    )


def _is_part(script: Script, node: ast.expr, others: list[ast.expr]) -> bool:
    return any(o is not node and script.index.inside(node, o) for o in others) or any(
        isinstance(above, ast.Call) and last_name(above) in ("numpy", "float", "int")
        for above in script.index.ancestors(node)[:2]
    )


def _is_tensor(script: Script, node: ast.expr) -> bool:
    """Whether an expression surely is a value that TensorFlow computed in a step."""
    if isinstance(node, ast.Call):
        name = name_of(script, node.func)
        if last_name(node) == "result" and not node.args:
            return True
        if name.startswith(("tensorflow.math.", "tensorflow.reduce_")):
            return True
        function = script.resolver.calls.callee(node)
        return function is not None and holds_tape(script, function)
    if isinstance(node, ast.BinOp):
        return _is_tensor(script, node.left) or _is_tensor(script, node.right)
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    definitions = script.definitions(node)
    values = [d.value for d in definitions if d.kind == "assign"]
    if not values or len(values) != len(definitions):
        return False
    return all(
        isinstance(v, (ast.Call, ast.BinOp)) and _is_tensor(script, v) for v in values
    )


def _of_batch(script: Script, loop: Loop, value: ast.expr, depth: int = 0) -> bool:
    """Whether a value is a part of the batch, which lies on the host.

    Also where a function of this file is given the batch by all its callers.
    """
    root = whole_of(_unwrapped(value))
    assert isinstance(loop.node, ast.For)
    if not isinstance(root, ast.Name):
        return False
    return any(
        script.index.inside(d.node, loop.node.target)
        or (d.kind == "parameter" and _is_given(script, loop, d, depth))
        for d in script.definitions(root)
    )


def _unwrapped(value: ast.expr) -> ast.expr:
    """`x["image"]` of `x["image"].numpy()`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    return value


def _is_given(script: Script, loop: Loop, parameter: Definition, depth: int) -> bool:
    function = enclosing_function(script.index, parameter)
    if not isinstance(function, Function) or depth >= MAX_HELPERS:
        return False
    calls = script.resolver.calls.callers(function)
    inside = [call for call in calls if script.index.inside(call, loop.node)]
    given = [
        script.resolver.calls.given(call, function, parameter.name)[0]
        for call in inside
    ]
    return bool(given) and all(
        values and all(_of_batch(script, loop, v, depth + 1) for v in values)
        for values in given
    )
