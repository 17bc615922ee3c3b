"""Networks of convolutions that run in half precision with channels in front."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.build import last_name
from gpulint.index.walk import walk
from gpulint.script.copying.placed_models import moved_name, only_move
from gpulint.script.modelling.deep_networks import (
    is_deep,
    is_unseen,
    made_as,
    networks_of,
    running,
)
from gpulint.script.modelling.model_size import is_tiny
from gpulint.script.neighbours import run_together
from gpulint.script.reaching.switches import is_switched_off
from gpulint.script.rewriting.edits import InsertAfter, Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords
from gpulint.script.training.training_step import find_steps

if TYPE_CHECKING:
    from gpulint.script.model import Script
    from gpulint.script.modelling.network import Network
    from gpulint.script.training.training_step import Step

_SETTING = re.compile(r"channels_?last|memory_format|nhwc", re.IGNORECASE)
_AUTOCAST = re.compile(r"^torch\.(cuda\.amp\.|amp\.)?(autocast_mode\.)?autocast$")
# Models of packages whose layers all keep the order of a picture's channels.
_OF_PACKAGE = re.compile(
    r"^torchvision\.models\.((resnet|vgg|densenet|googlenet|inception|segmentation|"
    r"_utils)\.)?(wide_resnet|resnet|vgg|densenet|googlenet|inception_v3|fcn_resnet|"
    r"deeplabv3_resnet)\w*$"
)
_TIMM = re.compile(r"^timm\.(create_model|models\.create_model)$")
_OF_TIMM = re.compile(r"^(wide_)?resnet\d+|^resnet|^vgg\d+|^densenet\d+|^cspresnet\d+")
# Layers that have no such kernels, or whose kernels are slower so.
_WITHOUT = re.compile(
    r"^torch\.nn\.(\w+\.)*(Conv(Transpose)?3d|conv3d|GroupNorm|group_norm|"
    r"InstanceNorm\dd|instance_norm|LayerNorm|layer_norm|LSTM|GRU|Fold|Unfold|unfold|"
    r"\w*Attention\w*|Transformer\w*|BatchNorm3d)$"
)
# Names of networks whose convolutions are of groups of channels.
_OF_GROUPS = re.compile(
    r"(?i)mobile|shuffle|efficient|xception|depth_?wise|separable|regnet|resnext|mnas|"
    r"ghost|convnext|nasnet"
)
_BATCH_NORM = re.compile(r"^torch\.nn\.(Sync)?BatchNorm(2d)?$")
_CONVOLUTION = re.compile(r"^torch\.nn\.(Lazy)?Conv(Transpose)?2d$")
# What takes weights, or their gradients, for rows of memory, or fills them in order.
_FLAT = re.compile(
    r"\.view(_as)?\(|parameters_to_vector|as_strided|data_ptr|\binit\.\w+_\(|"
    r"\.apply\(|weight_norm|spectral_norm|\bapex\b|deepspeed|\bFSDP\b|fully_shard|"
    r"FullyShardedDataParallel|\bDataParallel\b|autograd\.Function|\bmps\b"
)


class ChannelsFirst(NamedTuple):
    """A step that convolves under autocast; the network, and where autocast is."""

    step: Step
    forward: ast.Call
    networks: tuple[Network, ...]
    autocast: ast.Call


def find_channels_first(script: Script) -> ChannelsFirst | None:
    """The first such step of a file; None: there is none, or a format is chosen."""
    for step in find_steps(script):
        if step.forward is None or is_switched_off(script, step.loop.node):
            continue
        autocast = _autocast_around(script, step.forward)
        if autocast is None or is_tiny(script, step):
            continue
        networks = networks_of(script, step.forward)
        if not networks or not all(map(_gains, networks)):
            continue
        if any(i.source.has(_SETTING) for i in run_together(script)):
            return None
        return ChannelsFirst(step, step.forward, networks, autocast)
    return None


def _autocast_around(script: Script, forward: ast.Call) -> ast.Call | None:
    """The autocast, never switched off, under which a model runs."""
    for above in script.index.home(forward).ancestors(forward):
        for item in above.items if isinstance(above, ast.With) else ():
            call = item.context_expr
            if isinstance(call, ast.Call) and _is_on(script, call):
                return call
    return None


def _is_on(script: Script, call: ast.Call) -> bool:
    """Whether a call is `autocast(…)` on a GPU that nothing seen switches off."""
    name = script.index.qualified(call.func) or ""
    if not _AUTOCAST.match(name):
        return False
    if "cuda.amp" not in name:
        device = script.evaluator.argument(call, "device_type", 0)
        if any(script.evaluator.values(n).any_in("cpu", "mps") for n in device.nodes):
            return False
    position = 0 if "cuda.amp" in name else 2
    enabled = script.evaluator.argument(call, "enabled", position)
    return enabled.absent or (
        enabled.given and all(_is_true(script, node) for node in enabled.nodes)
    )


def _is_true(script: Script, node: ast.expr) -> bool:
    """Whether a switch is surely on, or on where `runtime.amp_dtype` finds a dtype."""
    if script.evaluator.values(node).all_in(True, 1):
        return True
    compared = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.IsNot)
    made = script.resolver.origins(node.left) if isinstance(node, ast.Compare) else ()
    calls = [origin.call for origin in made]
    return (
        compared
        and bool(calls)
        and all(call is not None and last_name(call) == "amp_dtype" for call in calls)
    )


# The network


def _gains(network: Network) -> bool:
    """Whether nearly all of a network are dense convolutions of pictures."""
    name, *texts = made_as(network)
    if _OF_PACKAGE.match(name):
        return True
    if _TIMM.match(name):
        return bool(texts) and bool(_OF_TIMM.match(texts[0]))
    return _is_own(network)


def _is_own(network: Network) -> bool:
    names = network.names
    if not is_deep(network) or not any(map(_BATCH_NORM.match, names)):
        return False
    if any(map(_WITHOUT.match, names)) or any(map(_is_other, names)):
        return False
    parts = (getattr(root, "name", "") for root in network.roots)
    if any(map(_OF_GROUPS.search, [*names, *made_as(network), *parts])):
        return False
    methods = list(running(network))
    calls = (n for n in walk(*methods) if isinstance(n, ast.Call))
    if any(is_unseen(network.script, call) for call in calls):
        return False
    layers = [call for call, name in network.calls if _CONVOLUTION.match(name)]
    return bool(layers) and not any(_is_grouped(network, call) for call in layers)


def _is_other(name: str) -> bool:
    """Whether a part is a model of a package that may not gain."""
    package = name.startswith(("torchvision.models.", "timm.", "transformers."))
    return package and not _OF_PACKAGE.match(name)


def _is_grouped(network: Network, layer: ast.Call) -> bool:
    """Whether a convolution may be of groups of channels."""
    position = 7 if last_name(layer).startswith("ConvTranspose") else 6
    evaluator = network.script.evaluator
    groups = evaluator.argument(layer, "groups", position)
    values = [evaluator.values(node) for node in groups.nodes]
    return not groups.absent and not all(its.all_in(1) for its in values)


# The rewrite


def with_channels_last(script: Script, found: ChannelsFirst) -> Rewrite | str:
    """The move of the model with the other format, or why it must not be changed."""
    for index in run_together(script):
        flat = _FLAT.search(index.source.text)
        if flat is not None:
            return f"`{flat[0].strip('.(')}` may not go with channels in last place"
    model = found.forward.func
    move = only_move(script, model)
    if move is None:
        return f"`{script.text(model)}` is not moved by one plain statement here"
    torch, imports = script.names.torch
    layout = f"{torch}.channels_last"
    if last_name(move.call) == "to":
        edit: Replace | InsertAfter = Replace(
            move.call, set_keywords(memory_format=layout)
        )
    else:
        name = script.text(moved_name(script, move))
        statement = script.index.statement(move.call)
        edit = InsertAfter(statement, f"{name}.to(memory_format={layout})")
    return Rewrite("Keep the channels of a pixel side by side", (edit,), imports)
