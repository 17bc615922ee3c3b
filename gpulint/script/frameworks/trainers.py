"""Who trains with what a Lightning program loads: trainers on the CPU, or nobody."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.targets import qualified_name
from gpulint.source import NOTEBOOK

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

MAX_FILES = 40
_MODULES = ("LightningModule", "DataModule")
_PACKAGES = frozenset(["lightning", "pytorch_lightning"])
_EVALUATES = frozenset("predict test validate".split())
_STARTS = ("Trainer", "LightningCLI", "Fabric", "from_argparse_args")
# Options of the Trainer that its release 2 no longer has. Before, it used the CPU
# unless it was told otherwise.
_OLD = frozenset(
    "tpu_cores ipus num_processes auto_select_gpus auto_scale_batch_size amp_backend "
    "auto_lr_find checkpoint_callback weights_summary progress_bar_refresh_rate "
    "amp_level resume_from_checkpoint replace_sampler_ddp track_grad_norm "
    "flush_logs_every_n_steps weights_save_path terminate_on_nan process_position "
    "distributed_backend truncated_bptt_steps reload_dataloaders_every_epoch "
    "stochastic_weight_avg log_gpu_memory multiple_trainloader_mode".split()
)

_OLD_MODULE = "pytorch_lightning.core.lightning."  # which release 2 has no more

_Test = Callable[["Script", ast.Call], bool]


def feeds_no_gpu(script: Script, loader: Loader) -> bool:
    """Whether trainers on the CPU alone take a loader, or nobody whom files show."""
    owner = script.index.owner(loader.call)
    names = script.resolver.classes.base_names(owner) if owner is not None else set()
    if owner is None or not any(n.endswith(_MODULES) for n in names):
        return _trained_on_cpu(script, loader)
    users = _users(script, owner)
    if users:
        return _train_on_cpu(script, users)
    data = any(n.endswith("DataModule") for n in names)
    return data and users is not None and not _may_be_named(script, owner)


def never_on_gpu(script: Script, owner: ast.ClassDef | None) -> bool:
    """Whether all trainers that may take what a class or file gives are on the CPU."""
    return _train_on_cpu(script, _homes(script, owner))


def on_one_device(script: Script, owner: ast.ClassDef) -> bool:
    """Whether all trainers that may take an object of a class have one device."""
    return _all_trainers(script, _homes(script, owner), _has_one_device)


def trains_one_epoch(script: Script, owner: ast.ClassDef | None) -> bool:
    """Whether no trainer makes a second pass over what a class or file gives it."""
    return _all_trainers(script, _homes(script, owner), _makes_one_pass)


def validates_once(script: Script, owner: ast.ClassDef | None) -> bool:
    """Whether each trainer validates what a class or file gives it but once."""
    return _all_trainers(script, _homes(script, owner), _makes_one_validation)


def _homes(script: Script, owner: ast.ClassDef | None) -> list[FileIndex]:
    """The files that use a class, or this one where none is known."""
    users = _users(script, owner) if owner is not None else None
    return users or [script.index]


def _trained_on_cpu(script: Script, loader: Loader) -> bool:
    """Whether all that call the function of a loader train on the CPU."""
    function = script.index.function(loader.call)
    if function is None or any(loop.train for loop in loader.loops):
        return False
    callers = map(script.index.home, script.resolver.calls.callers(function))
    return _train_on_cpu(script, dict.fromkeys(callers))


def _train_on_cpu(script: Script, homes: Iterable[FileIndex]) -> bool:
    """Whether each of some files, tests apart, has trainers, all of them on the CPU."""
    return _all_trainers(script, homes, uses_cpu)


def _all_trainers(script: Script, homes: Iterable[FileIndex], test: _Test) -> bool:
    """Whether each of some files, tests apart, has trainers, and all pass a test."""
    programs = (i for i in homes if not script.of(i.tree).is_test)
    found = [list(_trainers(script.of(i.tree), test)) for i in programs]
    return bool(found) and all(its and all(its) for its in found)


def _trainers(script: Script, test: _Test) -> Iterator[bool]:
    """For each of Lightning's trainers in a file: whether it is sure to pass a test."""
    for name in _STARTS:
        for call in script.index.calls_by_name.get(name, ()):
            parts = (script.index.qualified(call.func) or "").split(".")
            if parts[0] in _PACKAGES:
                yield parts[-1] in ("Trainer", "Fabric") and test(script, call)


def _makes_one_pass(script: Script, call: ast.Call) -> bool:
    """Whether a trainer trains for one epoch, or is only asked to evaluate."""
    return _has_one_epoch(script, call) or _only_evaluates(script, call)


def _makes_one_validation(script: Script, call: ast.Call) -> bool:
    """`Trainer(max_epochs=n, check_val_every_n_epoch=n)`: behind the last epoch."""
    if _makes_one_pass(script, call):
        return True
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    every, most = given.get("check_val_every_n_epoch"), given.get("max_epochs")
    if every is None or most is None or "val_check_interval" in given:
        return False
    if isinstance(every, ast.Constant) and not isinstance(every.value, int):
        return False
    if ast.dump(every) == ast.dump(most):
        return True
    first, last = (_number(script, node) for node in (every, most))
    return first is not None and last is not None and 2 * first > last > 0


