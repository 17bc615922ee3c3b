"""Whether cuDNN may choose its convolutions by timing, and all pictures are alike."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.index.walk import walk
from gpulint.script.loading.loaders import POSITIONS
from gpulint.script.neighbours import MAX_FILES, does_import, run_together

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_SETTING = re.compile(
    r"cudnn\.benchmark|cudnn_benchmark|deterministic|cudnn\.enabled|cudnn\.flags"
    r"|\b(set|enable_full)_determinism\("  # of MONAI and of Transformers
)
_WORDS = ("cudnn.benchmark", "cudnn_benchmark")
_LOADS = re.compile(r"import_module\(|spec_from_file_location\(|__import__\(")
# Frameworks of other packages that set it for the scripts that they run.
_SETTERS = frozenset("mmcv mmengine detectron2 fvcore torchpack catalyst".split())
_VARIES = re.compile(r"multi_?scale|random_?size|random_?resize(?!d)", re.IGNORECASE)
_RESIZERS = frozenset("interpolate upsample resize".split())
# Transforms that give each picture one size, whatever it had.
_CROPS = re.compile(
    r"^(torchvision\.transforms|albumentations)\.(\w+\.)*"
    r"(CenterCrop|RandomCrop|RandomResizedCrop|RandomSizedCrop)$"
)
_RESIZE = re.compile(r"^(torchvision\.transforms|albumentations)\.(\w+\.)*Resize$")
_SAME_SIZE = re.compile(
    r"^torchvision\.datasets\.(\w+\.)*"
    r"(E?MNIST|FashionMNIST|KMNIST|QMNIST|CIFAR10|CIFAR100|SVHN|STL10|USPS)$"
)


def autotuning_is_set(script: Script) -> bool:
    """Whether a file of the program says how cuDNN chooses, or it is not known."""
    files = run_together(script)
    if any(file.source.has(_SETTING) for file in files):
        return True
    origins = [origin for file in files for origin in file.imported]
    if any(origin.partition(".")[0] in _SETTERS for origin in origins):
        return True
    return _is_set_by_another(script, many=len(files) >= MAX_FILES)


def _is_set_by_another(script: Script, many: bool) -> bool:
    """Whether a program says it that imports what it runs while it runs.

    Or, where not all files of a program are looked at, a module that others import:
    not a script of its own.
    """
    project = script.index.project
    if project is None:
        return False
    paths = dict.fromkeys(path for w in _WORDS for path in project.mentioning(w))
    homes = [home for home in map(project.index, paths) if home is not None]
    around = script.source.path.parents
    if any(h.source.has(_LOADS) and h.source.path.parent in around for h in homes):
        return True
    return many and any(
        does_import(script, user, home)
        for home in homes
        for user in project.users(home)
    )


def pictures_are_alike(script: Script, loop: Loop) -> bool:
    """Whether the batches of a loop surely hold pictures of one size.

    The default collate function stacks a batch, so that samples which are shuffled
    among batches of more than one have the same size. Otherwise their transforms crop
    them, or the data set is known to have one size.
    """
    if script.source.has(_VARIES) or _resizes(script, loop):
        return False
    calls = [call for call in _loaders(script, loop) if not _is_batched(script, call)]
    return bool(calls) and all(
        _is_stacked(script, call)
        or _gives_one_size(script.index)
        or _gives_one_size(script.index.home(call))
        for call in calls
    )


def _resizes(script: Script, loop: Loop) -> bool:
    """Whether a step, or a function that it calls, gives its pictures another size.

    Models have their own reasons to do so.
    """
    owners = ((f, script.index.owner(f)) for f in loop.helpers)
    helpers = (
        function
        for function, owner in owners
        if owner is None or not script.modules.is_module_class(owner)
    )
    calls = (n for n in walk(loop.node, *helpers) if isinstance(n, ast.Call))
    return any(last_name(call) in _RESIZERS for call in calls)


def _loaders(script: Script, loop: Loop) -> list[ast.Call]:
    """The calls that make the loaders that a loop iterates."""
    found = [loader.call for loader in loop.loaders]
    for iterable, _ in loop.items:
        for origin in script.resolver.origins(iterable):
            call = origin.call
            if call is not None and _is_loader(script, call):
                found.append(call)
    return list(dict.fromkeys(found))


def _is_loader(script: Script, call: ast.Call) -> bool:
    name = script.index.qualified(call.func) or ""
    return name.startswith("torch.utils.data.") and name.endswith("DataLoader")


def _is_batched(script: Script, call: ast.Call) -> bool:
    """Whether something else than the loader chooses what stands in a batch."""
    return not script.evaluator.argument(
        call, "batch_sampler", POSITIONS.get("batch_sampler")
    ).absent


def _is_stacked(script: Script, call: ast.Call) -> bool:
    """Whether a loader stacks several samples to a batch by itself."""
    argument = script.evaluator.argument
    if not argument(call, "collate_fn", POSITIONS.get("collate_fn")).absent:
        return False
    size = argument(call, "batch_size", POSITIONS.get("batch_size"))
    values = [script.evaluator.values(node) for node in size.nodes]
    return size.given and not any(its.any_in(1, None) for its in values)


def _gives_one_size(index: FileIndex) -> bool:
    """Whether a file crops pictures to one size, or takes a data set that has one."""
    for name, calls in index.calls.items():
        if _CROPS.match(name) or _SAME_SIZE.match(name):
            return True
        if _RESIZE.match(name) and any(map(_has_both_sizes, calls)):
            return True
    return False


def _has_both_sizes(resize: ast.Call) -> bool:
    """`Resize((224, 224))`; one number is the length of the shorter side only."""
    given = [*resize.args, *(k.value for k in resize.keywords)]
    pair = bool(given) and isinstance(given[0], (ast.Tuple, ast.List))
    return pair or len(resize.args) > 1
