"""Run a script inside this process as Python would, and see what it imports."""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.util
import io
import os
import runpy
import sys
import traceback
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
SIGKILL = 9
OUT_OF_MEMORY = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "can't allocate memory",  # DefaultCPUAllocator
    "not enough memory",
    "Cannot allocate memory",  # fork of a worker
)
KILLED_WORKER = ("Bus error", "Killed")  # /dev/shm is full, or all of the memory


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module when it has been imported."""

    def __init__(self, actions: dict[str, Callable[[Any], None]]) -> None:
        self.actions = actions

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The module's own spec, with a loader that does one thing more."""
        action = self.actions.pop(name, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            executed = loader.exec_module

            def exec_module(module: Any) -> None:
                executed(module)
                action(module)

            loader.exec_module = exec_module
        return spec


def run_as_main(script: str, arguments: list[str]) -> None:
    """Run a file as `python SCRIPT ARGUMENTS` does."""
    file = str(Path(script).absolute())
    module: Any = types.ModuleType("__main__")
    module.__file__ = file
    module.__builtins__ = builtins
    module.__cached__ = None
    module.__loader__ = SourceFileLoader("__main__", file)
    sys.modules["__main__"] = module
    sys.argv[:] = [script, *arguments]
    if not getattr(sys.flags, "safe_path", False):  # Python 3.11
        sys.path[0] = str(Path(file).resolve().parent)
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def run_module_as_main(name: str, arguments: list[str]) -> None:
    """Run a module as `python -m NAME ARGUMENTS` does."""
    sys.argv[:] = [name, *arguments]
    if not getattr(sys.flags, "safe_path", False):  # Python 3.11
        sys.path[0] = str(Path.cwd())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def die_with(parent: int) -> None:
    """Be killed when the parent dies, however it does; on Linux."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has died before
        os._exit(1)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the host or the device, here or in a worker."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, MemoryError) or "OutOfMemoryError" in names:
        return True
    text = str(error)
    if not isinstance(error, OSError | RuntimeError):
        return False
    if text.startswith("DataLoader worker"):
        return any(signal in text for signal in KILLED_WORKER)
    return any(sign in text for sign in OUT_OF_MEMORY)


def describe(error: BaseException) -> str:
    """The last line of a traceback, in one short line."""
    if isinstance(error, EOFError) and "reading a line" in str(error):
        return "it waits for input, and there is none here"
    text = " ".join(str(error).split())
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) <= 160 else f"{line[:157]}..."


def show(error: BaseException, *callers: str) -> None:
    """The traceback as Python shows it, from the script on.

    `callers`: the files through which `run_as_main` was called.
    """
    above = (__file__, *callers, runpy.__file__, f"<frozen {runpy.__name__}>")
    shown = error.__traceback__
    while shown is not None and shown.tb_frame.f_code.co_filename in above:
        shown = shown.tb_next
    traceback.print_exception(type(error), error, shown)
