"""Whether an AMP flag that is off may be on by another way, or may be switched on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted, walk
from gpulint.script.numerics.amp_switches import (
    OFF,
    ON,
    OffFlag,
    atoms,
    flag_name,
    off_flags,
    parameter_of,
)
from gpulint.script.numerics.autocast import file_guard
from gpulint.script.numerics.half import Formats
from gpulint.script.numerics.half_outputs import Outputs
from gpulint.script.numerics.hazards import hazard
from gpulint.script.numerics.protected import why_protected
from gpulint.script.numerics.scaler_checkpoints import lacks_state, saved_states
from gpulint.script.reaching.started import (
    trains_in_double,
    trains_on_gpu,
    uses_a_trainer,
)
from gpulint.script.training.step_calls import is_backward
from gpulint.script.training.training_step import Step, find_steps, model_calls

if TYPE_CHECKING:
    from gpulint.script.model import Script

_OVERRIDES = re.compile(
    r"config|cfg|yaml|json|overrid|merge|update|load|opts", re.IGNORECASE
)

# Frameworks with switches of their own
_OWN_SETTINGS = frozenset(
    {"lightning", "accelerate", "deepspeed", "fastai", "ignite", "xla"}
)


def switched_off(script: Script) -> list[OffFlag]:
    """Flags that keep a script, which trains on a GPU, in float32 for certain."""
    if script.frameworks & _OWN_SETTINGS:
        return []
    if uses_a_trainer(script) or not trains_on_gpu(script):
        return []
    if trains_in_double(script) is not None:
        return []
    if not script.training_loops and "GradScaler" not in script.source.text:
        return []
    return [flag for flag in off_flags(script) if not may_be_on(script, flag)]


# Other places that may switch it on


def may_be_on(script: Script, flag: OffFlag) -> bool:
    """Whether the file may give the flag, or what holds it, another value."""
    index = script.index
    if {"exec", "globals"} & index.called_names:
        return True
    names = {flag.name, *(flag_name(s.flag) for s in flag.switches)}
    names.add(parameter_of(script, flag.value) or flag.name)
    constant = bool(flag.value.constant)
    if any(not _stays(script, value, constant) for value in _stored(script, names)):
        return True
    if not _is_made_here(script, flag):
        return True
    holders = {
        (dotted(s.flag.value) or "").rpartition(".")[2]
        for s in flag.switches
        if isinstance(s.flag, (ast.Attribute, ast.Subscript))
    }
    return any(_overrides(call, holders) for call in index.all(ast.Call))


def _stays(script: Script, value: ast.expr | None, constant: bool) -> bool:
    """Whether a value is certainly the flag's own: False, for most flags."""
    if value is None:
        return False
    if script.evaluator.values(value).all_in(*(ON if constant else (*OFF, None))):
        return True
    for flag, wanted in () if constant else atoms(script, value, True):
        if script.evaluator.values(flag).all_in(*(OFF if wanted else ON)):
            return True
    return False


