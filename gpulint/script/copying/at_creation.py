"""How a tensor that is made on the host and moved can be made on the device."""

from __future__ import annotations

import ast
import math
import re
from typing import TYPE_CHECKING

from gpulint.finding import Effect
from gpulint.index import Move, Target, Where
from gpulint.index.walk import dotted, walk
from gpulint.script.copying.arrivals import Arrival, choice, is_immediate
from gpulint.script.copying.creations import (
    JOINS,
    LEGACY,
    RANGES,
    Creation,
    filled_with,
    inexact_method,
    is_integer,
)
from gpulint.script.neighbours import run_together
from gpulint.script.rewriting.device_code import is_torch_device
from gpulint.script.rewriting.edits import Build, Edit, Remove, Replace, Rewrite
from gpulint.script.rewriting.syntax import (
    CallText,
    set_keywords,
    without_cast,
    without_move,
)
from gpulint.script.set_before import means_the_same
from gpulint.script.training.training_step import block_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

_INTEGERS = frozenset(
    f"torch.{n}" for n in "uint8 int8 int16 short int32 int int64 long".split()
)
# Types in which each device counts alike.
_COUNTED = _INTEGERS | {f"torch.{n}" for n in "float32 float float64 double".split()}
_SAME_IN_ANY_TYPE = ("zeros", "ones", "empty")
_DISTRIBUTES = re.compile(
    r"DistributedDataParallel|init_process_group|fully_shard|FullyShardedDataParallel"
)
NO_DOUBLES = "MPS has no float64, which the host casts"
_IS_RANK = re.compile(r"rank|process_index")
MOST_OF_HALF, MOST_OF_FLOAT = 65504, 3.4e38  # the largest numbers of float16, float32


def effect_of(script: Script, made: Creation) -> Effect:
    """What may differ when the device makes the values."""
    if made.random:
        return Effect.RANDOM
    if made.name in RANGES:
        return Effect.NUMERICS
    if made.name == "arange" and not _is_exact_range(script, made.call):
        return Effect.NUMERICS
    return Effect.EXACT


def _is_exact_range(script: Script, call: ast.Call) -> bool:
    """Whether an `arange` is the same on each device: of integers, or 0, 1, 2, …

    The host adds up steps, each of them rounded: that shows from 2^27 on where it
    counts in float32, earlier in half precision, and where steps are no whole numbers.
    """
    given = {k.arg: k.value for k in call.keywords}
    spread = any(isinstance(a, ast.Starred) for a in call.args) or None in given
    bounds = [*call.args, *(given[n] for n in ("start", "end", "step") if n in given)]
    kinds = [script.index.qualified(given["dtype"])] if "dtype" in given else []
    if spread or not bounds:
        return False
    whole = all(is_integer(script, bound) for bound in bounds)
    if whole and all(kind in _INTEGERS for kind in kinds):
        return True
    if all(map(_is_small, bounds)) and all(kind in _COUNTED for kind in kinds):
        return True
    counts = len(bounds) == 1 and "start" not in given and "step" not in given
    return counts and all(kind in _COUNTED for kind in kinds)


def _is_small(bound: ast.expr) -> bool:
    """A written whole number that float32 holds, and each one up to it."""
    number = bound.value if isinstance(bound, ast.Constant) else None
    return type(number) is int and number < 2**24


