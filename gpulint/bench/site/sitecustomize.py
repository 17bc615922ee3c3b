"""Gives Python another text for some files, in a process and in all that it starts.

Python imports this module at start-up where its folder is on PYTHONPATH. `texts.json`
says in which files beside it the texts are. The files that they replace stay as they
are, and so do `__file__`, `sys.path` and the arguments. A script that opens its own
file sees what is on the disk.
"""

from __future__ import annotations

import _io  # where importlib opens files
import importlib.machinery
import importlib.util
import io
import json
import linecache
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).absolute().parent


def replace_texts(texts: dict[str, bytes]) -> None:
    """Have imports, `multiprocessing` and tracebacks see these texts."""
    opened = io.open_code
    known: Any = importlib.machinery.SourceFileLoader
    stats = known.path_stats

    def open_code(path: str) -> Any:
        text = texts.get(os.path.realpath(path))
        return opened(path) if text is None else io.BytesIO(text)

    def path_stats(loader: Any, path: str) -> Any:
        if os.path.realpath(path) in texts:  # else the code compiled before is used
            raise OSError(path)
        return stats(loader, path)

    io.open_code = _io.open_code = open_code
    known.path_stats = path_stats
    for path, text in texts.items():
        # Without a time of change it is never looked up on the disk.
        lines = importlib.util.decode_source(text).splitlines(keepends=True)
        linecache.cache[path] = (len(text), None, lines, path)


def read_texts() -> dict[str, bytes]:
    """The texts by the paths of what they replace."""
    names = json.loads((HERE / "texts.json").read_text("utf-8"))
    return {path: (HERE / name).read_bytes() for path, name in names.items()}


def run_next() -> None:
    """The `sitecustomize` that this one stands before, as it is imported once."""
    sys.path[:] = [p for p in sys.path if Path(p).absolute() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


replace_texts(read_texts())
run_next()
