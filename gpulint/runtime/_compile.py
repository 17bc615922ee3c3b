"""Keep torch.compile from tracing into the helpers."""

from __future__ import annotations

from collections.abc import Callable


def mark_constant(function: Callable[..., object]) -> None:
    """Tell torch.compile to call a function when it compiles, and keep the result.

    Else it would trace into the detection of hardware. This is what
    `torch.compiler.assume_constant_result` sets, which would cost the import of torch.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
