"""The features of a generated training script."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace

# The first value of each is the plainest: what a failing script is brought back to.
CHOICES: dict[str, tuple[str, ...]] = {
    "task": ("regression", "images", "columns", "gan"),
    "layout": ("flat", "main", "trainer"),
    "dataset": ("tensors", "rows", "arrays", "work", "augment", "split"),
    "batch": ("tuple", "dict", "whole"),
    "loop": ("for", "enumerate", "next"),
    "loader": ("plain", "pinned", "workers", "options", "drop_last", "in_loop"),
    "shuffle": ("yes", "generator"),
    "device": ("object", "string", "cuda"),
    "move": ("lines", "one_line", "non_blocking", "helper"),
    "precision": ("float32", "amp_old", "amp_new", "bf16"),
    "optimizer": ("sgd", "momentum", "adam", "adamw", "rmsprop"),
    "zero": ("before", "after", "filled", "model", "loop"),
    "scheduler": ("none", "epoch", "step", "plateau"),
    "clip": ("none", "norm", "value"),
    "accumulate": ("no", "yes"),
    "evaluation": ("none", "plain", "no_grad", "decorated"),
    "total": ("item", "weighted", "tensor", "detached", "list"),
    "metric": ("none", "error", "float"),
    "constant": ("none", "weights", "zeros", "tensor", "noise"),
    "checkpoint": ("none", "best", "file"),
    "log": ("no", "yes"),
    "model": ("plain", "dropout", "norm"),
}


@dataclass(frozen=True)
class Plan:
    """One value of each feature; the default is the plainest."""

    task: str = "regression"
    layout: str = "flat"
    dataset: str = "tensors"
    batch: str = "tuple"
    loop: str = "for"
    loader: str = "plain"
    shuffle: str = "yes"
    device: str = "object"
    move: str = "lines"
    precision: str = "float32"
    optimizer: str = "sgd"
    zero: str = "before"
    scheduler: str = "none"
    clip: str = "none"
    accumulate: str = "no"
    evaluation: str = "none"
    total: str = "item"
    metric: str = "none"
    constant: str = "none"
    checkpoint: str = "none"
    log: str = "no"
    model: str = "plain"

    def __str__(self) -> str:
        special = asdict(self).items()
        parts = [f"{k}={v}" for k, v in special if v != CHOICES[k][0]]
        return " ".join(parts) or "all plain"

    def fits(self) -> Plan:
        """The plan without what does not go together."""
        plan = self
        if plan.task == "columns":
            plan = replace(plan, dataset="tensors", batch="whole")
        elif plan.batch == "whole":
            plan = replace(plan, batch="tuple")
        if plan.dataset in ("tensors", "split") and plan.batch == "dict":
            plan = replace(plan, batch="tuple")
        if plan.task == "gan":
            kept = ("task", "layout", "dataset", "batch", "loader", "shuffle")
            kept += ("device", "move")
            return Plan(**{name: getattr(plan, name) for name in kept})
        if plan.accumulate == "yes":
            rarely = "epoch" if plan.scheduler == "step" else plan.scheduler
            plan = replace(plan, zero="after", scheduler=rarely)
        if plan.device == "cuda" and plan.precision == "bf16":
            plan = replace(plan, precision="amp_new")
        return plan


def plan_of(seed: int) -> Plan:
    """A plan by chance; about half of its features are plain."""
    chance = random.Random(seed)
    values = {
        name: chance.choice(options) if chance.random() < 0.75 else options[0]
        for name, options in CHOICES.items()
    }
    return Plan(**values).fits()
