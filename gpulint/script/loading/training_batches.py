"""Where a training loop takes the batches of a loader, and moves their images."""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING

from gpulint.index import Move, Target
from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.loading.loaders import Loader
from gpulint.script.loading.trained_dataset import uses_of
from gpulint.script.loops import Loop
from gpulint.script.rewriting.beside import Beside
from gpulint.script.rewriting.device_code import device_at
from gpulint.script.rewriting.edits import CannotFix

if TYPE_CHECKING:
    from gpulint.script.model import Script


class Handed(Beside):
    """Hands a name to the loop that iterates a loader; it is made elsewhere."""

    def __init__(self, script: Script, name: str) -> None:
        super().__init__(script, name, lambda _: "")
        self.scopes: set[ast.AST] = set()

    def _make(self, anchor: ast.stmt, target: str) -> None:
        self.scopes.add(self.script.index.scope(anchor))


class TrainingBatches:
    """The one loop that trains with the batches of a loader, as pairs.

    CannotFix where there is another, or where it does something else with them.
    """

    def __init__(self, script: Script, loader: Loader) -> None:
        self.script = script
        self.loader = loader
        self.loop = self._loop()
        self.iterated = self._iterated()

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
        uses = uses_of(self.script, target)
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
            callee = self.script.resolver.calls.callee(above)
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

    def move_of(self, images: ast.Name) -> Move:
        """The one place that reads a part of the batch: its move to the device."""
        script, loop = self.script, self.loop
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

    def pair(self) -> tuple[ast.Name, ast.expr]:
        """What a step calls the two parts of its batch: `images, labels`."""
        target = self.loop.items[0][1]
        if isinstance(target, ast.Name):
            reads = self._reads_of(target)
            above = self.script.index.parent(reads[0]) if len(reads) == 1 else None
            if isinstance(above, ast.Assign) and above in self.loop.node.body:
                target = above.targets[0]
        pair = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        if len(pair) != 2 or not isinstance(pair[0], ast.Name):
            raise CannotFix("the loop does not unpack a batch into images and labels")
        return pair[0], pair[1]

    def _reads_of(self, name: ast.Name) -> list[ast.Name]:
        """Where the loop reads what is bound to a name in one place, or adds to it."""
        return [
            n
            for n in walk(self.loop.node)
            if isinstance(n, ast.Name)
            and n.id == name.id
            and (self._is_read(n, name) or self._is_added_to(n))
        ]

    def _is_read(self, node: ast.Name, bound: ast.Name) -> bool:
        reached = self.script.definitions(node)
        return isinstance(node.ctx, ast.Load) and any(d.node is bound for d in reached)

    def _is_added_to(self, node: ast.Name) -> bool:
        """`images -= mean`, which may change the batch where it is."""
        above = self.script.index.parent(node)
        return isinstance(above, ast.AugAssign) and above.target is node

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

    def device(self, move: Move, at: ast.AST) -> str:
        """The device of a move, as it can be named at another place."""
        if move.device is None:
            if move.target is Target.CUDA:
                return '"cuda"'
            raise CannotFix("the device has no name where the dataset is made")
        device = device_at(self.script, at, [self.loop])
        if device is None:
            raise CannotFix("the device has no name where the dataset is made")
        return self.script.text(device)
