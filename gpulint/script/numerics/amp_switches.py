"""Flags that switch the mixed precision of a training script, and are off."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index import Value
from gpulint.index.walk import dotted, walk

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Qualified name → position of `enabled`.
_AUTOCAST = {"torch.autocast": 2, "torch.cuda.amp.autocast": 0}
_SCALER = {"torch.cuda.amp.GradScaler": 4, "torch.amp.GradScaler": 5}
_FLAG = re.compile(
    r"(^|_|use|enable)amp($|_)|autocast|mixed|half|precision|b?f(loat)?p?_?16",
    re.IGNORECASE,
)
_BOTH = re.compile(r"(^|_|use|enable)amp($|_)|autocast|mixed", re.IGNORECASE)
_DEVICE = re.compile(r"cuda|gpu|cpu|mps|device", re.IGNORECASE)
_EVALUATION = re.compile(
    r"eval|valid|test|infer|predict|sampl|generat|(^|_)val(_|$)", re.IGNORECASE
)
OFF = (False, 0)
ON = (True, 1)
MAX_STEPS = 6  # names between a flag and the place where it decides

Condition = tuple[ast.expr, bool]


@dataclass(frozen=True, eq=False)
class Switch:
    """A call of autocast or of the gradient scaler that a flag keeps from working.

    `flag` is read there, or in a branch around; `direct`: as the argument `enabled`.
    """

    call: ast.Call
    flag: ast.expr
    values: tuple[Value, ...]
    direct: bool


@dataclass(frozen=True, eq=False)
class OffFlag:
    """A flag that is off: the value that says so, and all that it switches."""

    value: Value
    name: str
    switches: tuple[Switch, ...]


def off_flags(script: Script) -> list[OffFlag]:
    """Flags that switch off all mixed precision of the file's training, each once."""
    found: list[Switch] = []
    if _has_other_forms(script):
        return []
    for call in _amp_calls(script):
        switch = _switch(script, call)
        if switch is not None:
            found.append(switch)
        elif not _is_scaler(script, call) and not _evaluates(script, call):
            return []  # is on, or not known to be off
    training = [s for s in found if not _evaluates(script, s.call)]
    if not any(not _is_scaler(script, s.call) for s in training):
        training = [s for s in training if _scales_all(script, s)]
    kept: dict[ast.AST, list[Switch]] = {}
    for switch in training:
        kept.setdefault(_chosen(script, switch.values).node, [])
    for switch in found:
        kept.get(_chosen(script, switch.values).node, []).append(switch)
    return [_flag(script, switches) for switches in kept.values()]


def _flag(script: Script, switches: list[Switch]) -> OffFlag:
    first = switches[0]
    return OffFlag(
        _chosen(script, first.values), flag_name(first.flag), tuple(switches)
    )


def _chosen(script: Script, values: tuple[Value, ...]) -> Value:
    """The value to report: in this file if possible, and one that a user may set."""
    used = [v for v in values if not _is_overridden(script, v)] or list(values)
    here = [v for v in used if v.node in script.index.parents] or used
    return next((v for v in here if v.default), here[0])


def _is_overridden(script: Script, value: Value) -> bool:
    """Whether a value is a parameter's default that no call which is known uses."""
    name = parameter_of(script, value)
    arguments = script.index.parent(value.node)
    function = script.index.parent(arguments) if arguments is not None else None
    if name is None or not isinstance(
        function, (ast.FunctionDef, ast.AsyncFunctionDef)
    ):
        return False
    position = script.resolver.calls.position(function, name)
    callers = script.resolver.calls.callers(function)
    return bool(callers) and all(
        script.evaluator.argument(call, name, position).given for call in callers
    )


# Calls and the flags around them


def _amp_calls(script: Script) -> Iterator[ast.Call]:
    """Autocast and scalers, without regions that are meant to be in float32."""
    for name in (*_AUTOCAST, *_SCALER):
        for call in script.index.calls.get(name, ()):
            device = script.evaluator.argument(call, "device_type", 0).direct
            if isinstance(device, ast.Constant) and device.value in ("cpu", "mps"):
                continue
            enabled = _enabled(script, call)
            fence = isinstance(enabled, ast.Constant) and not enabled.value
            if not fence:
                yield call


def _has_other_forms(script: Script) -> bool:
    """Whether autocast is handed on without a call, or the model itself is half."""
    index = script.index
    called = {c.func for c in index.all(ast.Call)}
    named: list[ast.expr] = [*index.all(ast.Name), *index.all(ast.Attribute)]
    if "autocast" not in script.source.text:
        named = []
    if any(index.qualified(n) in _AUTOCAST and n not in called for n in named):
        return True
    halved = (c for c in index.all(ast.Call) if not c.args)
    if any(getattr(c.func, "attr", "") in ("half", "bfloat16") for c in halved):
        return True
    return "apex.amp.initialize" in index.called_names


def _is_scaler(script: Script, call: ast.Call) -> bool:
    return script.index.qualified(call.func) in _SCALER


def _enabled(script: Script, call: ast.Call) -> ast.expr | None:
    """The argument `enabled` as it is written in the call."""
    name = script.index.qualified(call.func) or ""
    position = {**_AUTOCAST, **_SCALER}[name]
    return script.evaluator.argument(call, "enabled", position).direct


def _switch(script: Script, call: ast.Call) -> Switch | None:
    """What switches a call off for certain; None: nothing is known to."""
    enabled = _enabled(script, call)
    if enabled is not None:
        for flag, wanted in atoms(script, enabled, True):
            its = script.evaluator.values(flag)
            off = its.all_in(*(OFF if wanted else ON))
            if off and not _DEVICE.search(flag_name(flag)):
                return Switch(call, flag, its.known, flag is enabled)
    return branch_off(script, call)


