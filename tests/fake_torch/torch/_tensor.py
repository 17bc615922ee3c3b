"""A tensor with one value."""

from __future__ import annotations

from typing import Any


class Tensor:
    def __init__(self, value: float) -> None:
        self.value = value

    def backward(self) -> None:
        pass

    def numel(self) -> int:
        return 1

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(self.value)

    def reshape(self, shape: object) -> Tensor:
        return self

    def to(self, *where: Any) -> Tensor:
        return self

    def __float__(self) -> float:
        return self.value
