"""Statements that raise whenever they run, as far as the project's own code shows.

A call that its function does not take, or one that a process would make of it, a
result of another number of parts than are unpacked, an attribute that an object lacks,
such as an option that no command line has, a name that nothing defines, an import of
what the project lacks: what stands behind one of these never runs, and a loop around
one makes no second pass. In a notebook, of which each cell runs alone, such names count
for their own cell.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gpulint.finding import Position
from gpulint.index import Function
from gpulint.index.walk import LOOPS, dotted, walk_scope
from gpulint.script.branches import blocks_of
from gpulint.script.loading.batch_parts import unpacks_other_parts
from gpulint.script.reaching.evaluated import (
    evaluated,
    heads,
    leaves,
    runs_its_body,
    until_left,
)
from gpulint.script.reaching.lacking import raises_by_giving, raises_by_reading
from gpulint.script.reaching.loaded_sources import loads_nothing
from gpulint.script.reaching.loaded_weights import runs_weights
from gpulint.script.reaching.missing_imports import is_missing, lacks
from gpulint.script.reaching.processes import starts_amiss
from gpulint.script.reaching.surely_called import surely_called, takes_nothing
from gpulint.script.reaching.written_out import has_no_method
from gpulint.source import NOTEBOOK

if TYPE_CHECKING:
    from gpulint.script.model import Script

Find = Callable[["Script", ast.stmt, int, bool], bool]
_ASKS_FOR_LOADER = (6, 0)  # of PyYAML
MAX_CALLS = 3  # into functions that a statement calls, and so on
MAX_UNBOUND = 2  # names that somebody has forgotten
LINES_OF_UNBOUND = 25  # at least, for each of them
# The first torch that has a name, for what people use of newer ones.
_SINCE = {
    "torch.cuda.amp.GradScaler": (1, 6),
    "torch.cuda.amp.autocast": (1, 6),
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

_TRAINERS = frozenset(
    f"{package}.Trainer"
    for package in "lightning lightning.pytorch pytorch_lightning".split()
)
_LAUNCHED = re.compile(r"(ddp|fsdp|deepspeed)(?!_notebook|_fork)")
# What is sliced by floats: NumPy's grids, and pandas' labels.
_OF_FLOATS = frozenset("r_ c_ s_ mgrid ogrid index_exp loc".split())
_GOES_ON = (ast.Continue, ast.Break, ast.Return)
_OPEN = ("open", "io.open", "os.fdopen")
_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_OF_LOADERS = frozenset(
    "dataset batch_size shuffle sampler batch_sampler num_workers collate_fn in_order "
    "pin_memory drop_last timeout worker_init_fn multiprocessing_context generator "
    "prefetch_factor persistent_workers pin_memory_device".split()
)


def fails_around(script: Script, node: ast.AST) -> bool:
    """Whether a statement that raises is always run with a place, or after one pass.

    Its own, one before it in a block around it, what one around it evaluates first, or
    one behind it in a loop that it stands in. Only in the function of the place;
    whether its callers fail is another question.
    """
    in_cell = script.source.path.suffix == NOTEBOOK
    everywhere = not in_cell or script.index.function(node) is not None

    def raises(statement: ast.stmt, find: Find | None = None) -> bool:
        names = everywhere or _cell(script, statement) == _cell(script, node)
        return _raises(script, statement, MAX_CALLS, names, find)

    child = node
    own = True  # the statement that holds the place, not one around it
    for above in script.index.ancestors(node):
        if own and isinstance(child, ast.stmt):
            own = False
            if raises(child):
                return True
        if isinstance(above, ast.For) and unpacks_other_parts(script, above):
            return True
        within = isinstance(child, (ast.stmt, ast.match_case))
        if within and isinstance(above, ast.stmt) and raises(above, _head_raises):
            return True
        for block in blocks_of(above):
            if child in block:
                number = block.index(child)
                if any(map(raises, block[:number])):
                    return True
                if _runs_again(script, above, block):
                    behind = _until_again(block[number + 1 :])
                    stays = not leaves(child)
                    if stays and any(map(raises, behind)):
                        return True
        if isinstance(above, Function):
            return False
        child = above
    return False


def _until_again(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a loop's pass to which all come that may make another.

    What ends the program, such as `sys.exit()`, lets none follow.
    """
    for statement in block:
        if any(isinstance(node, _GOES_ON) for node in walk_scope(statement)):
            return
        yield statement


