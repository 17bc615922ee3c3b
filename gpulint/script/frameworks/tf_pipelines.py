"""Input pipelines of `tf.data`: what makes them, their operations, what takes them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Origin
from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.frameworks.tf_names import name_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

OPERATIONS = frozenset(
    "map batch padded_batch ragged_batch dense_to_ragged_batch shuffle repeat prefetch "
    "cache interleave flat_map filter take skip shard apply with_options concatenate "
    "enumerate unbatch rebatch window bucket_by_sequence_length take_while scan unique "
    "ignore_errors snapshot rejection_resample group_by_window".split()
)
BATCHES = frozenset(
    "batch padded_batch ragged_batch dense_to_ragged_batch rebatch "
    "bucket_by_sequence_length".split()
)
# Operations that nothing but a dataset of TensorFlow has.
_TELLING = frozenset(
    "prefetch padded_batch interleave with_options bucket_by_sequence_length".split()
)
_MAKERS = re.compile(
    r"^tensorflow\.data\.(experimental\.)?(\w*Dataset(\.\w+)?|make_\w+_dataset|"
    r"sample_from_datasets|choose_from_datasets)$"
    r"|^keras\.(utils|preprocessing(\.\w+)?)\.\w*dataset_from_directory$"
    r"|^keras\.utils\.(timeseries_dataset_from_array|audio_dataset_from_directory)$"
    r"|^keras\.preprocessing\.timeseries_dataset_from_array$"
    r"|^tensorflow_datasets\.load$"
)
_BATCHED = re.compile(r"(dataset_from_(directory|array)|make_\w+_dataset)$")
_JOINS = re.compile(r"\.(zip|sample_from_datasets|choose_from_datasets)$")
_WRAPPERS = frozenset("enumerate tqdm iter zip track trange list reversed".split())
_TAKERS = frozenset("fit evaluate predict fit_generator train_on_batch adapt".split())
_DISTRIBUTES = "experimental_distribute_dataset"
MAX_FILES = 8
_SHOWN = frozenset("len type str repr list tuple dict sorted".split())
FEW_WRITTEN = 64  # elements, of a list that is written out
FEW = 9  # batches at most that somebody looks at


class Upstream(NamedTuple):
    """What a dataset comes from, on all ways to it.

    `operations` from the nearest on; `makers` are the calls that begin it. `known`:
    each way leads to a maker.
    """

    operations: tuple[ast.Call, ...]
    makers: tuple[ast.Call, ...]
    known: bool

    @property
    def names(self) -> list[str]:
        """The operations' names."""
        return [last_name(call) for call in self.operations]


class Use(NamedTuple):
    """A place that takes elements: a method such as `fit`, or `for`."""

    kind: str
    node: ast.AST


