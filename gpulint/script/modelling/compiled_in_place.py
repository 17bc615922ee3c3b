"""Where a model can be compiled in place, right behind its move to the device."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.script.copying.placed_models import moved_name, only_move
from gpulint.script.neighbours import run_together
from gpulint.script.rewriting.edits import InsertAfter, Rewrite
from gpulint.script.training.training_step import model_calls

if TYPE_CHECKING:
    from gpulint.script.model import Script
    from gpulint.script.modelling.compilable import Uncompiled
    from gpulint.script.modelling.network import Network

# Programs in which somebody else looks into the model, or runs it elsewhere.
_LOOKED_INTO = re.compile(
    r"torchsummary|torchinfo|torchviz|\bsummary\(|add_graph|wandb\.watch|grad_?cam|"
    r"profile\(|make_dot|DistributedDataParallel|\bDDP\(|\.share_memory|"
    r"\.to\(\s*[\"']cpu[\"']\s*\)|(model|net|network|generator)(\.eval\(\))?\.cpu\(|"
    r"autograd\.Function|_forward_impl|__call__",
    re.IGNORECASE,
)
# What releases that are in use have compiled to wrong gradients.
_WRONG = re.compile(r"\b(interpolate|Upsample\w*|upsample\w*)$|(^|\.)chunk$")
_RANDOM = re.compile(
    r"(?i)drop|^torch\.(rand|bernoulli|normal|multinomial)|stochastic|rrelu"
)
# Models of packages in which nothing is drawn.
_NOTHING_DRAWN = re.compile(
    r"^torchvision\.models\.(\w+\.)?(wide_)?(resnet|resnext|regnet)\w*$"
)


def compiled_in_place(script: Script, found: Uncompiled) -> Rewrite | str:
    """A line behind the move that compiles the model, or why it must not be added."""
    for index in run_together(script):
        looks = _LOOKED_INTO.search(index.source.text)
        if looks is not None:
            return f"`{looks[0].rstrip('(')}` may not go with a compiled model"
    if any(_WRONG.search(name) for n in found.networks for name in _all_names(n)):
        return "resizing and chunks have been compiled to wrong gradients"
    if len(_models(script, found)) != 1:
        return "the step runs several models"
    model = found.forward.func
    move = only_move(script, model)
    if move is None:
        return f"`{script.text(model)}` is not moved by one plain statement here"
    name, imports = script.names.runtime
    code = f"{name}.maybe_compile({script.text(moved_name(script, move))})"
    edit = InsertAfter(script.index.statement(move.call), code)
    return Rewrite("Compile the model once it is on its device", (edit,), imports)


def draws(networks: tuple[Network, ...]) -> bool:
    """Whether a model may draw random numbers, which a compiled one does otherwise."""
    return any(map(_draws, networks))


def _draws(network: Network) -> bool:
    made = network.made
    assert isinstance(made, ast.Call)
    owned = network.script.resolver.classes.named(made.func) is not None
    if not owned and not network.script.resolver.calls.callees(made):
        name = network.script.index.qualified(made.func) or ""
        return not _NOTHING_DRAWN.match(name)
    return any(map(_RANDOM.search, _all_names(network)))


def _all_names(network: Network) -> set[str]:
    """The names of what is called in a network, methods of tensors included."""
    last = {last_name(call) for call, _ in network.calls}
    return network.names | last


def _models(script: Script, found: Uncompiled) -> set[str]:
    """The models that the iterations of the step's loop run."""
    calls = model_calls(script, found.step.loop.node)
    return {script.text(call.func) for call in calls}
