"""A GPU that is not there: tensors with data that say they lie on `cuda:0`.

`OnDevice` wraps a tensor of the host. Its dispatch keys are those of CUDA, so autocast
casts and refuses what it does on a GPU, and autograd, optimizers and scalers see CUDA
tensors; the numbers are made by the kernels of the CPU. Unlike on a machine whose only
device is the CPU, this shows:

- a move copies, and only if the tensor is elsewhere; a slice that is moved is dense;
- host and device tensors do not mix;
- the device has random numbers of its own;
- a copy to the device from pinned memory that need not be waited for reads its source
  late: `gpu_memory.Race` if it has changed by the next wait;
- a copy to the host that need not be waited for holds rubbish until the next wait;
- memory of the device that nothing has written to holds rubbish.

What differs on a real GPU only, such as the order of a reduction, does not show.
Arguments that change the shape of a tensor in place are not supported.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from .gpu_memory import NUMBERS, QUEUE, pin, pinned

aten = torch.ops.aten
DEVICE = torch.device("cuda", 0)
HOST = torch.device("cpu")

# Reads that the host waits for.
WAITS = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.equal.default,
    aten.is_nonzero.default,
}
# Their last argument asks for float32, which only CUDA's kernels give.
HALF_TO_FLOAT = {aten._softmax.default, aten._log_softmax.default}
# What they make holds whatever lay there.
UNWRITTEN = {
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
}
# The first argument says where the result lies, the others may lie on the host.
TAKES_HOST_INDICES = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten.copy_.default,
    aten.set_.source_Tensor,
}


class OnDevice(torch.Tensor):
    """A tensor of the pretended GPU; `held` is its data on the host."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnDevice:
        made: OnDevice = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return dispatch(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self.detach().cpu())[:-1] + ", device='cuda:0')"

    def __format__(self, spec: str) -> str:
        return format(self.detach().cpu(), spec)

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        grad = self.requires_grad
        return restored, (self.detach().cpu(), grad, type(self) is not OnDevice)


def restored(held: torch.Tensor, requires_grad: bool, parameter: bool) -> torch.Tensor:
    """A tensor that was saved from the device, there again."""
    moved = held.to(DEVICE)
    if parameter:
        return torch.nn.Parameter(moved, requires_grad)
    return moved.requires_grad_(requires_grad)


def dispatch(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the host's data, and say where its results lie."""
    asked = kwargs.get("device")
    there = False
    host_args = []
    for value in args:
        kind = type(value)
        if kind is OnDevice:
            there = True
            value = value.held
        elif kind is list or kind is tuple:
            there = there or any(type(v) is OnDevice for v in value)
            value = [on_host(v) for v in value]
        host_args.append(value)
    host_kwargs = kwargs
    if kwargs:
        there = there or any(type(v) is OnDevice for v in kwargs.values())
        host_kwargs = {name: on_host(v) for name, v in kwargs.items()}
    if asked is None and not there:
        return func(*args, **kwargs)
    if func is aten._to_copy.default:
        return move(args[0], kwargs)
    if func is aten.copy_.default:
        return copy(*args, **kwargs)
    if there:
        refuse_mixed(func, args)
        if func in WAITS or reads_mask(func, args):
            QUEUE.wait()
    if asked is not None:
        there = asked.type == "cuda"
        host_kwargs["device"] = HOST
    made = run(func, host_args, host_kwargs, there)
    return results(func, args, kwargs, made, there)


def on_host(value: Any) -> Any:
    """The data behind a tensor of the device; all else as it is."""
    return value.held if type(value) is OnDevice else value


def on_device(value: Any) -> Any:
    """A result, on the device if it is a tensor."""
    kind = type(value)
    if kind is torch.Tensor:
        return OnDevice(value)
    if kind is list or kind is tuple:
        return kind(on_device(v) for v in value)
    return value


class Facts(NamedTuple):
    """What there is to know of an operation: written arguments, returned ones."""

    mutable: bool
    draws: bool
    reshapes: bool
    written: tuple[tuple[int, str], ...]
    returned: tuple[bool, ...]


@functools.cache
def facts(func: Any) -> Facts:
    """Facts from the operation's schema."""
    schema = func._schema
    writes = [(i, a.name) for i, a in enumerate(schema.arguments) if is_written(a)]
    return Facts(
        mutable=schema.is_mutable,
        draws=torch.Tag.nondeterministic_seeded in func.tags,
        reshapes=torch.Tag.inplace_view in func.tags,
        written=tuple(writes),
        returned=tuple(is_written(r) for r in schema.returns),
    )


def is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def run(func: Any, args: Any, kwargs: Any, there: bool) -> Any:
    """Run on the host, in float32 what its kernels cannot do in half precision."""
    if there and facts(func).draws:
        return NUMBERS.draw(func, args, kwargs)
    if there and func in UNWRITTEN:
        return rubbish(func(*args, **kwargs))
    if func in HALF_TO_FLOAT and args[2]:
        return func(args[0].float(), args[1], False)
    try:
        return func(*args, **kwargs)
    except RuntimeError as error:
        if "not implemented for 'Half'" not in str(error):
            raise
    wide = tree_map(lambda v: v.float() if is_half(v) else v, (args, kwargs))
    made = func(*wide[0], **wide[1])
    return tree_map(lambda v: v.half() if isinstance(v, torch.Tensor) else v, made)


def is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.float16


def results(func: Any, args: Any, kwargs: Any, made: Any, there: bool) -> Any:
    """What the operation returns: arguments it wrote to, or new tensors."""
    known = facts(func)
    if not known.mutable:
        return on_device(made) if there else made
    if known.reshapes:
        raise NotImplementedError(f"{func} changes a shape in place")
    given = iter(
        kwargs[name] if name in kwargs else args[index]
        for index, name in known.written
        if name in kwargs or index < len(args)
    )
    values = made if isinstance(made, tuple) else (made,)
    out = [
        next(given) if same else (on_device(value) if there else value)
        for same, value in zip(known.returned, values, strict=False)
    ]
    return tuple(out) if isinstance(made, tuple) else (out[0] if out else None)


def refuse_mixed(func: Any, args: Any) -> None:
    """Tensors of the host other than single numbers do not mix with the device's."""
    if func in TAKES_HOST_INDICES and type(args[0]) is OnDevice:
        return
    for arg in args:
        for value in arg if isinstance(arg, (list, tuple)) else (arg,):
            if type(value) is torch.Tensor and value.dim() > 0:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least"
                    f" two devices, cuda:0 and cpu! ({func})"
                )


