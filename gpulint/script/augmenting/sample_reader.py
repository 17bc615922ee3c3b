"""Reads code that makes a sample: which augmentations it does, with what numbers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function
from gpulint.index.walk import dotted, walk
from gpulint.script.augmenting.image_operations import DRAWS, FUNCTIONAL, TORCHVISION
from gpulint.script.augmenting.pictures import UNKNOWN, Picture, Pictures
from gpulint.script.augmenting.sample_operations import Change, Changes
from gpulint.script.branches import all_of
from gpulint.script.reaching.drawn import Chance, Drawn
from gpulint.script.samples.dataset_options import DatasetOptions

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 2  # methods that `__getitem__` hands images to


class Operation(NamedTuple):
    """One augmentation: what `runtime.augmentation` calls it, and its numbers.

    `images` are the variables it changes, in `statements`; `p` how many samples it
    changes. `exact`: the runtime does the same to each of them. `literal`: the file
    itself says the numbers.
    """

    kind: str
    images: tuple[str, ...]
    p: float
    drawn: Drawn | None
    statements: tuple[ast.stmt, ...]
    draws: tuple[ast.Call, ...]
    exact: bool
    literal: bool
    interpolations: tuple[str | None, ...] = ()


Known = dict[str, Picture]


class Reader:
    """Follows one function, statement by statement; `made` is the dataset's call.

    `operations` are those that are understood; `undecided` the tests before them that
    may hold or not. `returned` is what is known of the parts of a sample, None where
    its end is not clear.
    """

    def __init__(self, script: Script, entry: Function, made: ast.Call | None) -> None:
        self.script = script
        self.made = made
        self.operations: list[Operation] = []
        self.entered: list[Function] = [entry]
        self.undecided: list[ast.expr] = []  # tests of what only the run tells
        self._changes = Changes(script)
        self._options = DatasetOptions(script, made)
        self._pictures = Pictures(script)
        self.returned = self._run(entry, {})

    @property
    def owner(self) -> ast.ClassDef | None:
        """The class of the dataset, where its samples are read from their entry."""
        return self.script.index.owner(self.entered[0]) if self.made else None

    @property
    def unread(self) -> list[ast.Call]:
        """Draws in the code that no operation accounts for, or several do."""
        draws = [c for o in self.operations for c in o.draws]
        return [
            node
            for function in self.entered
            for node in walk(*function.body)
            if isinstance(node, ast.Call)
            and (self.script.index.qualified(node.func) or "").startswith(DRAWS)
            and draws.count(node) != 1
        ]

    def _run(self, function: Function, known: Known) -> tuple[Picture, ...] | None:
        """What a function returns, where that stands in its last line alone."""
        returns = [n for n in walk(*function.body) if isinstance(n, ast.Return)]
        last = function.body[-1]
        self._block(function.body, known)
        if returns != [last] or not isinstance(last, ast.Return) or not last.value:
            return None
        return self._parts(last.value, known)

    def _parts(self, value: ast.expr, known: Known) -> tuple[Picture, ...] | None:
        if isinstance(value, (ast.Tuple, ast.List)):
            return tuple(self._pictures.of(part, known) for part in value.elts)
        entered = self._entered(value, known) if isinstance(value, ast.Call) else None
        return entered or (self._pictures.of(value, known),)

    # Statements

    def _block(self, body: list[ast.stmt], known: Known) -> None:
        for statement in body:
            if not isinstance(statement, ast.Return):
                self._statement(statement, known)

    def _statement(self, statement: ast.stmt, known: Known) -> None:
        changes = self._changes_of(statement, known)
        if changes and all(c.drawn and c.drawn.call for c in changes):
            for change in changes:
                self._add([(change, statement)], None, known)
        elif isinstance(statement, ast.If):
            self._if(statement, known)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._assign(statement.targets[0], statement.value, known)
        elif isinstance(statement, ast.AugAssign) and isinstance(
            statement.target, ast.Name
        ):
            name = statement.target
            read = ast.Name(name.id, ast.Load())
            both = ast.BinOp(read, statement.op, statement.value)
            known[name.id] = self._pictures.of(both, known)
        elif not self._says_nothing(statement):
            self._forget(statement, known)

    def _says_nothing(self, statement: ast.stmt) -> bool:
        constant = isinstance(statement, ast.Expr) and isinstance(
            statement.value, ast.Constant
        )
        return constant or isinstance(statement, (ast.Pass, ast.Assert))

    def _forget(self, node: ast.AST, known: Known) -> None:
        """Nothing is known any more of what a statement mentions."""
        for part in walk(node):
            if isinstance(part, ast.Name):
                known.pop(part.id, None)

    def _forget_given(self, value: ast.expr, known: Known) -> None:
        """Code that is not known may change the images that it gets in place."""
        for call in (n for n in walk(value) if isinstance(n, ast.Call)):
            name = self.script.index.qualified(call.func) or ""
            if name.startswith((*TORCHVISION, *FUNCTIONAL)) or name == "len":
                continue
            given = [*call.args, *(k.value for k in call.keywords)]
            if isinstance(call.func, ast.Attribute):
                given.append(call.func.value)
            for node in given:
                if isinstance(node, ast.Name):
                    known.pop(node.id, None)

    def _assign(self, target: ast.expr, value: ast.expr, known: Known) -> None:
        names = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        parts: tuple[Picture, ...] | None = None
        if isinstance(value, ast.Call):
            parts = self._entered(value, known)
        entered = parts is not None
        if parts is None:
            values = value.elts if isinstance(value, ast.Tuple) else [value]
            parts = tuple(self._pictures.of(part, known) for part in values)
        if entered or UNKNOWN in parts:
            self._forget_given(value, known)
        for number, name in enumerate(names):
            if isinstance(name, ast.Name):
                whole = len(parts) == len(names)
                known[name.id] = parts[number] if whole else UNKNOWN
            else:
                self._forget(name, known)

    def _entered(self, call: ast.Call, known: Known) -> tuple[Picture, ...] | None:
        """What a method of the file returns for the images that it is given."""
        function = self.script.resolver.calls.callee(call)
        if (
            function is None
            or not self.script.index.holds(function)
            or function in self.entered
            or len(self.entered) > MAX_DEPTH
            or function.decorator_list
        ):
            return None
        self.entered.append(function)
        inner: Known = {}
        for parameter in function.args.args:
            given, clear = self.script.resolver.calls.given(
                call, function, parameter.arg
            )
            if clear and len(given) == 1:
                inner[parameter.arg] = self._pictures.of(given[0], known)
        return self._run(function, inner)

    # Conditions

    def _if(self, statement: ast.If, known: Known) -> None:
        chance = self._chance(statement.test)
        changes = self._changes_in(statement.body, known) if chance else []
        if chance and changes and not statement.orelse:
            self._add(changes, chance, known)
            return
        holds = self._options.holds(statement.test)
        if holds is not None:
            self._block(statement.body if holds else statement.orelse, known)
            return
        either = dict(known)
        before = len(self.operations)
        self._block(statement.body, either)
        self._block(statement.orelse, known)
        if len(self.operations) > before:
            self.undecided.append(statement.test)
        for name in {*either, *known}:
            if either.get(name) != known.get(name):
                known[name] = UNKNOWN

    def _chance(self, test: ast.expr) -> Chance | None:
        """How often a test holds, `self.train and random.random() < 0.5` included."""
        parts = all_of(test)
        if len(parts) > 1:
            parts = [part for part in parts if self._options.holds(part) is not True]
        return self._changes.numbers.chance(parts[0]) if len(parts) == 1 else None

    def _changes_in(
        self, body: list[ast.stmt], known: Known
    ) -> list[tuple[Change, ast.stmt]]:
        """The changes that a branch is made of, all of one kind; else none."""
        found: list[tuple[Change, ast.stmt]] = []
        for statement in body:
            changes = self._changes_of(statement, known)
            if not changes and not self._is_draw(statement):
                return []
            found += [(change, statement) for change in changes]
        return found if len({c.kind for c, _ in found}) == 1 else []

    def _is_draw(self, statement: ast.stmt) -> bool:
        """`angle = random.uniform(-10, 10)`."""
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return False
        drawn = self._changes.numbers.read(statement.value)
        return isinstance(statement.targets[0], ast.Name) and drawn is not None

    # Operations

    def _changes_of(self, statement: ast.stmt, known: Known) -> list[Change]:
        """`image = np.fliplr(image)`, also of several images at once; else none."""
        layouts = {name: picture.layout for name, picture in known.items()}
        if isinstance(statement, ast.AugAssign):
            if not isinstance(statement.target, ast.Name):
                return []
            read = ast.Name(statement.target.id, ast.Load())
            pairs = [(read, ast.BinOp(read, statement.op, statement.value))]
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
            pairs = [(target, value)]  # type: ignore[list-item]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))  # type: ignore[arg-type]
        else:
            return []
        changes: list[Change] = []
        for name, expression in pairs:
            change = self._changes.of(expression, layouts)
            if change is None or dotted(name) != change.image:
                return []
            changes.append(change)
        return changes

    def _add(
        self,
        changes: list[tuple[Change, ast.stmt]],
        chance: Chance | None,
        known: Known,
    ) -> None:
        """Keep an operation, together with the same one on other images."""
        first = changes[0][0]
        drawn = first.drawn
        draws = tuple(
            d for d in (chance and chance.call, drawn and drawn.call) if d is not None
        )
        new = Operation(
            first.kind,
            tuple(change.image for change, _ in changes),
            chance.p if chance else 1.0,
            drawn,
            tuple(dict.fromkeys(self._outer(s, chance) for _, s in changes)),
            draws,
            all(c.exact and c.drawn == drawn for c, _ in changes)
            and len({c.image for c, _ in changes}) == len(changes),
            (chance is None or chance.literal) and (drawn is None or drawn.literal),
            tuple(change.interpolation for change, _ in changes),
        )
        number = self._same(new)
        if number is None:
            number = len(self.operations)
            self.operations.append(new)
        else:
            self.operations[number] = _joined(self.operations[number], new)
        for image in new.images:
            before = known.get(image, UNKNOWN)
            known[image] = before._replace(done=(*before.done, number))

    def _outer(self, statement: ast.stmt, chance: Chance | None) -> ast.stmt:
        above = self.script.index.parent(statement)
        return above if chance and isinstance(above, ast.If) else statement

    def _same(self, new: Operation) -> int | None:
        """The operation on another image that the same draws decide."""
        for number, old in enumerate(self.operations):
            same = (old.kind, old.p, old.drawn, old.draws)
            if new.draws and same == (new.kind, new.p, new.drawn, new.draws):
                return number
        return None


def _joined(old: Operation, new: Operation) -> Operation:
    again = set(old.images) & set(new.images)
    return old._replace(
        images=(*old.images, *new.images),
        statements=tuple(dict.fromkeys((*old.statements, *new.statements))),
        exact=old.exact and new.exact and not again,
        interpolations=(*old.interpolations, *new.interpolations),
    )
