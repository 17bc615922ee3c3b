"""Puts the scaler's state into checkpoints that hold the optimizer's, and back."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted
from gpulint.script.rewriting.edits import CannotFix, Edit, InsertAfter, ReplaceCode

if TYPE_CHECKING:
    from gpulint.script.model import Script

WIDTH = 88
_OPTIMIZER = re.compile(r"optim|(^|_)opt", re.IGNORECASE)


def saved_states(script: Script) -> list[ast.Attribute]:
    """The places where the state of an optimizer is asked for."""
    return [
        node
        for node in script.index.all(ast.Attribute)
        if node.attr == "state_dict" and _OPTIMIZER.search(script.text(node.value))
    ]


def lacks_state(script: Script, state: ast.Attribute) -> str:
    """Why a rewrite that leaves a checkpoint as it is would not do."""
    text = script.text(state)
    return f"a checkpoint holds `{text}()` and would lack the scaler's state"


class ScalerCheckpoints:
    """The edits for one scaler; CannotFix for checkpoints of any other form.

    A checkpoint is a dict that is written out and goes into `torch.save` alone, and
    is read back by its keys. One that is older loads as before. The scaler's state is
    kept with that of the first of its optimizers.
    """

    def __init__(self, script: Script, optimizers: list[ast.expr], name: str) -> None:
        self.script = script
        self.index = script.index
        self.name = name
        self.made = [{o.node for o in script.resolver.origins(x)} for x in optimizers]

    def edits(self, reach: Callable[[ast.expr], str]) -> Iterator[Edit]:
        """`reach` gives code for the scaler where the optimizer is read."""
        states = saved_states(self.script)
        mine = [state for state in states if self._is_first(state)]
        if states and not mine:
            raise CannotFix(lacks_state(self.script, states[0]))
        for state in mine:
            yield self._saved(state, reach(state.value))
        for call in self._restored() if states else ():
            assert isinstance(call.func, ast.Attribute)
            if self._is_first(call.func):
                yield self._loaded(call, reach(call.func.value))

    def _is_first(self, attribute: ast.Attribute) -> bool:
        """Whether the first optimizer is meant; CannotFix for one that is unknown."""
        its = {o.node for o in self.script.resolver.origins(attribute.value)}
        if not its or not any(its <= made for made in self.made):
            raise CannotFix(lacks_state(self.script, attribute))
        return its <= self.made[0]

    # Saving

    def _saved(self, state: ast.Attribute, scaler: str) -> Edit:
        """The scaler's state as the next entry of the dict."""
        call = self.index.parent(state)
        entries = self.index.parent(call) if call is not None else None
        if (
            not isinstance(call, ast.Call)
            or not isinstance(entries, ast.Dict)
            or call not in entries.values
            or not self._is_only_saved(entries)
        ):
            raise CannotFix(lacks_state(self.script, state))
        keys = [k.value for k in entries.keys if isinstance(k, ast.Constant)]
        if len(keys) != len(entries.keys) or self.name in keys:
            raise CannotFix(f"`{self.name}` may be a key of a checkpoint")
        return self._with_entry(entries, call, f'"{self.name}": {scaler}.state_dict()')

    def _with_entry(self, entries: ast.Dict, call: ast.Call, entry: str) -> Edit:
        written = f"{self.script.text(call)}, {entry}"
        key = entries.keys[entries.values.index(call)]
        assert key is not None
        if entries.lineno == entries.end_lineno:
            if len(self.script.source.line(call.lineno)) + len(entry) + 2 <= WIDTH:
                return ReplaceCode(call, written)
            lines = [
                f"{self.script.text(k)}: {self.script.text(v)}"
                for k, v in zip(entries.keys, entries.values, strict=True)
                if k is not None
            ]
            lines.insert(entries.values.index(call) + 1, entry)
            inside = "".join(f"    {line},\n" for line in lines)
            return ReplaceCode(entries, f"{{\n{inside}}}")
        line = self.script.source.line(key.lineno)
        before = line[: key.col_offset]
        if before.strip():
            return ReplaceCode(call, written)
        first = self.script.source.line(call.lineno)
        indent = first[: len(first) - len(first.lstrip())]
        deeper = before.removeprefix(indent)
        if "#" in self.script.source.line(call.end_lineno or 0)[call.end_col_offset :]:
            return ReplaceCode(key, f"{entry},\n{deeper}{self.script.text(key)}")
        return ReplaceCode(call, f"{self.script.text(call)},\n{deeper}{entry}")

    def _is_only_saved(self, entries: ast.Dict) -> bool:
        above = self.index.parent(entries)
        if isinstance(above, ast.Call):
            return self._saves(above, entries)
        target = above.targets[0] if isinstance(above, ast.Assign) else None
        if not isinstance(target, ast.Name) or not isinstance(above, ast.Assign):
            return False
        flow = self.script.resolver.flow(self.index.scope(target))
        made = [d for d in flow.definitions.get(target.id, ()) if d.node is target]
        uses = [use for d in made for use in self.script.uses(d)]
        return len(above.targets) == 1 and bool(uses) and all(map(self._only, uses))

    def _only(self, use: ast.AST) -> bool:
        """A use of a checkpoint: it is saved, or an entry is set or read."""
        above = self.index.parent(use)
        if isinstance(above, ast.Subscript):
            return above.value is use
        return isinstance(above, ast.Call) and self._saves(above, use)

    def _saves(self, call: ast.Call, given: ast.AST) -> bool:
        """`torch.save(state, path)`, or a function of this file that only does so."""
        if given not in call.args:
            return False
        if self.index.qualified(call.func) == "torch.save":
            return call.args[0] is given
        function = self.script.resolver.calls.callee(call)
        if function is None or not self.index.holds(function):
            return False
        names = [*function.args.posonlyargs, *function.args.args]
        bound = self.script.resolver.self_name(function) is not None
        position = call.args.index(given) + bound
        if position >= len(names):
            return False
        flow = self.script.resolver.flow(function)
        made = flow.definitions.get(names[position].arg, ())
        uses = [use for use, found in flow.uses.items() if set(found) & set(made)]
        return len(made) == 1 and bool(uses) and all(map(self._saves_directly, uses))

    def _saves_directly(self, use: ast.AST) -> bool:
        above = self.index.parent(use)
        return (
            isinstance(above, ast.Call)
            and self.index.qualified(above.func) == "torch.save"
            and above.args[:1] == [use]
        )

    # Loading

    def _restored(self) -> list[ast.Call]:
        """The calls that give an optimizer its state back."""
        return [
            call
            for call in self.index.all(ast.Call)
            if isinstance(call.func, ast.Attribute)
            and call.func.attr == "load_state_dict"
            and _OPTIMIZER.search(self.script.text(call.func.value))
        ]

    def _loaded(self, call: ast.Call, scaler: str) -> Edit:
        """The scaler's state back, where the checkpoint has any."""
        statement = self.index.statement(call)
        state = call.args[0] if len(call.args) == 1 and not call.keywords else None
        if (
            not isinstance(state, ast.Subscript)
            or not isinstance(state.slice, ast.Constant)
            or not isinstance(state.value, ast.Name)
            or self.index.parent(call) is not statement
            or not self._is_loaded(state.value)
        ):
            raise CannotFix(f"`{self.script.text(call)}` restores it in another form")
        held = state.value.id
        lines = (
            f'if {held}.get("{self.name}"):',
            f'    {scaler}.load_state_dict({held}["{self.name}"])',
        )
        return InsertAfter(statement, "\n".join(lines))

    def _is_loaded(self, name: ast.Name) -> bool:
        """Whether a name is what `torch.load` gives, which is a dict of states."""
        made = self.script.resolver.definitions(name)
        return bool(made) and all(
            isinstance(d.value, ast.Call)
            and not d.path
            and (dotted(d.value.func) or "").rpartition(".")[2] == "load"
            for d in made
        )
