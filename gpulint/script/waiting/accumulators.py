"""Sums of a loop that start as a Python number and could be kept on the device."""

from __future__ import annotations

import ast
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Definition, Where
from gpulint.index.walk import dotted, walk, walk_scope
from gpulint.script.every_step import EveryStep
from gpulint.script.rewriting.edits import CannotFix
from gpulint.script.training.losses import differentiated
from gpulint.script.waiting.located import is_norm

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script
    from gpulint.script.waiting.waits import Wait

_TRANSPARENT = frozenset(
    "no_grad inference_mode autocast set_grad_enabled enable_grad tqdm trange "
    "record_function set_detect_anomaly".split()
)


_SHARDS = ("fully_shard", "parallelize_module", "DTensor", "fsdp")
_BY_NAME = frozenset("locals vars eval exec globals".split())


class Term(NamedTuple):
    """One `total += loss.item() * n`: `wait` is `loss.item()`.

    `scaled`: the value is multiplied before it is added.
    """

    name: str
    statement: ast.stmt
    wait: Wait
    value: ast.expr
    scaled: bool


class Accumulator(NamedTuple):
    """A sum that may move to the device.

    `start` is the assignment of its first value, `reads` are where the loop reads it
    now and then, `whole` whether it sums whole numbers, from a whole number on.
    """

    name: str
    start: ast.Assign
    terms: tuple[Term, ...]
    reads: tuple[ast.Name, ...]
    whole: bool


def term_of(script: Script, wait: Wait) -> Term | None:
    """The addition to a local name that a wait stands in, if it is one."""
    node = wait.node
    statement = script.index.statement(node)
    target: ast.expr
    value: ast.expr
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        target, value = statement.target, statement.value
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, added = statement.targets[0], statement.value
        if not isinstance(added, ast.BinOp) or not isinstance(added.op, ast.Add):
            return None
        if dotted(added.left) != dotted(target) or dotted(target) is None:
            return None
        value = added.right
    else:
        return None
    if not isinstance(target, ast.Name) or wait.helper is not None:
        return None
    if value is node:
        return Term(target.id, statement, wait, value, False)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        other = value.right if value.left is node else value.left
        if node in (value.left, value.right) and script.where(other) is Where.PLAIN:
            return Term(target.id, statement, wait, value, True)
    return None


