"""Starts a server that runs scripts, and asks it."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent

# No accelerator, and one thread: sums are split the same way in every run, and two
# runs side by side do not wait for each other's threads.
FIXED = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
# The GPU of this machine in place of a pretended one: sums in the same order each time.
REAL_GPU = {
    **{name: FIXED[name] for name in FIXED if "VISIBLE" not in name},
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "EQUIVALENCE_GPU": "real",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asks no driver, which forks could not use
}


class Server:
    """A server of this package by its module's name, started when first asked."""

    def __init__(self, module: str, fixed: Mapping[str, str] = FIXED) -> None:
        self._module = module
        self._fixed = fixed
        self._process: subprocess.Popen[str] | None = None

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Send one job and wait for its outcome."""
        if self._process is None:
            self._process = _start(self._module, self._fixed)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the server ended with status {process.wait()}")
        outcome: dict[str, Any] = json.loads(answer)
        return outcome

    def close(self) -> None:
        """End the server."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None


@functools.cache
def plain_server(*, on_gpu: bool = False) -> Server:
    """The server without a GPU, or with this machine's, that all tests share."""
    server = Server("plain_server", REAL_GPU if on_gpu else FIXED)
    atexit.register(server.close)
    return server


def _start(module: str, fixed: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a server that finds this checkout's packages; nobody counts its lines."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GPULINT_", "COVERAGE_"))
    }
    return subprocess.Popen(
        [sys.executable, "-m", f"equivalence.{module}"],
        env={**kept, **fixed, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
