"""Batches that pinning leaves as they are, or cannot copy."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk, walk_scope
from gpulint.script.copying.own_moves import TENSOR_ATTRIBUTES
from gpulint.script.frameworks.lightning import BATCH_HOOKS
from gpulint.script.loading.collation import collators

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

EXPANDED = "batches may hold expanded tensors, for which pinning raises"
MAX_CALLS = 2  # from what makes a batch, to what expands a tensor or makes it sparse
MAX_DEPTH = 4  # tuples in one another, and calls that give them
_EXPANDS = frozenset("expand expand_as broadcast_to broadcast_tensors".split())
_COPIES = frozenset("contiguous clone".split())
_DENSE = frozenset({"to_dense"})
SPARSE_TORCH = (2, 6)  # pins sparse tensors, and shares them with workers
_SPARSE = re.compile(
    r"to_sparse(_\w+)?|sparse_(coo|csr|csc|bsr|bsc|compressed)_tensor|to_torch_sparse\w*"
)
_SPARSE_CLASS = re.compile(r"torch(\.cuda)?\.sparse\.\w*Tensor")
# What PyTorch calls to pin an object, or what could stand in for it.
_PINS = frozenset("pin_memory __getattr__ __getattribute__".split())


def nothing_to_pin(script: Script, loader: Loader) -> bool:
    """Whether all that a collate function returns are objects without `pin_memory`.

    PyTorch pins tensors, and those in tuples, lists and dicts; of another object it
    calls the method, if there is one. NumPy's arrays have none.
    """
    made = collators(loader.argument("collate_fn"), script.evaluator)
    return bool(made) and all(
        bool(functions) and all(_returns_objects(script, f) for f in functions)
        for functions in made
    )


def hands_on_samples(script: Script, loader: Loader) -> bool:
    """Whether a batch is what the dataset gives, as it is: `collate_fn=lambda x: x[0]`.

    That may be pictures and texts, of which pinning leaves everything as it is.
    """
    made = collators(loader.argument("collate_fn"), script.evaluator)
    return bool(made) and all(
        bool(functions) and all(map(_hands_on, functions)) for functions in made
    )


def _hands_on(function: ast.AST) -> bool:
    """`lambda x: x`, `lambda x: x[0]`, or a function that only returns such."""
    if isinstance(function, ast.FunctionDef):
        (first, *others) = function.body
        value = first.value if isinstance(first, ast.Return) and not others else None
    else:
        value = function.body if isinstance(function, ast.Lambda) else None
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        value = value.value
    given = getattr(function, "args", None)
    names = [argument.arg for argument in given.args] if given is not None else []
    return isinstance(value, ast.Name) and value.id in names[-1:]


def holds_expanded(script: Script, loader: Loader) -> bool:
    """Whether batches may hold tensors that are expanded: `origin.expand(n, 3)`.

    PyTorch pins a tensor by a copy of its layout, and raises where several elements are
    one. What the default collation stacks, or `contiguous()` copies, has elements of
    its own. Whatever an object makes may be in the batches that it gives.
    """
    made = collators(loader.argument("collate_fn"), script.evaluator)
    makers = [function for functions in made for function in functions]
    owners = {script.index.owner(function) for function in makers}
    sizes = loader.values("batch_size").known
    if makers or any(size.constant is None for size in sizes):
        owners.add(loader.dataset.owner)
    for owner in filter(None, owners):
        makers += script.resolver.classes.methods(owner).values()
    return any(_calls(script, f, _expands, MAX_CALLS) for f in makers)


def torch_that_pins(script: Script, loader: Loader) -> tuple[int, int] | None:
    """The lowest release that can pin its batches, None: all can.

    Sparse tensors, if samples or batches are made of such.
    """
    made = collators(loader.argument("collate_fn"), script.evaluator)
    makers = [function for functions in made for function in functions]
    methods = loader.dataset.methods
    sparse = any(
        _calls(script, f, _makes_sparse, MAX_CALLS) for f in [*makers, *methods]
    )
    return SPARSE_TORCH if sparse else None


def _makes_sparse(script: Script, call: ast.Call) -> bool:
    name = script.index.qualified(call.func) or ""
    last = last_name(call) or ""
    made = _SPARSE.fullmatch(last) or _SPARSE_CLASS.fullmatch(name)
    return made is not None and not _is_part_of(script, call, _DENSE)


def _expands(script: Script, call: ast.Call) -> bool:
    return last_name(call) in _EXPANDS and not _is_part_of(script, call, _COPIES)


def _is_part_of(script: Script, call: ast.Call, methods: frozenset[str]) -> bool:
    """Whether a method of its result is read: `x.expand(2, 3).clone()`."""
    above = script.index.parent(call)
    return isinstance(above, ast.Attribute) and above.attr in methods


def _calls(
    script: Script,
    function: ast.AST,
    wanted: Callable[[Script, ast.Call], bool],
    depth: int,
) -> bool:
    """Whether a function, or one that it calls, has such a call."""
    for call in (node for node in walk(function) if isinstance(node, ast.Call)):
        if wanted(script, call):
            return True
        inner = script.resolver.calls.callee(call) if depth else None
        if inner is not None and _calls(script, inner, wanted, depth - 1):
            return True
    return False


def puts_in_object(script: Script, loader: Loader) -> bool:
    """Whether a collate function makes such an object of a part of each batch.

    `batch[0] = nested_tensor(batch[0])`, or `return image_list(images), labels`: of the
    batch only the rest can be pinned. Of several that may be chosen, one.
    """
    made = collators(loader.argument("collate_fn"), script.evaluator)
    return any(
        bool(functions) and all(_sets_object(script, f) for f in functions)
        for functions in made
    )


def steps_take_objects(script: Script, loader: Loader) -> bool:
    """Whether Lightning's steps read attributes of batches that no tensor or dict has.

    `batch.image`, where nobody sees what the loader's own collate function makes: an
    object, which may have no `pin_memory`.
    """
    collate = loader.argument("collate_fn")
    project = script.index.project
    if "lightning" not in script.frameworks:
        return False
    made = collators(collate, script.evaluator)
    seen = [f for functions in made for f in functions if not _is_property(f)]
    if project is None or not collate.nodes or seen:
        return False
    return any(
        _reads_attributes(function)
        for index in map(project.index, project.mentioning("def training_step("))
        for function in (index.all(ast.FunctionDef) if index is not None else ())
        if function.name in BATCH_HOOKS
    )


def joined_by_class(script: Script, loader: Loader) -> str | None:
    """The method of a package's class that joins samples: `FrameData.collate`.

    To objects of that class, which may have no `pin_memory`, or raise where PyTorch
    makes another one of their pinned parts.
    """
    given = loader.argument("collate_fn").direct
    if not isinstance(given, ast.Attribute):
        return None
    owner = (script.index.qualified(given) or "").split(".")[:-1]
    if len(owner) < 2 or not owner[-1][:1].isupper():
        return None
    if script.resolver.classes.named(given.value) is not None:
        return None
    return script.text(given)


def _is_property(function: ast.AST) -> bool:
    """Whether a function only gives the one that joins samples."""
    marks = getattr(function, "decorator_list", ())
    return "property" in map(dotted, marks)


def _reads_attributes(hook: ast.FunctionDef) -> bool:
    """Whether a method that Lightning calls for each batch takes it for an object."""
    place = 1 + BATCH_HOOKS[hook.name]
    batch = hook.args.args[place].arg if len(hook.args.args) > place else ""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == batch
        and not hasattr(dict, node.attr)
        and node.attr not in TENSOR_ATTRIBUTES
        for node in walk(hook)
    )


def _sets_object(script: Script, function: ast.AST) -> bool:
    sets = [n for n in walk(function) if isinstance(n, ast.Assign)]
    parts = [n.value for n in sets if isinstance(n.targets[0], ast.Subscript)]
    for returned in (n.value for n in walk(function) if isinstance(n, ast.Return)):
        parts += returned.elts if isinstance(returned, ast.Tuple) else []
    made = [o.expression for v in parts for o in script.resolver.origins(v)]
    return any(m is not None and _is_object(script, m, MAX_DEPTH) for m in made)


def _returns_objects(script: Script, function: ast.AST) -> bool:
    if isinstance(function, ast.Lambda):
        return _are_objects(script, [function.body], MAX_DEPTH)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    flow = script.resolver.flow(function)
    values = [v for v in flow.returns if v is not None]
    return len(values) == len(flow.returns) and _are_objects(script, values, MAX_DEPTH)


def _are_objects(script: Script, values: Iterable[ast.expr], depth: int) -> bool:
    """Whether there are values, each of which is such an object or a tuple of them.

    Beside objects there may be lists of what samples have: `[s.name for s in batch]`.
    """
    origins = [o.expression for v in values for o in script.resolver.origins(v)]
    others = [made for made in origins if not _is_collected(made)]
    if len(others) < len(origins) and all(_is_array(script, m) for m in others):
        return False  # the lists may be of tensors
    return bool(others) and all(
        made is not None and _is_object(script, made, depth) for made in others
    )


def _is_collected(made: ast.expr | None) -> bool:
    if not isinstance(made, ast.ListComp):
        return False
    return isinstance(made.elt, (ast.Name, ast.Attribute))


def _is_object(script: Script, made: ast.expr, depth: int) -> bool:
    if not depth:
        return False
    if isinstance(made, (ast.Tuple, ast.List)):
        return _are_objects(script, made.elts, depth - 1)
    if isinstance(made, ast.Dict):
        put = _put_into(script, made)
        if put is None:
            return False
        return _are_objects(script, [*made.values, *put], depth - 1)
    if not isinstance(made, ast.Call):
        return False
    if _is_array(script, made):
        return True
    owner = script.resolver.classes.named(made.func)
    if owner is not None:
        return _is_plain(script, owner)
    return _gives_objects(script, made, depth - 1)


def _is_array(script: Script, made: ast.expr | None) -> bool:
    """Whether NumPy gives it."""
    call = made if isinstance(made, ast.Call) else None
    name = script.index.home(call).qualified(call.func) if call is not None else ""
    return (name or "").startswith("numpy.")


def _put_into(script: Script, made: ast.Dict) -> list[ast.expr] | None:
    """What a function puts under the keys of a dict that it makes: `batch[key] = x`.

    None where more is done with its name than that, reading a key and returning it.
    """
    index = script.index.home(made)
    statement = index.parent(made)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return []
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    name = dotted(statement.target if not targets else targets[0])  # type: ignore[union-attr]
    if name is None or len(targets) > 1:
        return None
    put: list[ast.expr] = []
    for use in walk_scope(index.scope(made)):
        if not isinstance(use, ast.Name) or use.id != name:
            continue
        above = index.parent(use)
        around = index.parent(above) if above is not None else None
        if above is statement or isinstance(above, ast.Return):
            continue
        if not isinstance(above, ast.Subscript) or above.value is not use:
            return None
        if isinstance(above.ctx, ast.Load):
            continue
        if not isinstance(around, ast.Assign) or around.targets != [above]:
            return None
        put.append(around.value)
    return put


def _gives_objects(script: Script, call: ast.Call, depth: int) -> bool:
    """Whether a function of the project makes objects, whatever it is given.

    `image_list(images)`; what it hands back as it is given may be one already.
    """
    function = script.resolver.calls.callee(call)
    if function is None:
        return False
    its = script.of(function)
    taken = {a.arg for a in function.args.args}
    returned = its.resolver.flow(function).returns
    made = [
        value
        for value in returned
        if value is not None
        if not (isinstance(value, ast.Name) and value.id in taken)
    ]
    return bool(made) and all(_is_object(its, value, depth) for value in made)


def _is_plain(script: Script, owner: ast.ClassDef) -> bool:
    """Whether a class and all its bases are the project's, and none pins itself."""
    resolver = script.resolver
    bases = [b for known in resolver.classes.bases(owner) for b in known.bases]
    seen = (resolver.classes.named(b) is not None or _is_root(script, b) for b in bases)
    return all(seen) and not _PINS & set(resolver.classes.methods(owner))


def _is_root(script: Script, base: ast.expr) -> bool:
    return script.index.qualified(base) in ("object", "abc.ABC")
