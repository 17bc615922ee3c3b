"""What Lightning modules read of tensors only to log it, and in which format."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Definition
from gpulint.index.walk import walk
from gpulint.script.frameworks.lightning_logs import Log, is_own_log
from gpulint.script.waiting.metric_checks import reads_values

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 8
READS = frozenset({"item", "cpu"})
FETCHES = READS | {"numpy", "tolist"}
KEEPS_FORMAT = frozenset("mean sum max min detach clone squeeze".split())
# Their inputs have one format; others promote, and a target may be in float64.
SINGLE_LOSSES = frozenset({"cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss"})


class Read(NamedTuple):
    """A value that is read for the log: `node` waits for `value`.

    `whole`: it is logged as it is.
    """

    node: ast.expr
    value: ast.expr
    whole: bool


def find_reads(log: Log) -> Iterator[Read]:
    """What waits among the values that one call logs."""
    value = log.value
    for logged in [value] if log.one else _items(log.script, value):
        if logged is None:
            continue
        for node in _made(log.script, logged):
            read = _read(node)
            if _may_be_number(log.script, node, read):
                continue
            if read is not node:
                yield Read(node, read, whole=True)
            elif isinstance(node, ast.BinOp):
                yield from _operands(node)


def is_fetched_beside(script: Script, read: Read, others: Collection[ast.expr]) -> bool:
    """Whether each step waits for more than logs: `outputs = outputs.detach().cpu()`.

    Or in metrics that look at values. `others`: what is read only to be logged, this
    among it.
    """
    function = script.index.function(read.node)
    for statement in function.body if function is not None else []:
        for call in walk(statement):
            if (
                isinstance(call, ast.Call)
                and script.index.function(call) is function
                and (reads_values(script, call) or _fetches_given(script, call))
                and not script.runners.is_rare(call)
            ):
                return True
        for call in walk(statement) if isinstance(statement, ast.Assign) else ():
            func = call.func if isinstance(call, ast.Call) else None
            if (
                isinstance(func, ast.Attribute)
                and func.attr in FETCHES
                and not any(script.index.inside(call, other) for other in others)
                and script.lightning_steps.is_computed(func.value)
            ):
                return True
    return False


def _fetches_given(script: Script, call: ast.Call) -> bool:
    """`score(logits, labels)`, of a function that fetches them: `logits.cpu()`."""
    function = script.resolver.calls.callee(call)
    if function is None or not any(map(script.lightning_steps.is_computed, call.args)):
        return False
    names = {argument.arg for argument in function.args.args}
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in FETCHES
        and any(isinstance(n, ast.Name) and n.id in names for n in walk(node.func))
        for node in walk(*function.body)
    )


def _items(script: Script, value: ast.expr | None) -> list[ast.expr]:
    """The values of a dict that is written in the call, or for it alone."""
    for node in _made(script, value) if value is not None else ():
        if isinstance(node, ast.Dict):
            return node.values
        if isinstance(node, ast.DictComp):
            return [node.value]
    return []


def _made(script: Script, node: ast.expr) -> list[ast.expr]:
    """What a logged expression is: itself, or what a name only for it is assigned."""
    if not isinstance(node, ast.Name):
        return [node]
    definitions = script.definitions(node)
    if len(definitions) != 1:
        return []
    (made,) = definitions
    return [made.value] if made.value and _is_only_logged(script, made) else []


def _is_only_logged(script: Script, made: Definition) -> bool:
    """Whether what a name is assigned is used for nothing but the log."""
    statement = script.index.statement(made.node)
    if made.kind != "assign" or made.path or not isinstance(statement, ast.Assign):
        return False
    if len(statement.targets) > 1:
        return False
    scope = script.index.scope(made.node)
    same = [n for n in script.index.all(ast.Name) if n.id == made.name]
    inner = [n for n in same if script.index.inside(n, scope)]
    if any(script.index.scope(n) is not scope for n in inner):
        return False  # a function within may use it
    return all(_is_logged(script, node) for node in script.uses(made))


def _is_logged(script: Script, node: ast.AST) -> bool:
    """Whether an expression is a value that is logged, or stands in a dict for it."""
    above = script.index.parent(node)
    if isinstance(above, ast.Dict) and node in above.values:
        return _is_logged(script, above)
    if isinstance(above, ast.Assign) and isinstance(node, ast.Dict):
        flow = script.resolver.flow(script.index.scope(above))
        kept = [d for its in flow.definitions.values() for d in its if d.value is node]
        return bool(kept) and all(_is_only_logged(script, d) for d in kept)
    keyword = above if isinstance(above, ast.keyword) else None
    call = script.index.parent(keyword) if keyword is not None else above
    if not isinstance(call, ast.Call) or not is_own_log(script, call):
        return False
    if keyword is not None:
        return keyword.arg in ("value", "dictionary")
    position = 1 if getattr(call.func, "attr", "") == "log" else 0
    return len(call.args) > position and call.args[position] is node


def _may_be_number(script: Script, node: ast.expr, read: ast.expr) -> bool:
    """`float(count)` of what was unpacked: of what a step returns some is plain."""
    plain = isinstance(node, ast.Call) and node.args == [read]
    return plain and any(d.path for d in script.definitions(read))


def _operands(node: ast.expr) -> Iterator[Read]:
    if isinstance(node, ast.BinOp):
        yield from _operands(node.left)
        yield from _operands(node.right)
    elif _read(node) is not node:
        yield Read(node, _read(node), whole=False)


def _read(node: ast.expr) -> ast.expr:
    """`loss` of `float(loss)`, `loss.item()`, `loss.cpu().item()`; else itself."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[], keywords=[]):
            return _read(inner) if name in READS else node
        case ast.Call(func=ast.Name(id="float"), args=[inner], keywords=[]):
            return node if isinstance(inner, ast.Starred) else _read(inner)
    return node


def is_single(script: Script, node: ast.expr, depth: int = 0) -> bool:
    """Whether a tensor surely is in single precision, or in half."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(node, ast.Name):
        found = script.definitions(node)
        return bool(found) and all(
            d.kind == "assign"
            and not d.path
            and d.value is not None
            and is_single(script, d.value, depth + 1)
            for d in found
        )
    if not isinstance(node, ast.Call):
        return False
    made = [o.call.func for o in script.resolver.origins(node.func) if o.call]
    names = [script.index.qualified(func) or "" for func in made or [node.func]]
    if all(n.startswith("torch.nn.") and _last(n) in SINGLE_LOSSES for n in names):
        return script.scalars.without_dimensions(node)
    function = script.resolver.calls.callee(node)
    if function is not None:
        returned = script.resolver.flow(function).returns
        its = script.of(function)
        return bool(returned) and all(
            v is not None and is_single(its, v, depth + 1) for v in returned
        )
    func = node.func
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr == "float" and not node.args:
        return True
    return func.attr in KEEPS_FORMAT and is_single(script, func.value, depth + 1)


def _last(name: str) -> str:
    return name.rpartition(".")[2]
