"""What gpulint says is gone is gone in the releases that are installed here."""

from __future__ import annotations

import importlib
import inspect

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from accelerate import Accelerator
from transformers import Trainer, TrainingArguments

from gpulint.script.frameworks.removed_arguments import Removed
from gpulint.script.reaching.old_packages import GONE


def tables() -> list[tuple[type, str, Removed]]:
    from gpulint.rules import gpu364_hf_removed_argument as hf
    from gpulint.rules import gpu366_accelerate_removed_argument as accelerate

    return [
        *((TrainingArguments, name, its) for name, its in hf.ARGUMENTS.items()),
        *((Trainer, name, its) for name, its in hf.TRAINER.items()),
        *((Accelerator, name, its) for name, its in accelerate.REMOVED.items()),
    ]


@pytest.mark.parametrize("made, name, removed", tables(), ids=lambda x: str(x)[:40])
def test_it_is_gone_and_what_took_its_place_is_there(
    made: type, name: str, removed: Removed
) -> None:
    known = inspect.signature(made).parameters
    with pytest.raises(TypeError):
        inspect.signature(made).bind_partial(**{name: None})
    assert not removed.new or removed.new in known


@pytest.mark.parametrize("name", sorted(GONE["transformers"][-1][1]))
def test_no_program_of_today_can_import_it(name: str) -> None:
    holder, _, last = name.rpartition(".")
    with pytest.raises(ImportError):
        importlib.import_module(name)
    try:
        found = importlib.import_module(holder)
    except ImportError:
        return
    assert not hasattr(found, last)