class Pipelines:
    """The datasets of one file."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._upstream: dict[ast.AST, Upstream] = {}

    @cached_property
    def operations(self) -> tuple[ast.Call, ...]:
        """Calls of this file that surely are operations of a dataset, in order."""
        calls = self.script.index.all(ast.Call)
        return tuple(c for c in calls if self._is_operation(c))

    def named(self, *names: str) -> list[ast.Call]:
        """The operations of some names."""
        return [c for c in self.operations if last_name(c) in names]

    def before(self, call: ast.Call) -> Upstream:
        """What the dataset that an operation takes comes from."""
        assert isinstance(call.func, ast.Attribute)
        return self.upstream(call.func.value)

    def upstream(self, node: ast.expr) -> Upstream:
        """What the dataset that an expression is comes from."""
        if node not in self._upstream:
            self._upstream[node] = Upstream((), (), True)  # a cycle adds nothing
            self._upstream[node] = self._find_upstream(node)
        return self._upstream[node]

    def _find_upstream(self, node: ast.expr) -> Upstream:
        operations: list[ast.Call] = []
        makers: list[ast.Call] = []
        known = True
        for origin in self.script.resolver.origins(node):
            found = self._of_origin(origin)
            known = known and found is not None and found.known
            operations += found.operations if found else ()
            makers += found.makers if found else ()
        return Upstream(
            tuple(dict.fromkeys(operations)), tuple(dict.fromkeys(makers)), known
        )

    def _of_origin(self, origin: Origin) -> Upstream | None:
        """What one origin is as a dataset; None where it is none that is known."""
        node = origin.node
        if isinstance(node, ast.Subscript) and origin.expression is not None:
            made = self.upstream(node.value)  # `tfds.load(…)["train"]`
            return made if made.makers and not made.operations else None
        if not isinstance(node, ast.Call) or origin.kind != "expression":
            return None
        name = name_of(self.script, node.func)
        if _MAKERS.match(name):
            joined = [self.upstream(part) for part in _parts(node, name)]
            calls = [c for part in joined for c in part.operations]
            return Upstream(tuple(calls), (node,), all(p.known for p in joined))
        if origin.path or not _looks_like_operation(node):
            return None
        before = self.before(node)
        return before._replace(operations=(node, *before.operations))

    def _is_operation(self, call: ast.Call) -> bool:
        if not _looks_like_operation(call):
            return False
        before = self.before(call)
        if before.makers:  # on one way at least
            return True
        others = {*before.names, *self._after(call)}
        return bool(others & _TELLING) and "datasets" not in self.script.index.packages

    def _after(self, call: ast.Call) -> Iterator[str]:
        """Names of the operations that follow in the same expression or by name."""
        seen: set[ast.AST] = set()
        todo: list[ast.Call] = [call]
        while todo:
            current = todo.pop()
            if current not in seen:
                seen.add(current)
                taken = self._takers.get(current, ())
                yield from map(last_name, taken)
                todo += taken

    @cached_property
    def _takers(self) -> dict[ast.AST, list[ast.Call]]:
        """Operations of this file by the calls whose results they take."""
        takers: dict[ast.AST, list[ast.Call]] = defaultdict(list)
        for call in self.script.index.all(ast.Call):
            receivers: list[ast.expr] = []
            if _looks_like_operation(call):
                assert isinstance(call.func, ast.Attribute)
                receivers = [call.func.value]
            receivers += _parts(call, name_of(self.script, call.func))
            for receiver in receivers:
                for origin in self.script.resolver.origins(receiver):
                    if isinstance(origin.node, ast.Call):
                        takers[origin.node].append(call)
        return takers

    def taken(self, call: ast.Call) -> list[ast.Call]:
        """Operations that take what one gives, in all files that are given it."""
        return [c for its in self._files(call) for c in its._takers.get(call, ())]

    def uses(self, call: ast.Call) -> list[Use]:
        """Where elements are taken of what an operation gives."""
        return [u for its in self._files(call) for u in its._uses.get(call, ())]

    def final_uses(self, call: ast.Call) -> list[Use]:
        """The same of all operations that go on with it."""
        return [use for its in (call, *self.behind(call)) for use in self.uses(its)]

    def behind(self, call: ast.Call) -> list[ast.Call]:
        """All operations that go on with what one gives."""
        found: dict[ast.Call, None] = {}
        todo = [call]
        while todo:
            new = [c for c in self.taken(todo.pop()) if c not in found]
            found.update(dict.fromkeys(new))
            todo += new
        found.pop(call, None)
        return list(found)

    def _files(self, call: ast.Call) -> list[Pipelines]:
        """This file, and those whose calls lead to the function of an operation."""
        found: dict[Script, None] = {self.script.of(call): None}
        todo: list[ast.AST] = [call]
        while todo and len(found) < MAX_FILES:
            function = self.script.index.function(todo.pop())
            for caller in (
                self.script.resolver.calls.callers(function) if function else ()
            ):
                home = self.script.of(caller)
                if home not in found:
                    found[home] = None
                    todo.append(caller)
        return [script.pipelines for script in found]

    @cached_property
    def _uses(self) -> dict[ast.AST, list[Use]]:
        """Places of this file that take elements, by what gives the dataset."""
        uses: dict[ast.AST, list[Use]] = defaultdict(list)
        for use, value in self._takes():
            for origin in self.script.resolver.origins(_unwrapped(value)):
                uses[origin.node].append(use)
        return uses

    def _takes(self) -> Iterator[tuple[Use, ast.expr]]:
        index = self.script.index
        for loop in index.all(ast.For):
            kind = "look" if _is_look(loop) else "for"
            values = [loop.iter]
            if isinstance(loop.iter, ast.Call) and last_name(loop.iter) == "zip":
                values = list(loop.iter.args)
            yield from ((Use(kind, loop), value) for value in values)
        for call in index.all(ast.Call):
            name = last_name(call)
            if name in _TAKERS or name == _DISTRIBUTES:
                yield from ((Use(name, call), value) for value in call.args[:1])
                for keyword in call.keywords:
                    kind = name if keyword.arg in ("x", "data") else "evaluate"
                    yield Use(kind, call), keyword.value
            elif name == "iter":
                yield from ((Use("iter", call), value) for value in call.args[:1])


def gives_batches(upstream: Upstream, script: Script) -> bool:
    """Whether elements are batches already."""
    if any(name in BATCHES for name in upstream.names):
        return True
    return any(_BATCHED.search(name_of(script, m.func)) for m in upstream.makers)


def spot(call: ast.Call) -> ast.expr:
    """Where an operation in a chain of many lines is pointed at."""
    given = [*call.args, *(k.value for k in call.keywords)]
    return given[0] if given else call.func


def is_written_out(upstream: Upstream) -> bool:
    """Whether all elements stand in the program: `from_tensor_slices([3, 2, 1])`."""
    given = [call.args[0] if call.args else None for call in upstream.makers]
    return bool(given) and all(
        isinstance(value, ast.List)  # a tuple has the parts of each element
        and len(value.elts) <= FEW_WRITTEN
        and all(isinstance(element, ast.Constant) for element in value.elts)
        and last_name(call) == "from_tensor_slices"
        for call, value in zip(upstream.makers, given, strict=True)
    )


def is_looked_at(call: ast.Call) -> bool:
    """`take(3)`: only a few elements are wanted."""
    few = call.args[0] if call.args else None
    number = few.value if isinstance(few, ast.Constant) else None
    return last_name(call) == "take" and isinstance(number, int) and 0 <= number <= FEW


def _is_look(loop: ast.For) -> bool:
    """A loop that ends in its first turn, or prints its elements: somebody looks."""
    return isinstance(loop.body[-1], ast.Break) or all(map(_prints, loop.body))


def _prints(statement: ast.stmt) -> bool:
    """`print(item.numpy(), len(item))`, and not what a model makes of it."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or dotted(call.func) != "print":
        return False
    calls = (n for n in walk(call) if isinstance(n, ast.Call) and n is not call)
    return all(_shows(its) for its in calls)


