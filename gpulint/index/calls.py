"""Calls and functions of a project: what a call runs, and what callers pass."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import FileIndex, Function, last_name
from gpulint.index.chosen import may_be_chosen
from gpulint.index.classes import own_methods
from gpulint.index.project import MAX_IMPORTERS
from gpulint.index.walk import dotted
from gpulint.source import NOTEBOOK

if TYPE_CHECKING:
    from gpulint.index.resolve import Resolver

# Methods of tensors, arrays and lists: no look at what their object is made of.
TENSOR_METHODS = frozenset(
    "view reshape size permute transpose item backward zero_grad append extend float "
    "long int unsqueeze squeeze mean sum max min format join split strip numpy cpu "
    "detach contiguous cuda to parameters state_dict load_state_dict expand repeat "
    "flatten clone dim numel astype tolist keys values items index count sort pop "
    "add_argument parse_args register_buffer zeros_like norm pow sqrt abs exp log "
    "softmax matmul bmm masked_fill gather scatter topk argmax".split()
)
# Methods that an object has which is a network.
OF_MODULES = ("parameters", "state_dict", "named_parameters", "modules")
# Method names too common to identify a class by.
_COMMON_METHODS = frozenset(
    "forward step update run get close reset add append load save __call__ to cuda "
    "eval items keys values copy write read start stop backward zero_grad".split()
)
MAX_HEIRS = 8  # that write a method which their class leaves to them


class Calls:
    """What the calls of all files run, from both sides. Each answer is computed once.

    `only` are the calls that some functions are taken to have, and no others.
    """

    def __init__(
        self, resolver: Resolver, only: dict[Function, list[ast.Call]] | None = None
    ) -> None:
        self.resolver = resolver
        self.index = resolver.index
        self._callees: dict[ast.Call, tuple[Function, ...]] = {}
        self.reached: dict[Function, tuple[Function, ...]] = {}  # by what one runs
        self.only = only or {}
        self._callers = {function: (its, False) for function, its in self.only.items()}

    def callee(self, call: ast.Call) -> Function | None:
        """The function or method of this project that a call runs, if it is sure."""
        found = self.callees(call)
        return found[0] if len(found) == 1 else None

    def callees(self, call: ast.Call) -> tuple[Function, ...]:
        """Functions of this project, one of which a call surely runs."""

        def found() -> tuple[Function, ...]:
            return tuple(self._find_callees(call)) if self._may_be_own(call) else ()

        return self.resolver.answers.first(self._callees, call, found, ())

    def _may_be_own(self, call: ast.Call) -> bool:
        """A cheap look at the name: most calls are of other packages."""
        home = self.index.home(call)
        name = last_name(call)
        if isinstance(call.func, ast.Name) and name in home.dispatched:
            return True
        if name in home.function_names or (home.stars and home.project is not None):
            return name not in TENSOR_METHODS or name in home.function_names
        if home.project is None or name in TENSOR_METHODS:
            return False
        head = (dotted(call.func) or "").partition(".")[0]
        origin = home.imports.get(head)
        if origin is not None:
            return home.owns(origin)
        method = isinstance(call.func, ast.Attribute) and home.uses_project
        return method and home.project.defines(name)

    def _find_callees(self, call: ast.Call) -> list[Function]:
        func = call.func
        if isinstance(func, ast.Name):
            return _functions(self.resolver.named(func)) or self._dispatched(func)
        if isinstance(func, ast.Attribute):
            if isinstance(func.value, ast.Call) and last_name(func.value) == "super":
                return self._of_bases(call, func.attr)
            owners = self.resolver.classes.of(func.value)
            if owners:
                its = [f for o in owners for f in self._methods(o, func.attr)]
                return _functions(its)
            only = self._member_function(call, func)
            return [only] if only is not None else []
        return []

    def _methods(self, owner: ast.ClassDef, name: str) -> list[Function | None]:
        """A class's method of a name; of one that it leaves to its heirs, theirs."""
        its = self.resolver.classes.methods(owner).get(name)
        if its is not None and not is_abstract(its):
            return [its]
        return [*self._of_heirs(owner, name)] or [its]

    def _of_bases(self, call: ast.Call, name: str) -> list[Function]:
        """The method that `super().name(…)` runs, of the next base that writes one.

        Not of a class with several bases, or one that may stand beside others.
        """
        owner = self.index.home(call).owner(call)
        line = self.resolver.classes.bases(owner) if owner is not None else []
        bases = line[1:] if all(len(c.bases) < 2 for c in line) else ()
        own = (own_methods(base).get(name) for base in bases)
        return [found for found in own if found is not None][:1]

    def _of_heirs(self, owner: ast.ClassDef, name: str) -> list[Function]:
        """The methods that heirs of a class write for it; none where they are many."""
        found: dict[Function, None] = {}
        heirs = self.resolver.outside.descendants(owner)
        for heir in itertools.islice(heirs, MAX_HEIRS + 1):
            its = self.resolver.classes.methods(heir).get(name)
            if its is not None and not is_abstract(its):
                found[its] = None
        return list(found) if len(found) <= MAX_HEIRS else []

    def _dispatched(self, func: ast.Name) -> list[Function]:
        """The functions of a written dict, one of which a name was given by its key."""
        if func.id not in self.index.home(func).dispatched:
            return []
        found: dict[Function, None] = {}
        for definition in self.resolver.definitions(func):
            taken = definition.value
            if not isinstance(taken, ast.Subscript) or definition.path:
                return []
            for origin in self.resolver.origins(taken.value):
                table = origin.expression
                if not isinstance(table, ast.Dict):
                    return []
                for value in table.values:
                    its = _functions(self._members(value))
                    if not its:
                        return []  # of another package, or none
                    found.update(dict.fromkeys(its))
        return list(found)

    def _members(self, value: ast.expr) -> list[ast.AST]:
        """What a name stands for, or `module.name`."""
        if not isinstance(value, ast.Attribute):
            return self.resolver.named(value) if isinstance(value, ast.Name) else []
        return [
            final.node
            for definition in self.resolver.module_member(value)
            for final in self.resolver.final(definition)
        ]

    def _member_function(self, call: ast.Call, func: ast.Attribute) -> Function | None:
        """A module's function, or the only method of that name."""
        home = self.index.home(func)
        if dotted(func) is not None and not home.is_import(func):
            method = self._only_method(home, func.attr)
            if method is None or not self.takes(method, call):
                return None
            if home.owner(call) is home.parent(method):
                return None  # what an object holds is seldom of its own class
            foreign = _sets_mode(home, func, call) or self._is_foreign(home, func.value)
            return None if foreign or home.inside(call, method) else method
        found = set(self._members(func))
        only = found.pop() if len(found) == 1 else None
        both = (ast.FunctionDef, ast.AsyncFunctionDef)
        return only if isinstance(only, both) else None

    def _only_method(self, home: FileIndex, name: str) -> Function | None:
        """The file's one method of that name, unless the name is a common one."""
        if name in _COMMON_METHODS or name.startswith("__"):
            return None
        found = [
            f
            for f in home.functions
            if f.name == name and isinstance(home.parent(f), ast.ClassDef)
        ]
        return found[0] if len(found) == 1 else None

    def _is_foreign(self, home: FileIndex, value: ast.expr) -> bool:
        """Whether a value may be what another package makes: `self.words = Words()`."""
        made = [o.expression for o in self.resolver.origins(value)]
        heads = ((dotted(m.func) or "") for m in made if isinstance(m, ast.Call))
        names = (home.imports.get(head.partition(".")[0]) for head in heads)
        return any(name is not None and not home.owns(name) for name in names)

    def takes(self, function: Function, call: ast.Call) -> bool:
        """Whether a call passes a function each of its parameters once, and no more."""
        args = function.args
        bound = self.resolver.self_name(function) is not None
        names = [a.arg for a in [*args.posonlyargs, *args.args]][bound:]
        spread = any(isinstance(a, ast.Starred) for a in call.args)
        given = {k.arg for k in call.keywords}
        if len(call.args) > len(names) and args.vararg is None and not spread:
            return False
        placed = set(names[: len(call.args)]) - {a.arg for a in args.posonlyargs}
        if not spread and given & placed:
            return False  # by position and by name
        known = {*names, *(a.arg for a in args.kwonlyargs), None}
        if not given <= known and args.kwarg is None:
            return False
        needed = names[len(call.args) : len(names) - len(args.defaults)]
        return spread or None in given or set(needed) <= given

    def callers(self, function: Function) -> list[ast.Call]:
        """Calls of a function, a method, or (as `__init__`) a class, own file first."""
        return self._all_callers(function)[0]

    def _all_callers(self, function: Function) -> tuple[list[ast.Call], bool]:
        """The calls that are found, and whether those of too many files are not."""

        def found() -> tuple[list[ast.Call], bool]:
            home = self.index.home(function)
            others = self._importers(home, function)
            calls = list(self._callers_in(home, function))
            for other in self.beside(home, others or ()):
                calls += self._callers_in(other, function)
            return calls, others is None

        return self.resolver.answers.first(self._callers, function, found, ([], False))

    def beside(self, home: FileIndex, others: Iterable[FileIndex]) -> list[FileIndex]:
        """Files that use a file, and the notebook that is looked at, if it is one.

        No search finds a notebook: nobody but itself runs it.
        """
        found = [other for other in others if other is not home]
        path = self.index.source.path
        if path.suffix == NOTEBOOK and self.index is not home:
            found.append(self.index)
        return list(dict.fromkeys(found))

    def _importers(self, home: FileIndex, function: Function) -> list[FileIndex] | None:
        """Other files that may call a function."""
        owner = home.parent(function)
        method = isinstance(owner, ast.ClassDef)
        if home.project is None or not (method or owner is home.tree):
            return []
        name = function.name
        if name.startswith("__") and name != "__init__":
            return []
        if not isinstance(owner, ast.ClassDef):
            others = home.project.importers(home, name, f"{name}(")
            return None if others is None else [*others, *_dispatching(home, name)]
        if name == "__init__":
            others = home.project.importers(home, owner.name, f"{owner.name}(")
            return None if others is None else [*others, *self._of_family(owner)]
        found = dict.fromkeys(self._of_family(owner))
        heirs = self.resolver.outside.descendants(owner)
        for number, heir in enumerate(itertools.chain([owner], heirs)):
            its = self.index.home(heir)
            others = home.project.importers(its, heir.name, f".{name}(")
            if others is None:
                return None
            found.update(dict.fromkeys(o for o in others if o is not home))
            if max(number, len(found)) > MAX_IMPORTERS:
                return None  # of all heirs together
        if may_be_chosen(self.resolver, owner):
            for path in home.project.mentioning(f".{name}(")[:MAX_IMPORTERS]:
                other = home.project.index(path)
                if other is not None and other is not home:
                    found[other] = None
        return list(found)

    def _of_family(self, owner: ast.ClassDef) -> list[FileIndex]:
        """Other files of the bases and heirs of a class, whose methods may call its."""
        home = self.index.home(owner)
        heirs = itertools.islice(
            self.resolver.outside.descendants(owner), MAX_IMPORTERS
        )
        found = map(self.index.home, [*self.resolver.classes.bases(owner), *heirs])
        return [its for its in dict.fromkeys(found) if its is not home]

    def _callers_in(self, home: FileIndex, function: Function) -> Iterator[ast.Call]:
        names = {function.name, *home.local_names.get(function.name, ())}
        names |= {n for n, its in home.dispatched.items() if not its.isdisjoint(names)}
        for name in sorted(names):
            for call in home.calls_by_name.get(name, ()):
                if function in self.callees(call):
                    yield call
        if function.name == "__init__":
            yield from self._constructors_in(home, function)

    def _constructors_in(
        self, home: FileIndex, function: Function
    ) -> Iterator[ast.Call]:
        """Calls of the classes whose `__init__` a function is."""
        owner = self.index.parent(function)
        if not isinstance(owner, ast.ClassDef):
            return
        for name in sorted(_named_like(home, owner.name) & set(home.calls_by_name)):
            for call in home.calls_by_name[name]:
                made = self.resolver.classes.named(call.func)
                chosen = made is None and (name in home.renamed or name in home.imports)
                classes = self.resolver.classes.of(call.func) if chosen else [made]
                if any(
                    c and self.resolver.classes.methods(c).get("__init__") is function
                    for c in classes
                ):
                    yield call

    def arguments(self, function: Function, name: str) -> list[ast.expr] | None:
        """What callers pass for a parameter; None if one is not clear."""
        if self._all_callers(function)[1]:
            return None
        found: list[ast.expr] = []
        for call in self.callers(function):
            given, clear = self.given(call, function, name)
            if not clear:
                return None
            found += given
        return found

    def arguments_near(
        self, function: Function, name: str, beside: FileIndex
    ) -> list[ast.expr]:
        """What calls pass in one file, and in the function's own."""
        homes = dict.fromkeys([beside, self.index.home(function)])
        calls = (c for home in homes for c in self._callers_in(home, function))
        return [n for call in calls for n in self.given(call, function, name)[0]]

    def given(
        self, call: ast.Call, function: Function, name: str
    ) -> tuple[list[ast.expr], bool]:
        """What a call passes for a parameter, and whether that is clear."""
        given = [k.value for k in call.keywords if k.arg == name]
        if given:
            return given, True
        position = self.position(function, name)
        if position is not None:
            spread = any(isinstance(a, ast.Starred) for a in call.args)
            if position < len(call.args) and not spread:
                return [call.args[position]], True
            if spread:
                return [], False
        return [], all(k.arg is not None for k in call.keywords)

    def position(self, function: Function, name: str) -> int | None:
        """Which argument of a call (0-based, without `self`) a parameter is."""
        args = function.args
        names = [a.arg for a in [*args.posonlyargs, *args.args]]
        bound = self.resolver.self_name(function) is not None
        number = names.index(name) - bound if name in names else -1
        return number if number >= 0 else None


