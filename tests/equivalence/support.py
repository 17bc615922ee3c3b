"""Builds and loads the few lines of C++ that let autograd see CUDA tensors."""

from __future__ import annotations

import ctypes
import functools
import getpass
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("gpu_support.cpp")
COMPILER = "g++"


def missing() -> str | None:
    """Why there can be no pretended GPU on this machine, None if there can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    if shutil.which(COMPILER) is None:
        return f"{COMPILER} is not installed"
    return None


@functools.cache
def torch_folder() -> Path:
    """Where torch is installed; found without importing it."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def library() -> Path:
    """The compiled library, built once for each torch and text of the source."""
    version = importlib.metadata.version("torch")
    digest = hashlib.sha256(SOURCE.read_bytes() + str(torch_folder()).encode())
    folder = Path(tempfile.gettempdir()) / f"gpulint-equivalence-{getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    built = folder / f"torch-{version}-{digest.hexdigest()[:12]}.so"
    if not built.exists():
        part = built.with_suffix(f".{os.getpid()}")
        subprocess.run(command(part), check=True)
        part.replace(built)
    return built


def command(target: Path) -> list[str]:
    """What compiles the library."""
    torch = torch_folder()
    flags = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{torch / 'include'}"]
    links = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10"]
    return [COMPILER, *flags, str(SOURCE), *links, "-o", str(target)]


def load() -> None:
    """Load the library. torch asks for accelerators when imported: call it before."""
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(torch_folder() / "lib" / name))
    ctypes.CDLL(str(library()))