def _cell(script: Script, node: ast.AST) -> int | None:
    """The number of the notebook's cell that a node stands in."""
    return script.source.in_cell(Position(getattr(node, "lineno", 1), 1))[0]


def _runs_again(script: Script, above: ast.AST, block: list[ast.stmt]) -> bool:
    """Whether a block is the body of a loop, or a branch in one."""
    if isinstance(above, ast.If):
        return bool(script.loops_around(above))
    return isinstance(above, LOOPS) and block is above.body


def fails(script: Script, function: Function, depth: int) -> bool:
    """Whether a function raises whenever it is called; a generator does so later."""
    project = script.index.project
    if project is None:
        return _fails(script, function, depth)
    return project.remembered(
        f"fails, {depth}", function, lambda: _fails(script, function, depth)
    )


def _fails(script: Script, function: Function, depth: int) -> bool:
    if isinstance(function, ast.AsyncFunctionDef) or _yields(script, function):
        return False
    its = script.of(function)
    return any(_raises(its, s, depth, names=True) for s in until_left(function.body))


def _raises(
    script: Script,
    statement: ast.stmt,
    depth: int,
    names: bool,
    find: Find | None = None,
) -> bool:
    """Whether a statement raises in each run; many findings stand behind the same."""
    key = (find or _must_raise).__name__, statement, depth, names
    if key not in script.raising:
        script.raising[key] = (find or _must_raise)(script, statement, depth, names)
    return script.raising[key]


def _must_raise(script: Script, statement: ast.stmt, depth: int, names: bool) -> bool:
    """The same, found anew; a loop is taken to make a pass."""
    if runs_its_body(script, statement):
        body = until_left(statement.body)  # type: ignore[attr-defined]
        if any(_raises(script, inner, depth, names) for inner in body):
            return True
    side = _by_default(script, statement) if isinstance(statement, ast.If) else ()
    if any(_raises(script, inner, depth, names) for inner in until_left(list(side))):
        return True  # for all but those who ask for the other side
    if isinstance(statement, ast.ImportFrom):
        return is_missing(script.index, statement)
    if _unpacks_another_number(script, statement):
        return True
    if unpacks_other_parts(script, statement):
        return True
    return _head_raises(script, statement, depth, names)


def _by_default(script: Script, branch: ast.If) -> list[ast.stmt]:
    """The side of `if args.resume:` that runs unless a user gives the option.

    And that of `if use_gpu:` on a GPU, where alone findings count.
    """
    test, off, on = branch.test, branch.orelse, branch.body
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, off, on = test.operand, on, off
    if _asks_for_gpu(script, test):
        return on
    if not isinstance(test, (ast.Name, ast.Attribute)):
        return []
    values = script.evaluator.values(test)
    if values.all_in(False, None, 0, ""):
        return off
    return on if values.all_in(True) else []


def _asks_for_gpu(script: Script, test: ast.expr) -> bool:
    """`use_gpu`, of `use_gpu = torch.cuda.is_available()`; it may be False besides.

    Also where more is asked: `not args.no_cuda and torch.cuda.is_available()`.
    """
    if not isinstance(test, ast.Name):
        return _is_gpu(script, test)
    made = [definition.value for definition in script.definitions(test)]
    asked = [v for v in made if not (isinstance(v, ast.Constant) and not v.value)]
    return bool(asked) and all(_is_gpu(script, value) for value in asked)


