"""The host waits for the copy of a batch instead of preparing the next work.

## Why
`.to(device)` and `.cuda()` return when the copy has ended. From pinned memory a copy
with `non_blocking=True` is only queued: the host goes on and queues the forward pass
while the batch is under way. PyTorch keeps the order on the device, so nothing reads
the batch too early.

## Example
```python
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
for x, y in train_loader:
    x = x.to(device)
    y = y.to(device)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
```
becomes
```python
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pin = device.type == "cuda"
for x, y in train_loader:
    x = x.to(device, non_blocking=pin)
    y = y.to(device, non_blocking=pin)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
```

## Fix
`non_blocking=True` where the device is known to be CUDA, else a condition on the
device: on MPS such copies have read memory that was released already. It needs a
loader that pins its batches (GPU202) and changes nothing without one.

A copy in a function that the loop of another file calls is rewritten where it stands,
if nobody else may call it out of sight (`partial(step, model)`, an object that is not
known) and the loop does nothing else with the batch.

Withheld where the host tensor is changed after the copy, in the loop, in the function
that copies it or in those that hand it on, where the source may be something other than
a tensor (what is used by keys, a whole batch of a loader that is not seen, unless it is
used as a tensor, or what a collate function has from a tokenizer: before transformers
4.48 its `to` takes no `non_blocking`), and where its memory is never pinned: a clone of
the batch, or batches of a graph library's loader without `pin_memory`.

## When not
Copies to the host, models and other things moved once, batches that a framework moves,
batches made from lists and arrays in the loop, or of those samples that a condition
holds for (their memory is not pinned), single samples of what is no known loader
(`x[None]` of all that is moved), loaders that are not pinned and that GPU202 leaves so.
Batches of loaders that are told a device (`BucketIterator.splits(…, device=device)`),
of timm's `create_loader` with its prefetcher, of objects whose `__iter__` moves
something to the device, of DGL graphs, those of a class whose own `to` does not take
the option, and parts of a dict all of whose values were moved and put back before.
Slices of one tensor that are moved one by one are GPU101.

Of low confidence: parts with gaps (`x[:, 3:]`), which PyTorch lays out anew in ordinary
memory before it copies them, loaders without workers that are not pinned (or, of an
evaluation, with workers in training alone), as the process that trains would pin
itself, one more copy; batches that a function is given of which no call is seen, be
they pinned or not; objects of a class that is not known, whose `to` may not take the
option, also where another file makes parts of batches from a class whose `to` does not;
batches all of which are cast on the host first (`x.float()`,
`x.type(torch.FloatTensor)`), to memory that nobody pins unless they are of that type;
parts of a batch behind a model that was given all of it, and may have moved it in
place; and an evaluation that takes the time around waits for the device: it waits
anyway, and a copy that is only queued would count as work of the model, as where a
clock is read between copies and model. And batches right behind which the step copies
something else from ordinary memory (`torch.from_numpy(weights).cuda()`), which the
device could not make itself, be it an index (`points[:, numpy.random.choice(n, k)]`,
`x[:, [2, 1, 0]]`), a list of numbers made there (`torch.tensor([0.5, 0.2],
device=x.device)`), what the model's `forward` begins with, or that of the module which
it runs first (also a read: `max(lengths)`, `mask.nonzero()`, `assert labels.max() < 8`,
`self.scale.item()`; the detectors of torchvision begin with a copy, as may a model that
takes a list of pictures where these are imported; its `Normalize` is one), what a
method has made in the step (`codes = self.converter.encode(texts)`), or a part of the
batch that a function of another file moves, asks what they hold before a model runs
(`if torch.isnan(images).any():`), or fetches sample by sample: the host waits there as
long. So it does in a training by an engine of DeepSpeed, whose timer
waits for the device before each forward pass. And so may a step in which no model is
seen to run behind the copies: most of those wait for something else.

## Source
PyTorch tutorial "A guide on good usage of `non_blocking` and `pin_memory()`";
pytorch/pytorch#139550 (wrong results on MPS).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index import Target
from gpulint.index.build import last_name
from gpulint.index.walk import COMPREHENSIONS, FUNCTIONS, LOOPS, dotted, walk
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.branches import branches_of, most_in_one_pass
from gpulint.script.copying.next_copies import is_next_to_wait
from gpulint.script.copying.own_moves import foreign
from gpulint.script.copying.transfers import (
    Transfer,
    follows_the_model,
    hindrance,
)
from gpulint.script.loading.pinning import (
    is_given_unseen,
    loads_unpinned_alone,
    stays_unpinned,
)
from gpulint.script.loading.sent import cast_on_host, is_cast, is_strided
from gpulint.script.loops import Loop
from gpulint.script.rewriting.device_code import device_condition
from gpulint.script.rewriting.edits import Edit, InsertBefore, Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords
from gpulint.script.set_before import is_set_at, precedes
from gpulint.script.waiting.timed import is_timed

NAME = "pin"  # as in `pin_memory`: whether copies from pinned memory run on


class BlockingTransfer(Rule):
    """Fires once for each training or evaluation loop, at its first such copy."""

    effect = Effect.EXACT
    hardware = Hardware.PINNED
    torch = (1, 0)
    needs = Words("<move>", ".type(", ".copy_(")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each loop."""
        sliced = {c.move.call for group in script.columns for c in group.moves}
        loops: dict[Loop, list[Transfer]] = {}
        for transfer in script.transfers:
            if transfer.call not in sliced:
                loops.setdefault(transfer.loop, []).append(transfer)
        for loop, transfers in loops.items():
            if not stays_unpinned(script, loop):
                yield self._finding(script, loop, transfers)

    def _finding(self, script: Script, loop: Loop, found: list[Transfer]) -> Finding:
        found.sort(key=lambda t: not script.index.inside(t.call, loop.node))
        guards = [hindrance(script, t) for t in found]
        safe = [t for t, guard in zip(found, guards, strict=True) if guard is None]
        first, *others = [t.call for t in found]
        number = _number(script, loop, found)
        copies = "a copy" if number == 1 else f"{number} copies"
        if any(_is_repeated(script, loop, t.call) for t in found):
            copies = "copies"  # as many as there are parts
        step = "step" if loop.train else "evaluation step"
        return self.finding(
            script,
            first,
            f"the host waits for {copies} of batch data to the device in every {step}",
            fix=_rewrite(script, safe) if safe else None,
            withheld=next(filter(None, guards), None),
            related=[(call, "another copy") for call in others],
            confidence=Confidence.LOW if _may_wait(script, loop, found) else None,
        )