def _number(script: Script, node: ast.expr) -> int | None:
    """What an expression always is, whatever a user asks for, if that is a number."""
    known = script.evaluator.values(node).known
    number = known[0].constant if known else None
    if not isinstance(number, int) or not _is_always(script, [node], number):
        return None
    return number


def _only_evaluates(script: Script, call: ast.Call) -> bool:
    """`trainer = Trainer(…)`, of which there is nothing but `trainer.predict(…)`."""
    above = script.index.parent(call)
    target = above.targets[0] if isinstance(above, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return False
    reads = [
        read
        for read in script.index.reads.get(target.id, ())
        if any(d.node is target for d in script.definitions(read))
    ]
    asked = (script.index.parent(read) for read in reads)
    return bool(reads) and all(
        isinstance(its, ast.Attribute) and its.attr in _EVALUATES for its in asked
    )


def _has_one_epoch(script: Script, call: ast.Call) -> bool:
    """`max_epochs=1`, `fast_dev_run=True`."""
    for name, once in (("max_epochs", 1), ("fast_dev_run", True)):
        given = script.evaluator.argument(call, name)
        if given.given and _is_always(script, given.nodes, once):
            return True
    return False


def _has_one_device(script: Script, call: ast.Call) -> bool:
    """`devices=1`, `devices=[0]`, `gpus=1`, on one machine; or the CPU."""
    nodes = script.evaluator.argument(call, "num_nodes")
    if not (nodes.absent or (nodes.given and _is_always(script, nodes.nodes, 1))):
        return False
    for name in ("devices", "gpus"):
        devices = script.evaluator.argument(call, name)
        if devices.given:
            return all(_is_one(script, node) for node in devices.nodes)
        if not devices.absent:
            return False
    return uses_cpu(script, call)


def _is_one(script: Script, node: ast.expr) -> bool:
    if isinstance(node, ast.List):
        return len(node.elts) == 1 and not isinstance(node.elts[0], ast.Starred)
    return _is_always(script, [node], 1, "1")


def uses_cpu(script: Script, call: ast.Call) -> bool:
    """Whether a trainer is told to use the CPU, or is of a release that does so."""
    accelerator = script.evaluator.argument(call, "accelerator")
    if not accelerator.absent:
        return accelerator.given and _is_always(script, accelerator.nodes, "cpu")
    devices = script.evaluator.argument(call, "gpus")
    if not devices.absent:
        return devices.given and _is_always(script, devices.nodes, 0, None)
    old = any(origin.startswith(_OLD_MODULE) for origin in script.index.imported)
    return old or any(k.arg in _OLD for k in call.keywords)


def _is_always(script: Script, nodes: Iterable[ast.expr], *constants: object) -> bool:
    """Whether expressions are certain constants that no user or caller replaces."""
    found = [script.evaluator.values(node) for node in nodes]
    return all(
        its.all_in(*constants) and not any(v.default for v in its.known)
        for its in found
    )


def _users(script: Script, owner: ast.ClassDef) -> list[FileIndex] | None:
    """The files that may use or derive a class; None: not known."""
    project = script.index.project
    if project is None or not project.files:
        return None
    paths = project.mentioning(owner.name)
    found = [project.index(path) for path in paths[: MAX_FILES + 1]]
    indexes = [index for index in found if index is not None]
    if len(paths) > MAX_FILES or len(indexes) < len(paths):
        return None
    if script.source.path.suffix == NOTEBOOK:  # which is none of the project's files
        indexes.append(script.index)
    return [index for index in indexes if _uses(script, index, owner)]


def _uses(script: Script, index: FileIndex, owner: ast.ClassDef) -> bool:
    """Whether a file names a class, and does not clearly mean another one."""
    for alias in (a for s in index.all(ast.ImportFrom) for a in s.names):
        if alias.name == owner.name and alias.asname not in (None, owner.name):
            return True
    if any(node.value == owner.name for node in index.all(ast.Constant)):
        return True
    return any(
        script.resolver.classes.named(node) in (owner, None)
        for node in (*index.all(ast.Name), *index.all(ast.Attribute))
        if owner.name in (getattr(node, "id", ""), getattr(node, "attr", ""))
        and not index.inside(node, owner)
    )


def _may_be_named(script: Script, owner: ast.ClassDef) -> bool:
    """Whether a class that no file uses may be chosen by a name at run time.

    Or may be what the project is for: where no other file trains, nor a notebook
    beside it, which is not read.
    """
    project, path = script.index.project, script.source.path
    assert project is not None
    if owner.decorator_list or project.mentions("import_module"):
        return True
    if project.targeting(qualified_name(script.index, owner)):
        return True
    seen = any(other != path for other in project.mentioning("Trainer("))
    if not seen and not project.in_folder(path.parent, "*.ipynb"):
        return True
    return project.mentions("LightningCLI)") or any(
        index is None or _takes_any_data(index)
        for index in map(project.index, project.mentioning("LightningCLI("))
    )


def _takes_any_data(index: FileIndex) -> bool:
    """Whether a command line of Lightning's is open for any data module."""
    calls = index.calls_by_name.get("LightningCLI", [])
    return not calls or not all(
        len(call.args) > 1 or any(k.arg == "datamodule_class" for k in call.keywords)
        for call in calls
    )
