"""Whether the models of a script multiply matrices that TF32 would make faster."""

from __future__ import annotations

import ast
import builtins
import re
from typing import TYPE_CHECKING

from gpulint.index import Origin
from gpulint.index.walk import dotted, walk
from gpulint.script.bounds import at_most
from gpulint.script.branches import branches_of, most_in_one_pass
from gpulint.script.half import MAX_REACHED, is_gram, reached_in_turn
from gpulint.script.models import constructors

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_CONVOLUTIONAL = re.compile(
    r"^torchvision\.models\.(resnet|vgg|densenet|mobilenet|efficientnet|googlenet|"
    r"inception|squeezenet|shufflenet|regnet|resnext|wide_resnet|mnasnet|segmentation)"
)
_CONVOLUTION = re.compile(
    rf"^torch\.nn\.(functional\.conv|Conv|LazyConv)|{_CONVOLUTIONAL.pattern}"
)
_LINEAR = re.compile(r"^torch\.nn\.(Lazy|functional\.)?[lL]inear$")
_PRODUCT = re.compile(
    r"^torch\.(nn\.(\w+\.)*(\w*Linear|\w*Bilinear|\w*RNN\w*|\w*LSTM\w*|\w*GRU\w*|"
    r"\w*Attention\w*|Transformer\w*|linear|bilinear|scaled_dot_product_attention|"
    r"multi_head_attention_forward)|linalg\.\w+|mm|bmm|matmul|addmm|addbmm|baddbmm|"
    r"einsum|tensordot|chain_matmul|cdist|inner|mv|addmv|outer|load|jit\.\w+|hub\.\w+)$"
)
_METHODS = frozenset(
    "matmul mm bmm addmm addbmm baddbmm __matmul__ inner mv addmv".split()
)
# What networks of tokens have, whose linear layers do nearly all arithmetic.
_OF_TOKENS = re.compile(
    r"^torch\.nn\.(LayerNorm|RMSNorm|functional\.(layer|rms)_norm)$"
)
_EMBEDDING = re.compile(r"^torch\.nn\.(Embedding|EmbeddingBag|Parameter)$")
# Embeddings and element-wise products of them.
_ELEMENTWISE = re.compile(
    r"^torch_geometric\.nn\.(\w+\.)*"
    r"(Node2Vec|MetaPath2Vec|TransE|ComplEx|DistMult|RotatE)$"
)
# Packages whose functions make no layers.
_LIBRARIES = frozenset(
    "numpy math functools collections copy itertools operator random typing abc os "
    "warnings logging time string re dataclasses enum".split()
)
_PREPARES = ("torchvision.transforms.", "torchvision.ops.")
MAX_STEPS = 4
FEW_FEATURES = 64


def multiplies_little(script: Script) -> bool:
    """Whether every model that is trained is known, and TF32 has nothing to serve.

    Convolutions are in TF32 by default; the one linear layer of a classifier behind
    them does not count. Embeddings alone multiply nothing.
    """
    made = constructors(script)
    return bool(made) and all(
        call is not None and _Network(script, call).multiplies_little for call in made
    )


def makes_gram_matrix(script: Script, loop: Loop) -> bool:
    """Whether the steps of a loop multiply features with themselves, as of a style."""
    return any(is_gram(script, node) for node in walk(loop.node, *loop.helpers))


