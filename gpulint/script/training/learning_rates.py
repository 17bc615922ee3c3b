"""The learning rates of a training, and whether they may follow the batch size."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.script.rewriting.edits import CannotFix

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

OPTIMIZER = re.compile(r"^torch\.optim\.(\w+\.)?([A-Z]\w+)$")
SCHEDULER = re.compile(r"^torch\.optim\.lr_scheduler\.([A-Z]\w+)$")
# By the gradient's sign and scale, or by the gradient itself.
_RULES = {
    **dict.fromkeys("Adam AdamW NAdam RAdam Adamax RMSprop Adagrad".split(), "sqrt"),
    "SGD": "linear",
}
_DEFAULTS = {"Adam": "0.001", "AdamW": "0.001"}
_OTHER_SCHEDULER = re.compile(r"schedul|warm_?up|LR$", re.IGNORECASE)
_LENGTHS = frozenset(
    "T_max T_0 total_iters total_steps steps_per_epoch step_size milestones "
    "num_training_steps".split()
)
# Names of what counts the samples of a step.
OF_BATCH = re.compile(r"batch|(^|_)bs(z|$|_)", re.IGNORECASE)
_STEPS = ("step", "step_update")
MAX_STEPS = 3


class Rate(NamedTuple):
    """A learning rate as it is written in a call; `node` None: its default."""

    call: ast.Call
    node: ast.expr | None
    text: str
    rule: str
    option: str = "lr"


def rates_to_scale(
    script: Script, loops: list[Loop], files: list[FileIndex]
) -> list[Rate]:
    """The learning rates of the one optimizer of some training loops."""
    call = _only_optimizer(script, loops)
    rate = _rate(script, call)
    _check_groups(script, call)
    for index in files:
        _check_set_by_hand(index)
    rates = [rate]
    for scheduler, kind in _schedulers(script, files, call):
        if kind == "CyclicLR":
            raise CannotFix("`CyclicLR` has learning rates of its own")
        counts = any(_is_stepped_in(script, loop) for loop in loops)
        if counts and not _is_counted(script, scheduler):
            raise CannotFix(f"`{kind}` counts steps")
        if kind == "OneCycleLR":
            rates.append(_highest(script, scheduler, rate.rule))
    return rates


def _only_optimizer(script: Script, loops: list[Loop]) -> ast.Call:
    """The call that makes what all the loops step."""
    found: dict[ast.AST, None] = {}
    for loop in loops:
        if len(loop.steps) != 1:
            raise CannotFix("not one optimizer step in a training step")
        for origin in script.resolver.origins(_stepped(loop.steps[0])):
            found[origin.node] = None
    made = next(iter(found), None)
    known = isinstance(made, ast.Call) and OPTIMIZER.match(
        script.index.qualified(made.func) or ""
    )
    if len(found) != 1 or not known or not isinstance(made, ast.Call):
        raise CannotFix("the optimizer is not known")
    if not script.index.holds(made):
        raise CannotFix("the optimizer is made in another file")
    return made


def _stepped(step: ast.Call) -> ast.expr:
    """The optimizer in `optimizer.step()` and `scaler.step(optimizer)`."""
    assert isinstance(step.func, ast.Attribute)
    scaled = "scaler" in (dotted(step.func.value) or "").lower()
    return step.args[0] if scaled and step.args else step.func.value


def _rate(script: Script, call: ast.Call) -> Rate:
    found = OPTIMIZER.match(script.index.qualified(call.func) or "")
    kind = found[2] if found else ""
    rule = _RULES.get(kind)
    if rule is None:
        raise CannotFix(f"no rule says how the learning rate of `{kind}` follows")
    argument = script.evaluator.argument(call, "lr", 1)
    if argument.absent and kind in _DEFAULTS:
        return Rate(call, None, _DEFAULTS[kind], rule)
    if argument.direct is None:
        raise CannotFix("the learning rate is not written in the optimizer's call")
    return _written(script, call, argument.direct, rule)


def _written(script: Script, call: ast.Call, node: ast.expr, rule: str) -> Rate:
    if any(OF_BATCH.search(name) for name in _names_behind(script, node)):
        raise CannotFix("the learning rate is computed from the batch size")
    text = script.text(node)
    return Rate(call, node, ast.unparse(node) if "\n" in text else text, rule)


def _highest(script: Script, scheduler: ast.Call, rule: str) -> Rate:
    """The rate that `OneCycleLR` goes up to, whatever the optimizer was given."""
    node = script.evaluator.argument(scheduler, "max_lr", 1).direct
    listed = isinstance(node, (ast.List, ast.Tuple, ast.ListComp))
    if node is None or listed or not script.index.holds(scheduler):
        raise CannotFix("`OneCycleLR` has learning rates of its own")
    return _written(script, scheduler, node, rule)._replace(option="max_lr")


def _names_behind(script: Script, node: ast.expr) -> Iterator[str]:
    """The names that an expression is computed from."""
    for part in _parts_behind(script, node):
        if isinstance(part, (ast.Name, ast.Attribute)):
            yield (dotted(part) or "").rpartition(".")[2]
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def _parts_behind(script: Script, node: ast.expr) -> Iterator[ast.AST]:
    """The nodes of an expression, and of what its names and look-ups stand for."""
    todo: list[tuple[ast.AST, int]] = [(node, 0)]
    for current, depth in todo:
        yield current
        if isinstance(current, (ast.Name, ast.Attribute, ast.Subscript)):
            made = _stands_for(script, current) if depth < MAX_STEPS else []
            todo += [(m, depth + 1) for m in made if m is not current]
        else:
            todo += [(child, depth) for child in ast.iter_child_nodes(current)]


def _stands_for(
    script: Script, node: ast.Name | ast.Attribute | ast.Subscript
) -> list[ast.AST]:
    if not isinstance(node, ast.Subscript):
        origins = script.resolver.origins(node)
        return [o.expression for o in origins if o.expression is not None]
    key = script.evaluator.constant(node.slice)
    mapping = script.evaluator.mapping(node.value)
    return [node.slice, *(mapping.items.get(key, ()) if isinstance(key, str) else ())]


def _check_groups(script: Script, call: ast.Call) -> None:
    """All weights must have the optimizer's own rate."""
    given = script.evaluator.argument(call, "params", 0).direct
    parts = list(_parts_behind(script, given)) if given is not None else []
    plain = any(
        isinstance(p, ast.Attribute) and p.attr in ("parameters", "named_parameters")
        for p in parts
    )
    own = any(isinstance(p, ast.Constant) and p.value == "lr" for p in parts)
    own = own or any(isinstance(p, ast.keyword) and p.arg == "lr" for p in parts)
    if not plain or own:
        raise CannotFix("weights may have learning rates of their own")


