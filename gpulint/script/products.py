"""Whether the models of a script only convolve, which TF32 serves by default."""

from __future__ import annotations

import ast
import builtins
import re
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Origin
from gpulint.index.walk import COMPREHENSIONS, LOOPS, dotted, walk
from gpulint.script.half import MAX_REACHED, reached_from
from gpulint.script.models import constructors

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_CONVOLUTIONAL = re.compile(
    r"^torchvision\.models\.(resnet|vgg|densenet|mobilenet|efficientnet|googlenet|"
    r"inception|squeezenet|shufflenet|regnet|resnext|wide_resnet|mnasnet|segmentation)"
)
_CONVOLUTION = re.compile(r"^torch\.nn\.(functional\.conv|Conv|LazyConv)")
_PRODUCT = re.compile(
    r"^torch\.(nn\.(\w+\.)*(\w*Linear|\w*Bilinear|\w*RNN\w*|\w*LSTM\w*|\w*GRU\w*|"
    r"\w*Attention\w*|Transformer\w*|linear|bilinear|scaled_dot_product_attention|"
    r"multi_head_attention_forward)|linalg\.\w+|mm|bmm|matmul|addmm|addbmm|baddbmm|"
    r"einsum|tensordot|chain_matmul|cdist)$"
)
_METHODS = frozenset("matmul mm bmm addmm addbmm baddbmm __matmul__".split())
_HEAD = "torch.nn.Linear"
_LARGE_HEAD = 4_000_000  # weights; 1000 classes of 2048 features are half of that
# Packages whose functions make no layers.
_LIBRARIES = frozenset(
    "numpy math functools collections copy itertools operator random typing abc os "
    "warnings logging time string re dataclasses enum".split()
)
MAX_STEPS = 4


def only_convolves(script: Script) -> bool:
    """Whether every model that is trained is known, and multiplies no matrices.

    One small linear layer behind the convolutions, as of a classifier, does not count.
    """
    made = constructors(script)
    return bool(made) and all(
        call is not None and _Network(script, call).convolves for call in made
    )


def multiplies(script: Script, loop: Loop) -> bool:
    """Whether the steps of a loop multiply matrices themselves, as a loss may."""
    names = ((call, script.index.qualified(call.func) or "") for call in loop.calls)
    return any(
        _PRODUCT.match(name) or getattr(call.func, "attr", "") in _METHODS
        for call, name in names
    )


class _Network:
    """One model: the call that makes it, and all classes and functions it runs."""

    def __init__(self, script: Script, made: ast.Call) -> None:
        self.script = script
        self.made = made

    @property
    def convolves(self) -> bool:
        """Whether nothing else of weight is in it."""
        if _CONVOLUTIONAL.match(self._name(self.made.func)):
            return True
        known = all(map(self._has_known_bases, self.roots))
        if not known or len(self.roots) >= MAX_REACHED:
            return False
        nodes = list(walk(*self.roots))
        if any(isinstance(getattr(n, "op", None), ast.MatMult) for n in nodes):
            return False
        calls = [n for n in nodes if isinstance(n, ast.Call)]
        heads = [c for c in calls if self._name(c.func) == _HEAD]
        return (
            any(_CONVOLUTION.match(self._name(c.func)) for c in calls)
            and len(heads) <= 1
            and all(map(self._is_small_head, heads))
            and all(c in heads or self._is_known(c.func) for c in calls)
        )

    @cached_property
    def roots(self) -> list[ast.AST]:
        """The call, and the definitions of this project that it leads to."""
        return reached_from(self.script, [self.made])

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

    def _is_small_head(self, head: ast.Call) -> bool:
        """Whether a linear layer is made once, and not for a block that is repeated."""
        script = self.script
        above = script.index.ancestors(head)
        if any(isinstance(a, (*LOOPS, *COMPREHENSIONS)) for a in above):
            return False
        owner = script.index.owner(head)
        own = script.resolver.class_of(self.made.func)
        its = script.resolver.bases(own) if own is not None else []
        if owner not in its and not script.index.inside(head, self.made):
            return False
        sizes = [script.evaluator.constant(a) for a in head.args[:2]]
        known = [s for s in sizes if isinstance(s, int)]
        if not self._is_last(head):
            return False
        return len(known) < 2 or known[0] * known[1] <= _LARGE_HEAD

    def _is_last(self, head: ast.Call) -> bool:
        """Whether a linear layer stands behind all convolutions of its function."""
        function = self.script.index.function(head)
        made = walk(function) if function is not None else ()
        calls = [n for n in made if isinstance(n, ast.Call)]
        return not any(
            call.lineno > head.lineno and _CONVOLUTION.match(self._name(call.func))
            for call in calls
        )

    def _is_known(self, callee: ast.expr, depth: int = 0) -> bool:
        """Whether what a call runs is known, and is no product of matrices."""
        name = self._name(callee)
        if name.startswith("torch."):
            return not _PRODUCT.match(name)
        home = self.script.index.home(callee)
        origin = home.imports.get((dotted(callee) or "").partition(".")[0])
        if isinstance(callee, ast.Attribute):
            if callee.attr in _METHODS:
                return False
            if origin is None and not self._is_own(callee):
                return True  # a method of a tensor
        elif not isinstance(callee, ast.Name) or hasattr(builtins, name):
            return True
        if origin is not None and origin.partition(".")[0] in _LIBRARIES:
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
        return isinstance(node, (ast.Constant, ast.Lambda))
