"""Tensors that a script makes from nothing: factories, and methods called on them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Where
from gpulint.index.walk import dotted, walk_scope

if TYPE_CHECKING:
    from gpulint.script.model import Script

FILLED = frozenset(
    "zeros ones full empty eye scalar_tensor tril_indices triu_indices".split()
)
RANDOM = frozenset("rand randn randint randperm normal".split())
_SIZED = frozenset("zeros ones full empty rand randn".split())
RANGES = frozenset("linspace logspace".split())
LIKE = frozenset("zeros_like ones_like full_like empty_like".split())
RANDOM_LIKE = frozenset("rand_like randn_like randint_like".split())
JOINS = frozenset("cat concat stack".split())
# With the type of what they make; without one it is the default.
LEGACY = {
    "Tensor": "",
    "FloatTensor": "float32",
    "LongTensor": "int64",
    "IntTensor": "int32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "ByteTensor": "uint8",
    "BoolTensor": "bool",
    "ShortTensor": "int16",
}
_TORCH = (
    FILLED | RANDOM | RANGES | LIKE | RANDOM_LIKE | {"arange", "tensor"} | set(LEGACY)
)
_CONVERT = frozenset({"from_numpy", "tensor", "as_tensor", *LEGACY})
_NUMPY = frozenset("zeros ones full empty eye identity arange linspace".split())
# Views, casts and fills: on the device they give what they give on the host, and
# the copy to the device leaves their strides as they are.
_EXACT_METHODS = frozenset(
    "unsqueeze squeeze view reshape permute transpose t flatten contiguous detach "
    "clone repeat float double half bfloat16 long int short bool to type fill_ zero_ "
    "unsqueeze_ squeeze_ view_as reshape_as".split()
)
# What else is computed of numbers alone. Where, shows in rounding or strides.
_COMPUTES = frozenset(
    "add sub mul div neg abs exp log log1p sqrt rsqrt pow sin cos tanh sigmoid clamp "
    "triu tril expand expand_as add_ sub_ mul_ div_ neg_ abs_ exp_ log_ sqrt_ pow_ "
    "clamp_ cumsum diag diag_embed logical_not eq ne lt le gt ge".split()
)
_RANDOM_METHODS = frozenset("uniform_ normal_ random_ bernoulli_ exponential_".split())


class Creation(NamedTuple):
    """A tensor made by `call`, then changed by `methods`, innermost first.

    `name` is the factory's last name; `numpy` whether NumPy makes the values;
    `computed` whether the host computes with them, and plain numbers, before the copy.
    """

    call: ast.Call
    name: str
    methods: tuple[ast.Call, ...] = ()
    numpy: bool = False
    computed: bool = False

    @property
    def random(self) -> bool:
        """Whether the values are drawn."""
        drawn = any(_method(m) in _RANDOM_METHODS for m in self.methods)
        return drawn or self.name in RANDOM | RANDOM_LIKE


def creation(
    script: Script,
    node: ast.expr,
    named: Callable[[ast.Name], ast.expr | None] | None = None,
) -> Creation | None:
    """The creation that an expression is, on the host; None for anything else.

    `named` says what a name stands for, where names are followed.
    """
    methods: list[ast.Call] = []
    computed = False

    def made(call: ast.Call, name: str, numpy: bool = False) -> Creation:
        return Creation(call, name, tuple(reversed(methods)), numpy, computed)

    while True:
        inner = _computed_with(script, node)
        if inner is not None:
            node, computed = inner, True
            continue
        if isinstance(node, ast.Subscript) and _is_view(node.slice):
            node = node.value
            continue
        if isinstance(node, ast.Name) and named is not None:
            its = named(node)
            if its is None:
                return None
            node = its
            continue
        if not isinstance(node, ast.Call):
            return None
        name = script.index.qualified(node.func) or ""
        head, _, last = name.rpartition(".")
        if name == "torch.autograd.Variable" and node.args:
            if _is_leaf(node):
                return None
            node = node.args[0]
            continue
        converts = head == "torch" and last in _CONVERT and bool(node.args)
        if converts and is_numpy_factory(script, node.args[0]):
            return made(node, last, numpy=True)
        if head == "torch" and last in JOINS:
            return made(node, last) if _joins_creation(script, node) else None
        if head == "torch" and last in _TORCH:
            found = made(node, last)
            return found if _from_nothing(script, found) else None
        known = _EXACT_METHODS | _RANDOM_METHODS | {"requires_grad_"}
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in known:
            return None
        methods.append(node)
        node = node.func.value


def _is_leaf(variable: ast.Call) -> bool:
    """Whether a `Variable` may take the gradient, other than what it is made of."""
    asked = [k.value for k in variable.keywords if k.arg == "requires_grad"]
    return any(
        not isinstance(value, ast.Constant) or value.value is not False
        for value in (*variable.args[1:2], *asked)
    )


def _computed_with(script: Script, node: ast.expr) -> ast.expr | None:
    """What an operation with plain numbers alone computes with: `2 * x`, `x.exp()`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return node.operand
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right), (node.right, node.left)
        return next((x for x, other in sides if _is_plain(script, other)), None)
    if not isinstance(node, ast.Call):
        return None
    others = [k.value for k in node.keywords]
    name = script.index.qualified(node.func) or ""
    if name.rpartition(".")[0] == "torch" and node.args:
        of_torch = name.rpartition(".")[2] in _COMPUTES
        plain = all(_is_plain(script, x) for x in [*node.args[1:], *others])
        return node.args[0] if of_torch and plain else None
    if isinstance(node.func, ast.Attribute) and _method(node) in _COMPUTES:
        plain = all(_is_plain(script, x) for x in [*node.args, *others])
        return node.func.value if plain else None
    return None


