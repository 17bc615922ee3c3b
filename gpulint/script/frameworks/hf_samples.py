"""What it takes to make the samples that a Hugging Face Trainer is given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Argument
from gpulint.index.walk import dotted
from gpulint.script.samples.datasets import LOOPS, Dataset, Work, read_dataset
from gpulint.script.samples.reachable import reachable

if TYPE_CHECKING:
    from gpulint.script.frameworks.hf_trainers import HfTrainer
    from gpulint.script.model import Script

# Methods of `datasets.Dataset` that give another one, and what gives the first.
_GIVES_ON = frozenset(
    "map filter select shuffle sort shard with_format remove_columns rename_column "
    "rename_columns cast cast_column class_encode_column train_test_split flatten "
    "with_transform add_column select_columns take skip".split()
)
_MAKES = frozenset(
    f"datasets.{n}"
    for n in "load_dataset load_from_disk concatenate_datasets Dataset.from_dict "
    "Dataset.from_list Dataset.from_pandas Dataset.from_csv Dataset.from_json "
    "Dataset.from_parquet Dataset.from_text".split()
)
_TRANSFORMS = ("with_transform", "set_transform")
_FORMATS = ("with_format", "set_format")
_OF_DATA = re.compile(r"dataset|collat|transform\b", re.IGNORECASE)
_STREAMS = re.compile(r"streaming\s*=\s*True|IterableDataset|to_iterable_dataset")
_ON_GPU = re.compile(r"\.cuda\(|\.to\(|device\s*=|set_default_device")
_DEFAULT_DEVICE = re.compile(r"set_default_device|set_default_tensor_type")
_TO_CUDA = re.compile(r"\.to\(f?[\"']cuda|device\s*=\s*[^=,)]*cuda")
MAX_DEPTH = 12


class Samples(NamedTuple):
    """`costly`: whether more than reading and padding is done for each sample.

    `withheld`: why worker processes would not give the same ones, or might not.
    """

    reason: str
    place: ast.AST
    costly: bool
    withheld: str | None = None


def samples_of(script: Script, trainers: Iterable[HfTrainer]) -> Samples | None:
    """The work for a sample of the Trainers; None where there is none, or unknown."""
    if is_streamed(script) or _is_formatted_on_gpu(script):
        return None
    found: list[Samples] = []
    for trainer in trainers:
        if trainer.owner is not None and _loads_itself(script, trainer.owner):
            return None
        collators = list(_collators(script, trainer))
        if any(_ON_GPU.search(script.text(f)) for f in collators):
            return None
        its = _of_dataset(script, trainer)
        if its is None:
            return None
        withheld = its.withheld or _why_unpicklable(
            script, collators, "`data_collator`"
        )
        if _is_changed_while_training(script, trainer):
            withheld = withheld or "the dataset may change while workers have a copy"
        found.append(its._replace(withheld=withheld))
    return max(found, key=lambda its: (its.withheld is not None, its.costly))


def is_streamed(script: Script) -> bool:
    """Whether a file has datasets that only can be iterated."""
    return script.source.has(_STREAMS)


def are_made_on_gpu(script: Script, trainers: Iterable[HfTrainer]) -> bool:
    """Whether what makes samples or batches of the Trainers names a device."""
    if script.source.has(_DEFAULT_DEVICE) or _is_formatted_on_gpu(script):
        return True
    sources = [f for trainer in trainers for f in _collators(script, trainer)]
    for trainer in trainers:
        for name in ("train_dataset", "eval_dataset"):
            known = read_dataset(trainer.argument(name), script.evaluator)
            sources += [known.owner] if known.owner is not None else []
    for name in _TRANSFORMS:
        for call in script.index.calls_by_name.get(name, ()):
            sources += _functions(script, call)
    return any(_ON_GPU.search(script.text(node)) for node in sources)


def _is_formatted_on_gpu(script: Script) -> bool:
    """Whether a dataset gives its rows as tensors of a device."""
    calls = (c for n in _FORMATS for c in script.index.calls_by_name.get(n, ()))
    return any(k.arg in ("device", None) for c in calls for k in c.keywords)


def may_be_on_gpu(script: Script, trainers: Iterable[HfTrainer]) -> str | None:
    """Why batches of the Trainers may be on the GPU before the Trainer moves them."""
    why = "{} may give tensors on the GPU, which cannot be pinned"
    for trainer in trainers:
        if trainer.owner is not None and _loads_itself(script, trainer.owner):
            return "the Trainer's class makes its own loaders"
        collator = trainer.argument("data_collator")
        known = collator.absent or collator.given
        if not known or not all(_is_known_collator(script, n) for n in collator.nodes):
            return why.format("the collator")
        for name in ("train_dataset", "eval_dataset"):
            argument = trainer.argument(name)
            if argument.absent:
                continue
            if not argument.given or not _is_on_host(script, argument):
                return why.format(f"`{name}`")
    return None


def _is_known_collator(script: Script, node: ast.expr) -> bool:
    """Whether it is one of transformers, or of the project."""
    for origin in script.resolver.origins(node):
        if isinstance(origin.node, (ast.FunctionDef, ast.Lambda)):
            continue
        made = origin.call.func if origin.call is not None else origin.expression
        name = script.index.qualified(made) or ""
        own = made is not None and script.resolver.classes.named(made) is not None
        if not own and not name.startswith("transformers."):
            return False
    return True


def _is_on_host(script: Script, argument: Argument) -> bool:
    """Whether a dataset is known and no data are moved where it is made."""
    if all(is_of_datasets(script, node) for node in argument.nodes):
        return True
    if read_dataset(argument, script.evaluator).owner is None:
        return False
    return all(_moves_model(script, call) for call in script.move_calls)


def _moves_model(script: Script, call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    moved = call.func.value
    return script.modules.is_module(moved) or "model" in (dotted(moved) or "")


def _is_changed_while_training(script: Script, trainer: HfTrainer) -> bool:
    """Whether a callback or the Trainer's class speaks of datasets or collators."""
    resolver = script.resolver
    classes = [
        owner
        for owner in script.index.all(ast.ClassDef)
        if any(
            n.endswith("TrainerCallback") for n in resolver.classes.base_names(owner)
        )
    ]
    classes += [trainer.owner] if trainer.owner is not None else []
    return any(_OF_DATA.search(script.text(owner)) for owner in classes)


