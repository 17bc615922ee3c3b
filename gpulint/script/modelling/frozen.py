"""Models that build no graph: frozen, without weights, or run without gradients."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk, walk_scope
from gpulint.script.modelling.network import network

if TYPE_CHECKING:
    from gpulint.script.model import Script

_OF_WEIGHTS = ("torch.nn.", "torch.hub.", "torchvision.models.")
_ACTIVATION = re.compile(
    r"^torch\.nn\.((Log)?Soft(max|min|plus)(2d)?|LogSigmoid|Sigmoid|Tanh|(Leaky)?ReLU6?|"
    r"GELU|SiLU|ELU|Identity|Flatten|Upsample|\w*(Max|Avg)Pool[123]d|CosineSimilarity)$"
)
_LOSS = re.compile(r"(?<!With)(?<!And)Loss$")
_RENDERS = re.compile(r"(?i)render|raster|sampl|camera|light|mesh")
_MAKES_MODELS = ("create_model", "from_pretrained", "load", "load_model")
_MODULE = re.compile(r"torch\.nn\.Module$")
_WITHOUT = re.compile(
    r"^(torch\.nn\.(Module$|\w*(?<!With)Loss\d*d?$|functional\.)|object$|"
    r"torch\.autograd\.Function$|(abc|collections|enum|typing)\.)"
)
_READ_FROZEN = (
    "torch.nn.Embedding.from_pretrained",
    "torch.nn.EmbeddingBag.from_pretrained",
)
_OF_NUMBERS = ("int", "float", "len", "max", "min", "round", "range")
_REGISTERS = ("register_parameter", "register_module", "add_module")
_PARAMETERS = ("parameters", "named_parameters")
_FEW = 4  # parameters of the last layers
_SWITCH = re.compile(r"\brequires_grad|\.detach_\(")


def is_frozen(script: Script, model: ast.expr) -> bool:
    """Whether a file switches the gradients of a model off, or of all but few layers.

    `net.requires_grad_(False)`, a loop over `net.parameters()`, or a function of the
    project that has one; and nothing of the file switches any on again. Or the model
    does so when it is made.
    """
    if _is_read_frozen(script, model) or _freezes_itself(script, model):
        return True
    if not dotted(model) or not script.source.has(_SWITCH):
        return False
    found = list(_switched(script, model))
    return bool(found) and not any(found)


def is_frozen_before(script: Script, call: ast.Call) -> bool:
    """Whether the block of a model's call switches its gradients off before.

    By `net.requires_grad_(False)`, the last in the file's order, as in a GAN whose
    critic takes its turn behind.
    """
    name = dotted(call.func)
    switches = [
        node
        for node in walk_scope(script.index.scope(call))
        if isinstance(node, ast.Call)
        and name is not None
        and dotted(node.func) == f"{name}.requires_grad_"
        and node.lineno < call.lineno
    ]
    if not switches:
        return False
    last = max(switches, key=lambda node: node.lineno)
    block = script.index.parent(script.index.statement(last))
    flags = [*last.args, *(k.value for k in last.keywords)]
    return block in script.index.ancestors(call) and not _is_on(script, flags)


def _is_read_frozen(script: Script, model: ast.expr) -> bool:
    """`nn.Embedding.from_pretrained(vectors)`, which freezes these by default."""
    made = [o.call for o in script.resolver.origins(model)]
    return bool(made) and all(
        call is not None
        and script.index.home(call).qualified(call.func) in _READ_FROZEN
        and not any(k.arg in ("freeze", None) for k in call.keywords)
        and len(call.args) == 1
        for call in made
    )


def _freezes_itself(script: Script, model: ast.expr) -> bool:
    """Whether the `__init__` of a model ends gradients for all of `self`."""
    owners = script.resolver.classes.of(model)
    methods = [script.resolver.classes.methods(o).get("__init__") for o in owners]
    return bool(methods) and all(
        init is not None and _freezes_self(script.of(init), init) for init in methods
    )


def _freezes_self(script: Script, init: Function) -> bool:
    for statement in init.body:
        if isinstance(statement, ast.For) and isinstance(statement.iter, ast.Call):
            over = dotted(statement.iter.func) or ""
            if over in ("self.parameters", "self.named_parameters"):
                found = list(_in(script, statement))
                each = isinstance(statement.body[0], (ast.Assign, ast.Expr))
                if each and found and not any(found):
                    return True
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and dotted(call.func) == "self.requires_grad_":
            return not _is_on(script, [*call.args, *(k.value for k in call.keywords)])
    return False


def runs_apart(script: Script, model: ast.expr) -> bool:
    """Whether the `forward` of a model runs its parts without gradients itself."""
    owners = script.resolver.classes.of(model)
    methods = [script.resolver.classes.methods(o).get("forward") for o in owners]
    return bool(methods) and all(
        forward is not None and _parts_build_none(script.of(forward), forward)
        for forward in methods
    )


def _parts_build_none(script: Script, forward: Function) -> bool:
    calls = (node for node in walk(forward) if isinstance(node, ast.Call))
    parts = [call for call in calls if script.modules.is_module(call.func)]
    return bool(parts) and all(
        script.without_grad(part) or has_no_weights(script, part.func) for part in parts
    )


def has_no_weights(script: Script, model: ast.expr) -> bool:
    """Whether a module's class is of the project and holds buffers and numbers only.

    As a spectrogram: nothing that makes it makes a layer, a parameter, or an object of
    another class, and no attribute is what an unknown function gives.
    """
    if _is_activation(script, model):
        return True
    owners = script.resolver.classes.of(model)
    return bool(owners) and all(_is_weightless(script, owner) for owner in owners)


def trains_no_weights(script: Script, model: ast.expr) -> bool:
    """The same, or where each parameter that it holds is made without a gradient."""
    owners = script.resolver.classes.of(model)
    return bool(owners) and all(
        _is_weightless(script, owner, but_frozen=True) for owner in owners
    )


def is_loss_without_layers(script: Script, model: ast.expr) -> bool:
    """Whether a module is of a class that is called a loss, and nothing in it a layer.

    Nor an object of another package, but for renderers and samplers, which have none.
    """
    owners = script.resolver.classes.of(model)
    return bool(owners) and all(
        _LOSS.search(owner.name)
        and _derives_from_module(script, owner, _WITHOUT)
        and not _is_given_weights(script, owner)
        and not any(
            _may_hold_weights(script, *its) for its in network(script, owner).calls
        )
        for owner in owners
    )


def _may_hold_weights(script: Script, call: ast.Call, name: str) -> bool:
    """`torch.nn.Linear(…)`, `lpips.LPIPS(…)`; not `torch.nn.MSELoss()`.

    What the code of the project gives is looked at for itself.
    """
    last = name.rpartition(".")[2]
    if last in _REGISTERS:
        return True
    if name.startswith(_OF_WEIGHTS):
        return _ACTIVATION.match(name) is None and _WITHOUT.match(name) is None
    if name.startswith(("torch.", "self.", "numpy.")) or _RENDERS.search(name):
        return False
    own = script.resolver.classes.named(call.func)
    if own is not None:
        return not _derives_from_module(script, own, _WITHOUT)
    if name in dir(builtins):
        return False
    return last[:1].isupper() or last in _MAKES_MODELS


def _is_given_weights(script: Script, owner: ast.ClassDef) -> bool:
    """Whether calls of a class give it a module that may have weights, to hold it."""
    return any(
        script.modules.is_module(given)
        and not _is_activation(script, given)
        and not (isinstance(given, ast.Call) and _is_without(script, given))
        for call in script.resolver.classes.constructors(owner)
        for given in (*call.args, *(keyword.value for keyword in call.keywords))
    )


def _is_without(script: Script, made: ast.Call) -> bool:
    """`torch.nn.MSELoss()`, which has no weights either."""
    name = script.index.home(made).qualified(made.func) or ""
    return _WITHOUT.match(name) is not None


def _derives_from_module(
    script: Script, owner: ast.ClassDef, bases: re.Pattern[str] = _MODULE
) -> bool:
    """Whether a class has no bases but the project's, and torch's own module.

    Or such as are given.
    """
    resolver = script.resolver
    known = resolver.classes.bases(owner)
    outside = (b for c in known for b in c.bases if resolver.classes.named(b) is None)
    names = (script.index.home(base).qualified(base) for base in outside)
    return all(name is not None and bases.match(name) for name in names)


def _is_activation(script: Script, model: ast.expr) -> bool:
    """`nn.Softmax(dim=1)`, or a name that stands for it."""
    made = [o.call for o in script.resolver.origins(model)]
    names = [
        script.index.home(c).qualified(c.func) or "" for c in made if c is not None
    ]
    return len(names) == len(made) > 0 and all(map(_ACTIVATION.match, names))


def _is_weightless(
    script: Script, owner: ast.ClassDef, *, but_frozen: bool = False
) -> bool:
    """Whether nothing that makes an object gives it weights, or frozen ones alone."""
    if not _derives_from_module(script, owner):
        return False
    init = script.resolver.classes.methods(owner).get("__init__")
    if init is None:
        return True  # made as every module is
    if _is_given_weights(script, owner):
        return False
    calls = [node for node in walk(init) if isinstance(node, ast.Call)]
    return bool(calls) and not any(
        _may_give_weights(script, call)
        and not (but_frozen and _is_without_gradient(script, call))
        for call in calls
    )


def _is_without_gradient(script: Script, call: ast.Call) -> bool:
    """`nn.Parameter(mean, requires_grad=False)`."""
    flags = [k.value for k in call.keywords if k.arg == "requires_grad"]
    flags = flags or call.args[1:2]
    named = script.index.home(call).qualified(call.func) == "torch.nn.Parameter"
    return named and bool(flags) and not _is_on(script, flags)


def _may_give_weights(script: Script, call: ast.Call) -> bool:
    """Whether what a call gives may hold weights that the object then has."""
    home, last = script.index.home(call), last_name(call)
    name = home.qualified(call.func) or ""
    plain = _ACTIVATION.match(name) is not None
    if (name.startswith(_OF_WEIGHTS) and not plain) or last in _REGISTERS:
        return True
    if name.startswith("torch.") or name in _OF_NUMBERS:
        return False
    statement = home.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    kept = any(isinstance(target, ast.Attribute) for target in targets)
    made = last[:1].isupper() or script.resolver.calls.callee(call) is not None
    return kept or made


def _switched(script: Script, model: ast.expr) -> Iterator[bool]:
    """Whether each place that switches the model's gradients may switch them on."""
    for call in script.index.all(ast.Call):
        func = call.func
        switches = isinstance(func, ast.Attribute) and func.attr == "requires_grad_"
        if switches and _is_it(script, func.value, model):  # type: ignore[attr-defined]
            yield _is_on(script, [*call.args, *(k.value for k in call.keywords)])
        elif any(_is_it(script, given, model) for given in call.args):
            yield from _by_function(script, call)
    for loop in script.index.all(ast.For):
        called = loop.iter.func if isinstance(loop.iter, ast.Call) else None
        if not isinstance(called, ast.Attribute) or called.attr not in _PARAMETERS:
            continue
        whole = called.attr == "parameters" or _leaves_few(loop)
        if whole and _is_it(script, called.value, model):
            yield from _in(script, loop)


