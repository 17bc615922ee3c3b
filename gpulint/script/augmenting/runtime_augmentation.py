"""Calls of `runtime.augmentation`: in rewritten scripts, and for users to put in."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.script.augmenting.augmentations import Augmentation
from gpulint.script.augmenting.sample_operations import FLIPS, ORDER
from gpulint.script.augmenting.sample_reader import Operation, Reader
from gpulint.script.loading.training_batches import TrainingBatches
from gpulint.script.rewriting.edits import CannotFix

if TYPE_CHECKING:
    from gpulint.script.model import Script

LINE = 88
TURNS = ("rotation_degrees",)
INDENT = "    "


def call_of(
    runtime: str, operations: list[Operation], device: str, column: int, target: str
) -> str:
    """`runtime.augmentation(horizontal_flip=0.5, device=device)`.

    Without a device, nobody else augments.
    """
    given = _arguments(operations) + ([f"device={device}"] if device else [])
    call = f"{runtime}.augmentation({', '.join(given)})"
    if column + len(target) + len(" = ") + len(call) <= LINE:
        return call
    lines = "".join(f"\n{INDENT}{one}," for one in given)
    return f"{runtime}.augmentation({lines}\n)"


def _arguments(operations: list[Operation]) -> list[str]:
    ordered = sorted(operations, key=lambda its: ORDER.index(its.kind))
    given = [f"{its.kind}={_number_of(its)}" for its in ordered]
    parts = [
        f'"{its.kind}": {_number(its.p)}'
        for its in ordered
        if its.kind not in FLIPS and its.p != 1
    ]
    if parts:
        given.append(f"p={{{', '.join(parts)}}}")
    turns = {how for its in ordered for how in its.interpolations if its.kind in TURNS}
    if turns == {"nearest"}:
        given.append('interpolation="nearest"')
    return given


def _number_of(operation: Operation) -> str:
    drawn = operation.drawn
    if drawn is None:
        return _number(operation.p)
    if operation.kind == "noise" or (
        operation.kind == "rotation_degrees" and drawn.low == -drawn.high
    ):
        return _number(drawn.high)
    return f"({_number(drawn.low)}, {_number(drawn.high)})"


def _number(value: float) -> str:
    value = round(value, 6)
    return str(int(value)) if value == int(value) and abs(value) > 1 else repr(value)


# By hand


def lines_by_hand(script: Script, found: Augmentation) -> list[str]:
    """Lines that do what was read of the code; none where nothing was read."""
    assert isinstance(found.whole, (ast.FunctionDef, ast.AsyncFunctionDef))
    reader = _reader(script, found)
    kinds = [its.kind for its in reader.operations]
    operations = [its for its in reader.operations if kinds.count(its.kind) == 1]
    if not operations:
        return []
    runtime, imports = script.names.runtime
    device, names = _named(script, found, operations)
    places = _places(operations)
    own = script.resolver.self_name(found.whole)
    in_dataset = own is not None and script.index.owner(found.whole) is reader.owner
    made = call_of(runtime, operations, device if in_dataset else "", 0, "augment")
    guarded = [
        "on_batches = False  # at the top of the class",
        f"if not {own}.on_batches:  # around {places}",
        *f"augment = {made}".splitlines(),
        f"{_dataset(found)}.on_batches = augment.on_batches  # False without a GPU",
    ]
    moved = [f"# instead of {places}", *f"augment = {made}".splitlines()]
    return [
        *imports,
        *(guarded if in_dataset else moved),
        f"{names} = augment({names})  # on the device, in the training loop",
        *_doubts(reader, operations),
    ]


def _dataset(found: Augmentation) -> str:
    """What the script calls the dataset of a loader."""
    direct = found.loader.argument("dataset").direct
    return direct.id if isinstance(direct, ast.Name) else "train_set"


def _places(operations: list[Operation]) -> str:
    """Where the operations stand: "lines 20 to 24 and 30"."""
    runs: list[list[int]] = []
    spans = {(s.lineno, s.end_lineno or 0) for o in operations for s in o.statements}
    for first, last in sorted(spans):
        if runs and first == runs[-1][1] + 1:
            runs[-1][1] = last
        else:
            runs.append([first, last])
    *most, end = (f"{a} to {b}" if a < b else f"{a}" for a, b in runs)
    word = "line" if not most and end.isdecimal() else "lines"
    return f"{word} {', '.join(most)} and {end}" if most else f"{word} {end}"


def _reader(script: Script, found: Augmentation) -> Reader:
    """Read from where samples are made, or from the function where that fails."""
    assert isinstance(found.whole, (ast.FunctionDef, ast.AsyncFunctionDef))
    for origin in script.resolver.origins(found.loader.argument("dataset").nodes[0]):
        owner = script.resolver.classes.named(origin.call.func) if origin.call else None
        methods = script.resolver.classes.methods(owner) if owner is not None else {}
        entry = methods.get("__getitem__")
        if entry is not None and script.index.holds(entry):
            reader = Reader(script, entry, origin.call)
            if found.whole in reader.entered:
                return reader
    return Reader(script, found.whole, None)


def _named(
    script: Script, found: Augmentation, operations: list[Operation]
) -> tuple[str, str]:
    """What the script calls the device, and a batch's images and masks."""
    device, names = "device", ["images", "masks"]
    try:
        batches = TrainingBatches(found.loader.script, found.loader)
        pair = batches.pair()
        move = batches.move_of(pair[0])
        names = [script.text(part) for part in pair]
        device = batches.device(move, batches.loop.node)
    except CannotFix:
        pass
    masked = any(len(its.images) > 1 for its in operations)
    return device, ", ".join(names if masked else names[:1])


def _doubts(reader: Reader, operations: list[Operation]) -> list[str]:
    """What the lines leave to the reader of them."""
    found = {
        s.lineno: f"# line {s.lineno} is close to `{its.kind}`, perhaps not the same"
        for its in operations
        for s in its.statements[:1]
        if not its.exact
    }
    for draw in reader.unread:
        found.setdefault(
            draw.lineno, f"# line {draw.lineno} draws for something else as well"
        )
    return [found[line] for line in sorted(found)]
