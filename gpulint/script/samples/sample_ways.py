"""Datasets that make a sample in one of two ways, as an option of theirs says."""

from __future__ import annotations

import ast
from collections.abc import Callable

from gpulint.index import Evaluator, Function
from gpulint.index.walk import dotted, walk

Works = Callable[[list[ast.stmt]], bool]


def may_take_no_work(entry: Function, evaluator: Evaluator, works: Works) -> bool:
    """Whether an option leads to samples that take work, and nothing sets it so.

    `works` tells whether statements do work for a sample.
    """
    for number, branch in enumerate(entry.body):
        if not isinstance(branch, ast.If) or not _is_option(entry, branch, evaluator):
            continue
        before, after = entry.body[:number], branch.orelse + entry.body[number + 1 :]
        if not _returns(branch.body) or not _returns(after) or works(before):
            continue
        heavy = [works(branch.body), works(after)]
        if heavy[0] != heavy[1] and not _may_be(branch.test, heavy[0], evaluator):
            return True
    return False


def _returns(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return)


def _is_option(entry: Function, branch: ast.If, evaluator: Evaluator) -> bool:
    """Whether a test asks for attributes alone.

    If it asks whether there is something, that is not used: `if self.transform:` is
    no option where the transform then runs.
    """
    resolver = evaluator.resolver
    own = resolver.self_name(entry)
    names = [n for n in walk(branch.test) if isinstance(n, ast.Name)]
    others = [d for n in names if n.id != own for d in resolver.definitions(n)]
    if any(evaluator.index.scope(d.node) is entry for d in others):
        return False
    if isinstance(branch.test, ast.Compare) and _compares(branch.test):
        return own in {n.id for n in names}
    read = set(map(dotted, walk(branch.test))) - {None, own}
    tests = [n.test for n in walk(*entry.body) if isinstance(n, ast.If)]
    tested = set(walk(*tests))
    used = (dotted(n) for n in walk(*entry.body) if n not in tested)
    return bool(read) and read.isdisjoint(used)


def _compares(test: ast.Compare) -> bool:
    """`self.mode == "masked"`; `self.transform is not None` asks if there is one."""
    return all(isinstance(op, (ast.Eq, ast.NotEq)) for op in test.ops)


def _may_be(test: ast.expr, wanted: bool, evaluator: Evaluator) -> bool:
    """Whether something that is written makes a test true, or false."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _may_be(test.operand, not wanted, evaluator)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = evaluator.values(test.left), evaluator.values(test.comparators[0])
        pairs = [(a.constant, b.constant) for a in left.known for b in right.known]
        if isinstance(test.ops[0], (ast.Eq, ast.Is)):
            return any((a == b) is wanted for a, b in pairs)
        if isinstance(test.ops[0], (ast.NotEq, ast.IsNot)):
            return any((a != b) is wanted for a, b in pairs)
        return True
    if isinstance(test, (ast.Name, ast.Attribute)):
        known = evaluator.values(test).known
        return any(bool(value.constant) is wanted for value in known)
    return True
