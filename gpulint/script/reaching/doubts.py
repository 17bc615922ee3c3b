"""Why no program, run on a GPU as usual, may ever come to a place, or only a few times.

What is found there is no less true, so it is of low confidence and not left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import dotted, walk
from gpulint.script.branches import all_of, branches_of
from gpulint.script.copying.one_card import is_visible_devices
from gpulint.script.copying.unmoved import stays_behind
from gpulint.script.decorators import has_plain_decorators
from gpulint.script.given import values_given
from gpulint.script.loading.batches_taken import is_looked_at, places
from gpulint.script.loading.collation import collators
from gpulint.script.loading.few_batches import stops_early
from gpulint.script.loading.iterated_loaders import loaders_of
from gpulint.script.loading.unread import is_handed_to_none
from gpulint.script.neighbours import programs
from gpulint.script.reaching.doubtful import may_never_run
from gpulint.script.reaching.evaluated import is_behind_end
from gpulint.script.reaching.excluded import is_excluded
from gpulint.script.reaching.failures import fails, fails_around
from gpulint.script.reaching.handed_on import is_called_amiss
from gpulint.script.reaching.kept_unread import is_never_asked
from gpulint.script.reaching.left_over import is_never_called
from gpulint.script.reaching.old_torch import needs_older_torch
from gpulint.script.reaching.overridden import is_overridden
from gpulint.script.reaching.refused import is_refused
from gpulint.script.reaching.remainders import never_meet
from gpulint.script.reaching.set_aside import is_set_aside
from gpulint.script.reaching.shown import is_shown
from gpulint.script.reaching.startable import cannot_start
from gpulint.script.reaching.unchosen import is_unchosen
from gpulint.script.reaching.unimported import is_imported_by_none, no_program_starts
from gpulint.script.reaching.untrained import is_untrained
from gpulint.script.reaching.unused import is_only_imported, reads_of
from gpulint.script.training.trials import trains_little

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

MAX_CALLS = 3  # from a place, back to what surely runs
# Packages that run a program on other chips than GPUs.
_OF_OTHER_CHIPS = (
    "intel_extension_for_pytorch.",
    "torch_npu.",
    "torch_xla.",
    "habana_frameworks.",
    "optimum.habana.",
)
_TPU = frozenset("TPUClusterResolver TPUStrategy TPUEstimator".split())
_WITHOUT_TPU = frozenset("get_strategy MirroredStrategy OneDeviceStrategy".split())
_COMMENTS = re.compile(r"#.*")
_OF_OTHERS = ("jax", "flax")  # frameworks whose arrays torch does not compute


def is_doubtful(script: Script, node: ast.AST) -> bool:
    """Whether a place is behind what is off, called by nobody, or in a broken file.

    A loader also where that holds for all that iterates it, and what a loop does in
    each step where that holds for its backward passes, its model is not moved, or a few
    steps are all.
    """
    if _is_spared(script, node, MAX_CALLS):
        return True
    if cannot_start(script.index) or no_program_starts(script):
        return True
    if is_set_aside(script) or is_untrained(script, node):
        return True
    if script.source.has_raised(getattr(node, "lineno", 1)):
        return True
    if _is_for_other_chips(script) or needs_older_torch(script) or _hides_gpus(script):
        return True
    if _is_for_a_profiler(script):
        return True
    loop = script.loop_at(node) or script.loop_of(node)
    if loop is not None and loop.train and loop.backward:
        steps = [(script.of(call), call) for call in loop.backward]
        if all(_is_left_out(its, call) for its, call in steps):
            return True  # no step of a training
        if trains_little(script, loop):
            return True  # what its steps cost is over at once
    if loop is not None and loop.eval and _is_a_look(script, loop):
        return True
    if _updates_little(script, node):
        return True
    around = [loop, *script.loops_around(node)] if loop is not None else []
    if any(stays_behind(script, x) for x in around):
        return True
    taken = (loader for x in around for loader in loaders_of(script, x))
    if any(_gives_no_batch(script.of(loader.call), loader) for loader in taken):
        return True
    call = script.index.parent(node)
    loader = next((x for x in script.loaders if x.call is call), None)
    return loader is not None and (
        _is_left(script, loader) or _gives_no_batch(script, loader)
    )


def _updates_little(script: Script, node: ast.AST) -> bool:
    """Whether an optimizer is made for trainings of a few steps alone."""
    made = script.index.parent(node)
    if not isinstance(made, ast.Call) or made.func is not node:
        return False
    if not (script.index.qualified(node) or "").startswith("torch.optim."):
        return False
    function = script.index.function(made)
    near = [x for x in script.loops if x.function is function and x.steps]
    return bool(near) and all(trains_little(script, x) for x in near)


def _is_a_look(script: Script, loop: Loop) -> bool:
    """Whether an evaluation is of a few batches, once in a run."""
    if loop.parent is not None or not stops_early(script, loop):
        return False
    function = loop.function
    called = script.resolver.calls.callers(function) if function is not None else ()
    return (function is None or bool(called)) and not any(
        script.of(call).loops_around(call) for call in called
    )


def _gives_no_batch(script: Script, loader: Loader) -> bool:
    """Whether the first batch raises: each sample does, or what collates them."""
    owner = loader.dataset.owner
    methods = script.resolver.classes.methods(owner) if owner is not None else {}
    made = collators(loader.argument("collate_fn"), loader.evaluator)
    own = [functions[0] for functions in made if functions]
    all_fail = bool(own) and len(own) == len(made)
    sample = methods.get("__getitem__")
    return (sample is not None and fails(script, sample, 0)) or (
        all_fail and all(isinstance(f, Function) and fails(script, f, 0) for f in own)
    )


def _is_for_other_chips(script: Script) -> bool:
    """Whether a file imports what runs it elsewhere, and asks for no CUDA device.

    Or what trains in the place of torch, such as JAX.
    """
    origins = [*script.index.imported, *script.index.stars]
    heads = {origin.partition(".")[0] for origin in origins}
    if not heads.isdisjoint(_OF_OTHERS):
        return not any(loop.backward for loop in script.loops)
    others = [o for o in origins if f"{o}.".startswith(_OF_OTHER_CHIPS)]
    if _needs_other_chip(script) or _asks_for_tpu(script):
        return True
    return bool(others) and "cuda" not in _COMMENTS.sub("", script.source.text)


def _asks_for_tpu(script: Script) -> bool:
    """Whether a program of TensorFlow runs on a TPU alone, and speaks of no GPU."""
    called = script.index.calls_by_name
    alone = not _TPU.isdisjoint(called) and _WITHOUT_TPU.isdisjoint(called)
    return alone and "gpu" not in script.source.text.lower()


def _needs_other_chip(script: Script) -> bool:
    """Whether a file cannot be imported without such a package."""
    names = [
        alias.name if isinstance(statement, ast.Import) else statement.module or ""
        for statement in script.index.tree.body
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        for alias in statement.names
    ]
    return any(f"{name}.".startswith(_OF_OTHER_CHIPS) for name in names)


def _is_for_a_profiler(script: Script) -> bool:
    """`@profile`, which is a name only where `kernprof` runs a file line by line."""
    named = any(
        isinstance(name, ast.Name) and name.id == "profile"
        for function in script.index.functions
        for name in getattr(function, "decorator_list", ())
    )
    return named and "profile" in script.index.unbound_names


def _hides_gpus(script: Script) -> bool:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = ""` at the top of a file, and no other."""
    given = [
        statement.value
        for statement in script.index.tree.body
        if isinstance(statement, ast.Assign)
        if any(map(is_visible_devices, statement.targets))
    ]
    hidden = [getattr(value, "value", None) in ("", "-1") for value in given]
    return bool(hidden) and all(hidden)


