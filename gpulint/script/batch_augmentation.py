"""How the end of a training set's transform moves to the batches of its loop."""

from __future__ import annotations

import ast
import itertools
import textwrap
from typing import TYPE_CHECKING

from gpulint.index import Move, Target
from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.augmentations import Augmentation
from gpulint.script.beside import Beside
from gpulint.script.edits import (
    CannotFix,
    Edit,
    InsertBefore,
    Replace,
    ReplaceCode,
    Rewrite,
)
from gpulint.script.image_operations import TORCHVISION, draws_for_each
from gpulint.script.loops import Loop
from gpulint.script.started import is_started

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
    """The rewrite that splits the transform, or why there is none."""
    try:
        return _Split(script, found).rewrite(), None
    except CannotFix as reason:
        return None, str(reason)


class _Handed(Beside):
    """Hands a name to the loop that iterates a loader; it is made elsewhere."""

    def __init__(self, script: Script, name: str) -> None:
        super().__init__(script, name, lambda _: "")
        self.scopes: set[ast.AST] = set()

    def _make(self, anchor: ast.stmt, target: str) -> None:
        self.scopes.add(self.script.index.scope(anchor))


class _Split:
    """One pipeline with the dataset, the loader, the loop and the move behind it."""

    def __init__(self, script: Script, found: Augmentation) -> None:
        self.script = script
        self.loader = found.loader
        if found.others:
            raise CannotFix("samples that are not trained on go through it as well")
        if found.by_hand:
            raise CannotFix("the operations are written by hand")
        compose = self._compose(found.whole)
        self.dataset = self._dataset()
        self._check_moves(compose)
        self.transform = self._transform(compose)
        self.loop = self._loop()
        self.iterated = self._iterated()
        self.move = self._move()

    def rewrite(self) -> Rewrite:
        """The dataset gets one part of the transform, the loop's batches the other."""
        script = self.script
        runtime, imports = script.runtime
        augment = script.free_name("augment", "augment_batch")
        handed = _Handed(script, augment)
        handed.reach(self.iterated)
        if handed.passed and not is_started(script):
            raise CannotFix("functions of an imported file get no new parameter")
        statement = script.index.statement(self.dataset)
        if handed.scopes != {script.index.scope(statement)}:
            raise CannotFix("the loader is not made beside the dataset")
        name = self._name()
        size = ", same_size=True" if self._same_size() else ""
        given = f"{self._text()}, {self._device()}{size}"
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
        self._check_uses_of_dataset(call, argument)
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

    def _uses(self, name: ast.Name) -> list[ast.AST]:
        """Where a variable is read that is bound once in its scope."""
        index = self.script.index
        scope = index.scope(name)
        bound = self.script.resolver.flow(scope).definitions.get(name.id, [])
        if len(bound) != 1:
            raise CannotFix(f"`{name.id}` has several values")
        same = (n for n in index.all(ast.Name) if n.id == name.id and n is not name)
        return [n for n in same if self._reads(n, scope)]

    def _reads(self, node: ast.Name, scope: ast.AST) -> bool:
        found = self.script.definitions(node)
        return not found or any(self.script.index.scope(d.node) is scope for d in found)

    def _check_uses_of_dataset(self, call: ast.Call, argument: ast.expr) -> None:
        """That nobody else takes samples: they lack what batches get."""
        index = self.script.index
        if call is argument:
            return
        above = index.parent(call)
        target = above.targets[0] if isinstance(above, ast.Assign) else None
        if not isinstance(target, ast.Name) or not isinstance(argument, ast.Name):
            raise CannotFix("the dataset may be used elsewhere as well")
        for use in self._uses(target):
            if use is not argument and not self._looks_only(use):
                line = getattr(use, "lineno", 0)
                raise CannotFix(f"line {line} may take samples of the dataset")

    def _looks_only(self, use: ast.AST) -> bool:
        """`len(train_set)`, `train_set.classes`, a sampler that counts it."""
        above = self.script.index.parent(use)
        if isinstance(above, ast.Attribute):
            around = self.script.index.parent(above)
            called = isinstance(around, ast.Call) and around.func is above
            return isinstance(above.ctx, ast.Load) and not called
        name = self.script.index.qualified(getattr(above, "func", None)) or ""
        return isinstance(above, ast.Call) and (
            name in ("len", "print") or name.endswith("Sampler")
        )

    # The loader and its loop

    def _loop(self) -> Loop:
        loader, script = self.loader, self.script
        if not script.index.holds(loader.call) or loader.derived:
            raise CannotFix("the loader is made elsewhere")
        if not loader.argument("collate_fn").absent:
            raise CannotFix("the loader has a `collate_fn`")
        if loader.values("batch_size").any_in(None):
            raise CannotFix("the loader makes no batches")
        loops = loader.loops
        if len(loops) != 1 or not loops[0].train or loops[0] not in script.loops:
            raise CannotFix("it is not one loop of this file that takes the batches")
        loop = loops[0]
        iterated = [o for i, _ in loop.items for o in script.resolver.origins(i)]
        if len(loop.items) != 1 or [o.node for o in iterated] != [loader.call]:
            raise CannotFix("the loop takes batches of other loaders as well")
        return loop

    def _iterated(self) -> ast.Name:
        """The name that the loop iterates; only it, and what calls it, use that."""
        node = self.loop.items[0][0]
        if not isinstance(node, ast.Name) or isinstance(self.loop.node, ast.While):
            raise CannotFix("the loader has no name of its own")
        above = self.script.index.parent(self.loader.call)
        target = above.targets[0] if isinstance(above, ast.Assign) else None
        if not isinstance(target, ast.Name):
            raise CannotFix("the loader has no name of its own")
        uses = self._uses(target)
        function = self.loop.function
        if function is not None:
            scope = self.script.resolver.flow(function)
            bound = scope.definitions.get(node.id, [])
            if len(bound) > 1:
                raise CannotFix(f"`{node.id}` has several values")
            uses += [n for n, its in scope.uses.items() if set(its) & set(bound)]
        for use in uses:
            if not self._only_loops(use, self.loop):
                line = getattr(use, "lineno", 0)
                raise CannotFix(f"line {line} may take batches of the loader")
        return node

    def _only_loops(self, use: ast.AST, loop: Loop) -> bool:
        index = self.script.index
        assert isinstance(loop.node, (ast.For, ast.AsyncFor))
        if index.inside(use, loop.node.iter):
            return True
        above = index.parent(use)
        if isinstance(above, ast.keyword):
            above = index.parent(above)
        if isinstance(above, ast.Call) and use is not above.func:
            counts = dotted(above.func) == "len" or self._is_shown(above, loop)
            callee = self.script.resolver.callee(above)
            return counts or (callee is not None and callee is loop.function)
        if isinstance(above, ast.Attribute):  # `.dataset`, `.sampler.set_epoch(epoch)`
            counted = index.parent(above)
            of_length = isinstance(counted, ast.Call) and dotted(counted.func) == "len"
            return above.attr in ("sampler", "batch_size") or of_length
        return False

    def _is_shown(self, call: ast.Call, loop: Loop) -> bool:
        """`bar = tqdm(loader)` that the loop iterates, and writes beside."""
        index = self.script.index
        above = index.parent(call)
        target = above.targets[0] if isinstance(above, ast.Assign) else None
        if last_name(call) != "tqdm" or not isinstance(target, ast.Name):
            return False
        assert isinstance(loop.node, (ast.For, ast.AsyncFor))
        scope = self.script.resolver.flow(index.scope(target))
        bound = [d for d in scope.definitions.get(target.id, []) if d.node is target]
        uses = [n for n, its in scope.uses.items() if set(its) & set(bound)]
        return all(
            index.inside(n, loop.node.iter)
            or isinstance(index.parent(n), ast.Attribute)
            for n in uses
        )

    # The move of the images

    def _move(self) -> Move:
        script, loop = self.script, self.loop
        images = self._images()
        reads = [n for n in self._reads_of(images) if not self._counts(n)]
        moves = [m for m in script.moves if m.receiver in reads]
        if len(moves) != 1 or len(reads) != 1:
            raise CannotFix(f"`{images.id}` is used before it is on the device")
        move = moves[0]
        if script.index.statement(move.call) not in loop.node.body:
            raise CannotFix("the images are moved under a condition")
        plain = {"device", "non_blocking"}
        if len(move.call.args) > 1 or any(
            k.arg not in plain for k in move.call.keywords
        ):
            raise CannotFix("the move of the images changes their type or layout")
        if move.dtype or self._is_kept(move):
            raise CannotFix("the move of the images changes their type or layout")
        return move

    def _images(self) -> ast.Name:
        """The name that a step gives its images: `images, labels` of a batch."""
        target = self.loop.items[0][1]
        if isinstance(target, ast.Name):
            reads = self._reads_of(target)
            above = self.script.index.parent(reads[0]) if len(reads) == 1 else None
            if isinstance(above, ast.Assign) and above in self.loop.node.body:
                target = above.targets[0]
        pair = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        images = pair[0] if len(pair) == 2 else None
        if not isinstance(images, ast.Name):
            raise CannotFix("the loop does not unpack a batch into images and labels")
        return images

    def _reads_of(self, name: ast.Name) -> list[ast.Name]:
        """Where the loop reads what is bound to a name in one place."""
        return [
            n
            for n in walk(self.loop.node)
            if isinstance(n, ast.Name)
            and n.id == name.id
            and isinstance(n.ctx, ast.Load)
            and any(d.node is name for d in self.script.definitions(n))
        ]

    def _is_kept(self, move: Move) -> bool:
        """Whether what is moved is an argument of what may run batches elsewhere."""
        around = itertools.takewhile(
            lambda n: isinstance(n, ast.expr), self.script.index.ancestors(move.call)
        )
        return any(isinstance(n, (ast.Lambda, ast.ListComp)) for n in around)

    def _counts(self, node: ast.Name) -> bool:
        """`images.size(0)`, `images.shape[0]`, `len(images)`."""
        index = self.script.index
        above = index.parent(node)
        around = index.parent(above) if above is not None else None
        if isinstance(above, ast.Call):
            return dotted(above.func) == "len"
        if not isinstance(above, ast.Attribute) or around is None:
            return False
        return ast.unparse(around) in (
            f"{node.id}.size(0)",
            f"{node.id}.shape[0]",
        )

    def _device(self) -> str:
        """The device, as it can be named where the transform is made."""
        if self.move.device is None:
            if self.move.target is Target.CUDA:
                return '"cuda"'
            raise CannotFix("the device has no name where the transform is made")
        device = self.script.device_at(self.dataset, [self.loop])
        if device is None:
            raise CannotFix("the device has no name where the transform is made")
        return self.script.text(device)
