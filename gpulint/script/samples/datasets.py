"""What a dataset does for each sample: decode, compute, draw, or just index."""

from __future__ import annotations

import ast
import builtins
import enum
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpulint.index import Argument, Evaluator, Function
from gpulint.index.build import last_name
from gpulint.index.walk import COMPREHENSIONS, dotted, walk, walk_scope
from gpulint.script.samples.lasting_changes import change_their_object
from gpulint.script.samples.not_shared import (
    holds_unpicklable,
    kept_generator,
    open_handle,
)
from gpulint.script.samples.reachable import functions_of, looks_up, reachable
from gpulint.script.samples.sample_device import (
    is_to_cpu,
    kept_on_device,
    made_there,
)
from gpulint.script.samples.sample_ways import may_take_no_work

# Work of a sample that may well take less than handing its batch over does.
LOOPS = "loops in Python for each sample"
COMPUTES = "computes with arrays for each sample"


class Work(enum.Enum):
    """How much a dataset does for one sample."""

    NONE = "indexes what is in memory"
    SOME = "work per sample"
    UNKNOWN = "not known"


class Dataset(NamedTuple):
    """A dataset as a loader sees it.

    `place` is the first expression that does the work, `reason` what it does;
    `random` whether samples depend on random numbers (None: not known); `handle`
    an open file or database that worker processes must not share; `device` whether
    samples are moved to the device; `generator` a use of a random generator that
    every worker would have a copy of; `torch_math` whether torch computes something
    whose rounding may depend on the number of threads, which is 1 in a worker;
    `gradients` where samples get gradients; `unpicklable` what the dataset holds that
    spawned workers cannot receive; `placed` a move, to the CPU so far, of what makes
    the samples; `methods` the functions that make a sample;
    `known` False where work is sure, and what the dataset is, is not; `same` whether
    all samples are the same, as for a profile or a trial of a model.
    """

    work: Work
    reason: str = ""
    place: ast.AST | None = None
    owner: ast.ClassDef | None = None
    random: bool | None = None
    handle: ast.AST | None = None
    device: ast.AST | None = None
    iterable: bool = False
    mutated: bool = False
    generator: ast.AST | None = None
    torch_math: bool = True
    gradients: ast.AST | None = None
    unpicklable: ast.AST | None = None
    placed: ast.AST | None = None
    methods: tuple[Function, ...] = ()
    known: bool = True
    same: bool = False


IN_MEMORY = frozenset(
    "torch.utils.data.TensorDataset torch.utils.data.StackDataset".split()
)
_PASS_THROUGH = frozenset(
    f"torch.utils.data.{n}"
    for n in "Subset ConcatDataset random_split dataset.Subset".split()
)
_READS = frozenset(
    "open imread imread_collection load loadtxt read_csv read_image read_file read "
    "loadmat imdecode decode_jpeg read_parquet read_video fromfile memmap read_feather "
    "load_img get_decoder read_pickle nib.load".split()
)
_DECODES = ("imdecode", "decode_jpeg")  # of bytes that something has read before
_READ_HEADS = frozenset(
    "Image PIL cv2 np numpy io skimage imageio torchaudio librosa soundfile sf "
    "pd pandas torchvision nibabel nib h5py pickle json tifffile rasterio zarr "
    "scipy sio decord av pydicom wave joblib torch".split()
)
_RANDOM_HEADS = ("random.", "numpy.random.", "np.random.", "cv2.rand")
_RANDOM_TORCH = frozenset(
    f"torch.{n}"
    for n in "rand randn randint randperm bernoulli multinomial normal rand_like "
    "randn_like randint_like".split()
)
_TRANSFORMS = frozenset(
    "transform transforms target_transform augment augmentation tokenizer tokenize "
    "encode preprocess transform_fn".split()
)
_LIGHT_CALLS = frozenset(
    "len int float str bool torch.tensor torch.from_numpy torch.as_tensor "
    "torch.Tensor torch.FloatTensor torch.LongTensor isinstance torch.is_tensor print "
    "tuple list dict torch.unsqueeze numpy.array numpy.asarray super range min max "
    "slice zip".split()
)
_LIGHT_METHODS = frozenset(
    "item tolist long float int double to unsqueeze squeeze view reshape permute "
    "transpose contiguous clone numpy astype copy size bool half type iloc "
    "append items keys values get".split()
)