def _is_view(index: ast.expr) -> bool:
    """`[None]`, `[:, None, :]`: all elements, in other dimensions."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        (
            isinstance(part, ast.Slice)
            and (part.lower, part.upper, part.step) == (None, None, None)
        )
        or (isinstance(part, ast.Constant) and part.value in (None, ...))
        for part in parts
    )


def _is_plain(script: Script, node: ast.expr) -> bool:
    """Whether it is no tensor: a number, a size."""
    return isinstance(node, ast.Constant) or script.where(node) is Where.PLAIN


def made_of_list(script: Script, node: ast.expr) -> ast.Call | None:
    """`torch.LongTensor([row[0] for row in rows])`: a tensor of a list of Python's."""
    while isinstance(node, ast.Call):
        head, _, last = (script.index.qualified(node.func) or "").rpartition(".")
        if head == "torch" and last in {"tensor", *LEGACY}:
            placed = any(k.arg in ("device", "pin_memory") for k in node.keywords)
            listed = len(node.args) == 1 and isinstance(node.args[0], ast.ListComp)
            return node if listed and not placed else None
        if not isinstance(node.func, ast.Attribute) or _method(node) not in (
            _EXACT_METHODS
        ):
            return None
        node = node.func.value
    return None


def _joins_creation(script: Script, call: ast.Call) -> bool:
    """`torch.cat([batch, zeros])` on the host: a part of it is made from nothing.

    And nothing is written into that part, element by element, which the host does
    faster.
    """
    parts = call.args[0] if call.args else None
    if not isinstance(parts, (ast.List, ast.Tuple)) or not script.where(call).host:
        return False
    return any(
        origin.call is not None and creation(script, origin.call) is not None
        for part in parts.elts
        if not _is_written_to(script, part)
        for origin in script.resolver.origins(part)
    )


def _is_written_to(script: Script, part: ast.expr) -> bool:
    """Whether its function has `part[index] = value`."""
    name = dotted(part)
    return name is not None and any(
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and dotted(node.value) == name
        for node in walk_scope(script.index.scope(part))
    )


def is_numpy_factory(script: Script, node: ast.expr) -> bool:
    """Whether NumPy makes the values of an expression: `np.ones(…)`, random draws."""
    if not isinstance(node, ast.Call):
        return False
    if _method(node) in ("astype", "reshape") and isinstance(node.func, ast.Attribute):
        return is_numpy_factory(script, node.func.value)
    head, _, last = (script.index.qualified(node.func) or "").rpartition(".")
    drawn = head == "numpy.random" and last not in (
        "default_rng",
        "seed",
        "RandomState",
    )
    return drawn or (head == "numpy" and last in _NUMPY)


def _from_nothing(script: Script, made: Creation) -> bool:
    """Whether a factory's arguments are sizes and numbers, no data of the script."""
    call = made.call
    keywords = {k.arg for k in call.keywords}
    if keywords & {"device", "out", "pin_memory"} or _is_empty(made):
        return False
    if made.name in LIKE | RANDOM_LIKE:
        return bool(call.args) and script.where(call.args[0]).host
    if made.name == "tensor":
        return len(call.args) == 1 and filled_with(script, call.args[0]) is not None
    if made.name in LEGACY:
        return bool(call.args) and _sizes_or_number(script, call)
    return not any(Where.HOST in script.where(a) for a in call.args)


