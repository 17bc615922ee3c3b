"""What half precision does to the values and calls of a training step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import dotted, walk
from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Its sparse convolutions want features and kernels of one type, which autocast does not
# give them: "type mismatch" (MinkowskiEngine 0.5, convolution_gpu.cu).
_FLOAT32_KERNELS = "MinkowskiEngine"
_FLOAT32 = frozenset({"torch.float32", "torch.float"})
_ASSERTS_FORMAT = re.compile(r"\bassert\b.*\.dtype\b")
# Losses that autocast computes in float32 on CUDA (its operator reference).
SAFE_LOSSES = frozenset(
    "CrossEntropy NLL MSE L1 SmoothL1 Huber BCEWithLogits KLDiv PoissonNLL SoftMargin "
    "MultiLabelSoftMargin MultiMargin MultiLabelMargin HingeEmbedding MarginRanking "
    "TripletMargin CosineEmbedding".split()
)
_SAFE_FUNCTIONS = frozenset(
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div "
    "binary_cross_entropy_with_logits poisson_nll_loss soft_margin_loss "
    "multilabel_soft_margin_loss multi_margin_loss multilabel_margin_loss "
    "hinge_embedding_loss margin_ranking_loss triplet_margin_loss "
    "cosine_embedding_loss log_softmax softmax cosine_similarity".split()
)
# Functions and methods whose result is float32 under autocast whatever comes in.
_TO_FLOAT32 = frozenset(
    "sum exp log log2 log10 log1p pow norm cumsum cumprod prod softmax log_softmax "
    "cosh sinh reciprocal rsqrt float dist cdist cosine_similarity".split()
)
_KEEPS = frozenset(
    "mean squeeze unsqueeze view reshape flatten detach clone abs sqrt div mul add "
    "neg max min amax amin clamp permute transpose contiguous expand stack cat".split()
)
_EXACT = re.compile(
    r"^torch\.(linalg\.|fft\.|complex|inverse$|svd$|qr$|eig$|symeig$|cholesky|det$|"
    r"logdet$|slogdet$|pinverse$|solve$|lstsq$|lu$|stft$|istft$|rfft$|irfft$|fft$|"
    r"view_as_complex|polar$)"
)
COMPLEX = frozenset(
    f"torch.{n}" for n in "cfloat cdouble complex32 complex64 complex128".split()
)
_WRITES = frozenset(
    "scatter_ scatter_add_ scatter_reduce_ index_add_ index_copy_ index_put_ "
    "masked_scatter_ lerp lerp_ scatter scatter_add index_add index_copy".split()
)
# Take float32 and float64 only, or want two tensors of one format.
_PICKY = frozenset(
    "quantile nanquantile bucketize searchsorted histc MultivariateNormal "
    "LowRankMultivariateNormal".split()
)
_FILLS = ("masked_fill", "full_like", "where", "fill_", "new_full", "index_fill")
# Functions of numpy that are for numbers and shapes, never for tensors.
_OF_NUMBERS = re.compile(r"^numpy\.(random\.|(prod|eye|arange|linspace|zeros|ones)$)")
_REARRANGES = frozenset("transpose permute t view reshape".split())
_PRODUCTS = frozenset("bmm matmul mm".split())
_LOGARITHMS = frozenset("log log2 log10".split())
MAX_REACHED = 100  # functions and classes
_LARGEST = 65504.0  # of float16
_SMALLEST = 5.97e-8
_NEAREST_TO_1 = 0.9961  # the last number before 1 in bfloat16
# By any way to make them: `nn.LSTM(…)`, a class of that base, `getattr(nn, "GRU")`.
_RECURRENT = re.compile(r"\b(LSTM|GRU|RNN)\b")
_SCATTERS = re.compile(r"\.(scatter_(add_|reduce_)?|index_(add|copy|put)_)\(")
_QUANTIZES = re.compile(
    r"\bprepare_qat|\bFakeQuantize\b|\bpytorch_quantization\b|\bbrevitas\b|QuantStub\("
)
_ROUNDS = (
    re.compile(r"\b(autograd\.)?Function\)\s*:"),
    re.compile(r"\bround_?\("),
    re.compile(r"(?i)quanti[sz]"),
)
QUANTIZES = (
    "weights are rounded to integers, which half precision does not hold exactly"
)
RECURS = (
    "recurrent layers compute in float16 under any autocast, and the loss is scaled "
    "only where that is asked for"
)


def recurs(script: Script) -> bool:
    """Whether a program's files name recurrent layers.

    cuDNN computes these in float16 under any autocast on CUDA, also one to bfloat16,
    for which no loss is scaled (`_cudnn_rnn_cast_reflatten` in ATen's AutocastRNN.cpp).
    """
    return any(index.source.has(_RECURRENT) for index in run_together(script))


def quantizes(script: Script) -> bool:
    """Whether a program trains with weights that are rounded to whole numbers.

    By a function of its own with a gradient, or by a package: products of integers
    held in float32 pass what half precision holds exactly.
    """
    files = run_together(script)
    if any(index.source.has(_QUANTIZES) for index in files):
        return True
    return any(all(map(index.source.has, _ROUNDS)) for index in files)


def scatters(script: Script) -> bool:
    """Whether a program's files write results to rows of a tensor: `x.scatter_(0, …)`.

    It raises where they are of two formats, as results of an autocast may be.
    """
    return any(index.source.has(_SCATTERS) for index in run_together(script))


def has_float32_kernels(script: Script) -> bool:
    """Whether networks of the project are made of what knows float32 only.

    Kernels of a package, or modules whose `forward` asserts that format.
    """
    index = script.index
    alone = index.project is None or not index.project.files
    if alone and _FLOAT32_KERNELS in index.packages:
        return True
    if index.project is not None and index.project.mentions(_FLOAT32_KERNELS):
        return True
    return any(_asserts_float32(script.of(i.tree)) for i in run_together(script))


def _asserts_float32(script: Script) -> bool:
    """`assert x.dtype == torch.float32` in the `forward` of a module."""
    if not script.source.has(_ASSERTS_FORMAT):
        return False
    return any(
        _compares_float32(script, node)
        for statement in script.index.all(ast.Assert)
        if getattr(script.index.function(statement), "name", "") == "forward"
        for node in walk(statement.test)
    )


def _compares_float32(script: Script, node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq):
        return False
    sides = [node.left, node.comparators[0]]
    asked = [s for s in sides if isinstance(s, ast.Attribute) and s.attr == "dtype"]
    others = [
        o.node for s in sides if s not in asked for o in script.resolver.origins(s)
    ]
    names = {script.index.qualified(other) for other in others}
    return len(asked) == 1 and bool(names) and names <= _FLOAT32


def exact_mathematics(script: Script, models: Iterable[ast.AST] = ()) -> str | None:
    """A call of linear algebra, Fourier transforms or complex numbers.

    The first one of this file, else one of what `models` lead to in whatever files:
    nodes that make or run them.
    """
    found = (
        call
        for name, calls in script.index.calls.items()
        if _EXACT.match(name)
        for call in calls
    )
    first = min(found, key=lambda c: c.lineno, default=None)
    if first is not None:
        return script.text(first.func)
    for root in reached_from(script, models):
        home = script.index.home(root)
        for node in walk(root):
            if isinstance(node, (ast.Name, ast.Attribute)):
                name = home.qualified(node) or ""
                if _EXACT.match(name) or name in COMPLEX:
                    return script.text(node)
    return None


class Formats:
    """Whether an expression of the step is float32 under autocast."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._busy: set[ast.AST] = set()

    def float32(self, node: ast.expr) -> bool:
        """Whether it is certain; a loss made with a known loss function is."""
        if node in self._busy:
            return True  # a cycle adds nothing
        self._busy.add(node)
        try:
            return self._float32(node)
        finally:
            self._busy.discard(node)

    def _float32(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._named(node)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Pow):
                return True
            return self.float32(node.left) or self.float32(node.right)
        if isinstance(node, (ast.UnaryOp, ast.Subscript, ast.Starred)):
            inner = node.operand if isinstance(node, ast.UnaryOp) else node.value
            return self.float32(inner)
        if isinstance(node, ast.IfExp):
            return self.float32(node.body) and self.float32(node.orelse)
        if isinstance(node, (ast.Tuple, ast.List)):
            return bool(node.elts) and all(map(self.float32, node.elts))
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self.float32(node.elt)
        return isinstance(node, ast.Call) and self._call(node)

    def _named(self, node: ast.expr) -> bool:
        definitions = self.script.resolver.definitions(node)
        made = [d for d in definitions if d.kind == "assign" and d.value is not None]
        sums = [d for d in definitions if d.kind == "augment" and d.value is not None]
        if not made or len(made) + len(sums) != len(definitions):
            return False
        results = [self.unpacked(d.value, d.path) for d in made if d.value is not None]
        if sums:
            added = all(self.float32(d.value) for d in sums if d.value is not None)
            zero = all(isinstance(d.value, ast.Constant) for d in made)
            return added and (zero or all(results))
        return all(results)

    def unpacked(self, value: ast.expr, path: tuple[object, ...]) -> bool:
        """Whether a part of a value is float32: `(0,)` for the first of a pair."""
        if not path:
            return self.float32(value)
        if isinstance(value, ast.Call):
            function = self.script.resolver.calls.callee(value)
            step = path[0]
            if function is not None and isinstance(step, int) and len(path) == 1:
                returned = self.script.resolver.flow(function).returns
                parts = [
                    r.elts[step]
                    if isinstance(r, ast.Tuple) and step < len(r.elts)
                    else None
                    for r in returned
                ]
                return bool(parts) and all(
                    p is not None and self.float32(p) for p in parts
                )
        return False

    def _call(self, call: ast.Call) -> bool:
        if self.known_loss(call):
            return True
        name = self.script.index.qualified(call.func) or ""
        last = name.rpartition(".")[2]
        if name.startswith("torch."):
            if last in _TO_FLOAT32:
                return True
            return last in _KEEPS and bool(call.args) and self.float32(call.args[0])
        if name == "sum" and call.args:
            return self.float32(call.args[0])
        function = self.script.resolver.calls.callee(call) or self._forward(call)
        if function is not None:
            returned = self.script.resolver.flow(function).returns
            return bool(returned) and all(
                r is not None and self.float32(r) for r in returned
            )
        if isinstance(call.func, ast.Attribute):
            if call.func.attr in _TO_FLOAT32:
                return True
            return call.func.attr in _KEEPS and self.float32(call.func.value)
        return False

    def _forward(self, call: ast.Call) -> Function | None:
        """`forward` of a loss module that is called, or `__call__` of an object."""
        owners = self.script.resolver.classes.of(call.func)
        if len(owners) != 1:
            return None
        is_module = self.script.modules.is_module_class(owners[0])
        name = "forward" if is_module else "__call__"
        return self.script.resolver.classes.methods(owners[0]).get(name)

    def known_loss(self, call: ast.Call) -> bool:
        """Whether a call is one of PyTorch's losses that autocast does in float32."""
        script = self.script
        name = script.index.qualified(call.func) or ""
        head, _, last = name.rpartition(".")
        if head in ("torch.nn.functional", "torch"):
            return last in _SAFE_FUNCTIONS
        made = [call.func]
        if not isinstance(call.func, ast.Call):
            origins = script.resolver.origins(call.func)
            made = [_unmoved(o.call) for o in origins if o.call is not None]
            if not made or len(made) != len(origins):
                return False
        return all(
            isinstance(m, ast.Call)
            and (script.index.qualified(m.func) or "").startswith("torch.nn.")
            and (dotted(m.func) or "").rpartition(".")[2].removesuffix("Loss")
            in SAFE_LOSSES
            for m in made
        )


def _unmoved(call: ast.Call) -> ast.Call:
    """`nn.MSELoss()` for `nn.MSELoss().to(device)`."""
    while (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("to", "cuda")
        and isinstance(call.func.value, ast.Call)
    ):
        call = call.func.value
    return call


def reached(script: Script, statements: Iterable[ast.AST]) -> list[ast.AST]:
    """Statements, the functions that they call, and modules that they may run.

    Those are all modules of this file, and of others what is called or made here.
    """
    roots: list[ast.AST] = list(statements)
    classes = script.index.classes.values()
    roots += [c for c in classes if script.modules.is_module_class(c)]
    return reached_from(script, roots)


def reached_from(script: Script, nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """Nodes, the functions that they call, and the modules that they run or make."""
    return list(reached_in_turn(script, nodes))


def reached_in_turn(script: Script, nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The same one by one, near ones first; each is followed when it has been seen."""
    roots = list(nodes)
    for root in roots:
        yield root
        for step in _steps(script, root) if len(roots) < MAX_REACHED else ():
            roots += [r for r in step if r not in roots and len(roots) < MAX_REACHED]


def leads_to(script: Script, root: ast.AST) -> list[ast.AST]:
    """The functions and the modules that the calls below a node run or make."""
    return [part for step in _steps(script, root) for part in step]


def _steps(script: Script, root: ast.AST) -> list[list[ast.AST]]:
    """What each call below a root runs; kept for the other scripts of a project."""
    home = script.index.home(root)

    def runs() -> list[list[ast.AST]]:
        calls = [node for node in walk(root) if isinstance(node, ast.Call)]
        return [found for found in (_runs(script, c) for c in calls) if found]

    if home is script.index or home.project is None:
        return runs()
    return home.project.remembered("leads to", root, runs)


def _runs(script: Script, call: ast.Call) -> list[ast.AST]:
    """The functions or the modules of this project that a call may run or make."""
    functions = script.resolver.calls.callees(call)
    if functions:
        return list(functions)
    made = script.resolver.classes.named(call.func)
    owners = [made] if made is not None else script.resolver.classes.of(call.func)
    parts: list[ast.AST] = []
    for owner in owners:
        if script.modules.is_module_class(owner):
            parts += script.resolver.classes.bases(owner)
        elif made is None and (own := _called(script, owner)) is not None:
            parts.append(own)
    return parts


def _called(script: Script, owner: ast.ClassDef) -> Function | None:
    """What runs when an object of a class is called; of Keras, its `call`."""
    methods = script.resolver.classes.methods(owner)
    return methods.get("__call__") or methods.get("call")


def hazard(script: Script, statements: tuple[ast.stmt, ...]) -> str | None:
    """Why these statements may fail or go wrong in half precision."""
    formats = Formats(script)
    for node in walk(*reached(script, statements)):
        reason = _hazard(script, formats, node)
        if reason is not None:
            return f"`{script.text(node).splitlines()[0]}` {reason}"
    return None


def is_gram(script: Script, node: ast.AST) -> bool:
    """Whether a tensor is multiplied by itself: sums of squares leave float16."""
    factors: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        factors = [node.left, node.right]
    elif isinstance(node, ast.Call):
        name = script.index.qualified(node.func) or ""
        if getattr(node.func, "attr", name) in _PRODUCTS:
            factors = [*node.args, *(k.value for k in node.keywords)]
            if isinstance(node.func, ast.Attribute) and not name.startswith("torch."):
                factors.insert(0, node.func.value)
    made = [_untransposed(script, factor, 0) for factor in factors[:2]]
    return len(made) == 2 and made[0] is not None and made[0] == made[1]


def _untransposed(script: Script, node: ast.expr, depth: int) -> object:
    """What identifies the tensor that a view or transposition is of."""
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "H", "mH"):
        return _untransposed(script, node.value, depth)
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(func, ast.Attribute) and func.attr in _REARRANGES:
        given = func.value
        if (script.index.qualified(func) or "").startswith("torch."):
            values = getattr(node, "args", [])
            given = values[0] if values else given
        return _untransposed(script, given, depth)
    if not isinstance(node, ast.Name) or depth > 4:
        return None
    found = script.definitions(node)
    only = found[0] if len(found) == 1 else None
    if only is not None and only.kind == "assign" and only.value and not only.path:
        return _untransposed(script, only.value, depth + 1) or only
    return only


def _subtracts_neighbours(script: Script, node: ast.AST) -> bool:
    """`u[:, 2:] - u[:, :-2]`: finite differences, and the sizes of boxes."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    left, right = node.left, node.right
    if not isinstance(left, ast.Subscript) or not isinstance(right, ast.Subscript):
        return False
    sliced = any(isinstance(n, ast.Slice) for n in walk(left.slice, right.slice))
    same = script.text(left.value) == script.text(right.value)
    return sliced and same and script.text(left.slice) != script.text(right.slice)


def _hazard(script: Script, formats: Formats, node: ast.AST) -> str | None:
    if is_gram(script, node):
        return "may exceed the largest number of float16"
    if _subtracts_neighbours(script, node):
        return "is a difference that half precision rounds away"
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        added = isinstance(node.op, (ast.Add, ast.Sub))
        terms = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
        vanishes = added and any(_vanishes(script, term) for term in terms)
        return "adds what is 0 in float16" if vanishes else None
    if isinstance(node, ast.Assign):
        written = any(isinstance(t, ast.Subscript) for t in node.targets)
        too_large = written and _overflows(script, node.value)
        return "holds a number that float16 cannot" if too_large else None
    if not isinstance(node, ast.Call):
        return None
    name = script.index.qualified(node.func) or ""
    last = name.rpartition(".")[2] or getattr(node.func, "attr", "")
    values = [*node.args, *(k.value for k in node.keywords)]
    if _EXACT.match(name):
        return "has no half-precision form"
    if last == "apply" and isinstance(node.func, ast.Attribute):
        owner = script.resolver.classes.named(node.func.value)
        if owner and "torch.autograd.Function" in script.resolver.classes.base_names(
            owner
        ):
            return "is a custom autograd.Function"
    if last == "numpy" or (name.startswith("numpy.") and not _OF_NUMBERS.match(name)):
        return "makes an array of what may be bfloat16"
    if "sparse" in name or "sparse" in last or last == "spmm":
        return "has no half-precision form"
    if last in _PICKY:
        return "does not take half precision"
    if name == "torch.autograd.grad" or last == "backward":
        return "makes gradients that are not scaled"
    return _bad_numbers(script, formats, node, last, values)


def _bad_numbers(
    script: Script, formats: Formats, node: ast.Call, last: str, values: list[ast.expr]
) -> str | None:
    """Why numbers in a call, or what it is applied to, do not suit half precision."""
    if last in _WRITES and not isinstance(values[-1] if values else None, ast.Constant):
        return "writes values of another precision into a tensor"
    fills = last.startswith(_FILLS) or last in _WRITES or last == "pad"
    if fills and any(_overflows(script, v) for v in values):
        return "holds a number that float16 cannot"
    if last.startswith(("clamp", "clip")):
        if any(_vanishes(script, v) for v in values):
            return "has a limit that is 0 in float16"
        if any(_is_nearly_1(script, v) for v in values):
            return "has a limit that is 1 in half precision"
    if last in ("add", "sub", "add_", "sub_") and any(
        _vanishes(script, v) for v in values
    ):
        return "adds what is 0 in float16"
    if last in _LOGARITHMS:
        name = script.index.qualified(node.func) or ""
        of = node.args[0] if name.startswith("torch.") and node.args else None
        if of is None and isinstance(node.func, ast.Attribute) and not node.args:
            of = node.func.value
        half = of is not None and not formats.float32(of)
        if half and of is not None and _is_probability(script, formats, of):
            return "is infinite where half precision rounds to 0"
    return None


def _is_probability(script: Script, formats: Formats, node: ast.expr) -> bool:
    """Whether a logarithm is taken of what comes from a sigmoid in half precision."""
    todo: list[ast.AST] = [node]
    for root in todo:
        for part in walk(root):
            if not isinstance(part, (ast.Call, ast.Name)):
                continue
            if isinstance(part, ast.Call):
                last = (dotted(part.func) or "").rpartition(".")[2]
                last = last or getattr(part.func, "attr", "")
                if last == "float":
                    continue
                made = (o.call for o in script.resolver.origins(part.func))
                kinds = [dotted(c.func) or "" for c in made if c is not None]
                if "sigmoid" in " ".join([last, *kinds]).lower() and "log" not in last:
                    return True
                if runs_a_model(script, part) and not formats.float32(part):
                    return True
            elif len(todo) < 30:
                todo += [
                    d.value
                    for d in script.resolver.definitions(part)
                    if d.value is not None and d.value not in todo
                ]
    return False


def runs_a_model(script: Script, call: ast.Call) -> bool:
    """Whether a call is of a module, which may return probabilities."""
    return script.modules.is_module(call.func)


def _number(script: Script, node: ast.expr) -> float | None:
    if isinstance(node, ast.BinOp):
        left, right = _number(script, node.left), _number(script, node.right)
        if left is None or right is None:
            return None
        return _computed(node.op, left, right)
    value = script.evaluator.constant(node)
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if known else None  # type: ignore[arg-type]


def _computed(operator: ast.operator, left: float, right: float) -> float | None:
    """`10 ** -9`, `1 - eps`, `-2 ** 32 + 1`."""
    try:
        if isinstance(operator, ast.Pow):
            return float(left**right)
        if isinstance(operator, (ast.Mult, ast.Div)):
            return left * right if isinstance(operator, ast.Mult) else left / right
        if isinstance(operator, (ast.Add, ast.Sub)):
            return left + right if isinstance(operator, ast.Add) else left - right
    except (ArithmeticError, TypeError):
        pass
    return None


def _vanishes(script: Script, node: ast.expr) -> bool:
    number = _number(script, node)
    return number is not None and 0.0 < abs(number) < _SMALLEST


def _is_nearly_1(script: Script, node: ast.expr) -> bool:
    number = _number(script, node)
    return number is not None and _NEAREST_TO_1 < number < 1.0


def _overflows(script: Script, node: ast.expr) -> bool:
    number = _number(script, node)
    if number is not None:
        return _LARGEST < abs(number) < float("inf")
    return any(
        script.index.qualified(n.func) in ("torch.finfo", "numpy.finfo")
        and not any(isinstance(a, ast.Attribute) and a.attr == "dtype" for a in n.args)
        for n in walk(node)
        if isinstance(n, ast.Call)
    )
