"""A tensor is filled on the host and copied, though the device can make it itself.

## Why
`torch.zeros(n).to(device)` writes the values to host memory and then copies them to
the device, and the host waits for that copy. With `device=` the device fills its own
memory and nothing is copied.

## Example
```python
import torch

device = torch.device("cuda")

def train(model, loader, optimizer):
    for x, y in loader:
        state = torch.zeros(x.size(0), 128).to(device)
        model(x.to(device), state).sum().backward()
        optimizer.step()
```
```python
import torch

device = torch.device("cuda")

def train(model, loader, optimizer):
    for x, y in loader:
        state = torch.zeros(x.size(0), 128, device=device)
        model(x.to(device), state).sum().backward()
        optimizer.step()
```

## Fix
`device=` in the factory; methods and casts in between stay. `torch.tensor` fills host
memory for any device: `torch.full` takes its place where all its numbers are one, and
`torch.empty` that of `torch.FloatTensor(sizes)`. Exact for `zeros`, `ones`, `full`,
`eye` and an `arange` of whole numbers, as is any with one argument. `linspace` and
other float ones are computed in another precision on CUDA (numerics); `rand`, `randn`,
`randint` draw from the device's generator instead of the host's (random). Withheld
where the host computes with them first (`torch.rand(n) - 0.5` rounds as it does), and
in several processes of which each seeds CUDA's generator alone, with one number, and
would draw there what all others do. A type that `zeros`, `ones` or `empty` is cast to
goes into the factory as well; `.to(other)`, `.type_as(other)` and `.type(other.type())`
mean `other.device`. Names that the tensor gets before it is copied are followed through
one block: withheld where other statements stand between, or the copy under a condition
(`if cuda: x = x.cuda()`). Withheld where the copy has comments. What a function of the
project makes from sizes alone, without a loop (`grid = mesh(h, w).type_as(x)`), is
reported without a fix: it could be told the device, or keep what it made.

## When not
Tensors made from data of the script or of different numbers (a list that is made for
one, as in `torch.tensor([row[0] for row in rows])`, is of low confidence), pinned ones,
what a function that is no part of training makes once, models that only a demo without
a loop runs, or a notebook without a trainer or a loop over batches, a package that no
file outside it names, what stands behind `step % n == 0`, or a name that is given that,
or in a module or method that all its callers run so, what each epoch makes for each of
an option's values, and what a test lets happen once: `if step == 0:`, or `if total is
None:` around what sets it; or never, where all callers give the argument that is
tested, no known one of a `forward` leaves it out, or the test is one of an argument's
type. What is made once, before the loop, costs nothing worth saying; what a generator
of the host draws has to be drawn there, and what is filled element by element before it
is joined is filled faster, as is what the host writes into or reads by the name that it
has there. Nor `randperm` in a project that allows no torch from 1.9 on: before, that of
a device drew small numbers on the host as well, and waited for their copy. An argument
of `.to` that may be a type counts for none. Of low confidence:
what only some steps make, behind a test of the data (`if mask.sum() > 0:`, `if
len(boxes) == 0:`), a zero that stands in for a term of the loss which is left out, and
what a module makes of which no program is seen that trains or evaluates and makes it
whatever its options are. Without a fix: a host tensor that takes the gradient
(`requires_grad=True`) would become another leaf, a legacy constructor that is given
numbers (`torch.FloatTensor([n])`) takes no CUDA device, and NumPy has no device at all.

## Source
PyTorch performance tuning guide, "Create tensors directly on the target device";
`torch.Tensor`'s documentation on constructors. `randperm`: pytorch#54113.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index import NOT_CUDA, Function, Target
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.branches import asks_for_data
from gpulint.script.copying.arrivals import Arrival, arrivals
from gpulint.script.copying.at_creation import at_creation, effect_of, hindrance
from gpulint.script.copying.creations import Creation, is_numpy_factory, made_of_list
from gpulint.script.copying.helper_creations import helper_creations
from gpulint.script.copying.named_devices import is_of_host
from gpulint.script.modelling.surely_made import is_surely_made
from gpulint.script.neighbours import (
    is_left_behind,
    run_together,
    serves_single_inputs,
)
from gpulint.source import NOTEBOOK

_DEFAULTS = frozenset({"torch.set_default_tensor_type", "torch.set_default_device"})
_FITS = re.compile(r"\.fit\(|rainer\b|ccelerat")
_CALLED = ("forward", "__next__", "compute_loss")  # by whoever has made the object
_SPELLINGS = (
    "zeros ones full empty eye arange tensor linspace logspace rand randn randint "
    "normal randperm _like Tensor scalar_tensor indices cat stack"
)

# CUDA's `randperm` of less than 30 000 numbers was drawn on the host, and copied.
NO_WAIT = (1, 9)
_TYPES = ("type_as(", ".type(")  # casts that name another tensor's


def _stands_in(script: Script, made: Creation) -> bool:
    """`else: loss = torch.tensor(0.0).to(device)`, for a term that is left out.

    Whether it is off anywhere is seldom seen, and one number costs little.
    """
    if made.name not in ("tensor", "zeros") or len(made.call.args) != 1:
        return False
    given = made.call.args[0]
    number = given.value if isinstance(given, ast.Constant) else None
    if number != (0 if made.name == "tensor" else 1):
        return False
    statement = script.index.statement(made.call)
    above = script.index.parent(statement)
    branches = (above.body, above.orelse) if isinstance(above, ast.If) else ()
    return any(len(branch) == 1 and branch[0] is statement for branch in branches)


class CreatedOnHost(Rule):
    """Fires on the factory of `torch.zeros(…).to(device)` where a step runs it."""

    effect = Effect.EXACT
    hardware = Hardware.GPU
    needs = Words(
        *(f"<move> {name}(" for name in _SPELLINGS.split()),
        *(f"{as_other} {name}(" for name in _SPELLINGS.split() for as_other in _TYPES),
        "torch.cuda Tensor( np.",
        *(f"{sends} torch" for sends in ("<move>", "type_as(")),  # made elsewhere
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a factory."""
        if any(file.called_names & _DEFAULTS for file in run_together(script)):
            return
        for arrival in arrivals(script):
            yield from self._arrived(script, arrival)
        yield from self._by_helpers(script)
        yield from self._of_lists(script)
        yield from self._converted(script)

    def _arrived(self, script: Script, arrival: Arrival) -> Iterator[Finding]:
        made = arrival.made
        runner = _runner(script, made.call)
        if runner is None or _draws_on_host(script, made.call):
            return
        newest = script.newest_torch
        if made.name == "randperm" and newest is not None and newest < NO_WAIT:
            return
        if arrival.names and script.runners.of(arrival.call) is None:
            return
        withheld = hindrance(script, arrival)
        in_some_steps = asks_for_data(script, made.call) or _stands_in(script, made)
        called = isinstance(runner, Function) and runner.name in _CALLED
        sure = not called or is_surely_made(script, runner)
        name = script.text(made.call.func)
        what = "NumPy fills an array" if made.numpy else f"`{name}` fills its tensor"
        yield self.finding(
            script,
            made.call.func,
            f"{what} on the host, which is copied to the device in every step",
            fix=None if withheld else at_creation(script, arrival),
            withheld=withheld,
            related=[(arrival.call, "is copied here")] if arrival.names else (),
            evidence=[(runner, "runs in every step")],
            effect=effect_of(script, made),
            confidence=None if sure and not in_some_steps else Confidence.LOW,
        )

    def _by_helpers(self, script: Script) -> Iterator[Finding]:
        """`make_grid(height, width).cuda()`, of a function that fills it."""
        for found in helper_creations(script):
            runner = _runner(script, found.sent)
            if runner is None or script.runners.of(found.call) is None:
                continue
            called = isinstance(runner, Function) and runner.name in _CALLED
            sure = not called or is_surely_made(script, runner)
            sure = sure and not asks_for_data(script, found.call)
            yield self.finding(
                script,
                found.call.func,
                f"`{script.text(found.call.func)}` makes its tensor on the host, which "
                "is copied to the device in every step",
                withheld="a function of its own makes it, which is told no device",
                related=[(found.function, "makes it")],
                evidence=[(runner, "runs in every step")],
                confidence=None if sure else Confidence.LOW,
            )

    def _of_lists(self, script: Script) -> Iterator[Finding]:
        """`torch.tensor([…]).to(device)` of a list of Python's."""
        for call in script.index.all(ast.Call):
            func = call.func
            if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda"):
                continue
            listed = made_of_list(script, func.value)
            move = script.devices.move(call) if listed is not None else None
            if listed is None or move is None or move.target in NOT_CUDA:
                continue
            if not is_of_host(script, move.device):
                yield from self._listed(script, listed)

    def _listed(self, script: Script, made: ast.Call) -> Iterator[Finding]:
        runner = _runner(script, made)
        if runner is None:
            return
        yield self.finding(
            script,
            made.func,
            f"`{script.text(made.func)}` reads a list of Python's number by number in "
            "every step, and its tensor is copied to the device",
            withheld="the numbers are data of the script, which is made a tensor once",
            evidence=[(runner, "runs in every step")],
            confidence=Confidence.LOW,
        )

    def _converted(self, script: Script) -> Iterator[Finding]:
        """`Tensor(np.ones(…))` where `Tensor` is a CUDA tensor class."""
        for call in script.index.all(ast.Call):
            if len(call.args) != 1 or not is_numpy_factory(script, call.args[0]):
                continue
            made = {
                script.index.qualified(o.node)
                for o in script.resolver.origins(call.func)
            }
            runner = script.runners.of(call)
            if runner is None or not any(
                n and n.startswith("torch.cuda.") for n in made
            ):
                continue
            yield self.finding(
                script,
                call.func,
                "NumPy fills an array on the host, which is copied to the device in "
                "every step",
                withheld="NumPy has no device",
                evidence=[(runner, "runs in every step")],
            )


