"""Whether a script trains on a GPU, in which format, and where it starts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from gpulint.index import NOT_CUDA, FileIndex, Function, Target
from gpulint.index.walk import FUNCTIONS, dotted, walk
from gpulint.script.by_name import Kept
from gpulint.script.neighbours import find_programs, run_together
from gpulint.script.rewriting.edits import Edit, InsertAfter, InsertBefore, Rewrite
from gpulint.script.training.training_step import find_steps, is_loss

if TYPE_CHECKING:
    from gpulint.script.iterations import LoopNode
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_DOUBLE = re.compile(r"(^|\.)(float64|double|DoubleTensor)$")
_DEVICE = re.compile(r"cuda|device|gpu|\.to\(|accelerat|put\(", re.IGNORECASE)
_MPS = re.compile(r"(?<![a-z])mps(?![a-z])")
_TRAINERS = re.compile(r"Trainer$|TrainingArguments$")
# Frameworks that set precision and backends themselves.
_OWN_SETTINGS = frozenset({"lightning", "fastai", "deepspeed", "ignite", "xla"})
MAX_PROGRAMS = 20
_SETUP = frozenset("os sys pathlib warnings logging random math matplotlib plt".split())


def trains_on_gpu(script: Script) -> bool:
    """Whether the file works on a GPU: it moves something there, or back."""
    wanted = {m.target for m in script.moves}
    if wanted and wanted <= NOT_CUDA:
        return False
    text = script.source.prose
    named = "mps" in text and "cuda" not in text and "gpu" not in text.lower()
    if named and _MPS.search(text) is not None:  # `dumps` has the letters too
        return False
    return script.uses_gpu or (_comes_back(script) and not _made_here(script))


def _model_is_on_host(script: Script, loop: Loop) -> bool:
    """Whether what a loop calls is moved, and to the CPU alone: `model.to("cpu")`."""
    called = {dotted(call.func) for call in loop.calls}
    moved = {m.target for m in script.moves if dotted(m.receiver) in called - {None}}
    return moved == {Target.CPU}


def stays_on_host(script: Script, loop: Loop) -> bool:
    """Whether a function trains on the CPU, of a file whose others train on a GPU.

    It says nothing of devices, while a training loop of another function moves its
    batches there; or it sends them to a device that names the CPU; or a cell of a
    notebook puts its model on the CPU, or moves no batch of a loader whose batches
    other cells move, or a later cell moves the model first.
    """
    if _model_is_on_host(script, loop) or _leaves_batches(script, loop):
        return True
    if _sends_to_host(script, loop):
        return True
    if _model_is_moved_later(script, loop):
        return True
    function = _outermost(script, loop)
    if function is None or not isinstance(script.index.parent(function), ast.Module):
        return False
    if _names_device(script, function):
        return False
    others = [x for x in script.training_loops if _outermost(script, x) != function]
    return any(_outermost(script, x) for _, x in script.batch_moves if x in others)


def _sends_to_host(script: Script, loop: Loop) -> bool:
    """Whether all that becomes of batches is `x.to(device)`, of what names the CPU."""
    moves = [m for m in script.moves if script.batches.loop_of(m.receiver) is loop]
    return bool(moves) and all(
        move.target is Target.CPU and isinstance(move.device, (ast.Name, ast.Attribute))
        for move in moves
    )


def _model_is_moved_later(script: Script, loop: Loop) -> bool:
    """Whether a loop outside of functions calls a model that is moved behind it.

    And moves no batch itself.
    """
    if loop.function is not None or script.moves_in([loop]):
        return False
    last = loop.node.end_lineno or loop.node.lineno
    for call in loop.calls:
        name = call.func
        if not isinstance(name, ast.Name):
            continue
        moves = [m.call for m in script.moves if dotted(m.receiver) == name.id]
        made = [d.value for d in script.definitions(name)]
        if (
            moves
            and all(m.lineno > last and script.index.function(m) is None for m in moves)
            and all(
                isinstance(value, ast.Call) and not _DEVICE.search(script.text(value))
                for value in made
            )
        ):
            return True
    return False


def _leaves_batches(script: Script, loop: Loop) -> bool:
    """Whether a loop outside of functions takes a loader as it is that others move."""
    if loop.function is not None or _names_device(script, loop.node):
        return False
    taken = {script.text(iterated) for iterated, _ in loop.items}
    others = {x.node: x for _, x in script.batch_moves if x.function is None}
    return any(
        script.text(iterated) in taken
        for other in others.values()
        for iterated, _ in other.items
        if other is not loop
    )


def _names_device(script: Script, node: Function | LoopNode) -> bool:
    rows = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return any(_DEVICE.search(script.source.line(row)) for row in rows)


def _outermost(script: Script, loop: Loop) -> Function | None:
    above = script.index.ancestors(loop.node)
    functions = [n for n in above if isinstance(n, FUNCTIONS)]
    found = functions[-1] if functions else None
    return found if not isinstance(found, ast.Lambda) else None


def trained_on_gpu(script: Script) -> Loop | None:
    """A training loop on a GPU, of this file or of a program that it is a part of."""
    return _first_on_gpu(script, islice(find_programs(script), MAX_PROGRAMS))


def trained_beside(script: Script) -> Loop | None:
    """The same, also of another file that such a program imports."""
    return trained_on_gpu(script) or _first_on_gpu(script, run_together(script))


def _first_on_gpu(script: Script, files: Iterable[FileIndex]) -> Loop | None:
    for index in files:
        if "backward(" in index.source.text:
            program = script.of(index.tree)
            loops = () if program.is_test else program.training_loops
            if loops and trains_on_gpu(program):
                return loops[0]
    return None


def _comes_back(script: Script) -> bool:
    """Whether something is copied to the host: it was on a device before."""
    calls = (c for c in script.index.all(ast.Call) if not c.args)
    return any(
        isinstance(c.func, ast.Attribute) and c.func.attr == "cpu" for c in calls
    )


def _made_here(script: Script) -> bool:
    """Whether the file makes the model that it trains; it never moves one."""
    forward = (s.forward for s in find_steps(script) if s.forward is not None)
    return any(
        origin.call is not None and script.index.holds(origin.call)
        for call in forward
        for origin in script.resolver.origins(call.func)
    )


def trains_in_double(script: Script) -> ast.AST | None:
    """Where the model, its inputs or the default type become float64."""
    for call in script.index.all(ast.Call):
        name = script.index.qualified(call.func) or ""
        if name.startswith("torch.set_default_"):
            if any(_is_double(script, a) for a in call.args):
                return call
        elif isinstance(call.func, ast.Attribute) and _converts(script, call):
            receiver = call.func.value
            batch = script.batches.loop_of(receiver) is not None
            if batch or _is_model(script, receiver):
                return call
    return _options_of_doubles(script)


def _options_of_doubles(script: Script) -> ast.AST | None:
    """`tkwargs = {"dtype": torch.double, …}`, with which tensors are made."""
    for options in script.index.all(ast.Dict):
        for key, value in zip(options.keys, options.values, strict=True):
            named = isinstance(key, ast.Constant) and key.value == "dtype"
            if named and _is_double(script, value):
                return options
    return None


def _is_model(script: Script, node: ast.expr) -> bool:
    """Whether an expression is a model, as `Net().to(device)` is."""
    while isinstance(node, ast.Call):
        func = node.func
        moved = isinstance(func, ast.Attribute) and func.attr in ("to", "cuda")
        if not moved:
            name = (dotted(func) or "").rpartition(".")[2]
            return name[:1].isupper() or script.modules.makes_module(node)
        assert isinstance(func, ast.Attribute)
        node = func.value
    return script.modules.is_module(node) and not is_loss(script, node)


def _converts(script: Script, call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "double":
        return not call.args
    values = [*call.args, *(k.value for k in call.keywords if k.arg == "dtype")]
    return call.func.attr in ("to", "type") and any(
        _is_double(script, v) for v in values
    )


def _is_double(script: Script, node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return "Double" in str(node.value)
    name = script.index.qualified(node) or ""
    return name.startswith("torch.") and bool(_DOUBLE.search(name))


def has_own_settings(script: Script) -> bool:
    """Whether a framework runs the training, with its own settings of backends."""
    return bool(script.frameworks & _OWN_SETTINGS) or uses_a_trainer(script)


def uses_a_trainer(script: Script) -> bool:
    """Whether the Hugging Face Trainer runs the training."""
    return any(
        name.startswith("transformers.") and _TRAINERS.search(name)
        for name in script.index.imported
    )


def runs_on_host(script: Script) -> bool:
    """Whether a file is a part of programs none of whose files asks for a device."""
    files = [script.of(index.tree) for index in run_together(script)]
    return any(map(is_started, files)) and not any(file.uses_gpu for file in files)


def is_started(script: Script) -> bool:
    """Whether the file is a script that is run, not one that is only imported."""
    return any(_runs(script, statement) for statement in script.index.tree.body)


def _runs(script: Script, statement: ast.stmt) -> bool:
    """Whether a statement at the top of the file is a main guard, or trains."""
    if isinstance(statement, ast.If) and any(
        dotted(n) == "__name__" for n in walk(statement.test)
    ):
        return not _sets_paths(statement)
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    nodes = list(walk(statement))
    trainers = [loop.function for loop in script.training_loops]
    if any(loop.node in nodes for loop in script.training_loops):
        return True
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    fits = (getattr(call.func, "attr", "") == "fit" for call in calls)
    if "lightning" in script.frameworks and any(fits):
        return True
    called = (script.resolver.calls.callee(c) for c in calls)
    return any(f is not None and (f.name == "main" or f in trainers) for f in called)


def why_not_at_start(script: Script) -> str | None:
    """Why a line that sets torch up must not simply follow the imports."""
    if not is_started(script):
        return "the file is imported: the line belongs in the script that is run"
    if _last_leading_import(script) is None:
        return "torch is not imported at the top of the file"
    guard = _only_start(script) if script.training_loops else None
    if guard is not None and not _leads_to_training(script, guard):
        return "the main guard trains nothing: the line belongs in what uses the file"
    return None


def _leads_to_training(script: Script, guard: ast.If) -> bool:
    """Whether what stands under a main guard names what trains, or what names that.

    By definitions at the top of the file, assignments there, and what is decorated by
    something named (`@app.command()`).
    """
    others = [s for s in script.index.tree.body if s is not guard]
    todo: list[ast.AST] = [guard]
    seen: set[str] = set()
    for node in todo:
        if any(script.index.inside(loop.node, node) for loop in script.training_loops):
            return True
        names = {n.id for n in walk(node) if isinstance(n, ast.Name)}
        if names & {"fire", "Fire"}:
            return True  # it takes what the file has
        seen |= names
        found = [s for s in others if not seen.isdisjoint(_names_of(s))]
        others = [s for s in others if s not in found]
        todo += found
    return False


def _names_of(statement: ast.stmt) -> set[str]:
    """What a statement at the top binds, and what decorates it."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    targets: list[ast.expr] = getattr(statement, "targets", [])
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    names = {n.id for n in walk(*decorators, *targets) if isinstance(n, ast.Name)}
    if isinstance(statement, Kept):
        names.add(statement.name)
    return names