def _shows(call: ast.Call) -> bool:
    plain = isinstance(call.func, ast.Attribute) and not call.args
    return plain or dotted(call.func) in _SHOWN


def _looks_like_operation(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in OPERATIONS


def _parts(call: ast.Call, name: str) -> list[ast.expr]:
    """The datasets that `zip`, `concatenate` and the like put together."""
    if last_name(call) == "concatenate":
        return call.args[:1]
    if not (name.startswith("tensorflow.data.") and _JOINS.search(name)):
        return []
    return _leaves(call.args if name.endswith("zip") else call.args[:1])


def _leaves(nodes: Iterable[ast.expr]) -> list[ast.expr]:
    """What stands in tuples, lists and dicts."""
    found: list[ast.expr] = []
    for node in nodes:
        if isinstance(node, (ast.Tuple, ast.List)):
            found += _leaves(node.elts)
        elif isinstance(node, ast.Dict):
            found += _leaves(node.values)
        else:
            found.append(node)
    return found


def _unwrapped(value: ast.expr) -> ast.expr:
    """The dataset in `enumerate(tqdm(dataset))`."""
    while isinstance(value, ast.Call) and last_name(value) in _WRAPPERS and value.args:
        if isinstance(value.func, ast.Attribute) and last_name(value) == "enumerate":
            break  # `dataset.enumerate()`
        value = value.args[0]
    return value