def _is_left(script: Script, loader: Loader) -> bool:
    """Whether nothing that runs iterates a loader, or reads it in a file of loops."""
    read = [p for p in places(script, loader) if not _is_asked(script, p)]
    if read and all(is_handed_to_none(script, place) for place in read):
        return any(map(script.index.all, (ast.For, ast.While)))
    if loader.loops:
        return all(
            _is_spared(its, loop.node, MAX_CALLS) or stays_behind(its, loop)
            for loop in loader.loops
            for its in [script.of(loop.node)]
        )
    return not read and any(map(script.index.all, (ast.For, ast.While)))


def _is_asked(script: Script, place: ast.AST) -> bool:
    """Whether a loader is only asked for its length or its dataset, or shown itself."""
    above = script.index.parent(place)
    if isinstance(above, ast.Attribute):
        return above.attr in ("dataset", "batch_size")
    return is_looked_at(script, place)


def _is_spared(script: Script, node: ast.AST, depth: int) -> bool:
    """Whether a place, or each known way to it, is off by default or nobody's."""
    if may_never_run(script, node) or _is_left_out(script, node):
        return True
    if is_behind_end(script, node):
        return True
    if is_only_imported(script, node) or is_imported_by_none(script, node):
        return True
    if _is_replaced(script, node):
        return True
    if fails_around(script, node):
        return True
    function = script.index.function(node)
    if function is None or not depth:
        return False
    if depth < MAX_CALLS and function.name == "__init__" and fails(script, function, 0):
        return True  # there is no object that could do anything
    if is_never_asked(script, function) or _has_no_object(script, function):
        return True
    if is_never_called(script.of(function), function):
        return True
    its = script.of(function)
    if is_overridden(its, function) or is_unchosen(its, function):
        return True
    if is_called_amiss(script, function):
        return True
    if script.index.function(function) and _is_spared(script, function, depth - 1):
        return True  # it is not even defined
    callers = script.resolver.calls.callers(function) or _by_name(script, function)
    callers = callers or _making(script, function)
    callers = [*callers, *_handing_on(script, function, bool(callers))]
    callers = [call for call in callers if not is_shown(script.of(call), call)]
    return bool(callers) and all(
        is_refused(script, call, function)
        or is_set_aside(script.of(call))
        or _is_spared(script.of(call), call, depth - 1)
        for call in callers
    )