class Sums:
    """Proves, name by name, that the sums of one loop may live on the device."""

    def __init__(self, script: Script, loop: Loop) -> None:
        self.script = script
        self.loop = loop
        self.scope = script.index.scope(loop.node)

    def accumulator(self, name: str, terms: list[Term]) -> Accumulator:
        """The sum under one name. CannotFix names the guard that fails."""
        if self.loop.node.orelse:
            raise CannotFix("the loop has an `else` branch")
        self._only_plain_norms(terms)
        start = self._start(name, terms)
        self._only_read_by_its_scope(name)
        reads = self._reads(name, start, terms)
        return Accumulator(
            name, start, tuple(terms), reads, self._whole(start, name, terms)
        )

    def _only_plain_norms(self, terms: list[Term]) -> None:
        """What torch clips is one tensor unless sharded; others may give a number."""
        norms = [t.wait.value for t in terms if is_norm(self.script, t.wait.value)]
        if not norms:
            return
        made = [o.call for norm in norms for o in self.script.resolver.origins(norm)]
        names = (self.script.of(c).index.qualified(c.func) for c in made if c)
        if not all((name or "").startswith("torch.") for name in names):
            raise CannotFix("the norm may be no tensor under DeepSpeed and others")
        sharded = any(map(self.script.mentions, _SHARDS))
        if sharded or "accelerate" in self.script.frameworks:
            raise CannotFix("the norm of sharded gradients may be a `DTensor`")

    # The first value

    def _start(self, name: str, terms: list[Term]) -> ast.Assign:
        flow = self.script.resolver.flow(self.scope)
        added = {t.statement for t in terms}
        starts: set[Definition] = set()
        for term in terms:
            target = self._read_of(term)
            for definition in flow.uses.get(target, ()):
                statement = self.script.index.statement(definition.node)
                if statement not in added:
                    starts.add(definition)
        if len(starts) != 1:
            raise CannotFix(f"`{name}` is set in more than one place")
        found = starts.pop()
        statement = self.script.index.statement(found.node)
        if self.script.index.inside(statement, self.loop.node):
            raise CannotFix(f"`{name}` is set anew inside the loop")
        if not isinstance(statement, ast.Assign) or not zeros(statement):
            raise CannotFix(f"`{name}` does not start as the number 0")
        self._leads_to_loop(name, statement)
        return statement

    def _read_of(self, term: Term) -> ast.AST:
        if isinstance(term.statement, ast.AugAssign):
            return term.statement.target
        assert isinstance(term.statement, ast.Assign)
        assert isinstance(term.statement.value, ast.BinOp)
        return term.statement.value.left

    def _leads_to_loop(self, name: str, start: ast.stmt) -> None:
        """From the first value the way must lead into the loop, and only there."""
        index = self.script.index
        if start.lineno > self.loop.node.lineno or self._leaves_before(start):
            raise CannotFix(f"`{name}` does not start right before the loop")
        block = index.parent(start)
        around = index.ancestors(self.loop.node)
        for above in takewhile(lambda a: a is not block, around):
            if not isinstance(above, ast.With) or not all(
                self._is_transparent(item.context_expr) for item in above.items
            ):
                raise CannotFix(f"`{name}` does not start right before the loop")
        around = index.ancestors(self.loop.node)
        for above in takewhile(lambda a: a is not self.scope, around):
            if self._catches(above) and any(
                _is_name(n, name) and not self._is_in_body(n, above)
                for n in walk_scope(self.scope)
            ):
                raise CannotFix(f"`{name}` is read where an exception is handled")

    def _catches(self, node: ast.AST) -> bool:
        """Whether an exception in a statement may lead to what follows it."""
        if isinstance(node, (ast.With, ast.AsyncWith)):
            return not all(self._is_transparent(i.context_expr) for i in node.items)
        return isinstance(node, (ast.Try, getattr(ast, "TryStar", ast.Try)))

    def _is_in_body(self, node: ast.AST, block: ast.AST) -> bool:
        body = [*getattr(block, "body", ()), *getattr(block, "orelse", ())]
        return any(self.script.index.inside(node, statement) for statement in body)

    def _leaves_before(self, start: ast.stmt) -> bool:
        return any(
            isinstance(node, (ast.Break, ast.Continue, ast.Try))
            and start.lineno < node.lineno < self.loop.node.lineno
            for node in walk_scope(self.scope)
        )

    def _is_transparent(self, context: ast.expr) -> bool:
        call = context.func if isinstance(context, ast.Call) else context
        name = self.script.index.qualified(call) or dotted(call) or ""
        return name.rpartition(".")[2] in _TRANSPARENT

    # Other uses of the name

    def _only_read_by_its_scope(self, name: str) -> None:
        index = self.script.index
        if name in self.script.resolver.flow(self.scope).outer:
            raise CannotFix(f"`{name}` is global")
        for node in (n for n in index.all(ast.Name) if n.id == name):
            its = index.scope(node)
            if its is self.scope or its is index.tree:
                continue
            own = self.script.resolver.flow(its)
            if name in own.definitions and name not in own.outer:
                continue
            if isinstance(self.scope, ast.Module) or index.inside(its, self.scope):
                raise CannotFix(f"`{name}` is read by an inner function")

    def _reads(
        self, name: str, start: ast.stmt, terms: list[Term]
    ) -> tuple[ast.Name, ...]:
        """Reads in the loop: all must be in branches that run now and then."""
        index = self.script.index
        inside = {
            id(n) for t in terms for n in (self._read_of(t), _target(t.statement))
        }
        reads: list[ast.Name] = []
        for node in walk_scope(self.scope):
            if not isinstance(node, ast.Name) or node.id != name or id(node) in inside:
                continue
            if index.inside(node, self.loop.node):
                if not isinstance(node.ctx, ast.Load):
                    raise CannotFix(f"`{name}` is set anew inside the loop")
                if id(node) in self._frequent:
                    raise CannotFix(f"`{name}` is read in every step")
                reads.append(node)
            elif self._between(node, start):
                raise CannotFix(f"`{name}` is used before the loop")
        self._check_places(name, reads)
        return tuple(reads)

    @cached_property
    def _frequent(self) -> set[int]:
        return {id(p.node) for p in EveryStep(self.script, self.loop).parts()}

    def _between(self, node: ast.Name, start: ast.stmt) -> bool:
        if self.script.index.inside(node, start):
            return False
        here, first = (node.lineno, node.col_offset), (start.lineno, start.col_offset)
        return first < here < (self.loop.node.lineno, self.loop.node.col_offset)

    def _check_places(self, name: str, reads: list[ast.Name]) -> None:
        """`ast` misplaces some names in f-strings before Python 3.12."""
        scope = self.scope
        for node in walk_scope(scope):
            if isinstance(node, ast.Call) and dotted(node.func) in _BY_NAME:
                raise CannotFix(f"`{dotted(node.func)}` may read `{name}`")
            if isinstance(node, ast.JoinedStr) and self._is_debug_text(node, reads):
                raise CannotFix(f"a text shows the name `{name}` with its value")
        places = {(n.lineno, n.col_offset) for n in reads}
        sure = len(places) == len(reads)
        if not sure or any(self.script.text(n) != name for n in reads):
            raise CannotFix(f"`{name}` is read in a text that cannot be edited safely")

    def _is_debug_text(self, text: ast.JoinedStr, reads: list[ast.Name]) -> bool:
        """`f"{total=}"`: the expression itself is printed."""
        shown = [v.value for v in text.values if isinstance(v, ast.FormattedValue)]
        labels = [str(v.value) for v in text.values if isinstance(v, ast.Constant)]
        if not any(label.rstrip().endswith("=") for label in labels):
            return False
        names = {id(n) for value in shown for n in walk(value)}
        return any(id(read) in names for read in reads)

    # Numbers

    def _whole(self, start: ast.Assign, name: str, terms: list[Term]) -> bool:
        whole = [self._counts(t) for t in terms]
        if isinstance(zeros(start)[name].value, float):
            return False
        if all(whole) and not any(t.scaled for t in terms):
            return True
        if any(whole) or not all(self._floats(t) for t in terms):
            raise CannotFix(f"whether `{name}` sums whole numbers is not known")
        return False

    def _counts(self, term: Term) -> bool:
        made_float = dotted(getattr(term.wait.node, "func", None)) == "float"
        return not made_float and self.script.scalars.whole(term.wait.value)

    def _floats(self, term: Term) -> bool:
        mine = set(self.script.definitions(term.wait.value))
        backward = self.loop.backward
        if any(mine & differentiated(self.script, call) for call in backward):
            return True  # only floating-point tensors have gradients
        if is_norm(self.script, term.wait.value):
            return True
        return self.script.scalars.floating(term.wait.value)


def _target(statement: ast.stmt) -> ast.AST:
    if isinstance(statement, ast.AugAssign):
        return statement.target
    assert isinstance(statement, ast.Assign)
    return statement.targets[0]


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def zeros(start: ast.Assign) -> dict[str, ast.Constant]:
    """Names and the zeros they are assigned; empty where it is anything else.

    One name, `total, correct = 0.0, 0`, or `total = correct = 0`.
    """
    pairs = [(target, start.value) for target in start.targets]
    target, value = start.targets[0], start.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        if len(start.targets) > 1 or len(target.elts) != len(value.elts):
            return {}
        pairs = list(zip(target.elts, value.elts, strict=True))
    found: dict[str, ast.Constant] = {}
    for name, number in pairs:
        if not isinstance(name, ast.Name) or not isinstance(number, ast.Constant):
            return {}
        if type(number.value) not in (int, float) or number.value:
            return {}
        found[name.id] = number
    return found