def _is_empty(made: Creation) -> bool:
    """`torch.empty(0)`, `torch.zeros((0, width))`: no element that could be copied."""
    if made.name not in _SIZED or not made.call.args:
        return False
    first = made.call.args[0]
    sizes = made.call.args[:1] if made.name == "full" else made.call.args
    if isinstance(first, (ast.Tuple, ast.List)):
        sizes = first.elts
    return any(isinstance(s, ast.Constant) and s.value == 0 for s in sizes)


def _sizes_or_number(script: Script, call: ast.Call) -> bool:
    """`LongTensor(4, n)`, or a list of written numbers, or of a single one."""
    first = call.args[0]
    if isinstance(first, ast.List) and len(call.args) == 1 and first.elts:
        one = len(first.elts) == 1 and is_integer(script, first.elts[0])
        return one or is_literal(script, first)
    return all(is_integer(script, a) or _is_shape(a) for a in call.args)


def _is_shape(node: ast.expr) -> bool:
    """`*x.shape` and `*x.size()`."""
    sizes = node.value if isinstance(node, ast.Starred) else None
    if isinstance(sizes, ast.Call):
        return _method(sizes) == "size" and not sizes.args
    return isinstance(sizes, ast.Attribute) and sizes.attr == "shape"


def filled_with(script: Script, node: ast.expr) -> tuple[str, ast.expr] | None:
    """The shape of a tensor of one number, as code, and the number: of `[0.0, 0.0]`.

    What `torch.tensor` makes of different numbers is copied, with `device=` as well.
    """
    shape, items = "()", [node]
    if isinstance(node, (ast.List, ast.Tuple)):
        items = node.elts
        shape = f"({len(items)},)"
    texts = {script.text(item) for item in items}
    if len(texts) != 1 or not is_literal(script, items[0]):
        return None
    listed = isinstance(items[0], (ast.List, ast.Tuple))
    return None if listed else (shape, items[0])


def is_literal(script: Script, node: ast.expr) -> bool:
    """Whether an expression is numbers written in place, or known ones."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(is_literal(script, item) for item in node.elts)
    if isinstance(node, ast.UnaryOp):
        return is_literal(script, node.operand)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (bool, int, float))
    its = script.evaluator.values(node)
    numbers = all(
        isinstance(v.constant, (int, float)) and not v.default for v in its.known
    )  # in place of a default an option may list several
    return bool(its.known) and its.complete and numbers


def is_integer(script: Script, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is proven to be a Python int."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.UnaryOp):
        return is_integer(script, node.operand, depth)
    if isinstance(node, ast.BinOp):
        whole = isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod))
        sides = (node.left, node.right)
        return whole and all(is_integer(script, side, depth) for side in sides)
    if isinstance(node, ast.Subscript):
        shape = node.value
        if isinstance(node.slice, ast.Slice):
            return False  # `x.shape[1:]`
        if isinstance(shape, ast.Call):
            return _method(shape) == "size"
        return isinstance(shape, ast.Attribute) and shape.attr == "shape"
    if isinstance(node, ast.Call):
        sized = _method(node) in ("numel", "dim", "nelement")
        sized = sized or (_method(node) == "size" and bool(node.args))
        return sized or script.index.qualified(node.func) in ("len", "int")
    return (
        isinstance(node, ast.Name) and depth < 4 and _named_integer(script, node, depth)
    )


def _named_integer(script: Script, node: ast.Name, depth: int) -> bool:
    origins = script.resolver.origins(node)
    return bool(origins) and all(
        o.expression is not None
        and o.node is not node
        and not o.default
        and is_integer(script, o.expression, depth + 1)
        for o in origins
    )


def inexact_method(script: Script, made: Creation) -> str | None:
    """A method on the way that may do something else on the device."""
    for method in made.methods:
        name = _method(method)
        if name not in _EXACT_METHODS | _RANDOM_METHODS:
            return name
        if name in ("to", "type") and not _casts_only(script, method):
            return name
    return None


def _casts_only(script: Script, method: ast.Call) -> bool:
    """Whether `.to` or `.type` gets a dtype, not a tensor or a class such as
    `torch.FloatTensor`, which mean the host."""
    given = [*method.args, *(k.value for k in method.keywords)]
    if len(given) != 1 or not script.devices.is_dtype(given[0]):
        return False
    name = script.index.qualified(given[0]) or ""
    if _method(method) == "to" or name.startswith("torch."):
        return True
    its = given[0].value if isinstance(given[0], ast.Attribute) else None
    if its is None or script.modules.is_module(its):
        return False  # whatever an object calls so
    imported = isinstance(its, ast.Name) and script.index.is_import(its)
    return name.endswith(".dtype") and not imported


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""