# What draws a number at random, given no more than so many arguments: no size.
_DRAWS_ONE = {
    "random.random": 0,
    "random.randint": 2,
    "random.randrange": 3,
    "random.uniform": 2,
    "random.gauss": 2,
    "random.choice": 1,
    "numpy.random.random": 0,
    "numpy.random.rand": 0,
    "numpy.random.randint": 2,
    "numpy.random.uniform": 2,
    "numpy.random.normal": 2,
    "numpy.random.choice": 1,
}
_DATASET_NAME = re.compile(
    r"dataset|^(base|source|inner|wrapped|subset|parent|orig|original|ds)$|_ds$",
    re.IGNORECASE,
)
_PLAIN_CLASSES = ("numpy.", "torch.", "pandas.", "pathlib.", "collections.")
_CACHES = ("functools.lru_cache", "functools.cache")
_EXACT_TORCH = frozenset(
    f"torch.{n}"
    for n in "from_numpy tensor as_tensor Tensor FloatTensor LongTensor stack cat "
    "zeros ones empty full arange zeros_like ones_like is_tensor load squeeze "
    "unsqueeze flatten reshape where clamp abs roll flip".split()
)
_REDUCTIONS = frozenset(
    "sum mean std var norm prod dot mm matmul bmm softmax log_softmax logsumexp cumsum "
    "median quantile fft rfft stft interpolate conv1d conv2d trapz cov corrcoef".split()
)


def read_dataset(argument: Argument, evaluator: Evaluator) -> Dataset:
    """The facts of the dataset that reaches a loader's first argument."""
    found: list[Dataset] = []
    for node in argument.nodes:
        origins = evaluator.resolver.origins(node)
        found += [_read_origin(o.node, evaluator, 0) for o in origins]
    return _worst(found) if found else Dataset(Work.UNKNOWN)


def _worst(found: list[Dataset]) -> Dataset:
    """Of several datasets, one that does work, with what is true of any of them."""
    order = [Work.SOME, Work.UNKNOWN, Work.NONE]
    first = min(found, key=lambda d: order.index(d.work))
    draws = {d.random for d in found}
    return first._replace(
        random=True if True in draws else None if None in draws else False,
        handle=next((d.handle for d in found if d.handle is not None), None),
        device=next((d.device for d in found if d.device is not None), None),
        iterable=any(d.iterable for d in found),
        mutated=any(d.mutated for d in found),
        generator=next((d.generator for d in found if d.generator is not None), None),
        torch_math=any(d.torch_math for d in found),
        gradients=next((d.gradients for d in found if d.gradients is not None), None),
        unpicklable=next((d.unpicklable for d in found if d.unpicklable), None),
        placed=next((d.placed for d in found if d.placed is not None), None),
        methods=tuple(m for d in found for m in d.methods),
        same=all(d.same for d in found),
    )


def _read_origin(node: ast.AST, evaluator: Evaluator, depth: int) -> Dataset:
    if isinstance(node, (ast.List, ast.Tuple, ast.ListComp)):
        return Dataset(Work.NONE, "a list in memory", node, random=False)
    if not isinstance(node, ast.Call) or depth > 5:
        return Dataset(Work.UNKNOWN)
    name = evaluator.index.qualified(node.func) or ""
    if name in IN_MEMORY:
        return Dataset(Work.NONE, "tensors in memory", node, random=False)
    option = "datasets" if name.endswith("ConcatDataset") else "dataset"
    given = evaluator.argument(node, option, 0).direct
    if name in _PASS_THROUGH and given is not None:
        inner = [
            _read_origin(o.node, evaluator, depth + 1)
            for part in _joined(given, name, evaluator)
            for o in evaluator.resolver.origins(part)
        ]
        return _worst(inner) if inner else Dataset(Work.UNKNOWN)
    if name.startswith("torchvision.datasets."):
        return _torchvision(node, name, evaluator)
    owner = evaluator.resolver.classes.named(node.func)
    if owner is not None:
        return read_class(owner, evaluator, node)
    return Dataset(Work.UNKNOWN)


