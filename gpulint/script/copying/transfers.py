"""Copies of a batch from host to device that the host waits for, in step loops."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from gpulint.index import Move, Target
from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.copying.columns import on_host
from gpulint.script.frameworks.trainer_calls import surely_has
from gpulint.script.loading.collation import run_by, tokenizes
from gpulint.script.loading.pageable import made_by_hand, never_pinned
from gpulint.script.loading.pinning import written_off
from gpulint.script.loops import Loop
from gpulint.script.modelling.graphs import iterates_graphs
from gpulint.script.reads import SHARES, changes_argument
from gpulint.script.training.training_step import runs_model

if TYPE_CHECKING:
    from gpulint.script.model import Script

_RANK = re.compile(r"^(local_|global_)?rank$|^gpu(_id|_index|_idx)?$|^local_rank\w*$")
_SETTINGS = re.compile(
    r"^(self|cls)$|arg|opt|cfg|conf|hparams|params|setting|flags|accelerator|fabric|env|"
    r"trainer|engine|context|ctx|state",
    re.IGNORECASE,
)
_OWN_MOVE = r"def %s\(\s*self\b([^)]*)\)"
_CLASS = re.compile(r"^class (\w+)(.*)", re.MULTILINE)
_MAKES_BATCHES = re.compile(r"def (?:__getitem__|__iter__|__next__|\w*collate\w*)\(")
_OBJECTS = re.compile(r"target|annot|box|instance|graph", re.IGNORECASE)
_TENSOR_ATTRIBUTES = frozenset(
    "shape ndim dtype device T mT H mH real imag data grad grad_fn requires_grad "
    "is_cuda is_leaf is_sparse layout names".split()
)
# Methods that other batches with a `to` of their own do not have. They may well have
# `shape`, `reshape` (nerfstudio's bundles of rays), `clone` (meshes) or `repeat`.
_OF_ARRAYS = frozenset(
    "dim view permute transpose unsqueeze squeeze expand mean sum float long half "
    "numel T".split()
)
_COMPUTES = re.compile(
    r"^torch\.(nn\.functional\.\w+|(?!save$|is_|typename$|device$|tensor$|as_tensor$|"
    r"asarray$|numel$)[a-z]\w*)$"
)
# What people call nothing but tensors.
_OF_TENSORS = re.compile(
    r"(x|y|z|imgs?|images?|pictures?|pixels?|frames?|videos?|clips?|labels?|targets?|"
    r"tensors?|points?|audios?|wavs?|waveforms?|mels?|noise|latents?|masks?|real\w*|"
    r"features?|batch_(x|y|images?))(_\w+|\d)?$",
    re.IGNORECASE,
)
# The first release of transformers whose encodings take `non_blocking`.
ENCODINGS_SINCE = (4, 48)
_TAKES_NONE = "whose `to` takes no `non_blocking` before transformers 4.48"
_TAKES_DEVICE = "whose `to` takes a device alone"
_MAKES_MASK = "create_block_mask("  # of FlexAttention
_OWN_TO = "`%s` is an object, and its `to` may take no `non_blocking`"


@dataclass(frozen=True, eq=False)
class Transfer:
    """A call that copies `source` to the device of `loop`'s steps and waits.

    `call` takes `non_blocking`; `device` is None where no expression names it.
    """

    call: ast.Call
    source: ast.expr
    device: ast.expr | None
    target: Target
    loop: Loop


def find_transfers(script: Script) -> tuple[Transfer, ...]:
    """All of them, in source order."""
    if not script.batches.any or sent_by_framework(script):
        return ()
    found = [t for t in _candidates(script) if _waits(script, t)]
    graphs = {x for x in {t.loop for t in found} if iterates_graphs(script, x)}
    moved = {x for x in {t.loop for t in found} if comes_moved(script, x)}
    found = [t for t in found if t.loop not in graphs | moved]
    found = [t for t in found if not _has_own_to(script, t)]
    return tuple(sorted(found, key=lambda t: (t.call.lineno, t.call.col_offset)))


def comes_moved(script: Script, loop: Loop) -> bool:
    """Whether what a loop iterates may put the batches on the device itself.

    An object whose `__iter__` moves something, or a loader of timm with its prefetcher.
    """
    for iterated, _ in loop.items:
        for owner in script.resolver.classes.of(iterated):
            method = script.resolver.classes.methods(owner).get("__iter__")
            its = script.of(owner)
            calls = (
                [n for n in walk(method) if isinstance(n, ast.Call)] if method else []
            )
            moves = filter(None, map(its.devices.move, calls))
            if any(move.target is not Target.CPU for move in moves):
                return True
        if any(_prefetches(script, o.call) for o in script.resolver.origins(iterated)):
            return True
    return False


def _prefetches(script: Script, made: ast.Call | None) -> bool:
    name = script.index.qualified(made.func) or "" if made is not None else ""
    if (
        made is None
        or not name.startswith("timm.")
        or not name.endswith("create_loader")
    ):
        return False
    given = script.evaluator.argument(made, "use_prefetcher", None)
    return given.direct is None or not script.evaluator.values(given.direct).all_in(
        False
    )


def follows_the_model(script: Script, transfer: Transfer) -> bool:
    """Whether a part of a batch is moved behind a model that was given all of it.

    `out = model(batch)`, `y = batch.y.to(device)`: the model, or what is around it, has
    moved the batch, and one of PyTorch Geometric in place.
    """
    part = _part_of_batch(transfer.source)
    if part is None:
        return False
    loop = transfer.loop
    place, whole = transfer.call, part
    if not script.index.inside(place, loop.node):
        function = script.index.function(place)
        calls = script.index.calls_below(loop.node)
        leading = (c for c in calls if function in script.resolver.calls.callees(c))
        place, whole = next(leading, place), ""  # by whatever name
    return any(
        isinstance(given, ast.Name)
        and whole in ("", given.id)
        and script.batches.loop_of(given) is loop
        for call in loop.calls
        if _place(call) < _place(place)
        if runs_model(script, call)
        for given in call.args
    )


def _part_of_batch(source: ast.expr) -> str | None:
    """`batch` of `batch.y` and `batch[0].y.float()`; None: no attribute of anything."""
    attributes = 0
    while not isinstance(source, ast.Name):
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
            source = source.func.value
        elif isinstance(source, (ast.Attribute, ast.Subscript)):
            attributes += isinstance(source, ast.Attribute)
            source = source.value
        else:
            return None
    return source.id if attributes else None


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def sent_by_framework(script: Script) -> bool:
    """Whether a framework moves the batches of this file's loops."""
    names = script.index.called_names
    if script.frameworks & {"lightning", "fastai", "xla"}:
        return True
    if "accelerate" in script.frameworks:
        return any(n.endswith(".prepare") for n in names)
    trainers = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
    return any(n in trainers for n in names)


