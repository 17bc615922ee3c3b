"""How augmentation that a dataset's code does by hand moves to the batches."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function, Move
from gpulint.index.build import last_name
from gpulint.index.walk import walk
from gpulint.script.augmenting.augmentations import Augmentation
from gpulint.script.augmenting.operation_run import run_of
from gpulint.script.augmenting.pictures import Picture
from gpulint.script.augmenting.runtime_augmentation import call_of, lines_by_hand
from gpulint.script.augmenting.sample_operations import FLIPS, GEOMETRY, ORDER
from gpulint.script.augmenting.sample_reader import Operation, Reader
from gpulint.script.loading.trained_dataset import check_uses
from gpulint.script.loading.training_batches import Handed, TrainingBatches
from gpulint.script.reaching.started import is_started
from gpulint.script.rewriting.edits import (
    CannotFix,
    Edit,
    InsertAfter,
    InsertBefore,
    Replace,
    Rewrite,
    Wrap,
)

if TYPE_CHECKING:
    from gpulint.script.model import Script

TITLE = "Augment batches on the GPU"
_SEEDS = ("seed", "manual_seed", "setstate", "set_state", "set_rng_state")
_OWN_WAYS = frozenset(
    "__getattr__ __getattribute__ __setattr__ __getitems__ __getstate__".split()
)


def move_samples_to_batches(
    script: Script, found: Augmentation, taken: set[str]
) -> tuple[Rewrite | None, str]:
    """The rewrite, or why there is none; lines after the first are to be put in.

    `taken`: names that rewrites of the same file give, and this one adds to.
    """
    try:
        return _Moved(script, found).rewrite(taken), ""
    except CannotFix as reason:
        return None, "\n".join([str(reason), *lines_by_hand(script, found)])


class _Moved:
    """One dataset with code that augments, and the loop that trains with its batches.

    Everything that is not proven raises CannotFix.
    """

    def __init__(self, script: Script, found: Augmentation) -> None:
        self.script = script
        self.dataset, self.owner = self._dataset(found)
        self.entry = self._entry()
        self.reader = Reader(script, self.entry, self.dataset)
        self.operations = self.reader.operations
        self._check_draws(found)
        self._check_operations()
        self.masks = self._check_sample()
        self.run, self.method = run_of(script, self.owner, self.entry, self.operations)
        self.batches = TrainingBatches(script, found.loader)
        names = self.batches.pair()
        self.moves = [self.batches.move_of(names[0])]
        if self.masks:
            if not isinstance(names[1], ast.Name):
                raise CannotFix("the loop does not name the masks")
            self.moves.append(self.batches.move_of(names[1]))

    def rewrite(self, taken: set[str]) -> Rewrite:
        """Samples are augmented only where the runtime says so."""
        script = self.script
        runtime, imports = script.names.runtime
        augment = script.names.free("augment", "augment_batch", given=taken)
        flag = script.names.free("on_batches", "augments_batches")
        handed = Handed(script, augment)
        handed.reach(self.batches.iterated)
        if handed.passed and not is_started(script):
            raise CannotFix("functions of an imported file get no new parameter")
        statement = script.index.statement(self.dataset)
        assert isinstance(statement, ast.Assign)
        if handed.scopes != {script.index.scope(statement)}:
            raise CannotFix("the loader is not made beside the dataset")
        device = self.batches.device(self.moves[0], self.dataset)
        made = call_of(runtime, self.operations, device, statement.col_offset, augment)
        name = script.text(statement.targets[0])
        own = script.resolver.self_name(self.method)
        edits: list[Edit] = [
            self._at_first(f"{flag} = False"),
            Wrap(self.run, f"if not {own}.{flag}:"),
            InsertBefore(statement, f"{augment} = {made}"),
            InsertAfter(statement, f"{name}.{flag} = {augment}.on_batches"),
            *self._augmented(augment),
            *handed.edits,
        ]
        taken.add(augment)
        return Rewrite(TITLE, tuple(edits), imports)

    # The dataset

    def _dataset(self, found: Augmentation) -> tuple[ast.Call, ast.ClassDef]:
        resolver, index = self.script.resolver, self.script.index
        argument = found.loader.argument("dataset").direct
        origins = resolver.origins(argument) if argument is not None else ()
        call = origins[0].call if len(origins) == 1 else None
        owner = resolver.classes.named(call.func) if call is not None else None
        if call is None or owner is None or not isinstance(argument, ast.expr):
            raise CannotFix("the dataset is not clear")
        if not (index.holds(call) and index.holds(owner) and index.holds(argument)):
            raise CannotFix("the dataset is another file's")
        check_uses(self.script, call, argument)
        statement = index.statement(call)
        if (
            not isinstance(statement, ast.Assign)
            or statement.value is not call
            or not isinstance(statement.targets[0], ast.Name)
            or len(statement.targets) != 1
            or self.script.loops_around(call)
        ):
            raise CannotFix("the dataset is not made in a statement of its own")
        return call, owner

    def _entry(self) -> Function:
        """`__getitem__` of a plain class."""
        owner, resolver = self.owner, self.script.resolver
        bases = [self.script.index.qualified(base) for base in owner.bases]
        own = {f.name: f for f in owner.body if isinstance(f, ast.FunctionDef)}
        heirs = (c for c in self.script.index.all(ast.ClassDef) if c is not owner)
        if (
            bases != ["torch.utils.data.Dataset"]
            or owner.decorator_list
            or owner.keywords
            or any(owner in resolver.classes.bases(heir) for heir in heirs)
        ):
            raise CannotFix(f"`{owner.name}` is no plain dataset of its own")
        named = (n for n in walk(*owner.body) if isinstance(n, ast.Name))
        if not _OWN_WAYS.isdisjoint(own) or any(n.id == "__slots__" for n in named):
            raise CannotFix(f"`{owner.name}` handles its attributes itself")
        entry = own.get("__getitem__")
        if entry is None or entry.decorator_list:
            raise CannotFix(f"`{owner.name}` has no plain `__getitem__`")
        return entry

    def _at_first(self, line: str) -> Edit:
        """A line at the top of the class: objects that are made elsewhere have it."""
        body = self.owner.body
        text = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        first = body[1] if text else body[0]
        apart = "\n" if hasattr(first, "body") else ""
        return InsertBefore(first, line + apart)

    # What it does to samples

    def _check_draws(self, found: Augmentation) -> None:
        index = self.script.index
        statements = [s for o in self.operations for s in o.statements]
        for operation in found.operations:
            if not any(index.inside(operation, s) for s in statements):
                raise CannotFix(f"line {operation.lineno} is not understood")
        for test in self.reader.undecided:
            raise CannotFix(f"it is not known whether `{self.script.text(test)}` holds")
        for draw in self.reader.unread:
            raise CannotFix(f"line {draw.lineno} draws for something else as well")
        for node in walk(*self.owner.body):
            if isinstance(node, ast.Call) and last_name(node) in _SEEDS:
                raise CannotFix(f"line {node.lineno} sets the state of a generator")

    def _check_operations(self) -> None:
        kinds = [o.kind for o in self.operations]
        if len(set(kinds)) != len(kinds):
            raise CannotFix("an operation is done twice")
        for operation in self.operations:
            line = operation.statements[0].lineno
            if not operation.literal:
                raise CannotFix(f"the numbers of line {line} are options")
            if not operation.exact:
                raise CannotFix(f"line {line} is not proven to be the same on batches")
        later = [kind for kind in kinds if kind not in FLIPS]
        if later != sorted(later, key=ORDER.index):
            raise CannotFix("the order of the operations is another")
        for number, operation in enumerate(self.operations):
            drawn = operation.drawn
            if operation.kind != "rotation_degrees" or drawn is None:
                continue
            flipped = not set(FLIPS).isdisjoint(kinds[number:])
            if flipped and drawn.low != -drawn.high:
                raise CannotFix("images are turned to one side, then flipped")

    def _check_sample(self) -> bool:
        """That batches hold what is augmented, as it is; whether masks are too."""
        returned = self.reader.returned
        if returned is None or len(returned) != 2:
            raise CannotFix("a sample is not an image and one thing beside it")
        image, other = returned
        if image.layout != "chw" or sorted(image.done) != list(
            range(len(self.operations))
        ):
            raise CannotFix("it is not known how the image of a sample lies in memory")
        geometry = [n for n, its in enumerate(self.operations) if its.kind in GEOMETRY]
        if other.done and sorted(other.done) != geometry:
            raise CannotFix("what stands beside the image is not augmented like it")
        for number, operation in enumerate(self.operations):
            if len(operation.images) != 1 + (number in other.done):
                raise CannotFix("more than a sample's image and mask is augmented")
            self._check_values(operation, image, other)
        flat = other.layout == "hw" or (other.layout, other.channels) == ("chw", 1)
        if other.done and not flat:
            raise CannotFix("it is not known how the mask of a sample lies in memory")
        return bool(other.done)

    def _check_values(
        self, operation: Operation, image: Picture, other: Picture
    ) -> None:
        """That the numbers mean the same on batches: black is 0, and white is known."""
        if operation.kind in FLIPS:
            return
        if image.channels not in (1, 3):
            raise CannotFix("it is not known which colours the images have")
        shifted = image.shifted or (bool(other.done) and other.shifted)
        if shifted:
            raise CannotFix("images are normalized behind it")
        if not image.values:
            raise CannotFix("the type of the images is not known")
        if operation.kind == "rotation_degrees":
            if other.done and set(operation.interpolations) != {"nearest"}:
                raise CannotFix("masks are not rotated by the nearest pixel")
        elif image.values not in ("bytes", "unit"):
            raise CannotFix("it is not known what white is on the batch")

    # The batches

    def _augmented(self, augment: str) -> list[Edit]:
        if not self.masks:
            return [Replace(self.moves[0].call, lambda text: f"{augment}({text})")]
        index, body = self.script.index, self.batches.loop.node.body
        names = ", ".join(self._bound_to(move) for move in self.moves)
        places = sorted(body.index(index.statement(m.call)) for m in self.moves)
        if places[1] - places[0] > 1:
            raise CannotFix("images and masks are not moved together")
        line = f"{names} = {augment}({names})"
        return [InsertAfter(body[places[1]], line)]

    def _bound_to(self, move: Move) -> str:
        """The variable that holds what was moved."""
        statement = self.script.index.statement(move.call)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            for name, moved in pairs:
                if moved is move.call and isinstance(name, ast.Name):
                    return name.id
        raise CannotFix("images and masks have no names on the device")