def _joined(given: ast.expr, name: str, evaluator: Evaluator) -> list[ast.expr]:
    """The datasets in the list that `ConcatDataset` takes."""
    parts: list[ast.expr] = []
    for origin in evaluator.resolver.origins(given):
        listed = name.endswith("ConcatDataset") and origin.expression
        if isinstance(listed, (ast.List, ast.Tuple)):
            parts += listed.elts
        elif isinstance(listed, (ast.ListComp, ast.GeneratorExp)):
            parts.append(listed.elt)
        else:
            return [given]
    return parts


def _torchvision(node: ast.Call, name: str, evaluator: Evaluator) -> Dataset:
    short = name.rpartition(".")[2]
    if short == "FakeData":
        return Dataset(Work.SOME, "an image made for each sample", node, random=True)
    transform = evaluator.argument(node, "transform")
    text = " ".join(ast.dump(n) for n in _reached(transform, evaluator))
    if short in ("ImageFolder", "DatasetFolder", "ImageNet", "CocoDetection"):
        reason = f"{short} opens and decodes a file for each sample"
    else:
        reason = f"{short} builds an image and runs its transforms for each sample"
    return Dataset(Work.SOME, reason, node, random="Random" in text or None)


def _reached(argument: Argument, evaluator: Evaluator) -> list[ast.AST]:
    return [o.node for n in argument.nodes for o in evaluator.resolver.origins(n)]


def read_class(
    owner: ast.ClassDef, evaluator: Evaluator, made: ast.Call | None = None
) -> Dataset:
    """The facts of a dataset class of this file, or of the object that a call makes."""
    methods = evaluator.resolver.classes.methods(owner)
    bases = evaluator.resolver.classes.base_names(owner)
    iterable = any(b.endswith("IterableDataset") for b in bases) or (
        "__iter__" in methods and "__getitem__" not in methods
    )
    entry = methods.get("__iter__" if iterable else "__getitem__")
    if entry is None:
        return Dataset(Work.UNKNOWN, owner=owner)
    bodies = reachable(entry, evaluator)
    given = list(_given_calls(methods.get("__init__"), evaluator, made))
    draws = _draws(bodies, evaluator)
    kept = kept_on_device(methods.get("__init__"), bodies)
    on_host = kept is not None and is_to_cpu(kept, evaluator)
    idle = _left_unset(methods.get("__init__"), evaluator, made)
    idle |= _light_transforms(methods.get("__init__"), evaluator, made)
    place, reason = first_work([f.body for f in bodies], evaluator, idle)
    work = Work.SOME if place is not None else Work.NONE
    if place is not None and any(
        may_take_no_work(f, evaluator, _works(evaluator))
        for f in bodies
        if f is entry or (f.name == entry.name and evaluator.index.inside(place, f))
    ):
        work = Work.UNKNOWN  # of this dataset, or of one that it wraps
    cached = any(_keeps_results(mark, evaluator) for mark in entry.decorator_list)
    if cached and work is Work.SOME:
        work = Work.UNKNOWN  # in the first epoch alone
    return Dataset(
        work=work,
        reason=reason or "indexes what is in memory",
        place=place or entry,
        owner=owner,
        random=draws,
        handle=open_handle(owner, evaluator),
        device=made_there(bodies, given, evaluator) or (None if on_host else kept),
        iterable=iterable,
        mutated=cached or change_their_object(bodies, evaluator),
        generator=kept_generator(bodies, evaluator),
        torch_math=_computes_with_torch(bodies, evaluator),
        gradients=_asks_for_gradients(bodies),
        unpicklable=holds_unpicklable(owner, evaluator),
        placed=kept if on_host else None,
        methods=tuple(bodies),
        same=not iterable and draws is False and _reads_no_parameter(entry),
    )


def _reads_no_parameter(function: Function) -> bool:
    its = function.args
    names = {a.arg for a in (*its.posonlyargs, *its.args, *its.kwonlyargs)}
    return not any(isinstance(n, ast.Name) and n.id in names for n in walk(function))


