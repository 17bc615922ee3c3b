"""One process drives all GPUs with `DataParallel`.

## Why
In every step `DataParallel` copies all weights from the first GPU to the others, splits
the batch there, runs the model in threads that take turns at Python's lock, and gathers
outputs and gradients on the first GPU, whose memory is full first. The optimizer runs
on that GPU alone, and the others wait. `DistributedDataParallel` has a process for each
GPU with weights of its own, and sends only gradients, while the backward pass is still
running.

## Example
```python
import torch
from torch import nn

model = nn.DataParallel(nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix
None: processes are started by a launcher, and every part of a script has to know of
them. With `torchrun --nproc-per-node=gpu train.py`:

    from gpulint import runtime
    from torch.nn.parallel import DistributedDataParallel

    ranks = runtime.distributed()
    model = model.to(runtime.device())
    if ranks.world_size > 1:
        model = DistributedDataParallel(model)
    sampler = ranks.sampler(train_set)
    loader = DataLoader(
        train_set,
        batch_size=64 // ranks.world_size,
        shuffle=sampler is None,
        sampler=sampler,
    )
    ...
    if ranks.is_main:
        torch.save(model.state_dict(), path)

The batch of the script is that of all GPUs together, of which each process takes its
share; batch norms see the samples of their own GPU in both. Keys in checkpoints begin
with `module.` in both.

## When not
One GPU is named (`device_ids=[0]`, `CUDA_VISIBLE_DEVICES`, the default of the option
that sets it, in the file or in a program that uses it, all settings written out, or
right before), for which `DataParallel` is a plain call. Programs that train nothing, or
only attack a model. A wrapper that only loads or saves weights, is asked for its
devices, or whose `module` makes all passes, or of a module without weights, or one that
is called a transform. Where the same file has `DistributedDataParallel`, this may be
the way for machines without a launcher, and where all known commands for its programs
say `CUDA_VISIBLE_DEVICES=0` or the like it is a plain call: notes of low confidence. So
is a wrapper that is made behind the training, for a last pass, and one of a class that
is called a loss and has no layers.

## Source
PyTorch documentation, `torch.nn.DataParallel`: "It is recommended to use
DistributedDataParallel, instead of this class, to do multi-GPU training, even if there
is only a single node"; CUDA semantics, "Use nn.parallel.DistributedDataParallel instead
of multiprocessing or nn.DataParallel".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.branches import branches_of
from gpulint.script.copying.named_cards import leaves_one_card, shows_one_card_before
from gpulint.script.loading.worker_state import main_guard
from gpulint.script.modelling.frozen import has_no_weights, is_loss_without_layers
from gpulint.script.neighbours import programs, run_alone, run_together, used_by
from gpulint.script.reaching.commands import name_one_card

WRAPPERS = (
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel",
)
TRANSFORM = re.compile(r"transforms?$", re.IGNORECASE)
OPTIMIZER = re.compile("optim")
ONE = re.compile(r"(cuda:)?\d+")
HOLDS = ("device_ids", "load_state_dict", "module", "output_device", "state_dict")
PREPARES = ("eval", "train", "cuda", "to")  # and gives the wrapper back
MAX_FUNCTIONS = 60  # that are run behind a wrapper
MAX_CALLS = 3  # from a place to the main guard
BETTER = ("DistributedDataParallel", "DDP", "init_process_group")


class DataParallel(Rule):
    """Fires where the model is wrapped."""

    effect = Effect.NONE
    hardware = Hardware.CUDA
    needs = Words("DataParallel(")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each wrapper of a program that trains."""
        calls = [c for name in WRAPPERS for c in script.index.calls.get(name, ())]
        if not calls or leaves_one_card(script) or not trains(script):
            return
        also = any(name in script.index.calls_by_name for name in BETTER)
        also = also or name_one_card(script)
        for call in calls:
            if names_one_card(script, call) or is_never_run(script, call):
                continue
            if is_wrapped_before(script, call) or only_evaluates(script, call):
                continue
            if call.args and is_light(script, call.args[0]):
                continue
            sure = not also and not follows_training(script, call)
            if call.args and is_loss_without_layers(script, call.args[0]):
                sure = False
            yield self.finding(
                script,
                call.func,
                f"`{script.text(call.func)}` sends all weights to every GPU in each "
                "step and drives them from one process",
                severity=Severity.NOTE if also else None,
                confidence=None if sure else Confidence.LOW,
            )


