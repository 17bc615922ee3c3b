"""What torch says of the pretended GPU, and how a process gets one."""

from __future__ import annotations

import functools
import os
from types import SimpleNamespace
from typing import Any

import torch

from . import gpu, gpu_memory

MEMORY = 16 * 1024**3


def pretend_gpu(capability: tuple[int, int] = (8, 0)) -> None:
    """Give this process a GPU of this compute capability, for the rest of its life.

    Only its first process has it: like CUDA, it refuses forked ones.
    """
    owner = os.getpid()
    cuda: Any = torch.cuda
    properties = SimpleNamespace(
        name="Pretended GPU",
        major=capability[0],
        minor=capability[1],
        total_memory=MEMORY,
        multi_processor_count=40,
    )

    def start() -> None:
        if os.getpid() != owner:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")

    answers: dict[str, Any] = {
        "_lazy_init": start,
        "is_initialized": lambda: os.getpid() == owner,
        "_is_in_bad_fork": lambda: os.getpid() != owner,
        "is_available": lambda: True,
        "is_bf16_supported": lambda *args, **kwargs: capability >= (8, 0),
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: properties.name,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: capability,
        "mem_get_info": lambda device=None: (MEMORY // 2, MEMORY),
        "synchronize": lambda device=None: gpu_memory.QUEUE.wait(),
        "empty_cache": lambda: None,
        "manual_seed": gpu_memory.NUMBERS.seed,
        "manual_seed_all": gpu_memory.NUMBERS.seed,
        "get_rng_state": lambda device=None: gpu_memory.NUMBERS.state,
        "get_rng_state_all": lambda: [gpu_memory.NUMBERS.state],
    }
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        answers[name] = lambda device=None: 0
    answers["reset_peak_memory_stats"] = lambda device=None: None
    for name, answer in answers.items():
        setattr(cuda, name, answer)

    accelerator: Any = torch.accelerator
    accelerator.is_available = lambda: True
    accelerator.current_accelerator = lambda *args, **kwargs: torch.device("cuda")
    accelerator.current_device_index = lambda: 0
    accelerator.set_device_index = lambda device: None
    tensor: Any = torch.Tensor
    tensor.pin_memory = (
        gpu_memory.pin
    )  # also in the loader's thread, which has no modes
    tensor.is_pinned = gpu_memory.pinned
    module: Any = torch.nn.Module
    module._apply = swapping(module._apply)
    torch.serialization.add_safe_globals([gpu.restored])
    gpu.Operations().__enter__()
    for name in ("tensor", "as_tensor", "asarray"):
        setattr(torch, name, gpu.creating(getattr(torch, name)))
    for name in ("empty", "zeros", "ones", "full", "rand", "randn", "arange"):
        setattr(torch, name, gpu.pinning(getattr(torch, name)))


def swapping(apply: Any) -> Any:
    """`Module.to` and its like: parameters stay the same objects, as on a real GPU."""
    future: Any = torch.__future__

    @functools.wraps(apply)
    def applied(self: Any, *args: Any, **kwargs: Any) -> Any:
        future.set_swap_module_params_on_conversion(True)
        try:
            return apply(self, *args, **kwargs)
        finally:
            future.set_swap_module_params_on_conversion(False)

    return applied
