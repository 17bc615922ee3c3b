"""How large the products of a model are, where sizes are known."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from math import inf, prod
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function
from gpulint.index.walk import COMPREHENSIONS, LOOPS, dotted, walk
from gpulint.script.bounds import at_most
from gpulint.script.modelling.models import makers
from gpulint.script.modelling.network import LAYERS, NARROW, is_product
from gpulint.script.samples.small_samples import SMALL_SIDE, small_samples

if TYPE_CHECKING:
    from gpulint.script.model import Script
    from gpulint.script.training.training_step import Step

SMALL = 10_000  # weights: less keeps no GPU busy, in whatever precision
MODEST = 100_000  # weights: less keeps it busy for large inputs alone
MODEST_IF_LINEAR = 1_000_000  # where each is used once for a sample
# Where that is so but for a modest number, which small pictures use.
MODEST_IN_PICTURES = 2_000_000
FEW_PICTURES = 32
_SMALL_KERNELS = re.compile(
    r"^torchvision\.models\.(resnet(18|34)|mobilenet|mnasnet|squeezenet|shufflenet)"
)
SIDE_OF_DIGITS = 28  # pixels: whatever convolves so small pictures takes little
# Weights times rows of a batch: casting the weights takes as long as fewer products,
# and so does the start of their kernels.
MODEST_OF_FEW_ROWS = 4_000_000 * 64
# Linear layers use a weight once for a sample: less than the start of a kernel takes.
SMALL_IF_LINEAR = 200_000
# The most numbers that an environment of control observes, which are no picture.
OBSERVED = 512
MAX_DEPTH = 4
_NO_PRODUCTS = frozenset(
    "ReLU Tanh Sigmoid Dropout Sequential Flatten Softmax GELU ELU LeakyReLU MaxPool2d "
    "AvgPool2d LogSoftmax Identity MaxPool1d SiLU Softplus Dropout2d ReLU6 "
    "BatchNorm1d BatchNorm2d LayerNorm PReLU Mish Hardtanh Unflatten ModuleList "
    "weight_norm spectral_norm Parameter".split()
)
_NO_LAYERS = frozenset(
    "super range len int float max min append extend to cuda isinstance".split()
)
# Methods of tensors, and what makes them.
_NO_WEIGHTS = frozenset(
    "expand view reshape unsqueeze squeeze transpose permute contiguous repeat float "
    "long flatten detach clone cpu numpy items keys values numel size dim".split()
)
_TENSORS = re.compile(
    r"torch\.((cuda\.)?\w+Tensor|tensor|zeros|ones|full|arange|linspace|eye|empty|"
    r"rand|randn|randint|from_numpy|as_tensor|cat|stack|triu|tril)$"
)
_TRAINED = ("Parameter", "nn.Parameter", "torch.nn.Parameter")
_SPACES = frozenset(["observation_space", "action_space"])


class Size(NamedTuple):
    """The weights of a model; whether each is used once for a sample; its width.

    The width is the most features that a product of matrices reads or gives; `reused`
    are the weights that are used several times for a sample. A number is infinite where
    it is not known.
    """

    weights: float
    linear: bool
    width: float = 0
    reused: float = 0

    @property
    def tiny(self) -> bool:
        """Whether it keeps no GPU busy."""
        few = self.weights < (SMALL_IF_LINEAR if self.linear else SMALL)
        return few or 0 < self.width <= NARROW


NOTHING = Size(0, linear=True)


def is_tiny(script: Script, step: Step) -> bool:
    """Whether the model of a step is known to be too small to gain by precision."""
    size = _of_step(script, step)
    return size is not None and size.tiny


def is_modest(script: Script, step: Step) -> bool:
    """Whether what precision saves in a step hangs on the size of its inputs."""
    side = _largest_side(script, step)
    if side <= SIDE_OF_DIGITS:
        return True
    size = _of_step(script, step)
    if size is None:
        return False
    if size.weights < (MODEST_IF_LINEAR if size.linear else MODEST):
        return True
    modest = size.weights < MODEST_IN_PICTURES and size.reused < MODEST
    return modest and not size.linear and side <= SMALL_SIDE


def loses_by_casts(script: Script, step: Step) -> bool:
    """Whether a batch is known to be so small that casts cost as much as they save.

    Of linear layers by their weights; networks of many small kernels by name: on an
    H200 ResNet-18 took longer in mixed precision for 32 pictures.
    """
    if _most_rows(step) <= FEW_PICTURES and _is_of_small_kernels(script, step):
        return True
    size = _of_step(script, step)
    if size is None or not size.linear:
        return False
    return size.weights * _most_rows(step) < MODEST_OF_FEW_ROWS


def _is_of_small_kernels(script: Script, step: Step) -> bool:
    """Whether a step runs a small network of torchvision, as its call is named."""
    if step.forward is None:
        return False
    made = [*makers(script, step.forward.func)]
    names = [script.index.qualified(c.func) or "" for c in made if c is not None]
    return len(names) == len(made) > 0 and all(map(_SMALL_KERNELS.search, names))


def _most_rows(step: Step) -> float:
    """The most rows that a batch of a step has; infinite where that is not known."""
    sizes = [loader.values("batch_size") for loader in step.loop.loaders]
    if not all(its.complete for its in sizes):
        return inf
    numbers = [v.constant for its in sizes for v in its.known]
    whole = [n for n in numbers if isinstance(n, int)]
    return max(whole, default=inf) if len(whole) == len(numbers) else inf


def _largest_side(script: Script, step: Step) -> float:
    """The side of the largest pictures that a step takes; infinite: not known."""
    found = [small_samples(script, loader) for loader in step.loop.loaders]
    sides = [its.side if its is not None else None for its in found]
    known = [side for side in sides if side is not None]
    return max(known, default=inf) if len(known) == len(sides) else inf


def weights(script: Script, step: Step) -> float | None:
    """How many weights the model of a step has, or may have at most; None: unknown."""
    size = _of_step(script, step)
    return size.weights if size is not None else None


def _of_step(script: Script, step: Step) -> Size | None:
    return _size(script, step.forward.func) if step.forward is not None else None


def _size(script: Script, model: ast.expr) -> Size | None:
    """The size of a model, the largest of what it may be; None: not known."""
    found = [_made(script, call, 0) for call in makers(script, model)]
    known = [size for size in found if size is not None]
    if not found or len(known) < len(found):
        return None
    return Size(
        max(size.weights for size in known),
        all(size.linear for size in known),
        max(size.width for size in known),
        max(size.reused for size in known),
    )


def _total(sizes: Iterable[Size | None]) -> Size | None:
    found = list(sizes)
    known = [size for size in found if size is not None]
    if not found or len(known) < len(found):
        return None
    return Size(
        sum(size.weights for size in known),
        all(size.linear for size in known),
        max(size.width for size in known),
        sum(size.reused for size in known),
    )


def _made(script: Script, call: ast.Call | None, depth: int) -> Size | None:
    """What a call makes: a layer, a container, a module of this project."""
    if call is None or depth > MAX_DEPTH:
        return None
    name = script.index.qualified(call.func) or ""
    if name.startswith("torch.nn."):
        inside = [n for n in walk(call) if isinstance(n, ast.Call)]
        return _total(_part(script, c, call, depth) for c in inside)
    owner = script.resolver.classes.named(call.func)
    if owner is None or not script.modules.is_module_class(owner):
        return None
    methods = script.resolver.classes.methods(owner)
    init = methods.get("__init__")
    if init is None:  # of a plain module: it makes nothing
        bases = script.resolver.classes.base_names(owner)
        return NOTHING if set(bases) <= {"torch.nn.Module"} else None
    size = _layers_in(script, init, depth)
    if size is not None and any(is_product(script, n) for n in walk(*_run(methods))):
        # Attention; its products are as narrow as the features that layers give it.
        width = size.width if 0 < size.width <= NARROW else inf
        return Size(size.weights, linear=False, width=width, reused=size.weights)
    return size


def _layers_in(script: Script, function: Function, depth: int) -> Size | None:
    """What the calls of a function make together."""
    if depth > MAX_DEPTH:
        return None
    calls = [n for s in function.body for n in walk(s) if isinstance(n, ast.Call)]
    layers = [c for c in calls if "super" not in ast.dump(c.func)]
    return _total([NOTHING, *(_part(script, c, function, depth) for c in layers)])


def _own_method(script: Script, call: ast.Call) -> Function | None:
    """The method that `self.init_weights()` calls."""
    func, owner = call.func, script.index.owner(call)
    if owner is None or not isinstance(func, ast.Attribute):
        return None
    own = script.resolver.self_name(script.index.scope(call))
    if not isinstance(func.value, ast.Name) or func.value.id != own:
        return None
    return script.resolver.classes.methods(owner).get(func.attr)


def _makes_no_layer(script: Script, call: ast.Call) -> bool:
    """Whether a call makes no weights: tensors that are not trained."""
    if any(dotted(a.func) in _TRAINED for a in _calls_around(script, call)):
        return False
    name = getattr(call.func, "attr", None) or dotted(call.func) or ""
    if name in _NO_LAYERS or name.endswith("_"):  # in place
        return True
    if isinstance(call.func, ast.Attribute) and name in _NO_WEIGHTS:
        return True
    qualified = script.index.qualified(call.func) or ""
    return qualified.startswith("math.") or bool(_TENSORS.match(qualified))


def _calls_around(script: Script, call: ast.Call) -> Iterator[ast.Call]:
    """The calls of the same statement that a call stands in."""
    inside = takewhile(
        lambda a: not isinstance(a, ast.stmt), script.index.ancestors(call)
    )
    return (above for above in inside if isinstance(above, ast.Call))


def _run(methods: dict[str, Function]) -> list[Function]:
    """The methods that a forward pass runs; all of a class without `forward`."""
    if "forward" not in methods:
        return list(methods.values())
    found = {"forward": methods["forward"]}
    waiting = ["forward"]
    while waiting:
        for node in walk(methods[waiting.pop()]):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            if name in methods and name not in found:
                found[name] = methods[name]
                waiting.append(name)
    return list(found.values())


def _part(script: Script, call: ast.Call, whole: ast.AST, depth: int) -> Size | None:
    """What a call adds to the model that is made in `whole`."""
    name = script.index.qualified(call.func) or ""
    if name.startswith("torch.nn."):
        size = _layer(script, call, name)
    elif _makes_no_layer(script, call):
        return NOTHING
    elif (method := _own_method(script, call)) is not None:
        size = _layers_in(script, method, depth + 1)
    else:
        size = _made(script, call, depth + 1)
    above = takewhile(lambda a: a is not whole, script.index.ancestors(call))
    loops = [a for a in above if isinstance(a, (*LOOPS, *COMPREHENSIONS))]
    if size is not None and size.weights and loops:
        if size.linear:
            return size._replace(weights=inf)  # many rows may be behind deep ones
        times = prod(_turns(script, loop) for loop in loops)
        reused = size.reused * times if size.reused else 0  # not 0 * inf
        return size._replace(weights=size.weights * times, reused=reused)
    return size


def _turns(script: Script, loop: ast.AST) -> float:
    """How often `for _ in range(4):` runs at most; infinite: not known."""
    call = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(call, ast.Call) or script.index.qualified(call.func) != "range":
        return inf
    number = at_most(script, call.args[0]) if len(call.args) == 1 else inf
    return max(number, 1)


def _layer(script: Script, call: ast.Call, name: str) -> Size | None:
    last = name.rpartition(".")[2]
    if name.startswith("torch.nn.init.") or last in _NO_PRODUCTS:
        return NOTHING
    options = LAYERS.get(last)
    if options is None:
        return None
    sizes = [_number(script, call, o, n) for n, o in enumerate(options)]
    if last == "Embedding":  # looked up, not multiplied
        return Size(prod(sizes), linear=True)
    if inf in sizes:
        return None
    if last.startswith("Conv"):
        narrow = last == "Conv1d" or sizes[2] == 1
        weights = prod(sizes) * (sizes[2] if last == "Conv2d" else 1)
        width = max(sizes) if narrow else inf
        return Size(weights, linear=False, width=width, reused=weights)
    if last == "Linear":
        return Size(prod(sizes), linear=True, width=max(sizes))
    return Size(inf, linear=False, width=max(sizes), reused=inf)


def _number(script: Script, call: ast.Call, option: str, position: int) -> float:
    """The number that an option surely is, or is at most; infinite: not known."""
    given = script.evaluator.argument(call, option, position).direct
    if given is None:
        return inf
    return OBSERVED if _is_observed(script, given) else at_most(script, given)


def _is_observed(script: Script, given: ast.expr) -> bool:
    """`env.observation_space.shape[0]`, also beside the numbers of an action."""
    origins = script.resolver.origins(given)
    nodes = [list(walk(o.node)) for o in origins if o.expression is not None]
    return 0 < len(origins) == len(nodes) and all(
        any(isinstance(n, ast.Attribute) and n.attr in _SPACES for n in its)
        and not any(isinstance(n, ast.Call) for n in its)
        for its in nodes
    )
