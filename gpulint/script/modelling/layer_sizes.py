"""How large the layers are that a call makes, where their sizes are known."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from math import inf, prod
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function
from gpulint.index.appended import elements_of
from gpulint.index.walk import COMPREHENSIONS, LOOPS, dotted, walk
from gpulint.script.bounds import at_most, most_turns
from gpulint.script.modelling.network import LAYERS, NARROW, is_product

if TYPE_CHECKING:
    from gpulint.script.model import Script

SMALL = 10_000  # weights: less keeps no GPU busy, in whatever precision
# Linear layers use a weight once for a sample: less than the start of a kernel takes.
SMALL_IF_LINEAR = 200_000
# The most numbers that an environment of control observes, which are no picture.
OBSERVED = 512
MAX_DEPTH = 4
_NO_PRODUCTS = frozenset(
    "Tanh Sigmoid Hardsigmoid LogSigmoid Softmax LogSoftmax Softplus Softsign GELU GLU "
    "ELU SELU CELU SiLU Mish Hardtanh Hardswish Identity Flatten Unflatten Sequential "
    "ModuleList LayerNorm GroupNorm RMSNorm weight_norm spectral_norm Parameter".split()
)
_NO_PRODUCT = re.compile(
    r"\w*ReLU6?$|(Adaptive)?(Max|Avg)Pool[123]d$|(Batch|Instance)Norm[123]d$|"
    r"(Alpha)?Dropout[123]?d?$|\w+Pad[123]d$|\w+Loss$"
)
_OTHER_SHAPE = re.compile(r"Pool|Pad|Unflatten|GLU|Sequential|ModuleList|Loss")
_CONTAINERS = (".Sequential", ".ModuleList")
_NO_LAYERS = frozenset(
    "super range len int float max min append extend to cuda isinstance print str "
    "enumerate zip list tuple dict set sum abs round format".split()
)
# Methods of every module, which make no weights; the first give what another has.
_GIVES_PARTS = frozenset("modules named_modules children named_children".split())
_OF_MODULES = frozenset(
    "parameters named_parameters buffers apply register_buffer register_forward_hook "
    "train eval state_dict load_state_dict half double save_hyperparameters".split()
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
_FILLED = re.compile(r"torch\.(zeros|ones|empty|rand|randn)$")
_TRAINED = ("Parameter", "nn.Parameter", "torch.nn.Parameter")
_SPACES = frozenset(["observation_space", "action_space"])


class Size(NamedTuple):
    """The weights of a model; whether each is used once for a sample; its width.

    The width is the most features that a product of matrices reads or gives; `reused`
    are the weights that are used several times for a sample, for each of its positions
    at most. A number is infinite where it is not known. `layers` are those that
    multiply, each counted where it is written.
    """

    weights: float
    linear: bool
    width: float = 0
    reused: float = 0
    layers: int = 0

    @property
    def tiny(self) -> bool:
        """Whether it keeps no GPU busy."""
        few = self.weights < (SMALL_IF_LINEAR if self.linear else SMALL)
        return few or 0 < self.width <= NARROW


NOTHING = Size(0, linear=True)


def largest(found: list[Size | None]) -> Size | None:
    """What a model may be at most that is one of several; None: one is not known."""
    known = [size for size in found if size is not None]
    if not found or len(known) < len(found):
        return None
    return Size(
        max(size.weights for size in known),
        all(size.linear for size in known),
        max(size.width for size in known),
        max(size.reused for size in known),
        min(size.layers for size in known),
    )


def total(sizes: Iterable[Size | None]) -> Size | None:
    """What layers are together; None: one is not known."""
    found = list(sizes)
    known = [size for size in found if size is not None]
    if not found or len(known) < len(found):
        return None
    return Size(
        sum(size.weights for size in known),
        all(size.linear for size in known),
        max(size.width for size in known),
        sum(size.reused for size in known),
        sum(size.layers for size in known),
    )


def made_by(script: Script, call: ast.Call | None, depth: int) -> Size | None:
    """What a call makes: a layer, a container, a module of this project."""
    if call is None or depth > MAX_DEPTH:
        return None
    name = script.index.qualified(call.func) or ""
    if name.startswith("torch.nn."):
        inside = [n for n in walk(call) if isinstance(n, ast.Call)]
        return total(_part(script, c, call, depth) for c in inside)
    owner = script.resolver.classes.named(call.func)
    if owner is None:
        return _by_function(script, call, depth)
    if not script.modules.is_module_class(owner):
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
        return size._replace(linear=False, width=width, reused=inf)
    return size


def _by_function(script: Script, call: ast.Call, depth: int) -> Size | None:
    """What functions make that a call runs; not known of those that make no layer.

    Nor of methods, which another class may have in a way of its own.
    """
    functions = script.resolver.calls.callees(call)
    if any(script.index.home(f).owner(f) is not None for f in functions):
        return None
    size = largest([_layers_in(script, f, depth + 1) for f in functions])
    return size if size is not None and size.layers else None


def _layers_in(script: Script, function: Function, depth: int) -> Size | None:
    """What the calls of a function make together."""
    if depth > MAX_DEPTH:
        return None
    calls = [n for s in function.body for n in walk(s) if isinstance(n, ast.Call)]
    layers = [c for c in calls if "super" not in ast.dump(c.func)]
    return total([NOTHING, *(_part(script, c, function, depth) for c in layers)])


def _own_method(script: Script, call: ast.Call) -> Function | None:
    """The method that `self.init_weights()` calls."""
    owner = script.index.owner(call)
    if owner is None or not _is_on_self(script, call):
        return None
    assert isinstance(call.func, ast.Attribute)
    return script.resolver.classes.methods(owner).get(call.func.attr)


def _is_on_self(script: Script, call: ast.Call) -> bool:
    receiver = getattr(call.func, "value", None)
    own = script.resolver.self_name(script.index.scope(call))
    return isinstance(receiver, ast.Name) and receiver.id == own


def _makes_no_layer(script: Script, call: ast.Call) -> bool:
    """Whether a call makes no weights: tensors that are not trained."""
    if any(dotted(a.func) in _TRAINED for a in _calls_around(script, call)):
        return False
    name = getattr(call.func, "attr", None) or dotted(call.func) or ""
    if name in _NO_LAYERS or name.endswith("_"):  # in place
        return True
    if isinstance(call.func, ast.Attribute) and name in _NO_WEIGHTS | _OF_MODULES:
        return _own_method(script, call) is None
    if name in _GIVES_PARTS and _is_on_self(script, call):
        return _own_method(script, call) is None
    qualified = script.index.qualified(call.func) or ""
    if qualified == "collections.OrderedDict":
        return True  # the layers that it names stand in it
    return qualified.startswith("math.") or bool(_TENSORS.match(qualified))


def _is_given_no_product(script: Script, call: ast.Call) -> bool:
    """Whether a call makes the activation that it is given: `act()`, of `act=nn.ReLU`.

    Or would make it if that were not None.
    """
    if not isinstance(call.func, (ast.Name, ast.Attribute)):
        return False
    origins = script.resolver.origins(call.func)
    return bool(origins) and all(
        not o.path and _names_no_product(script, o.expression) for o in origins
    )


def _names_no_product(script: Script, given: ast.expr | None) -> bool:
    if given is None or isinstance(given, ast.Constant):
        return given is not None and given.value is None
    name = script.of(given).index.qualified(given) or ""
    return name.startswith("torch.nn.") and _multiplies_not(name.rpartition(".")[2])


def _multiplies_not(layer: str) -> bool:
    """Whether a layer of this name has no product of matrices."""
    return layer in _NO_PRODUCTS or bool(_NO_PRODUCT.match(layer))


def _trained(script: Script, call: ast.Call) -> Size | None:
    """The weights of `nn.Parameter(torch.zeros(8, 5))`, where their number is known."""
    if _FILLED.match(script.index.qualified(call.func) or "") is None:
        return None
    given: list[ast.expr] = list(call.args)
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        given = given[0].elts
    sizes = [at_most(script, side) for side in given]
    if not sizes or inf in sizes:
        return None
    return Size(prod(sizes), linear=True, width=max(sizes))


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
        if name.endswith(_CONTAINERS):
            size = total([NOTHING, *_held(script, call, whole, depth + 1)])
    elif _makes_no_layer(script, call) or _is_given_no_product(script, call):
        return NOTHING
    elif (trained := _trained(script, call)) is not None:
        size = trained
    elif (method := _own_method(script, call)) is not None:
        size = _layers_in(script, method, depth + 1)
    else:
        size = made_by(script, call, depth + 1)
    above = takewhile(lambda a: a is not whole, script.index.ancestors(call))
    loops = [a for a in above if isinstance(a, (*LOOPS, *COMPREHENSIONS))]
    if size is not None and size.weights and loops:
        if size.linear:
            return size._replace(weights=inf)  # many rows may be behind deep ones
        times = prod(_turns(script, loop) for loop in loops)
        reused = size.reused * times if size.reused else 0  # not 0 * inf
        return size._replace(weights=size.weights * times, reused=reused)
    return size


def _held(
    script: Script, container: ast.Call, whole: ast.AST, depth: int
) -> Iterator[Size | None]:
    """What a container is given that `whole` does not make: `Sequential(*layers)`."""
    for given in container.args:
        node = given.value if isinstance(given, ast.Starred) else given
        for origin in script.resolver.origins(node):
            made, home = origin.expression, script.index.home(origin.node)
            if origin.call is not None or home.inside(origin.node, whole):
                continue
            if not isinstance(made, (ast.List, ast.Tuple, ast.ListComp)):
                yield None
                continue
            for part in elements_of(script.index, made):
                yield total([NOTHING, *_of_element(script, part, depth)])


def _of_element(script: Script, part: ast.expr, depth: int) -> Iterator[Size | None]:
    """What an element of a list of layers is, or the elements that extend the list."""
    if isinstance(part, ast.Name):
        made = [origin.call for origin in script.resolver.origins(part)]
        yield largest([made_by(script, call, depth) for call in made])
    elif isinstance(part, (ast.List, ast.Tuple)):
        for inner in part.elts:
            yield from _of_element(script, inner, depth)
    elif isinstance(part, (ast.Call, ast.ListComp)):
        whole = script.index.home(part).tree
        calls = (node for node in walk(part) if isinstance(node, ast.Call))
        yield from (_part(script, call, whole, depth) for call in calls)
    else:
        yield None


def _turns(script: Script, loop: ast.AST) -> float:
    """How often `for _ in range(4):` runs at most; infinite: not known."""
    call = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(call, ast.Call) or script.index.qualified(call.func) != "range":
        return inf
    return max(most_turns(script, call), 1)


def _layer(script: Script, call: ast.Call, name: str) -> Size | None:
    last = name.rpartition(".")[2]
    if name.startswith("torch.nn.init.") or _multiplies_not(last):
        return NOTHING
    options = LAYERS.get(last)
    if options is None:
        return None
    sizes = [_number(script, call, o, n) for n, o in enumerate(options)]
    if last == "Embedding":  # looked up, not multiplied
        return Size(prod(sizes), linear=True)
    if last.startswith("Conv"):
        return _convolution(script, call, last, sizes)
    if inf in sizes:
        return None
    if last == "Linear":
        return Size(prod(sizes), linear=True, width=max(sizes), layers=1)
    return Size(inf, linear=False, width=max(sizes), reused=inf, layers=1)


def changes_no_shape(layer: str) -> bool:
    """Whether a layer of this name gives as many pixels and channels as it takes."""
    if _OTHER_SHAPE.search(layer):
        return False
    return _multiplies_not(layer)


def _convolution(
    script: Script, call: ast.Call, last: str, sizes: list[float]
) -> Size | None:
    """The size of a convolution, by its channels and its kernel, `3` or `(1, 9)`."""
    kernel = script.evaluator.argument(call, "kernel_size", 2).direct
    if isinstance(kernel, (ast.Tuple, ast.List)):
        area = prod(at_most(script, side) for side in kernel.elts)
    else:
        area = sizes[2] ** int(last[-2])
    if inf in sizes[:2] or area in (0, inf):
        return None
    narrow = last.endswith("1d") or area == 1
    weights = sizes[0] * sizes[1] * area
    width = max(*sizes[:2], area) if narrow else inf
    return Size(weights, linear=False, width=width, reused=weights, layers=1)


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