def at_start(script: Script, title: str, setting: str) -> Rewrite:
    """A line of torch's own, such as `backends.cudnn.benchmark = True`, up there.

    Under the main guard where others may import this file, whose runs are not meant,
    and that guard is all that starts it; processes (`spawn`) come to none.
    """
    after = _last_leading_import(script)
    assert after is not None, "asked before"
    torch, imports = script.names.torch
    guard = _only_start(script)
    edit: Edit = InsertAfter(after, f"\n{torch}.{setting}")
    if guard is not None and _is_module(script) and "spawn" not in script.source.text:
        edit = InsertBefore(guard.body[0], f"{torch}.{setting}")
    return Rewrite(title, (edit,), imports)


def _only_start(script: Script) -> ast.If | None:
    """`if __name__ == "__main__":`, if nothing else at the top of the file trains.

    With a line of its own for what stands under it.
    """
    first, *others = [s for s in script.index.tree.body if _runs(script, s)]
    if others or not isinstance(first, ast.If) or not _is_main(first.test):
        return None
    return first if first.body[0].lineno > first.lineno else None


def _is_main(test: ast.expr) -> bool:
    """`__name__ == "__main__"`"""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = (test.left, test.comparators[0])
    told = [s.value for s in sides if isinstance(s, ast.Constant)]
    return told == ["__main__"] and any(dotted(side) == "__name__" for side in sides)


