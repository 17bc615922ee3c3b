"""Models that a program never compiles, though nothing is seen to speak against it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import FileIndex, Function
from gpulint.index.build import last_name
from gpulint.index.walk import LOOPS, walk
from gpulint.script.modelling.autotuning import pictures_are_alike
from gpulint.script.modelling.deep_networks import (
    is_deep,
    is_unseen,
    made_as,
    networks_of,
    running,
)
from gpulint.script.modelling.model_size import is_tiny
from gpulint.script.neighbours import run_together
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.reaching.switches import is_switched_off
from gpulint.script.training.training_step import find_steps

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script
    from gpulint.script.modelling.network import Network
    from gpulint.script.training.training_step import Step

# The first release that compiles models.
LOWEST = (2, 0)
# What compiles already, or goes ill with it: second derivatives, graphs kept for
# another backward pass, hooks that are added later, threads that each run a copy.
_AGAINST = re.compile(
    r"\.compile\b(?<!\bre\.compile)|compile\((?<!re\.compile\()|compile_model|dynamo|"
    r"jit\b(?<!\wjit)|create_graph|retain_graph|autograd\.grad\b|LBFGS|"
    r"register_\w*hook|save_gradient|DataParallel\b(?<!\wDataParallel)|data_parallel|"
    r"FSDP|FullySharded|fully_shard|nn\.utils\.prune|quantiz|torch\.func\b|functorch|"
    r"higher\b(?<!\whigher)|CUDAGraph|make_graphed"
)
# Packages that run, wrap or look into models in their own ways.
_PACKAGES = frozenset(
    "apex accelerate backpack captum catalyst composer deepspeed detectron2 fastai "
    "functorch fvcore higher horovod ignite lightning mmcv mmengine opacus "
    "pytorch_lightning syft thop torch_pruning torch_xla torchquad ptflops "
    "ultralytics".split()
)
# Of packages: models for pictures that are large and compile in one piece.
_OF_PACKAGE = re.compile(
    r"^(torchvision\.models\.(?!detection|video|optical_flow|quantization)|"
    r"timm\.(create_model|models\.)|segmentation_models_pytorch\.\w+$)"
)
# Their small ones.
_SMALL_ONE = re.compile(r"(?i)(squeeze|alex|le)net|test_")
_SPLITS = frozenset("item tolist cpu numpy nonzero unique breakpoint print".split())
# Tests that are the same for each batch, and calls in them that ask the like.
_FIXED = frozenset(
    "isinstance hasattr getattr len size dim ndimension numel callable is_tensor type "
    "is_cuda is_floating_point startswith endswith get is_scripting is_tracing".split()
)


class Uncompiled(NamedTuple):
    """A step that runs a large model operation by operation."""

    step: Step
    forward: ast.Call
    networks: tuple[Network, ...]


def find_uncompiled(script: Script) -> Uncompiled | None:
    """The first step of a file whose model could be compiled; None: there is none."""
    if script.source.has(_AGAINST) or runs_only_before(script, LOWEST):
        return None
    for step in find_steps(script):
        if step.forward is None or is_switched_off(script, step.loop.node):
            continue
        if not is_repeated(script, step.loop) or is_tiny(script, step):
            continue
        networks = networks_of(script, step.forward)
        if not networks or not all(map(_is_fit, networks)):
            continue
        if not pictures_are_alike(script, step.loop):
            continue
        if not any(map(_speaks_against, run_together(script))):
            return Uncompiled(step, step.forward, networks)
    return None


def _speaks_against(index: FileIndex) -> bool:
    heads = {name.partition(".")[0] for name in index.imported}
    return bool(heads & _PACKAGES) or index.source.has(_AGAINST)


def is_repeated(script: Script, loop: Loop) -> bool:
    """Whether a loop runs again and again, as once in each epoch."""
    if any(isinstance(above, LOOPS) for above in script.index.ancestors(loop.node)):
        return True
    function: Function | None = loop.function
    seen: list[Function] = []
    while function is not None and function not in seen:
        seen.append(function)
        calls = script.resolver.calls.callers(function)
        if any(isinstance(a, LOOPS) for c in calls for a in _above(script, c)):
            return True
        function = script.index.function(calls[0]) if len(calls) == 1 else None
    return False


def _above(script: Script, node: ast.AST) -> Iterable[ast.AST]:
    return script.index.home(node).ancestors(node)


# The model


def _is_fit(network: Network) -> bool:
    if any(_splits(network.script, method) for method in running(network)):
        return False
    if any(map(_OF_PACKAGE.match, made_as(network))):
        return not any(map(_SMALL_ONE.search, made_as(network)))
    return is_deep(network)


def _splits(script: Script, method: Function) -> bool:
    """Whether a method does what a compiler cannot look through, or what is unseen."""
    return any(_is_break(script, node) for node in walk(*method.body))


def _is_break(script: Script, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return last_name(node) in _SPLITS or is_unseen(script, node)
    if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
        return any(_depends_on_data(part) for part in walk(node.test))
    if isinstance(node, ast.AugAssign):  # a number that grows compiles it anew
        return isinstance(node.target, ast.Attribute)
    return isinstance(node, (ast.Try, ast.Global, ast.With, ast.Yield))


def _depends_on_data(part: ast.AST) -> bool:
    """Whether a part of a test is a call of what is not the same for each batch."""
    if not isinstance(part, ast.Call):
        return False
    return last_name(part) not in _FIXED
