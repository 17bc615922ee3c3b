"""Optimizers whose update could be one kernel, and whether their weights are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Move, Target
from gpulint.index.walk import dotted, walk
from gpulint.script.branches import branches_of
from gpulint.script.copying.named_devices import named_devices
from gpulint.script.modelling.models import wrapped
from gpulint.script.neighbours import run_together
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.rewriting.device_code import device_condition
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords
from gpulint.script.set_before import precedes

if TYPE_CHECKING:
    from gpulint.script.model import Script

# The lowest release in which `fused` is there and the update is right.
LOWEST = (2, 0)
# Not SGD, whose kernel spoils the momentum in steps that a gradient scaler leaves out.
_NAME = re.compile(r"^torch\.optim\.(\w+\.)?(Adam|AdamW)$")
# What says how the update is done, or cannot be had together with `fused`.
_OPTIONS = ("fused", "foreach", "differentiable", "capturable")
_WRAPS = re.compile(
    r"\b(apex|deepspeed|FullyShardedDataParallel|FSDP|fully_shard|ZeroRedundancyOpt\w+)"
)
_COMPLEX = re.compile(r"\b(cfloat|cdouble|complex64|complex128|view_as_real)\b")
# Weights that are whole numbers, which older releases refuse with `fused`.
_QUANTIZED = re.compile(
    r"load_in_[48]bit|BitsAndBytes|from_quantized|prepare_model_for_(kbit|int8)"
    r"|GPTQ|auto_?awq",
    re.IGNORECASE,
)
_SPARSE = re.compile(r"sparse\s*=\s*True")
# Of an optimizer: `optimizer.load_state_dict(…)`, `opt.load_state_dict(…)`.
_RESUMES = re.compile(
    r"\b\w*opt\w*(\[[^\]\n]*\])?\.load_state_dict\("
    r"|\.load_state_dict\([^\n]*['\"]\w*opt\w*['\"]",
    re.IGNORECASE,
)
# What scales gradients, or has a scaler of its own.
_SCALES = re.compile(r"GradScaler|\b(Accelerator|Fabric)\(")
_WEIGHTS = frozenset({"parameters", "named_parameters"})
_LOOKED_AT = frozenset("param_groups state_dict state defaults zero_grad".split())
# Not `self.classifier`, which may be all of a model.
_HEAD = re.compile(r"(?<!^self)\.(head|classifier|fc|linear|probe)$")
_ON_GPU = (Target.ANY, Target.CUDA)
MAX_STEPS = 4  # names between an optimizer and the models whose weights it holds


class Unfused(NamedTuple):
    """An optimizer of models that are trained on a GPU.

    `kind`: `Adam` or `AdamW`; `rewrite`, or why there is none; `of_head`: only of the
    last layer of a model.
    """

    call: ast.Call
    kind: str
    rewrite: Rewrite | None
    withheld: str | None
    of_head: bool


def unfused_optimizers(script: Script) -> Iterator[Unfused]:
    """Optimizers of the file that never say how they update, in source order."""
    if not any(_sends(script, move) for move in script.moves):
        return
    if script.source.has(_QUANTIZED):
        return  # only adapters are trained, and not every release would do it
    for call in script.index.all(ast.Call):
        found = _NAME.match(script.index.qualified(call.func) or "")
        if found is None or not _is_plain(script, call):
            continue
        if _is_for_want_of_another(script, call) or _never_steps(script, call):
            continue
        models = list(_models(script, call))
        if models:
            rewrite = _fused(script, call, found[2], models)
            its = isinstance(rewrite, Rewrite)
            yield Unfused(
                call,
                found[2],
                rewrite if isinstance(rewrite, Rewrite) else None,
                None if its else str(rewrite),
                _is_of_head(call),
            )


def _is_of_head(optimizer: ast.Call) -> bool:
    """`Adam(model.head.parameters())`: a few tensors beside a model that stays."""
    given = optimizer.args[0] if optimizer.args else None
    func = given.func if isinstance(given, ast.Call) else None
    held = func.value if isinstance(func, ast.Attribute) else None
    return held is not None and _HEAD.search(dotted(held) or "") is not None


def _sends(script: Script, move: Move) -> bool:
    """Whether a batch or a model is sent to a GPU."""
    if move.target not in _ON_GPU:
        return False
    batch = script.batches.loop_of(move.receiver) is not None
    return batch or script.modules.is_module(move.receiver)


def _is_plain(script: Script, call: ast.Call) -> bool:
    """Whether the update is of several kernels, and nothing chooses another way."""
    if runs_only_before(script, LOWEST):
        return False
    argument = script.evaluator.argument
    return all(argument(call, option, None).absent for option in _OPTIONS)


def _never_steps(script: Script, optimizer: ast.Call) -> bool:
    """Whether nothing but the rates and the state of an optimizer are asked for."""
    uses = script.readers(optimizer)
    if not uses:
        return False
    above = [script.index.parent(use) for use in uses]
    return all(
        isinstance(its, ast.Attribute) and its.attr in _LOOKED_AT for its in above
    )


def _is_for_want_of_another(script: Script, call: ast.Call) -> bool:
    """Whether it is made where `optimizer is None`, and programs pass one.

    Those that do not then evaluate, as far as anybody sees.
    """
    function = script.index.function(call)
    if function is None:
        return False
    for branch, holds in branches_of(script.index, call):
        test = getattr(branch, "test", None)
        if not holds or not isinstance(test, ast.Compare):
            continue
        asked, none = test.left, test.comparators[0]
        if not isinstance(test.ops[0], ast.Is) or not isinstance(asked, ast.Name):
            continue
        calls = script.resolver.calls.callers(function)
        given = (script.resolver.calls.given(c, function, asked.id)[0] for c in calls)
        if isinstance(none, ast.Constant) and none.value is None and any(given):
            return True
    return False


def _models(script: Script, call: ast.Call) -> Iterator[ast.expr]:
    """The models whose `parameters()` an optimizer is given."""
    given = script.evaluator.argument(call, "params", 0).direct
    todo = [] if given is None else [given]
    for number, root in enumerate(todo):
        for node in walk(root):
            func = node.func if isinstance(node, ast.Call) else None
            if isinstance(func, ast.Attribute) and func.attr in _WEIGHTS:
                yield func.value
            elif isinstance(node, ast.Name) and number < MAX_STEPS:
                values = (d.value for d in script.definitions(node))
                todo += [v for v in values if v is not None and v not in todo]


def _fused(
    script: Script, call: ast.Call, kind: str, models: list[ast.expr]
) -> Rewrite | str:
    """`fused=` tied to the device of the weights, or why it must not be added."""
    for index in run_together(script):
        source = index.source
        wraps = _WRAPS.search(source.text) if source.has(_WRAPS) else None
        if wraps is not None:
            return f"`{wraps[0]}` may wrap the optimizer"
        if source.has(_COMPLEX):
            return "complex weights have no fused update"
        if source.has(_QUANTIZED):
            return "the weights may be quantized"
        if source.has(_SPARSE):
            return "sparse gradients have no fused update"
    if _resumes_with_scaler(script):
        return "a checkpoint of the optimizer as it is would stop a gradient scaler"
    moves = [_placed(script, model, call) for model in models]
    if None in moves:
        model = script.text(models[moves.index(None)])
        return f"`{model}` is not seen to be on the device before the optimizer is made"
    conditions = {_condition(script, m, call) for m in moves if m is not None}
    if len(conditions) != 1 or None in conditions:
        return "the device of the weights has no name where the optimizer is made"
    condition, imports = next(c for c in conditions if c is not None)
    value = "True" if condition == "True" else f"{condition} or None"
    edit = Replace(call, set_keywords(fused=value))
    title = f"Let `{kind}` update all weights in one kernel"
    return Rewrite(title, (edit,), imports, torch=LOWEST)


def _resumes_with_scaler(script: Script) -> bool:
    """Whether a state may be loaded that says `fused=None`, and gradients be scaled.

    Loading takes `fused` back, but not that the optimizer unscales in its step, so that
    `scaler.step` raises. Without mixed precision a scaler may come with it (GPU301).
    """
    files = run_together(script)
    if not any(index.source.has(_RESUMES) for index in files):
        return False
    scales = any(index.source.has(_SCALES) for index in files)
    return scales or script.precision.amp is None


def _condition(
    script: Script, move: Move, call: ast.Call
) -> tuple[str, tuple[str, ...]] | None:
    """Code that is true where a model was moved to a GPU; None: it has no name."""
    if move.device is None or script.devices.is_surely_cuda(move.device):
        return "True", ()
    wanted = {origin.node for origin in script.resolver.origins(move.device)}
    found = named_devices(script, script.index.statement(call))
    found.sort(key=lambda node: script.text(node) != script.text(move.device or node))
    for node in found:
        if {origin.node for origin in script.resolver.origins(node)} == wanted:
            return device_condition(script, node)
    return None


# Whether a model is on its device


def _placed(
    script: Script, model: ast.expr, at: ast.Call, depth: int = MAX_STEPS
) -> Move | None:
    """The move that surely has put a model, or what it is a part of, on a GPU."""
    found = _moved_before(script, model, at) or _moved_when_made(script, model, depth)
    whole = model.value if isinstance(model, ast.Attribute) else None
    if found is not None or whole is None:
        return found
    own = script.resolver.self_name(script.index.scope(model))
    return _placed(script, whole, at, depth) if dotted(whole) != own else None


def _moved_when_made(script: Script, model: ast.expr, depth: int) -> Move | None:
    """`net = Net().to(device)`, and wrappers around such a model."""
    moves = []
    for origin in script.resolver.origins(model):
        call = origin.call
        if call is None or not depth:
            return None
        move = script.devices.move(call)
        inner = wrapped(script, call)
        if move is not None and move.target in _ON_GPU:
            moves.append(move)
        elif inner is not None and move is None:
            below = _placed(script, inner, call, depth - 1)
            if below is None:
                return None
            moves.append(below)
        else:
            return None
    devices = {dotted(move.device) for move in moves}
    return moves[0] if len(devices) == 1 else None


def _moved_before(script: Script, model: ast.expr, at: ast.Call) -> Move | None:
    """`net.to(device)` in an earlier statement, with no other `net` in between."""
    name, index = dotted(model), script.index.home(at)
    made = [d.node for d in script.definitions(model)]
    for move in script.of(at).moves:
        before = dotted(move.receiver) == name and precedes(script, move.call, at)
        if not before or move.target not in _ON_GPU:
            continue
        statement = index.statement(move.call)
        if all(
            index.holds(node) and index.statement(node).lineno <= statement.lineno
            for node in made
        ):
            return move
    return None