def follows_training(script: Script, call: ast.Call) -> bool:
    """Whether a wrapper is made behind the training, for a last pass over other data.

    Nothing behind it in its function, or at the top of the file, goes backward, as far
    as calls are followed, and no call that is not known is given the wrapper.
    """
    index, scope = script.index, script.index.scope(call)
    statement = index.statement(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    beside = [
        loop.node
        for loop in script.loops
        if index.scope(loop.node) is scope and (loop.train or loop.kind == "epoch")
    ]
    if not isinstance(target, ast.Name) or not beside or script.loops_around(call):
        return False
    if any(end_of(node) > call.lineno for node in beside):
        return False
    todo = [
        c
        for c in index.all(ast.Call)
        if c.lineno > end_of(statement) and index.scope(c) is scope
    ]
    seen: set[ast.AST] = set()
    for later in todo:
        functions = script.resolver.calls.callees(later)
        given = [*later.args, *(k.value for k in later.keywords)]
        if last_name(later) == "backward":
            return False
        if not functions and any(dotted(value) == target.id for value in given):
            return False
        for function in functions:
            if function not in seen and len(seen) < MAX_FUNCTIONS:
                seen.add(function)
                todo += script.index.home(function).calls_below(function)
    return len(seen) < MAX_FUNCTIONS


def end_of(node: ast.stmt) -> int:
    """The last line of a statement."""
    return node.end_lineno or node.lineno


def trains(script: Script) -> bool:
    """Whether the file, or a program that it is a part of, trains."""
    if "backward" in script.index.calls_by_name:
        return True
    if any("backward" in index.calls_by_name for index in used_by(script)):
        return True
    far = run_together(script) if "optim" in script.source.text else []
    return any("backward" in index.calls_by_name for index in far)


def is_light(script: Script, module: ast.expr) -> bool:
    """Whether a module has no weights, or is called a transform: it has few or none."""
    holder = module.value if isinstance(module, ast.Subscript) else module
    named = TRANSFORM.search((dotted(holder) or "").rpartition(".")[2])
    return named is not None or has_no_weights(script, module)


def only_evaluates(script: Script, call: ast.Call) -> bool:
    """Whether a file that trains nothing, nor what it imports, does it when started.

    Behind its main guard, where who imports the file does not come, or where nobody
    does. What only attacks a model has gradients, and no optimizer.
    """
    guarded = is_guarded(script, call)
    if not guarded and len(programs(script)) > 1:
        return False
    files = run_alone(script) if guarded else [script.index, *run_together(script)]
    differentiates = any("backward" in f.calls_by_name for f in files)
    return not differentiates or not any(f.source.has(OPTIMIZER) for f in files)


def is_guarded(script: Script, node: ast.AST, depth: int = MAX_CALLS) -> bool:
    """Whether a place is behind a main guard, or in a function called there alone."""
    function = script.index.function(node)
    if main_guard(script, node) is not None:
        return True
    if function is None or depth <= 0:
        return False
    callers = script.resolver.calls.callers(function)
    return bool(callers) and all(
        script.index.home(caller) is script.index
        and is_guarded(script, caller, depth - 1)
        for caller in callers
    )


def names_one_card(script: Script, call: ast.Call) -> bool:
    """`DataParallel(model, device_ids=[0])`: then it only calls the model.

    Or the program is shown one GPU alone right before.
    """
    if shows_one_card_before(script, call):
        return True
    given = [k.value for k in call.keywords if k.arg == "device_ids"] + call.args[1:2]
    return any(
        isinstance(origin.node, (ast.List, ast.Tuple)) and len(origin.node.elts) == 1
        for node in given
        for origin in script.resolver.origins(node)
    ) or any(
        is_one_by_default(script, dotted(node) or "") or is_one_setting(script, node)
        for node in given
    )


def is_never_run(script: Script, call: ast.Call) -> bool:
    """Whether a wrapper only holds weights: to load or save them, or to be unpacked."""
    statement = script.index.parent(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Name) or statement.value is not call:  # type: ignore[union-attr]
        return False
    flow = script.resolver.flow(script.index.scope(target))
    made = [d for d in flow.definitions[target.id] if d.value is call]
    uses = [node for definition in made for node in script.uses(definition)]
    inner = {id(node) for node in flow.uses}
    others = [n for n in script.index.reads.get(target.id, ()) if id(n) not in inner]
    seen = not any(d in made for node in others for d in script.definitions(node))
    return seen and bool(uses) and all(only_holds(script, node) for node in uses)


def only_holds(script: Script, node: ast.AST) -> bool:
    """`wrapped.module`, or the statement `wrapped.eval()`."""
    above = script.index.parent(node)
    asked = above.attr if isinstance(above, ast.Attribute) else ""
    called = script.index.parent(above) if above is not None else None
    alone = called is not None and isinstance(script.index.parent(called), ast.Expr)
    return asked in HOLDS or (asked in PREPARES and alone)


def is_wrapped_before(script: Script, call: ast.Call) -> bool:
    """`if not isinstance(model, DataParallel):`, where another one has wrapped it."""
    test = _guard(script, call)
    calls = (c for name in WRAPPERS for c in script.index.calls.get(name, ()))
    return test is not None and any(
        other.lineno < call.lineno
        and script.index.scope(other) is script.index.scope(call)
        and _guard(script, other) == test
        for other in calls
    )


def _guard(script: Script, call: ast.Call) -> str | None:
    """The innermost test for the wrapper's class around a call."""
    tests = (
        script.text(branch.test)
        for branch, holds in reversed(branches_of(script.index, call))
        if isinstance(branch, ast.If) and holds
    )
    return next((t for t in tests if t.startswith("not isinstance(")), None)


def is_one_setting(script: Script, node: ast.expr) -> bool:
    """Whether each dict of the project with a key `cfg["devices"]` has one there."""
    key = node.slice if isinstance(node, ast.Subscript) else None
    project = script.index.project
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return False
    paths = project.mentioning(f'"{key.value}":') if project is not None else ()
    files = [project.index(path) for path in paths if project is not None]
    found = [
        value
        for index in dict.fromkeys([script.index, *files])
        if index is not None
        for written in index.all(ast.Dict)
        for name, value in zip(written.keys, written.values, strict=True)
        if isinstance(name, ast.Constant) and name.value == key.value
    ]
    return bool(found) and all(
        isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) == 1
        for value in found
    )


def is_one_by_default(script: Script, name: str) -> bool:
    """Whether the option that `opt.gpu_ids` is made of has one card as its default."""
    project, option = script.index.project, name.rpartition(".")[2]
    paths = project.mentioning(f"--{option}") if project is not None and option else []
    files = [script.index, *(project.index(p) for p in paths if project is not None)]
    defaults = [
        keyword.value
        for index in files
        if index is not None
        for call in index.calls_by_name.get("add_argument", ())
        if any(getattr(a, "value", None) == f"--{option}" for a in call.args)
        for keyword in call.keywords
        if keyword.arg == "default"
    ]
    ones = [
        node.elts[0]
        if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) == 1
        else node
        for node in defaults
    ]
    return bool(ones) and all(
        isinstance(node, ast.Constant) and ONE.fullmatch(str(node.value))
        for node in ones
    )
