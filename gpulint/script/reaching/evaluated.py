"""What of a block, a statement or an expression runs whenever it does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import Definition
from gpulint.index.walk import COMPREHENSIONS, LOOPS, dotted, walk, walk_scope
from gpulint.script.branches import blocks_of
from gpulint.source import NOTEBOOK

if TYPE_CHECKING:
    from gpulint.script.model import Script

_LEAVES = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom)
_CELLS = re.compile(r"^# ?%%", re.MULTILINE)
# Holds in one process of each run.
_IN_ONE_PROCESS = re.compile(r"(^|\.)is_(local_)?(main|world)_(process|zero)$")


def evaluated_in(script: Script, block: list[ast.stmt]) -> Iterator[ast.AST]:
    """The parts of a block that are evaluated whenever it runs; loops make a pass."""
    for statement in until_left(block):
        for head in heads(statement):
            yield from evaluated(head)
        if runs_its_body(script, statement):
            yield from evaluated_in(script, statement.body)  # type: ignore[attr-defined]


def runs_its_body(script: Script, statement: ast.stmt) -> bool:
    """Whether a statement runs the block below it, and lets pass what that raises."""
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return all(lets_through(script, i.context_expr) for i in statement.items)
    if isinstance(statement, ast.If):
        return holds(script, statement.test)
    return isinstance(statement, LOOPS)


def until_left(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run whenever the first of a block does."""
    for statement in block:
        left = leaves(statement)
        if isinstance(statement, (ast.Return, ast.Expr)) or not left:
            yield statement
        if left:
            return


def is_behind_end(script: Script, node: ast.AST) -> bool:
    """Whether a statement before a place, in a block around it, always ends all.

    `exit()`, `return` or `raise` between it and the start of the block; not in a
    notebook, or a script in cells, each of which may be run alone.
    """
    if script.source.path.suffix == NOTEBOOK or script.source.has(_CELLS):
        return False
    child = node
    for above in script.index.ancestors(node):
        for block in blocks_of(above):
            before = block[: block.index(child)] if child in block else ()
            if any(_ends(script, statement) for statement in before):
                return True
        child = above
    return False


def _ends(script: Script, statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Return, ast.Raise)) or is_end(script, statement)


def is_end(script: Script, statement: ast.stmt) -> bool:
    """`exit()`, `sys.exit(1)`: a statement that ends the program."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    index = script.index.home(statement)
    if isinstance(call.func, ast.Name) and call.func.id in ("exit", "quit"):
        return not script.definitions(call.func) and not index.stars
    return index.qualified(call.func) in ("sys.exit", "os._exit")


def leaves(statement: ast.AST) -> bool:
    """Whether a statement may leave the block it stands in, or end the program.

    Not by an error of its own: then what is behind it fails as well.
    """
    known: bool | None = getattr(statement, "_leaves", None)  # asked from every side
    if known is None:
        below = walk_scope(statement)
        known = any(isinstance(node, _LEAVES) or _exits(node) for node in below)
        statement._leaves = known  # type: ignore[attr-defined]
    return known


def _exits(node: ast.AST) -> bool:
    """`exit()`, `sys.exit(1)`, `parser.error("…")`."""
    func = node.func if isinstance(node, ast.Call) else None
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", None)
    return name in ("exit", "_exit", "quit", "error", "abort")


def holds(script: Script, test: ast.expr) -> bool:
    """Whether a test holds whatever a user asks for, or once in a run.

    `i % n == 0` and `i == 0`, where a loop counts `i` up from 0, in its first pass;
    `accelerator.is_main_process` in one process.
    """
    its = script.evaluator.values(test)
    if its.all_in(True) and not any(value.default for value in its.known):
        return True
    if _IN_ONE_PROCESS.search(dotted(test) or ""):
        return True
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(holds(script, part) for part in test.values)
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    left, right = test.left, test.comparators[0]
    counted = isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod)
    number = left.left if isinstance(left, ast.BinOp) and counted else left
    if not isinstance(right, ast.Constant) or right.value != 0 or len(test.ops) > 1:
        return False
    reached = script.definitions(number) if isinstance(number, ast.Name) else ()
    return bool(reached) and all(_counts_from_zero(d) for d in reached)


def _counts_from_zero(definition: Definition) -> bool:
    """`for i in range(n)`, `for i, x in enumerate(…)`, also in a bar of progress."""
    over = definition.value
    if definition.kind == "for" and not definition.path:
        counted = isinstance(over, ast.Call) and dotted(over.func) == "range"
        return counted and isinstance(over, ast.Call) and len(over.args) == 1
    counts = (
        (
            node
            for node in walk(definition.value)
            if isinstance(node, ast.Call) and dotted(node.func) == "enumerate"
        )
        if definition.value is not None
        else ()
    )
    return (
        definition.kind == "for"
        and definition.path == (0,)
        and any(len(call.args) == 1 and not call.keywords for call in counts)
    )


def lets_through(script: Script, context: ast.expr) -> bool:
    """Whether a context manager is none that may catch what is raised below it."""
    call = context.func if isinstance(context, ast.Call) else context
    name = script.index.qualified(call) or ""
    return "suppress" not in name and "raises" not in name


def heads(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement that run whenever it does."""
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        return [statement.iter]
    if isinstance(statement, (ast.If, ast.While, ast.Assert)):
        return [statement.test]
    if isinstance(statement, ast.Match):
        return [statement.subject]
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return [item.context_expr for item in statement.items]
    if isinstance(statement, ast.Assign):
        places = [part for target in statement.targets for part in _place(target)]
        return [statement.value, *places]
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return [statement.value] if statement.value is not None else []
    if isinstance(statement, (ast.Expr, ast.Return)):
        return [statement.value] if statement.value is not None else []
    return []


def _place(target: ast.expr) -> list[ast.expr]:
    """What an assignment evaluates to know where to: `os.environ` and the key."""
    if isinstance(target, ast.Attribute):
        return [target.value]
    if isinstance(target, ast.Subscript):
        return [target.value, target.slice]
    if isinstance(target, (ast.Tuple, ast.List)):
        return [part for inner in target.elts for part in _place(inner)]
    return []


def evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression that are evaluated whenever it is, in that order.

    What a call is given comes before the call.
    """
    todo = [(node, False)]
    while todo:
        its, done = todo.pop()
        if done:
            yield its
            continue
        todo.append((its, True))
        todo += [(part, False) for part in reversed(list(_parts(its)))]


def _parts(node: ast.AST) -> Iterable[ast.AST]:
    """What of the parts right below an expression is evaluated whenever it is."""
    if isinstance(node, ast.Lambda):
        return ()
    if isinstance(node, COMPREHENSIONS):
        first, *others = node.generators
        each_pass = not (others or first.ifs or isinstance(node, ast.GeneratorExp))
        return [first.iter, *(_made(node) if each_pass else ())]
    if isinstance(node, ast.IfExp):
        return (node.test,)
    if isinstance(node, ast.BoolOp):
        return (node.values[0],)
    if isinstance(node, ast.Compare):
        return (node.left, node.comparators[0])
    return ast.iter_child_nodes(node)


def _made(its: ast.expr) -> list[ast.expr]:
    """What a comprehension evaluates in each pass; like a loop it makes one."""
    parts = ("elt", "key", "value")
    return [part for name in parts if (part := getattr(its, name, None)) is not None]