def _candidates(script: Script) -> Iterator[Transfer]:
    for move, loop in script.batch_moves:
        if move.non_blocking is None:
            target = _target(move)
            yield Transfer(move.call, move.receiver, move.device, target, loop)
    for call in script.index.all(ast.Call):
        if isinstance(call.func, ast.Attribute) and len(call.args) == 1:
            if any(k.arg == "non_blocking" for k in call.keywords):
                continue
            found = _other(script, call, call.func)
            if found is not None:
                yield found


def _target(move: Move) -> Target:
    """Ranks are numbers of CUDA devices."""
    last = (dotted(move.device) or "").rpartition(".")[2]
    return Target.CUDA if _RANK.match(last) else move.target


def _other(script: Script, call: ast.Call, func: ast.Attribute) -> Transfer | None:
    """`x.type(torch.cuda.FloatTensor)` and `buffer.copy_(x)`."""
    if func.attr == "copy_":
        source = call.args[0]
        loop = script.batches.loop_of(source)
        if loop is not None and script.where(func.value).device:
            return Transfer(call, source, None, Target.ANY, loop)
    if func.attr == "type":
        kinds = _types(script, call.args[0])
        loop = script.batches.loop_of(func.value)
        if loop is not None and any("torch.cuda." in k for k in kinds):
            sure = all("torch.cuda." in k for k in kinds)
            target = Target.CUDA if sure else Target.ANY
            return Transfer(call, func.value, None, target, loop)
    return None