def _is_module(script: Script) -> bool:
    """Whether other files import a file, or a package has it."""
    project = script.index.project
    others = islice(find_programs(script), 1, None)  # the first is this file
    if project is None or not script.source.path.is_relative_to(project.root):
        return False
    if any(True for _ in others):
        return True
    above = script.source.path.relative_to(project.root).parents
    return any(project.in_folder(project.root / a, "*__init__.py") for a in above)


def _last_leading_import(script: Script) -> ast.stmt | None:
    """The last import at the top of the file; None if torch is not among them."""
    last: ast.stmt | None = None
    has_torch = False
    for number, statement in enumerate(script.index.tree.body):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            last = statement
            names = [a.name for a in statement.names]
            module = getattr(statement, "module", None) or ""
            has_torch = has_torch or any(
                n.partition(".")[0] == "torch" for n in [module or names[0], *names]
            )
        elif not _is_setup(statement, number):
            break
    return last if has_torch else None


def _is_setup(statement: ast.stmt, number: int) -> bool:
    """What may stand among imports: a docstring, paths, warnings, optional imports."""
    if isinstance(statement, ast.If) and _sets_paths(statement):
        return True
    if isinstance(statement, (ast.Try, ast.If)):
        inner = [*statement.body, *statement.orelse]
        for handler in getattr(statement, "handlers", ()):
            inner += handler.body
        return all(isinstance(s, (ast.Import, ast.ImportFrom, ast.Pass)) for s in inner)
    if not isinstance(statement, (ast.Expr, ast.Assign)):
        return False
    if number == 0 and isinstance(statement.value, ast.Constant):
        return True
    return _is_about_paths(statement, set())


def _sets_paths(guard: ast.If) -> bool:
    """Whether a main guard only sets up what the imports behind it need.

    `if __name__ == "__main__": ROOT = …; sys.path.append(ROOT); os.chdir(ROOT)`.
    """
    if not _is_main(guard.test) or guard.orelse:
        return False
    own = {
        target.id
        for statement in guard.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    return all(
        isinstance(statement, (ast.Import, ast.ImportFrom))
        or (
            isinstance(statement, (ast.Expr, ast.Assign))
            and _is_about_paths(statement, own)
        )
        for statement in guard.body
    )


def _is_about_paths(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement is about folders and warnings alone, or names for such."""
    heads = {n.id for n in walk(statement) if isinstance(n, ast.Name)}
    return bool(heads) and heads <= _SETUP | {"__file__", "str", "Path"} | names
