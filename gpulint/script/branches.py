"""The conditions that code stands behind, and how much of it one pass can run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from gpulint.index.walk import FUNCTIONS, walk

if TYPE_CHECKING:
    from gpulint.index import FileIndex
    from gpulint.script.model import Script

_OF_DATA = frozenset(
    "shape size dim ndim numel nelement sum any all max min item isnan isfinite".split()
)
MAX_NAMES = 2  # from a number that is tested, back to what it is read off
_BLOCKS = ("body", "orelse", "finalbody", "handlers")
Branches = tuple[tuple[ast.AST, bool], ...]


def blocks_of(node: ast.AST | None) -> Iterator[list[ast.stmt]]:
    """The lists of statements that a statement, function or module holds."""
    for name in _BLOCKS:
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def leaves(body: list[ast.stmt]) -> bool:
    """Whether a branch ends the pass: what stands behind it is its `else`."""
    return isinstance(body[-1], (ast.Continue, ast.Return))


def branches_of(
    index: FileIndex, node: ast.AST, within: ast.AST | None = None
) -> Branches:
    """The conditions that a node stands behind, outermost first.

    Those of its function, or only those inside of `within`.
    """
    found: list[tuple[ast.AST, bool]] = []
    child = node
    around = takewhile(lambda a: a is not within, index.ancestors(node))
    for above in takewhile(lambda a: not isinstance(a, FUNCTIONS), around):
        found += _left_before(index.parent(child), child)
        if isinstance(above, (ast.If, ast.IfExp)) and child is not above.test:
            found.append((above, in_body(above, child)))
        child = above
    found += _left_before(index.parent(child), child)
    return tuple(reversed(found))


def _left_before(
    block: ast.AST | None, statement: ast.AST
) -> Iterator[tuple[ast.AST, bool]]:
    """The branches beside a statement that end the pass before it, last first."""
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(block, name, None)
        if isinstance(statements, list) and statement in statements:
            before = statements[: statements.index(statement)]
            for other in reversed(before):
                if isinstance(other, ast.If) and leaves(other.body):
                    yield other, False


def all_of(test: ast.expr, holds: bool = True) -> list[ast.expr]:
    """The tests that must all hold, or all fail, where one holds or fails."""
    both = ast.And if holds else ast.Or
    if isinstance(test, ast.BoolOp) and isinstance(test.op, both):
        return test.values
    return [test]


def asks_for_data(script: Script, node: ast.AST) -> bool:
    """Whether a branch around a place depends on what the data are in a step.

    On their number, their shape or their values: `if mask.sum() > 0:`, `len(boxes)`,
    `if width == 2:` of `_, _, width = x.shape`, `while torch.min(s) < 1e-3:`.
    """
    index = script.index
    inner = takewhile(lambda a: not isinstance(a, FUNCTIONS), index.ancestors(node))
    tests = [
        above.test
        for above in inner
        if isinstance(above, (ast.If, ast.IfExp))
        or (isinstance(above, ast.While) and not index.inside(node, above.test))
    ]
    parts = [part for part in walk(*tests) if not index.inside(node, part)]
    numbers = [
        side
        for part in parts
        if isinstance(part, ast.Compare)
        for side in (part.left, *part.comparators)
        if isinstance(side, (ast.Name, ast.Attribute))
    ]
    return any(map(_is_of_data, parts)) or any(
        _counts_data(script, number, 0) for number in numbers
    )


def _is_of_data(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _OF_DATA
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "len"


def _counts_data(script: Script, name: ast.expr, depth: int) -> bool:
    """Whether a number is read off data: `width`, `width - 3` of `x.shape`.

    Also one that `self` keeps: `self.boxes = labels.size(1)`.
    """
    values = [d.value for d in script.definitions(name) if d.kind == "assign"]
    return any(
        _is_of_data(part)
        or (
            depth < MAX_NAMES
            and isinstance(part, ast.Name)
            and _counts_data(script, part, depth + 1)
        )
        for value in values
        if value is not None
        for part in walk(value)
    )


def cover(ways: Iterable[Branches], around: Branches) -> bool:
    """Whether one of some ways is taken wherever conditions hold.

    The body and the `else` of a branch are, together.
    """
    taken = set(ways)
    while not any(around[: len(way)] == way for way in taken):
        joined = {
            way[:-1]
            for way in filter(None, taken)
            if (*way[:-1], (way[-1][0], not way[-1][1])) in taken
        }
        if joined <= taken:
            return False
        taken |= joined
    return True


def in_body(branch: ast.If | ast.IfExp, child: ast.AST) -> bool:
    """Whether a part of a branch runs where its test holds."""
    body = branch.body
    return child in body if isinstance(body, list) else child is body


def most_in_one_pass(branches: Iterable[Branches]) -> int:
    """How many of the parts behind these conditions one pass can run at most."""
    always = 0
    behind: dict[ast.AST | str, list[tuple[str, bool, Branches]]] = {}
    for path in branches:
        if not path:
            always += 1
            continue
        (condition, holds), *rest = path
        question, value = _asked(condition)
        behind.setdefault(question, []).append((value, holds, tuple(rest)))
    return always + sum(map(_most_of_answers, behind.values()))


def _most_of_answers(parts: list[tuple[str, bool, Branches]]) -> int:
    """The most of the parts that one question's answer lets run, or no answer."""
    answers = {value for value, _, _ in parts} | {None}
    return max(
        most_in_one_pass(
            rest for value, holds, rest in parts if holds == (value == answer)
        )
        for answer in answers
    )


def _asked(condition: ast.AST) -> tuple[ast.AST | str, str]:
    """What a branch asks, and the answer: of two `if mode == "…"`, one holds."""
    test = getattr(condition, "test", None)
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
        return condition, ""
    among = test.comparators[0]
    if isinstance(test.ops[0], ast.In) and isinstance(among, (ast.List, ast.Tuple)):
        among = among.elts[0] if len(among.elts) == 1 else among
    elif not isinstance(test.ops[0], ast.Eq):
        return condition, ""
    if not isinstance(among, ast.Constant):
        return condition, ""
    return ast.dump(test.left), repr(among.value)
