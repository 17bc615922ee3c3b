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
from gpulint.index.walk import COMPREHENSIONS, dotted, walk, walk_scope, whole_of
from gpulint.script.samples.sample_device import (
    is_to_cpu,
    kept_on_device,
    run_on_gpu,
    sent_to_device,
)
from gpulint.script.samples.sample_ways import may_take_no_work

MAX_DEPTH = 3  # names and calls, from a change back to the dataset


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
_HANDLES = frozenset(
    "h5py.File lmdb.open sqlite3.connect zipfile.ZipFile tarfile.open open "
    "lmdb.Environment cv2.VideoCapture".split()
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


_COPIES_FIELDS = frozenset(
    "clone copy deepcopy isinstance is_tensor asarray from_numpy getattr".split()
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
_MUTATORS = frozenset(
    "append extend insert pop popitem remove clear update setdefault add discard sort "
    "reverse appendleft popleft".split()
)
_GENERATORS = frozenset(
    "numpy.random.default_rng numpy.random.RandomState numpy.random.Generator "
    "random.Random torch.Generator".split()
)
_GENERATOR_NAME = re.compile(
    r"^(self|cls)\.(\w+\.)*_?(rng|generator|random_state|prng)$"
)
_DATASET_NAME = re.compile(
    r"dataset|^(base|source|inner|wrapped|subset|parent|orig|original|ds)$|_ds$",
    re.IGNORECASE,
)
_PLAIN_CLASSES = ("numpy.", "torch.", "pandas.", "pathlib.", "collections.")
_NOT_PICKLED = (
    "threading.", "queue.", "socket.", "concurrent.futures.", "subprocess.Popen",
)  # fmt: skip
_CHAINS = ("Compose", "Sequential")  # what puts several transforms into one
_CACHES = ("functools.lru_cache", "functools.cache")
_WRITERS = frozenset(
    "numpy.copyto numpy.put numpy.place numpy.putmask numpy.random.shuffle setattr "
    "random.shuffle heapq.heappush heapq.heappop heapq.heapify heapq.heapreplace "
    "next".split()
)
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
        handle=_open_handle(owner, evaluator),
        device=next(filter(None, map(sent_to_device, [*bodies, *given])), None)
        or next((n for f in bodies for n in run_on_gpu(f, evaluator)), None)
        or (None if on_host else kept),
        iterable=iterable,
        mutated=cached or _mutates_itself(bodies, evaluator),
        generator=_kept_generator(bodies, evaluator),
        torch_math=_computes_with_torch(bodies, evaluator),
        gradients=_asks_for_gradients(bodies),
        unpicklable=_holds_unpicklable(owner, evaluator),
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


def reachable(entry: Function, evaluator: Evaluator) -> list[Function]:
    """The entry method and the functions of this file that it calls or reads."""
    found = [entry]
    for function in found:
        for node in walk(function):
            for used in functions_of(node, evaluator):
                if used not in found and len(found) < 20:
                    found.append(used)
    return found


def functions_of(node: ast.AST, evaluator: Evaluator) -> list[Function]:
    """Functions of this file that a node calls, names, or runs by a subscript."""
    resolver = evaluator.resolver
    if isinstance(node, ast.Call):
        callee = resolver.calls.callee(node)
        return [callee] if callee is not None else []
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
        reached = (d.node for d in resolver.definitions(node))
        return [
            d for d in reached if isinstance(d, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
    if isinstance(node, ast.Subscript):
        owners = resolver.classes.of(node.value)
        its = (resolver.classes.methods(owner).get("__getitem__") for owner in owners)
        return [f for f in its if f is not None]
    return []


def _looks_up(node: ast.AST) -> bool:
    """`tuple(a[i] for a in self.arrays)`: one look-up in each of a few arrays.

    Or a copy of each field: `{k: v.clone() for k, v in self.samples[i].items()}`, also
    of a record's; or by names that the dataset keeps: `{k: self.data[k][i] for k in
    self.data}`.
    """
    if not isinstance(node, COMPREHENSIONS) or len(node.generators) > 1:
        return False
    made = node.value if isinstance(node, ast.DictComp) else node.elt
    items = node.generators[0].iter
    if isinstance(items, ast.Call) and last_name(items) in ("items", "fields"):
        called = [last_name(n) for n in walk(made) if isinstance(n, ast.Call)]
        return all(name in _COPIES_FIELDS for name in called)
    taken = made.value if isinstance(made, ast.Subscript) else None
    targets = (n.id for n in walk(node.generators[0].target) if isinstance(n, ast.Name))
    if isinstance(taken, ast.Name) and taken.id in targets:
        return True
    keys = isinstance(items, ast.Call) and last_name(items) == "keys"
    held = items.func.value if keys else items  # type: ignore[attr-defined]
    inside = (n for n in walk(made) if isinstance(n, (ast.Call, ast.BinOp)))
    return (
        (dotted(held) or "").startswith("self.")
        and taken is not None
        and not any(inside)
    )


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
    for body in bodies:
        for node in walk(*body):
            loops = isinstance(node, (ast.For, ast.While, *COMPREHENSIONS))
            if loops and not _looks_up(node) and not _yields(node):
                return node, "loops in Python for each sample"
            if not isinstance(node, ast.Call):
                continue
            if (dotted(node.func) or "").removeprefix("self.") in idle:
                continue
            reason = _work_of(node, evaluator)
            if reason == "computes":
                arithmetic.append(node)
            elif reason:
                return node, reason
    if len(arithmetic) >= 2:
        return arithmetic[0], "computes with arrays for each sample"
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
    if name == "open" or (last in _READS and first in _READ_HEADS):
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


def _draws(bodies: list[Function], evaluator: Evaluator) -> bool | None:
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


def _asks_for_gradients(bodies: list[Function]) -> ast.AST | None:
    """Where a sample gets gradients: workers cannot hand such tensors over."""
    for node in walk(*bodies):
        if isinstance(node, ast.keyword) and node.arg == "requires_grad":
            off = isinstance(node.value, ast.Constant) and not node.value.value
            if not off:
                return node.value
        if isinstance(node, ast.Attribute) and node.attr.startswith("requires_grad"):
            return node
    return None


def _holds_unpicklable(owner: ast.ClassDef, evaluator: Evaluator) -> ast.AST | None:
    """A lambda, local function, generator or lock that a dataset keeps."""
    init = evaluator.resolver.classes.methods(owner).get("__init__")
    if init is None:
        return None
    for node in walk(*init.body):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        if not any(isinstance(t, ast.Attribute) for t in targets):
            continue
        value: ast.expr = node.value  # type: ignore[attr-defined]
        found = (p for p in walk(value) if _stays_here(p, init, evaluator))
        first = next(found, None)
        if first is not None:
            return first
    return None


def _stays_here(node: ast.AST, init: Function, evaluator: Evaluator) -> bool:
    """Whether a part of what a dataset keeps cannot be pickled."""
    if isinstance(node, ast.GeneratorExp):
        kept = evaluator.index.parent(node)
        return isinstance(kept, (ast.Assign, ast.AnnAssign))
    if isinstance(node, ast.Name):
        reached = evaluator.resolver.definitions(node)
        local = (d for d in reached if d.kind in ("function", "class"))
        return any(evaluator.index.function(d.node) is init for d in local)
    if isinstance(node, ast.Call):
        name = evaluator.index.qualified(node.func) or ""
        return name.startswith(_NOT_PICKLED)
    return isinstance(node, ast.Lambda)


def _open_handle(owner: ast.ClassDef, evaluator: Evaluator) -> ast.AST | None:
    """A file or database opened in `__init__` and kept on the dataset."""
    init = evaluator.resolver.classes.methods(owner).get("__init__")
    if init is None:
        return None
    for node in walk(*init.body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = evaluator.index.qualified(node.value.func) or ""
            kept = any(isinstance(t, ast.Attribute) for t in node.targets)
            if name in _HANDLES and kept:
                return node.value
    return None


def changes_its_object(method: Function, evaluator: Evaluator) -> bool:
    """Whether a method, or what it calls, changes the object or global variables."""
    return _mutates_itself(reachable(method, evaluator), evaluator)


def _mutates_itself(bodies: list[Function], evaluator: Evaluator) -> bool:
    """Whether a sample changes the dataset: each worker would change its own copy."""
    for function in bodies:
        for node in walk(*function.body):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                return True
            changed = changed_by(node, evaluator)
            if isinstance(node, ast.Call) and node.args:
                changed += _changed_by_object(node, evaluator)
            if any(_outlives(x, function, bodies, evaluator, 0) for x in changed):
                return True
    return False


def _keeps_results(mark: ast.expr, evaluator: Evaluator) -> bool:
    """`@functools.lru_cache(maxsize=None)`: what is made once is made no more."""
    func = mark.func if isinstance(mark, ast.Call) else mark
    return evaluator.index.qualified(func) in _CACHES


def _changed_by_object(call: ast.Call, evaluator: Evaluator) -> list[ast.expr]:
    """What `self.transform(points)` changes in place, if a class of the project does.

    Or one in the list of a `Compose`.
    """
    resolver = evaluator.resolver
    made = [o.call for o in resolver.origins(call.func) if o.call is not None]
    for one in made:
        if last_name(one) in _CHAINS:
            inner = [e for a in one.args if isinstance(a, ast.List) for e in a.elts]
            made += [e for e in inner if isinstance(e, ast.Call)]
    for owner in filter(None, (resolver.classes.named(one.func) for one in made)):
        methods = resolver.classes.methods(owner)
        method = methods.get("__call__") or methods.get("forward")
        if method is not None and _changes_its_argument(method, evaluator):
            return call.args[:1]
    return []


def _changes_its_argument(method: Function, evaluator: Evaluator) -> bool:
    """Whether a method writes into what it is given first, before it is copied."""
    names = [arg.arg for arg in method.args.args[1:2]]
    for node in walk(*method.body):
        for target in changed_by(node, evaluator):
            root = whole_of(target)
            if isinstance(root, ast.Name) and root.id in names:
                reached = evaluator.resolver.definitions(root)
                if any(d.kind == "parameter" for d in reached):
                    return True
    return False


def changed_by(node: ast.AST, evaluator: Evaluator) -> list[ast.expr]:
    """What a statement or call stores to or changes in place."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        parts = walk(*node.targets)
        kinds = (ast.Attribute, ast.Subscript)
        return [p for p in parts if isinstance(p, kinds) and not _is_load(p)]
    if isinstance(node, ast.AnnAssign):
        return [node.target] if node.value is not None else []
    if isinstance(node, ast.AugAssign):
        return [node.target]
    if not isinstance(node, ast.Call):
        return []
    name = evaluator.index.qualified(node.func) or ""
    found = [k.value for k in node.keywords if k.arg == "out"]
    if node.args and (name in _WRITERS or name.endswith(".at")):
        found.append(node.args[0])
    if isinstance(node.func, ast.Attribute):
        last = node.func.attr
        in_place = last.endswith("_") and not last.endswith("__")
        if last in _MUTATORS or in_place:
            found.append(node.func.value)
    return found


def _is_load(node: ast.Attribute | ast.Subscript) -> bool:
    return isinstance(node.ctx, ast.Load)


def _outlives(
    target: ast.expr,
    function: Function,
    bodies: list[Function],
    evaluator: Evaluator,
    depth: int,
) -> bool:
    """Whether what is changed is part of the dataset, or global.

    Also what a function that makes samples is given: `dropout(self.points[i])`.
    """
    own = evaluator.resolver.self_name(function)
    root = whole_of(target)
    if not isinstance(root, ast.Name):
        return False
    if root.id == own:
        return root is not target
    for definition in evaluator.resolver.definitions(root):
        if definition.kind == "parameter":
            passed = _given(definition.name, function, bodies, evaluator)
            if depth < MAX_DEPTH and any(
                _outlives(given, caller, bodies, evaluator, depth + 1)
                for given, caller in passed
            ):
                return True
            continue
        if isinstance(evaluator.index.scope(definition.node), ast.Module):
            stored = root is target and isinstance(root.ctx, ast.Store)
            if definition.kind in ("assign", "augment") and not stored:
                return True
            continue
        value = definition.value if definition.kind == "assign" else None
        part = depth < MAX_DEPTH and isinstance(value, (ast.Attribute, ast.Subscript))
        if part and value and _outlives(value, function, bodies, evaluator, depth + 1):
            return True
    return False


def _given(
    name: str, function: Function, bodies: list[Function], evaluator: Evaluator
) -> Iterator[tuple[ast.expr, Function]]:
    """What the functions that make samples pass to one of them for a parameter."""
    resolver = evaluator.resolver
    position = resolver.calls.position(function, name)
    for call in resolver.calls.callers(function):
        caller = resolver.index.home(call).function(call)
        given = evaluator.argument(call, name, position).direct
        if caller in bodies and caller is not function and given is not None:
            yield given, caller


def _kept_generator(bodies: list[Function], evaluator: Evaluator) -> ast.AST | None:
    """A draw from a generator that lives longer than a sample."""
    resolver = evaluator.resolver
    for function in bodies:
        for node in walk(*function.body):
            if isinstance(node, ast.keyword) and node.arg == "generator":
                return node.value
            if not isinstance(node, ast.Call) or not isinstance(
                node.func, ast.Attribute
            ):
                continue
            holder = node.func.value
            if _GENERATOR_NAME.search(dotted(holder) or ""):
                return node
            for made in (origin.call for origin in resolver.origins(holder)):
                if made is None or evaluator.index.function(made) in bodies:
                    continue
                if evaluator.index.qualified(made.func) in _GENERATORS:
                    return node
    return None


def _computes_with_torch(bodies: list[Function], evaluator: Evaluator) -> bool:
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