def hindrance(script: Script, arrival: Arrival) -> str | None:
    """Why the factory cannot take the device, if it cannot."""
    made, move = arrival.made, arrival.move
    call = made.call
    keywords = {k.arg: k.value for k in call.keywords}
    if made.numpy:
        return "NumPy makes the values, and has no device"
    if made.computed:
        return "the host computes with it before it is copied"
    if made.name in JOINS:
        return "a part of it is data of the script"
    if made.random and _draws_alike(script):
        return "only the generator of CUDA is seeded, with one number for all ranks"
    shaped = len(call.args) == 1 and isinstance(call.args[0], ast.Starred)
    sized = (made.random and shaped) or _is_sized(script, call, made.name)
    if made.name in LEGACY and not sized:
        return f"`{script.text(call.func)}` takes no CUDA device"
    unfilled = _why_not_filled(script, made) if made.name == "tensor" else None
    if unfilled is not None:
        return unfilled
    method = inexact_method(script, made)
    if "requires_grad" in keywords or method == "requires_grad_":
        return "the host tensor takes the gradient"
    if method is not None:
        return f"`.{method}` may mean another device"
    drawn = (k.arg for m in made.methods for k in m.keywords)
    if "generator" in keywords or "generator" in drawn:
        return "the generator is the host's"
    if any(map(_is_stream, script.index.ancestors(call))):
        return "the copy is done before another stream reads it"
    if None in keywords:
        return "the factory's `**` arguments are not known"
    if made.name == "normal" and "size" not in keywords and len(call.args) < 3:
        return "the distribution's parameters are host tensors"
    on_the_way = _why_not_sooner(script, arrival)
    if on_the_way is not None:
        return on_the_way
    doubles = _is_double(keywords.get("dtype")) or any(map(_makes_double, made.methods))
    if move is None:
        return NO_DOUBLES if doubles else None
    return _why_not_there(script, move, made, doubles)


def _is_stream(above: ast.AST) -> bool:
    """`with torch.cuda.stream(side):`, behind which others do not wait for a fill."""
    items = above.items if isinstance(above, (ast.With, ast.AsyncWith)) else ()
    entered = (item.context_expr for item in items)
    names = (dotted(e.func) or "" for e in entered if isinstance(e, ast.Call))
    return any(name.rpartition(".")[2].lower() == "stream" for name in names)


def _why_not_sooner(script: Script, arrival: Arrival) -> str | None:
    """Why what has a name on the host cannot be made where it is sent to."""
    call, like = arrival.call, arrival.like
    if like is not None and dotted(like) is None:
        return "the tensor beside which it is put has no name"
    cast = like is not None and _method(arrival) == "type"
    if cast and not isinstance(call.args[0], ast.Call):
        return "the type that it is cast to has a name of its own"
    if arrival.names:
        if choice(script, arrival) is not None:
            return "it is copied under a condition"
        if not is_immediate(script, arrival):
            return "other statements stand between it and its copy"
        place = like if arrival.move is None else arrival.move.device
        names = [n for n in walk(place) if isinstance(n, ast.Name)] if place else []
        own = {definition.name for definition in arrival.names}
        if any(name.id in own for name in names) or not all(
            means_the_same(script, name, arrival.made.call) for name in names
        ):
            return "the device may be another one where the tensor is made"
        if _has_comment(script, call):
            return "the copy has comments"
    comments = script.text(call).removeprefix(_receiver_text(script, arrival))
    return "the copy has comments" if "#" in comments else None


def _has_comment(script: Script, call: ast.Call) -> bool:
    """Whether a comment stands on a statement's lines, or on its own before it."""
    statement = script.index.statement(call)
    lines = script.source.text.splitlines()
    before, end = statement.lineno - 1, statement.end_lineno or statement.lineno
    above = lines[before - 1] if before else ""
    return "#" in "".join(lines[before:end]) or above.lstrip().startswith("#")


def _receiver_text(script: Script, arrival: Arrival) -> str:
    func = arrival.call.func
    assert isinstance(func, ast.Attribute), "it is a method that sends a tensor"
    return script.text(func.value)


def _why_not_there(
    script: Script, move: Move, made: Creation, doubles: bool
) -> str | None:
    """Why the device that a copy names does not suit the factory."""
    if any(
        k.arg not in ("device", "dtype", "non_blocking") for k in move.call.keywords
    ):
        return "the copy has options of its own"
    casts = made.methods or move.dtype
    free = move.device is not None and script.devices.is_free(move.device)
    if doubles and casts and (free or move.target is not Target.CUDA):
        return NO_DOUBLES
    return _device_guard(script, move)


