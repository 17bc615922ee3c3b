"""What becomes of a model behind `DataParallel`: it is trained, or only read."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.script.branches import branches_of
from gpulint.script.loading.worker_state import main_guard
from gpulint.script.neighbours import programs, run_alone, run_together, used_by
from gpulint.script.reaching.left_over import asks_objects
from gpulint.script.reaching.surely_called import has_plain_bases

if TYPE_CHECKING:
    from gpulint.script.model import Script

WRAPPERS = (
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel",
)
_ALL_OF_OBJECT = re.compile(r"\bvars\(|\.__dict__\b")
_OPTIMIZER = re.compile("optim")
_HOLDS = ("device_ids", "load_state_dict", "module", "output_device", "state_dict")
_PREPARES = ("eval", "train", "cuda", "to")  # and gives the wrapper back
MAX_FUNCTIONS = 60  # that are run behind a wrapper
MAX_CALLS = 3  # from a place to the main guard


def trains(script: Script) -> bool:
    """Whether the file, or a program that it is a part of, trains."""
    if "backward" in script.index.calls_by_name:
        return True
    if any("backward" in index.calls_by_name for index in used_by(script)):
        return True
    far = run_together(script) if "optim" in script.source.text else []
    return any("backward" in index.calls_by_name for index in far)


def follows_training(script: Script, call: ast.Call) -> bool:
    """Whether a wrapper is made behind the training, for a last pass over other data.

    Nothing behind it in its function, or at the top of the file, goes backward, as far
    as calls are followed, and no call that is not known is given the wrapper.
    """
    index, scope = script.index, script.index.scope(call)
    statement = index.statement(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    beside = [
        loop.node
        for loop in script.loops
        if index.scope(loop.node) is scope and (loop.train or loop.kind == "epoch")
    ]
    if not isinstance(target, ast.Name) or not beside or script.loops_around(call):
        return False
    if any(_end_of(node) > call.lineno for node in beside):
        return False
    todo = [
        c
        for c in index.all(ast.Call)
        if c.lineno > _end_of(statement) and index.scope(c) is scope
    ]
    seen: set[ast.AST] = set()
    for later in todo:
        functions = script.resolver.calls.callees(later)
        given = [*later.args, *(k.value for k in later.keywords)]
        if last_name(later) == "backward":
            return False
        if not functions and any(dotted(value) == target.id for value in given):
            return False
        for function in functions:
            if function not in seen and len(seen) < MAX_FUNCTIONS:
                seen.add(function)
                todo += script.index.home(function).calls_below(function)
    return len(seen) < MAX_FUNCTIONS


def _end_of(node: ast.stmt) -> int:
    """The last line of a statement."""
    return node.end_lineno or node.lineno


def only_evaluates(script: Script, call: ast.Call) -> bool:
    """Whether a file that trains nothing, nor what it imports, does it when started.

    Behind its main guard, where who imports the file does not come, or where nobody
    does. What only attacks a model has gradients, and no optimizer.
    """
    guarded = _is_guarded(script, call)
    if not guarded and len(programs(script)) > 1:
        return False
    files = run_alone(script) if guarded else [script.index, *run_together(script)]
    differentiates = any("backward" in f.calls_by_name for f in files)
    return not differentiates or not any(f.source.has(_OPTIMIZER) for f in files)


def _is_guarded(script: Script, node: ast.AST, depth: int = MAX_CALLS) -> bool:
    """Whether a place is behind a main guard, or in a function called there alone."""
    function = script.index.function(node)
    if main_guard(script, node) is not None:
        return True
    if function is None or depth <= 0:
        return False
    callers = script.resolver.calls.callers(function)
    return bool(callers) and all(
        script.index.home(caller) is script.index
        and _is_guarded(script, caller, depth - 1)
        for caller in callers
    )


def is_never_run(script: Script, call: ast.Call) -> bool:
    """Whether a wrapper only holds weights: to load or save them, or to be unpacked."""
    statement = script.index.statement(call)
    if not isinstance(statement, ast.Assign):
        return False
    target, value = statement.targets[0], statement.value
    while value is not call and _prepares(value):
        value = value.func.value  # type: ignore[attr-defined]
    if value is not call:
        return False
    if isinstance(target, ast.Attribute):
        return _is_never_read(script, target)
    if not isinstance(target, ast.Name) or statement.value is not call:
        return False
    flow = script.resolver.flow(script.index.scope(target))
    made = [d for d in flow.definitions[target.id] if d.value is call]
    uses = [node for definition in made for node in script.uses(definition)]
    inner = {id(node) for node in flow.uses}
    others = [n for n in script.index.reads.get(target.id, ()) if id(n) not in inner]
    seen = not any(d in made for node in others for d in script.definitions(node))
    return seen and bool(uses) and all(_only_holds(script, node) for node in uses)


def _prepares(node: ast.expr) -> bool:
    """`DataParallel(model).cuda()`, which gives the wrapper back."""
    func = node.func if isinstance(node, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr in _PREPARES


def _is_never_read(script: Script, target: ast.Attribute) -> bool:
    """Whether nothing reads the `self.x` that a wrapper is kept in, by its name.

    Of a class, and of none but the project's own around it, so that all is seen.
    """
    owner = script.index.owner(target)
    if owner is None or not has_plain_bases(script, owner):
        return False
    return not any(
        asks_objects(index)
        or index.source.has(_ALL_OF_OBJECT)
        or any(
            not _is_of_another(script, read, owner)
            for read in index.reads.get(target.attr, ())
            if isinstance(read, ast.Attribute)
        )
        for index in run_together(script)
    )


def _is_of_another(script: Script, read: ast.Attribute, owner: ast.ClassDef) -> bool:
    """Whether it is the `self.x` of a class that `owner` has nothing to do with.

    Nor does a third class derive from both, as far as their bases are seen.
    """
    home = script.index.home(read)
    function, its = home.function(read), home.owner(read)
    own = function and script.resolver.self_name(function)
    if its is None or own is None or dotted(read.value) != own:
        return False
    if not has_plain_bases(script, its):
        return False
    bases = script.resolver.classes.bases
    heirs = script.resolver.outside.descendants(owner)
    return owner not in bases(its) and not any(
        its in bases(related) for related in (owner, *heirs)
    )


def _only_holds(script: Script, node: ast.AST) -> bool:
    """`wrapped.module`, or the statement `wrapped.eval()`."""
    above = script.index.parent(node)
    asked = above.attr if isinstance(above, ast.Attribute) else ""
    called = script.index.parent(above) if above is not None else None
    alone = called is not None and isinstance(script.index.parent(called), ast.Expr)
    return asked in _HOLDS or (asked in _PREPARES and alone)


def is_wrapped_before(script: Script, call: ast.Call) -> bool:
    """`if not isinstance(model, DataParallel):`, where another one has wrapped it."""
    test = _guard(script, call)
    calls = (c for name in WRAPPERS for c in script.index.calls.get(name, ()))
    return test is not None and any(
        other.lineno < call.lineno
        and script.index.scope(other) is script.index.scope(call)
        and _guard(script, other) == test
        for other in calls
    )


def _guard(script: Script, call: ast.Call) -> str | None:
    """The innermost test for the wrapper's class around a call."""
    tests = (
        script.text(branch.test)
        for branch, holds in reversed(branches_of(script.index, call))
        if isinstance(branch, ast.If) and holds
    )
    return next((t for t in tests if t.startswith("not isinstance(")), None)