def _is_replaced(script: Script, node: ast.AST) -> bool:
    """Whether the function around a place is defined again further down.

    At the top of a file, or in a class, and nothing in between names it. Or its own
    class gives an object another one: `self.forward = self.forward_v2`.
    """
    function = script.index.function(node)
    holder = script.index.parent(function) if function is not None else None
    if function is None or not isinstance(holder, (ast.Module, ast.ClassDef)):
        return False
    if isinstance(holder, ast.ClassDef) and any(
        d.kind == "assign"
        for d in script.resolver.classes.member(holder, function.name)
    ):
        return True
    later = [
        other
        for other in holder.body
        if isinstance(other, ast.FunctionDef)
        and other.name == function.name
        and other.lineno > function.lineno
    ]
    if not later or not all(
        has_plain_decorators(script.index, f) for f in (function, *later)
    ):
        return False
    reads = script.index.reads.get(function.name, ())
    rows = (function.end_lineno or 0, later[0].lineno)
    return not any(rows[0] < read.lineno < rows[1] for read in reads)


def _is_left_out(script: Script, node: ast.AST) -> bool:
    """Whether a branch is for no GPU, for no step, or not taken by default.

    As far as defaults, or all values, are known: `if not args.prefetcher:`, behind
    `args.prefetcher = not args.no_prefetcher`. What tests give counts for nothing.
    """
    around = []
    for branch, holds in branches_of(script.index, node):
        if isinstance(branch, ast.If) and _is_without_step(branch, holds):
            return True
        if isinstance(branch, (ast.If, ast.IfExp)):
            tests = all_of(branch.test, holds)
            if any(_has_gpu(script, test) is (not holds) for test in tests):
                return True
            values = script.evaluator.values(branch.test)
            known = values_given(script, values.known)
            left_so = values.complete or all(v.default for v in known)
            if known and left_so and all(bool(v.constant) != holds for v in known):
                return True
            if any(is_excluded(script, test, holds) for test in tests):
                return True
            around += tests if holds else []
    return never_meet(script, around)


