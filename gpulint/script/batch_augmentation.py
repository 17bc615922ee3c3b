"""How the end of a training set's transform moves to the batches of its loop."""

from __future__ import annotations

import ast
import textwrap
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted
from gpulint.script.augmentations import Augmentation
from gpulint.script.edits import (
    CannotFix,
    Edit,
    InsertBefore,
    Replace,
    ReplaceCode,
    Rewrite,
)
from gpulint.script.hand_augmentation import move_samples_to_batches
from gpulint.script.image_operations import TORCHVISION, draws_for_each
from gpulint.script.started import is_started
from gpulint.script.trained_dataset import check_uses
from gpulint.script.training_batches import Handed, TrainingBatches

if TYPE_CHECKING:
    from gpulint.script.model import Script

TITLE = "Augment batches on the GPU"
LINE = 88
INDENT = "    "
# Datasets of images with a class for each; those of the first kind have one size.
_SAME_SIZE = frozenset(
    "CIFAR10 CIFAR100 MNIST FashionMNIST KMNIST QMNIST EMNIST USPS SVHN STL10".split()
)
_CLASSES = _SAME_SIZE | frozenset(
    "ImageFolder ImageNet Imagenette Food101 Flowers102 StanfordCars FGVCAircraft DTD "
    "EuroSAT GTSRB Country211 PCAM SUN397 INaturalist Caltech256 RenderedSST2".split()
)
# What batches can go through, and what a transform may end with beside it.
_MOVED = frozenset(
    "RandomHorizontalFlip RandomVerticalFlip RandomRotation RandomAffine ColorJitter "
    "RandomGrayscale RandomErasing".split()
)
_ALONG = frozenset(
    "ToTensor PILToTensor ToImage ConvertImageDtype ToDtype Normalize".split()
)
_SIZING = frozenset("CenterCrop RandomResizedCrop RandomCrop".split())


def move_to_batches(
    script: Script, found: Augmentation
) -> tuple[Rewrite | None, str | None]:
    """The rewrite, or why there is none; lines after the first are to be put in."""
    if found.by_hand:
        return move_samples_to_batches(script, found)
    try:
        return _Split(script, found).rewrite(), None
    except CannotFix as reason:
        return None, str(reason)


