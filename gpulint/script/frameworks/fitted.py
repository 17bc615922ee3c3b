"""What a trainer of Lightning's is asked for, and the modules that it trains."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.build import last_name

if TYPE_CHECKING:
    from gpulint.script.frameworks.trainer_calls import TrainerCall

_TRAINS = "fit"


def uses(made: TrainerCall) -> list[ast.AST] | None:
    """Where a trainer is read; None where something else than a name gets it."""
    if isinstance(made.script.index.parent(made.call), ast.Attribute):
        return [made.call]  # `Trainer().fit(module)`
    return made.script.readers(made.call)


def fitted(made: TrainerCall) -> list[ast.expr]:
    """The modules of `trainer.fit(module, …)`; none where a call is not seen."""
    index = made.script.index
    found = []
    for use in uses(made) or ():
        above = index.parent(use)
        call = index.parent(above) if isinstance(above, ast.Attribute) else None
        if isinstance(call, ast.Call) and last_name(call) == _TRAINS:
            model = made.script.evaluator.argument(call, "model", 0).direct
            if model is None:
                return []
            found.append(model)
    return found