def _runner(script: Script, node: ast.AST) -> ast.AST | None:
    """What runs a place in every step, in a program that makes many."""
    if serves_single_inputs(script) or is_left_behind(script):
        return None
    return None if _shows_one_input(script) else script.runners.of(node)


def _shows_one_input(script: Script) -> bool:
    """Whether a notebook runs a model without any loop over batches or trainer."""
    if script.source.path.suffix != NOTEBOOK:
        return False
    steps = any(loop.train or loop.eval or loop.batches for loop in script.loops)
    return not (steps or script.source.has(_FITS))


def _draws_on_host(script: Script, call: ast.Call) -> bool:
    """`generator=gen` after `gen = torch.Generator("cpu")`, as seeds may want it."""
    given = [k.value for k in call.keywords if k.arg == "generator"]
    for origin in (o for node in given for o in script.resolver.origins(node)):
        made = origin.call
        if made is not None and isinstance(made.func, ast.Attribute):
            inner = made.func.value  # `torch.Generator().manual_seed(0)`
            made = inner if isinstance(inner, ast.Call) else made
        if made is None or script.index.qualified(made.func) != "torch.Generator":
            return False
        device = [*made.args, *(k.value for k in made.keywords)]
        if any(script.devices.target(d) is not Target.CPU for d in device):
            return False
    return bool(given)
