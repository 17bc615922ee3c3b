"""Whether a program sees one GPU alone: by what it sets, is told, or has by default."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Values
from gpulint.index.settings_file import Dialect
from gpulint.index.walk import dotted, walk_scope
from gpulint.script.branches import blocks_of
from gpulint.script.neighbours import programs

if TYPE_CHECKING:
    from gpulint.script.model import Script

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ONE = re.compile(r"(cuda:)?\d+")
_ONE_IN_TEXT = re.compile(r"[\[(]\s*\d+\s*,?\s*[\])]")  # how yacs writes a tuple


def leaves_one_card(script: Script) -> bool:
    """Whether a program that a file is a part of sees one GPU: `os.environ[…] = "2"`.

    Or an option does, whose default names one.
    """
    return any(
        is_visible_devices(target)
        and _names_one(script.of(assigned).evaluator.values(assigned.value))
        for index in programs(script)
        if _VISIBLE in index.source.text
        for assigned in index.all(ast.Assign)
        for target in assigned.targets
    )


def shows_one_card_before(script: Script, node: ast.AST) -> bool:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = str(gpus[0])`, in a block around, before.

    And nothing in between in the same function sets it again.
    """
    scope, row = script.index.scope(node), getattr(node, "lineno", 0)
    values = [
        (part.lineno, part, _value_of(script, part))
        for part in walk_scope(scope)
        if isinstance(part, (ast.Subscript, ast.keyword)) and _names_cards(script, part)
        if part.lineno < row
    ]
    if not values:
        return False
    _, last, value = max(values, key=lambda found: found[0])
    if value is None or not _is_one_number(script, value):
        return False
    statement = script.index.statement(last)
    around = {node, *script.index.ancestors(node)}
    return any(
        statement in block and not around.isdisjoint(block)
        for block in blocks_of(script.index.parent(statement))
    )


def _names_cards(script: Script, part: ast.Subscript | ast.keyword) -> bool:
    """`os.environ["CUDA_VISIBLE_DEVICES"]` that is set, also by `os.environ.update`."""
    if isinstance(part, ast.keyword):
        call = script.index.parent(part)
        updates = isinstance(call, ast.Call) and (
            script.index.qualified(call.func) == "os.environ.update"
        )
        return updates and part.arg == _VISIBLE
    return is_visible_devices(part) and isinstance(part.ctx, ast.Store)


def _value_of(script: Script, part: ast.Subscript | ast.keyword) -> ast.expr | None:
    above = script.index.parent(part)
    return above.value if isinstance(above, ast.Assign) else None


def _is_one_number(script: Script, value: ast.expr) -> bool:
    """`str(gpus[0])`, of a list that is no text of the command line; or one number."""
    picked = value.args[0] if isinstance(value, ast.Call) and value.args else None
    if isinstance(picked, ast.Subscript) and dotted(value.func) == "str":  # type: ignore[attr-defined]
        number = getattr(picked.slice, "value", None)
        return type(number) is int and (
            script.index.qualified(picked.value) != "sys.argv"
        )
    return _names_one(script.evaluator.values(value))


def is_visible_devices(target: ast.expr) -> bool:
    """`os.environ["CUDA_VISIBLE_DEVICES"]`."""
    key = target.slice if isinstance(target, ast.Subscript) else None
    return isinstance(key, ast.Constant) and key.value == _VISIBLE


def _names_one(values: Values) -> bool:
    constants = [value.constant for value in values.known]
    known = values.complete and len(constants) > 0
    return known and all(str(its).strip().isdigit() for its in constants)


def names_one_card(script: Script, call: ast.Call) -> bool:
    """`DataParallel(model, device_ids=[0])`: then it only calls the model.

    Or the program is shown one GPU alone before.
    """
    if shows_one_card_before(script, call):
        return True
    given = [k.value for k in call.keywords if k.arg == "device_ids"] + call.args[1:2]
    return any(
        isinstance(origin.node, (ast.List, ast.Tuple)) and _holds_one(origin.node)
        for node in given
        for origin in script.resolver.origins(node)
    ) or any(
        _is_one_by_default(script, dotted(node) or "")
        or _is_one_setting(script, node)
        or _is_one_in_files(script, node)
        for node in given
    )


def _is_one_setting(script: Script, node: ast.expr) -> bool:
    """Whether each dict of the project with a key `cfg["devices"]` has one there."""
    key = node.slice if isinstance(node, ast.Subscript) else None
    project = script.index.project
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return False
    paths = project.mentioning(f'"{key.value}":') if project is not None else ()
    files = [project.index(path) for path in paths if project is not None]
    known = [its for its in dict.fromkeys([script.index, *files]) if its is not None]
    found = [value for index in known for value in _values_in(index, key.value)]
    return bool(found) and all(map(_is_one, found))


