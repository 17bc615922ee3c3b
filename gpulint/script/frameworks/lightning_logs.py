"""What Lightning modules log in each step: `self.log`, `self.log_dict`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Argument
from gpulint.script.frameworks.lightning import hooks_above, modules
from gpulint.script.reaching.doubtful import may_never_run

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Where releases before 2.0 have these too; what follows is given by keyword.
_POSITIONS = {"name": 0, "value": 1, "prog_bar": 2, "logger": 3}
_METHODS = frozenset({"log", "log_dict"})


@dataclass(frozen=True, eq=False)
class Log:
    """One call in a method of a Lightning module that hooks run in each step.

    `hooks`: which.
    """

    call: ast.Call
    owner: ast.ClassDef
    hooks: frozenset[str]
    script: Script

    @property
    def one(self) -> bool:
        """Whether it is `self.log`."""
        return (
            isinstance(self.call.func, ast.Attribute) and self.call.func.attr == "log"
        )

    @property
    def value(self) -> ast.expr | None:
        """What is logged: a value, or for `log_dict` the dict."""
        name, position = ("value", 1) if self.one else ("dictionary", 0)
        for keyword in self.call.keywords:
            if keyword.arg == name:
                return keyword.value
        starred = any(isinstance(a, ast.Starred) for a in self.call.args)
        known = not starred and len(self.call.args) > position
        return self.call.args[position] if known else None

    def argument(self, name: str) -> Argument:
        """An argument by keyword, position or through `**kwargs`."""
        position = _POSITIONS.get(name)
        if position is not None and not self.one:
            position -= 1
        return self.script.evaluator.argument(self.call, name, position)

    def is_sure(self, name: str, *constants: object) -> bool:
        """Whether an argument is given, and is one of some constants on every path."""
        argument = self.argument(name)
        known = [self.script.evaluator.values(n) for n in argument.nodes]
        return (
            argument.given and bool(known) and all(v.all_in(*constants) for v in known)
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names under which it logs, as far as they are written."""
        if self.one:
            nodes = self.argument("name").nodes
        else:
            nodes = tuple(
                key
                for key in (self.value.keys if isinstance(self.value, ast.Dict) else ())
                if key is not None
            )
        return tuple(str(n.value) for n in nodes if isinstance(n, ast.Constant))


def step_logs(script: Script) -> Iterator[Log]:
    """The calls that are made in each step, in a module that logs as Lightning does."""
    for owner in modules(script):
        methods = {
            m for its in script.resolver.classes.bases(owner) for m in _defined(its)
        }
        if methods & _METHODS:
            continue
        for call in script.index.all(ast.Call):
            if script.index.owner(call) is not owner or not is_own_log(script, call):
                continue
            hooks = hooks_above(script, call)
            if not hooks or script.runners.is_rare(call):
                continue
            if not may_never_run(script, call):
                yield Log(call, owner, hooks, script)


def is_own_log(script: Script, call: ast.Call) -> bool:
    """`self.log(…)`."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in _METHODS:
        return False
    own = script.resolver.self_name(script.index.scope(call))
    return isinstance(func.value, ast.Name) and func.value.id == own


def _defined(owner: ast.ClassDef) -> Iterator[str]:
    for item in owner.body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield item.name