def _stored(script: Script, names: set[str]) -> Iterator[ast.expr | None]:
    """What the file gives to anything of these names; None where it is not clear."""
    index = script.index
    written: list[ast.expr] = [n for n in index.all(ast.Name) if n.id in names]
    written += [a for a in index.all(ast.Attribute) if a.attr in names]
    written += [s for s in index.all(ast.Subscript) if flag_name(s) in names]
    for target in written:
        if not isinstance(getattr(target, "ctx", None), ast.Load):
            holder = index.parent(target)
            plain = isinstance(holder, (ast.Assign, ast.AnnAssign, ast.NamedExpr))
            if not (isinstance(holder, ast.AnnAssign) and holder.value is None):
                yield holder.value if plain else None  # type: ignore[union-attr]
    for keyword in index.all(ast.keyword):
        if keyword.arg in names:
            yield keyword.value
    for literal in index.all(ast.Dict):
        for key, value in zip(literal.keys, literal.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in names:
                yield value


def _is_made_here(script: Script, flag: OffFlag) -> bool:
    """Whether somebody is known to use a default: callers, or makers of a class."""
    node = flag.value.node
    arguments = script.index.parent(node)
    if isinstance(arguments, ast.arguments):
        function = script.index.parent(arguments)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        loads = [n for n in script.index.all(ast.Name) if n.id == function.name]
        called = {c.func for c in script.index.all(ast.Call)}
        plain = function.decorator_list == [] and called.issuperset(loads)
        return plain and bool(script.resolver.calls.callers(function))
    owner = script.index.parent(script.index.statement(node))
    if isinstance(owner, ast.ClassDef):
        made = script.index.calls.get(owner.name, [])
        clear = all(not c.args and all(k.arg for k in c.keywords) for c in made)
        return clear and (bool(made) or node not in script.index.parents)
    return True


def _overrides(call: ast.Call, holders: set[str]) -> bool:
    """Whether a call may set any attribute or key of the flag's holder."""
    name = str(getattr(call.func, "attr", None) or dotted(call.func))
    if name == "set_defaults":
        return any(k.arg is None for k in call.keywords)
    if name in ("parse_args", "parse_known_args"):
        given = [*call.args, *(k.value for k in call.keywords if k.arg == "args")]
        written = any(isinstance(a, ast.List) and a.elts for a in given)
        return written or any(k.arg == "namespace" for k in call.keywords)
    if name == "setattr" and len(call.args) == 3:
        plain = isinstance(call.args[1], ast.Constant)
        return not plain and _last(call.args[0]) in holders
    if isinstance(call.func, ast.Attribute) and _OVERRIDES.search(name):
        holder = call.func.value
        if isinstance(holder, ast.Call) and dotted(holder.func) == "vars":
            holder = holder.args[0] if holder.args else holder
        if isinstance(holder, ast.Attribute) and holder.attr == "__dict__":
            holder = holder.value
        if _last(holder) in holders:
            return True
    return bool(_OVERRIDES.search(name)) and any(_last(a) in holders for a in call.args)


def _last(node: ast.expr) -> str:
    return (dotted(node) or "").rpartition(".")[2]


# Whether it may be switched on


def why_not_on(script: Script, flag: OffFlag) -> str | None:
    """What speaks against switching it on, or is not known; None: nothing."""
    steps = find_steps(script)
    if not steps:
        return "the training step is in another file"
    if not all(s.direct for s in flag.switches) or _read_elsewhere(script, flag):
        return f"`{flag.name}` decides more than whether autocast is on"
    for call in script.index.all(ast.Call):
        if getattr(call.func, "attr", "") == "load_state_dict" and "scaler" in (
            _last(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        ):
            return "a checkpoint of a scaler that was off cannot be loaded"
    if script.precision.second_order:
        return "the script computes second derivatives"
    for state in saved_states(script):
        return lacks_state(script, state)
    reasons = (_why_not_step(script, flag, step) for step in steps)
    return file_guard(script) or next(filter(None, reasons), None)


def _read_elsewhere(script: Script, flag: OffFlag) -> bool:
    """Whether the flag is read by anything but the switches."""
    switches = {id(n) for s in flag.switches for n in walk(s.flag)}
    index = script.index
    names: list[ast.AST] = [
        *(n for n in index.all(ast.Name) if n.id == flag.name),
        *(a for a in index.all(ast.Attribute) if a.attr == flag.name),
        *(c for c in index.all(ast.Constant) if c.value == flag.name),
    ]
    return any(
        id(node) not in switches
        and not isinstance(getattr(node, "ctx", None), ast.Store)
        and not isinstance(index.parent(node), ast.Dict)
        for node in names
    )


def _why_not_step(script: Script, flag: OffFlag, step: Step) -> str | None:
    """What one training step lacks to run in mixed precision."""
    protected = why_protected(script, step)
    if protected is not None:
        return protected
    if len([c for c in step.loop.calls if is_backward(c)]) != 1:
        return "several backward calls in a step"
    region = _region(script, flag, step)
    if region is None:
        return "the forward call is not under an autocast that it switches"
    names = {getattr(c.func, "attr", "") for c in step.loop.calls}
    called = {(dotted(c.func) or "").rpartition(".")[2] for c in step.loop.calls}
    loss = step.loss
    if isinstance(loss, ast.Call) and getattr(loss.func, "attr", "") == "scale":
        loss = loss.args[0] if loss.args else loss
        clips = any("clip_grad" in name for name in called)
        if clips and "unscale_" not in names:
            return "gradients are clipped while they are scaled"
        if "update" not in names:
            return "the scaler is not updated"
    elif "bfloat16" not in "".join(script.text(s.call) for s in flag.switches):
        return "the loss is not scaled, which float16 needs"
    formats = Formats(script)
    if not formats.float32(loss):
        return f"`{script.text(loss)}` does not come from a known loss function alone"
    danger = hazard(script, region)
    calls = [c for s in region for c in model_calls(script, s)]
    scope = step.function or script.index.tree
    bad = Outputs(script, formats, region).misuse(calls, scope)
    return danger or (f"`{bad}` may not take half precision" if bad else None)


def _region(script: Script, flag: OffFlag, step: Step) -> tuple[ast.stmt, ...] | None:
    """The block under autocast that holds the step's forward call."""
    for switch in flag.switches:
        item = script.index.parent(switch.call)
        block = script.index.parent(item) if item is not None else None
        if not isinstance(block, ast.With) or step.forward is None:
            continue
        if script.index.inside(step.forward, block):
            return tuple(block.body)
    return None
