"""What one model does its arithmetic with, by what its code makes and calls."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.build import last_name
from gpulint.index.walk import walk
from gpulint.script.bounds import Bound, at_least, at_most
from gpulint.script.branches import branches_of, most_in_one_pass
from gpulint.script.modelling.given_parts import MAX_STEPS, roots_of
from gpulint.script.modelling.phases import is_of_a_phase
from gpulint.script.numerics.precision import names_half

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Of torchvision and other packages: models that are made of convolutions, by name.
CONVOLUTIONAL = re.compile(
    r"(?i:^torchvision\.models\.(segmentation|detection)|(^|[._])(wide_?)?(res|dense|"
    r"mobile|efficient|google|squeeze|shuffle|reg|mnas)net|(^|[._])(vgg|inception|"
    r"resnext|convnext|xception|unet|deeplab|yolo)|(^|[._]|faster_?|mask_?)rcnn)"
)
# Of other packages: models that are made of attention, by name.
ATTENTION = re.compile(
    r"^transformers\.(\w+\.)*\w*(Model|For[A-Z]|LMHead)|^(x_transformers|vit_pytorch|"
    r"open_clip)\.|^clip\.(load\b|$)|(?i:bert(?!tok)|transformer(?!s\.)|"
    r"(^|[._])vit(_|\b)|(^|[._])gpt|llama|swin)"
    r"(?!\w*(Tokenizer|Processor|Config|Loader|Dataset|Loss))"
)
# Packages of models that are large, whichever of them is asked for.
OF_LARGE = re.compile(
    r"^(torchvision\.models\.|timm\.(create_model|models\.create)|"
    r"segmentation_models_pytorch\.)"
)
# The options that give a layer's sizes, which are its first ones.
CHANNELS = ("in_channels", "out_channels", "kernel_size")

_CONVOLUTION = re.compile(
    r"^torch\.nn\.(functional\.conv(_transpose)?|(Lazy)?Conv(Transpose)?)[23]d$"
)
_CONVOLVING = re.compile(r"(?i:conv)")
_OF_CUDNN = re.compile(r"(?i:conv)|RNN|LSTM|GRU")
_IN_SEQUENCES = re.compile(r"^torch\.nn\.(Lazy)?Conv(Transpose)?1d$")
_LINEAR = re.compile(r"^torch\.nn\.(Lazy)?Linear$")
_RECURRENT = re.compile(r"^torch\.nn\.(RNN|LSTM|GRU)$")
_PRODUCT = re.compile(
    r"^torch\.(nn\.(\w+\.)*(\w*Bilinear|RNNCell|LSTMCell|GRUCell|"
    r"\w*Attention\w*|Transformer\w*|bilinear|scaled_dot_product_attention|"
    r"multi_head_attention_forward)|linalg\.(?!\w*norm$|cross$|vecdot$)\w+|mm|bmm|"
    r"matmul|addmm|addbmm|baddbmm|einsum|tensordot|chain_matmul|cdist|inner|mv|addmv|"
    r"outer)$"
)
_METHODS = frozenset(
    "matmul mm bmm addmm addbmm baddbmm __matmul__ inner mv addmv".split()
)
_OF_TORCH = re.compile(r"^torch\.nn\.(Transformer|MultiheadAttention)")
# What networks of tokens have, whose linear layers do nearly all arithmetic.
_OF_TOKENS = re.compile(
    r"^torch\.nn\.(LayerNorm|RMSNorm|functional\.(layer|rms)_norm)$"
)
_VOCABULARY = re.compile(r"(?i)vocab|tokens?\b|words?\b|n_?token")
_SPECTRAL = re.compile(r"(^|\.)fft\.i?r?fft[2n]?$")
_SOLVING = re.compile(
    r"(^|\.)linalg\.(solve\w*|(pseudo_?|p)?inv\w*|cholesky\w*|svd\w*|eig\w*|qr|lstsq|"
    r"slogdet|det|lu\w*|matrix_(exp|power))$|\bodeint(_adjoint)?$|"
    r"^torch\.(inverse|cholesky\w*|svd\w*|symeig|solve|lstsq|matrix_(exp|power))$"
)
# Each step of a solver, and of a recurrent cell, waits for the one before.
_CELLS = re.compile(
    r"^torch\.nn\.(LSTM|GRU|RNN)Cell$|\bodeint(_adjoint)?$|^torchsde\.sdeint"
)
# What a model is wrapped, set up or trained by says nothing of what it is made of.
_NO_LAYER = re.compile(
    r"^torch\.nn\.(Module$|Parameter$|DataParallel$|(parallel|init|utils|parameter)\.|"
    r"\w+Loss$|SyncBatchNorm\.convert)"
)
_LAYERS = ("torch.nn.", "self.")  # and parts by whatever name, which are looked at
_OF_GRAPHS = ("torch_geometric.", "dgl.")
# The options that say how many features a token has.
_FEATURES = frozenset(
    "dim d_model hidden_size hidden_dim embed_dim emb_dim n_embd embedding_dim".split()
)
LAYERS = {
    "Linear": ("in_features", "out_features"),
    "Embedding": ("num_embeddings", "embedding_dim"),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), CHANNELS),
    **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d"), CHANNELS),
    "MultiheadAttention": ("embed_dim",),
    **dict.fromkeys(
        "RNN LSTM GRU RNNCell LSTMCell GRUCell".split(), ("input_size", "hidden_size")
    ),
}
# Products so narrow wait for memory, not for arithmetic: 2mnk operations on 4(mk + mn)
# bytes are 16 a byte, which a GPU does in float32 while the bytes come.
NARROW = 64
WIDE = 128  # features from which on a known layer counts as a large one
SURELY_WIDE = 256  # from which on no small batch makes a layer's products cheap


def is_product(script: Script, node: ast.AST) -> bool:
    """Whether an expression multiplies matrices, other than by a linear layer."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    if not isinstance(node, ast.Call):
        return False
    name = script.index.qualified(node.func) or ""
    if name.startswith("torch."):
        return bool(_PRODUCT.match(name))
    return getattr(node.func, "attr", "") in _METHODS


