"""What gpulint says that Keras 3 has no more is gone in the release installed here."""

from __future__ import annotations

import importlib

import keras
import pytest

from gpulint.script.reaching.old_packages import GONE

NAMES = sorted(n for _, gone in GONE["keras"] for n in gone if n.startswith("keras."))


@pytest.mark.skipif(keras.__version__ < "3", reason="Keras 2 has it")
@pytest.mark.parametrize("name", NAMES)
def test_no_program_of_today_can_import_it(name: str) -> None:
    holder, _, last = name.rpartition(".")
    with pytest.raises(ImportError):
        importlib.import_module(name)
    try:
        found = importlib.import_module(holder)
    except ImportError:
        return
    assert not hasattr(found, last)
