"""Whether batches come out of pinned host memory, or could."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import NOT_CUDA, Move, Target, Value, Values
from gpulint.index.walk import dotted, walk
from gpulint.script.branches import all_of, in_body
from gpulint.script.frameworks.trainers import feeds_no_gpu
from gpulint.script.loading.batch_objects import holds_expanded, nothing_to_pin
from gpulint.script.loading.batches_taken import (
    goes_to_a_process,
    has_trainer,
    kept_once,
    made_anew,
    prepares_once,
    run_by_nobody,
    taken_once,
)
from gpulint.script.loading.beyond import loops_beyond
from gpulint.script.loading.device_batches import why_not_pinned
from gpulint.script.loading.few_batches import takes_few
from gpulint.script.loading.handed_batches import hands_to_mover
from gpulint.script.loading.in_memory import gathered
from gpulint.script.loading.iterated_loaders import loaders_of
from gpulint.script.loading.loader_options import fed_by_framework
from gpulint.script.loading.loaders import Loader
from gpulint.script.loading.pageable import read_as_arrays, sends_made
from gpulint.script.loading.plain_batches import holds_plain_values
from gpulint.script.loading.prepared import prepared_loaders
from gpulint.script.loading.sent import joined_on_host
from gpulint.script.loading.serial import gains_by_workers
from gpulint.script.loops import iterated
from gpulint.script.modelling.graphs import iterates_graphs
from gpulint.script.neighbours import run_together
from gpulint.script.reaching.started import stays_on_host
from gpulint.script.samples.dataset_size import has_tiny_batches
from gpulint.script.samples.datasets import Work
from gpulint.script.samples.generated import made_by_acting
from gpulint.script.settings.setting_values import comes_from_settings

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_REASON = re.compile(
    r"#.*(pin|memory|ram|oom|wsl|windows|cuda|gpu|slow|hurt|worse|bug|fail|error|crash|"
    r"hang|deadlock|leak)",
    re.IGNORECASE,
)
_DEVICE_WORD = re.compile(r"(^|[_.])(cuda|gpu|gpus|device)($|_)", re.IGNORECASE)
_LOADERS = re.compile(r"DataLoader\(")
# Modules of fastai 1 alone: its `torch_core` replaces `DataLoader.__init__`.
_FASTAI_1 = ("fastai.basic_data.", "fastai.basic_train.", "fastai.train.")
_STARS_OF_FASTAI_1 = ("fastai.vision", "fastai.text", "fastai.tabular")  # 2: `.all`


def written_off(script: Script, loader: Loader) -> bool:
    """Whether the call says `pin_memory=False`, and a comment why.

    Or that of another call beside it, in the same function, which does so too.
    """
    written = _written_off(loader)
    scope = script.index.scope(loader.call)
    beside = [x for x in script.loaders if script.index.scope(x.call) is scope]
    return written is not None and any(_is_explained(script, x) for x in beside)


def _written_off(loader: Loader) -> ast.Constant | None:
    given = (k.value for k in loader.call.keywords if k.arg == "pin_memory")
    written = next(given, None)
    return written if isinstance(written, ast.Constant) and not written.value else None


def _is_explained(script: Script, loader: Loader) -> bool:
    written = _written_off(loader)
    if written is None:
        return False
    rows = range(written.lineno - 1, written.lineno + 1)
    lines = [script.source.said(row) for row in rows if row >= 1]
    above, own = lines[0] if len(lines) > 1 else "", lines[-1]
    above = above if above.lstrip().startswith("#") else ""
    return bool(_REASON.search(own) or _REASON.search(above))


def changed_in_dataset(script: Script, loader: Loader) -> ast.AST | None:
    """Where a loop changes batches in place that may be the dataset's own tensors.

    Without collation a batch is what the dataset gives; a pinned one is a copy.
    """
    size = loader.argument("batch_size")
    if not loader.argument("collate_fn").given and not (
        size.given and loader.values("batch_size").all_in(None)
    ):
        return None
    for loop in loader.loops:
        own = set(loop.targets)
        for name in {target.id for target in loop.targets}:
            for node in script.mutations(name, loop.node):
                if isinstance(node, ast.Name):
                    continue
                used = [n for n in walk(node) if isinstance(n, ast.Name)]
                if any(
                    d.node in own
                    for n in used
                    if n.id == name
                    for d in script.definitions(n)
                ):
                    return node
    return None


# Where a loader's batches go


def unpinned(loader: Loader) -> list[Value] | None:
    """The constants that switch pinning off; None: it is on, or not known to be off."""
    if loader.decided_by_runtime:
        return None
    if loader.argument("pin_memory").absent:
        return []
    values = loader.values("pin_memory")
    return list(values.known) if values.all_in(False, 0) else None


def compared_device(script: Script, node: ast.expr) -> bool:
    """Whether a value asks `device == "cuda"` of a `torch.device`: it never is."""
    return any(
        script.resolver.compares_device(part) is False
        for part in walk(node)
        if isinstance(part, ast.Compare)
    )


def gains(script: Script, loader: Loader) -> bool:
    """Whether a loader that is not pinned ought to be."""
    if written_off(script, loader) or why_not_pinned(script, loader) is not None:
        return False
    if nothing_to_pin(script, loader) or loader.dataset.same:
        return False
    if holds_expanded(script, loader) or _is_patched(script):
        return False
    if not goes_to_gpu(script, loader) or pins_itself(script, loader):
        return False
    return not holds_plain_values(script, loader)


def _is_patched(script: Script) -> bool:
    """Whether a program imports fastai 1, which makes torch's own loaders pin."""
    if not script.mentions("fastai"):
        return False
    return any(
        origin.startswith(_FASTAI_1) or star in _STARS_OF_FASTAI_1
        for index in run_together(script)
        for origin, star in (
            *((f"{origin}.", "") for origin in index.imported),
            *((f"{star}.", star) for star in index.stars),
        )
    )


