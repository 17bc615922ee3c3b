"""Read the `GPULINT_*` environment variables, once per process."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

SWITCHED_ON = ("1", "true", "yes", "on")
SWITCHED_OFF = ("0", "false", "no", "off")
POLICIES = ("measured", "local-cloud")
BATCH_SIZE_VARIABLE = re.compile(r"GPULINT_BATCH_SIZE(?:_(\w+))?")


@dataclass(frozen=True)
class Settings:
    """What the environment asks of the helpers."""

    off: bool  # GPULINT_RUNTIME=off: every helper returns the script's own behaviour
    debug: bool  # GPULINT_DEBUG=1: no workers, no mixed precision
    tuned: bool  # GPULINT_TUNED=off: what `gpulint tune` has found is not used
    num_workers: int | None  # GPULINT_NUM_WORKERS
    prefetch_factor: int | None  # GPULINT_PREFETCH_FACTOR
    amp: str | None  # GPULINT_AMP: "off", "fp16" or "bf16"
    compile: bool  # GPULINT_COMPILE=off: no model is compiled
    batch_sizes: Mapping[str, int]  # GPULINT_BATCH_SIZE, GPULINT_BATCH_SIZE_EVAL, …
    policy: str  # GPULINT_POLICY: "measured" or "local-cloud"
    stage_folder: str | None  # GPULINT_STAGE_DIR


_settings: list[Settings] = []


def settings() -> Settings:
    """Return the settings; a value that is not understood raises ValueError."""
    if not _settings:
        _settings.append(_read_settings())
    return _settings[0]


def forget_settings() -> None:
    """Begin anew, as in a fresh process."""
    _settings.clear()


def _read_settings() -> Settings:
    return Settings(
        off=not _read_switch("GPULINT_RUNTIME", default=True),
        debug=_read_switch("GPULINT_DEBUG", default=False),
        tuned=_read_switch("GPULINT_TUNED", default=True),
        num_workers=_read_count("GPULINT_NUM_WORKERS"),
        prefetch_factor=_read_size("GPULINT_PREFETCH_FACTOR"),
        amp=read_choice("GPULINT_AMP", ("off", "fp16", "bf16")),
        compile=_read_switch("GPULINT_COMPILE", default=True),
        batch_sizes=_read_batch_sizes(),
        policy=read_choice("GPULINT_POLICY", POLICIES) or "measured",
        stage_folder=os.environ.get("GPULINT_STAGE_DIR") or None,
    )


def read_choice(
    name: str, allowed: tuple[str, ...], variables: Mapping[str, str] = os.environ
) -> str | None:
    """Return the variable in lower case, None where it is unset or empty."""
    raw = variables.get(name, "")
    value = raw.strip().lower()
    if not value:
        return None
    if value not in allowed:
        raise ValueError(f"{name}={raw!r} is not one of {', '.join(allowed)}")
    return value


def _read_switch(name: str, *, default: bool) -> bool:
    value = read_choice(name, SWITCHED_ON + SWITCHED_OFF)
    return default if value is None else value in SWITCHED_ON


def _read_batch_sizes() -> dict[str, int]:
    """Sizes by the names of `batch_size`; a variable without one is for "train"."""
    found: dict[str, int] = {}
    for variable in sorted(os.environ):
        name = BATCH_SIZE_VARIABLE.fullmatch(variable)
        size = _read_size(variable) if name is not None else None
        if name is not None and size is not None:
            found[(name[1] or "train").lower()] = size
    return found


def _read_size(name: str) -> int | None:
    size = _read_count(name)
    if size == 0:
        raise ValueError(f"{name}='0' is not a number of 1 or more")
    return size


def _read_count(name: str) -> int | None:
    raw = os.environ.get(name, "").strip()
    if not raw:
        return None
    if not raw.isdecimal():
        raise ValueError(f"{name}={raw!r} is not a number of 0 or more")
    return int(raw)
