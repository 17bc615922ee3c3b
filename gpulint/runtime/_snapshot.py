"""Take what torch.save would write into host memory, to write it later."""

from __future__ import annotations

import pickle
from typing import Any

from ._limits import free_memory
from ._ranks import local_world_size
from ._replacement import Replacement

PART = 0.5  # of a rank's share of the free memory: a snapshot may take so much


class TooLarge(Exception):
    """The snapshot does not fit into memory."""


class Snapshot:
    """The records of a checkpoint: pickled objects and copies of all storages.

    Stands for the archive that torch writes its records to. Raises TooLarge, and
    whatever pickling an object raises.
    """

    def __init__(self, value: object) -> None:
        from torch.serialization import DEFAULT_PROTOCOL, _save

        free = free_memory()
        self._room = None if free is None else int(free * PART / local_world_size())
        self._records: list[tuple[str, Any, int]] = []
        _save(value, self, pickle, DEFAULT_PROTOCOL, False)  # type: ignore[no-untyped-call]

    def write_record(self, name: str, data: Any, size: int) -> None:
        """Keep a record: text, bytes, or a copy of what lies in host memory."""
        if self._room is not None:
            self._room -= size
            if self._room < 0:
                raise TooLarge
        if isinstance(data, int):  # an address: older torch
            import ctypes

            data = ctypes.string_at(data, size)
        kept = data if isinstance(data, (bytes, str)) else data.clone()
        self._records.append((name, kept, size))

    def write_to(self, file: Replacement) -> None:
        """Write the archive."""
        from torch.serialization import _open_zipfile_writer

        with _open_zipfile_writer(file) as archive:  # type: ignore[arg-type]
            for name, data, size in self._records:
                archive.write_record(name, data, size)