def _is_one_in_files(script: Script, node: ast.expr) -> bool:
    """Whether `cfg.GPUS` is one card in each settings file, and where code sets it."""
    if isinstance(node, ast.Call) and dotted(node.func) == "list" and node.args:
        node = node.args[0]
    project = script.index.project
    if project is None or not isinstance(node, ast.Attribute):
        return False
    files = [
        index
        for path in project.having_keys([node.attr])
        for index in [project.settings(path, Dialect.SAFE)]
    ]
    writing = project.writing(node.attr)
    if writing is None:
        return False
    written = [
        above.value if isinstance(above, (ast.Assign, ast.AnnAssign)) else None
        for index in dict.fromkeys([script.index, *writing])
        for target in index.attribute_writes.get(node.attr, ())
        for above in [index.parent(target)]
    ]
    values = [v for index in files if index for v in _values_in(index, node.attr)]
    known = None not in files and bool(values)
    return known and all(map(_is_one, (*values, *written)))


def counts_one_card(script: Script, call: ast.Call) -> bool:
    """Whether each settings file says 1: `device_ids=list(range(config["n_gpu"]))`.

    What is there at most (`torch.cuda.device_count()`) may bound it.
    """
    given = [k.value for k in call.keywords if k.arg == "device_ids"] + call.args[1:2]
    counts = [
        _count(origin.expression)
        for node in given
        for origin in script.resolver.origins(node)
    ]
    if not counts or None in counts:
        return False
    origins = [o for count in counts if count for o in script.resolver.origins(count)]
    read = [o.expression for o in origins if not _is_bound(script, o.expression)]
    return bool(read) and all(_is_one_in_each_file(script, node) for node in read)


def _count(cards: ast.expr | None) -> ast.expr | None:
    """`n` of `range(n)` and `list(range(n))`."""
    while isinstance(cards, ast.Call) and len(cards.args) == 1 and not cards.keywords:
        if dotted(cards.func) == "range":
            return cards.args[0]
        cards = cards.args[0] if dotted(cards.func) == "list" else None
    return None


def _is_bound(script: Script, count: ast.expr | None) -> bool:
    """Whether a number of cards is 0, 1 or all that there are."""
    if isinstance(count, ast.Call):
        return script.index.qualified(count.func) == "torch.cuda.device_count"
    return isinstance(count, ast.Constant) and count.value in (0, 1)


def _is_one_in_each_file(script: Script, read: ast.expr | None) -> bool:
    """Whether a key of settings is 1 in each file, and no code or option sets it."""
    project, name = script.index.project, _key(read)
    if project is None or name is None or project.mentions(f"--{name}"):
        return False
    if project.writing(name) != [] or any(
        index is None or _sets(index, name)
        for index in map(project.index, project.saying(name))
    ):
        return False
    paths = project.having_keys([name])
    files = [project.settings(path, Dialect.SAFE) for path in paths]
    values = [v for index in files if index for v in _values_in(index, name)]
    return (
        None not in files
        and bool(values)
        and all(isinstance(v, ast.Constant) and v.value in (0, 1) for v in values)
    )


def _key(read: ast.expr | None) -> str | None:
    """`n_gpu` of `config["n_gpu"]` and `config.n_gpu`."""
    if isinstance(read, ast.Attribute):
        return read.attr
    key = read.slice if isinstance(read, ast.Subscript) else None
    name = key.value if isinstance(key, ast.Constant) else None
    return name if isinstance(name, str) else None


def _sets(index: FileIndex, name: str) -> bool:
    """Whether a file sets `config["n_gpu"]`, to something else than what it was."""
    return any(
        isinstance(target, ast.Subscript)
        and _key(target) == name
        and _key(assigned.value) != name
        for assigned in index.all(ast.Assign)
        for target in assigned.targets
    )


def _values_in(index: FileIndex, key: str) -> Iterator[ast.expr]:
    for written in index.all(ast.Dict):
        for name, value in zip(written.keys, written.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                yield value


def _is_one(value: ast.expr | None) -> bool:
    """`[0]`, `(0,)`, and what yacs reads as such: "(0,)"."""
    if isinstance(value, (ast.List, ast.Tuple)):
        return _holds_one(value)
    text = value.value if isinstance(value, ast.Constant) else None
    return isinstance(text, str) and _ONE_IN_TEXT.fullmatch(text) is not None


def _holds_one(cards: ast.List | ast.Tuple) -> bool:
    return len(cards.elts) == 1 and not isinstance(cards.elts[0], ast.Starred)


def _is_one_by_default(script: Script, name: str) -> bool:
    """Whether the option that `opt.gpu_ids` is made of has one card as its default."""
    project, option = script.index.project, name.rpartition(".")[2]
    paths = project.mentioning(f"--{option}") if project is not None and option else []
    files = [script.index, *(project.index(p) for p in paths if project is not None)]
    defaults = [
        keyword.value
        for index in files
        if index is not None
        for call in index.calls_by_name.get("add_argument", ())
        if any(getattr(a, "value", None) == f"--{option}" for a in call.args)
        for keyword in call.keywords
        if keyword.arg == "default"
    ]
    ones = [
        node.elts[0]
        if isinstance(node, (ast.List, ast.Tuple)) and _holds_one(node)
        else node
        for node in defaults
    ]
    return bool(ones) and all(
        isinstance(node, ast.Constant) and _ONE.fullmatch(str(node.value))
        for node in ones
    )
