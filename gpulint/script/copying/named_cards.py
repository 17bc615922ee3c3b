"""GPUs that a script names by their number, and ranks that choose none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index import Target
from gpulint.index.walk import FUNCTIONS, dotted, walk
from gpulint.script.neighbours import imported, run_together

if TYPE_CHECKING:
    from gpulint.script.model import Script

_CARD = re.compile(r"cuda:(\d+)")
_FIRST = frozenset(["cuda", "cuda:0"])
_SETTERS = frozenset(["torch.cuda.set_device", "torch.cuda.device"])
# How a program looks at the machine, or is told which of its GPUs it may use.
_CHOOSES = re.compile(r"device_count|CUDA_VISIBLE_DEVICES|device_ids|DataParallel")
_TAKES_RANK = re.compile(
    r"set_device|cuda\.device\(|local_?rank|LOCAL_?RANK|localid|LOCALID|SLURM|"
    r"device_ids|CUDA_VISIBLE_DEVICES|cuda:(['\"]|\{|%)",
)
_OPTIONS = re.compile(r"add_argument|option|Option|Argument|field|Field|DEFINE_\w+|get")
_WRAPPER = "torch.nn.parallel.DistributedDataParallel"


@dataclass(frozen=True)
class NamedCard:
    """A GPU that is named by number: where, and in which places."""

    number: int
    nodes: tuple[ast.expr, ...]


def named_card(script: Script) -> NamedCard | None:
    """The one GPU, not the first, that a script trains on whatever the machine has."""
    cards = list(_cards(script))
    numbers = {number for _, number in cards}
    if len(numbers) != 1 or 0 in numbers or not _trains(script):
        return None
    number = numbers.pop()
    files = [script.index, *imported(script, script.index)]
    fixed = tuple(node for node, _ in cards if not _is_choice(script, node))
    if not fixed or _uses_current(script, fixed):
        return None
    if any(i.source.has(_CHOOSES) for i in files):
        return None
    return NamedCard(number, fixed)


def _cards(script: Script) -> Iterator[tuple[ast.expr, int]]:
    """All numbers of GPUs in a file: `"cuda:1"`, `.cuda(1)`, `set_device(1)`."""
    index = script.index
    for node in index.all(ast.Constant):
        found = _CARD.fullmatch(node.value) if isinstance(node.value, str) else None
        if found:
            yield node, int(found[1])
    for call in index.all(ast.Call):
        number = _number(script, call)
        if number is not None:
            yield call, number


def _number(script: Script, call: ast.Call) -> int | None:
    """The GPU of `.cuda(1)`, `set_device(1)` and `torch.device("cuda", 1)`."""
    name = script.index.qualified(call.func) or ""
    arguments = call.args
    if name == "torch.device" and len(arguments) == 2:
        return _whole(arguments[1])
    moves = isinstance(call.func, ast.Attribute) and call.func.attr in ("cuda", "to")
    if len(arguments) == 1 and (moves or name in _SETTERS):
        return _whole(arguments[0])
    return None


def _whole(node: ast.expr) -> int | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if type(value) is int else None


def _is_choice(script: Script, node: ast.expr) -> bool:
    """Whether a user or a condition may choose another GPU than the one named."""
    child: ast.AST = node
    for above in script.index.ancestors(node):
        if isinstance(above, (ast.arguments, ast.Compare, ast.Dict, ast.AnnAssign)):
            return True
        if isinstance(above, ast.Call) and _is_option(above, child):
            return True
        if isinstance(above, (ast.If, ast.IfExp, ast.While)):
            test = above.test
            if test is not child and not _is_usual(test):
                return True
        if isinstance(above, (ast.ExceptHandler, ast.match_case, ast.BoolOp)):
            return True
        if isinstance(above, ast.ClassDef) and not isinstance(child, FUNCTIONS):
            return True
        child = above
    return False


def _is_option(call: ast.Call, child: ast.AST) -> bool:
    name = (dotted(call.func) or "").rpartition(".")[2]
    return child is not call.func and bool(_OPTIONS.fullmatch(name))


def _is_usual(test: ast.expr) -> bool:
    """A main guard, or whether there is a GPU at all."""
    if isinstance(test, ast.Compare):
        return dotted(test.left) == "__name__"
    name = dotted(test.func) if isinstance(test, ast.Call) else dotted(test)
    return bool(name) and bool(re.search("cuda|gpu", name or "", re.IGNORECASE))


def _uses_current(script: Script, cards: tuple[ast.expr, ...]) -> bool:
    """Whether something also goes to the current GPU, which nobody has set."""
    if any(isinstance(c, ast.Call) and _sets_current(script, c) for c in cards):
        return False
    return any(
        move.target is Target.CUDA and (move.device is None or _is_first(move.device))
        for move in script.moves
    )


def _sets_current(script: Script, call: ast.Call) -> bool:
    return script.index.qualified(call.func) in _SETTERS


def _is_first(device: ast.expr) -> bool:
    return isinstance(device, ast.Constant) and device.value in _FIRST


def _trains(script: Script) -> bool:
    """Whether the file trains, or a file that it imports does."""
    if script.training_loops:
        return True
    files = imported(script, script.index)
    return any("backward" in index.calls_by_name for index in files)


# Ranks


def unplaced_ranks(script: Script) -> tuple[ast.expr, list[ast.expr]] | None:
    """The wrapper of a model whose ranks all use the first GPU, and the moves there."""
    wrappers = script.index.calls.get(_WRAPPER, ())
    if not wrappers or not script.training_loops:
        return None
    moves = [move for move in script.moves if move.target is not Target.CPU]
    if not moves or not all(_goes_to_first(script, move.device) for move in moves):
        return None
    if any(i.source.has(_TAKES_RANK) for i in run_together(script)):
        return None
    return wrappers[0].func, [move.call for move in moves]


def _goes_to_first(script: Script, device: ast.expr | None) -> bool:
    """Whether a device is the current or first GPU, and surely no other."""
    if device is None:
        return True
    origins = script.resolver.origins(device)
    given = [o.expression for o in origins]
    return bool(given) and all(e is not None and _names_first(e) for e in given)


def _names_first(node: ast.expr) -> bool:
    """`"cuda"`, `torch.device("cuda:0")`, and these where there is a GPU."""
    texts = {n.value for n in walk(node) if isinstance(n, ast.Constant)}
    names = {n.id for n in walk(node) if isinstance(n, ast.Name)}
    return bool(texts & _FIRST) and texts <= _FIRST | {"cpu"} and len(names) <= 1
