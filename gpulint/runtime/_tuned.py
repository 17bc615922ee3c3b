"""Read what `gpulint tune` has found, and tell it what this script asks for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ._hardware import Hardware, hardware
from ._log import decide
from ._settings import settings

FILE_NAME = "gpulint.tuned.json"
SCHEMA = 1
MEMORY_TOLERANCE = 0.05  # drivers and firmware keep different amounts for themselves
TUNER = "gpulint_tuner"  # the module that listens while `gpulint tune` runs a script


class TunedBatch(NamedTuple):
    """A batch size that was tried, and the memory that the device then needed."""

    size: int
    peak_bytes: int | None


def tell_tuner(helper: str, **facts: object) -> None:
    """Tell `gpulint tune`, if it runs this script, what a helper was asked."""
    tuner: Any = sys.modules.get(TUNER)
    if tuner is not None:
        tuner.asked(helper, facts)


def tuned_entries() -> list[Mapping[str, Any]]:
    """Return what the nearest file about the script that runs holds."""
    if not settings().tuned:
        return []
    script = _main_script()
    for folder in (script if script.is_dir() else script.parent, *script.parents):
        file = folder / FILE_NAME
        content = _read(file) if file.is_file() else {}
        entries = content.get("entries") if content.get("schema") == SCHEMA else None
        its = [e for e in entries or () if isinstance(e, Mapping)]
        its = [
            e
            for e in its
            if _is_about(e.get("script") or content.get("script"), folder, script)
        ]
        if its:
            return its
    return []


def tuned_entry() -> Mapping[str, Any]:
    """Return what was tuned for the machine at hand; empty where nothing was."""
    entries = tuned_entries()  # no look at the GPU where there are none
    return find_entry(entries, hardware()) if entries else {}


def find_entry(
    entries: Iterable[Mapping[str, Any]], machine: Hardware
) -> Mapping[str, Any]:
    """Return the first entry for a machine like this; empty where there is none."""
    like = (e for e in entries if _is_like(e.get("hardware"), machine))
    return next(like, {})


def tuned_batches(
    entries: Iterable[Mapping[str, Any]], name: str, machine: Hardware
) -> list[TunedBatch]:
    """Return what was tuned under `name` for a machine like this, largest first.

    The first is the winner; what lost against it with more samples is left out.
    """
    return list(_batches(find_entry(entries, machine), name))


def _main_script() -> Path:
    """The script that Python was started with; a notebook has its folder alone."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(main).resolve() if isinstance(main, str) else Path.cwd()


def _is_about(name: object, folder: Path, script: Path) -> bool:
    """Say whether `name`, written in a file in this folder, is the script."""
    if not isinstance(name, str):
        return False
    return script.is_dir() or (folder / name).resolve() == script


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        decide("tuned values", f"{file} cannot be read ({error})")
        return {}
    return content if isinstance(content, Mapping) else {}


def _is_like(wanted: object, machine: Hardware) -> bool:
    """Say whether it is the same device with the same memory, within 5 %."""
    if not isinstance(wanted, Mapping) or wanted.get("name") != machine.name:
        return False
    memory, total = _number(wanted.get("memory")), machine.memory_total
    if memory is None or total is None:
        return memory == total
    return abs(memory - total) <= MEMORY_TOLERANCE * memory


def _batches(entry: Mapping[str, Any], name: str) -> Iterator[TunedBatch]:
    best = _batch(entry, name)
    if best is None:
        return
    yield best
    table = entry.get("table")
    rows = [row for row in table if isinstance(row, Mapping)] if table else []
    rows = [row for row in rows if row.get("outcome", "ok") == "ok"]
    tried = [batch for batch in (_batch(row, name) for row in rows) if batch]
    smaller = {b for b in tried if b.size < best.size and b.peak_bytes is not None}
    yield from sorted(smaller, reverse=True)


def _batch(row: Mapping[str, Any], name: str) -> TunedBatch | None:
    sizes = row.get("batch_size")
    size = _number(sizes.get(name)) if isinstance(sizes, Mapping) else None
    return TunedBatch(size, _number(row.get("peak_bytes"))) if size else None


def _number(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None
