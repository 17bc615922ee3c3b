"""What half precision does to the values and calls of a training step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Function
from gpulint.index.walk import dotted, walk
from gpulint.script.neighbours import run_together
from gpulint.script.numerics.reached import reached_from
from gpulint.script.reaching.old_torch import uses_first_spconv

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Its sparse convolutions want features and kernels of one type, which autocast does not
# give them: "type mismatch" (MinkowskiEngine 0.5, convolution_gpu.cu).
_FLOAT32_KERNELS = "MinkowskiEngine"
# Circuits whose weights are angles: bfloat16 goes from 6 radians on in steps of 0.03.
_CIRCUITS = frozenset("pennylane torchquantum qiskit_machine_learning".split())
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
EXACT = re.compile(
    r"^torch\.(linalg\.|fft\.|complex|inverse$|svd|qr$|eig$|symeig$|cholesky|det$|"
    r"logdet$|slogdet$|pinverse$|solve$|lstsq$|lu$|lu_|stft$|istft$|rfft$|irfft$|fft$|"
    r"matrix_exp$|matrix_power$|triangular_solve$|pca_lowrank$|lobpcg$|geqrf$|"
    r"view_as_complex|polar$|"
    r"distributions\.(\w+\.)?((LowRank)?MultivariateNormal|Wishart)$)"
    # Adaptive solvers take more and shorter steps where the function is rounded.
    r"|^torch(diffeq|sde|dyn|ode)\.([\w.]*\.)?(odeint|sdeint|NeuralODE|AutoDiffAdjoint)"
    # Products of three or four numbers that say where a point is, or is seen.
    r"|^(pytorch3d\.(renderer|transforms)|kornia\.geometry|lietorch|theseus|roma)\."
)
# Methods of tensors that do the same, whatever holds the tensor.
_EXACT_METHODS = frozenset(
    "cholesky cholesky_inverse cholesky_solve det inverse logdet lu matrix_exp "
    "matrix_power pinverse qr slogdet svd triangular_solve".split()
)
COMPLEX = frozenset(
    f"torch.{n}" for n in "cfloat cdouble complex32 complex64 complex128".split()
)
# By any way to make them: `nn.LSTM(…)`, a class of that base, `getattr(nn, "GRU")`.
_RECURRENT = re.compile(r"\b(LSTM|GRU|RNN)\b")
_SCATTERS = re.compile(r"\.(scatter_(add_|reduce_)?|index_(add|copy|put)_)\(")
_QUANTIZES = re.compile(
    r"\bprepare_qat|\bFakeQuantize\b|\bpytorch_quantization\b|\bbrevitas\b|QuantStub\("
    r"|\baihwkit\b|\baimet_torch\b|\bnncf\b"
)
_ROUNDS = (
    re.compile(r"\b(autograd\.)?Function\)\s*:"),
    re.compile(r"\bround_?\("),
    re.compile(r"(?i)quanti[sz]"),
)
QUANTIZES = (
    "weights are rounded to integers, which half precision does not hold exactly"
)
# Codes are counted and summed over a batch for their moving averages (VQ-VAE).
_AVERAGED = re.compile(
    r"\b(EMAQuantizer|VectorQuantizer2?EMA|EMAVectorQuantizer|ema_cluster_size)\b"
)
_CODES = (re.compile(r"\bcluster_size\b"), re.compile(r"\b(embed_(avg|sum)|ema_w)\b"))
_OF_MONAI = re.compile(r"\bmonai\.\w[\w.]* import [^\n]*\bVQVAE\b|\bnets\.VQVAE\b")
CODES = "a codebook sums what it is given for each code, and float16 may not hold it"
# What starts a kernel, by the name of it: `_ext.deform_forward(…)`.
_KERNEL = re.compile(r"forward|fwd|cuda|kernel")
_LIBRARIES = frozenset("torch torchvision numpy math".split())
_OWN_FUNCTION = re.compile(r"\bFunction\)\s*:")
KERNELS = "the project's own kernels are not known to take half precision"
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


def starts_own_kernels(script: Script) -> bool:
    """Whether a program's files start kernels of their own on what a model computes.

    Many know float and double only (`AT_DISPATCH_FLOATING_TYPES`), and raise under an
    autocast, which does not cast what they are given.
    """
    return any(
        index.source.has(_OWN_FUNCTION)
        and any(_starts_kernel(index, owner) for owner in index.all(ast.ClassDef))
        for index in run_together(script)
    )


def _starts_kernel(index: FileIndex, owner: ast.ClassDef) -> bool:
    """Whether the `forward` of an `autograd.Function` hands memory to a kernel.

    By its address, or to a function of a module that is called so: an extension's. Not
    under `custom_fwd`, which can cast what it is given.
    """
    if not any((dotted(base) or "").endswith("Function") for base in owner.bases):
        return False
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef) or method.name != "forward":
            continue
        if any("custom_fwd" in ast.dump(d) for d in method.decorator_list):
            continue
        for func in (n.func for n in walk(method) if isinstance(n, ast.Call)):
            if not isinstance(func, ast.Attribute):
                continue
            if func.attr == "data_ptr":
                return True
            module = dotted(func.value)
            its = index.imports.get(module or "")
            if its is None or its.partition(".")[0] in _LIBRARIES:
                continue
            if _KERNEL.search(func.attr):
                return True
    return False


def quantizes(script: Script) -> bool:
    """Whether a program trains with weights that are rounded to whole numbers.

    By a function of its own with a gradient, or by a package: products of integers
    held in float32 pass what half precision holds exactly.
    """
    files = run_together(script)
    if any(index.source.has(_QUANTIZES) for index in files):
        return True
    return any(all(map(index.source.has, _ROUNDS)) for index in files)


def averages_codes(script: Script) -> bool:
    """Whether a program's files name a codebook that follows moving averages.

    The sums of a batch for each code, products of matrices, may pass 65504.
    """
    return any(
        index.source.has(_AVERAGED)
        or index.source.has(_OF_MONAI)
        or all(map(index.source.has, _CODES))
        for index in run_together(script)
    )


def scatters(script: Script) -> bool:
    """Whether a program's files write results to rows of a tensor: `x.scatter_(0, …)`.

    It raises where they are of two formats, as results of an autocast may be.
    """
    return any(index.source.has(_SCATTERS) for index in run_together(script))


def has_float32_kernels(script: Script) -> bool:
    """Whether networks of the project are made of what knows float32 only.

    Kernels of a package, quantum circuits, or modules whose `forward` asserts that
    format.
    """
    index = script.index
    alone = index.project is None or not index.project.files
    if alone and _FLOAT32_KERNELS in index.packages:
        return True
    if index.project is not None and index.project.mentions(_FLOAT32_KERNELS):
        return True
    together = run_together(script)
    if any(not _CIRCUITS.isdisjoint(its.packages) for its in together):
        return True
    if script.mentions("spconv") and uses_first_spconv(together):
        return True
    return any(_asserts_float32(script.of(index.tree)) for index in together)


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
    found = (call for call in script.index.all(ast.Call) if needs_digits(script, call))
    first = min(found, key=lambda c: c.lineno, default=None)
    if first is not None:
        return script.text(first.func)
    for root in reached_from(script, models):
        home = script.index.home(root)
        for node in walk(root):
            if isinstance(node, ast.Call) and needs_digits(script, node):
                return script.text(node.func)
            if isinstance(node, (ast.Name, ast.Attribute)):
                name = home.qualified(node) or ""
                if EXACT.match(name) or name in COMPLEX:
                    return script.text(node)
    return None


def needs_digits(script: Script, call: ast.Call) -> bool:
    """Whether a call is of linear algebra and the like: `torch.inverse(a)`, `a.svd()`.

    A method of that name may also be of what holds matrices, but is none of the
    project's own functions.
    """
    func, home = call.func, script.index.home(call)
    if EXACT.match(home.qualified(func) or ""):
        return True
    if not isinstance(func, ast.Attribute) or func.attr not in _EXACT_METHODS:
        return False
    holder = (dotted(func) or "").partition(".")[0]
    return holder not in home.imports and not script.resolver.calls.callees(call)


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
