"""Loaders that Lightning iterates: of its hooks, or given to a trainer."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.script.frameworks.lightning import (
    DATA_MODULES,
    LOADER_HOOKS,
    MODULES,
    is_lightning,
)
from gpulint.script.frameworks.trainer_calls import NAMES, Maker
from gpulint.script.frameworks.trainers import trains_one_epoch, validates_once
from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.index import Function
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

# What the trainer iterates again in every epoch; `fit` stands for both.
AGAIN = frozenset({"train_dataloader", "val_dataloader", "fit"})
MAX_DEPTH = 4
_LIMITS = {
    f"{part}_dataloader": f"limit_{part}_batches" for part in ("val", "test", "predict")
}
_RUNS = frozenset("fit validate test predict".split())
_MAKES_ANEW = "reload_dataloaders_every"
# All but an argument that switches it off; a default of settings may be overridden.
_MADE_ANEW = re.compile(
    _MAKES_ANEW + r"\w*\b(?!=(?:0|False)\s*(?:[,)#]|$))",
    re.MULTILINE,
)
# Something steers a dataset from outside, which workers would not see, or passes over
# a loader while the trainer does, which one that keeps its workers cannot bear.
_STEERS = re.compile(
    r"(?:datamodule|dataloaders?|loader)\b[\w.\[\]]*\.dataset\.\w+\s*(?:\(|=(?!=))"
    r"|\bdatamodule\.\w+\.\w+\s*(?:\(|=(?!=))"
    r"|\biter\(\s*\w+\.[\w.]*dataloaders?\b"
)


def hooks_for(script: Script, loader: Loader) -> frozenset[str]:
    """Which hooks give Lightning a loader; `fit` and so on where a trainer gets it.

    Empty where it is not one of Lightning's, or others use it as well.
    """
    if "lightning" not in script.frameworks:
        return frozenset()
    return _hooks_above(script, loader.call, 0) or _given_to(script, loader)


def _hooks_above(script: Script, node: ast.AST, depth: int) -> frozenset[str]:
    function = script.index.function(node)
    if function is None or depth > MAX_DEPTH:
        return frozenset()
    owner = script.index.parent(function)
    own = isinstance(owner, ast.ClassDef) and is_lightning(
        script, owner, *MODULES, *DATA_MODULES
    )
    if own and function.name in LOADER_HOOKS:
        return frozenset({function.name})
    callers = script.resolver.calls.callers(function)
    callers = [c for c in callers if not script.of(c).is_test]
    above = [_hooks_above(script.of(c), c, depth + 1) for c in callers]
    if own and not callers and isinstance(owner, ast.ClassDef):
        return _put_in_place(script, owner, function)
    return frozenset().union(*above) if above and all(above) else frozenset()


def _put_in_place(
    script: Script, owner: ast.ClassDef, method: Function
) -> frozenset[str]:
    """The hooks in whose place a class puts a method, and does nothing else with it.

    `self.train_dataloader = self._train_loader`, or a `partial(…)` of it.
    """
    index, found = script.index, set()
    for node in index.all(ast.Attribute):
        if node.attr != method.name or index.owner(node) is not owner:
            continue
        value: ast.AST = node
        parent = index.parent(value)
        if isinstance(parent, ast.Call) and value in parent.args[:1]:
            if index.qualified(parent.func) != "functools.partial":
                return frozenset()
            value, parent = parent, index.parent(parent)
        if not isinstance(parent, ast.Assign) or parent.value is not value:
            return frozenset()
        for target in parent.targets:
            name = target.attr if isinstance(target, ast.Attribute) else ""
            if name not in LOADER_HOOKS or ast.unparse(target) != f"self.{name}":
                return frozenset()
            found.add(name)
    return frozenset(found)


def _given_to(script: Script, loader: Loader) -> frozenset[str]:
    """The methods of Lightning trainers in this file that get a loader."""
    found = set()
    for name in _RUNS:
        for call in script.index.calls_by_name.get(name, ()):
            func = call.func
            if not isinstance(func, ast.Attribute) or not _is_trainer(script, func):
                continue
            given = [*call.args, *(k.value for k in call.keywords)]
            parts = [p for g in given for p in _parts(g)]
            origins = [o for part in parts for o in script.resolver.origins(part)]
            if any(o.node is loader.call for o in origins):
                found.add(name)
    return frozenset() if loader.loops else frozenset(found)


def _parts(node: ast.expr) -> list[ast.expr]:
    """An argument, or what a list or dict in its place holds."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return node.elts
    return node.values if isinstance(node, ast.Dict) else [node]


def _is_trainer(script: Script, func: ast.Attribute) -> bool:
    """Whether a method is one of a `Trainer(…)` of Lightning's."""
    calls = [origin.call for origin in script.resolver.origins(func.value)]
    names = [script.index.qualified(c.func) or "" for c in calls if c is not None]
    return any(NAMES.get(name) is Maker.LIGHTNING_TRAINER for name in names)


def passes_again(script: Script, loader: Loader, hooks: frozenset[str]) -> bool:
    """Whether the trainer makes more than one pass over a loader that it is given."""
    again = hooks & AGAIN
    if not again:
        return False
    once = validates_once if again == {"val_dataloader"} else trains_one_epoch
    return not once(script, script.index.owner(loader.call))


def is_cut_short(script: Script, hooks: frozenset[str]) -> bool:
    """Whether all trainers take some of what evaluates: `limit_val_batches=10`."""
    limits = [_LIMITS.get(hook) for hook in hooks]
    if not limits or None in limits:
        return False
    made = [
        call
        for index in run_together(script)
        for call in index.calls_by_name.get("Trainer", ())
    ]
    return bool(made) and all(
        any(k.arg == limit and _is_some(script, k.value) for k in call.keywords)
        for call in made
        for limit in limits
    )


def _is_some(script: Script, limit: ast.expr) -> bool:
    """Whether a limit is a number of batches, or a share of them below 1."""
    its = script.of(limit).evaluator.values(limit)
    numbers = [value.constant for value in its.known]
    return bool(numbers) and all(
        n != 1.0 if isinstance(n, float) else isinstance(n, int) for n in numbers
    )


def is_made_anew(script: Script) -> bool:
    """Whether the program may ask for new loaders in every epoch."""
    project = script.index.project
    texts = [script.source.text]
    if project is not None and project.files:
        if project.having_keys([f"{_MAKES_ANEW}_n_epochs"]):
            return True
        texts += project.texts(_MAKES_ANEW)
    return any(_MADE_ANEW.search(text) for text in texts)


def is_steered(script: Script) -> bool:
    """Whether the program may change a dataset through a loader or data module."""
    return any(i.source.has(_STEERS) for i in run_together(script))
