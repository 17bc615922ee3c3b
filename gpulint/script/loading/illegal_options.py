"""Options of a loader that `DataLoader` refuses together, as the script has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Value, Values
from gpulint.index.walk import dotted
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords, without_keywords
from gpulint.script.settings.setting_values import is_setting

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

NEED_WORKERS = (
    "persistent_workers",
    "prefetch_factor",
    "multiprocessing_context",
    "timeout",
)
NONE_SINCE = (2, 0)  # the first torch with None for the default `prefetch_factor`
_ITERABLE = frozenset(f"torch.utils.data.{n}IterableDataset" for n in ("", "dataset."))


class Refused(NamedTuple):
    """An option that raises an error beside another one.

    `other` is where the value of the other one is written, None where it is absent;
    `late`: only the first pass over the loader raises; `default`: one of both is a
    default that a user may replace.
    """

    option: str
    at: ast.expr
    reason: str
    other: ast.expr | None = None
    late: bool = False
    default: bool = False


def refused_options(script: Script, loader: Loader) -> list[Refused]:
    """Each option of a call that raises because of another one."""
    if loader.decided_by_runtime or _is_tried(script, loader.call):
        return []
    return [
        *_prefetches_nothing(script, loader),
        *_beside_sampler(script, loader),
        *_of_iterable(script, loader),
    ]


def workers_wanted(script: Script, loader: Loader) -> list[Refused]:
    """The options that raise because the loader has no workers."""
    if loader.decided_by_runtime or _is_tried(script, loader.call):
        return []
    return list(_without_workers(script, loader))


def _is_tried(script: Script, call: ast.Call) -> bool:
    """Whether the error is caught: a script may try what a release of torch takes."""
    child: ast.AST = call
    for above in script.index.ancestors(call):
        if isinstance(above, ast.Try) and child in above.body and above.handlers:
            return True
        child = above
    return False


# Options of worker processes


def _without_workers(script: Script, loader: Loader) -> Iterator[Refused]:
    workers = loader.argument("num_workers")
    none = loader.values("num_workers")
    if not workers.absent and not (workers.given and none.all_in(0)):
        return
    if any(is_setting(script, v.node) for v in none.known):
        return
    other = none.known[0].node if none.known else None
    for option in NEED_WORKERS:
        node = _given_node(script, loader, option)
        if node is None or not _needs_workers(script, loader, option):
            continue
        values = [*none.known, *loader.values(option).known]
        if any(_is_of_nobody(script, v) for v in values):
            continue
        default = any(v.default for v in values)
        reason = "there are no workers"
        late = option == "timeout"
        yield Refused(option, node, reason, other, late, default)


def _is_of_nobody(script: Script, value: Value) -> bool:
    """Whether a value is the default of a function that nothing is seen to call."""
    holder = script.index.parent(value.node)
    if not isinstance(holder, ast.arguments):
        return False
    function = script.index.parent(holder)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    owner = script.index.parent(function)
    if function.name == "__init__" and isinstance(owner, ast.ClassDef):
        return not script.resolver.classes.constructors(owner)
    return not script.resolver.calls.callers(function)


def _given_node(script: Script, loader: Loader, option: str) -> ast.expr | None:
    """The expression that an option surely is; None where settings have the word."""
    argument = loader.argument(option)
    if not argument.given or not argument.nodes:
        return None
    values = loader.values(option)
    if any(is_setting(script, v.node) for v in values.known):
        return None
    return argument.direct or argument.nodes[0]


def _needs_workers(script: Script, loader: Loader, option: str) -> bool:
    """Whether `DataLoader` refuses what an option is where there are no workers."""
    values = loader.values(option)
    if option == "multiprocessing_context" and not values.complete:
        return _is_context(script, loader)
    if not values.complete or not values.known:
        return False
    constants = [v.constant for v in values.known]
    if option == "persistent_workers":
        return all(c is True for c in constants)
    if option == "multiprocessing_context":
        return all(isinstance(c, str) for c in constants)
    if option == "timeout":
        return all(isinstance(c, (int, float)) and c > 0 for c in constants)
    old = script.torch_version is not None and script.torch_version < NONE_SINCE
    return all(type(c) is int and not (old and c == 2) for c in constants)


def _is_context(script: Script, loader: Loader) -> bool:
    """Whether a `multiprocessing_context` is what `get_context` gives."""
    nodes = loader.argument("multiprocessing_context").nodes
    origins = [o for n in nodes for o in script.resolver.origins(n)]
    return bool(origins) and all(
        o.call is not None
        and (dotted(o.call.func) or "").rpartition(".")[2] == "get_context"
        for o in origins
    )


def _prefetches_nothing(script: Script, loader: Loader) -> Iterator[Refused]:
    """`prefetch_factor=0` with workers."""
    node = _given_node(script, loader, "prefetch_factor")
    its = loader.values("num_workers")
    some = its.complete and bool(its.known) and all(map(_is_some, its.known))
    if node is not None and some and loader.values("prefetch_factor").all_in(0):
        reason = "workers must load at least one batch ahead"
        yield Refused("prefetch_factor", node, reason, its.known[0].node, late=True)


def _is_some(value: object) -> bool:
    constant = getattr(value, "constant", None)
    return type(constant) is int and constant > 0


# Samplers


def _beside_sampler(script: Script, loader: Loader) -> Iterator[Refused]:
    batches = _object(script, loader, "batch_sampler")
    sampler = _object(script, loader, "sampler")
    if batches is not None:
        reason = "`batch_sampler` makes the batches"
        for option in ("batch_size", "shuffle", "drop_last"):
            node = _given_node(script, loader, option)
            if node is not None and _is_chosen(option, loader.values(option)):
                yield Refused(option, node, reason, batches)
        if sampler is not None:
            yield Refused("sampler", sampler, reason, batches)
        return
    shuffle = _given_node(script, loader, "shuffle")
    twice = sampler is not None and loader.values("shuffle").all_in(True)
    if twice and shuffle is not None:
        yield Refused("shuffle", shuffle, "`sampler` gives the order", sampler)
    dropped = _given_node(script, loader, "drop_last")
    if dropped is not None and loader.values("batch_size").all_in(None):
        size = loader.argument("batch_size").nodes[0]
        if loader.values("drop_last").all_in(True):
            yield Refused("drop_last", dropped, "`batch_size` is None", size)


def _is_chosen(option: str, values: Values) -> bool:
    """Whether an option is surely not what `DataLoader` has by default."""
    if option != "batch_size":
        return values.all_in(True)
    return values.complete and bool(values.known) and not values.any_in(1)


def _object(script: Script, loader: Loader, option: str) -> ast.expr | None:
    """The expression of an option that is surely an object, not None."""
    argument = loader.argument(option)
    if not argument.given or not argument.nodes:
        return None
    origins = [o for n in argument.nodes for o in script.resolver.origins(n)]
    made = [_makes_object(script, o.expression) and not o.default for o in origins]
    return argument.direct or argument.nodes[0] if made and all(made) else None


def _makes_object(script: Script, node: ast.expr | None) -> bool:
    if isinstance(node, (ast.List, ast.ListComp)):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = (script.index.qualified(node.func) or "").rpartition(".")[2]
    known = script.resolver.classes.named(node.func) is not None
    return known or (name[:1].isupper() and name.endswith("Sampler"))


# Iterable datasets


def _of_iterable(script: Script, loader: Loader) -> Iterator[Refused]:
    owners = iterable_classes(script, loader)
    if not owners:
        return
    reason = f"`{owners[0].name}` is an iterable dataset and gives the order itself"
    shuffle = _given_node(script, loader, "shuffle")
    if shuffle is not None and loader.values("shuffle").all_in(True):
        yield Refused("shuffle", shuffle, reason, loader.argument("dataset").nodes[0])
    for option in ("sampler", "batch_sampler"):
        node = _object(script, loader, option)
        if node is not None:
            yield Refused(option, node, reason, loader.argument("dataset").nodes[0])


def iterable_classes(script: Script, loader: Loader) -> list[ast.ClassDef]:
    """The classes of the dataset, where each of them is an `IterableDataset`."""
    found: list[ast.ClassDef] = []
    nodes = loader.argument("dataset").nodes
    for origin in (o for n in nodes for o in script.resolver.origins(n)):
        call = origin.call
        owner = script.resolver.classes.named(call.func) if call is not None else None
        if owner is None or not script.resolver.classes.base_names(owner) & _ITERABLE:
            return []
        found.append(owner)
    return found


def number_of_workers(loader: Loader) -> int | None:
    """The least number of workers that a loader is known to have; None: not known."""
    its = loader.values("num_workers")
    if not its.complete or not its.known or not all(map(_is_some, its.known)):
        return None
    return min(int(str(v.constant)) for v in its.known)


# Rewriting


def without_refused(
    script: Script, loader: Loader, refused: list[Refused]
) -> tuple[Rewrite | None, str | None]:
    """Options that need workers left out, or tied to the number, or why they cannot.

    A loader that never has workers loses them. Where the number is a name that may be
    another one, they are set if it is not 0: a program that ran before gets the same.
    """
    names = [r.option for r in refused]
    if not all(_is_keyword(loader, name) for name in names):
        return None, "the options are not keywords of this call"
    workers = loader.argument("num_workers")
    listed = " and ".join(f"`{name}`" for name in names)
    if workers.absent or isinstance(workers.direct, ast.Constant):
        title = f"Leave out {listed}, which need workers"
        if len(names) == 1:
            title = f"Leave out {listed}, which needs workers"
        return Rewrite(title, (Replace(loader.call, without_keywords(*names)),)), None
    number = dotted(workers.direct) if workers.direct is not None else None
    if number is None:
        return None, "the number of workers is not a name in this call"
    tied = {r.option: _tied(script, r, number) for r in refused}
    since = NONE_SINCE if "prefetch_factor" in tied else None
    edits = (Replace(loader.call, set_keywords(**tied)),)
    return Rewrite(f"Set {listed} only where there are workers", edits, (), since), None


def _is_keyword(loader: Loader, name: str) -> bool:
    return any(k.arg == name for k in loader.call.keywords)


def _tied(script: Script, refused: Refused, number: str) -> str:
    """An option's code, for the case that there are workers."""
    node = refused.at
    simple = isinstance(node, (ast.Constant, ast.Name, ast.Attribute, ast.Call))
    code = script.text(node) if simple else f"({script.text(node)})"
    if refused.option == "persistent_workers":
        fixed = isinstance(node, ast.Constant)
        return f"{number} > 0" if fixed else f"{code} and {number} > 0"
    none = "0" if refused.option == "timeout" else "None"
    return f"{code} if {number} > 0 else {none}"
