"""The number of workers that a user asks for who gives no option for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpulint.script.loading.serial import OF_GPUS
from gpulint.script.reaching.commands import is_passed, option_of

if TYPE_CHECKING:
    from gpulint.index import Value
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script


def options_ask_for_none(script: Script, loader: Loader) -> bool:
    """Whether all options for the number are 0 unless told, and no command gives one.

    Another number may be written in a file that names no GPU and trains nothing. What
    else reaches the loader need not be known: options of a run that was saved.
    """
    known = loader.values("num_workers").known
    options = [value for value in known if option_of(script, value) is not None]
    return (
        bool(options)
        and all(v.constant == 0 or _is_apart(script, v) for v in known)
        and all(v.default and v.constant == 0 for v in options)
        and not any(is_passed(script, value) for value in options)
    )


def _is_apart(script: Script, value: Value) -> bool:
    return not script.source_of(value.node).has(OF_GPUS)