def _leaves_few(loop: ast.For) -> bool:
    """`for name, p in net.named_parameters(): if name not in ["fc.weight", …]: …`.

    What is left builds the graph of a layer or two.
    """
    branch = loop.body[0]
    test = branch.test if isinstance(branch, ast.If) else None
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.NotIn):
        return False
    names = test.comparators[0]
    few = isinstance(names, (ast.List, ast.Tuple, ast.Set)) and len(names.elts) <= _FEW
    return few and len(loop.body) == 1


def _is_it(script: Script, node: ast.expr, model: ast.expr) -> bool:
    """Whether two names are one, and have the same value."""
    name = dotted(node)
    if not name or name != dotted(model):
        return False
    if isinstance(node, ast.Attribute):
        return script.index.owner(node) is script.index.owner(model)
    made = {d.node for d in script.definitions(node)}
    return not made.isdisjoint(d.node for d in script.definitions(model))


def _by_function(script: Script, call: ast.Call) -> Iterator[bool]:
    """`set_requires_grad(net, False)`, whose function goes through parameters."""
    function = script.resolver.calls.callee(call)
    if function is None or not script.of(function).source.has(_SWITCH):
        return
    given = [*call.args[1:], *(k.value for k in call.keywords)]
    defaults = [*function.args.defaults, *function.args.kw_defaults]
    flags = given or [flag for flag in defaults if flag is not None]
    for on in _in(script.of(function), function):
        yield on and _is_on(script, flags)


def _in(script: Script, node: ast.AST) -> Iterator[bool]:
    """Whether each statement below that writes `requires_grad` may switch it on.

    In a loop over parameters `parameter.detach_()` switches it off as well.
    """
    for part in walk(node):
        if isinstance(part, ast.Assign):
            targets = (t for t in part.targets if isinstance(t, ast.Attribute))
            if any(t.attr == "requires_grad" for t in targets):
                yield _is_on(script, [part.value])
        elif getattr(getattr(part, "func", None), "attr", "") == "requires_grad_":
            assert isinstance(part, ast.Call)
            yield _is_on(script, part.args)
        elif isinstance(node, ast.For) and _detaches(part):
            yield False


def _detaches(node: ast.AST) -> bool:
    """`parameter.detach_`, and not that of its gradient."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "detach_"
        and isinstance(node.value, ast.Name)
    )


def _is_on(script: Script, flags: list[ast.expr]) -> bool:
    """Whether a flag may be True, as it is where none is given."""
    return not flags or not script.evaluator.values(flags[0]).all_in(False)
