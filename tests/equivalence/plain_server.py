"""Runs scripts on the CPU in forks of one process that has torch loaded.

Reads one job a line from standard input (`name`, `text`, texts by file name in
`beside`, `arguments`, `environment`, `moves_copy`, and `timeout` in seconds) and writes
a line with the `status`, None after the time-out, and what the script printed. Each
script runs in a child of its own, in an empty folder, as `__main__`. `server.py` is the
one with a pretended GPU.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np  # noqa: F401
import torch

from .child import redirect, run_as_main, seed
from .overlay.sitecustomize import make_moves_copy

OVERLAY = Path(__file__).resolve().parent / "overlay"
OTHER_PATHS = os.environ.get("PYTHONPATH", "").split(os.pathsep)


def main() -> None:
    """Serve until there are no more jobs."""
    # what a child would import anew each time
    import torch._dynamo
    import torch.utils.data._utils.worker  # noqa: F401

    gc.freeze()
    jobs, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in jobs:
        print(json.dumps(serve(json.loads(line))), file=answers, flush=True)


def serve(job: dict[str, Any]) -> dict[str, Any]:
    """Run one script in a child."""
    # not a TemporaryDirectory: the child would remove it when it ends
    folder = Path(tempfile.mkdtemp(prefix="equivalence-"))
    try:
        (folder / "run").mkdir()
        for other, text in job["beside"].items():
            (folder / "run" / other).write_text(text, "utf-8")
        child = os.fork()
        if child == 0:
            run_child(job, folder)
        _, ended = os.waitpid(child, 0)
        status = os.waitstatus_to_exitcode(ended)
        return {
            "status": None if status == -signal.SIGALRM else status,
            "stdout": (folder / "out").read_text("utf-8", "replace"),
            "stderr": (folder / "err").read_text("utf-8", "replace"),
        }
    finally:
        shutil.rmtree(folder)


def run_child(job: dict[str, Any], folder: Path) -> None:
    """Run a script and end the process with the status that Python would end with."""
    status = 1
    try:
        signal.setitimer(signal.ITIMER_REAL, job["timeout"])
        redirect(folder)
        os.environ.update(job["environment"])
        os.chdir(folder / "run")
        sys.path[0] = str(folder / "run")
        seed(None)
        if os.environ.get("EQUIVALENCE_GPU") == "real":
            torch.use_deterministic_algorithms(True, warn_only=True)
        if job["moves_copy"]:
            os.environ["PYTHONPATH"] = os.pathsep.join([str(OVERLAY), *OTHER_PATHS])
            make_moves_copy(torch)
        run_as_main(job["text"], folder / "run" / job["name"], job["arguments"])
        status = 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(bool(ending.code))
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
