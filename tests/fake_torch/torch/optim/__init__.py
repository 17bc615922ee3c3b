"""An optimizer that does nothing."""

from __future__ import annotations

from .optimizer import Optimizer


class SGD(Optimizer):
    pass
