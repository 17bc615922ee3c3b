"""Training steps of TensorFlow: Keras methods, gradient tapes and their loops."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function
from gpulint.index.build import last_name
from gpulint.index.walk import LOOPS, walk, walk_scope
from gpulint.script.frameworks.tf_names import name_of
from gpulint.script.numerics.reached import reached_from
from gpulint.script.reaching.started import is_started

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_CALLERS = 4  # functions between a tape and the loop that steps
TRAININGS = ("fit", "fit_generator")
_TRAINING = frozenset(
    "epochs validation_data callbacks steps_per_epoch batch_size validation_split "
    "class_weight initial_epoch validation_steps".split()
)
_APPLIES = frozenset("apply_gradients minimize assign_sub apply".split())
_KERAS_STEPS = frozenset("train_step test_step predict_step call".split())
# What NumPy does with the tensors of a step, rather than with sizes and constants.
_OF_TENSORS = re.compile(
    r"^numpy\.(a?max|a?min|maximum|minimum|sum|mean|exp|log|abs|sqrt|where|clip|matmul|"
    r"dot|concatenate|stack|argmax|argmin|multiply|add|subtract|divide|square|power)$"
)
_OF_WEIGHTS = frozenset("get_weights set_weights clone_model".split())
Loop = ast.For | ast.AsyncFor | ast.While


class EagerStep(NamedTuple):
    """A gradient tape that runs in Python in each turn of a loop."""

    tape: ast.Call
    loop: Loop


def fits(script: Script) -> list[ast.Call]:
    """Calls of Keras's `fit`, by the arguments that only it has."""
    return [
        call
        for call in script.index.calls_by_name.get("fit", ())
        if isinstance(call.func, ast.Attribute)
        and (
            any(k.arg in _TRAINING for k in call.keywords)
            or is_keras_model(script, call.func.value)
        )
    ]


def is_keras_model(script: Script, node: ast.expr) -> bool:
    """Whether an expression surely is a model of Keras."""
    text = script.text(node)
    for call in script.index.calls_by_name.get("compile", ()):
        given = {k.arg for k in call.keywords}
        its = call.func.value if isinstance(call.func, ast.Attribute) else None
        known = its is not None and bool(given & {"loss", "optimizer"})
        if known and its is not None and script.text(its) == text:
            return not _takes_torch(script, call)
    return any(
        origin.call is not None and makes_model(script, origin.call)
        for origin in script.resolver.origins(node)
    )


def _takes_torch(script: Script, compiled: ast.Call) -> bool:
    """Whether a model is compiled with an optimizer or a loss of torch's.

    Trainers in the manner of Keras for torch have the same methods.
    """
    origins = (o for k in compiled.keywords for o in script.resolver.origins(k.value))
    names = (script.index.qualified(o.call.func) or "" for o in origins if o.call)
    return any(name.startswith("torch.") for name in names)


def makes_model(script: Script, call: ast.Call) -> bool:
    """`Sequential([…])`, `Model(inputs, outputs)`, `load_model(…)`, own subclasses."""
    name = name_of(script, call.func)
    if name.startswith(("keras.applications.", "keras.models.")):
        return True
    if name in ("keras.Sequential", "keras.Model"):
        return True
    owner = script.resolver.classes.named(call.func)
    return owner is not None and is_model_class(script, owner)


def is_model_class(script: Script, owner: ast.ClassDef) -> bool:
    """Whether a class is a Keras model."""
    bases = [b for c in script.resolver.classes.bases(owner) for b in c.bases]
    names = {name_of(script, base) for base in bases}
    return bool(names & {"keras.Model", "keras.models.Model", "keras.Sequential"})


def tapes(script: Script) -> list[ast.Call]:
    """Calls that make a gradient tape."""
    calls = script.index.calls_by_name.get("GradientTape", ())
    return [c for c in calls if name_of(script, c.func) == "tensorflow.GradientTape"]


def eager_steps(script: Script) -> Iterator[EagerStep]:
    """The first tape of each step that no `tf.function` compiles."""
    if script.index.calls_by_name.get("disable_eager_execution"):
        return
    seen: set[ast.AST] = set()
    for tape in tapes(script):
        loop = _stepping_loop(script, tape, 0)
        if loop is None:
            continue
        place = _place(script, tape, loop)
        if not _applies(place):
            continue
        if place not in seen:
            seen.add(place)
            yield EagerStep(tape, loop)


def _place(script: Script, tape: ast.Call, loop: Loop) -> Loop | Function:
    """The loop around a tape, or the function in which it stands apart from that."""
    function = script.index.function(tape)
    inside = script.index.function(loop) is function
    return loop if inside or function is None else function


def on_cpu(script: Script, node: ast.AST, depth: int = 2) -> bool:
    """Whether a place, or each known call of its function, is in `tf.device("cpu")`."""
    if _under_cpu(script, node):
        return True
    function = script.index.function(node) if depth else None
    callers = script.resolver.calls.callers(function) if function is not None else ()
    reads = script.index.reads.get(function.name, ()) if function is not None else ()
    asked = (script.index.parent(read) for read in reads)
    if any(
        not isinstance(above, ast.Call) or above.func not in reads for above in asked
    ):
        return False  # handed on: `Thread(target=train)`
    return bool(callers) and all(
        on_cpu(script.of(call), call, depth - 1) for call in callers
    )


def _under_cpu(script: Script, node: ast.AST) -> bool:
    """Whether a place stands in `with tf.device("/cpu:0"):`."""
    for above in script.index.ancestors(node):
        for item in above.items if isinstance(above, ast.With) else ():
            call = item.context_expr
            if isinstance(call, ast.Call) and call.args:
                given = getattr(call.args[0], "value", None)
                if name_of(script, call.func) == "tensorflow.device":
                    return isinstance(given, str) and "cpu" in given.lower()
    return False


