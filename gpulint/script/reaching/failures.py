"""Statements that raise whenever they run, as far as the project's own code shows.

A call that its function does not take, a result of another number of parts than are
unpacked, an option that no command line has, a name that nothing defines, an import of
what the project lacks: what stands behind one of these never runs, and a loop around
one makes no second pass. In a notebook, of which each cell runs alone, such names count
for their own cell.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.finding import Position
from gpulint.index import Definition, Function
from gpulint.index.walk import COMPREHENSIONS, LOOPS, dotted, walk, walk_scope
from gpulint.script.loading.batch_parts import unpacks_other_parts
from gpulint.script.reaching.missing_imports import is_missing, lacks
from gpulint.script.reaching.surely_called import (
    has_no_method,
    surely_called,
    takes_nothing,
)
from gpulint.source import NOTEBOOK

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_CALLS = 1  # into functions that a statement calls
MAX_UNBOUND = 2  # names that somebody has forgotten
LINES_OF_UNBOUND = 25  # at least, for each of them
_BODIES = ("body", "orelse", "finalbody", "handlers")
_LEAVES = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom)
_OPTIONS = re.compile(r"(?i)arg|opt|conf|cfg|flags|param|^hp")
# The first torch that has a name, for what people use of newer ones.
_SINCE = {
    "torch.inference_mode": (1, 9),
    "torch.nn.Mish": (1, 9),
    "torch.optim.NAdam": (1, 10),
    "torch.optim.RAdam": (1, 10),
    "torch.autocast": (1, 10),
    "torch.set_float32_matmul_precision": (1, 12),
    "torch.compile": (2, 0),
    "torch.nn.functional.scaled_dot_product_attention": (2, 0),
    "torch.amp.GradScaler": (2, 3),
    "torch.nn.RMSNorm": (2, 4),
}
# Holds in one process of each run.
_IN_ONE_PROCESS = re.compile(r"(^|\.)is_(local_)?(main|world)_(process|zero)$")


def fails_around(script: Script, node: ast.AST) -> bool:
    """Whether a statement that raises is always run with a place, or after one pass.

    Its own, one before it in a block around it, or one behind it in a loop that it
    stands in. Only in the function of the place; whether its callers fail is another
    question.
    """
    in_cell = script.source.path.suffix == NOTEBOOK
    everywhere = not in_cell or script.index.function(node) is not None

    def raises(statement: ast.stmt) -> bool:
        names = everywhere or _cell(script, statement) == _cell(script, node)
        return _raises(script, statement, MAX_CALLS, names)

    child = node
    own = True  # the statement that holds the place, not one around it
    for above in script.index.ancestors(node):
        if own and isinstance(child, ast.stmt):
            own = False
            if raises(child):
                return True
        if isinstance(above, ast.For) and unpacks_other_parts(script, above):
            return True
        for block in _blocks(above):
            if child in block:
                number = block.index(child)
                if any(map(raises, block[:number])):
                    return True
                if _runs_again(script, above, block):
                    behind = _until_left(block[number + 1 :])
                    stays = not _leaves(child)
                    if stays and any(map(raises, behind)):
                        return True
        if isinstance(above, Function):
            return False
        child = above
    return False


def _cell(script: Script, node: ast.AST) -> int | None:
    """The number of the notebook's cell that a node stands in."""
    return script.source.in_cell(Position(getattr(node, "lineno", 1), 1))[0]


def _runs_again(script: Script, above: ast.AST, block: list[ast.stmt]) -> bool:
    """Whether a block is the body of a loop, or a branch in one."""
    if isinstance(above, ast.If):
        return bool(script.loops_around(above))
    return isinstance(above, LOOPS) and block is above.body


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in _BODIES:
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def fails(script: Script, function: Function, depth: int) -> bool:
    """Whether a function raises whenever it is called; a generator does so later."""
    if isinstance(function, ast.AsyncFunctionDef) or _yields(script, function):
        return False
    its = script.of(function)
    return any(_raises(its, s, depth, names=True) for s in _until_left(function.body))