def pins_itself(script: Script, loader: Loader) -> bool:
    """Whether the process that trains would pin, one more copy in each of its steps.

    Where it loads alone, and nothing asks for workers or for batches from memory.
    """
    if not loads_alone(script, loader):
        return False
    return not gains_by_workers(script, loader) and gathered(script, loader) is None


def loads_alone(script: Script, loader: Loader) -> bool:
    """Whether the process that trains is known to make the batches itself."""
    return has_no_workers(loader) and not fed_by_framework(script, loader)


def has_no_workers(loader: Loader) -> bool:
    """Whether no worker processes are asked for, in whatever way batches are sent."""
    workers = loader.argument("num_workers")
    if workers.absent or not workers.given:
        return workers.absent
    its, asked = loader.values("num_workers"), workers.direct
    if not its.known and isinstance(asked, ast.Attribute):
        its = loader.evaluator.command_line.beside(asked)
    return its.all_in(0, None) and not its.all_in(None)  # a None is replaced before


def settings_ask_for_none(loader: Loader) -> bool:
    """Whether all numbers of workers that are known are 0, be there others or not."""
    known = loader.values("num_workers").known
    return bool(known) and all(v.constant == 0 and not v.default for v in known)


def stays_unpinned(script: Script, loop: Loop) -> bool:
    """Whether every loader of a loop is known, and has nothing to gain by pinning."""
    loaders = _known_unpinned(script, loop)
    return bool(loaders) and not any(gains(script.of(x.call), x) for x in loaders)


def loads_unpinned_alone(script: Script, loop: Loop) -> bool:
    """Whether all batches of a loop are made, unpinned, by the process that copies.

    Of a loader that is not known, whether all loaders of the program make them so.
    """
    if loaders_of(script, loop):
        loaders = _known_unpinned(script, loop)
    else:
        files = run_together(script)
        found = (script.of(f.tree).loaders for f in files if f.source.has(_LOADERS))
        loaders = [loader for its in found for loader in its]
        if any(unpinned(loader) is None for loader in loaders):
            return False
    return bool(loaders) and all(
        loads_alone(script.of(x.call), x) or (loop.eval and _evaluates_alone(x))
        for x in loaders
    )


def _evaluates_alone(loader: Loader) -> bool:
    """`num_workers=workers if phase == "train" else 0`."""
    nodes = loader.argument("num_workers").nodes
    return bool(nodes) and all(
        isinstance(node, ast.IfExp)
        and "train" in ast.unparse(node.test)
        and isinstance(node.orelse, ast.Constant)
        and node.orelse.value == 0
        for node in nodes
    )


def is_given_unseen(script: Script, loop: Loop) -> bool:
    """Whether a loop passes over what its function is given by calls nobody sees."""
    each = [o for i, _ in loop.items for o in iterated(script.resolver, i)]
    return bool(each) and all(isinstance(o.node, ast.arg) for o in each)


