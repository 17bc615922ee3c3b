"""Loaders whose batches nobody takes, takes once, or takes apart on the host."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.walk import LOOPS, dotted, walk
from gpulint.script.loading.loaders import Loader
from gpulint.script.loading.pageable import sends_made
from gpulint.script.loading.worker_state import main_guard
from gpulint.script.neighbours import run_together
from gpulint.source import NOTEBOOK

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

# Lightning's hooks that only these calls run, on models that have these methods.
_HOOKS = {
    "test_dataloader": (".test(", "def test_step"),
    "predict_dataloader": (".predict(", "def predict_step"),
}
_TRAINS = ("rainer", "LightningModule", "LightningCLI")  # `Trainer`, `cfg.trainer`
_PROCESSES = re.compile(r"\bProcessPool|\bmultiprocessing\b|\bmp\.Pool")
_HANDS_OVER = ("submit", "apply_async", "apply")
_LOOKS = ("len", "print", "type", "repr", "display")
_FITS = re.compile(r"rainer(\([^()]*\))?\.fit\(")


def taken_once(script: Script, loader: Loader) -> bool:
    """Whether few batches are taken, or none: `next(iter(loader))` in no loop."""
    if loader.loops:
        return False
    takes = (p for p in places(script, loader) if not is_looked_at(script, p))
    return all(_takes_one(script, p) for p in takes)


def gives_one_a_pass(script: Script, loader: Loader) -> bool:
    """Whether each pass is for one batch: `next(iter(loader))` alone, however often."""
    taken = [p for p in places(script, loader) if not is_looked_at(script, p)]
    begun = [_call_around(script, place, "iter") for place in taken]
    return (
        not loader.loops
        and bool(begun)
        and all(
            call is not None and _call_around(script, call, "next") for call in begun
        )
    )


def shown_once(script: Script, loader: Loader) -> bool:
    """The same, but for scripts that make a loader and leave it to others."""
    left = script.source.path.suffix != NOTEBOOK and not is_read(script, loader)
    return not left and taken_once(script, loader)


def is_read(script: Script, loader: Loader) -> bool:
    """Whether anything here takes a loader, for more than the number of its batches."""
    return any(not is_looked_at(script, place) for place in places(script, loader))


def kept_once(script: Script, loader: Loader) -> bool:
    """Whether batches are taken a single time, into a list: `list(loader)`."""
    taken = [p for p in places(script, loader) if not is_looked_at(script, p)]
    return bool(taken) and all(_is_kept(script, place) for place in taken)


def _is_kept(script: Script, node: ast.AST) -> bool:
    above = script.index.parent(node)
    if isinstance(above, ast.comprehension):
        whole = script.index.parent(above)
        kept = isinstance(whole, ast.ListComp) and above.iter is node
    else:
        callee = above.func if isinstance(above, ast.Call) else None
        kept = callee is not None and script.index.qualified(callee) in (
            "list",
            "tuple",
        )
    scope = script.index.scope(node)
    around = script.index.ancestors(node)
    return kept and not any(isinstance(a, LOOPS) for a in around if a is not scope)


def places(script: Script, loader: Loader) -> Iterator[ast.AST]:
    """Where the loader is read: its call, or the local name that it is put under."""
    index = script.index
    above = index.parent(loader.call)
    scope = index.scope(loader.call)
    if not isinstance(above, ast.Assign):
        yield loader.call
        return
    name = above.targets[0]
    local = name if len(above.targets) == 1 and isinstance(name, ast.Name) else None
    shared = isinstance(scope, ast.Module) and main_guard(script, loader.call) is None
    if local is None or (shared and is_imported(script)):
        yield above  # kept where others may find it
        return
    for node in index.reads.get(local.id, ()):
        named = isinstance(node, ast.Name)
        if named and any(d.node is local for d in script.definitions(node)):
            yield node


def is_imported(script: Script) -> bool:
    """Whether another file may import names of this one."""
    project = script.index.project
    stem = script.source.path.stem
    return project is not None and project.importers(script.index, stem, "") != []


def is_looked_at(script: Script, node: ast.AST) -> bool:
    """Whether a loader is only asked how many batches it has, or shown itself.

    By `print(loader)`, an f-string, or the last line of a notebook's cell.
    """
    above = script.index.parent(node)
    if isinstance(above, ast.Call):
        return node in above.args and script.index.qualified(above.func) in _LOOKS
    if isinstance(above, ast.Tuple):
        above = script.index.parent(above)
    return isinstance(above, (ast.Expr, ast.FormattedValue))


def _takes_one(script: Script, node: ast.AST) -> bool:
    """`next(iter(node))` that no loop of its function repeats, and no step calls.

    Also of an iterator with a name of its own, for each batch that is taken.
    """
    taken = iterators(script, node)
    return bool(taken) and all(_is_taken_once(script, its) for its in taken)


def iterators(script: Script, node: ast.AST) -> list[ast.expr]:
    """`iter(node)`, or where the name is read that it is put under."""
    iterator = _call_around(script, node, "iter")
    if iterator is None:
        return []
    return [*_named_iterator(script, iterator)] or [iterator]


def _call_around(script: Script, node: ast.AST, name: str) -> ast.Call | None:
    """`name(node)`."""
    above = script.index.parent(node)
    if not isinstance(above, ast.Call) or script.index.qualified(above.func) != name:
        return None
    return above if above.args == [node] else None


def _asked(script: Script, iterator: ast.AST) -> ast.Call | None:
    """`iterator.next()`, of releases before torch 1.13."""
    func = script.index.parent(iterator)
    if not isinstance(func, ast.Attribute) or func.attr != "next":
        return None
    call = script.index.parent(func)
    return call if isinstance(call, ast.Call) and call.func is func else None


def _named_iterator(script: Script, iterator: ast.Call) -> list[ast.Name]:
    """The reads of `batches = iter(loader)`, where no other file can see the name."""
    above = script.index.parent(iterator)
    target = above.targets[0] if isinstance(above, ast.Assign) else None
    inside = script.index.function(iterator) or main_guard(script, iterator)
    if not isinstance(target, ast.Name) or (inside is None and is_imported(script)):
        return []
    scope = script.index.scope(iterator)
    reads = script.index.reads.get(target.id, ())
    return [
        node
        for node in reads
        if isinstance(node, ast.Name) and script.index.inside(node, scope)
    ]


def _is_taken_once(script: Script, iterator: ast.AST) -> bool:
    batch = _call_around(script, iterator, "next") or _asked(script, iterator)
    if batch is None:
        return False
    index, scope = script.index, script.index.scope(batch)
    looped = any(isinstance(a, LOOPS) for a in index.ancestors(batch) if a is not scope)
    if looped or not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return not looped and isinstance(scope, ast.Module)
    calls = script.resolver.calls.callers(scope)
    loops = [x for call in calls for x in script.of(call).loops_around(call)]
    return not any(x.train or x.eval or x.batches for x in loops)


def has_trainer(script: Script) -> bool:
    """Whether anything in the project may train with a data module; alone it may."""
    project = script.index.project
    if project is None or len(project.files) < 2:
        return True
    return any(map(project.mentions, _TRAINS))


def run_by_nobody(script: Script, loader: Loader) -> bool:
    """Whether it is of a Lightning hook that is never run.

    Of one for tests or predictions, or of a data module where nothing trains with any.
    """
    owner = script.index.owner(loader.call)
    names = script.resolver.classes.base_names(owner) if owner is not None else ()
    if any(n.endswith("DataModule") for n in names) and not has_trainer(script):
        return True
    function = script.index.function(loader.call)
    hook = function.name if function is not None else ""
    if hook == "val_dataloader" and owner and _never_validates(script, owner):
        return True
    signs = _HOOKS.get(hook.lstrip("_"))
    if signs is None:
        return False
    run, step = signs
    project = script.index.project
    if project is not None and project.files:
        if not project.mentions(step):
            return True
        fits = project.mentions(".fit(") and not project.mentions("LightningCLI")
        if fits and not project.mentions(run):
            return True
    if not script.source.has(_FITS):
        return False
    near = run_together(script)  # of a program: all that it runs
    return not any(sign in index.source.text for sign in signs for index in near)


def _never_validates(script: Script, owner: ast.ClassDef) -> bool:
    """Whether a module of Lightning has no `validation_step`, without which no pass is.

    Nor have those that derive from it, or from which it does.
    """
    classes = script.resolver.classes
    lines = [(c, base) for c in classes.bases(owner) for base in c.bases]
    outside = [
        script.of(c).index.qualified(base) or ""
        for c, base in lines
        if classes.named(base) is None
    ]
    if not outside or not all(name.endswith("LightningModule") for name in outside):
        return False
    family = (owner, *script.resolver.outside.descendants(owner))
    step, hook = "validation_step", "val_dataloader"
    has_one = any(step in classes.methods(c) or classes.member(c, step) for c in family)
    asked = hook in script.index.calls_by_name or has_one
    project = script.index.project
    return not asked and (project is None or not project.mentions(f".{hook}()"))


def goes_to_a_process(script: Script, loader: Loader) -> bool:
    """`executor.submit(read, loader)`: what it gives is copied once more on its way."""
    if not script.source.has(_PROCESSES):
        return False
    calls = (c for n in _HANDS_OVER for c in script.index.calls_by_name.get(n, ()))
    return any(dotted(given) in loader.names for call in calls for given in call.args)


def prepares_once(script: Script, loader: Loader) -> bool:
    """Whether it is of `process` of a graph dataset, which keeps what that makes."""
    function, owner = (
        script.index.function(loader.call),
        script.index.owner(loader.call),
    )
    if function is None or owner is None or function.name != "process":
        return False
    names = script.resolver.classes.base_names(owner)
    return any(
        n.startswith("torch_geometric.") and n.endswith("Dataset") for n in names
    )


def made_anew(script: Script, loader: Loader) -> bool:
    """Whether the training process itself takes batches apart and copies new tensors.

    It makes arrays of their parts and tensors of these: pinning would cost it time,
    and these copies would wait all the same.
    """
    workers = loader.argument("num_workers")
    alone = workers.absent or loader.values("num_workers").all_in(0)
    remade = [_rebuilds(script, loop) for loop in loader.loops] if alone else []
    return bool(remade) and all(remade)


def _rebuilds(script: Script, loop: Loop) -> bool:
    its = script.of(loop.node)
    inside = [n for n in walk(loop.node) if isinstance(n, ast.Call)]
    read = (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "numpy"
        and its.batches.loop_of(call.func.value) is loop
        for call in inside
    )
    return any(read) and sends_made(its, loop)
