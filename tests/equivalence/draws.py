"""Random draws as constants, with other seeds, or written down."""

from __future__ import annotations

import functools
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import gpu_memory

PYTHON = "random uniform randint randrange choice sample shuffle gauss normalvariate"
NUMPY = "rand randn randint random uniform normal choice permutation shuffle"
TORCH = "rand randn randint randperm normal bernoulli multinomial"


class ConstantDraws(TorchDispatchMode):
    """Every draw gives what a generator gives that was just seeded."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            generator = kwargs.get("generator") or torch.default_generator
            generator.manual_seed(0)
            gpu_memory.NUMBERS.state = generator.get_state()  # as if drawn on the host
        return func(*args, **kwargs)


def make_constant() -> None:
    """Make every draw of this process and its workers depend on its arguments alone."""
    for module, names, seed in (
        (random, PYTHON, random.seed),
        (np.random, NUMPY, np.random.seed),
    ):
        for name in names.split():
            wrap(module, name, before=functools.partial(seed, 0))
    ConstantDraws().__enter__()


def shift_seeds(offset: int) -> None:
    """Add to every seed that the script gives to a generator shared by all."""
    for module, name in (
        (random, "seed"),
        (np.random, "seed"),
        (torch, "manual_seed"),
    ):
        seed = getattr(module, name)

        def shifted(value: Any, seed: Callable[[Any], Any] = seed) -> Any:
            # workers seed NumPy with several numbers, made from a shifted seed
            return seed(value + offset if isinstance(value, int) else value)

        setattr(module, name, shifted)


def write_down(script: Path, record: Path) -> None:
    """Append a line to `record` for each draw that the script itself asks for.

    Workers append as well: a line is one write, and names the script's function, the
    one that drew, and the mean of what came out.
    """
    file = os.open(record, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def note(name: str, made: Any) -> None:
        caller = sys._getframe(2)
        if caller.f_code.co_filename != str(script):
            return
        if isinstance(made, torch.Tensor):
            made = made.detach().cpu()
        try:
            value = float(np.mean(np.asarray(made, dtype=float)))
        except (TypeError, ValueError):
            return
        row = [caller.f_code.co_name, name, value]
        os.write(file, (json.dumps(row) + "\n").encode())

    modules: list[tuple[Any, str]] = [
        (random, PYTHON),
        (np.random, NUMPY),
        (torch, TORCH),
    ]
    for module, names in modules:
        for name in names.split():
            label = f"{module.__name__}.{name}"
            wrap(module, name, after=functools.partial(note, label))


def wrap(
    module: Any,
    name: str,
    before: Callable[[], Any] | None = None,
    after: Callable[[Any], Any] | None = None,
) -> None:
    """Call something before a function of a module, or with what it returned."""
    inner = getattr(module, name)

    @functools.wraps(inner)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before()
        made = inner(*args, **kwargs)
        if after is not None:
            after(made)
        return made

    setattr(module, name, wrapped)
