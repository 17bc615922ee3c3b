"""As much of torch as a short training needs, imported in milliseconds."""

from __future__ import annotations

import contextlib
import types


class OutOfMemoryError(RuntimeError):
    pass


class device:
    def __init__(self, type: object, index: int | None = None) -> None:
        self.type, self.index = getattr(type, "type", type), index

    def __str__(self) -> str:
        return str(self.type)


seed = 0


def manual_seed(number: int) -> None:
    global seed  # noqa: PLW0603
    seed = number


def _none() -> bool:
    return False


class autocast(contextlib.nullcontext[None]):
    pass


amp = types.SimpleNamespace(autocast=autocast)
cuda = types.SimpleNamespace(is_available=_none, is_initialized=_none, amp=amp)
mps = types.SimpleNamespace(is_available=_none)
backends = types.SimpleNamespace(mps=mps)
version = types.SimpleNamespace(cuda=None, hip=None)
float64 = float

from . import optim  # noqa: E402, F401
from ._tensor import Tensor as Tensor  # noqa: E402