def _is_gpu(script: Script, asked: ast.expr | None) -> bool:
    if isinstance(asked, ast.BoolOp) and isinstance(asked.op, ast.And):
        return any(_is_gpu(script, part) for part in asked.values)
    if not isinstance(asked, ast.Call):
        return False
    return script.index.qualified(asked.func) == "torch.cuda.is_available"


def _head_raises(script: Script, statement: ast.stmt, depth: int, names: bool) -> bool:
    """Whether what a statement evaluates first raises: of an `if`, its condition."""
    return any(
        (isinstance(node, ast.Call) and _call_raises(script, node, depth))
        or (isinstance(node, ast.Attribute) and raises_by_reading(script, node))
        or (isinstance(node, ast.Subscript) and _slices_by_quotient(node))
        or (isinstance(node, ast.Name) and _is_read_too_early(script, node, names))
        or (names and isinstance(node, ast.Name) and _is_unbound(script, node))
        for head in heads(statement)
        for node in evaluated(head)
    )


def _slices_by_quotient(taken: ast.Subscript) -> bool:
    """`rows[: n / folds]`, which Python 2 divided without a remainder."""
    if (dotted(taken.value) or "").rpartition(".")[2] in _OF_FLOATS:
        return False
    part = taken.slice
    bounds = (part.lower, part.upper, part.step) if isinstance(part, ast.Slice) else ()
    return any(map(_is_quotient, bounds))


def _is_quotient(node: ast.expr | None) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)


