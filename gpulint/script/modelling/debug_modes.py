"""Torch's debugging aids that a script itself leaves on while it trains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Function
from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.modelling.networks import may_run_cudnn
from gpulint.script.neighbours import MAX_FILES, imported, run_together
from gpulint.script.reaching.started import is_started, trains_on_gpu
from gpulint.script.reaching.unused import is_program
from gpulint.script.settings.debug_switches import (
    ANOMALY,
    BLOCKING,
    DETERMINISTIC,
    LAUNCHES,
    PROFILER,
    blocks_launches,
)
from gpulint.script.training.evaluation import reachable
from gpulint.script.training.step_calls import is_backward

if TYPE_CHECKING:
    from gpulint.script.model import Script

_ANOMALY_CALLS = (
    "torch.autograd.set_detect_anomaly",
    "torch.autograd.detect_anomaly",
    "torch.autograd.anomaly_mode.set_detect_anomaly",
    "torch.autograd.anomaly_mode.detect_anomaly",
)
_PROFILER_CALLS = (
    "torch.profiler.profile",
    "torch.autograd.profiler.profile",
    "torch.autograd.profiler.emit_nvtx",
)
_DETERMINISTIC_CALLS = (
    "torch.use_deterministic_algorithms",
    "torch.set_deterministic",
)
_TRAINERS = (
    "lightning.Trainer",
    "lightning.pytorch.Trainer",
    "pytorch_lightning.Trainer",
)
# Of a Trainer's profilers; the simple one only takes the time of its hooks.
_SLOW_PROFILERS = frozenset({"advanced", "pytorch"})
_REASON = re.compile(
    r"debug|profil|nvtx|bench|trace|seed|reproduc|determin|detect|check|anomal|nan",
    re.IGNORECASE,
)
_RECORDS = re.compile(r"profil|nvtx|bench", re.IGNORECASE)
_REPEATABLE = re.compile(r"seed|reproduc|repeatab", re.IGNORECASE)
_ENTRY = re.compile(r"^(main|run|train\w*|fit|cli|__init__|training_step|forward)$")
_OF_TRAINING = re.compile(
    r"(?i)train(?!_?(load|data|set))|fit(_|$)|learn|optim|backward|step|epoch|launch"
    r"|spawn|run|main(?!loop)|search|cli(?![a-z])|start(?!swith)"
)
_ON_GPU = re.compile(r"cuda|gpu", re.IGNORECASE)
MAX_CALLS = 3  # from the place that switches a mode on, back to the top of a file


@dataclass(frozen=True, eq=False)
class DebugMode:
    """What switches a mode on, and what that costs in each step.

    `meant`: the program may want it, as one that fixes a seed wants repeatable runs.
    """

    node: ast.AST
    cost: str
    meant: bool = False


def debug_modes(script: Script) -> list[DebugMode]:
    """Modes that are on in each run of a script that trains on a GPU, in order."""
    found = [m for m in _written(script) if _always_runs(script, m.node, MAX_CALLS)]
    if not found or not _trains(script):
        return []
    return sorted(found, key=lambda m: getattr(m.node, "lineno", 0))


def _written(script: Script) -> Iterator[DebugMode]:
    yield from _anomaly(script)
    yield from _profilers(script)
    yield from _launches(script)
    yield from _deterministic(script)
    yield from _of_trainer(script)


def _calls(index: FileIndex, names: tuple[str, ...]) -> Iterator[ast.Call]:
    for name in names:
        yield from index.calls.get(name, ())


# Each kind of mode


def _anomaly(script: Script) -> Iterator[DebugMode]:
    """`set_detect_anomaly(True)` for good, or a block with it around training."""
    calls = list(_calls(script.index, _ANOMALY_CALLS))
    off = [c for c in calls if _mode(script, c) is False]
    for call in calls:
        name = (script.index.qualified(call.func) or "").rpartition(".")[2]
        on = name == "detect_anomaly" or _mode(script, call) is True
        block = _block(script, call)
        if on and (_trains_in(script, block) if block is not None else not off):
            yield DebugMode(call.func, ANOMALY)


def _profilers(script: Script) -> Iterator[DebugMode]:
    """A profiler around all training, that no schedule ends."""
    path = script.source.path
    if _REASON.search(path.stem) or _RECORDS.search(path.parent.name):
        return
    for call in _calls(script.index, _PROFILER_CALLS):
        block = _block(script, call)
        limited = {k.arg for k in call.keywords} & {"schedule", "enabled", None}
        first = call.args[:1] if "autograd" in (dotted(call.func) or "") else []
        if block is None or limited or first:
            continue
        if _trains_in(script, block, whole=True):
            yield DebugMode(call.func, PROFILER)


def _launches(script: Script) -> Iterator[DebugMode]:
    """`os.environ["CUDA_LAUNCH_BLOCKING"] = "1"`, and the forms of `os.environ`."""
    index = script.index
    for assign in index.all(ast.Assign):
        for target in assign.targets:
            its = isinstance(target, ast.Subscript) and blocks_launches(target)
            if its and _is_one(assign.value):
                yield DebugMode(target, BLOCKING)
    for call in _calls(index, ("os.environ.setdefault", "os.putenv")):
        key, value = (*call.args, None, None)[:2]
        named = isinstance(key, ast.Constant) and key.value == LAUNCHES
        if named and value is not None and _is_one(value):
            yield DebugMode(call.func, BLOCKING)


def _is_one(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and str(value.value) == "1"


def _deterministic(script: Script) -> Iterator[DebugMode]:
    """Deterministic kernels; a program that asks for repeatable runs means them."""
    index = script.index
    asked: list[ast.AST] = [
        call.func
        for call in _calls(index, _DETERMINISTIC_CALLS)
        if _mode(script, call) is True
    ]
    switched = list(_cudnn_switches(script, "deterministic"))
    asked += switched if switched and may_run_cudnn(script) else []
    if not asked:
        return
    benchmarked = list(_cudnn_switches(script, "benchmark"))
    drawn = any(_always_runs(script, t, MAX_CALLS) for t in benchmarked)
    for node in asked:
        if drawn and isinstance(node, ast.Attribute) and node.attr == "deterministic":
            yield DebugMode(
                node,
                "only deterministic convolutions may be used, and runs differ all the "
                "same: `cudnn.benchmark` picks them by their time",
            )
        else:
            meant = any(_is_repeatable(file) for file in run_together(script))
            yield DebugMode(node, DETERMINISTIC, meant)


def _cudnn_switches(script: Script, name: str) -> Iterator[ast.Attribute]:
    """`torch.backends.cudnn.name` where it is set to True."""
    for assign in script.index.all(ast.Assign):
        for target in assign.targets:
            if (
                isinstance(target, ast.Attribute)
                and script.index.qualified(target) == f"torch.backends.cudnn.{name}"
                and _is_true(script, assign.value)
            ):
                yield target


def _is_repeatable(index: FileIndex) -> bool:
    """Whether a file fixes a seed or speaks of repeatable runs."""
    return index.source.has(_REPEATABLE)


def _of_trainer(script: Script) -> Iterator[DebugMode]:
    """What a Lightning Trainer is asked for."""
    for call in _calls(script.index, _TRAINERS):
        for keyword in call.keywords:
            value = keyword.value
            if keyword.arg == "detect_anomaly" and _is_true(script, value):
                yield DebugMode(value, ANOMALY)
            elif keyword.arg == "profiler" and _is_slow(value):
                yield DebugMode(value, PROFILER)


def _is_slow(profiler: ast.expr) -> bool:
    return isinstance(profiler, ast.Constant) and profiler.value in _SLOW_PROFILERS


def _mode(script: Script, call: ast.Call) -> bool | None:
    """What the `mode` of a call surely is; None: an option, or not known."""
    given = script.evaluator.argument(call, "mode", 0).direct
    if given is None:
        given = next((k.value for k in call.keywords if k.arg == "d"), None)
    if given is None:
        return None
    if _is_true(script, given):
        return True
    return False if script.evaluator.values(given).any_in(False) else None


def _is_true(script: Script, node: ast.expr) -> bool:
    """Whether a value is True, and no option or parameter that may be something else.

    What stands in a settings file is reported there.
    """
    values = script.evaluator.values(node)
    return values.all_in(True) and not any(
        value.default or script.index.home(value.node) is not script.index
        for value in values.known
    )


# Where it runs


def _block(script: Script, call: ast.Call) -> ast.With | None:
    """The `with` statement that a call opens."""
    for above in script.index.ancestors(call):
        if isinstance(above, ast.With):
            managers = [item.context_expr for item in above.items]
            return above if call in managers else None
        if isinstance(above, ast.stmt):
            return None
    return None


def _trains_in(script: Script, block: ast.With, whole: bool = False) -> bool:
    """Whether a training step runs in a block; `whole`: all steps of a loop do."""
    if _REASON.search(script.index.qualname(block)):
        return False
    loops = script.training_loops
    index = script.index
    if any(index.inside(loop.node, block) for loop in loops):
        return True
    for call in (node for node in walk(block) if isinstance(node, ast.Call)):
        function = script.resolver.calls.callee(call)
        if function is not None and any(x.function is function for x in loops):
            return True
    if script.runners.of(block) is None:
        return False
    steps = (c for loop in loops for c in (loop.steps if whole else loop.backward))
    return any(index.inside(step, block) for step in steps)


def _always_runs(script: Script, node: ast.AST, depth: int) -> bool:
    """Whether nothing that a user may choose keeps a node from being run."""
    index = script.index.home(node)
    child = node
    for above in index.ancestors(node):
        if isinstance(above, (ast.If, ast.IfExp)) and child is not above.test:
            if child not in _bodies(above) or not _is_usual(above.test):
                return False
        elif isinstance(above, (ast.ExceptHandler, ast.match_case, ast.While)):
            return False
        elif isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return _is_called(script, above, depth)
        elif isinstance(above, ast.Lambda):
            return False
        child = above
    return True


def _bodies(branch: ast.If | ast.IfExp) -> list[ast.AST]:
    body = branch.body
    return [*body] if isinstance(body, list) else [body]


def _is_usual(test: ast.expr) -> bool:
    """A main guard, or whether there is a GPU."""
    if isinstance(test, ast.Compare):
        return dotted(test.left) == "__name__"
    name = dotted(test.func) if isinstance(test, ast.Call) else dotted(test)
    return bool(name and _ON_GPU.search(name) and not _REASON.search(name))


def _is_called(script: Script, function: Function, depth: int) -> bool:
    """Whether a program surely runs a function: its main one, or what that calls."""
    if _REASON.search(function.name):
        return False
    calls = script.resolver.calls.callers(function) if depth else []
    if calls:
        return any(_always_runs(script, call, depth - 1) for call in calls)
    return bool(_ENTRY.match(function.name))


def _trains(script: Script) -> bool:
    """Whether the file, or a program that it is a part of, trains on a GPU."""
    if script.training_loops:
        return trains_on_gpu(script)
    program = is_started(script) or is_program(script.index)
    if program and not _calls_a_training(script):
        return False
    files = _run_with(script) if program else run_together(script)
    on_gpu = any(_ON_GPU.search(file.source.prose) for file in files)
    if not (on_gpu or script.sends_modules):
        return False
    return any(map(_has_step, files)) or _defines_model(script)


def _calls_a_training(script: Script) -> bool:
    """Whether a program calls anything that may train, by its name.

    Its own functions do so only if what they call does, and making an object of the
    project only if what is called of it does: not `TrainOptions().parse()`.
    """
    own = script.index.function_names
    return any(
        _OF_TRAINING.search(name) and not all(_leaves_alone(script, c) for c in calls)
        for name, calls in script.index.calls_by_name.items()
        if name not in own
    )


def _leaves_alone(script: Script, call: ast.Call) -> bool:
    """Whether a call makes an object of which no method that is called may train."""
    classes = script.resolver.classes
    made = classes.named(call.func)
    if made is None:
        return False
    bases = (base for its in classes.bases(made) for base in its.bases)
    if any(dotted(b) != "object" and classes.named(b) is None for b in bases):
        return False
    methods = classes.methods(made)
    named = script.index.calls_by_name
    called = [its for name, its in methods.items() if name in named]
    if not called:
        return not any(map(_OF_TRAINING.search, methods))
    made_by = [methods["__init__"]] if "__init__" in methods else []
    run = reachable(script, [*called, *made_by])
    return not any(
        isinstance(node, ast.Call) and _may_train(script, node)
        for function in run
        for node in walk(*function.body)
    )


def _may_train(script: Script, call: ast.Call) -> bool:
    if is_backward(call):
        return True
    named = _OF_TRAINING.search(last_name(call))
    return named is not None and script.resolver.calls.callee(call) is None


def _run_with(script: Script) -> list[FileIndex]:
    """A script and the files that it imports, directly or through others."""
    files = [script.index]
    for index in files:
        if len(files) < MAX_FILES:
            files += [file for file in imported(script, index) if file not in files]
    return files


def _defines_model(script: Script) -> bool:
    """Whether a file is the home of models, which other programs train."""
    models = map(script.modules.is_module_class, script.index.classes.values())
    return not is_started(script) and any(models)


def _has_step(index: FileIndex) -> bool:
    """Whether a file has a training step, other than for a trial of its own."""
    calls = index.calls_by_name
    steps = [*calls.get("backward", ()), *calls.get("manual_backward", ())]
    return any(map(index.function, steps)) or "training_step" in index.function_names
