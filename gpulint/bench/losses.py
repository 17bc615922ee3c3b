"""Keep the losses that a script calls `backward` on, without waiting for the device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

ATTRIBUTE = "_gpulint_factor"


class Losses:
    """Copies of scalar losses, on their device until they are fetched."""

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self.wanted = wanted
        self.kept: list[tuple[Any, Any]] = []  # loss, and the scaler's factor or None
        self.skipped = 0  # steps that a scaler has left out
        self.factor: Any = None  # of a loss scaled since the last step

    def watch_tensors(self, module: Any) -> None:
        """`torch._tensor` was imported: see every `Tensor.backward`."""
        called = module.Tensor.backward

        def backward(loss: Any, *arguments: Any, **options: Any) -> Any:
            if self.wanted():
                self.keep(loss)
            return called(loss, *arguments, **options)

        module.Tensor.backward = backward

    def watch_scalers(self, module: Any, steps: Callable[[], int]) -> None:
        """`torch.amp.grad_scaler` was imported: know the factors of losses."""
        scaler = module.GradScaler
        scaled, stepped = scaler.scale, scaler.step

        def scale(its: Any, outputs: Any) -> Any:
            result = scaled(its, outputs)
            factor = getattr(its, "_scale", None)
            if self.wanted() and factor is not None:
                self.factor = factor.detach().clone()  # `update` changes it in place
                if hasattr(result, "backward"):
                    setattr(result, ATTRIBUTE, self.factor)
            return result

        def step(its: Any, *arguments: Any, **options: Any) -> Any:
            before = steps()
            result = stepped(its, *arguments, **options)
            if steps() == before and self.wanted():
                self.skipped += 1
            self.factor = None
            return result

        scaler.scale, scaler.step = scale, step

    def keep(self, loss: Any) -> None:
        """Remember a loss; one with several elements has no single value."""
        if loss.numel() != 1:
            return
        factor = getattr(loss, ATTRIBUTE, self.factor)
        # A copy: `total += loss` may change what it shares its memory with.
        self.kept.append((loss.detach().clone(), factor))

    def fetch(self) -> list[float]:
        """The values, unscaled; waits for the device."""
        torch = sys.modules.get("torch")
        if torch is None or not self.kept:
            return []
        host = [_double(torch, loss) for loss, _ in self.kept]
        factors = [1.0 if f is None else _double(torch, f) for _, f in self.kept]
        return [a / b for a, b in zip(host, factors, strict=True)]


def _double(torch: Any, tensor: Any) -> float:
    return float(tensor.reshape(()).to("cpu", torch.float64))