def _dispatching(home: FileIndex, name: str) -> Iterator[FileIndex]:
    """Other files that call one of a dict that has the name: `{"fit": fit}[kind]`."""
    assert home.project is not None
    paths = home.project.mentioning("}[")
    for path in paths if len(paths) <= MAX_IMPORTERS else ():
        other = home.project.index(path)
        if other is None or other is home:
            continue
        if any(name in its for its in other.dispatched.values()):
            yield other


def _functions(nodes: list[ast.AST] | list[Function | None]) -> list[Function]:
    """The nodes without repetitions; none where one of them is no function."""
    both = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in dict.fromkeys(nodes) if isinstance(node, both)]
    return found if len(found) == len(set(nodes)) else []


def is_abstract(function: Function) -> bool:
    """Whether a method is for others to write: `raise NotImplementedError`, `...`."""
    body = [statement for statement in function.body if not _is_text(statement)]
    if not body or isinstance(body[0], ast.Raise):
        return True  # whatever stands behind it: `return None`
    return len(body) == 1 and isinstance(body[0], ast.Pass)


def _is_text(statement: ast.stmt) -> bool:
    """A docstring, or `...`."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _sets_mode(home: FileIndex, func: ast.Attribute, call: ast.Call) -> bool:
    """Whether `model.train()` is that of a module, which the file calls or asks."""
    given = [*call.args, *(k.value for k in call.keywords)]
    plain = all(isinstance(a, ast.Constant) for a in given)
    if func.attr not in ("train", "eval") or not plain or len(given) > 1:
        return False
    name = dotted(func.value)
    called = home.calls_by_name.get((name or "").rpartition(".")[2], ())
    asked = (c for m in OF_MODULES for c in home.calls_by_name.get(m, ()))
    return any(dotted(c.func) == name for c in called) or any(
        isinstance(c.func, ast.Attribute) and dotted(c.func.value) == name
        for c in asked
    )


def _named_like(home: FileIndex, name: str) -> set[str]:
    """What a class, and those that derive from it, may be called in a file."""
    names = {name, *home.local_names.get(name, ())}
    for owner in home.classes.values():
        bases = {(dotted(b) or "").rpartition(".")[2] for b in owner.bases}
        if bases & names:
            names.add(owner.name)
    return names | {new for new, olds in home.renamed.items() if olds & names}