def _may_wait(script: Script, loop: Loop, found: list[Transfer]) -> bool:
    """Whether the host may wait as long with `non_blocking`."""
    plain = [t for t in found if not is_cast(script, t.source)]
    if not plain:  # but casts: to memory that nobody has pinned
        return True
    return (
        is_given_unseen(script, loop)  # by whom, and pinned or not
        or loads_unpinned_alone(script, loop)  # as does the copy to pinned memory
        or cast_on_host(script, [loop])
        or (not loop.train and is_timed(script, loop))
        or all(is_strided(script, t.source) for t in plain)  # laid out before
        or all(foreign(script, t) is not None for t in plain)
        or all(follows_the_model(script, t) for t in plain)
        or is_next_to_wait(script, plain)
    )


def _number(script: Script, loop: Loop, found: list[Transfer]) -> int:
    """How many of these copies one step makes at most: of an `else`, one side."""
    places = (branches_of(script.index, t.call, loop.node) for t in found)
    return most_in_one_pass(places)


def _rewrite(script: Script, transfers: list[Transfer]) -> Rewrite:
    """`non_blocking` in each copy, true on CUDA; one name for it where it repeats."""
    edits: list[Edit] = []
    imports: list[str] = []
    conditions = {t: _condition(script, t) for t in transfers}
    named = _shared(script, transfers, {c for c, _ in conditions.values()})
    if named is not None and not _defined(script, named[0]):
        edits.append(InsertBefore(named[0], f"{NAME} = {named[1]}"))
    for transfer in transfers:
        condition, needed = conditions[transfer]
        imports += needed
        value = condition if named is None else NAME
        edits.append(Replace(transfer.call, set_keywords(non_blocking=value)))
    title = "Copy without waiting"
    return Rewrite(title, tuple(edits), tuple(dict.fromkeys(imports)))