def _is_one_token(call: ast.Call) -> bool:
    """Whether a layer's result becomes a sequence of one token, in a batch of one."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in ("view", "reshape"):
        return False
    sizes = [getattr(size, "value", None) for size in call.args]
    return isinstance(func.value, ast.Call) and len(sizes) == 3 and sizes[:2] == [1, 1]


def network(script: Script, made: ast.Call | ast.ClassDef) -> Network:
    """The model that a call or a class makes, with what was found of it before."""
    if made not in script.networks:
        script.networks[made] = Network(script, made)
    return script.networks[made]


class Network:
    """One model: what makes it, a call or a class, and all that this runs."""

    def __init__(self, script: Script, made: ast.Call | ast.ClassDef) -> None:
        self.script = script
        self.made = made

    @cached_property
    def roots(self) -> list[ast.AST]:
        """What makes it, what it is given, and the definitions that these lead to."""
        return roots_of(self.script, self.made)

    @cached_property
    def calls(self) -> list[tuple[ast.Call, str]]:
        """All calls of its definitions, with the names of what they call."""
        calls = [node for node in walk(*self.roots) if isinstance(node, ast.Call)]
        return [(call, name) for call in calls for name in self._called(call.func)]

    def _called(self, callee: ast.expr) -> list[str]:
        """What is called, also by a name that it is given: `norm = norm or Norm`."""
        name = self._name(callee)
        if not isinstance(callee, ast.Name) or name != callee.id:
            return [name]
        origins = self.script.resolver.origins(callee)
        kinds = [self._name(o.expression) for o in origins if o.expression is not None]
        return [name, *(kind for kind in kinds if kind not in ("", name))]

    @cached_property
    def names(self) -> set[str]:
        """The names of what it calls and derives from."""
        classes = (root for root in self.roots if isinstance(root, ast.ClassDef))
        bases = {self._name(base) for root in classes for base in root.bases}
        return {name for _, name in self.calls} | bases | set(self._chosen())

    def _chosen(self) -> Iterator[str]:
        """What is made of a package by a name: `timm.create_model("vit_base")`."""
        if not isinstance(self.made, ast.Call):
            return
        func = self.made.func
        if isinstance(func, ast.Subscript):  # `models.__dict__[name]()`
            yield self._name(func.value)
            yield from self._listed(func.value)
        elif isinstance(func, ast.Call) and func.args:  # `getattr(models, name)()`
            yield f"{self._name(func.args[0])}."
        for given in [*self.made.args, *(k.value for k in self.made.keywords)]:
            for value in self.script.evaluator.values(given).known:
                if isinstance(value.constant, str):
                    yield value.constant

    def _listed(self, table: ast.expr) -> Iterator[str]:
        """What a table has, `{"large": models.resnet50}`, of which a key takes one."""
        for origin in self.script.resolver.origins(table):
            if isinstance(origin.expression, ast.Dict):
                within = self.script.of(origin.expression).index
                yield from (within.qualified(v) or "" for v in origin.expression.values)

    @property
    def is_seen(self) -> bool:
        """Whether any layer of it is known, or where it comes from."""
        layers = (n for n in self.names if n.startswith("torch.nn."))
        return any(not _NO_LAYER.match(n) for n in layers) or self._has(
            CONVOLUTIONAL, ATTENTION, OF_LARGE
        )

    @property
    def may_run_cudnn(self) -> bool:
        """Whether it may convolve anything or hold a recurrent layer, by all names.

        Classes of the program's own, such as `GraphConv`, are what they hold.
        """
        if not self.is_seen or self._has(CONVOLUTIONAL, OF_LARGE):
            return True
        classes = self.script.resolver.classes
        made = ((call, name) for call, name in self.calls if _OF_CUDNN.search(name))
        return any(
            classes.named(call.func) is None
            and "." in name.removeprefix("self.")  # else a layer, not what made it
            and not name.startswith(_OF_GRAPHS)
            for call, name in made
        )

    @property
    def is_of_attention(self) -> bool:
        """Whether it is, or holds, a model that is made of attention, by its name."""
        return self._has(ATTENTION)

    @property
    def is_large(self) -> bool:
        """Whether it convolves pictures, multiplies much, or has wide layers."""
        if self.convolves or self.multiplies_much or self._has(OF_LARGE):
            return True
        return self._is_wide(_RECURRENT) or self._is_wide(_IN_SEQUENCES)

    @cached_property
    def names_half(self) -> bool:
        """Whether its definitions name mixed precision or a half format."""
        return any(map(names_half, walk(*self.roots)))

    @property
    def transforms_spectra(self) -> bool:
        """Whether it works on frequencies, which no half format holds."""
        return self._has(_SPECTRAL)

    @property
    def has_phases(self) -> bool:
        """Whether its layers give phases, which halves round by parts of a turn."""
        return any(is_of_a_phase(self.script, call) for call, _ in self.calls)

    @property
    def solves_systems(self) -> bool:
        """Whether it uses linear algebra, or solves differential equations.

        The first raises for halves; the second takes more steps for what they round.
        """
        return self._has(_SOLVING)

    @property
    def steps_by_cells(self) -> bool:
        """Whether layers are called step after step, each product a small one.

        They are cells, or take one token of one sample: `embed(x).view(1, 1, -1)`. So
        does a solver of differential equations call the network that it integrates.
        """
        if self._has(_CELLS):
            return True
        return self._has(_RECURRENT) and any(_is_one_token(c) for c, _ in self.calls)

    @property
    def multiplies_beside(self) -> bool:
        """Whether it is large and has linear layers, few as they may be."""
        return self.is_large and self._has(_LINEAR, _PRODUCT, OF_LARGE, CONVOLUTIONAL)

    @property
    def may_be_large(self) -> bool:
        """Whether layers of it may be wide, for all that is known."""
        return any(map(self._may_be_wide, (_LINEAR, _RECURRENT, _IN_SEQUENCES)))

    @property
    def is_surely_large(self) -> bool:
        """Whether it convolves pictures, attends to tokens, or is known to be wide."""
        if self.convolves or self._has(OF_LARGE) or self._attends_to_tokens:
            return True
        if self._is_narrow:
            return False
        kinds = (_LINEAR, _RECURRENT, _IN_SEQUENCES)
        return any(map(self._is_surely_wide, kinds))

    @property
    def surely_multiplies(self) -> bool:
        """Whether it attends to tokens, or has wide linear layers and no convolutions.

        Beside convolutions linear layers are few, whatever their width.
        """
        if self._attends_to_tokens:
            return True
        if self.convolves or self._is_narrow:
            return False
        return self._is_surely_wide(_LINEAR)

    @property
    def likely_multiplies(self) -> bool:
        """The same, where sizes that are not known, or may be others, count as many."""
        if self._is_narrow:
            return False
        if self._takes(ATTENTION) or self._attends:
            return True
        return not self.convolves and self._is_wide(_LINEAR, SURELY_WIDE)

    @property
    def _attends_to_tokens(self) -> bool:
        """Whether it attends to tokens of features that are known to be many.

        Or is, or holds, such a model of a package.
        """
        if self._is_narrow:
            return False
        if self._takes(ATTENTION, but=_LAYERS):
            return True
        return self._attends and max(self._features(), default=0) >= SURELY_WIDE

    @property
    def _attends(self) -> bool:
        """Whether it attends to tokens, by what its own code makes."""
        if self._has(_OF_TORCH):
            return True
        return self._has(_OF_TOKENS) and self._has(ATTENTION, _PRODUCT)

    def _features(self) -> Iterator[float]:
        """What its tokens, and its layers, are known to have of features, at least."""
        given = self.made.keywords if isinstance(self.made, ast.Call) else []
        yield from (
            at_least(self.script, keyword.value)
            for keyword in given
            if keyword.arg in _FEATURES
        )
        for kind in (_LINEAR, _IN_SEQUENCES):
            yield from (s[0] or s[1] for s in self._sizes(kind, at_least))
        for call, name in self.calls:
            if _OF_TORCH.match(name):
                option = "embed_dim" if name.endswith("Attention") else "d_model"
                size = self._within.evaluator.argument(call, option, 0).direct
                if size is not None:
                    yield at_least(self._within, size)

    @property
    def _is_narrow(self) -> bool:
        """Whether its call gives its tokens few features: `ViT(dim=64)`."""
        if not isinstance(self.made, ast.Call):
            return False
        given = [k.value for k in self.made.keywords if k.arg in _FEATURES]
        sizes = [at_most(self.script, node) for node in given]
        return bool(sizes) and all(0 < size < SURELY_WIDE for size in sizes)

    @cached_property
    def convolves(self) -> bool:
        """Whether it convolves pictures or volumes."""
        if self._holds_convolutional:
            return True
        return self._has(_CONVOLUTION) and not self._convolves_words

    @property
    def _convolves_words(self) -> bool:
        """Whether its convolutions run over embedded words: a plane of one channel."""
        layers = [
            self.script.evaluator.argument(call, "in_channels", 0).direct
            for call, name in self.calls
            if _CONVOLUTION.match(name) and "functional" not in name
        ]
        values = [
            self.script.evaluator.values(n) if n is not None else n for n in layers
        ]
        return "torch.nn.Embedding" in self.names and all(
            its is not None and its.all_in(1) for its in values
        )

    @cached_property
    def convolves_pictures(self) -> bool:
        """Whether it convolves them by more than single pixels; words do not count."""
        if self._takes_convolutional:
            return True
        if "torch.nn.Embedding" in self.names:
            return False
        kernels = (
            self.script.evaluator.argument(call, "kernel_size", 2).direct
            for call, name in self.calls
            if _CONVOLUTION.match(name) and "functional" not in name
        )
        return any(k is not None and not self._is_single(k) for k in kernels)

    @property
    def _takes_convolutional(self) -> bool:
        """Whether a convolutional model of a package, not of the program, is in it."""
        return self._takes(CONVOLUTIONAL) or self._is_given_convolutional

    def _takes(self, kind: re.Pattern[str], but: tuple[str, ...] = ()) -> bool:
        """Whether what other packages give it is of a kind, by its name."""
        others = self._dense_names - self._own_names
        return any(kind.search(name) for name in others if not name.startswith(but))

    @cached_property
    def _own_names(self) -> set[str]:
        """The names of its calls that run the program's code, which is looked at."""
        return {name for call, name in self.calls if self._runs_own(call)}

    def _runs_own(self, call: ast.Call) -> bool:
        """Whether a call makes an object of the program's classes, or calls one."""
        resolver = self.script.resolver
        if resolver.classes.named(call.func) is not None or resolver.calls.callees(
            call
        ):
            return True
        makers = [origin.call for origin in resolver.origins(call.func)]
        return bool(makers) and all(
            made is not None and resolver.classes.named(made.func) is not None
            for made in makers
        )

    def _is_single(self, kernel: ast.expr) -> bool:
        """Whether a kernel is `1`, `(1, 1)`, or the value of a name that is one."""
        sizes = kernel.elts if isinstance(kernel, (ast.Tuple, ast.List)) else [kernel]
        return all(self.script.evaluator.values(size).all_in(1) for size in sizes)

    @cached_property
    def _holds_convolutional(self) -> bool:
        """Whether a convolutional model of a package is a part of it, by its name.

        A class of the program of that name, too, but one seen to have linear layers
        and nothing that says to convolve: `DenseNet` of a perceptron.
        """
        if self._takes_convolutional:
            return True
        is_perceptron = self._has(_LINEAR) and not self._has(_CONVOLVING)
        return self._has(CONVOLUTIONAL) and not is_perceptron

    @property
    def _is_given_convolutional(self) -> bool:
        """Whether an argument of what makes it is such a model."""
        if not isinstance(self.made, ast.Call):
            return False
        given = [*self.made.args, *(k.value for k in self.made.keywords)]
        return any(self._leads_to_convolutions(g, 0) for g in given)

    @cached_property
    def multiplies_much(self) -> bool:
        """Whether large products of matrices are a part of its arithmetic."""
        if self._takes(ATTENTION) or self._has(_PRODUCT):
            return True
        if any(map(self._multiplies, self.roots)):
            return True
        if self._gives_words or (self._has(_OF_TOKENS) and self._is_wide(_LINEAR, 0)):
            return True
        if self._convolves_densely:
            return self._has_layers_behind
        return self._is_wide(_LINEAR)

    @property
    def _has_layers_behind(self) -> bool:
        """Whether more than one linear layer stands behind its own convolutions."""
        if self._holds_convolutional:
            return False  # that is large beside any head
        index = self.script.index
        linear = [call for call, name in self.calls if _LINEAR.match(name)]
        return most_in_one_pass(branches_of(index, call) for call in linear) > 1

    @property
    def _convolves_densely(self) -> bool:
        """Whether its convolutions are neither of each channel alone nor of patches."""
        kinds = [call for call, name in self.calls if _CONVOLUTION.match(name)]
        return self.convolves and not (kinds and all(map(_is_sparse, kinds)))

    def _multiplies(self, root: ast.AST) -> bool:
        """Whether it makes products; beside convolutions, those of attention."""
        nodes = list(walk(root))
        if not any(is_product(self.script, node) for node in nodes):
            return False
        calls = (node for node in nodes if isinstance(node, ast.Call))
        return not self.convolves or any(
            "softmax" in last_name(call).lower() for call in calls
        )

    @property
    def _gives_words(self) -> bool:
        """Whether a linear layer has an output for each entry of a vocabulary."""
        looked_up = self._given("torch.nn.Embedding", "num_embeddings", 0)
        given = self._given("torch.nn.Linear", "out_features", 1)
        return any(g in looked_up or _VOCABULARY.search(g) for g in given)

    def _given(self, layer: str, option: str, position: int) -> set[str]:
        """How an option of the layers of a kind is written."""
        argument = self.script.evaluator.argument
        layers = (call for call, name in self.calls if name == layer)
        given = (argument(call, option, position).direct for call in layers)
        return {ast.unparse(node) for node in given if node is not None}

    def _is_wide(self, kind: re.Pattern[str], wide: int = WIDE) -> bool:
        """Whether layers of a kind are known to be wide enough to count."""
        sizes = self._sizes(kind)
        return any(max(s) >= wide and not 0 < min(s) <= NARROW for s in sizes)

    def _is_surely_wide(self, kind: re.Pattern[str]) -> bool:
        """Whether layers of a kind are wide, whatever of their sizes it is."""
        sizes = self._sizes(kind, at_least)
        return any(
            max(s) >= SURELY_WIDE and not 0 < min(s) < SURELY_WIDE for s in sizes
        )

    def _may_be_wide(self, kind: re.Pattern[str]) -> bool:
        """Whether a side of layers of a kind is not known, and none is narrow."""
        sizes = self._sizes(kind)
        return any(not min(s) and not 0 < max(s) <= NARROW for s in sizes)

    def _sizes(
        self, kind: re.Pattern[str], bound: Bound = at_most
    ) -> Iterator[list[float]]:
        """What the layers of a kind read and give; 0: not known."""
        for call, name in self.calls:
            if kind.match(name):
                yield [self._size(call, name, side, bound) for side in range(2)]

    def _size(self, layer: ast.Call, name: str, position: int, bound: Bound) -> float:
        """The features that a layer reads (0) or gives (1); 0: not known."""
        position = 1 if _RECURRENT.match(name) else position  # it multiplies its state
        option = LAYERS[name.rpartition(".")[2].removeprefix("Lazy")][position]
        given = self._within.evaluator.argument(layer, option, position).direct
        size = bound(self._within, given) if given is not None else 0
        return size if size < inf else 0

    @cached_property
    def _within(self) -> Script:
        """The script, as if nothing but this network called its definitions."""
        callers: dict[Function, list[ast.Call]] = defaultdict(list)
        resolver = self.script.resolver
        if isinstance(self.made, ast.ClassDef):
            init = resolver.classes.methods(self.made).get("__init__")
            if init is not None and not resolver.calls.callers(init):
                callers[init] = []  # so its defaults are what it gets
        for call, _ in self.calls:
            functions: Iterable[Function | None] = resolver.calls.callees(call)
            owner = resolver.classes.named(call.func)
            if owner is not None:
                functions = [resolver.classes.methods(owner).get("__init__")]
            for function in functions:
                if function is not None:
                    callers[function].append(call)
        return self.script.called_only_by(callers)

    def _leads_to_convolutions(self, given: ast.expr, depth: int) -> bool:
        """Whether an argument is, or is made of, a network of convolutions.

        Not a number that one has: `encoder.n_features`.
        """
        for node in walk(given):
            above = self.script.index.home(node).parent(node)
            if isinstance(above, ast.Attribute) and node is not given:
                called = self.script.index.home(above).parent(above)
                if not (isinstance(called, ast.Call) and called.func is above):
                    continue
            if isinstance(node, ast.Call):
                if CONVOLUTIONAL.search(self._name(node.func)):
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

    def _has(self, *kinds: re.Pattern[str]) -> bool:
        return any(kind.search(name) for kind in kinds for name in self._dense_names)

    @cached_property
    def _dense_names(self) -> set[str]:
        """Its names without those of graph libraries: `TransformerConv` is sparse."""
        return {name for name in self.names if not name.startswith(_OF_GRAPHS)}

    def _name(self, callee: ast.AST) -> str:
        return self.script.index.qualified(callee) or ""


def _is_sparse(convolution: ast.Call) -> bool:
    given = {k.arg: ast.dump(k.value) for k in convolution.keywords}
    sizes = [ast.dump(a) for a in convolution.args[2:4]]
    size = given.get("kernel_size", sizes[0] if sizes else None)
    stride = given.get("stride", sizes[1] if len(sizes) > 1 else None)
    return "groups" in given or (stride is not None and size == stride)