def _has_gpu(script: Script, test: ast.expr, depth: int = 0) -> bool | None:
    """What a test is on a machine with a GPU; None: it asks for something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _has_gpu(script, test.operand, depth)
        return None if inner is None else not inner
    if isinstance(test, ast.Call):
        asks = script.index.qualified(test.func) == "torch.cuda.is_available"
        return True if asks else None
    if not isinstance(test, (ast.Name, ast.Attribute)) or depth:
        return None
    origins = script.resolver.origins(test)
    found = {
        _has_gpu(script, o.expression, 1) if o.expression is not None else None
        for o in origins
    }
    return found.pop() if len(found) == 1 else None


def _is_without_step(branch: ast.If, holds: bool) -> bool:
    """Whether a branch is for losses that are not good for a step: the other has it.

    `if loss < limit: loss.backward() … else: skipped += 1`.
    """
    own, other = branch.body, branch.orelse
    if not holds:
        own, other = other, own
    losses = {name for call in _backward(other) for name in _names(call)}
    return not losses.isdisjoint(_names(branch.test)) and not any(_backward(own))


def _backward(statements: list[ast.stmt]) -> Iterator[ast.Call]:
    for node in walk(*statements):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "backward":
            yield node


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in walk(node) if isinstance(n, ast.Name)} - {"self"}


def _by_name(script: Script, function: Function) -> list[ast.Call]:
    """Calls of any object's method of that name, in the programs that import the file.

    Of a method alone, where nothing says of which class the objects are.
    """
    if not isinstance(script.index.parent(function), ast.ClassDef):
        return []
    name = getattr(function, "name", "")
    others = [index for index in programs(script) if index is not script.index]
    return [call for index in others for call in index.calls_by_name.get(name, ())]


def _handing_on(
    script: Script, function: Function, is_called: bool
) -> Iterator[ast.Call]:
    """Calls that are given a function to run it: `mp.spawn(main_worker, …)`.

    Of other files beside calls of it alone: what these do with it is not known.
    """
    its = script.of(function)
    if its.index.parent(function) is not its.index.tree:
        return
    for read in reads_of(its, function):
        index = its.index.home(read)
        above = index.parent(read)
        if isinstance(above, ast.keyword):
            above = index.parent(above)
        if (
            isinstance(above, ast.Call)
            and above.func is not read
            and (is_called or index is its.index)
        ):
            yield above


def _has_no_object(script: Script, function: Function) -> bool:
    """Whether a function is a method of a class of which each call raises."""
    owner = script.index.parent(function)
    if not isinstance(owner, ast.ClassDef):
        return False
    decorators = {dotted(decorator) for decorator in function.decorator_list}
    if not decorators.isdisjoint(("staticmethod", "classmethod")):
        return False
    made = script.resolver.classes.methods(owner).get("__init__")
    if made is None or made is function:
        return False
    if any(True for _ in script.resolver.outside.descendants(owner)):
        return False
    calls = script.resolver.calls.callers(made)
    refused = bool(calls) and all(is_refused(script, c, made) for c in calls)
    return refused or fails(script, made, 0)


def _making(script: Script, function: Function) -> list[ast.Call]:
    """Calls of the class whose method a function is, if no class derives from it."""
    owner = script.index.parent(function)
    if not isinstance(owner, ast.ClassDef):
        return []
    if any(True for _ in script.resolver.outside.descendants(owner)):
        return []
    made = script.resolver.classes.methods(owner).get("__init__")
    own = made is not None and made is not function and made in owner.body
    if made is not None and own:
        return script.resolver.calls.callers(made)
    return script.resolver.classes.constructors(owner)
