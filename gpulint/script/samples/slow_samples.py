"""What a dataset does anew for each sample, and could have done once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function
from gpulint.index.walk import dotted, same, walk
from gpulint.script.loading.few_batches import takes_few
from gpulint.script.loading.loaders import Loader
from gpulint.script.loading.training_loaders import loaders_near, trains_on_gpu_with
from gpulint.script.samples.dataset_size import gives_one_batch
from gpulint.script.samples.per_sample import ENTRIES, Frame, PerSample
from gpulint.script.samples.sample_reads import SampleReads

if TYPE_CHECKING:
    from gpulint.script.model import Script

_MODELS = frozenset(
    "spacy.load sentence_transformers.SentenceTransformer torch.hub.load "
    "timm.create_model whisper.load_model clip.load open_clip.create_model "
    "open_clip.create_model_and_transforms transformers.pipeline".split()
)
_MODEL_PACKAGES = ("torchvision.models.", "transformers.", "diffusers.")
_WITH_WEIGHTS = re.compile(
    r"^torch\.nn\.(Linear|Embedding|Bilinear|Conv\w+|Transformer\w*|LSTM|GRU|RNN)$"
)
_NO_GRAD = frozenset("torch.no_grad torch.inference_mode".split())
_MODEL_NAME = re.compile(
    r"(^|_)(model|net|network|encoder|decoder|backbone|bert|clip|vae|vgg|resnet|vit|"
    r"extractor|teacher|gpt|wav2vec|hubert)\d*($|_)",
    re.IGNORECASE,
)
_RUNS = frozenset(
    "encode_image encode_text get_image_features get_text_features forward "
    "extract_features generate".split()
)
_SIDES = re.compile(
    r"(^|_|\.)(h|w|height|width|rows|cols|ht|wd|nrows|ncols)$", re.IGNORECASE
)


class Slow(NamedTuple):
    """An expression that costs every sample the same work again, and what it costs."""

    place: ast.expr
    cost: str
    owner: ast.ClassDef
    loader: Loader


def slow_samples(script: Script) -> Iterator[Slow]:
    """What each sample of a dataset that trains a model on a GPU costs needlessly."""
    for owner in script.index.all(ast.ClassDef):
        for entry in owner.body:
            if isinstance(entry, ast.FunctionDef) and entry.name in ENTRIES:
                yield from _of_entry(script, owner, entry)


def _of_entry(script: Script, owner: ast.ClassDef, entry: Function) -> Iterator[Slow]:
    found = list(_Costs(script, owner, entry).found())
    loader = _trained_with(loaders_near(script, owner), entry) if found else None
    if loader is not None:
        for place, cost in found:
            yield Slow(place, cost, owner, loader)


def _trained_with(loaders: list[Loader], entry: Function) -> Loader | None:
    """A loader that gives a training loop more than a few samples of an entry."""
    for loader in loaders:
        if entry not in loader.dataset.methods or not trains_on_gpu_with(loader):
            continue
        if not gives_one_batch(loader) and not takes_few(loader.script, loader):
            return loader
    return None


class _Costs:
    """The costs that one entry method of a dataset has for each sample."""

    def __init__(self, script: Script, owner: ast.ClassDef, entry: Function) -> None:
        self.script = script
        self.owner = owner
        self.entry = entry
        self.index = script.index
        self.resolver = script.resolver
        self.all = PerSample(script, owner, entry)
        self.reads = SampleReads(self.all)

    def found(self) -> Iterator[tuple[ast.expr, str]]:
        """Each place with what it costs, once."""
        for node, frame in self.all.nodes():
            if isinstance(node, ast.Call):
                cost = self._of_call(node, frame)
                if cost:
                    yield node.func, cost
            elif isinstance(node, ast.For) and self._visits_pixels(node):
                yield node.target, "a loop in Python goes over all its pixels"
            elif isinstance(node, ast.Subscript) and self._filters(node, frame):
                table = self.script.text(node.value)
                yield node.slice, f"all rows of `{table}` are compared to find its own"

    def _of_call(self, call: ast.Call, frame: Frame) -> str:
        return (
            self.reads.of(call, frame)
            or self._builds(call, frame)
            or self._runs_model(call)
            or self._looks_for(call, frame)
        )

    # Models

    def _builds(self, call: ast.Call, frame: Frame) -> str:
        name = self.index.qualified(call.func) or ""
        written = self.script.text(call.func)
        loads = name in _MODELS or name.startswith("torchvision.models.")
        if name.endswith(".from_pretrained") and name.startswith(_MODEL_PACKAGES):
            loads = True
        if not loads and not _WITH_WEIGHTS.match(name) and not self._is_network(call):
            return ""
        given = [*call.args, *(k.value for k in call.keywords)]
        if not all(self.all.is_fixed(node, frame) for node in given):
            return ""
        return f"`{written}` {'loads' if loads else 'builds'} the same again"

    def _is_network(self, call: ast.Call) -> bool:
        """Whether a class of this project is called that makes layers with weights."""
        owner = self.resolver.classes.named(call.func)
        if owner is None or not self.script.modules.is_module_class(owner):
            return False
        init = self.resolver.classes.methods(owner).get("__init__")
        calls = (n for n in walk(*init.body) if isinstance(n, ast.Call)) if init else ()
        return any(
            _WITH_WEIGHTS.match(self.index.home(c).qualified(c.func) or "")
            for c in calls
        )

    def _runs_model(self, call: ast.Call) -> str:
        """`self.encoder(image)` without gradients: a batch of one, on a worker."""
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in _RUNS:
            func = func.value
        if not isinstance(func, ast.Attribute) or not (call.args or call.keywords):
            return ""
        if not self._is_model(func) or not self._without_gradients(call):
            return ""
        return f"`{self.script.text(call.func)}` runs a model on this one alone"

    def _is_model(self, func: ast.Attribute) -> bool:
        """`self.encoder`: an attribute that holds a module, and is named like one."""
        own = dotted(func.value) == "self"
        named = own and _MODEL_NAME.search(func.attr) is not None
        method = func.attr in self.resolver.classes.methods(self.owner)
        return named and not method and self.script.modules.is_module(func)

    def _without_gradients(self, call: ast.Call) -> bool:
        if self.script.without_grad(call):
            return True
        return any(
            isinstance(above, ast.With)
            and any(
                self.index.qualified(getattr(item.context_expr, "func", None))
                in _NO_GRAD
                for item in above.items
            )
            for above in self.index.ancestors(call)
        )

    # Searches and loops

    def _looks_for(self, call: ast.Call, frame: Frame) -> str:
        """`self.names.index(name)`, where `names` are those of all samples."""
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "index":
            return ""
        if len(call.args) != 1 or not self._is_all_samples(func.value):
            return ""
        if self.all.is_fixed(call.args[0], frame):
            return ""
        return f"`{self.script.text(func)}` goes through the list of all samples"

    def _is_all_samples(self, node: ast.expr) -> bool:
        """Whether `__len__` gives the length of `self.names`."""
        length = self.resolver.classes.methods(self.owner).get("__len__")
        if length is None or not (dotted(node) or "").startswith("self."):
            return False
        return any(
            isinstance(value, ast.Call)
            and dotted(value.func) == "len"
            and bool(value.args)
            and same(value.args[0], node)
            for value in self.resolver.flow(length).returns
            if value is not None
        )

    def _filters(self, node: ast.Subscript, frame: Frame) -> bool:
        """`self.table[self.table["image"] == name]` with the table of all samples."""
        test = node.slice
        table = node.value
        if isinstance(table, ast.Attribute) and table.attr == "loc":
            table = table.value
        if isinstance(test, ast.Tuple) and test.elts:
            test = test.elts[0]
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
            return False
        column = test.left
        if not isinstance(column, (ast.Subscript, ast.Attribute)):
            return False
        if not same(column.value, table) or not self.all.is_fixed(table, frame):
            return False
        if self.all.is_fixed(test.comparators[0], frame):
            return False
        return self._has_a_row_for_each(table)

    def _has_a_row_for_each(self, table: ast.expr) -> bool:
        """Whether `__len__` counts the rows of a table, or what was taken from it."""
        if not isinstance(table, ast.Attribute):
            return False
        length = self.resolver.classes.methods(self.owner).get("__len__")
        if length is None or not self.resolver.self_name(length):
            return False
        counted = {
            n.attr
            for n in walk(*length.body)
            if isinstance(n, ast.Attribute) and dotted(n.value) == "self"
        }
        return table.attr in counted or any(
            self._comes_from(name, table.attr) for name in counted
        )

    def _comes_from(self, name: str, table: str) -> bool:
        """Whether `self.ids` is made of `self.table`, or of the same as it."""
        sources = {f"self.{table}"}
        for definition in self.resolver.classes.member(self.owner, table):
            made = dotted(definition.value)
            sources |= {made} if made else set()
        return any(
            dotted(part) in sources
            for definition in self.resolver.classes.member(self.owner, name)
            if definition.value is not None
            for part in walk(definition.value)
        )

    def _visits_pixels(self, outer: ast.For) -> bool:
        """Two loops over the rows and columns of an array that is indexed in them."""
        inner = outer.body[0] if len(outer.body) == 1 else None
        if not isinstance(inner, ast.For):
            return False
        names = [n.target.id for n in (outer, inner) if isinstance(n.target, ast.Name)]
        if len(names) != 2 or not all(map(_over_a_side, (outer, inner))):
            return False
        return any(_indexed_by(node, set(names)) for node in walk(*inner.body))


def _over_a_side(loop: ast.For) -> bool:
    """`for row in range(image.shape[0])`, `range(height)`."""
    head = loop.iter
    if not isinstance(head, ast.Call) or dotted(head.func) != "range":
        return False
    if len(head.args) > 2:
        return False
    end = head.args[-1] if head.args else None
    if isinstance(end, ast.Subscript):
        held = end.value
        return isinstance(held, ast.Attribute) and held.attr in ("shape", "size")
    return bool(_SIDES.search(dotted(end) or ""))


def _indexed_by(node: ast.AST, names: set[str]) -> bool:
    """`image[row, column]`, `image[row][column]`."""
    if not isinstance(node, ast.Subscript):
        return False
    parts: list[ast.expr] = [node.slice]
    if isinstance(node.slice, ast.Tuple):
        parts = node.slice.elts
    if isinstance(node.value, ast.Subscript):
        parts = [*parts, node.value.slice]
    used = {n.id for part in parts for n in walk(part) if isinstance(n, ast.Name)}
    return names <= used