def _until_left(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run whenever the first of a block does."""
    for statement in block:
        if isinstance(statement, (ast.Return, ast.Expr)) or not _leaves(statement):
            yield statement
        if _leaves(statement):
            return


def _leaves(statement: ast.AST) -> bool:
    """Whether a statement may leave the block it stands in, or end the program.

    Not by an error of its own: then what is behind it fails as well.
    """
    return any(isinstance(n, _LEAVES) or _exits(n) for n in walk_scope(statement))


def _exits(node: ast.AST) -> bool:
    """`exit()`, `sys.exit(1)`, `parser.error("…")`."""
    func = node.func if isinstance(node, ast.Call) else None
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", None)
    return name in ("exit", "_exit", "quit", "error", "abort")


def _raises(script: Script, statement: ast.stmt, depth: int, names: bool) -> bool:
    """Whether a statement raises in each run; a loop is taken to make a pass."""
    if isinstance(statement, (*LOOPS, ast.With, ast.AsyncWith)):
        body = _until_left(statement.body)
        if any(_raises(script, inner, depth, names) for inner in body):
            return not isinstance(statement, (ast.With, ast.AsyncWith)) or all(
                _lets_through(script, item.context_expr) for item in statement.items
            )
    if isinstance(statement, ast.If) and _holds(script, statement.test):
        body = _until_left(statement.body)
        if any(_raises(script, inner, depth, names) for inner in body):
            return True
    if isinstance(statement, ast.ImportFrom):
        return is_missing(script.index, statement)
    if _unpacks_another_number(script, statement):
        return True
    if unpacks_other_parts(script, statement):
        return True
    return any(
        (isinstance(node, ast.Call) and _call_raises(script, node, depth))
        or (isinstance(node, ast.Attribute) and _is_no_option(script, node))
        or (names and isinstance(node, ast.Name) and _is_unbound(script, node))
        for head in _heads(statement)
        for node in _evaluated(head)
    )


def _holds(script: Script, test: ast.expr) -> bool:
    """Whether a test holds whatever a user asks for, or once in a run.

    `i % n == 0`, where a loop counts `i` up from 0, holds in its first pass;
    `accelerator.is_main_process` in one process.
    """
    its = script.evaluator.values(test)
    if its.all_in(True) and not any(value.default for value in its.known):
        return True
    if _IN_ONE_PROCESS.search(dotted(test) or ""):
        return True
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    left, right = test.left, test.comparators[0]
    if not isinstance(left, ast.BinOp) or not isinstance(left.op, ast.Mod):
        return False
    if not isinstance(right, ast.Constant) or right.value != 0 or len(test.ops) > 1:
        return False
    reached = script.definitions(left.left) if isinstance(left.left, ast.Name) else ()
    return bool(reached) and all(_counts_from_zero(d) for d in reached)


def _counts_from_zero(definition: Definition) -> bool:
    """`for i, x in enumerate(…)`, also in a bar that shows how far it has come."""
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


def _is_no_option(script: Script, node: ast.Attribute) -> bool:
    """`args.gpu_id`, where the command line has options and none of that name."""
    holder = node.value
    if not isinstance(holder, ast.Name) or not isinstance(node.ctx, ast.Load):
        return False
    if not _OPTIONS.search(holder.id) or node.attr.startswith("_"):
        return False
    return script.evaluator.command_line.has_no(holder, node.attr)


def _is_unbound(script: Script, name: ast.Name) -> bool:
    """Whether nothing gives a name a value: no line of the file, nor Python itself.

    A file with many such names for its length is a part of another, or an example.
    """
    if _is_before_stars(script, name):
        return name.id in script.index.free_names
    unbound = _unbound_names(script)
    most = min(MAX_UNBOUND, script.source.text.count("\n") // LINES_OF_UNBOUND)
    return name.id in unbound and len(unbound) <= most


def _is_before_stars(script: Script, name: ast.Name) -> bool:
    """Whether a name at the top of a file stands above all that brings any name."""
    index = script.index
    if not index.stars or index.function(name) is not None:
        return False
    brings = (
        statement.lineno
        for statement in index.all(ast.ImportFrom)
        if any(alias.name == "*" for alias in statement.names)
    )
    return name.lineno < min(brings)


def _unbound_names(script: Script) -> frozenset[str]:
    """Also of a file that takes all names of modules of the project."""
    index, project = script.index, script.index.project
    if not index.stars:
        return index.unbound_names
    names = index.free_names
    for star in index.stars:
        member = project.resolve(index, star) if project is not None else None
        if member is None or member[1] or member[0].stars or member[0].makes_names:
            return frozenset()
        names -= member[0].bound_names | member[0].imports.keys()
    return names


def _lets_through(script: Script, context: ast.expr) -> bool:
    """Whether a context manager is none that may catch what is raised below it."""
    call = context.func if isinstance(context, ast.Call) else context
    name = script.index.qualified(call) or ""
    return "suppress" not in name and "raises" not in name


def _heads(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement that run whenever it does."""
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        return [statement.iter]
    if isinstance(statement, (ast.If, ast.While)):
        return [statement.test]
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return [item.context_expr for item in statement.items]
    if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        return [statement.value] if statement.value is not None else []
    if isinstance(statement, (ast.Expr, ast.Return)):
        return [statement.value] if statement.value is not None else []
    return []


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression that are evaluated whenever it is."""
    todo = [node]
    while todo:
        its = todo.pop()
        yield its
        if isinstance(its, ast.Lambda):
            continue
        if isinstance(its, COMPREHENSIONS):
            first, *others = its.generators
            todo.append(first.iter)
            if not (others or first.ifs or isinstance(its, ast.GeneratorExp)):
                todo += _made(its)
        elif isinstance(its, ast.IfExp):
            todo.append(its.test)
        elif isinstance(its, ast.BoolOp):
            todo.append(its.values[0])
        elif isinstance(its, ast.Compare):
            todo += [its.left, its.comparators[0]]
        else:
            todo += ast.iter_child_nodes(its)


def _made(its: ast.expr) -> list[ast.expr]:
    """What a comprehension evaluates in each pass; like a loop it makes one."""
    parts = ("elt", "key", "value")
    return [part for name in parts if (part := getattr(its, name, None)) is not None]


def _call_raises(script: Script, call: ast.Call, depth: int) -> bool:
    """Whether a call gives what its function does not take, or that function fails.

    Or no torch that the project allows has what is called.
    """
    if _copies_nothing(script, call) or _is_newer(script, call):
        return True
    if has_no_method(script, call.func) or _is_in_no_module(script, call.func):
        return True
    found = surely_called(script, call)
    if not found:
        return bool(call.args or call.keywords) and takes_nothing(script, call.func)
    if not any(script.resolver.calls.takes(function, call) for function in found):
        return True
    return depth > 0 and all(fails(script, f, depth - 1) for f in found)


def _is_in_no_module(script: Script, func: ast.expr) -> bool:
    """`utils.init()`, of an imported module of the project that has no `init`."""
    if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name):
        return False
    index = script.index.home(func)
    name = index.imports.get(func.value.id)
    if name is None or index.project is None or func.attr.startswith("__"):
        return False
    reached = script.definitions(func.value)
    if not reached or any(d.kind != "import" for d in reached):
        return False
    if func.attr in index.attribute_writes or not index.project.owns(index, name):
        return False
    return lacks(index, f"{name}.{func.attr}")


def _is_newer(script: Script, call: ast.Call) -> bool:
    """`torch.optim.RAdam(…)` in a project that pins a torch before 1.10."""
    since = _SINCE.get(script.index.qualified(call.func) or "")
    newest = script.newest_torch if since is not None else None
    return since is not None and newest is not None and newest < since


def _copies_nothing(script: Script, call: ast.Call) -> bool:
    """`shutil.copytree("models", …)` where the project has no such folder.

    One that Python's own modules lie in, by its name: data may be anywhere.
    """
    index, project = script.index, script.index.project
    if project is None or index.qualified(call.func) != "shutil.copytree":
        return False
    source = call.args[0] if call.args else None
    if not isinstance(source, ast.Constant) or not isinstance(source.value, str):
        return False
    name = source.value
    if not name.isidentifier() or not project.files:
        return False
    above = index.source.path.parents
    folders = [folder for folder in above if project.root in (folder, *folder.parents)]
    there = any(project.in_folder(folder / name, "*") for folder in folders)
    known = any(name in path.parts for path in project.files)
    return not known and not there and not project.mentions(f'makedirs("{name}')


def _yields(script: Script, function: Function) -> bool:
    return bool(script.resolver.flow(function).yields) or any(
        isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk_scope(function)
    )


def _unpacks_another_number(script: Script, statement: ast.stmt) -> bool:
    """`a, b = f()` of a function whose every `return` gives three."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target, call = statement.targets[0], statement.value
    if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(call, ast.Call):
        return False
    if any(isinstance(item, ast.Starred) for item in target.elts):
        return False
    found = surely_called(script, call)
    return bool(found) and all(
        _never_gives(script, function, len(target.elts)) for function in found
    )


def _never_gives(script: Script, function: Function, number: int) -> bool:
    if isinstance(function, ast.AsyncFunctionDef) or _yields(script, function):
        return False
    returned = script.resolver.flow(function).returns
    return bool(returned) and all(
        _parts_of(script, value) not in (None, number) for value in returned
    )


def _parts_of(script: Script, value: ast.expr | None) -> int | None:
    """The parts of a written tuple, or of a named one that is made; None: unknown."""
    if isinstance(value, ast.Tuple):
        starred = any(isinstance(item, ast.Starred) for item in value.elts)
        return None if starred else len(value.elts)
    if not isinstance(value, ast.Call):
        return None
    home, named = script.index.home(value), dotted(value.func)
    made = [
        call
        for call in home.calls_by_name.get("namedtuple", ())
        if named and named in map(dotted, getattr(home.parent(call), "targets", ()))
    ]
    if len(made) != 1 or len(made[0].args) < 2:
        return None
    fields = made[0].args[1]
    return len(fields.elts) if isinstance(fields, (ast.List, ast.Tuple)) else None