def _is_unbound(script: Script, name: ast.Name) -> bool:
    """Whether nothing gives a name a value: no line of the file, nor Python itself.

    A file with many such names for its length is a part of another, or an example.
    """
    if _is_before_stars(script, name):
        return name.id in script.index.free_names
    unbound = _unbound_names(script)
    most = min(MAX_UNBOUND, script.source.text.count("\n") // LINES_OF_UNBOUND)
    return name.id in unbound and len(unbound) <= most


def _is_read_too_early(script: Script, name: ast.Name, top: bool) -> bool:
    """`folder = join(folder, "train")`, of a name that has no value yet.

    A local one, or with `top` one at the top of the file, which nothing else may set.
    In the first round of a loop what stands further down in it has set none.
    """
    scope = script.index.scope(name)
    if not isinstance(name.ctx, ast.Load):
        return False
    if isinstance(scope, ast.Module):
        its = script.index
        if not top or its.stars or its.makes_names or name.id.startswith("__"):
            return False
        if hasattr(builtins, name.id):
            return False
    elif not isinstance(scope, Function):
        return False
    flow = script.resolver.flow(scope)
    bound = flow.definitions.get(name.id, ())
    if not bound or name.id in flow.outer:
        return False
    index = script.index.home(name)
    if name.id in index.writers:
        return False  # by a function inside
    for reached in flow.uses.get(name, ()):
        statement = index.statement(reached.node)
        own = isinstance(statement, ast.Assign) and statement is index.statement(name)
        behind = getattr(reached.node, "lineno", 0) > name.lineno
        if reached.kind not in ("assign", "augment") or not (own or behind):
            return False
    for node in walk_scope(scope):
        if isinstance(node, ast.ExceptHandler) and node.name == name.id:
            return False
        stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        if not stored or node.id != name.id:  # type: ignore[attr-defined]
            continue
        if node.lineno < name.lineno:  # type: ignore[attr-defined]
            return False
    return all(getattr(d.node, "lineno", 0) >= name.lineno for d in bound)


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
    index = script.index
    if not index.stars:
        return index.unbound_names
    names = index.free_names
    for star in index.stars:
        member = index.member(star)
        if member is None or member[1] or member[0].stars or member[0].makes_names:
            return frozenset()
        names -= member[0].bound_names | member[0].imports.keys()
    return names


def _call_raises(script: Script, call: ast.Call, depth: int) -> bool:
    """Whether a call gives what its function does not take, or that function fails.

    Or no torch that the project allows has what is called.
    """
    if _copies_nothing(script, call) or _is_newer(script, call):
        return True
    if _lacks_loader(script, call) or _gives_unknown_option(script, call):
        return True
    if _opens_text_unbuffered(script, call) or _launches_in_notebook(script, call):
        return True
    if has_no_method(script, call.func) or _is_in_no_module(script, call.func):
        return True
    if starts_amiss(script, call) or loads_nothing(script, call):
        return True
    if runs_weights(script, call):
        return True
    named = script.index.qualified(call.func)
    if named == "range" and any(map(_is_quotient, call.args)):
        return True
    found = surely_called(script, call)
    if not found:
        return bool(call.args or call.keywords) and takes_nothing(script, call.func)
    if not any(script.resolver.calls.takes(function, call) for function in found):
        return True
    if raises_by_giving(script, call, found):
        return True
    return depth > 0 and all(fails(script, f, depth - 1) for f in found)


def _is_in_no_module(script: Script, func: ast.expr) -> bool:
    """`utils.init()`, of an imported module of the project that has no `init`."""
    if not isinstance(func, ast.Attribute) or dotted(func.value) is None:
        return False
    head: ast.expr = func.value
    while isinstance(head, ast.Attribute):
        head = head.value
    index = script.index.home(func)
    name = index.qualified(func.value)
    if name is None or func.attr.startswith("__"):
        return False
    reached = script.definitions(head)
    if not reached or any(d.kind != "import" for d in reached):
        return False
    if func.attr in index.attribute_writes or not index.owns(name):
        return False
    return lacks(index, f"{name}.{func.attr}")


def _is_newer(script: Script, call: ast.Call) -> bool:
    """`torch.optim.RAdam(…)` in a project that pins a torch before 1.10."""
    since = _SINCE.get(script.index.qualified(call.func) or "")
    newest = script.newest_torch if since is not None else None
    return since is not None and newest is not None and newest < since


def _lacks_loader(script: Script, call: ast.Call) -> bool:
    """`yaml.load(file)`, which PyYAML 6 does not take, in a project that pins one."""
    if script.index.qualified(call.func) != "yaml.load":
        return False
    if len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
        return False
    oldest = script.releases("pyyaml").lowest
    return oldest is not None and oldest >= _ASKS_FOR_LOADER


def _gives_unknown_option(script: Script, call: ast.Call) -> bool:
    """`DataLoader(dataset, discrete=True)`: of options that no torch has had."""
    if not any(k.arg and k.arg not in _OF_LOADERS for k in call.keywords):
        return False
    return (script.index.qualified(call.func) or "") in _LOADERS


def _launches_in_notebook(script: Script, call: ast.Call) -> bool:
    """`Trainer(strategy="ddp")` of Lightning, which no notebook can start."""
    if script.source.path.suffix != NOTEBOOK:
        return False
    if script.index.qualified(call.func) not in _TRAINERS:
        return False
    given = (k.value for k in call.keywords if k.arg == "strategy")
    names = {str(v.value) for v in given if isinstance(v, ast.Constant)}
    return any(_LAUNCHED.match(name) for name in names)


def _opens_text_unbuffered(script: Script, call: ast.Call) -> bool:
    """`open("log.txt", "a", 0)`, which Python 2 alone takes."""
    name = script.index.qualified(call.func)
    if name not in _OPEN or name in script.index.bound_names:
        return False
    mode, buffering = (
        script.evaluator.argument(call, option, position).direct
        for option, position in (("mode", 1), ("buffering", 2))
    )
    if not isinstance(buffering, ast.Constant) or buffering.value != 0:
        return False
    if not isinstance(mode, ast.Constant) or not isinstance(mode.value, str):
        return False
    return buffering.value is not False and "b" not in mode.value


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
    """`a, b = f()` of a function whose every `return` gives three, or that has none."""
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
    if not returned:
        return not function.decorator_list and _is_of_module(script, function)
    return all(_parts_of(script, value) not in (None, number) for value in returned)


def _is_of_module(script: Script, function: Function) -> bool:
    """Whether a function is no method, which a class below may write anew."""
    return isinstance(script.index.home(function).parent(function), ast.Module)


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
