"""New tensors that are put on the GPU by default, and what draws on the host then."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Target
from gpulint.index.walk import dotted, walk
from gpulint.script.loading.loaders import POSITIONS
from gpulint.script.loading.pageable import HOST_TYPE
from gpulint.script.loading.worker_state import main_guard
from gpulint.script.neighbours import imported, may_be_run, programs, run_together
from gpulint.script.reaching.switches import is_switched_off

if TYPE_CHECKING:
    from gpulint.script.model import Script

TENSOR_TYPE = "torch.set_default_tensor_type"
DEVICE = "torch.set_default_device"
_LOADER = "torch.utils.data.DataLoader"
# What draws with a generator of the host unless it gets one, and where it gets it.
_DRAWS = {
    "torch.utils.data.RandomSampler": 3,
    "torch.utils.data.sampler.RandomSampler": 3,
    "torch.utils.data.random_split": 2,
    "torch.utils.data.dataset.random_split": 2,
}
_DISTRIBUTED = re.compile(r"^torch\.utils\.data\.(\w+\.)*DistributedSampler$")
LAST_OLD_SAMPLERS = (1, 8)  # later ones have a generator of their own
_SETS_TYPE = re.compile(r"\bset_default_tensor_type\b")
_CUDA_TYPE = re.compile(r"^torch\.cuda\.\w*Tensor$")
_VERSION = re.compile(r"version", re.IGNORECASE)


def gpu_defaults(script: Script) -> Iterator[ast.Call]:
    """Calls that put new tensors on the GPU and are not taken back, in source order."""
    calls = [
        call
        for name in (TENSOR_TYPE, DEVICE)
        for call in script.index.calls.get(name, ())
    ]
    for call in sorted(calls, key=lambda c: c.lineno):
        others = (other for other in calls if other.lineno > call.lineno)
        if _is_on_gpu(script, call) and not any(
            not _is_on_gpu(script, other) and not _are_choices(script, call, other)
            for other in others
        ):
            yield call


def makes_on_gpu(script: Script) -> bool:
    """Whether new tensors may be put on the GPU in a program that a file is a part of.

    Then collating makes labels there: they cannot be pinned, nor made in a worker.
    """
    project = script.index.project
    if project is not None and not project.mentions("set_default_"):
        return False
    together = run_together(script)
    return any(
        not _is_of_host(script.of(call), call)
        and not is_switched_off(script.of(call), call)
        and may_be_run(script, call, together)
        for index in together
        for name in (TENSOR_TYPE, DEVICE)
        for call in index.calls.get(name, ())
    )


def _is_of_host(script: Script, call: ast.Call) -> bool:
    """Whether a call is given a type or device of the host, in any case."""
    given = [*call.args, *(k.value for k in call.keywords)]
    if len(given) == 1 and script.index.qualified(call.func) == DEVICE:
        none = isinstance(given[0], ast.Constant) and given[0].value is None
        return none or script.devices.target(given[0]) is Target.CPU
    made = [o.node for node in given for o in script.resolver.origins(node)]
    names = [
        str(node.value)
        if isinstance(node, ast.Constant)
        else script.index.home(node).qualified(node) or ""
        for node in made
    ]
    return bool(names) and all(map(HOST_TYPE.match, names))


def _is_on_gpu(script: Script, call: ast.Call) -> bool:
    given = [*call.args, *(k.value for k in call.keywords)]
    if len(given) != 1:
        return False
    if script.index.qualified(call.func) == DEVICE:
        return script.devices.target(given[0]) in (Target.CUDA, Target.ANY)
    values = [v.constant for v in script.evaluator.values(given[0]).known]
    names = [script.index.qualified(given[0]) or "", *map(str, values)]
    return any(map(_CUDA_TYPE.match, names))


def _are_choices(script: Script, one: ast.AST, other: ast.AST) -> bool:
    """Whether two calls stand in branches of one condition."""
    around = script.index.ancestors(one)
    return any(
        isinstance(above, ast.If) and script.index.inside(other, above)
        for above in around
    )


def asks_for_version(script: Script, call: ast.Call) -> bool:
    """Whether a call is chosen by the version of torch."""
    return any(
        _VERSION.search(dotted(node) or "")
        for above in script.index.ancestors(call)
        if isinstance(above, ast.If)
        for node in walk(above.test)
        if isinstance(node, (ast.Name, ast.Attribute))
    )


def draws_on_host(script: Script, call: ast.Call) -> Iterator[ast.Call]:
    """What shuffles with a generator of the host, where a call puts tensors elsewhere.

    In the file itself, what it imports, and files that import it and name what the call
    stands in: what else is there may be for another run.
    """
    around = [a for a in script.index.ancestors(call) if a in script.index.tree.body]
    name = getattr(around[0], "name", None) if around else None
    users = [u for u in programs(script) if name is None or u.reads.get(name)]
    if main_guard(script, call) is not None:
        users = []  # who imports the file does not come there
    own = [script.index, *imported(script, script.index)]
    for index in dict.fromkeys([*own, *users]):
        yield from _draws_in(script, index)


def needs_old_samplers(script: Script) -> bool:
    """Whether a script puts new tensors on the GPU, and what shuffles then raises.

    By default, as far as is known; what torch up to 1.8 draws, it draws there.
    """
    return script.source.has(_SETS_TYPE) and any(
        script.index.qualified(call.func) == TENSOR_TYPE
        and not asks_for_version(script, call)
        and not is_switched_off(script, call)
        and any(draws_on_host(script, call))
        for call in gpu_defaults(script)
    )


def _draws_in(script: Script, index: FileIndex) -> Iterator[ast.Call]:
    for name, calls in index.calls.items():
        if name == _LOADER:
            yield from (call for call in calls if _is_shuffled(script, call))
        elif name in _DRAWS:
            place = _DRAWS[name]
            yield from (call for call in calls if _is_left_out(script, call, place))
        elif _DISTRIBUTED.match(name):
            for call in calls:
                shuffle = script.evaluator.argument(call, "shuffle", 3)
                if shuffle.absent or _is_true(script, shuffle.nodes):
                    yield call


def _is_shuffled(script: Script, loader: ast.Call) -> bool:
    """Whether a loader surely makes a random sampler of its own."""
    argument = script.evaluator.argument
    shuffle = argument(loader, "shuffle", POSITIONS["shuffle"])
    if not shuffle.given or not _is_true(script, shuffle.nodes):
        return False
    return _is_left_out(script, loader, POSITIONS["generator"])


def _is_left_out(script: Script, call: ast.Call, position: int) -> bool:
    return script.evaluator.argument(call, "generator", position).absent


def _is_true(script: Script, nodes: tuple[ast.expr, ...]) -> bool:
    values = [script.evaluator.values(node) for node in nodes]
    return bool(values) and all(its.all_in(True) for its in values)
