"""Whether an evaluation loop builds a graph, and whether something needs it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function, Where
from gpulint.index.walk import dotted, walk, walk_scope
from gpulint.script.every_step import EveryStep
from gpulint.script.modelling.frozen import has_no_weights, is_frozen, runs_apart
from gpulint.script.modelling.models import makers
from gpulint.script.named_calls import named_calls
from gpulint.script.neighbours import imported
from gpulint.script.training.step_calls import is_backward, is_step

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_NAMED = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|val|test|tests|testing|"
    r"infer|inference|predict|prediction)(_|$)|^(test|val|valid|eval)_?(data)?loader",
    re.IGNORECASE,
)
_GRADIENTS = re.compile(
    r"^(backward|manual_backward|requires_grad_|enable_grad|grad|jacobian|hessian|vjp|jvp|"
    r"jac(rev|fwd)|retain_grad|register_\w*hook|is_grad_enabled)$|attack|adversar|saliency|grad_?cam|"
    r"(^|_)(pgd|fgsm)(_|$)|perturb|captum",
    re.IGNORECASE,
)
_MAPS = re.compile(r"(^|_)(med|grad|score|layer)_?cam|captum|saliency", re.IGNORECASE)
_SWITCH = re.compile(r"grad|eval|infer|test", re.IGNORECASE)
_PIPELINE = re.compile(r"^(diffusers|transformers)\..*[Pp]ipeline")
# How models take derivatives, and libraries whose models take none.
_DERIVES = re.compile(
    r"autograd\.(grad|functional)\b|autograd import[^\n(]*\b(grad|functional)\b"
    r"|autograd import \([^)]*\b(grad|functional)\b|\btorch\.func\b|functorch"
)
_MENTIONS = ("autograd", "torch.func", "functorch")  # a cheap look
# Packages of models of energies, which give forces.
_OF_FORCES = frozenset(
    "ase deepmd e3nn mace matgl nequip schnetpack torchani torchmd torchmdnet".split()
)
_LIBRARIES = ("torch.", "torchvision.", "timm.", "transformers.")
_LOSS = re.compile(r"loss|crit|metric|(^|_)(ce|bce|mse|l1)$|objective", re.IGNORECASE)


def graph_builder(script: Script, loop: Loop) -> ast.Call | None:
    """The first model call of a loop's steps that builds a graph, if one surely does.

    None for a loop that is not plainly an evaluation, or whose graph may be wanted.
    """
    if not script.steps_on_gpu or not loop.eval or loop.no_grad or loop.steps:
        return None
    if not is_evaluation(script, loop) or may_switch_off(loop.function):
        return None
    if loop.function is not None and always_without_grad(script, loop.function):
        return None
    functions = (loop.function, *loop.helpers)
    if any(_grad_switched_off(script, function) for function in functions):
        return None
    if _is_volatile(script, loop):
        return None
    if _graph_is_wanted(script, loop):
        return None
    for call in model_calls(script, loop):
        model = called_module(call)
        if has_no_weights(script, model):
            continue
        without = _is_pipeline(script, call) or is_frozen(script, model)
        without = without or runs_apart(script, model)
        return None if without else call
    return None


def _is_volatile(script: Script, loop: Loop) -> bool:
    """`Variable(x, volatile=True)`, which builds no graph in a project's torch 0.3.

    Later releases take it and do nothing.
    """
    oldest = script.torch_version
    return oldest is not None and oldest < (0, 4) and asks_for_volatile(loop)


def asks_for_volatile(loop: Loop) -> bool:
    """Whether a loop was written for torch 0.3, which has no `no_grad`."""
    return any(k.arg == "volatile" for call in loop.calls for k in call.keywords)


def _is_pipeline(script: Script, call: ast.Call) -> bool:
    """Whether a model is a pipeline of diffusers or transformers: it has `no_grad`."""
    made = makers(script, call.func)
    names = (script.index.qualified(m.func) or "" for m in made if m is not None)
    return any(map(_PIPELINE.search, names))


def is_evaluation(script: Script, loop: Loop) -> bool:
    """Whether function or loader is named so, or `.eval()` was called before."""
    function = loop.function
    names = [] if function is None else [function.name]
    names += [dotted(iterated) or "" for iterated, _ in loop.items]
    if any(_NAMED.search(name.rpartition(".")[2]) for name in names):
        return True
    scope = script.index.scope(loop.node)
    modes = [
        call
        for call in walk_scope(scope)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("eval", "train")
        and call.lineno < loop.node.lineno
        and script.modules.is_module(call.func.value)
    ]
    last = max(modes, key=lambda c: c.lineno, default=None)
    if last is None:
        return False
    assert isinstance(last.func, ast.Attribute)
    off = bool(last.args) and script.evaluator.values(last.args[0]).all_in(False)
    return last.func.attr == "eval" or off


# Where there is no graph anyway


def may_switch_off(function: Function | None) -> bool:
    """Whether a decorator's name says that it might switch gradients off."""
    decorators = function.decorator_list if function is not None else []
    return any(_SWITCH.search(ast.unparse(d)) for d in decorators)


