"""Where a script changes a dataset after it has been made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from gpulint.index import Function
from gpulint.index.walk import FUNCTIONS, LOOPS, children, dotted, walk_scope
from gpulint.script.frameworks.lightning import runs_before_fit
from gpulint.script.loading.epochs import built_at
from gpulint.script.loading.held import uses_of_holders, values_of_holders
from gpulint.script.loading.loaders import Loader, in_loop
from gpulint.script.samples.lasting_changes import changed_by, changes_its_object

if TYPE_CHECKING:
    from gpulint.script.model import Script

Node = TypeVar("Node", bound=ast.AST)
# What may be asked of a dataset every epoch without changing it.
_READS = frozenset(
    "__len__ __getitem__ keys items get index count size copy classes decode "
    "get_labels get_classes tolist inverse_transform denormalize unnormalize".split()
)
# Functions that only look at what they are given.
_LOOKS = frozenset(
    "len print str repr type id isinstance hasattr getattr enumerate zip range list "
    "tuple set sorted iter next tqdm trange format sum min max info debug log".split()
)
_WRAPPERS = "torch.utils.data."  # `random_split`, `Subset`, `ConcatDataset`
MAX_CALLS = 40  # that lead to a place
MAX_SITES = 200  # from which a loader is built
_FRESH = (ast.Dict, ast.List, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_CONTAINERS = (ast.Dict, ast.List, ast.Set, ast.ListComp, ast.DictComp, ast.Call)


def dataset_changes(
    script: Script, loader: Loader, loop: ast.AST | None = None
) -> tuple[ast.AST, ...]:
    """All places that may change the dataset, or a transform of it.

    Looked for in all files in which the loader is seen, once for all rules. What a
    loop changes before it builds the loader anew counts only for the given one.
    """
    key = (script, loop)
    if key not in loader.changes:
        loader.changes[key] = tuple(_changes(script, loader, loop))
    return loader.changes[key]


def _changes(script: Script, loader: Loader, loop: ast.AST | None) -> Iterator[ast.AST]:
    made = set(_made(script, loader))
    for attribute in everywhere(loader, ast.Attribute):
        stored = not isinstance(attribute.ctx, ast.Load)
        if stored and _is_part(script, attribute.value, loader, made):
            yield attribute
    for item in everywhere(loader, ast.Subscript):
        stored = not isinstance(item.ctx, ast.Load)
        if stored and _is_attribute_of(script, item.value, loader, made):
            yield item
    for call in everywhere(loader, ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr in _READS:
            continue
        part = _is_part(script, func.value, loader, made) and _again(
            script, call, loader, loop
        )
        if part and not _only_reads(script, loader, made, func.attr):
            yield call
    yield from _indirect_changes(script, loader, made, loop)
    for node, as_it_runs in uses_of_holders(script, loader):
        if not as_it_runs or _again(script, node, loader, loop):
            yield node


def _only_reads(script: Script, loader: Loader, made: set[ast.AST], name: str) -> bool:
    """Whether a method changes nothing in any class that the dataset may be of.

    A dataset that is made in the loader's file is of a class defined or imported there.
    """
    home = script.index.home(loader.call)
    if not made or any(not home.holds(node) for node in made):
        return False
    homes = dict.fromkeys([home])
    members = map(home.member, home.imported)
    homes.update(dict.fromkeys(m[0] for m in members if m is not None))
    methods = [
        function
        for index in homes
        for function in index.functions
        if function.name == name and isinstance(index.parent(function), ast.ClassDef)
    ]
    return bool(methods) and not any(
        changes_its_object(method, script.evaluator) for method in methods
    )


def everywhere(loader: Loader, kind: type[Node]) -> Iterator[Node]:
    """All nodes of a class in the files in which a loader or its dataset is seen."""
    for index in loader.files_of_dataset:
        yield from index.all(kind)


def _indirect_changes(
    script: Script, loader: Loader, made: set[ast.AST], loop: ast.AST | None
) -> Iterator[ast.AST]:
    """Changes of what the dataset was made from, and calls that are handed it."""
    shared = made | set(_made_from(script, loader))
    methods = set(loader.dataset.methods)
    kinds = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Call)
    for kind in kinds:
        for node in everywhere(loader, kind):
            if script.index.function(node) in methods or not _again(
                script, node, loader, loop
            ):
                continue
            roots = [_root(t) for t in changed_by(node, script.evaluator)]
            if any(_is_one_of(script, root, shared) for root in roots):
                if not _builds(script, loader, node, roots):
                    yield node
            elif isinstance(node, ast.Call) and _may_change(script, node):
                given = [*node.args, *(k.value for k in node.keywords)]
                if any(_is_part(script, g, loader, made) for g in given):
                    yield node


def _builds(
    script: Script, loader: Loader, node: ast.AST, roots: list[ast.expr]
) -> bool:
    """Whether a function fills what it makes itself, which leads to no loader.

    `files = []` and `files.append(name)`: done before the function gives it back.
    """
    function = script.index.function(node)
    if function is None:
        return False
    if any(script.index.inside(site, function) for site in built_at(loader)):
        return False
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk_scope(function)):
        return False  # it goes on while others take what it gives
    return all(
        isinstance(root, ast.Name) and _is_made_in(script, root, function)
        for root in roots
    )


def _is_made_in(script: Script, name: ast.Name, function: Function) -> bool:
    """Whether a name is local, and each of its values is made where it gets it."""
    reached = script.definitions(name)
    return bool(reached) and all(
        script.index.inside(definition.node, function)
        and definition.kind == "assign"
        and not definition.path
        and isinstance(definition.value, _FRESH)
        for definition in reached
    )


def _root(node: ast.expr) -> ast.expr:
    """`data` of `data.__dict__`, `bank[0]`, `vars(data)`."""
    while True:
        if isinstance(node, ast.Attribute) and node.attr != "dataset":
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                return node
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and dotted(node.func) == "vars" and node.args:
            node = node.args[0]
        else:
            return node


def _is_one_of(script: Script, node: ast.expr, made: set[ast.AST]) -> bool:
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    return any(o.node in made for o in script.resolver.origins(node))


def _made_from(script: Script, loader: Loader) -> Iterator[ast.AST]:
    """Where the containers and arrays are made that the dataset was given."""
    for made in _made(script, loader):
        if not isinstance(made, ast.Call):
            continue
        for value in [*made.args, *(k.value for k in made.keywords)]:
            while isinstance(value, ast.Subscript):  # `transforms["train"]`
                value = value.value
            if isinstance(value, (ast.Name, ast.Attribute)):
                for origin in script.resolver.origins(value):
                    if isinstance(origin.node, _CONTAINERS):
                        yield origin.node


def _may_change(script: Script, call: ast.Call) -> bool:
    """Whether a call is of a function that is not seen, and may change its arguments.

    Classes and what only reads are left out.
    """
    name = script.index.qualified(call.func) or ""
    last = name.rpartition(".")[2] or getattr(call.func, "attr", "")
    made = last[:1].isupper() or last == "__init__"
    if made or last in _LOOKS or name.startswith("torch.utils.data."):
        return False
    return script.resolver.calls.callee(call) is None


def _again(script: Script, call: ast.AST, loader: Loader, loop: ast.AST | None) -> bool:
    """Whether a call may run after the first epoch: in a loop, or out of sight."""
    function = script.index.function(call)
    known = function is None or function.name == "main"
    if function is not None:
        known = known or runs_before_fit(script, function)
        known = known or bool(script.resolver.calls.callers(function))
        known = known or (function.name == "__init__" and _sets_up(script, call))
    if known and not in_loop(script.resolver, call):
        return False
    return not known or _outlasts(script, call, loader, loop)


def _outlasts(
    script: Script, node: ast.AST, loader: Loader, loop: ast.AST | None
) -> bool:
    """Whether a loop repeats a place, and does not build the loader anew each time.

    `loop`: one that does, and must not.
    """
    sites = built_at(loader, MAX_SITES)
    todo, seen = [node], {node}
    for place in todo:
        for above in script.index.ancestors(place):
            if isinstance(above, LOOPS):
                anew = any(script.index.inside(site, above) for site in sites)
                if above is loop or not anew:
                    return True
            elif isinstance(above, FUNCTIONS):
                if isinstance(above, ast.Lambda) or len(seen) > MAX_CALLS:
                    return True
                callers = script.resolver.calls.callers(above)
                todo += [call for call in callers if call not in seen]
                seen.update(callers)
                break
    return False


def _sets_up(script: Script, node: ast.AST) -> bool:
    """`self.images = …`, of an object that is being made."""
    own = script.resolver.self_name(script.index.scope(node))
    targets = node.targets if isinstance(node, ast.Assign) else []
    return bool(targets) and all(
        isinstance(t, ast.Attribute) and dotted(t.value) == own for t in targets
    )


def _made(script: Script, loader: Loader) -> Iterator[ast.AST]:
    """The calls that make the dataset, its transforms, and datasets that it wraps."""
    nodes = [n for k in ("dataset", "collate_fn") for n in loader.argument(k).nodes]
    nodes += values_of_holders(script, loader)
    seen: set[ast.AST] = set()
    while nodes:
        for origin in script.resolver.origins(nodes.pop(0)):
            call = origin.node
            if not isinstance(call, ast.Call) or call in seen:
                continue
            seen.add(call)
            yield call
            given = [*call.args, *(k.value for k in call.keywords)]
            wraps = (script.index.qualified(call.func) or "").startswith(_WRAPPERS)
            for value in [n for argument in given for n in _listed(argument)]:
                for its in script.resolver.origins(value):
                    if isinstance(its.node, ast.Call) and _transforms(script, its.node):
                        yield its.node
                    if wraps or _is_dataset(script, its.node):
                        nodes.append(value)


def _is_dataset(script: Script, node: ast.AST) -> bool:
    """Whether a node makes a dataset of torchvision, or of a class of the project."""
    if not isinstance(node, ast.Call):
        return False
    name = script.index.qualified(node.func) or ""
    own = script.resolver.classes.named(node.func)
    if own is not None:
        return "__getitem__" in script.resolver.classes.methods(own)
    return name.startswith("torchvision.datasets.")


def _listed(node: ast.expr) -> list[ast.expr]:
    """The datasets of `ConcatDataset([first, second])`, or the one of `Subset`."""
    return node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]


def _transforms(script: Script, call: ast.Call) -> bool:
    name = (script.index.qualified(call.func) or "").lower()
    local = script.resolver.classes.named(call.func) is not None
    return local or "transform" in name or "compose" in name


def _is_part(
    script: Script, node: ast.expr, loader: Loader, made: set[ast.AST]
) -> bool:
    """Whether an expression is the dataset, its transform, or `loader.dataset`."""
    for part in _handed_on(node):
        if isinstance(part, ast.Attribute) and part.attr in ("dataset", "collate_fn"):
            origins = script.resolver.origins(part.value)
            calls = [o.node for o in origins if isinstance(o.node, ast.Call)]
            if any(map(loader.is_made_by, calls)) or not calls:
                return True
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    if not made and dotted(node) == dotted(loader.argument("dataset").direct):
        return True
    for origin in script.resolver.origins(node):
        its = origin.expression
        if origin.node in made:
            return True
        if its is not node and isinstance(its, ast.Attribute) and its.attr == "dataset":
            return _is_part(script, its, loader, made)
    return False


def _handed_on(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression that reach its value: not `x` of `len(x)`."""
    if isinstance(node, ast.Call) and dotted(node.func) == "len":
        return
    yield node
    for child in children(node):
        yield from _handed_on(child)


def _is_attribute_of(
    script: Script, node: ast.expr, loader: Loader, made: set[ast.AST]
) -> bool:
    if isinstance(node, ast.Attribute):
        return _is_part(script, node.value, loader, made)
    return False