def _check_set_by_hand(index: FileIndex) -> None:
    if "param_groups" not in index.source.text:
        return
    for assign in index.all(ast.Assign):
        for target in assign.targets:
            key = target.slice if isinstance(target, ast.Subscript) else None
            if isinstance(key, ast.Constant) and key.value == "lr":
                raise CannotFix("the script sets learning rates by `param_groups`")


def _schedulers(
    script: Script, files: list[FileIndex], optimizer: ast.Call
) -> Iterator[tuple[ast.Call, str]]:
    """The schedulers of an optimizer, with their names."""
    for index in files:
        for call in index.all(ast.Call):
            found = SCHEDULER.match(index.qualified(call.func) or "")
            if found is not None:
                yield call, found[1]
            elif _OTHER_SCHEDULER.search(last_name(call)) and any(
                origin.node is optimizer
                for given in (*call.args, *(k.value for k in call.keywords))
                for origin in script.resolver.origins(given)
            ):
                raise CannotFix(f"`{last_name(call)}` may set learning rates")


def _is_stepped_in(script: Script, loop: Loop) -> bool:
    """Whether each training step is one of a scheduler."""
    funcs = [c.func for c in loop.calls if isinstance(c.func, ast.Attribute)]
    return any(_is_scheduler(script, f.value) for f in funcs if f.attr in _STEPS)


def _is_scheduler(script: Script, node: ast.expr) -> bool:
    if "sched" in (dotted(node) or "").lower():
        return True
    made = (origin.call for origin in script.resolver.origins(node))
    names = (script.index.qualified(c.func) or "" for c in made if c is not None)
    return any(map(SCHEDULER.match, names))


def _is_counted(script: Script, scheduler: ast.Call) -> bool:
    """Whether the steps are counted by the length of a loader."""
    given = [k.value for k in scheduler.keywords if k.arg in _LENGTHS]
    given += scheduler.args[1:]
    return any(
        isinstance(part, ast.Call) and script.index.qualified(part.func) == "len"
        for node in given
        for part in _parts_behind(script, node)
    )