def is_product(script: Script, node: ast.AST) -> bool:
    """Whether an expression multiplies matrices, other than by a linear layer."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    if not isinstance(node, ast.Call):
        return False
    name = script.index.qualified(node.func) or ""
    if name.startswith("torch."):
        return bool(_PRODUCT.match(name)) and not _LINEAR.match(name)
    return getattr(node.func, "attr", "") in _METHODS


class _Network:
    """One model: the call that makes it, and all classes and functions it runs."""

    def __init__(self, script: Script, made: ast.Call) -> None:
        self.script = script
        self.made = made
        self.roots: list[ast.AST] = []  # the call, and the definitions it leads to

    @property
    def multiplies_little(self) -> bool:
        """Whether convolutions do its arithmetic, or no matrices are multiplied."""
        name = self._name(self.made.func)
        if _CONVOLUTIONAL.match(name) or _ELEMENTWISE.match(name):
            return True
        if _LINEAR.match(name) and self._gives_few(self.made):
            return True  # the new head of a trained network
        for root in reached_in_turn(self.script, [self.made]):
            multiplies = any(is_product(self.script, node) for node in walk(root))
            if multiplies or not self._has_known_bases(root):
                return False
            self.roots.append(root)
        if len(self.roots) >= MAX_REACHED:
            return False
        nodes = list(walk(*self.roots))
        calls = [n for n in nodes if isinstance(n, ast.Call)]
        given = [*self.made.args, *(k.value for k in self.made.keywords)]
        served = self._convolves(calls) or self._looks_up(calls)
        served = served or any(self._leads_to_convolutions(g, 0) for g in given)
        return served and all(self._is_known(c.func) for c in calls)

    def _gives_few(self, linear: ast.Call) -> bool:
        given = self.script.evaluator.argument(linear, "out_features", 1).direct
        return given is not None and at_most(self.script, given) <= FEW_FEATURES

    def _convolves(self, calls: list[ast.Call]) -> bool:
        """Whether it convolves, and has no linear layers that may outweigh this."""
        names = [self._name(call.func) for call in calls]
        linear = [c for c, n in zip(calls, names, strict=True) if _LINEAR.match(n)]
        if not linear or any(map(_CONVOLUTIONAL.match, names)):
            return any(map(_CONVOLUTION.match, names))
        index = self.script.index
        if most_in_one_pass(branches_of(index, call) for call in linear) > 1:
            return False
        if not all(map(self._is_last, linear)):
            return False
        if "torch.nn.Embedding" in names:
            return False  # what it gives for each word may be one of all words
        return not any(map(_OF_TOKENS.match, names)) and any(
            _CONVOLUTION.match(name) and not self._is_sparse(call)
            for call, name in zip(calls, names, strict=True)
        )

    def _leads_to_convolutions(self, given: ast.expr, depth: int) -> bool:
        """Whether an argument is, or is made of, a network of convolutions."""
        for node in walk(given):
            if isinstance(node, ast.Call):
                if _CONVOLUTIONAL.match(self._name(node.func)):
                    return True
            elif isinstance(node, ast.Name) and depth < MAX_STEPS:
                origins = self.script.resolver.origins(node)
                made = [o.expression for o in origins]
                if made and all(
                    m is not None
                    and m is not node
                    and self._leads_to_convolutions(m, depth + 1)
                    for m in made
                ):
                    return True
        return False

    def _is_last(self, head: ast.Call) -> bool:
        """Whether a linear layer stands behind all convolutions of its function."""
        function = self.script.index.function(head)
        made = walk(function) if function is not None else ()
        return not any(
            isinstance(node, ast.Call)
            and node.lineno > head.lineno
            and _CONVOLUTION.match(self._name(node.func))
            for node in made
        )

    def _is_sparse(self, call: ast.Call) -> bool:
        """Whether a convolution is of each channel alone, or of patches."""
        given = {k.arg: ast.dump(k.value) for k in call.keywords}
        sizes = [ast.dump(a) for a in call.args[2:4]]
        size = given.get("kernel_size", sizes[0] if sizes else None)
        stride = given.get("stride", sizes[1] if len(sizes) > 1 else None)
        return "groups" in given or (stride is not None and size == stride)

    def _looks_up(self, calls: list[ast.Call]) -> bool:
        """Whether it is embeddings without any layer that could multiply."""
        names = [self._name(call.func) for call in calls]
        plain = all(isinstance(c.func, (ast.Name, ast.Attribute)) for c in calls)
        layers = any(_LINEAR.match(n) or _CONVOLUTION.match(n) for n in names)
        return plain and not layers and any(map(_EMBEDDING.match, names))

    def _name(self, callee: ast.expr) -> str:
        return self.script.index.qualified(callee) or ""

    def _has_known_bases(self, root: ast.AST) -> bool:
        """Whether a class derives from the project's and PyTorch's classes alone."""
        bases = root.bases if isinstance(root, ast.ClassDef) else []
        return all(
            self.script.resolver.class_of(base) is not None
            or self._name(base).startswith(("torch.nn.", "abc."))
            or self._name(base) == "object"
            for base in bases
        )

    def _is_known(self, callee: ast.expr, depth: int = 0) -> bool:
        """Whether what a call runs is known, and is no product of matrices."""
        name = self._name(callee)
        if name.startswith("torch."):
            return not _PRODUCT.match(name) or bool(_LINEAR.match(name))
        home = self.script.index.home(callee)
        origin = home.imports.get((dotted(callee) or "").partition(".")[0])
        if isinstance(callee, ast.Attribute):
            if origin is None and not self._is_own(callee):
                return True  # a method of a tensor
        elif not isinstance(callee, ast.Name) or hasattr(builtins, name):
            return True
        if origin is not None and origin.partition(".")[0] in _LIBRARIES:
            return True
        if name.startswith(_PREPARES) or _CONVOLUTIONAL.match(name):
            return True
        origins = self.script.resolver.origins(callee)
        return depth < MAX_STEPS and all(
            self._is_known_origin(o, callee, depth) for o in origins
        )

    def _is_own(self, callee: ast.Attribute) -> bool:
        """`self.layer`."""
        scope = self.script.index.scope(callee)
        own = self.script.resolver.self_name(scope)
        return isinstance(callee.value, ast.Name) and callee.value.id == own

    def _is_known_origin(self, origin: Origin, callee: ast.expr, depth: int) -> bool:
        node = origin.node
        if origin.kind in ("class", "function"):
            return node in self.roots
        if origin.kind != "expression" or not isinstance(node, ast.expr):
            return origin.kind == "element"
        if node is callee:  # of `nn.Module` itself
            return isinstance(callee, ast.Attribute) and self._is_own(callee)
        if isinstance(node, ast.Call):
            if any(self.script.index.inside(node, root) for root in self.roots):
                return True  # looked at where it stands
            partial = self._name(node.func) == "functools.partial" and node.args
            return self._is_known(node.args[0] if partial else node.func, depth + 1)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._is_known(node, depth + 1)
        return isinstance(node, (ast.Constant, ast.Compare, ast.Lambda))
