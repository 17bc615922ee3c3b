"""What a forked child does to be like a process of its own."""

from __future__ import annotations

import os
import random
import sys
import types
from pathlib import Path


def redirect(folder: Path) -> None:
    """Read nothing, and write into the files `out` and `err` of a folder."""
    for number, name in ((0, os.devnull), (1, "out"), (2, "err")):
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(folder / name, flags, 0o600), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def seed(value: int | None) -> None:
    """Seed all global generators; None: anew, as a new process does."""
    import numpy as np
    import torch

    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(random.getrandbits(32) if value is None else value)


def run_as_main(text: str, path: Path, arguments: list[str]) -> None:
    """Run a script as Python would run the file."""
    path.write_bytes(text.encode())
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    sys.argv = [str(path), *arguments]
    exec(compile(text, str(path), "exec"), module.__dict__)