def _is_sized(script: Script, call: ast.Call, name: str) -> bool:
    """`torch.FloatTensor(n, 8)`, which `torch.empty` makes on any device.

    Not of doubles, which MPS has not, nor of a shape as it is (of a single number it
    makes no element), but where it is filled at random.
    """
    plain = all(is_integer(script, given) for given in call.args)
    named = isinstance(call.func, ast.Attribute) and "#" not in script.text(call)
    return named and plain and not call.keywords and name != "DoubleTensor"


def _draws_alike(script: Script) -> bool:
    """Whether a rank seeds the generator of CUDA, and leaves the host's to chance.

    `torch.cuda.manual_seed(1234)` without `torch.manual_seed` beside it: numbers drawn
    on the host differ from rank to rank, on the device they would not.
    """
    files = run_together(script)
    if not any(index.source.has(_DISTRIBUTES) for index in files):
        return False
    return any(
        not any(
            index.scope(other) is index.scope(call)
            for seed in ("torch.manual_seed", "torch.random.manual_seed")
            for other in index.calls.get(seed, ())
        )
        for index in files
        for name in ("torch.cuda.manual_seed", "torch.cuda.manual_seed_all")
        for call in index.calls.get(name, ())
        if not any(map(_IS_RANK.search, map(ast.unparse, call.args)))
    )


def _why_not_filled(script: Script, made: Creation) -> str | None:
    """Why `torch.full` cannot take the place of `torch.tensor`.

    It refuses numbers that do not fit the type, of which the other makes infinities.
    """
    call = made.call
    if not isinstance(call.func, ast.Attribute):
        return "`torch.full`, which fills it there, has no name here"
    if "#" in script.text(call.args[0]):
        return "the numbers have comments"
    filled = filled_with(script, call.args[0])
    values = script.evaluator.values(filled[1]).known if filled is not None else ()
    typed = call.keywords or "set_default_dtype" in script.source.text
    most = MOST_OF_HALF if typed else MOST_OF_FLOAT
    for value in values:
        number = value.constant
        whole = not typed and isinstance(number, int)  # int64 has room for it
        if (
            isinstance(number, (int, float))
            and not whole
            and (most < abs(number) < math.inf)
        ):
            return "`torch.full` refuses numbers that are too large for the type"
    return None


def _makes_double(method: ast.Call) -> bool:
    """`.double()` and `.to(torch.float64)`."""
    func = method.func
    named = isinstance(func, ast.Attribute) and func.attr == "double"
    return named or any(map(_is_double, method.args))


def _is_double(dtype: ast.expr | None) -> bool:
    return dtype is not None and any(
        isinstance(n, ast.Attribute) and n.attr in ("float64", "double")
        for n in walk(dtype)
    )


def _device_guard(script: Script, move: Move) -> str | None:
    device = move.device
    if device is None:
        return None
    if script.where(device) & (Where.HOST | Where.DEVICE):
        return f"`{script.text(device)}` may be a tensor"
    if any(isinstance(n, (ast.NamedExpr, ast.Await, ast.Yield)) for n in walk(device)):
        return "the device is computed in place"
    if isinstance(move.call.func, ast.Attribute) and move.call.func.attr == "cuda":
        if script.devices.target(device) is Target.CPU:
            return f"`.cuda` refuses `{script.text(device)}`"
        its = script.evaluator.values(device)
        known = (
            its.complete
            and its.known
            and all(v.constant is not None for v in its.known)
        )
        if not (known or is_torch_device(script, device)):
            return f"`{script.text(device)}` may be None, which `.cuda` takes for CUDA"
    return None


