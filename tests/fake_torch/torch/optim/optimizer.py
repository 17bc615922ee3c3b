"""The hook that all optimizers call after a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_hooks: list[Callable[..., None]] = []


def register_optimizer_step_post_hook(hook: Callable[..., None]) -> None:
    _hooks.append(hook)


class Optimizer:
    def __init__(self, params: Any = (), lr: float = 0.1) -> None:
        self.param_groups = [{"params": list(params), "lr": lr}]

    def step(self) -> None:
        for hook in _hooks:
            hook(self, (), {})
