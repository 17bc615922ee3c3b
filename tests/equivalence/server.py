"""Runs scripts in forks of one process that has torch loaded.

Their GPU is pretended, or with EQUIVALENCE_GPU=real the one of this machine.

Reads one job a line from standard input (`{"script": …, "situation": {…}}`) and writes
the outcome as one line. Each script runs in a child of its own, in an empty folder, as
`__main__`.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import pickle
import random
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import support

REAL_GPU = os.environ.get("EQUIVALENCE_GPU") == "real"
if not REAL_GPU:
    support.load()

import numpy as np  # noqa: E402
import torch  # noqa: E402

from . import draws, gpu, gpu_memory, gpu_patches  # noqa: E402
from .child import redirect, run_as_main, seed  # noqa: E402

NAME = "train.py"
SHOWN_LINES = 20


def main() -> None:
    """Serve until there are no more jobs."""
    # what a child would import anew each time
    import torch._dynamo
    import torch.utils.data._utils.worker

    import gpulint.runtime  # noqa: F401

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    gc.freeze()
    jobs, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in jobs:
        outcome = serve(json.loads(line))
        print(json.dumps(outcome), file=answers, flush=True)


def serve(job: dict[str, Any]) -> dict[str, Any]:
    """Run one script in a child."""
    with tempfile.TemporaryDirectory(prefix="equivalence-") as name:
        folder = Path(name)
        (folder / "run").mkdir()
        child = os.fork()
        if child == 0:
            run_child(job["script"], job["situation"], folder)
        _, status = os.waitpid(child, 0)
        return collect(folder, status)


def collect(folder: Path, status: int) -> dict[str, Any]:
    """What a child left in its folder."""
    left = folder / "left.json"
    outcome = json.loads(left.read_text("utf-8")) if left.exists() else {}
    outcome["output"] = (folder / "out").read_text("utf-8", "replace").splitlines()
    errors = (folder / "err").read_text("utf-8", "replace").splitlines()
    failed = status != 0 or not left.exists()
    tail = "\n".join(errors[-SHOWN_LINES:])
    outcome["error"] = f"ended with status {status}:\n{tail}" if failed else ""
    record = folder / "draws"
    lines = record.read_text("utf-8").splitlines() if record.exists() else []
    outcome["draws"] = [json.loads(line) for line in lines]
    return outcome


def run_child(text: str, situation: dict[str, Any], folder: Path) -> None:
    """Run a script and end the process."""
    status = 1
    try:
        prepare(situation, folder)
        watch = Watch()
        run_as_main(text, folder / "run" / NAME, situation["arguments"])
        left = watch.report()
        (folder / "left.json").write_text(json.dumps(left), "utf-8")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def prepare(situation: dict[str, Any], folder: Path) -> None:
    """Make the process what the situation asks for."""
    redirect(folder)
    os.chdir(folder / "run")
    os.environ.update(situation["environment"])
    signal.alarm(situation["timeout"])
    torch.multiprocessing.set_start_method("fork", force=True)
    seed(0)  # a fork seeds `random` from the clock
    if situation["record"]:
        draws.write_down(folder / "run" / NAME, folder / "draws")
    if situation["seeds"]:
        draws.shift_seeds(situation["seeds"])
    if REAL_GPU:
        use_real_gpu(used=situation["gpu"] is not None)
    elif situation["gpu"] is not None:
        major, minor = situation["gpu"]
        gpu_patches.pretend_gpu((major, minor))
    if situation["constant"]:
        draws.make_constant()


def use_real_gpu(*, used: bool) -> None:
    """Have kernels that repeat themselves, or no GPU. CUDA has not started yet."""
    if used:
        torch.use_deterministic_algorithms(True, warn_only=True)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


class Watch:
    """Remembers the networks and optimizers that are built from now on."""

    def __init__(self) -> None:
        self.modules: list[torch.nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        remember(torch.nn.Module, self.modules)
        remember(torch.optim.Optimizer, self.optimizers)

    def report(self) -> dict[str, Any]:
        """Digests of what the script left behind."""
        if gpu_memory.QUEUE.writes:
            gpu_memory.QUEUE.wait()
        inner = {id(c) for m in self.modules for c in m.modules() if c is not m}
        roots = [m for m in self.modules if id(m) not in inner]
        weights = {
            f"{number}.{name}": digest(tensor)
            for number, root in enumerate(roots)
            for name, tensor in root.state_dict().items()
        }
        states = {
            f"{number}.{index}": digest_all(flatten(state))
            for number, optimizer in enumerate(self.optimizers)
            for index, state in enumerate(optimizer.state.values())
        }
        return {
            "weights": weights,
            "optimizers": states,
            "random": random_states(),
            "waits": gpu_memory.QUEUE.waits,
        }


def remember(cls: Any, instances: list[Any]) -> None:
    """Keep every instance of a class that is built from now on."""
    build = cls.__init__

    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        instances.append(self)
        build(self, *args, **kwargs)

    cls.__init__ = built


def flatten(state: Any) -> list[torch.Tensor]:
    """The tensors of one parameter's state, by name."""
    return [v for _, v in sorted(state.items()) if isinstance(v, torch.Tensor)]


def random_states() -> dict[str, str]:
    """Digests of the generators that a script shares with libraries."""
    return {
        "torch": digest(torch.get_rng_state()),
        "device": digest(device_random_state()),
        "random": hashed([repr(random.getstate()).encode()]),
        "numpy": hashed([pickle.dumps(np.random.get_state(legacy=False))]),
    }


def device_random_state() -> torch.Tensor:
    """The state of the GPU's generator."""
    if torch.cuda.is_initialized():
        return torch.cuda.get_rng_state()
    return gpu_memory.NUMBERS.state


def digest(tensor: torch.Tensor) -> str:
    return digest_all([tensor])


def digest_all(tensors: Iterable[torch.Tensor]) -> str:
    """A digest of values and dtypes; where a tensor lies does not matter."""
    parts = []
    for tensor in tensors:
        held = gpu.on_host(tensor.detach()).cpu()
        flat = held.contiguous().reshape(-1).view(torch.uint8)
        parts += [f"{held.dtype}{tuple(held.shape)}".encode(), flat.numpy().tobytes()]
    return hashed(parts)


def hashed(parts: list[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


if __name__ == "__main__":
    main()