def always_without_grad(script: Script, function: Function, depth: int = 0) -> bool:
    """Whether all callers run a function without gradients, tests aside.

    Where no caller is known: whether a call that may be one does.
    """
    callers = script.resolver.calls.callers(function)
    callers = [call for call in callers if not script.of(call).is_test] or callers
    if not callers:
        named = named_calls(script, function)
        return any(map(script.without_grad, named))
    return all(
        script.without_grad(call)
        or _is_switched_off_before(script, call)
        or _caller_without_grad(script, call, depth)
        for call in callers
    )


def _caller_without_grad(script: Script, call: ast.Call, depth: int) -> bool:
    above = script.index.function(call)
    if above is None or depth > 3:
        return False
    return always_without_grad(script, above, depth + 1)


def _is_switched_off_before(script: Script, call: ast.Call) -> bool:
    """`torch.set_grad_enabled(False)` above a call in its function."""
    home = script.index.home(call)
    return any(
        home.function(before) is home.function(call)
        and before.lineno < call.lineno
        and isinstance(home.parent(before), ast.Expr)
        and _is_off(script, before)
        for before in home.calls_by_name.get("set_grad_enabled", ())
    )


def _is_off(script: Script, switch: ast.Call) -> bool:
    given = script.evaluator.argument(switch, "mode", 0).direct
    return given is not None and script.evaluator.values(given).all_in(False)


def _grad_switched_off(script: Script, function: Function | None) -> bool:
    """Whether a function, or the module, calls `torch.set_grad_enabled(…)`."""
    if "set_grad_enabled" not in script.source.text:
        return False
    for call in script.index.all(ast.Call):
        name = (script.index.qualified(call.func) or "").rpartition(".")[2]
        if name not in ("set_grad_enabled", "_set_grad_enabled"):
            continue
        if script.index.function(call) in (function, None):
            return True
    return False


# Where the graph is wanted


def _graph_is_wanted(script: Script, loop: Loop) -> bool:
    functions = [*loop.helpers, *forwards(script), *_objects(script, loop)]
    if differentiates(script, [*loop.node.body, *reachable(script, functions)]):
        return True
    if script.backpropagated.computed_in(loop.node) or _strange(script, loop):
        return True
    if any(map(_is_given_optimizer, loop.calls)):
        return True
    if _may_differentiate_itself(script, loop):
        return True
    scope = script.index.scope(loop.node)
    for node in walk_scope(scope):  # a loss collected for later
        if isinstance(node, ast.Call) and (is_backward(node) or is_step(node)):
            after = node.lineno > (loop.node.end_lineno or loop.node.lineno)
            its = script.loop_of(node)
            if after and (its is None or script.index.inside(loop.node, its.node)):
                return True
    return False


def _may_differentiate_itself(script: Script, loop: Loop) -> bool:
    """Whether a model may take derivatives of what it gives, as forces of energies.

    The project does somewhere, and the model's class is not known, or it does in the
    class's file or one that this imports from: what leads there is not followed.
    """
    project = script.index.project
    if not _OF_FORCES.isdisjoint(script.index.packages):
        return True
    if project is None or not project.files:
        return False  # what the file itself does is known
    texts = (text for part in _MENTIONS for text in project.texts(part))
    if not any(map(_DERIVES.search, texts)):
        return False
    made = [
        m for c in model_calls(script, loop) for m in makers(script, called_module(c))
    ]
    return not made or any(_may_derive(script, call) for call in made)


def _may_derive(script: Script, made: ast.Call | None) -> bool:
    if made is None:
        return True
    owner = script.resolver.classes.named(made.func)
    if owner is None:
        name = script.index.home(made).qualified(made.func) or ""
        return not name.startswith(_LIBRARIES)
    home = script.index.home(owner)
    files = [home, *imported(script, home)]
    return any(file.source.has(_DERIVES) for file in files)


def _objects(script: Script, loop: Loop) -> Iterator[Function]:
    """`__call__` and `forward` of this file's objects that the loop calls."""
    for call in loop.calls:
        for origin in script.resolver.origins(call.func):
            if origin.call is None:
                continue
            owner = script.resolver.classes.named(origin.call.func)
            if owner is not None:
                methods = script.resolver.classes.methods(owner)
                yield from (methods[m] for m in ("__call__", "forward") if m in methods)


