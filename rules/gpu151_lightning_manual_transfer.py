"""A Lightning module moves batches that Lightning has moved.

## Why
The trainer sends each batch to the module's device before it calls a hook, and copies
with `non_blocking=True` where the memory is pinned. A `.to(self.device)` there has
nothing left to do; `.cuda()` also keeps the module from running on anything but CUDA,
and `.to("cuda:0")` brings the batches of every other rank to the first GPU.

## Example
```python
import lightning as L
from torch.nn.functional import cross_entropy


class Classifier(L.LightningModule):
    def training_step(self, batch, batch_idx):
        x, y = batch
        x, y = x.to(self.device), y.cuda()
        return cross_entropy(self.net(x), y)
```
becomes
```python
import lightning as L
from torch.nn.functional import cross_entropy


class Classifier(L.LightningModule):
    def training_step(self, batch, batch_idx):
        x, y = batch
        return cross_entropy(self.net(x), y)
```

## Fix
The move goes, a dtype given with it stays, and where nothing else is left of an
assignment, that goes too. `.to(self.device)` of what is there gives back the same
tensor, and so does `.cuda()` in the process of a rank, whose GPU Lightning has chosen.

Withheld where the move names another device: by a number, or by a variable of the
program, which something else may be placed with.

## When not
Hooks that get no batch, and `forward`, which is called without a trainer too. Methods
that anything but the hooks of a module calls. Attributes of a batch: Lightning does not
move what is in an object without a `to` of its own. A `.to(…, copy=True)`. Programs
with a `transfer_batch_to_device` of their own, and modules whose trainers use the CPU
alone. Tensors that a hook makes itself are GPU104. A `dataloader_iter` gives batches as
they come from the loader. A `.to(self.device)` or `.to(x.device)`, which takes some
microseconds to give back the same tensor, is of low confidence.

The hooks and what is moved are the same in all releases from 1.1 to 2.6.

## Source
Lightning documentation, "Hardware agnostic training": "Delete .cuda() or .to() calls".
`lightning.fabric.utilities.apply_func.move_data_to_device` of Lightning 2.6, and the
function of that name in pytorch-lightning 1.1, 1.2, 1.5 and 1.9.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index import Move, Target
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.lightning import hooks_above, modules, moves_batches
from gpulint.script.rewriting.edits import Edit, Remove, Replace, Rewrite
from gpulint.script.rewriting.syntax import without_move
from gpulint.script.waiting.waits import short

GIVEN_BACK = frozenset(["self.device", "'cuda'"])  # as `ast.unparse` writes them

HARMLESS = frozenset({"device", "dtype", "non_blocking"})  # a `copy=True` copies


class LightningManualTransfer(Rule):
    """Fires on the move of a batch, or a part of one, in a hook."""

    effect = Effect.EXACT
    hardware = Hardware.GPU
    framework = "lightning"
    needs = Words("<move> _step(", "<move> _batch_start(", "<move> _batch_end(")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a statement."""
        for owner in modules(script):
            moves = [m for m in script.moves if script.index.owner(m.call) is owner]
            moves = [m for m in moves if _is_done_already(script, m)]
            if moves and moves_batches(script, owner):
                yield from self._module(script, moves)

    def _module(self, script: Script, moves: list[Move]) -> Iterator[Finding]:
        statements: dict[ast.stmt, list[Move]] = {}
        for move in moves:
            statement = script.index.statement(move.call)
            statements.setdefault(statement, []).append(move)
        for statement, its in statements.items():
            withheld = next(filter(None, map(_why_not, its)), None)
            edits: tuple[Edit, ...] = tuple(Replace(m.call, without_move) for m in its)
            if _assigns_itself(statement, its):
                edits = (Remove(statement),)
                if _is_alone(script, statement):
                    withheld = withheld or "nothing else is in its block"
            what = ", ".join(f"`{short(script.text(m.call))}`" for m in its[:2])
            verb = "move" if len(its) > 1 else "moves"
            yield self.finding(
                script,
                its[0].call.func,
                f"{what}{', …' if len(its) > 2 else ''} {verb} a batch that Lightning "
                "has moved",
                fix=None if withheld else Rewrite("Leave it to Lightning", edits),
                withheld=withheld,
                confidence=Confidence.LOW if all(map(_stays_there, its)) else None,
            )


def _is_done_already(script: Script, move: Move) -> bool:
    """Whether a move has nothing to do: its tensor came with the batch of a hook."""
    if move.target in (Target.CPU, Target.MPS) or len(move.call.args) > 3:
        return False
    if any(k.arg not in HARMLESS for k in move.call.keywords):
        return False
    if not script.lightning_steps.is_part_of_batch(move.receiver):
        return False
    return bool(hooks_above(script, move.call))


def _stays_there(move: Move) -> bool:
    """`.to(self.device)`, `.to(x.device)`: it gives back the same tensor."""
    return isinstance(move.device, ast.Attribute) and move.device.attr == "device"


def _why_not(move: Move) -> str | None:
    """The guard of the fix that fails."""
    if move.device is None or ast.unparse(move.device) in GIVEN_BACK:
        return None
    if isinstance(move.device, ast.Constant):
        return f"it names a GPU of its own, {ast.unparse(move.device)}"
    return f"`{ast.unparse(move.device)}` may be another device than the module's"


def _assigns_itself(statement: ast.stmt, moves: list[Move]) -> bool:
    """Whether `x = x`, `x, y = x, y` or `x` alone is left without the moves."""
    if isinstance(statement, ast.Expr):
        return statement.value is moves[0].call and not moves[0].dtype
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    if any(move.dtype for move in moves):
        return False
    moved = {move.call: move.receiver for move in moves}
    left = _without(statement.value, moved)
    return ast.unparse(statement.targets[0]) == ast.unparse(left)


def _is_alone(script: Script, statement: ast.stmt) -> bool:
    """Whether its block would be empty without a statement."""
    block = script.index.parent(statement)
    names = ("body", "orelse", "finalbody")
    return any(getattr(block, name, None) == [statement] for name in names)


def _without(value: ast.expr, moved: dict[ast.Call, ast.expr]) -> ast.expr:
    """What a value, or each item of a tuple, is without its move."""
    if isinstance(value, ast.Tuple):
        return ast.Tuple([_without(v, moved) for v in value.elts], ast.Load())
    return moved.get(value, value) if isinstance(value, ast.Call) else value