def _known_unpinned(script: Script, loop: Loop) -> list[Loader]:
    """The loaders of a loop, if all are known and none of them is pinned."""
    found = loaders_of(script, loop)
    loaders = [
        loader
        for loader in found
        if unpinned(loader) is not None
        and not comes_from_settings(script.of(loader.call), loader, "pin_memory")
    ]
    return loaders if len(loaders) == len(found) else []


def goes_to_gpu(script: Script, loader: Loader) -> bool:
    """Whether it is sure that a loader's batches are sent to an accelerator."""
    return _is_sent(script, loader) and not feeds_no_gpu(script, loader)


def _is_sent(script: Script, loader: Loader) -> bool:
    if _trained_by(script, {"transformers.Trainer", "transformers.Seq2SeqTrainer"}):
        return False
    if made_by_acting(script, loader) or _waits_for_each(script, loader):
        return False
    if taken_once(script, loader) or run_by_nobody(script, loader):
        return False
    if kept_once(script, loader):
        return False  # all samples would stay in pinned memory
    if prepares_once(script, loader) or takes_few(script, loader):
        return False
    if made_anew(script, loader) or has_tiny_batches(loader):
        return False
    if goes_to_a_process(script, loader):
        return False
    loops = [*loader.loops, *loops_beyond(script, loader)]
    if any(iterates_graphs(script.of(x.node), x) for x in loops):
        return False  # the copy of a graph waits, pinned or not
    if joined_on_host(script, loops):
        return False
    if loops and all(stays_on_host(script.of(x.node), x) for x in loops):
        return False
    moves = script.moves_in(loops)
    if moves and all(_is_of_others(script, loader, m) for m in moves):
        return False
    if moves and all(_is_sent_if_pinned(script, loader, m) for m in moves):
        return False
    targets = {m.target for m in moves}
    if targets:
        return not targets <= NOT_CUDA
    if script.frameworks & {"lightning", "accelerate"}:
        return _sent_by_framework(script, loader)
    scripts = dict.fromkeys(script.of(loop.node) for loop in loops)
    if any(t.loop in loops for s in scripts for t in s.transfers):
        return True
    if any(hands_to_mover(script.of(loop.node), loop) for loop in loops):
        return True
    return _sent_out_of_sight(script, loader)


def _is_sent_if_pinned(script: Script, loader: Loader, move: Move) -> bool:
    """Whether the switch that sends a batch pins the loader as well.

    `pin_memory=use_cuda` and `if use_cuda: x = x.cuda()`, each in a function that is
    given one constant of the program.
    """
    switch = _given(loader.values("pin_memory"))
    its = script.of(move.call)
    tests: list[ast.expr] = []
    child: ast.AST = move.call
    for above in its.index.ancestors(move.call):
        if isinstance(above, (ast.If, ast.IfExp)) and in_body(above, child):
            tests += all_of(above.test, True)
        child = above
    return bool(switch) and any(
        _given(its.evaluator.values(test)) == switch for test in tests
    )


def _given(values: Values) -> set[ast.AST]:
    """Where the values are written that something is given, but for defaults."""
    return {value.node for value in values.known if not value.default}


def _is_of_others(script: Script, loader: Loader, move: Move) -> bool:
    """Whether what is moved comes of another loader that a loop goes through as well.

    `for batch, names in zip(batches, file_names)`.
    """
    its = script.of(move.call)
    loop = its.batches.loop_of(move.receiver)
    if loop is None or len(loop.items) < 2:
        return False
    root: ast.expr = move.receiver
    while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
        root = root.func if isinstance(root, ast.Call) else root.value
    bound = [
        {n.id for n in walk(target) if isinstance(n, ast.Name)}
        for iterated_, target in loop.items
        if loader.call in {o.call for o in its.resolver.origins(iterated_)}
    ]
    others = [
        {n.id for n in walk(target) if isinstance(n, ast.Name)}
        for iterated_, target in loop.items
        if loader.call not in {o.call for o in its.resolver.origins(iterated_)}
    ]
    name = root.id if isinstance(root, ast.Name) else ""
    return (
        bool(bound)
        and any(name in n for n in others)
        and not any(name in n for n in bound)
    )


def _waits_for_each(script: Script, loader: Loader) -> bool:
    """Whether a script that trains nothing takes its samples one by one.

    And reads the result of each before the next: no copy can run beside anything.
    """
    size = loader.argument("batch_size")
    single = loader.values("batch_size").all_in(1) or (
        size.absent and loader.argument("batch_sampler").absent
    )
    if script.training_loops or not single:
        return False
    loops = loader.loops or _asking(script, loader)
    calls = [[c for c in x.calls if _reads_back(script, c)] for x in loops]
    return bool(loops) and all(calls) and not any(x.backward or x.steps for x in loops)