def reads_mask(func: Any, args: Any) -> bool:
    if func is not aten.index.Tensor:
        return False
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])


def move(tensor: Any, kwargs: dict[str, Any]) -> Any:
    """Copy to a device or another dtype."""
    target = kwargs.get("device") or tensor.device
    rest = {key: value for key, value in kwargs.items() if key != "device"}
    if rest.pop("pin_memory", None):
        raise NotImplementedError("a move that pins")
    late = rest.pop("non_blocking", False)
    copied = aten._to_copy.default(on_host(tensor), **rest)
    if target.type == "cuda":
        if not isinstance(tensor, OnDevice):
            sent(tensor, late)
        return OnDevice(copied)
    if isinstance(tensor, OnDevice):
        return received(copied, late)
    return copied


def copy(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """`target.copy_(source)`, wherever the two lie."""
    if isinstance(target, OnDevice):
        if not isinstance(source, OnDevice) and source.dim():
            sent(source, non_blocking)
        target.held.copy_(on_host(source))
    elif isinstance(source, OnDevice):
        target.copy_(received(source.held.clone(), non_blocking))
        if non_blocking:
            QUEUE.writes.append((target, source.held.clone()))
    else:
        target.copy_(source)
    return target


def sent(source: torch.Tensor, late: bool) -> None:
    """Note a copy to the device. Memory that is not pinned is read at once."""
    if late and pinned(source):
        QUEUE.reads.append((source, source.detach().clone()))
    elif not late:
        QUEUE.wait()


def received(value: torch.Tensor, late: bool) -> torch.Tensor:
    """What the host sees of a copy to it."""
    if not late:
        QUEUE.wait()
        return value
    seen = rubbish(torch.empty_like(value))
    QUEUE.writes.append((seen, value))
    return seen


def rubbish(memory: torch.Tensor) -> torch.Tensor:
    """The memory, filled with what nobody wants to have read."""
    if memory.dtype.is_floating_point or memory.dtype.is_complex:
        return memory.fill_(float("nan"))
    if memory.dtype is torch.bool:
        return memory
    return memory.fill_(torch.iinfo(memory.dtype).max)


class Operations(TorchDispatchMode):
    """Takes operations without a tensor of the device: factories and moves to it."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return dispatch(func, args, kwargs or {})


# The class wraps the method for torch.compile, at ten times what it costs.
Operations.__torch_dispatch__ = (  # type: ignore[method-assign]
    lambda self, func, types, args=(), kwargs=None: dispatch(func, args, kwargs or {})
)


def creating(make: Any) -> Any:
    """`torch.tensor` and its like: made on the host, then moved where they are asked.

    They copy Python's or NumPy's numbers where no mode sees it.
    """

    @functools.wraps(make)
    def create(data: Any, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or type(data) is OnDevice or not is_cuda(device):
            return make(data, *args, **kwargs)
        del kwargs["device"]
        requires_grad = kwargs.pop("requires_grad", False)
        made = make(data, *args, **kwargs).to(DEVICE)
        return made.requires_grad_() if requires_grad else made

    return create


def is_cuda(device: Any) -> bool:
    return isinstance(device, int) or torch.device(device).type == "cuda"


def pinning(make: Any) -> Any:
    """A factory that takes `pin_memory=True`."""

    @functools.wraps(make)
    def create(*args: Any, **kwargs: Any) -> Any:
        pins = kwargs.pop("pin_memory", False)
        made = make(*args, **kwargs)
        return pin(made) if pins else made

    return create
