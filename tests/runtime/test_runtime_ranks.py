"""The helpers in real ranks: torchrun, and processes that torch spawns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpulint import runtime

TORCHRUN = """
import os
from gpulint import runtime

device = runtime.device()
options = runtime.loader_kwargs(device)
assert runtime.hardware().local_world_size == 2
print("rank", os.environ["RANK"], device, options["num_workers"], flush=True)
"""
SPAWNED = """
import torch.distributed
import torch.multiprocessing
from gpulint import runtime

def train(rank, store):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    assert runtime.hardware().local_world_size == 2
    print("workers", runtime.loader_kwargs("cpu")["num_workers"], flush=True)
    torch.distributed.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, args=(__file__ + ".store",), nprocs=2)
"""


@pytest.mark.parametrize(
    "text,launcher,line",
    [
        (TORCHRUN, ["-m", "torch.distributed.run", "--nproc-per-node=2"], "rank"),
        (SPAWNED, [], "workers 1"),
    ],
    ids=["torchrun", "spawned"],
)
def test_both_ranks_run_and_one_speaks(
    text: str, launcher: list[str], line: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, *launcher, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "GPULINT_NUM_WORKERS": "1",
            "PYTHONPATH": str(Path(runtime.__file__).parents[2]),
        },
    )
    assert done.returncode == 0, done.stderr
    # Gloo writes to the standard output as well, now and then in the same line.
    assert done.stdout.count(line) == 2, done.stdout + done.stderr
    assert done.stderr.count("gpulint: loader: ") == 1
    assert done.stderr.count("gpulint: hardware: ") == 1