def _works(evaluator: Evaluator) -> Callable[[list[ast.stmt]], bool]:
    """A test of statements: whether they, or functions they call, do work."""

    def test(body: list[ast.stmt]) -> bool:
        called = [f for n in walk(*body) for f in functions_of(n, evaluator)]
        reached = [f.body for one in called for f in reachable(one, evaluator)]
        return first_work([body, *reached], evaluator)[0] is not None

    return test


def _left_unset(
    init: Function | None, evaluator: Evaluator, made: ast.Call | None
) -> frozenset[str]:
    """The parameters that are None by default and that a call does not give."""
    if init is None or made is None:
        return frozenset()
    plain = [*init.args.posonlyargs, *init.args.args]
    defaults = zip(reversed(plain), reversed(init.args.defaults), strict=False)
    optional = [parameter.arg for parameter, default in defaults if _is_none(default)]
    given = {
        name: evaluator.resolver.calls.given(made, init, name) for name in optional
    }
    return frozenset(n for n, (values, clear) in given.items() if clear and not values)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _light_transforms(
    init: Function | None, evaluator: Evaluator, made: ast.Call | None
) -> frozenset[str]:
    """The parameters for which a call gives objects whose calls do no work."""
    if init is None or made is None:
        return frozenset()
    resolver = evaluator.resolver
    light = set()
    for name in _parameters(init):
        given, clear = resolver.calls.given(made, init, name)
        origins = [o for node in given for o in resolver.origins(node)]
        calls = [o.call for o in origins if not _is_none(o.node)]
        if clear and calls and all(_is_light(call, evaluator) for call in calls):
            light.add(name)
    return frozenset(light)


def _parameters(function: Function) -> list[str]:
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args)]


def _given_calls(
    init: Function | None, evaluator: Evaluator, made: ast.Call | None
) -> Iterator[Function]:
    """The `__call__` of objects of the project that a call gives: transforms."""
    if init is None or made is None:
        return
    resolver = evaluator.resolver
    for name in _parameters(init):
        for node in resolver.calls.given(made, init, name)[0]:
            for owner in resolver.classes.of(node):
                its = resolver.classes.methods(owner).get("__call__")
                if its is not None:
                    yield its


def _is_light(made: ast.Call | None, evaluator: Evaluator) -> bool:
    """`Compose([Wrap()])` of classes of the project whose `__call__` does no work."""
    if made is None:
        return False
    if last_name(made) == "Compose":
        parts = made.args[0] if len(made.args) == 1 and not made.keywords else None
        calls = parts.elts if isinstance(parts, (ast.List, ast.Tuple)) else []
        return bool(calls) and all(
            isinstance(part, ast.Call) and _is_light(part, evaluator) for part in calls
        )
    owner = evaluator.resolver.classes.named(made.func)
    its = evaluator.resolver.classes.methods(owner).get("__call__") if owner else None
    return its is not None and not _works(evaluator)(its.body)


def first_work(
    bodies: list[list[ast.stmt]],
    evaluator: Evaluator,
    idle: frozenset[str] = frozenset(),
) -> tuple[ast.AST | None, str]:
    """The first expression that makes a sample costly, and what it does.

    `idle`: attributes that are None, so that nothing calls them, or do next to nothing.
    """
    arithmetic: list[ast.Call] = []
    looping: list[ast.AST] = []
    for body in bodies:
        for node in walk(*body):
            loops = isinstance(node, (ast.For, ast.While, *COMPREHENSIONS))
            if loops and not looks_up(node) and not _yields(node):
                looping.append(node)
            if not isinstance(node, ast.Call):
                continue
            if (dotted(node.func) or "").removeprefix("self.") in idle:
                continue
            reason = _work_of(node, evaluator)
            if reason == "computes":
                arithmetic.append(node)
            elif reason:
                return node, reason
    if looping:
        return looping[0], LOOPS
    if len(arithmetic) >= 2:
        return arithmetic[0], COMPUTES
    return None, ""


def _yields(loop: ast.AST) -> bool:
    """Whether each round of a loop is a sample, or more: that of an `__iter__`."""
    inside = walk_scope(*loop.body) if isinstance(loop, (ast.For, ast.While)) else ()
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in inside)


