"""How many batches are taken of a loader."""

from __future__ import annotations

import pytest

from gpulint.script.loading.batches_taken import gives_one_a_pass
from tests.script.code import script_of

LOADER = """
from torch.utils.data import DataLoader

loader = DataLoader(photos, num_workers=1)
"""


@pytest.mark.parametrize(
    "lines, one",
    [
        ("batch = next(iter(loader))", True),
        ("for _ in range(9):\n    print(len(loader), next(iter(loader)))", True),
        ("def show():\n    return next(iter(loader))", True),
        ("first = next(iter(loader))\nrest = list(loader)", False),
        ("batches = iter(loader)\nfirst, second = next(batches), next(batches)", False),
        ("for batch in loader:\n    print(batch)", False),
        ("print(len(loader))", False),
        ("print(next(iter(loaders)))", False),
    ],
)
def test_one_batch_of_each_pass(lines: str, one: bool) -> None:
    script = script_of(LOADER + lines)
    (loader,) = script.loaders
    assert gives_one_a_pass(script, loader) is one
