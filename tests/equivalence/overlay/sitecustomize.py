"""Makes moves to a device copy on a machine without one.

Python imports this module at start-up where its folder is on PYTHONPATH, in worker
processes as well. On a GPU `x.to(device)` of a host tensor is a copy: what happens to
one of the two tensors is not seen in the other, and a strided slice becomes dense. On
the CPU the same call returns `x` itself. Once torch is imported, these calls copy, by
the code path and so with the strides of a real move:

- `Tensor.to` with a device or another tensor, `Tensor.cuda` and `Tensor.cpu`;
- `torch.as_tensor` and `torch.asarray` with a device.

Moves to another dtype alone stay as they are, and so do calls from inside torch:
modules, optimizers and gradient clipping move what is on the device already.
`torch.cuda.is_available()` stays False. Autograd sees a copy, as it does on a GPU.

Limits:

- Where a tensor lies is not tracked. A second move of a tensor that is on the device
  already, or `.cpu()` of a host tensor, returns the tensor itself on a GPU machine
  and copies here. A rewrite that drops such a second move differs here only if the
  script changes one of the two tensors in place and reads the other.
- `copy_`, `Tensor.type` and storage-level moves are not changed.
- A move with `non_blocking=True` is finished when it returns: races with a pinned
  source that is changed too early do not show.
- Host and device arithmetic are the same. What differs on a GPU only, such as the
  order of a reduction, does not show.
- Another `sitecustomize` further down the path is not run.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class AfterTorch(MetaPathFinder):
    """Finds torch as before, and patches it once it is imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            make_moves_copy(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def make_moves_copy(torch: Any) -> None:
    """Replace the functions that move tensors by ones that always copy."""
    tensor_to = torch.Tensor.to

    def copied(tensor: Any, **kwargs: Any) -> Any:
        return tensor_to(tensor, tensor.device, copy=True, **kwargs)

    @functools.wraps(tensor_to)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        moved = tensor_to(self, *args, **kwargs)
        if moved is not self or called_by_torch() or not names_device(args, kwargs):
            return moved
        return copied(self)

    def names_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        # to(device, ...), to(other, ...) and to(device=...), but not to(dtype, ...)
        first = args[0] if args else kwargs.get("device", kwargs.get("other"))
        return first is not None and not isinstance(first, torch.dtype)

    @functools.wraps(torch.Tensor.cuda)
    def cuda(
        self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any
    ) -> Any:
        # a module's own .cuda() keeps its parameters
        return self if called_by_torch() else copied(self, **kwargs)

    @functools.wraps(torch.Tensor.cpu)
    def cpu(self: Any, **kwargs: Any) -> Any:
        return self if called_by_torch() else copied(self, **kwargs)

    def copying(factory: Any) -> Any:
        @functools.wraps(factory)
        def create(*args: Any, **kwargs: Any) -> Any:
            made = factory(*args, **kwargs)
            if kwargs.get("device") is None or called_by_torch():
                return made
            return copied(made)

        return create

    torch.Tensor.to = to
    torch.Tensor.cuda = cuda
    torch.Tensor.cpu = cpu
    torch.as_tensor = copying(torch.as_tensor)
    torch.asarray = copying(torch.asarray)


def called_by_torch() -> bool:
    """Whether the function that asks was called from a module of torch."""
    caller = str(sys._getframe(2).f_globals.get("__name__", ""))
    return caller == "torch" or caller.startswith("torch.")


sys.meta_path.insert(0, AfterTorch())
