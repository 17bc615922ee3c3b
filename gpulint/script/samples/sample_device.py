"""What makes or puts samples on the device, which worker processes cannot use."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from gpulint.index import Evaluator, FileIndex, Function
from gpulint.index.walk import FUNCTIONS, dotted, walk

_DEVICE = re.compile(r"(?i)device|cuda|\bgpu")
_ON_HOST = frozenset("cpu numpy from_numpy state_dict".split())
_STATE = re.compile(r"(?i)(^|_)(model|net\w*|generator|discriminator|ckpt|state)|check")
_PLACES = ("device", "map_location")
_OF_GPUS = re.compile(
    r"(cupy|cudf|cuml|cugraph)\.|numba\.cuda\."
    r"|warp\.(init|launch|Mesh|array|zeros|empty|from_numpy|from_torch)$"
)


def made_there(
    bodies: tuple[Function, ...], given: Iterable[ast.AST], evaluator: Evaluator
) -> ast.AST | None:
    """The first thing that puts a sample on the device, in any of these ways.

    `given` is what a dataset is made with and calls, such as transforms.
    """
    ways = itertools.chain(
        filter(None, map(sent_to_device, [*bodies, *given])),
        (node for body in bodies for node in _run_on_gpu(body, evaluator)),
        (node for body in bodies for node in _loaded_there(body, evaluator)),
    )
    return next(ways, None)


def sent_to_device(code: ast.AST) -> ast.AST | None:
    """A move to the device for a sample, or a tensor made there.

    CUDA in worker processes fails. What `device = images[0].device` names is where the
    images are: what is made or moved there is beside them.
    """
    beside = _devices_of_tensors(code)
    for node in walk(code):
        if not isinstance(node, ast.Call):
            continue
        told = [k.value for k in node.keywords if k.arg in _PLACES]
        if any(_is_a_device(v) and dotted(v) not in beside for v in told):
            return node
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "cuda":
                return node
            given = [*node.args, *(k.value for k in node.keywords)]
            if node.func.attr == "to" and any(
                (_DEVICE.search(dotted(a) or "") and dotted(a) not in beside)
                or is_cuda(a)
                for a in given
            ):
                return node
    return None


def _devices_of_tensors(code: ast.AST) -> set[str]:
    """The names that a function sets to the devices of tensors, and to nothing else."""
    if not isinstance(code, FUNCTIONS):
        return set()
    own: Counter[str] = Counter()
    all_of: Counter[str] = Counter()
    for node in walk(code):
        if isinstance(node, ast.arg):
            all_of[node.arg] += 1
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            all_of[node.id] += 1
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            of_tensor = getattr(node.value, "attr", "") == "device"
            of_self = (dotted(node.value) or "").startswith("self.")
            own[node.targets[0].id] += of_tensor and not of_self
    return {name for name, times in own.items() if times and times == all_of[name]}


def _is_a_device(node: ast.expr) -> bool:
    """`self.device`, `"cuda"`, `torch.device("cuda")`; not that of some tensor."""
    if isinstance(node, ast.Call):
        named = (dotted(node.func) or "").rpartition(".")[2] == "device"
        return named and any(map(_is_a_device, node.args))
    name = dotted(node) or ""
    of_tensor = name.endswith(".device") and not name.startswith("self.")
    return is_cuda(node) or (not of_tensor and _DEVICE.search(name) is not None)


def _run_on_gpu(function: Function, evaluator: Evaluator) -> Iterator[ast.AST]:
    """Calls of packages whose arrays and kernels are a GPU's, of their functions alone.

    `warp` may be a name of the project's own, so that what Warp has is asked for.
    """
    index = evaluator.index.home(function)
    for node in walk(function):
        if isinstance(node, ast.Call) and _OF_GPUS.match(
            index.qualified(node.func) or ""
        ):
            yield node


def _loaded_there(function: Function, evaluator: Evaluator) -> Iterator[ast.AST]:
    """`torch.load(path)` of files that the project may save from the device.

    Without `map_location` each tensor comes back to where it was.
    """
    index = evaluator.index.home(function)
    calls = [n for n in walk(function) if isinstance(n, ast.Call)]
    loads = [c for c in calls if index.qualified(c.func) == "torch.load"]
    anywhere = [c for c in loads if len(c.args) == 1 and not c.keywords]
    if anywhere and any(map(_may_be_there, _saved(index), itertools.repeat(evaluator))):
        yield from anywhere


def _saved(index: FileIndex) -> Iterator[ast.expr]:
    """What a file saves, and what others of its project do that speak of a device."""
    project = index.project
    paths = project.mentioning("torch.save(") if project is not None else []
    others = [] if project is None else [project.index(path) for path in paths]
    speaking = (o for o in others if o is not None and o.source.has(_DEVICE))
    for home in dict.fromkeys([index, *speaking]):
        for call in home.calls.get("torch.save", ()):
            yield from call.args[:1]


def _may_be_there(saved: ast.expr, evaluator: Evaluator) -> bool:
    """Whether nothing shows that a saved tensor is on the host; no state or model."""
    if _STATE.search((dotted(saved) or "").rpartition(".")[2]):
        return False
    made = [saved, *(o.node for o in evaluator.resolver.origins(saved))]
    if any(isinstance(node, (ast.Dict, ast.Constant)) for node in made):
        return False
    return not any(
        isinstance(node, ast.Attribute) and node.attr in _ON_HOST
        for node in walk(*made)
    )


def is_cuda(node: ast.expr) -> bool:
    """`"cuda"`, `"cuda:1"`."""
    return isinstance(node, ast.Constant) and str(node.value).startswith("cuda")


def is_to_cpu(move: ast.AST, evaluator: Evaluator) -> bool:
    """Whether all devices that a move is known to be given are the CPU."""
    if not isinstance(move, ast.Call):
        return False
    given = [*move.args, *(k.value for k in move.keywords)]
    origins = [o for n in given for o in evaluator.resolver.origins(n)]
    return bool(origins) and all(
        o.expression is not None
        and "'cpu'" in ast.dump(o.expression)
        and "'cuda'" not in ast.dump(o.expression)
        for o in origins
    )


def kept_on_device(
    init: Function | None, bodies: tuple[Function, ...]
) -> ast.AST | None:
    """What `__init__` moves to a device and samples are made with."""
    used = {dotted(n) for n in walk(*bodies) if isinstance(n, ast.Attribute)}
    for node in walk(*init.body) if init is not None else ():
        targets = map(dotted, node.targets) if isinstance(node, ast.Assign) else ()
        kept = any(name and "." in name and name in used for name in targets)
        moved = sent_to_device(node) if kept else None
        if moved is not None:
            return moved
    return None