def _types(script: Script, node: ast.expr) -> set[str]:
    """Names of the tensor types that an argument of `.type` can be."""
    names = set()
    for origin in script.resolver.origins(node):
        constant = getattr(origin.node, "value", None)
        name = script.index.qualified(origin.node) or ""
        names.add(constant if isinstance(constant, str) else name)
    return names


def _waits(script: Script, transfer: Transfer) -> bool:
    loop = transfer.loop
    if not (loop.train or loop.eval) or transfer.target in (Target.CPU, Target.MPS):
        return False
    if _device_of_unknown(script, transfer.device):
        return False
    if not on_host(script, transfer.source) or script.runners.is_rare(
        transfer.call, loop.node
    ):
        return False
    if loop.loaders and all(written_off(script, x) for x in loop.loaders):
        return False
    return not made_by_hand(script, transfer.source, loop)


def _device_of_unknown(script: Script, device: ast.expr | None) -> bool:
    """`x.device` of a tensor that may be on the host."""
    if not isinstance(device, ast.Attribute) or device.attr != "device":
        return False
    holder = (dotted(device.value) or "").rpartition(".")[2]
    if _SETTINGS.search(holder) or script.modules.is_module(device.value):
        return False
    return not script.where(device.value).device


def hindrance(script: Script, transfer: Transfer) -> str | None:
    """Why the host must go on waiting for a copy; None if it need not."""
    changed = _changed_later(script, transfer)
    if changed is not None:
        line = getattr(changed, "lineno", 0)
        return f"the source is changed after the copy has started (line {line})"
    pageable = never_pinned(script, transfer.source, transfer.loop)
    return pageable or foreign(script, transfer)


def _has_own_to(script: Script, transfer: Transfer) -> bool:
    """Whether a whole batch is moved where the project has batches of its own."""
    source = transfer.source
    items = {target for _, target in transfer.loop.items}  # `enumerate` is left out
    whole = isinstance(source, ast.Name) and any(
        d.node in items or (d.path == () and d.kind in ("for", "parameter"))
        for d in script.definitions(source)
    )
    if not whole:
        return False
    return any(_own_moves(script, "to"))


def _own_moves(script: Script, method: str) -> Iterator[str]:
    """The project's classes, no modules, whose `to` does not take the option."""
    project = script.index.project
    part = f"def {method}("
    texts = [script.source.text] if project is None else project.texts(part)
    for text in texts:
        for found in re.finditer(_OWN_MOVE % method, text):
            options = found[1]
            if "non_blocking" not in options and "**" not in options:
                classes = _CLASS.findall(text[: found.start()])
                if classes and "Module" not in classes[-1][1]:
                    yield classes[-1][0]