def _work_of(call: ast.Call, evaluator: Evaluator) -> str:
    name = evaluator.index.qualified(call.func) or ""
    written = dotted(call.func) or ""
    head, _, last = name.rpartition(".")
    first = name.partition(".")[0]
    if name in ("open", "h5py.File") or (last in _READS and first in _READ_HEADS):
        does = "decodes an image" if last in _DECODES else "reads a file"
        return f"`{written}` {does} for each sample"
    if last in _TRANSFORMS:
        return f"`{written}` runs for each sample"
    if name in _LIGHT_CALLS or (head and last in _LIGHT_METHODS):
        return ""
    if len(call.args) <= _DRAWS_ONE.get(name, -1) and not call.keywords:
        return ""
    if first in ("numpy", "np", "cv2", "scipy", "skimage", "PIL", "random", "librosa"):
        return "computes"
    if name.startswith("torch."):
        return "computes"
    return ""


def _draws(bodies: tuple[Function, ...], evaluator: Evaluator) -> bool | None:
    """Whether random numbers are drawn; None: a callee that is not known might."""
    unknown = False
    for function in bodies:
        for node in walk(*function.body):
            unknown = unknown or _may_run_another_dataset(node, evaluator)
            if not isinstance(node, ast.Call):
                continue
            name = evaluator.index.qualified(node.func) or ""
            if name.startswith(_RANDOM_HEADS) or name in _RANDOM_TORCH:
                return True
            unknown = unknown or name in ("hash", "id")  # others in another process
            written = dotted(node.func) or ""
            if "rng" in written or "random" in written or "Random" in written:
                return True
            known = evaluator.resolver.calls.callee(node) is not None
            library = name.partition(".")[0] in (
                "numpy", "torch", "math", "PIL", "cv2", "len", "int", "float", "str",
            )  # fmt: skip
            builtin = (
                name in _LIGHT_CALLS
                or hasattr(builtins, name)
                or getattr(node.func, "attr", "") in _LIGHT_METHODS
            )
            unknown = unknown or not (known or library or builtin)
    return None if unknown else False


def _may_run_another_dataset(node: ast.AST, evaluator: Evaluator) -> bool:
    """Whether a subscript may run code that is not seen, as `self.base[index]`."""
    if not isinstance(node, ast.Subscript):
        return False
    holder = node.value
    if _DATASET_NAME.search((dotted(holder) or "").rpartition(".")[2]):
        return not evaluator.resolver.classes.of(holder)
    for origin in evaluator.resolver.origins(holder):
        func = origin.call.func if origin.call is not None else None
        name = evaluator.index.qualified(func) or "" if func is not None else ""
        makes = name.rpartition(".")[2][:1].isupper()
        local = func is not None and evaluator.resolver.classes.named(func) is not None
        if makes and not local and not name.startswith(_PLAIN_CLASSES):
            return True
    return False


def _asks_for_gradients(bodies: tuple[Function, ...]) -> ast.AST | None:
    """Where a sample gets gradients: workers cannot hand such tensors over."""
    for node in walk(*bodies):
        if isinstance(node, ast.keyword) and node.arg == "requires_grad":
            off = isinstance(node.value, ast.Constant) and not node.value.value
            if not off:
                return node.value
        if isinstance(node, ast.Attribute) and node.attr.startswith("requires_grad"):
            return node
    return None


def _keeps_results(mark: ast.expr, evaluator: Evaluator) -> bool:
    """`@functools.lru_cache(maxsize=None)`: what is made once is made no more."""
    func = mark.func if isinstance(mark, ast.Call) else mark
    return evaluator.index.qualified(func) in _CACHES


def _computes_with_torch(bodies: tuple[Function, ...], evaluator: Evaluator) -> bool:
    for function in bodies:
        for node in walk(*function.body):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                return True
            if not isinstance(node, ast.Call):
                continue
            name = evaluator.index.qualified(node.func) or ""
            head, _, last = (dotted(node.func) or ".").rpartition(".")
            if name.startswith(("torch.", "torchvision.")):
                if name not in _EXACT_TORCH:
                    return True
            elif head and last in _REDUCTIONS and not name.startswith("numpy."):
                return True
            elif not dotted(node.func):
                last = getattr(node.func, "attr", "")
                if last in _REDUCTIONS:
                    return True
    return False