def _asking(script: Script, loader: Loader) -> list[Loop]:
    """The loops that ask for batches themselves: `next(batches)`."""
    resolver = script.resolver
    return [
        loop
        for loop in script.loops
        for call in loop.calls
        if script.index.qualified(call.func) == "next" and call.args
        for made in [o.call for o in resolver.origins(call.args[0])]
        if made is not None and made.args
        if script.index.qualified(made.func) == "iter"
        if any(loader.is_made_by(o.node) for o in resolver.origins(made.args[0]))
    ]


def _reads_back(script: Script, call: ast.Call) -> bool:
    """`.cpu()`, `.numpy()`, `.to("cpu")`."""
    move = script.devices.move(call)
    to_host = move is not None and move.target is Target.CPU
    return to_host or getattr(call.func, "attr", "") in ("numpy", "item", "tolist")


def _trained_by(script: Script, names: set[str]) -> bool:
    return bool(script.index.called_names & names)


def _sent_by_framework(script: Script, loader: Loader) -> bool:
    """Loaders of a Lightning class, or of a file that prepares for Accelerate."""
    if "accelerate" in script.frameworks:
        prepared = list(prepared_loaders(script))
        if prepared and all(x.call is not loader.call for x in prepared):
            return False  # others are
        return any(n.endswith(".prepare") for n in script.index.called_names)
    for call in script.index.all(ast.Call):
        kinds = [k.value for k in call.keywords if k.arg == "accelerator"]
        if any(
            isinstance(k, ast.Constant) and k.value in ("cpu", "mps") for k in kinds
        ):
            return False
    owner = script.index.owner(loader.call)
    if owner is None:
        return False
    names = script.resolver.classes.base_names(owner)
    if any(n.endswith("LightningModule") for n in names):
        return True
    return any(n.endswith("DataModule") for n in names) and has_trainer(script)


def _sent_out_of_sight(script: Script, loader: Loader) -> bool:
    """Whether a model on the GPU is fed by it, by code that is not in this file.

    The dataset must be known to give host tensors, or worker processes must: these
    cannot send tensors of a device.
    """
    if not _has_model_on_gpu(script, loader):
        return False
    stepped = any(loop.train or loop.eval for loop in loader.loops)
    if loader.loops and not stepped:
        return False
    if loader.loops and all(read_as_arrays(script.of(x.node), x) for x in loader.loops):
        return False
    if loader.loops and all(sends_made(script.of(x.node), x) for x in loader.loops):
        return False  # what it sends is in sight
    if loader.loops and _others_move(script, loader):
        return False
    known = loader.dataset.work is not Work.UNKNOWN
    workers = loader.argument("num_workers")
    spawned = workers.given and not loader.values("num_workers").any_in(0)
    return known or spawned


def _others_move(script: Script, loader: Loader) -> bool:
    """Whether other loops of the file move their batches, and no loop over this one."""
    here = all(script.index.holds(loop.node) for loop in loader.loops)
    moving = {loop for _, loop in script.batch_moves}
    return here and bool(moving) and moving.isdisjoint(loader.loops)


def _has_model_on_gpu(script: Script, loader: Loader) -> bool:
    """Whether a model is moved to an accelerator, or a trainer is told to do so."""
    on = (Target.CUDA, Target.ANY)
    for move in script.moves:
        if move.target not in on or script.batches.loop_of(move.receiver) is not None:
            continue
        if script.modules.is_module(move.receiver) or _makes_object(move.receiver):
            return True
    return any(_handed_with_device(loader, c) for c in script.index.all(ast.Call))


def _makes_object(node: ast.expr) -> bool:
    """`Net(...)` of a class of another file."""
    name = (dotted(node.func) or "") if isinstance(node, ast.Call) else ""
    last = name.rpartition(".")[2]
    return last[:1].isupper() and "Tensor" not in last


def _handed_with_device(loader: Loader, call: ast.Call) -> bool:
    """`Trainer(net, loader, device=device)`."""
    values = [*call.args, *(k.value for k in call.keywords)]
    if not any(dotted(v) in loader.names for v in values):
        return False
    words = [k.arg or "" for k in call.keywords] + [dotted(v) or "" for v in values]
    return any(_DEVICE_WORD.search(w) for w in words)