def _is_part_of_batches(
    script: Script, name: str, seen: frozenset[str] = frozenset()
) -> bool:
    """Whether a file that makes samples or batches names a class, or one of its heirs.

    Outside of the class, or in a collate function of its own.
    """
    project = script.index.project
    own = re.compile(rf"^class {name}\b.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
    heir = re.compile(rf"^class (\w+)\(.*\b{name}\b", re.MULTILINE)
    named = re.compile(rf"\b{name}\b")
    for text in () if project is None else project.texts(name):
        if any("collate" in its[0] for its in own.finditer(text)):
            return True
        others = own.sub("", text)
        if _MAKES_BATCHES.search(text) and named.search(others):
            return True
        known = seen | {name}
        heirs = (h for h in heir.findall(others) if h not in known)
        if any(_is_part_of_batches(script, h, known) for h in heirs):
            return True
    return False


def _changed_later(script: Script, transfer: Transfer) -> ast.AST | None:
    """Where the host tensor is changed in place while the copy may be under way."""
    found = (_name_changed_later(script, transfer, n) for n in _roots(script, transfer))
    return next(filter(None, found), None)


def _roots(script: Script, transfer: Transfer) -> list[ast.Name]:
    """The names whose tensors the source may be a part of."""
    names = [n for n in walk(transfer.source) if isinstance(n, ast.Name)]
    batch = [n for n in names if script.batches.loop_of(n) is not None]
    return batch or names[:1]


def _name_changed_later(
    script: Script, transfer: Transfer, root: ast.Name
) -> ast.AST | None:
    mine = set(script.definitions(root))
    within = script.index.scope(transfer.call)
    inside = {d for d in mine if script.index.inside(d.node, transfer.loop.node)}
    for node in script.mutations(root.id, within):
        if isinstance(node, ast.Name) or not script.loops_around(node):
            continue
        names = [n for n in walk(node) if isinstance(n, ast.Name) and n.id == root.id]
        if any(not mine.isdisjoint(script.definitions(n)) for n in names):
            end = (transfer.call.end_lineno or 0, transfer.call.end_col_offset or 0)
            later = (node.lineno, node.col_offset) >= end  # type: ignore[attr-defined]
            if later or mine != inside:
                return node
    for use in walk(transfer.loop.node):
        named = isinstance(use, ast.Name) and use.id == root.id
        if named and not mine.isdisjoint(script.definitions(use)):
            assert isinstance(use, ast.Name)
            changed = _through_another_name(script, use)
            if changed is not None:
                return changed
    return None


def _through_another_name(script: Script, use: ast.expr) -> ast.AST | None:
    """Where a view of a host tensor is changed in place, or a function changes it."""
    node, above = use, script.index.parent(use)
    while isinstance(above, (ast.Attribute, ast.Subscript)) and above.value is node:
        call = script.index.parent(above)
        if isinstance(above, ast.Attribute) and above.attr in SHARES:
            called = isinstance(call, ast.Call) and call.func is above
            node = call if called else above  # type: ignore[assignment]
        elif isinstance(above, ast.Subscript) and isinstance(above.ctx, ast.Load):
            node = above
        else:
            return None
        above = script.index.parent(node)
    if isinstance(above, ast.Call) and node in above.args:
        return above if changes_argument(script, above) else None
    if not isinstance(above, ast.Assign):
        return None
    within = script.index.scope(use)
    for target in above.targets:
        if isinstance(target, ast.Name) and node is not use:
            for change in script.mutations(target.id, within):
                if not isinstance(change, ast.Name):
                    return change
    return None


def foreign(script: Script, transfer: Transfer) -> str | None:
    """Why the source may be an object whose `to` takes no `non_blocking`."""
    func = transfer.call.func
    if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda"):
        return None
    source = transfer.source
    for owner in script.index.classes.values():
        if script.modules.is_module_class(owner):
            continue
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == func.attr:
                names = [a.arg for a in [*method.args.args, *method.args.kwonlyargs]]
                if "non_blocking" not in names and method.args.kwarg is None:
                    return f"`{owner.name}.{func.attr}` takes no `non_blocking`"
    for name in _own_moves(script, func.attr):
        if _is_part_of_batches(script, name):
            return f"`{name}.{func.attr}` takes no `non_blocking`"
    if _is_any_part(script, source) and script.mentions(_MAKES_MASK):
        return f"`{script.text(source)}` may be a `BlockMask`, {_TAKES_DEVICE}"
    if _may_be_encoding(script, transfer):
        return f"`{script.text(source)}` may be what a tokenizer gives, {_TAKES_NONE}"
    if "torch_geometric" in _heads(script):
        return None
    keyed = _keyed(script, transfer)
    while isinstance(source, ast.Subscript) and isinstance(source.slice, ast.Slice):
        source = source.value  # a part of an object is one of its kind
    if keyed is not None or not isinstance(source, ast.Name):
        return _OWN_TO % keyed if keyed is not None else None
    if _of_detection(script, source, transfer.loop):
        return f"`{source.id}` may be something other than a tensor"
    whole = any(t.id == source.id for _, t in transfer.loop.items if _is_name(t))
    in_place = isinstance(script.index.parent(transfer.call), ast.Expr)
    sure = not in_place and _is_surely_tensor(script, transfer, source)
    return _OWN_TO % source.id if whole and not sure else None


def _is_any_part(script: Script, source: ast.expr) -> bool:
    """Whether a loop takes all values of a dict: `for k, v in batch.items()`."""
    reached = script.definitions(source) if isinstance(source, ast.Name) else ()
    return any(
        isinstance(d.value, ast.Call)
        and isinstance(d.value.func, ast.Attribute)
        and d.value.func.attr in ("items", "values")
        for d in reached
    )


def _is_surely_tensor(script: Script, transfer: Transfer, source: ast.Name) -> bool:
    """Whether a whole batch is a tensor: collated, called or used as only these are.

    Of a loader that nobody sees it may be an object of any package, whose `to` may take
    less than that of a tensor.
    """
    loaders = transfer.loop.loaders
    plain = [x.argument("collate_fn").absent and x.dataset.known for x in loaders]
    if _OF_TENSORS.match(source.id) or (plain and all(plain)):
        return True
    above = script.index.parent(transfer.call)
    given = above.targets if isinstance(above, ast.Assign) else []
    names = {n.id for n in (source, *given) if isinstance(n, ast.Name)}
    return any(
        isinstance(node, ast.Name)
        and node.id in names
        and _is_used_as_tensor(script, node)
        for node in walk(transfer.loop.node)
    )


def _is_used_as_tensor(script: Script, name: ast.Name) -> bool:
    """`x.view(…)`, `x[:, 0]`, `2 * x`, `torch.cat([x])`."""
    above = script.index.parent(name)
    if isinstance(above, ast.Attribute):
        return above.attr in _OF_ARRAYS
    if isinstance(above, ast.Subscript) and above.value is name:
        return isinstance(above.slice, ast.Tuple)
    if isinstance(above, (ast.BinOp, ast.UnaryOp)):
        return not isinstance(above.op, (ast.Mod, ast.Not))
    if isinstance(above, (ast.List, ast.Tuple)):
        above = script.index.parent(above)
    called = script.index.qualified(above.func) if isinstance(above, ast.Call) else ""
    return bool(_COMPUTES.match(called or ""))


def _keyed(script: Script, transfer: Transfer) -> str | None:
    """The name of what is moved, where it is used by keys that no tensor has."""
    above = script.index.parent(transfer.call)
    given = above.targets if isinstance(above, ast.Assign) else []
    names = [n for n in (transfer.source, *given) if isinstance(n, ast.Name)]
    return next((n.id for n in names if _has_keys(script, n, transfer.loop)), None)


def _may_be_encoding(script: Script, transfer: Transfer) -> bool:
    """Whether a loader's collate function may give what a tokenizer makes, whole."""
    source = transfer.source
    key = source.slice if isinstance(source, ast.Subscript) else None
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return False  # a tensor of it
    if isinstance(source, ast.Name) and any(
        last_name(d.value) in ("items", "values")
        for d in script.definitions(source)
        if isinstance(d.value, ast.Call)
    ):
        return False
    return not surely_has(script, "transformers", ENCODINGS_SINCE) and any(
        tokenizes(function) is not None
        for loader in transfer.loop.loaders
        for node in loader.argument("collate_fn").nodes
        for origin in script.resolver.origins(node)
        for function in run_by(origin.node, loader.evaluator)
    )


def _heads(script: Script) -> set[str]:
    return {v.partition(".")[0] for v in script.index.imports.values()}


def _has_keys(script: Script, source: ast.Name, loop: Loop) -> bool:
    """Whether a batch is used by keys or attributes that tensors do not have.

    `source`: a name that reads it, or the one that is given what is moved.
    """
    given = isinstance(source.ctx, ast.Store)
    mine = {source} if given else {d.node for d in script.definitions(source)}
    for node in walk(loop.node):
        if not (isinstance(node, ast.Name) and node.id == source.id):
            continue
        if mine.isdisjoint(d.node for d in script.definitions(node)):
            continue  # another value of that name
        above = script.index.parent(node)
        if isinstance(above, ast.keyword) and above.arg is None:
            return True
        key = above.slice if isinstance(above, ast.Subscript) else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return True
        if isinstance(above, ast.Attribute) and above.attr not in _TENSOR_ATTRIBUTES:
            call = script.index.parent(above)
            if not (isinstance(call, ast.Call) and call.func is above):
                return True
    return False


def _of_detection(script: Script, source: ast.Name, loop: Loop) -> bool:
    """Images beside a list of targets, or such targets: often types of their own."""
    for definition in script.definitions(source):
        iterated = dotted(definition.value) or ""
        above = script.index.parent(definition.node)
        if isinstance(above, ast.comprehension) and _OBJECTS.search(iterated):
            return True
    lists = [n for n in walk(loop.node) if isinstance(n, ast.ListComp)]
    boxes = any(isinstance(n.elt, ast.DictComp) for n in lists)
    return boxes and any(source.id == t.id for t in loop.targets)


def _is_name(node: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)