def branch_off(script: Script, call: ast.Call) -> Switch | None:
    """The branch around a call that is known not to be taken."""
    for test, holds in _branches(script, call):
        for flag, wanted in atoms(script, test, holds):
            its = script.evaluator.values(flag)
            off = its.all_in(*(OFF if wanted else ON))
            if off and _FLAG.search(flag_name(flag)):
                return Switch(call, flag, its.known, False)
    return None


def _branches(script: Script, call: ast.Call) -> Iterator[Condition]:
    """Tests that decide whether a call runs, where the other branch has no AMP."""
    child: ast.AST = call
    for above in script.index.ancestors(call):
        if isinstance(above, (ast.If, ast.IfExp)) and child is not above.test:
            body = above.body if isinstance(above.body, list) else [above.body]
            other = above.orelse if isinstance(above.orelse, list) else [above.orelse]
            holds = child in body
            if not any(_is_amp(script, n) for n in walk(*(other if holds else body))):
                yield above.test, holds
        child = above


def _is_amp(script: Script, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = script.index.qualified(node.func)
    return name in _AUTOCAST or name in _SCALER


def atoms(
    script: Script, node: ast.expr, wanted: bool, depth: int = 0
) -> Iterator[Condition]:
    """Flags any one of which, if not as wanted, makes a condition fail."""
    if depth > MAX_STEPS:
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from atoms(script, node.operand, not wanted, depth + 1)
    elif isinstance(node, ast.BoolOp):
        if isinstance(node.op, ast.And) is wanted:
            for part in node.values:
                yield from atoms(script, part, wanted, depth + 1)
    elif isinstance(node, ast.Compare):
        yield from _compared(script, node, wanted, depth + 1)
    elif isinstance(node, (ast.Name, ast.Attribute)):
        made = script.resolver.definitions(node)
        value = made[0].value if len(made) == 1 else None
        plain = len(made) == 1 and made[0].kind == "assign" and not made[0].path
        if plain and isinstance(value, (ast.UnaryOp, ast.BoolOp, ast.Compare)):
            yield from atoms(script, value, wanted, depth + 1)
        else:
            yield node, wanted
    elif isinstance(node, (ast.Subscript, ast.Call)):
        yield node, wanted


def _compared(
    script: Script, node: ast.Compare, wanted: bool, depth: int
) -> Iterator[Condition]:
    """`flag is True`; `scaler is not None` with `scaler = … if flag else None`."""
    right = node.comparators[0]
    if len(node.ops) > 1 or not isinstance(right, ast.Constant):
        return
    same = isinstance(node.ops[0], (ast.Is, ast.Eq))
    if not same and not isinstance(node.ops[0], (ast.IsNot, ast.NotEq)):
        return
    if isinstance(right.value, bool):
        yield from atoms(script, node.left, wanted is (same is right.value), depth)
    elif right.value is None and wanted is not same:
        made = script.resolver.definitions(node.left)
        value = made[0].value if len(made) == 1 else None
        if isinstance(value, ast.IfExp) and not made[0].path:
            arms = [value.body, value.orelse]
            none = [isinstance(a, ast.Constant) and a.value is None for a in arms]
            if any(none) and not all(none):
                yield from atoms(script, value.test, none[1], depth)


def _evaluates(script: Script, call: ast.Call) -> bool:
    """Whether a call belongs to evaluation alone."""
    function = script.index.function(call)
    name = function.name if function is not None else ""
    if _EVALUATION.search(name) and "train" not in name.lower():
        return True
    around = script.loops_around(call)
    return script.without_grad(call) or any(loop.eval for loop in around)


def _scales_all(script: Script, switch: Switch) -> bool:
    """Whether a scaler's flag is that of autocast, which other files open."""
    text = script.source.text
    named = _BOTH.search(flag_name(switch.flag))
    return bool(named) and "bf16" not in text and "bfloat16" not in text


# Names


def flag_name(flag: ast.expr) -> str:
    """`amp` for `amp`, `args.amp`, `config["amp"]`, `config.get("amp")`."""
    key: ast.expr | None = None
    if isinstance(flag, ast.Subscript):
        key = flag.slice
    elif isinstance(flag, ast.Call) and flag.args:
        key = flag.args[-1 if dotted(flag.func) == "bool" else 0]
        if dotted(flag.func) == "getattr" and len(flag.args) > 1:
            key = flag.args[1]
    if isinstance(key, ast.Constant):
        return str(key.value)
    if key is not None:
        return flag_name(key)
    return (dotted(flag) or "").rpartition(".")[2]


def parameter_of(script: Script, value: Value) -> str | None:
    """The parameter whose default a value is."""
    args = script.index.parent(value.node)
    if not isinstance(args, ast.arguments):
        return None
    plain = [*args.posonlyargs, *args.args]
    pairs = [*zip(reversed(plain), reversed(args.defaults), strict=False)]
    pairs += [(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults) if d]  # noqa: B905
    return next((arg.arg for arg, default in pairs if default is value.node), None)


def is_field(script: Script, value: Value) -> bool:
    """Whether a value is written in the body of a class of this file."""
    if value.node not in script.index.parents:
        return False
    holder = script.index.parent(script.index.statement(value.node))
    return isinstance(holder, ast.ClassDef) and parameter_of(script, value) is None
