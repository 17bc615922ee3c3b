"""Reasons for which a small batch is as it is meant to be."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.walk import dotted, walk
from gpulint.script.environments import imports_environments
from gpulint.script.modelling.graphs import imports_graphs
from gpulint.script.samples.dataset_size import has_few_samples
from gpulint.script.samples.small_samples import is_resized

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

FEW = 8  # batches in a pass
MAX_NAMES = 3  # from the number of epochs, back to what it is computed from
# Gradients of several batches are added up before a step.
ACCUMULATES = re.compile(
    r"accum\w*_?(steps?|iters?|grad|batch)|grad\w*[_ ]?accum|to_accumulate|"
    r"micro_?batch|no_sync|virtual_?batch|accumulation",
    re.IGNORECASE,
)
# Samples of a batch are compared with each other, or it is what the method is about:
# few shots, clients with data of their own, tasks one after another, private gradients.
_MEANT = re.compile(
    r"contrastive|info_?nce|nt_?xent|simclr|moco|supcon|triplet|siamese|byol|swav|barlow|"
    r"vicreg|in_?batch|pairwise|n_?way|k_?shot|few_?shot|maml|episod|federat|fedavg|"
    r"flwr|clients\b|continual|lifelong|incremental|task_id|opacus|privacy|dp_?sgd|"
    r"langevin|sgld|influence|sharpness|hessian|coreset|distill_dataset",
    re.IGNORECASE,
)
# Several GPUs share the work: what each of them gets is not what the loader gives.
_SHARED = re.compile(
    r"DistributedDataParallel|DataParallel|DistributedSampler|init_process_group|"
    r"\bAccelerator\b|import accelerate|deepspeed|horovod|world_size|torch_xla|xla_|"
    r"fairscale|ray\.train"
)
_OTHER_BATCHES = ("batch_sampler", "sampler", "drop_last", "collate_fn")
_PLAIN_SAMPLERS = frozenset(
    f"torch.utils.data.{package}{kind}Sampler"
    for package in ("", "sampler.")
    for kind in ("Random", "SubsetRandom", "WeightedRandom", "Sequential")
)
# Models that keep a GPU busy with few of whatever samples.
_HEAVY = re.compile(
    r"diffusion|ddpm|\bunet|wide_?resnet|\bwrn|pixelcnn|pixel_cnn|glow|stylegan|"
    r"biggan|vit_?(l|h|g)\b|vit_(large|huge|giant)|_large|xlarge|huge|swin_(b|l)|"
    r"convnext_(base|large)|efficientnet_?b[4-7]|pixel_?snail|spikingjelly|snntorch|norse|neural_?ode"
    r"|odeint|deq\b|capsule",
    re.IGNORECASE,
)


def small_on_purpose(script: Script, loader: Loader) -> bool:
    """Whether another batch is another method, or would make no step faster."""
    if not loader.argument("batch_sampler").absent or _samples_by_plan(script, loader):
        return True
    if is_resized(loader) or has_few_samples(loader, FEW):
        return True
    loops = [loop for loop in loader.loops if loop.train]
    if any(updates_rarely(script, loop) for loop in loops):
        return True
    if any(_has_fixed_steps(script, loader, loop) for loop in loops):
        return True
    if loops and all(_joins_another(loop, loader) for loop in loops):
        return True
    return any(map(_has_reason, files_of(script, loader)))


def _joins_another(loop: Loop, loader: Loader) -> bool:
    """Whether each step has a batch of another loader too: `zip(source, target)`.

    Which may be the larger part of it, and set how many steps there are. A function
    that is given one loader here and another one there has one in each step.
    """
    return len(loop.items) > 1 and any(
        other.call is not loader.call for other in loop.loaders
    )


def _has_fixed_steps(script: Script, loader: Loader, loop: Loop) -> bool:
    """Whether larger batches would make fewer epochs, and no step less.

    `epochs = steps * batch_size // len(data)`, `steps // len(loader)`, or a `while`
    around the loop that ends by what is counted in it.
    """
    its = script.of(loop.node)
    around = its.loops_around(loop.node)
    function = its.index.function(loop.node)
    if not around and function is not None:
        calls = its.resolver.calls.callers(function)
        around = [x for c in calls for x in script.of(c).loops_around(c)]
    sizes = {value.node for value in loader.values("batch_size").known}
    for outer in around:
        node = outer.node
        if outer is loop:
            continue
        if isinstance(node, ast.While) and _is_counted(node.test, loop):
            return True
        if isinstance(node, ast.For) and _counts_batches(
            script.of(node), node.iter, loader, sizes, 0
        ):
            return True
    return False


def _is_counted(test: ast.expr, loop: Loop) -> bool:
    """Whether a test asks for a number that each pass of a loop counts up by one."""
    asked = {dotted(node) for node in walk(test)} - {None}
    return any(
        isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and isinstance(node.value, ast.Constant)
        and dotted(node.target) in asked
        for node in loop.node.body
    )


def _counts_batches(
    script: Script, count: ast.expr, loader: Loader, sizes: set[ast.expr], depth: int
) -> bool:
    """Whether a number is computed from the size or the number of batches."""
    for part in walk(count):
        if isinstance(part, ast.Call) and dotted(part.func) == "len" and part.args:
            made = script.resolver.origins(part.args[0])
            if any(loader.is_made_by(origin.node) for origin in made):
                return True
        if not isinstance(part, (ast.Name, ast.Attribute)):
            continue
        if sizes & {value.node for value in script.evaluator.values(part).known}:
            return True
        if depth < MAX_NAMES and any(
            d.value is not None
            and not d.path
            and _counts_batches(script, d.value, loader, sizes, depth + 1)
            for d in script.definitions(part)
        ):
            return True
    return False


def evaluates_otherwise(script: Script, loader: Loader) -> bool:
    """Whether larger batches would make no evaluation faster, or are another one."""
    if any(not loader.argument(n).absent for n in _OTHER_BATCHES):
        return True
    if is_resized(loader) or has_few_samples(loader, FEW):
        return True
    for index in files_of(script, loader):
        if imports_environments(index) or imports_graphs(index):
            return True
        if _SHARED.search(index.source.prose) or _HEAVY.search(index.source.prose):
            return True
    return False


def _samples_by_plan(script: Script, loader: Loader) -> bool:
    """Whether a sampler may choose what stands together in a batch."""
    sampler = loader.argument("sampler")
    if sampler.absent:
        return False
    made = [o.call for n in sampler.nodes for o in script.resolver.origins(n)]
    names = [script.index.qualified(c.func) if c is not None else None for c in made]
    return not names or any(name not in _PLAIN_SAMPLERS for name in names)


def files_of(script: Script, loader: Loader) -> list[FileIndex]:
    """The files in which a loader, its data, its loops and their models stand."""
    found = dict.fromkeys([script.index, *loader.files])
    for loop in loader.loops:
        found[script.index.home(loop.node)] = None
        for helper in loop.helpers:
            found[script.index.home(helper)] = None
    return list(found)


def _has_reason(index: FileIndex) -> bool:
    if imports_environments(index) or imports_graphs(index):
        return True
    text = index.source.prose
    reasons = (ACCUMULATES, _MEANT, _SHARED, _HEAVY)
    return any(reason.search(text) for reason in reasons)


def updates_rarely(script: Script, loop: Loop) -> bool:
    """Whether an update comes only every few steps: `if (step + 1) % 4 == 0`."""
    return any(
        isinstance(above, ast.If)
        and script.index.inside(above, loop.node)
        and any(_counts(node) for node in ast.walk(above.test))
        for update in loop.steps
        for above in script.index.ancestors(update)
    )


def _counts(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
