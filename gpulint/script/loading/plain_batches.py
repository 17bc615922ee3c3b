"""Batches of texts and numbers alone, of which pinning leaves everything as it is."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Definition
from gpulint.index.build import last_name
from gpulint.index.walk import walk, whole_of
from gpulint.script.loading.collation import collators

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

MAX_PARTS = 40  # functions and classes that make a batch
# Modules whose functions give no tensors, unless they are given some.
_PLAIN_MODULES = frozenset(
    "abc argparse bisect bz2 calendar codecs collections contextlib copy csv cytoolz "
    "dataclasses datetime enum functools glob gzip hashlib heapq html io itertools "
    "json lzma logging math more_itertools numbers numpy operator os pathlib random re "
    "statistics string tarfile textwrap time toolz tqdm typing unicodedata warnings "
    "zipfile".split()
)
_RUN_TEXT = frozenset("eval exec compile __import__ globals locals vars".split())
_GIVEN = frozenset(dir(builtins)) - _RUN_TEXT | {"__file__"}
_ROOTS = frozenset(
    "object abc.ABC torch.utils.data.Dataset torch.utils.data.dataset.Dataset "
    "torch.utils.data.IterableDataset torch.utils.data.dataset.IterableDataset".split()
)
_FILLED = frozenset("list dict set defaultdict OrderedDict deque Counter".split())
_PARSES = frozenset("parse_args parse_known_args".split())


def holds_plain_values(script: Script, loader: Loader) -> bool:
    """Whether no tensor can be in the batches: its code is seen, and names no library.

    All of the collate function and of the dataset's class, with what they use of this
    project, is made of Python's own functions and of modules that know no tensors;
    and what the objects are given are texts, numbers and options.
    """
    collate = loader.argument("collate_fn")
    made = collators(collate, script.evaluator)
    functions = [function for its in made for function in its]
    if loader.derived or not collate.given or not functions or not all(made):
        return False
    parts = _Parts(script)
    known = all(map(parts.add_object, _objects(script, loader)))
    return known and all(map(parts.add_function, functions)) and parts.are_plain()


def _objects(script: Script, loader: Loader) -> list[ast.expr | None]:
    """What makes the datasets, and objects that join their samples."""
    origins = script.resolver.origins
    datasets = [o for n in loader.argument("dataset").nodes for o in origins(n)]
    joining = [o for n in loader.argument("collate_fn").nodes for o in origins(n)]
    objects = [o.call for o in joining if isinstance(o.node, ast.Call)]
    return [*(o.call for o in datasets), *objects] if datasets else [None]


class _Parts:
    """The code that makes batches, found part by part."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._found: list[ast.AST] = []  # each once
        self._owners: set[ast.AST] = set()
        self._asked: set[ast.expr] = set()

    def add_object(self, made: ast.expr | None) -> bool:
        """With the class that a call makes an object of; False: that is not known."""
        if not isinstance(made, ast.Call):
            return False
        owner = self.script.resolver.classes.named(made.func)
        given = [*made.args, *(k.value for k in made.keywords)]
        if owner is None or not all(map(self._is_flat, given)):
            return False
        return self._add_class(owner)

    def add_function(self, function: ast.AST) -> bool:
        """With a function; False: it is a method of an object that is not known."""
        above = self.script.index.parent(function)
        self._add(function)
        return not isinstance(above, ast.ClassDef) or above in self._owners

    def _add(self, *parts: ast.AST) -> None:
        self._found += [part for part in parts if part not in self._found]

    def _add_class(self, owner: ast.ClassDef) -> bool:
        classes, index = self.script.resolver.classes, self.script.index
        family = classes.bases(owner)
        self._owners.update(family)
        self._add(*family)
        bases = [
            base.value if isinstance(base, ast.Subscript) else base
            for each in family
            for base in each.bases
        ]
        return all(
            classes.named(base) is not None
            or index.qualified(base) in _ROOTS
            or self._is_plain_name(base)
            for base in bases
        )

    def are_plain(self) -> bool:
        """Whether all names that the parts read are known to stand for no tensors."""
        for number, part in enumerate(self._found):  # which grow
            if number > MAX_PARTS or not all(map(self._is_known, _read(part))):
                return False
        return True

    def _is_known(self, read: ast.Name | ast.Attribute) -> bool:
        found = self.script.resolver.definitions(read)
        if isinstance(read, ast.Attribute):
            own = [self._is_inside(d.node) for d in found]
            return all(own) and bool(own or not self._is_own(read))
        if not found:
            return read.id in _GIVEN
        return all(self._leads_on(read, definition) for definition in found)

    def _is_own(self, read: ast.Attribute) -> bool:
        """Whether it is an attribute of `self`, which who makes it may have set."""
        resolver, holder = self.script.resolver, read.value
        own = resolver.self_name(self.script.index.scope(read))
        return isinstance(holder, ast.Name) and holder.id == own

    def _leads_on(self, name: ast.Name, definition: Definition) -> bool:
        """Whether a name is bound by a part, to one more, or to something plain."""
        if self._is_inside(definition.node):
            return True
        resolver = self.script.resolver
        finals = [final.node for final in resolver.final(definition)]
        for node in finals:
            if isinstance(node, ast.ClassDef):
                if not self._add_class(node):
                    return False
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._add(node)
            elif isinstance(node, ast.alias):
                return self._is_plain_name(name)
            else:
                return self._is_flat(name)
        return bool(finals)

    def _is_inside(self, node: ast.AST) -> bool:
        index = self.script.index
        return any(node is part or index.inside(node, part) for part in self._found)

    def _is_plain_name(self, name: ast.expr) -> bool:
        """Whether it is Python's own, or that of a module without tensors."""
        index = self.script.index
        if not index.is_import(name):
            own = isinstance(name, ast.Name) and name.id in _GIVEN
            return own and not self.script.resolver.definitions(name)
        first = (index.qualified(name) or "").partition(".")[0]
        return first in _PLAIN_MODULES and not index.home(name).owns(first)

    def _is_flat(self, value: ast.expr) -> bool:
        """Whether something is a text, a number, an option, or a list of such.

        Not what may be filled later on: `samples = []`.
        """
        if value in self._asked:
            return True  # `step = step + 1`
        self._asked.add(value)
        return all(
            self._comes_flat(origin.expression)
            for origin in self.script.resolver.origins(value)
        )

    def _comes_flat(self, made: ast.expr | None) -> bool:
        if isinstance(made, (ast.Constant, ast.JoinedStr)):
            return True
        if isinstance(made, (ast.List, ast.Tuple)):
            return bool(made.elts) and all(
                isinstance(e, ast.Constant) for e in made.elts
            )
        if isinstance(made, ast.BinOp):
            return self._is_flat(made.left) and self._is_flat(made.right)
        if isinstance(made, (ast.Attribute, ast.Subscript)):
            return self._is_plain_name(whole_of(made)) or self._is_flat(made.value)
        if not isinstance(made, ast.Call) or last_name(made) in _FILLED:
            return False
        if last_name(made) in _PARSES:
            return True
        given = [*made.args, *(k.value for k in made.keywords)]
        method = isinstance(made.func, ast.Attribute) and self._is_flat(made.func.value)
        plain = self._is_plain_name(made.func) or method
        return plain and all(map(self._is_flat, given))


def _read(part: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    """The names and attributes that a function, or the body of a class, reads."""
    body = part.body if isinstance(part, ast.ClassDef) else [part]
    marks = part.decorator_list if isinstance(part, ast.ClassDef) else []
    for node in walk(*marks, *body):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(
            node.ctx, ast.Load
        ):
            yield node
