"""Remember models, optimizers and random numbers, to put them back after a try."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ._nested import is_nest, rebuilt

if TYPE_CHECKING:
    import torch

PutBack = Callable[[], None]


def remember(things: Iterable[Any], device: torch.device) -> PutBack:
    """Return what puts all of them back as they are now, and the random numbers.

    Copies lie on the host: on the device they would take what is to be measured.
    TypeError for a thing that is no module and has no `state_dict`.
    """
    parts = [_remember(thing) for thing in things] + [_remember_random(device)]

    def put_back() -> None:
        for part in parts:
            part()

    return put_back


def _remember(thing: Any) -> PutBack:
    import torch

    if isinstance(thing, torch.nn.Module):
        return _remember_module(thing)
    if isinstance(thing, torch.Generator):
        state = thing.get_state()
        return lambda: _ignore(thing.set_state(state))
    if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
        return _remember_state(thing)
    raise TypeError(f"a {type(thing).__name__} has no state_dict() to restore")


def _ignore(_: object) -> None:
    """Make a call that returns something one that does not."""


def _remember_state(thing: Any) -> PutBack:
    kept = _on_host(thing.state_dict())

    def put_back() -> None:
        thing.load_state_dict(_on_host(kept))  # it may keep what it is given
        # A scaler whose step was cut short would refuse the next one.
        getattr(thing, "_per_optimizer_states", {}).clear()

    return put_back


def _on_host(state: Any) -> Any:
    import torch

    def change(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            return _host_copy(part)
        return NotImplemented if is_nest(part) else copy.deepcopy(part)

    return rebuilt(state, change)


def _host_copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)


def _remember_module(module: torch.nn.Module) -> PutBack:
    """Also what its state_dict leaves out: gradients, modes, some buffers."""
    layers = [_remember_layer(layer) for layer in module.modules()]

    def put_back() -> None:
        for layer in layers:
            layer()

    return put_back


def _remember_layer(layer: Any) -> PutBack:
    import torch

    training = layer.training
    holders = [(its, dict(its)) for its in (layer._parameters, layer._buffers)]
    tensors = [t for _, kept in holders for t in kept.values() if t is not None]
    values = [(tensor, _host_copy(tensor)) for tensor in tensors]
    gradients = [(p, p.grad) for p in layer._parameters.values() if p is not None]
    values += [(grad, _host_copy(grad)) for _, grad in gradients if grad is not None]
    has_more = type(layer).get_extra_state is not torch.nn.Module.get_extra_state
    more = copy.deepcopy(layer.get_extra_state()) if has_more else None

    def put_back() -> None:
        layer.training = training
        for holder, kept in holders:
            holder.clear()
            holder.update(kept)
        with torch.no_grad():
            for tensor, value in values:
                tensor.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        if has_more:
            layer.set_extra_state(copy.deepcopy(more))

    return put_back


def _remember_random(device: torch.device) -> PutBack:
    import torch

    python, host = random.getstate(), torch.get_rng_state()
    numpy: Any = getattr(sys.modules.get("numpy"), "random", None)
    arrays = None if numpy is None else numpy.get_state()
    accelerator: Any = getattr(torch, device.type)
    devices = accelerator.get_rng_state_all()

    def put_back() -> None:
        random.setstate(python)
        torch.set_rng_state(host)
        if numpy is not None:
            numpy.set_state(arrays)
        accelerator.set_rng_state_all(devices)

    return put_back
