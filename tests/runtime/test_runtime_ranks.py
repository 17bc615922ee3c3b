"""The helpers in real ranks: torchrun, and processes that torch spawns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpulint import runtime

# Ranks that differ in what they have and are asked, and must do the same.
TORCHRUN = """
import os
import sys
import time
from pathlib import Path

rank = int(os.environ["RANK"])
os.environ["GPULINT_BATCH_SIZE"] = ("64", "48")[rank]

import torch
import torch.distributed
from torch.utils.data import DataLoader

from gpulint import runtime
from gpulint.runtime import _gpu, _precision

ampere = _gpu.Gpu("cuda", "Ampere", bf16=True, fp16=True)
volta = _gpu.Gpu("cuda", "Volta", fp16=True)
_precision.read_gpu = lambda device: (ampere, volta)[rank]

device = runtime.device()
ranks = runtime.distributed()
assert torch.distributed.get_backend() == "gloo"
assert runtime.distributed() is ranks
assert (ranks.rank, ranks.local_rank, ranks.world_size) == (rank, rank, 2)
assert runtime.hardware().local_world_size == 2
assert runtime.batch_size(32) == 48
assert runtime.amp_dtype("cpu") is torch.float16

options = runtime.loader_kwargs(device)
data = list(range(10))
sampler = ranks.sampler(data)
loader = DataLoader(data, 2, sampler=sampler, shuffle=sampler is None, **options)
passes = [[int(i) for batch in loader for i in batch] for _ in range(2)]
sampler.set_epoch(0)
assert [int(i) for batch in loader for i in batch] == passes[0]
everyones = [None, None]
torch.distributed.all_gather_object(everyones, passes)
for number in range(2):
    parts = [its[number] for its in everyones]
    assert sorted(parts[0] + parts[1]) == data, parts
assert passes[0] != passes[1]

bank = runtime.resident(torch.arange(10.0), device)
assert bank[passes[0]].tolist() == passes[0]

# Ranks with different numbers of chunks have the gradient of both batches.
torch.manual_seed(0)
model = torch.nn.Linear(3, 1).double()
both = [torch.randn(5, 3).double(), torch.randn(3, 3).double()]
mean = sum(model(its).square().mean() for its in both) / 2
expected = torch.autograd.grad(mean, model.weight)[0]
parallel = torch.nn.parallel.DistributedDataParallel(model)
for chunk, weight in runtime.microbatches(both[rank], 2, model=parallel):
    (weight * parallel(chunk).square().mean()).backward()
torch.testing.assert_close(model.weight.grad, expected)

written = Path(sys.argv[1], "written")
with ranks.main_first():
    if ranks.is_main:
        time.sleep(0.1)
        written.write_text("once")
    assert written.read_text() == "once"
if ranks.is_main:
    assert "fp16 on cpu (Ampere has bf16 and fp16, other ranks less)" in runtime.explain()
    assert "ranks: 2 (gloo, by the launcher's variables)" in runtime.explain()
print(f"rank {rank} {device} {options['num_workers']}\\n", end="", flush=True)
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
    assert runtime.distributed().world_size == 2
    line = f"workers {runtime.loader_kwargs('cpu')['num_workers']}\\n"
    print(line, end="", flush=True)  # in one piece, or two ranks' lines mix
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
        [sys.executable, *launcher, str(script), str(tmp_path)],
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
    assert done.stderr.count("gpulint: ranks: 2 (gloo") == 1
    assert "Traceback" not in done.stderr
    assert "destroy_process_group" not in done.stderr  # torch's complaint
