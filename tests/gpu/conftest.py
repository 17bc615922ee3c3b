"""Tests of what only a GPU shows: `make test-gpu` on a machine that has one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gpulint import runtime


@pytest.fixture(autouse=True)
def gpu() -> Iterator[torch.device]:
    """The GPU, with a runtime that has decided nothing yet."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    runtime._reset()
    torch.manual_seed(0)
    yield torch.device("cuda", 0)
    runtime._reset()
    torch.cuda.empty_cache()