def _strange(script: Script, loop: Loop) -> bool:
    """Whether the loop calls an object of another library that has the model.

    That may differentiate: attacks and explanations are made so.
    """
    for call in loop.calls:
        if script.modules.is_module(call.func):
            continue
        for origin in script.resolver.origins(call.func):
            made = origin.call
            if made is None or not _is_foreign(script, made.func):
                continue
            given = [*made.args, *(k.value for k in made.keywords)]
            if any(script.modules.is_module(g) for g in given):
                return True
    return False


def _is_given_optimizer(call: ast.Call) -> bool:
    """Whether a call may update weights, wherever it goes backward."""
    given = [*call.args, *(k.value for k in call.keywords)]
    names = ((dotted(g) or "").lower().rpartition(".")[2] for g in given)
    return any("optim" in name for name in names)


def _is_foreign(script: Script, callee: ast.expr) -> bool:
    if script.resolver.classes.named(callee) is not None:
        return False
    head = (dotted(callee) or "").partition(".")[0]
    library = script.index.imports.get(head, "").partition(".")[0]
    return library not in ("torch", "torchvision", "copy", "functools")


def forwards(script: Script) -> Iterator[Function]:
    """Methods of every module class of the file: the model may be any of them."""
    for owner in script.index.classes.values():
        if script.modules.is_module_class(owner):
            yield from script.resolver.classes.methods(owner).values()


def reachable(script: Script, functions: Iterable[Function]) -> list[Function]:
    found = list(dict.fromkeys(functions))
    for function in found:
        for node in walk(*function.body):
            if isinstance(node, ast.Call) and len(found) < 200:
                callee = script.resolver.calls.callee(node)
                if callee is not None and callee not in found:
                    found.append(callee)
    return found


def differentiates(script: Script, roots: Iterable[ast.AST]) -> bool:
    """Whether code takes derivatives, or speaks of maps that are made of them."""
    for node in walk(*roots):
        if isinstance(node, ast.Call):
            name = script.index.qualified(node.func) or ""
            last = name.rpartition(".")[2]
            if isinstance(node.func, ast.Attribute):
                last = node.func.attr
            if _GRADIENTS.search(last):
                return True
            if any(k.arg in ("create_graph", "requires_grad") for k in node.keywords):
                return True
        elif isinstance(node, ast.Attribute):
            switched = node.attr == "requires_grad" and isinstance(node.ctx, ast.Store)
            if switched or node.attr == "grad":
                return True
        elif isinstance(node, ast.Constant) and _MAPS.search(str(node.value)):
            return True  # `params["medcam_enabled"]`
    return False


def leaves_evaluation(script: Script, loop: Loop, function: Function) -> bool:
    """Whether a function of an evaluation does something that may need gradients."""
    if script.backpropagated.computed_in(function):
        return True
    inside = {id(n) for n in walk(loop.node)}
    calls = [
        n
        for n in walk_scope(function)
        if isinstance(n, ast.Call) and id(n) not in inside
    ]
    called = [script.resolver.calls.callee(call) for call in calls]
    functions = [f for f in called if f is not None]
    if differentiates(script, reachable(script, functions)):
        return True
    return any(
        callee is None
        and _is_foreign(script, call.func)
        and (dotted(call.func) or "").partition(".")[0] in script.index.imports
        and any(script.modules.is_module(a) for a in call.args)
        for call, callee in zip(calls, called, strict=True)
    )


# The model


def model_calls(script: Script, loop: Loop) -> Iterator[ast.Call]:
    """Calls of a model on tensors, in the body or in a helper, outside `no_grad`."""
    for part in EveryStep(script, loop).parts():
        node = part.node
        if not isinstance(node, ast.Call) or script.without_grad(node):
            continue
        if not part.graph:
            continue
        helper = part.helper
        if may_switch_off(helper) or (helper and always_without_grad(script, helper)):
            continue
        callee = called_module(node)
        given = [*node.args, *(k.value for k in node.keywords)]
        tensors = any(script.where(a) is not Where.PLAIN for a in given)
        if (
            tensors
            and script.modules.is_module(callee)
            and not _is_loss(script, callee)
        ):
            yield node


def called_module(call: ast.Call) -> ast.expr:
    """`model` for `model(x)` and `model.forward(x)`."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr == "forward":
        return func.value
    return func


def _is_loss(script: Script, callee: ast.expr) -> bool:
    """A loss alone has no parameters: only what the model gives carries a graph."""
    made = [o.call for o in script.resolver.origins(callee) if o.call is not None]
    if any((dotted(call.func) or "").endswith("Loss") for call in made):
        return True
    return bool(_LOSS.search((dotted(callee) or "").rpartition(".")[2]))
