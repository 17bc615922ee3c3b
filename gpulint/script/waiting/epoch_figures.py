"""Loops over epochs of a script that measures neither time nor memory."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.script.neighbours import run_together
from gpulint.script.reaching.started import has_own_settings, is_started, trains_on_gpu
from gpulint.script.rewriting.edits import InsertBefore, Replace, Rewrite

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

TITLE = "Measure each epoch"
NAME = "monitor"
_EPOCH = re.compile(r"epoch|(^|_)ep(_|$)", re.IGNORECASE)
# What measures time or memory, shows it, or writes it beside what it is told.
_MEASURES = re.compile(
    r"\btime\b|\btimeit\b|perf_counter|\bdatetime\b|[Tt]imer|elapsed|"
    r"tqdm|trange|progress|\brich\b|"
    r"\blogg(ing|er)\b|loguru|\babsl\b|asctime|"
    r"wandb|mlflow|neptune|comet|clearml|swanlab|aim\.|visdom|tensorboard|[Ss]ummaryWriter|"
    r"memory_(allocated|reserved|stats|summary)|mem_get_info|pynvml|nvidia.smi|psutil|"
    r"GPUtil|profil|runtime\.Monitor|"
    r"accelerate|lightning|ignite|catalyst|fastai|deepspeed|\bray\b|optuna|mmcv|mmengine",
)


def unmeasured_epochs(script: Script) -> list[Loop]:
    """Outermost loops over epochs that train on a GPU in a script that is run."""
    loops = [x for x in script.loops if _counts_epochs(script, x)]
    if not loops or script.source.has(_MEASURES):
        return []
    if not is_started(script) or not trains_on_gpu(script):
        return []
    if script.sends_modules or has_own_settings(script):
        return []
    if any(index.source.has(_MEASURES) for index in run_together(script)):
        return []
    return loops


def _counts_epochs(script: Script, loop: Loop) -> bool:
    """`for epoch in range(n):` around a loop that trains, in no such loop itself."""
    node = loop.node
    if loop.kind != "epoch" or not isinstance(node, ast.For):
        return False
    named = isinstance(node.target, ast.Name) and _EPOCH.search(node.target.id)
    call = node.iter if isinstance(node.iter, ast.Call) else None
    counted = call is not None and script.index.qualified(call.func) == "range"
    around = script.loops_around(node)
    return bool(named) and counted and not around


def measure(script: Script, loop: Loop) -> tuple[Rewrite | None, str | None]:
    """The rewrite that measures the epochs of a loop, or why there is none."""
    if NAME in script.index.bound_names or NAME in script.index.imports:
        return None, f"the name `{NAME}` is in use"
    node = loop.node
    assert isinstance(node, ast.For), "a loop over epochs"
    runtime, imports = script.names.runtime
    edits = (
        InsertBefore(node, f"{NAME} = {runtime}.Monitor()"),
        Replace(node.iter, lambda text: f"{NAME}.epochs({text})"),
    )
    return Rewrite(TITLE, edits, imports), None
