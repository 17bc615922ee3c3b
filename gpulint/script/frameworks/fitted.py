"""What a trainer of Lightning's is asked for, and the modules that it trains."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.build import last_name

if TYPE_CHECKING:
    from gpulint.script.frameworks.trainer_calls import TrainerCall

_TRAINS = "fit"
_SIZES = ("batch_size", "train_batch_size", "per_device_train_batch_size")


def uses(made: TrainerCall) -> list[ast.AST] | None:
    """Where a trainer is read; None where something else than a name gets it."""
    if isinstance(made.script.index.parent(made.call), ast.Attribute):
        return [made.call]  # `Trainer().fit(module)`
    return made.script.readers(made.call)


def fitted(made: TrainerCall) -> list[ast.expr]:
    """The modules of `trainer.fit(module, …)`; none where a call is not seen."""
    found = [_given(made, call, "model", 0) for call in _fits(made)]
    known = [model for model in found if model is not None]
    return known if len(known) == len(found) else []


def takes_single_samples(made: TrainerCall) -> bool:
    """Whether all that it trains with is asked for batches of one sample.

    `trainer.fit(module, Data(batch_size=1))`: its steps wait for the host.
    """
    found = [
        _given(made, call, "datamodule", 3)
        or _given(made, call, "train_dataloaders", 1)
        for call in _fits(made)
    ]
    return bool(found) and all(d is not None and _is_single(made, d) for d in found)


def _is_single(made: TrainerCall, data: ast.expr) -> bool:
    makers = [origin.call for origin in made.script.resolver.origins(data)]
    sizes = [
        [k.value for k in call.keywords if k.arg in _SIZES] if call is not None else []
        for call in makers
    ]
    values = made.script.evaluator.values
    return bool(sizes) and all(
        bool(given) and all(values(size).all_in(1) for size in given) for given in sizes
    )


def _fits(made: TrainerCall) -> list[ast.Call]:
    """The calls of `fit` of a trainer."""
    index = made.script.index
    found = []
    for use in uses(made) or ():
        above = index.parent(use)
        call = index.parent(above) if isinstance(above, ast.Attribute) else None
        if isinstance(call, ast.Call) and last_name(call) == _TRAINS:
            found.append(call)
    return found


def _given(made: TrainerCall, call: ast.Call, name: str, place: int) -> ast.expr | None:
    return made.script.evaluator.argument(call, name, place).direct
