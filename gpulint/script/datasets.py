"""What a dataset does for each sample: decode, compute, draw, or just index."""

from __future__ import annotations

import ast
import builtins
import enum
import re
from dataclasses import dataclass, replace

from gpulint.index import Argument, Evaluator, Function
from gpulint.index.walk import COMPREHENSIONS, dotted, walk


class Work(enum.Enum):
    """How much a dataset does for one sample."""

    NONE = "indexes what is in memory"
    SOME = "work per sample"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class Dataset:
    """A dataset as a loader sees it.

    `place` is the first expression that does the work, `reason` what it does;
    `random` whether samples depend on random numbers (None: not known); `handle`
    an open file or database that worker processes must not share; `device` whether
    samples are moved to the device; `generator` a use of a random generator that
    every worker would have a copy of; `torch_math` whether torch computes something
    whose rounding may depend on the number of threads, which is 1 in a worker.
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


_IN_MEMORY = frozenset(
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
    "lmdb.Environment".split()
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
    return replace(
        first,
        random=True if True in draws else None if None in draws else False,
        handle=next((d.handle for d in found if d.handle is not None), None),
        device=next((d.device for d in found if d.device is not None), None),
        iterable=any(d.iterable for d in found),
        mutated=any(d.mutated for d in found),
        generator=next((d.generator for d in found if d.generator is not None), None),
        torch_math=any(d.torch_math for d in found),
    )


def _read_origin(node: ast.AST, evaluator: Evaluator, depth: int) -> Dataset:
    if isinstance(node, (ast.List, ast.Tuple, ast.ListComp)):
        return Dataset(Work.NONE, "a list in memory", node, random=False)
    if not isinstance(node, ast.Call) or depth > 5:
        return Dataset(Work.UNKNOWN)
    name = evaluator.index.qualified(node.func) or ""
    if name in _IN_MEMORY:
        return Dataset(Work.NONE, "tensors in memory", node, random=False)
    if name in _PASS_THROUGH and node.args:
        inner = [
            _read_origin(o.node, evaluator, depth + 1)
            for o in evaluator.resolver.origins(node.args[0])
        ]
        return _worst(inner) if inner else Dataset(Work.UNKNOWN)
    if name.startswith("torchvision.datasets."):
        return _torchvision(node, name, evaluator)
    owner = evaluator.resolver.local_class(node.func)
    if owner is not None:
        return read_class(owner, evaluator)
    return Dataset(Work.UNKNOWN)


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


def read_class(owner: ast.ClassDef, evaluator: Evaluator) -> Dataset:
    """The facts of a dataset class of this file."""
    methods = evaluator.resolver.methods(owner)
    bases = evaluator.resolver.base_names(owner)
    iterable = any(b.endswith("IterableDataset") for b in bases) or (
        "__iter__" in methods and "__getitem__" not in methods
    )
    entry = methods.get("__iter__" if iterable else "__getitem__")
    if entry is None:
        return Dataset(Work.UNKNOWN, owner=owner)
    bodies = _reachable(entry, evaluator)
    place, reason = _first_work(bodies, evaluator)
    return Dataset(
        work=Work.SOME if place is not None else Work.NONE,
        reason=reason or "indexes what is in memory",
        place=place or entry,
        owner=owner,
        random=_draws(bodies, evaluator),
        handle=_open_handle(owner, evaluator),
        device=_moves(bodies),
        iterable=iterable,
        mutated=_mutates_itself(bodies, evaluator),
        generator=_kept_generator(bodies, evaluator),
        torch_math=_computes_with_torch(bodies, evaluator),
    )


def _reachable(entry: Function, evaluator: Evaluator) -> list[Function]:
    """The entry method and the functions of this file that it calls."""
    found = [entry]
    for function in found:
        for node in walk(function):
            if isinstance(node, ast.Call):
                callee = evaluator.resolver.callee(node)
                if callee is not None and callee not in found and len(found) < 20:
                    found.append(callee)
    return found


def _first_work(
    bodies: list[Function], evaluator: Evaluator
) -> tuple[ast.AST | None, str]:
    """The first expression that makes a sample costly, and what it does."""
    arithmetic: list[ast.Call] = []
    for function in bodies:
        for node in walk(*function.body):
            if isinstance(node, (ast.For, ast.While, *COMPREHENSIONS)):
                return node, "loops in Python for each sample"
            if not isinstance(node, ast.Call):
                continue
            reason = _work_of(node, evaluator)
            if reason == "computes":
                arithmetic.append(node)
            elif reason:
                return node, reason
    if len(arithmetic) >= 2:
        return arithmetic[0], "computes with arrays for each sample"
    return None, ""


def _work_of(call: ast.Call, evaluator: Evaluator) -> str:
    name = evaluator.index.qualified(call.func) or ""
    written = dotted(call.func) or ""
    head, _, last = name.rpartition(".")
    first = name.partition(".")[0]
    if name == "open" or (last in _READS and first in _READ_HEADS):
        return f"`{written}` reads a file for each sample"
    if last in _TRANSFORMS:
        return f"`{written}` runs for each sample"
    if name in _LIGHT_CALLS or (head and last in _LIGHT_METHODS):
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
            if not isinstance(node, ast.Call):
                continue
            name = evaluator.index.qualified(node.func) or ""
            if name.startswith(_RANDOM_HEADS) or name in _RANDOM_TORCH:
                return True
            written = dotted(node.func) or ""
            if "rng" in written or "random" in written or "Random" in written:
                return True
            known = evaluator.resolver.callee(node) is not None
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


def _open_handle(owner: ast.ClassDef, evaluator: Evaluator) -> ast.AST | None:
    """A file or database opened in `__init__` and kept on the dataset."""
    init = evaluator.resolver.methods(owner).get("__init__")
    if init is None:
        return None
    for node in walk(*init.body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = evaluator.index.qualified(node.value.func) or ""
            kept = any(isinstance(t, ast.Attribute) for t in node.targets)
            if name in _HANDLES and kept:
                return node.value
    return None


def _moves(bodies: list[Function]) -> ast.AST | None:
    """A move to the device for a sample: CUDA in worker processes fails."""
    for function in bodies:
        for node in walk(*function.body):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == "cuda":
                    return node
                if node.func.attr == "to" and any(
                    "device" in (dotted(a) or "") for a in node.args
                ):
                    return node
    return None


def _mutates_itself(bodies: list[Function], evaluator: Evaluator) -> bool:
    """Whether a sample changes the dataset: each worker would change its own copy."""
    for function in bodies:
        own = evaluator.resolver.self_name(function)
        for node in walk(*function.body):
            targets: list[ast.expr] = []
            if isinstance(node, ast.Global):
                return True
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AugAssign):
                targets = [node.target]
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _MUTATORS
            ):
                targets = [node.func.value]
            for target in targets:
                base = target.value if isinstance(target, ast.Subscript) else target
                name = dotted(base) or ""
                if own and name.startswith(f"{own}."):
                    return True
    return False


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
