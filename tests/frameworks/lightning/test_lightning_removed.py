"""What GPU357 says of arguments is so in the release installed here."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("lightning")

from lightning.pytorch import Trainer

from gpulint.script.frameworks.removed_arguments import Removed


def table() -> dict[str, Removed]:
    from gpulint.rules import gpu357_lightning_removed_argument as rule

    return rule.REMOVED


@pytest.mark.parametrize("name", table())
def test_it_is_gone_and_what_took_its_place_is_there(name: str) -> None:
    removed = table()[name]
    with pytest.raises(TypeError):
        Trainer(**{name: None}, logger=False, enable_checkpointing=False)
    assert not removed.new or removed.new in inspect.signature(Trainer).parameters