def _loads_itself(script: Script, owner: ast.ClassDef) -> bool:
    methods = script.resolver.classes.methods(owner)
    return "get_train_dataloader" in methods or "_get_dataloader" in methods


def _of_dataset(script: Script, trainer: HfTrainer) -> Samples | None:
    argument = trainer.argument("train_dataset")
    if not argument.given:
        return None
    known = read_dataset(argument, script.evaluator)
    if known.work is Work.SOME and known.owner is not None:
        if known.handle is not None or known.device is not None or known.iterable:
            return None
        if any(_TO_CUDA.search(script.text(method)) for method in known.methods):
            return None
        place = known.place or trainer.call
        costly = known.reason != LOOPS  # over columns, often
        return Samples(_clause(known), place, costly, _why_not(known, script))
    if known.work is not Work.UNKNOWN:
        return None
    if not all(is_of_datasets(script, node) for node in argument.nodes):
        return None
    return _of_library(script, trainer)


def _clause(dataset: Dataset) -> str:
    reason = dataset.reason
    clause = reason[0] == "`" or reason[0].isupper()
    return reason if clause else f"the dataset {reason}"


def _why_not(dataset: Dataset, script: Script) -> str | None:
    """The guard that fails for a class of the project."""
    if dataset.mutated:
        return "samples change the dataset, and each worker would change its own copy"
    if dataset.generator is not None:
        return "all workers would have a copy of the dataset's random generator"
    if dataset.placed is not None:
        return "the device that makes the samples is one that a caller may replace"
    if dataset.gradients is not None:
        return "samples require gradients, which workers cannot hand over"
    if dataset.unpicklable is not None:
        text = script.text(dataset.unpicklable).splitlines()[0]
        return f"the dataset holds `{text}`, which cannot be sent to spawned workers"
    return None


def _of_library(script: Script, trainer: HfTrainer) -> Samples | None:
    """Of `datasets`: rows that are read, and transforms that run for each."""
    calls = [
        call
        for name in _TRANSFORMS
        for call in script.index.calls_by_name.get(name, ())
    ]
    if not calls:
        reason = "each batch is read, padded and made into tensors between two steps"
        return Samples(reason, trainer.call, False)
    nodes = [node for call in calls for node in _functions(script, call)]
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            reached = reachable(node, script.evaluator)
            if any(_ON_GPU.search(script.text(f)) for f in reached):
                return None
    reason = f"`{script.text(calls[0].func).rpartition('.')[2]}` runs for each sample"
    withheld = _why_unpicklable(script, nodes, "the transform")
    return Samples(reason, calls[0], True, withheld)


def is_of_datasets(script: Script, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is surely a dataset of `datasets`, or a dict of such."""
    origins = script.resolver.origins(node)
    return bool(origins) and all(_is_made(script, o.node, depth) for o in origins)


def _is_made(script: Script, node: ast.AST, depth: int) -> bool:
    if depth > MAX_DEPTH:
        return False
    if isinstance(node, ast.Subscript):
        return is_of_datasets(script, node.value, depth + 1)
    if not isinstance(node, ast.Call):
        return False
    if script.index.qualified(node.func) in _MAKES:
        return True
    func = node.func
    if isinstance(func, ast.Attribute) and func.attr in _GIVES_ON:
        return is_of_datasets(script, func.value, depth + 1)
    return False


def _collators(script: Script, trainer: HfTrainer) -> Iterator[ast.AST]:
    """The functions and classes of the project that put batches together."""
    for node in trainer.argument("data_collator").nodes:
        for origin in script.resolver.origins(node):
            if isinstance(origin.node, (ast.Lambda, ast.FunctionDef)):
                yield origin.node
            elif origin.call is not None:
                owner = script.resolver.classes.named(origin.call.func)
                if owner is not None:
                    yield owner


def _functions(script: Script, call: ast.Call) -> Iterator[ast.AST]:
    """What a call is given as a function."""
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "transform")]
    for node in given:
        for origin in script.resolver.origins(node):
            yield origin.node


def _why_unpicklable(script: Script, nodes: Iterable[ast.AST], what: str) -> str | None:
    for node in nodes:
        if isinstance(node, ast.Lambda):
            return f"{what} is a lambda, which cannot be spawned"
        is_local = script.index.function(node) is not None
        if isinstance(node, (*_DEFINITIONS,)) and is_local:
            return f"{what} is a local definition: spawned workers need a global"
    return None


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