def runs_compiled(script: Script, step: EagerStep) -> bool:
    """Whether what runs under a tape is a function that is compiled itself."""
    block = script.index.statement(step.tape)
    body = block.body if isinstance(block, ast.With) else []
    calls = (n for n in walk(*body) if isinstance(n, ast.Call))
    called = (script.resolver.calls.callee(call) for call in calls)
    return any(f is not None and is_compiled(script, f) for f in called)


def computes_by_numpy(script: Script, step: EagerStep) -> bool:
    """Whether NumPy computes below a tape: it takes no tensors of a compiled step.

    Or weights are read or set as arrays there, or a model is made.
    """
    block = script.index.statement(step.tape)
    return any(
        isinstance(node, ast.Call)
        and (
            last_name(node) in _OF_WEIGHTS
            or _OF_TENSORS.match(script.index.home(node).qualified(node.func) or "")
        )
        for root in reached_from(script, [block])
        for node in walk(root)
    )


def moves_numbers(script: Script, step: EagerStep) -> bool:
    """Whether all that a step updates are single numbers: `x = tf.Variable(0.0)`."""
    nodes = walk(*_place(script, step.tape, step.loop).body)
    asked = [n for n in nodes if isinstance(n, ast.Call) and last_name(n) == "gradient"]
    given = [script.evaluator.argument(call, "sources", 1).direct for call in asked]
    return bool(given) and all(v is not None and _are_numbers(script, v) for v in given)


def _are_numbers(script: Script, node: ast.expr) -> bool:
    if isinstance(node, (ast.List, ast.Tuple)):
        return bool(node.elts) and all(_are_numbers(script, n) for n in node.elts)
    origins = script.resolver.origins(node)
    return all(
        origin.call is not None
        and name_of(script, origin.call.func) == "tensorflow.Variable"
        and isinstance(_first(origin.call), (int, float))
        for origin in origins
    )


def _first(call: ast.Call) -> object:
    """The number that is a call's first argument."""
    given = call.args[0] if call.args else None
    if isinstance(given, ast.UnaryOp):
        given = given.operand
    return given.value if isinstance(given, ast.Constant) else None


def trains(script: Script) -> bool:
    """Whether a file trains or evaluates a model, or is a part of what does."""
    runs = ("fit", "evaluate", "predict", "GradientTape", "distribute", "minimize")
    called = script.index.calls_by_name
    return not is_started(script) or any(name in called for name in runs)


def is_compiled(script: Script, function: Function) -> bool:
    """Whether TensorFlow or Keras compiles a function."""
    for decorator in function.decorator_list:
        callee = decorator.func if isinstance(decorator, ast.Call) else decorator
        parts = [callee, *(decorator.args if isinstance(decorator, ast.Call) else ())]
        if any(name_of(script, part) == "tensorflow.function" for part in parts):
            return True
    owner = script.index.owner(function)
    keras = owner is not None and is_model_class(script, owner)
    if keras and function.name in _KERAS_STEPS:
        return True
    home = script.index.home(function)
    return any(
        name_of(script, call.func) == "tensorflow.function"
        and any(function in _meant(script, a) for a in call.args[:1])
        for call in home.calls_by_name.get("function", ())
    )


def _meant(script: Script, node: ast.expr) -> list[ast.AST]:
    return [origin.node for origin in script.resolver.origins(node)]


def _stepping_loop(script: Script, node: ast.AST, depth: int) -> Loop | None:
    """The innermost loop that runs a node in Python; None: none, or it is compiled."""
    index = script.index
    function = index.function(node)
    chain = [f for f in (function, *_around(script, function)) if f is not None]
    if any(is_compiled(script, f) for f in chain):
        return None
    for above in index.ancestors(node):
        if above is function:
            break
        if isinstance(above, LOOPS):
            return above
    if function is None or depth >= MAX_CALLERS:
        return None
    found = [
        _stepping_loop(script, call, depth + 1)
        for call in script.resolver.calls.callers(function)
        if not _passed_to_strategy(call)
    ]
    return next((loop for loop in found if loop is not None), None)


def _around(script: Script, function: Function | None) -> Iterator[Function]:
    above: Function | None = function
    while above is not None:
        above = script.index.function(script.index.parent(above) or above)
        if above is not None:
            yield above


def _passed_to_strategy(call: ast.Call) -> bool:
    return last_name(call) in ("run", "experimental_run_v2")


def _applies(scope: Loop | Function) -> bool:
    """Whether the weights are updated where a tape is."""
    calls = (n for n in walk_scope(*scope.body) if isinstance(n, ast.Call))
    return any(last_name(call) in _APPLIES for call in calls)


def holds_tape(script: Script, function: Function) -> bool:
    """Whether a function computes gradients, itself or in what it calls."""
    todo, seen = [function], set[Function]()
    while todo:
        current = todo.pop()
        if current in seen or len(seen) > MAX_CALLERS:
            continue
        seen.add(current)
        for call in (n for n in walk(*current.body) if isinstance(n, ast.Call)):
            if name_of(script, call.func) == "tensorflow.GradientTape":
                return True
            callee = script.resolver.calls.callee(call)
            todo += [callee] if callee is not None else []
            if last_name(call) in ("run", "experimental_run_v2"):  # a strategy's
                nodes = [n for a in call.args[:1] for n in _meant(script, a)]
                todo += [n for n in nodes if isinstance(n, ast.FunctionDef)]
    return False
