"""Pictures, histograms and files that each step makes or writes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.walk import dotted
from gpulint.script.environments import imports_environments
from gpulint.script.every_step import EveryStep

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_FIGURE = "a figure is drawn"
_PICTURE = "a picture is written"
_FILE = "a file is written"
_HISTOGRAM = "a histogram of all values is made"
_SENT = "a picture is encoded for the log"
# What calls cost, by the name of a function in its package.
_FUNCTIONS = {
    **{f"matplotlib.pyplot.{n}": _FIGURE for n in "savefig show pause draw".split()},
    "torchvision.utils.save_image": _PICTURE,
    "cv2.imwrite": _PICTURE,
    "imageio.imwrite": _PICTURE,
    "imageio.imsave": _PICTURE,
    "imageio.v2.imwrite": _PICTURE,
    "imageio.v2.imsave": _PICTURE,
    "skimage.io.imsave": _PICTURE,
    "scipy.misc.imsave": _PICTURE,
    **{f"numpy.{n}": _FILE for n in "save savez savez_compressed savetxt".split()},
    "scipy.io.savemat": _FILE,
    "pickle.dump": _FILE,
    "wandb.Image": _SENT,
    "wandb.Histogram": _HISTOGRAM,
}
# And by the name of a method of objects that these packages make.
_METHODS = {
    "savefig": _FIGURE,
    "add_figure": _FIGURE,
    "add_image": _SENT,
    "add_images": _SENT,
    "add_video": _SENT,
    "add_embedding": _FILE,
    "add_histogram": _HISTOGRAM,
    "to_csv": _FILE,
}


class SlowLog(NamedTuple):
    """A call and its cost; `at` is where the loop's file shows it."""

    call: ast.Call
    at: ast.Call
    cost: str


def slow_logs(script: Script, loop: Loop) -> Iterator[SlowLog]:
    """Such calls in each step of a training loop, in source order."""
    if not loop.batches and imports_environments(script.index):
        return  # each turn may be an episode
    for part in EveryStep(script, loop).parts():
        cost = _cost(script, part.node) if isinstance(part.node, ast.Call) else None
        if cost is not None:
            assert isinstance(part.node, ast.Call)
            yield SlowLog(part.node, part.call or part.node, cost)


def _cost(script: Script, call: ast.Call) -> str | None:
    name = script.index.qualified(call.func) or dotted(call.func) or ""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in _METHODS:
        return None
    return _METHODS[func.attr] if script.resolver.calls.callee(call) is None else None
