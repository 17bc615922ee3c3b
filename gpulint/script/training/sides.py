"""Which side of a branch trains, in functions that train and evaluate."""

from __future__ import annotations

import ast
import re

from gpulint.index.walk import dotted
from gpulint.script.branches import Branches, all_of

_PHASE = re.compile(r"(^|[._])(phase|mode|stage|split)$")
_PHASES = re.compile(r"(train)|val|test|eval|infer", re.IGNORECASE)


def is_of_evaluation(branches: Branches) -> bool:
    """Whether a part stands behind `if not train:`, or in the `else` of `if train:`."""
    return any(
        isinstance(branch, (ast.If, ast.IfExp))
        and any(
            _asks_for_training(t) is (not holds) for t in all_of(branch.test, holds)
        )
        for branch, holds in branches
    )


def _asks_for_training(test: ast.expr) -> bool | None:
    """True for `training`, False for `not self.training` and `phase == "valid"`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _asks_for_training(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        asked = test.comparators[0]
        said = asked.value if isinstance(asked, ast.Constant) else None
        named = _PHASE.search(dotted(test.left) or "")
        found = _PHASES.match(said) if isinstance(said, str) and named else None
        return None if found is None else found[1] is not None
    name = (dotted(test) or "").rpartition(".")[2]
    return True if name in ("train", "training", "is_train", "is_training") else None