def at_creation(script: Script, arrival: Arrival) -> Rewrite:
    """The device as an argument of the factory, and no move.

    `torch.full` in place of `torch.tensor`, which fills host memory for any device; it
    takes the type from the number since torch 1.8. `torch.empty` in place of the legacy
    constructors.
    """
    made, call = arrival.made, arrival.call
    device, dtype = _place_text(script, arrival)
    cast = {"dtype": dtype} if dtype and _takes_type(arrival) else {}
    build = set_keywords(**cast, device=device)
    filled = filled_with(script, made.call.args[0]) if made.name == "tensor" else None
    if filled is not None:
        build = _full(filled[0], script.text(filled[1]), build)
    if made.name in LEGACY:
        build = _empty(made.name, device)
    edits: tuple[Edit, ...] = (Replace(made.call, build),)
    leftover = None if dtype else _leftover(script, call)
    if leftover is not None:
        alone = len(block_of(script, leftover)) == 1
        edits += () if alone else (Remove(leftover),)
    elif cast:
        edits += (Replace(call, without_cast),)
    elif arrival.move is not None:
        edits += (Replace(call, without_move),)
    return Rewrite(
        f"Create the tensor with `device={device}`",
        edits,
        torch=None if filled is None else (1, 8),
    )


def _place_text(script: Script, arrival: Arrival) -> tuple[str, str | None]:
    """Code for the device that a tensor goes to, and for the type that it gets."""
    move, like = arrival.move, arrival.like
    if like is not None:
        text = script.text(like)
        return f"{text}.device", f"{text}.dtype"
    device = move.device if move is not None else None
    dtype = _dtype_given(arrival.call)
    return (
        '"cuda"' if device is None else script.text(device),
        None if dtype is None else script.text(dtype),
    )


def _leftover(script: Script, call: ast.Call) -> ast.Assign | None:
    """`x = x.to(device)`, which has nothing to do any more."""
    statement = script.index.parent(call)
    func = call.func
    if not isinstance(statement, ast.Assign) or not isinstance(func, ast.Attribute):
        return None
    name = dotted(func.value)
    if name is None or [dotted(target) for target in statement.targets] != [name]:
        return None
    return statement


def _takes_type(arrival: Arrival) -> bool:
    """Whether a factory gives the same in any type as after a cast to it."""
    made = arrival.made
    if arrival.names or (arrival.like is not None and _method(arrival) == "type"):
        return False  # shown, or cast, before
    typed = any(keyword.arg == "dtype" for keyword in made.call.keywords)
    return made.name in _SAME_IN_ANY_TYPE and not made.methods and not typed


def _method(arrival: Arrival) -> str:
    func = arrival.call.func
    return func.attr if isinstance(func, ast.Attribute) else ""


def _dtype_given(move: ast.Call) -> ast.expr | None:
    """The type of `x.to(device, dtype)` and `x.to(device=device, dtype=dtype)`."""
    if isinstance(move.func, ast.Attribute) and move.func.attr == "cuda":
        return None  # `x.cuda(device, non_blocking)`
    named = {keyword.arg: keyword.value for keyword in move.keywords}
    if "dtype" in named:
        return named["dtype"]
    places = move.args[0 if "device" in named else 1 :]
    return places[0] if places else None


def _empty(name: str, device: str) -> Build:
    """`torch.empty(sizes, dtype=…)` for `torch.FloatTensor(sizes)`."""

    def empty(text: str) -> str:
        call = CallText.of(text)
        package, kind = call.callee.removesuffix(name), LEGACY[name]
        typed = {"dtype": f"{package}{kind}"} if kind else {}
        first, *others = call.arguments
        first = first._replace(head=first.head.replace("*", ""))
        made = call._replace(callee=f"{package}empty").code([first, *others])
        return set_keywords(**typed, device=device)(made)

    return empty


def _full(shape: str, number: str, build: Build) -> Build:
    """`torch.full(shape, number)` for `torch.tensor([number])`."""

    def filled(text: str) -> str:
        call = CallText.of(text)
        first, *others = call.arguments
        callee = call.callee.removesuffix("tensor") + "full"
        given = first._replace(value=f"{shape}, {number}")
        return build(call._replace(callee=callee).code([given, *others]))

    return filled