class _Split:
    """One pipeline with the dataset, the loader, the loop and the move behind it."""

    def __init__(self, script: Script, found: Augmentation) -> None:
        self.script = script
        self.loader = found.loader
        if found.others:
            raise CannotFix("samples that are not trained on go through it as well")
        compose = self._compose(found.whole)
        self.dataset = self._dataset()
        self._check_moves(compose)
        self.transform = self._transform(compose)
        self.batches = TrainingBatches(script, found.loader)
        self.move = self.batches.move_of(self.batches.pair()[0])

    def rewrite(self) -> Rewrite:
        """The dataset gets one part of the transform, the loop's batches the other."""
        script = self.script
        runtime, imports = script.runtime
        augment = script.free_name("augment", "augment_batch")
        handed = Handed(script, augment)
        handed.reach(self.batches.iterated)
        if handed.passed and not is_started(script):
            raise CannotFix("functions of an imported file get no new parameter")
        statement = script.index.statement(self.dataset)
        if handed.scopes != {script.index.scope(statement)}:
            raise CannotFix("the loader is not made beside the dataset")
        name = self._name()
        size = ", same_size=True" if self._same_size() else ""
        given = f"{self._text()}, {self.batches.device(self.move, self.dataset)}{size}"
        split = f"{name}, {augment} = {runtime}.split_augmentation({given})"
        if "\n" not in given and len(split) + statement.col_offset > LINE:
            split = split.replace(f"({given})", f"(\n{INDENT}{given}\n)")
        edits: list[Edit] = [
            InsertBefore(statement, split),
            Replace(self.move.call, lambda text: f"{augment}({text})"),
            *handed.edits,
        ]
        if name != dotted(self.transform):
            edits.append(ReplaceCode(self.transform, name))
        return Rewrite(TITLE, tuple(edits), imports)

    def _text(self) -> str:
        """The transform as the dataset gets it, lines after the first at its margin."""
        first, *rest = self.script.text(self.transform).splitlines()
        return "\n".join([first, *textwrap.dedent("\n".join(rest)).splitlines()])

    def _name(self) -> str:
        """The transform's own name where nothing else reads it, or a new one."""
        if isinstance(self.transform, ast.Name):
            index = self.script.index
            same = [n for n in index.all(ast.Name) if n.id == self.transform.id]
            reads = [n for n in same if isinstance(n.ctx, ast.Load)]
            scopes = {index.scope(n) for n in same}
            if reads == [self.transform] and len(scopes) == 1:
                return self.transform.id
        return self.script.free_name("train_transform", "cpu_transform")

    # The transform

    def _compose(self, whole: ast.AST) -> ast.Call:
        name = ""
        if isinstance(whole, ast.Call):
            name = self.script.index.qualified(whole.func) or ""
        if not isinstance(whole, ast.Call) or not name.startswith(TORCHVISION):
            raise CannotFix(
                "it is no `Compose` of torchvision with its operations in it"
            )
        listed = whole.args[0] if len(whole.args) == 1 and not whole.keywords else None
        if not name.endswith(".Compose") or not isinstance(listed, ast.List):
            raise CannotFix(
                "it is no `Compose` of torchvision with its operations in it"
            )
        return whole

    def _operation(self, node: ast.expr) -> str:
        origins = self.script.resolver.origins(node)
        call = origins[0].call if len(origins) == 1 else None
        name = self.script.index.qualified(call.func) if call is not None else None
        if call is None or name is None or not name.startswith(TORCHVISION):
            return ""
        last = name.rpartition(".")[2]
        cuts = last == "RandomCrop" and not draws_for_each(self.script, call)
        return "CenterCrop" if cuts else last  # no border around what it cuts from

    def _check_moves(self, compose: ast.Call) -> None:
        """That something random stands behind the last operation that must stay."""
        listed = compose.args[0]
        assert isinstance(listed, ast.List)
        names = [self._operation(node) for node in listed.elts]
        moves = False
        for number in reversed(range(len(names))):
            name = names[number]
            sized = self._same_size() or not _SIZING.isdisjoint(names[:number])
            if name in _MOVED or (name == "RandomCrop" and sized):
                moves = True
            elif name not in _ALONG:
                break
        if not moves:
            raise CannotFix("what draws cannot move without what stands behind it")

    # The dataset

    def _dataset(self) -> ast.Call:
        """The call that makes the dataset, the only place that gets the transform."""
        resolver = self.script.resolver
        argument = self.loader.argument("dataset").direct
        origins = resolver.origins(argument) if argument is not None else ()
        call = origins[0].call if len(origins) == 1 else None
        name = self.script.index.qualified(call.func) or "" if call is not None else ""
        known = name.startswith("torchvision.datasets.")
        if call is None or not known or name.rpartition(".")[2] not in _CLASSES:
            raise CannotFix("the dataset may give more than an image and its class")
        if any(
            k.arg in (None, "loader", "target_type", "transforms")
            for k in call.keywords
        ):
            raise CannotFix("the dataset may give more than an image and its class")
        assert isinstance(argument, ast.expr)
        check_uses(self.script, call, argument)
        statement = self.script.index.statement(call)
        if not isinstance(statement, ast.Assign) or self.script.loops_around(call):
            raise CannotFix("the dataset is not made in a statement of its own")
        return call

    def _transform(self, compose: ast.Call) -> ast.expr:
        given = self.script.evaluator.argument(self.dataset, "transform").direct
        origins = self.script.resolver.origins(given) if given is not None else ()
        looked_up = isinstance(given, ast.Subscript)
        direct = [o.node for o in origins] == [compose]
        if given is None or not (direct or looked_up):
            raise CannotFix("the transform is not an argument of its own")
        return given

    def _same_size(self) -> bool:
        name = self.script.index.qualified(self.dataset.func) or ""
        return name.rpartition(".")[2] in _SAME_SIZE
