"""How a transform is split: one part for the samples, one for a loop's batches."""

from __future__ import annotations

import ast
import textwrap
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted
from gpulint.script.augmenting.image_operations import TORCHVISION, draws_for_each
from gpulint.script.loading.loaders import Loader
from gpulint.script.loading.trained_dataset import check_uses
from gpulint.script.loading.training_batches import Handed, TrainingBatches
from gpulint.script.reaching.started import is_started
from gpulint.script.rewriting.edits import (
    CannotFix,
    Edit,
    InsertBefore,
    Replace,
    ReplaceCode,
    Rewrite,
)

if TYPE_CHECKING:
    from gpulint.script.model import Script

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


class Split:
    """One pipeline with the dataset, the loader, the loop and the move behind it.

    CannotFix where it is not proven that only training batches lack what moves.
    """

    def __init__(self, script: Script, loader: Loader, whole: ast.AST) -> None:
        self.script = script
        self.loader = loader
        compose = self._compose(whole)
        listed = compose.args[0]
        assert isinstance(listed, ast.List)
        self.compose, self.steps = compose, listed.elts
        self.dataset = self._dataset()

    def rewrite(
        self, title: str, names: tuple[str, ...], options: str, taken: set[str]
    ) -> Rewrite:
        """The dataset gets one part of the transform, the loop's batches the other.

        `names`: for the second part, the first that is free and not `taken` by another
        rewrite; `options`: arguments of the runtime behind the device.
        """
        script = self.script
        self._check_unchanged()
        transform = self._transform(self.compose)
        batches = TrainingBatches(script, self.loader)
        move = batches.move_of(batches.pair()[0])
        runtime, imports = script.names.runtime
        second = script.names.free(*names, given=taken)
        handed = Handed(script, second)
        handed.reach(batches.iterated)
        if handed.passed and not is_started(script):
            raise CannotFix("functions of an imported file get no new parameter")
        statement = script.index.statement(self.dataset)
        if handed.scopes != {script.index.scope(statement)}:
            raise CannotFix("the loader is not made beside the dataset")
        name = self._name(transform)
        given = f"{self._text(transform)}, {batches.device(move, self.dataset)}"
        given += options
        split = f"{name}, {second} = {runtime}.split_augmentation({given})"
        if "\n" not in given and len(split) + statement.col_offset > LINE:
            split = split.replace(f"({given})", f"(\n{INDENT}{given}\n)")
        edits: list[Edit] = [
            InsertBefore(statement, split),
            Replace(move.call, lambda text: f"{second}({text})"),
            *handed.edits,
        ]
        if name != dotted(transform):
            edits.append(ReplaceCode(transform, name))
        taken.add(second)
        return Rewrite(title, tuple(edits), imports)

    def _text(self, transform: ast.expr) -> str:
        """The transform as the dataset gets it, lines after the first at its margin."""
        first, *rest = self.script.text(transform).splitlines()
        return "\n".join([first, *textwrap.dedent("\n".join(rest)).splitlines()])

    def _name(self, transform: ast.expr) -> str:
        """The transform's own name where nothing else reads it, or a new one."""
        if isinstance(transform, ast.Name):
            index = self.script.index
            same = [n for n in index.all(ast.Name) if n.id == transform.id]
            reads = [n for n in same if isinstance(n.ctx, ast.Load)]
            scopes = {index.scope(n) for n in same}
            if reads == [transform] and len(scopes) == 1:
                return transform.id
        return self.script.names.free("train_transform", "cpu_transform")

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

    def _check_unchanged(self) -> None:
        """That no code changes the list of operations: `compose.transforms.append`."""
        for index in {self.script.index, self.script.index.home(self.compose)}:
            for node in index.all(ast.Attribute):
                if node.attr != "transforms" or isinstance(node.ctx, ast.Store):
                    continue
                module = (index.qualified(node) or "").startswith("torchvision.")
                own = self.script.resolver.self_name(index.function(node) or node)
                if not module and (own is None or dotted(node.value) != own):
                    raise CannotFix(f"line {node.lineno} may change the operations")

    def operation(self, node: ast.expr) -> str:
        """The name of torchvision's class in a place of the list; "": not known."""
        origins = self.script.resolver.origins(node)
        call = origins[0].call if len(origins) == 1 else None
        name = self.script.index.qualified(call.func) if call is not None else None
        if call is None or name is None or not name.startswith(TORCHVISION):
            return ""
        last = name.rpartition(".")[2]
        cuts = last == "RandomCrop" and not draws_for_each(self.script, call)
        return "CenterCrop" if cuts else last  # no border around what it cuts from

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

    def same_size(self) -> bool:
        """Whether all images of the dataset have one size."""
        name = self.script.index.qualified(self.dataset.func) or ""
        return name.rpartition(".")[2] in _SAME_SIZE