def _shared(
    script: Script, transfers: list[Transfer], conditions: set[str]
) -> tuple[ast.stmt, str] | None:
    """The loop before which several copies' one condition can get a name."""
    loop = transfers[0].loop
    if len(transfers) < 2 or len(conditions) != 1 or conditions == {"True"}:
        return None
    condition = next(iter(conditions))
    if not _is_free(script, loop, condition):
        return None
    for transfer in transfers:
        device = transfer.device
        if not script.index.inside(transfer.call, loop.node):
            return None
        if device is not None and not _constant_in(script, device, loop):
            return None
        if device is not None and _asked_before(script, transfer, device):
            return None
    return loop.node, condition


def _asked_before(script: Script, transfer: Transfer, device: ast.expr) -> bool:
    """Whether a branch asks for the device first, which may be None before it."""
    head = (dotted(device) or "").partition(".")[0]
    for above in script.index.ancestors(transfer.call):
        if above is transfer.loop.node:
            return False
        if isinstance(above, (ast.If, ast.IfExp)) and any(
            isinstance(n, ast.Name) and n.id == head for n in walk(above.test)
        ):
            return True
    return False


def _is_free(script: Script, loop: Loop, condition: str) -> bool:
    """Whether the name means nothing else where the loop runs."""
    scope = script.index.scope(loop.node)
    if isinstance(scope, ast.Module):
        bound = script.index.bound_names
    else:
        names = (n for n in walk(scope) if isinstance(n, ast.Name))
        bound = frozenset(n.id for n in names)
    values = [d.value for d in script.resolver.flow(scope).definitions.get(NAME, ())]
    if NAME not in bound and not values:
        return NAME not in script.index.imports
    same = all(v is not None and script.text(v) == condition for v in values)
    return bool(values) and same and _defined(script, loop.node)


def _defined(script: Script, loop: ast.AST) -> bool:
    scope = script.index.scope(loop)
    its = script.resolver.flow(scope).definitions.get(NAME, ())
    return any(precedes(script, d.node, loop) for d in its)


def _constant_in(script: Script, device: ast.expr, loop: Loop) -> bool:
    """Whether a device has its value before the loop, and keeps it there."""
    name = dotted(device)
    if name is None or not is_set_at(script, device, loop.node):
        return False
    return not script.mutations(name, loop.node)


def _condition(script: Script, transfer: Transfer) -> tuple[str, tuple[str, ...]]:
    """Code that is true where the copy goes to CUDA, and imports it needs."""
    if last_name(transfer.call) == "cuda":
        return "True", ()  # it raises for another device
    device = transfer.device
    free = device is not None and script.devices.is_free(device)
    if transfer.target is Target.CUDA and not free:
        return "True", ()
    if isinstance(device, (ast.Call, ast.IfExp)):
        device = None
    return device_condition(script, device)


def _is_repeated(script: Script, loop: Loop, call: ast.Call) -> bool:
    """Whether each part of something is copied: `[x.cuda() for x in boxes]`."""
    for above in script.index.ancestors(call):
        if above is loop.node or isinstance(above, FUNCTIONS):
            return False
        if isinstance(above, (*COMPREHENSIONS, *LOOPS)):
            return True
    return False
