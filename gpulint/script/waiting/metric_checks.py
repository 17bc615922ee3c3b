"""Metrics of torchmetrics that read what they are given, and so wait for it.

Source: torchmetrics 0.9 to 1.9, `functional/classification` and `functional/image`. Its
checks ask for the values that labels have (`torch.unique`, `target.min() < 0`), counts
of classes are `torch.bincount`, what is ignored is left out by a mask, and the number
of pixels is copied to the device; the host waits for each of these.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Where
from gpulint.index.build import last_name

if TYPE_CHECKING:
    from gpulint.script.model import Script

_NAMED = ("torchmetrics", "lightning.metrics")
_RUN = ("update", "forward")
_MOVES = ("to", "cuda")
_COLLECTION = "MetricCollection"
_PIXELS = re.compile(r"^(PeakSignalNoiseRatio|PSNR|peak_signal_noise_ratio|psnr)$")
# Which have a class each for two classes, for several and for several labels.
_OF_CLASSES = re.compile(
    r"^(?P<task>binary|multiclass|multilabel)?_?(?P<kind>accuracy|precision|recall|"
    r"f1_?score|f_?beta_?score|specificity|hamming_?distance|stat_?scores|auroc|roc|"
    r"average_?precision|precision_?recall_?curve|confusion_?matrix|jaccard_?index|"
    r"cohen_?kappa|matthews_?corr_?coef)$",
    re.IGNORECASE,
)
# Which only add up what is right, as long as they are not asked for each class.
_SUMS = re.compile(
    r"(accuracy|precision|recall|\w+_?score|specificity|hamming_?distance|"
    r"stat_?scores)$",
    re.IGNORECASE,
)
# Of torchmetrics, and of Lightning before it was a package of its own.
_PACKAGES = re.compile(r"^(torchmetrics|pytorch_lightning\.metrics)\.")


def reads_values(script: Script, node: ast.AST) -> bool:
    """`accuracy(logits, labels)` of torchmetrics, which waits for its arguments."""
    if not isinstance(node, ast.Call) or not (node.args or node.keywords):
        return False
    if not any(map(script.mentions, _NAMED)):
        return False
    its = script.of(node)
    whole = any(isinstance(a, ast.Call) and last_name(a) == "argmax" for a in node.args)
    if _waits(script, node, made=False, whole=whole):
        return _is_there(its, node)
    held = node.func
    if isinstance(held, ast.Attribute) and held.attr in _RUN:
        held = held.value
    made = [_unmoved(origin.call) for origin in its.resolver.origins(held)]
    return (
        bool(made)
        and all(
            call is not None and _waits(script, call, made=True, whole=whole)
            for call in made
        )
        and _is_there(its, node)
    )


def _unmoved(call: ast.Call | None) -> ast.Call | None:
    """`Accuracy(…)` of `Accuracy(…).to(device)`."""
    while call is not None and last_name(call) in _MOVES:
        above = call.func.value if isinstance(call.func, ast.Attribute) else None
        call = above if isinstance(above, ast.Call) else None
    return call


def _is_there(script: Script, call: ast.Call) -> bool:
    on_host = Where.HOST | Where.PLAIN
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(script.where(value) & ~on_host for value in given)


def _waits(script: Script, call: ast.Call, made: bool, whole: bool) -> bool:
    """Whether a call of a function waits, or what it makes does when it is called.

    `whole`: predictions are whole numbers, whose values are looked at as those of
    labels are.
    """
    name = script.of(call).index.qualified(call.func) or ""
    if _PACKAGES.match(name) is None or made == (".functional." in name):
        return False
    last = last_name(call) or ""
    if last == _COLLECTION:
        return any(_waits(script, its, made, whole) for its in _listed(call))
    if _PIXELS.match(last):
        return True
    kind = _OF_CLASSES.match(last)
    options = {k.arg: k.value for k in call.keywords}
    if kind is None or None in options:
        return False
    given = call.args if made else call.args[2:]  # behind predictions and targets
    task = options.get("task")
    if kind["task"] is None and task is None and given:
        task, given = given[0], given[1:]
    asked = kind["task"] or (task.value if isinstance(task, ast.Constant) else None)
    if (task is not None and asked is None) or len(given) > 1:
        return False
    checked = options.get("validate_args")
    if checked is not None and not _is(checked, True):
        return False
    if str(asked).lower() != "multiclass" or not _SUMS.match(kind["kind"]):
        return True
    if whole:
        return True
    usual = {"top_k": 1, "multidim_average": "global"}
    if any(name in options and not _is(options[name], usual[name]) for name in usual):
        return False
    ignored = options.get("ignore_index")
    if ignored is not None and not _is(ignored, None):
        return True  # left out by a mask
    averaged = options.get("average")
    if averaged is None:  # of a class by each class, of `Accuracy` all at once
        return kind["task"] is not None
    return isinstance(averaged, ast.Constant) and averaged.value != "micro"


def _is(node: ast.expr, constant: object) -> bool:
    return isinstance(node, ast.Constant) and node.value == constant


def _listed(collection: ast.Call) -> list[ast.Call]:
    """The metrics that a collection is made of, where they are written."""
    given = list(collection.args)
    if len(given) == 1 and isinstance(given[0], ast.Dict):
        given = given[0].values
    elif len(given) == 1 and isinstance(given[0], (ast.List, ast.Tuple)):
        given = given[0].elts
    return [value for value in given if isinstance(value, ast.Call)]
