"""Write what was found to `gpulint.tuned.json`, where `gpulint.runtime` reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpulint.atomic import write_text
from gpulint.tuning.candidate import Trial
from gpulint.tuning.plan import Found

NAME = "gpulint.tuned.json"
SCHEMA = 1


class StoreError(Exception):
    """The file is not one of ours; the message says which."""


def read(file: Path) -> dict[str, Any]:
    """What the file holds; nothing where there is none. Raises StoreError."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror or error}") from None
    except ValueError:
        raise StoreError(f"{file} is not JSON; it stays as it is") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise StoreError(f"{file} holds no tuned values that this version knows")
    return content


def check_folder(file: Path) -> None:
    """Raises StoreError where the file could not be written."""
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise StoreError(f"{file.parent} is no folder that can be written to")
    if file.is_dir():
        raise StoreError(f"{file} is a folder")


def write(file: Path, script: Path, found: Found) -> None:
    """Put the winner in the place of what was known for this script and machine.

    Other scripts' and machines' entries stay. The file changes at once or not at all.
    """
    content = read(file)
    about = Path(os.path.relpath(script.resolve(), file.resolve().parent)).as_posix()
    entry = make_entry(found)
    main = content.get("script", about)
    if main != about:
        entry["script"] = about
    others = [
        other
        for other in content.get("entries") or []
        if isinstance(other, dict)
        and (other.get("script", main), _machine(other)) != (about, _machine(entry))
    ]
    merged = {"schema": SCHEMA, "script": main, "entries": [*others, entry]}
    write_text(file, json.dumps(merged, indent=2) + "\n")


def make_entry(found: Found) -> dict[str, Any]:
    """The winner, and the table of all that was tried."""
    hardware = found.winner.facts.hardware
    return {
        "hardware": {key: hardware.get(key) for key in ("name", "memory", "cpus")},
        **settings(found.winner),
        "samples_per_second": _rate(found.winner),
        "peak_bytes": found.winner.peak_bytes,
        "table": [_row(trial) for trial in found.trials],
    }


def settings(trial: Trial) -> dict[str, Any]:
    """The values of a run that the runtime can use, those as written among them."""
    its, facts = trial.candidate, trial.facts
    values: dict[str, Any] = {}
    sizes = {**facts.train_sizes, **dict(its.sizes)}
    if sizes:
        values["batch_size"] = sizes
    workers = facts.workers if its.workers is None else its.workers
    if workers is not None:
        values["workers"] = workers
    if its.prefetch is not None:
        values["prefetch_factor"] = its.prefetch
    if its.amp is not None:
        values["amp"] = its.amp
    if its.compile is not None:
        values["compile"] = its.compile
    return values


def _row(trial: Trial) -> dict[str, Any]:
    row = {**settings(trial), "outcome": trial.outcome.value}
    if trial.candidate.channels_last:
        row["channels_last"] = True
    if trial.ok:
        row["samples_per_second"] = _rate(trial)
    if trial.detail:
        row["detail"] = trial.detail
    return {**row, "peak_bytes": trial.peak_bytes}


def _rate(trial: Trial) -> float:
    return float(f"{trial.rate:.4g}")


def _machine(entry: Mapping[str, Any]) -> tuple[object, object]:
    """What the runtime finds an entry by."""
    hardware = entry.get("hardware")
    its = hardware if isinstance(hardware, dict) else {}
    return its.get("name"), its.get("memory")
