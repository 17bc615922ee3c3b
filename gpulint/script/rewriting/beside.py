"""Makes a new object beside the optimizer, and hands it to where it is used."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpulint.index import Definition, Function
from gpulint.index.walk import dotted
from gpulint.script.rewriting.edits import (
    CannotFix,
    Edit,
    InsertAfter,
    Replace,
    ReplaceCode,
)
from gpulint.script.rewriting.syntax import add_argument, set_keywords

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_CALLS = 4  # functions between the optimizer and the step


@dataclass
class Beside:
    """`make(statement)` gives the code to make the object after a statement.

    `reach` raises CannotFix where the way is not proven. `passed` are the functions
    that get it as a new parameter.
    """

    script: Script
    name: str
    make: Callable[[ast.stmt], str]
    edits: list[Edit] = field(default_factory=list)
    _anchors: set[ast.stmt] = field(default_factory=set)
    passed: set[ast.AST] = field(default_factory=set)

    def reach(self, user: ast.expr, depth: int = 0) -> str:
        """Code for the object where the optimizer is read as `user`."""
        text = self.script.text(user)
        definitions = self.script.resolver.definitions(user)
        if isinstance(user, ast.Attribute):
            self._in_class(user, definitions)
            assert isinstance(user.value, ast.Name)
            return f"{user.value.id}.{self.name}"
        kinds = {d.kind for d in definitions}
        if kinds == {"parameter"} and len(definitions) == 1 and depth < MAX_CALLS:
            self._through(definitions[0], depth)
        elif kinds == {"assign"} and not any(d.path for d in definitions):
            self._in_scope(user, definitions)
        else:
            raise CannotFix(f"`{text}` is not made in this file")
        return self.name

    def _in_class(
        self, user: ast.Attribute, definitions: tuple[Definition, ...]
    ) -> None:
        scope = self.script.index.scope(user)
        if dotted(user.value) != self.script.resolver.self_name(scope):
            raise CannotFix(f"`{self.script.text(user)}` belongs to another object")
        made = [d for d in definitions if d.kind == "assign" and not d.path]
        methods = {self.script.index.function(d.node) for d in made}
        if not made or len(made) != len(definitions) or len(methods) != 1:
            raise CannotFix(f"`{self.script.text(user)}` is not made once in this file")
        method = methods.pop()
        anchor = self._anchor(made)
        if method is None or method.name != "__init__" or anchor not in method.body:
            raise CannotFix(f"`{self.script.text(user)}` is not made in `__init__`")
        self._check_heirs(method)
        self._check_after(user, anchor)
        self._make(anchor, f"{self.script.resolver.self_name(method)}.{self.name}")

    def _check_heirs(self, init: Function) -> None:
        """No class of this file replaces the `__init__` that makes the optimizer."""
        resolver = self.script.resolver
        owner = self.script.index.parent(init)
        for heir in self.script.index.all(ast.ClassDef):
            if owner in resolver.classes.bases(heir) and (
                resolver.classes.methods(heir).get("__init__") is not init
            ):
                raise CannotFix(f"`{heir.name}` has an `__init__` of its own")

    def _in_scope(self, user: ast.expr, definitions: tuple[Definition, ...]) -> None:
        index = self.script.index
        scopes = {index.scope(d.node) for d in definitions}
        here = index.scope(user)
        scope = scopes.pop()
        if scopes or (scope is not here and not isinstance(scope, ast.Module)):
            raise CannotFix(f"`{self.script.text(user)}` is made in another function")
        anchor = self._anchor(list(definitions))
        self._check_after(user, anchor)
        self._make(anchor, self.name)

    def _anchor(self, definitions: list[Definition]) -> ast.stmt:
        """The statement after which every definition has run: one, or one `if`."""
        index = self.script.index
        statements = [index.statement(d.node) for d in definitions]
        if len(statements) == 1:
            return statements[0]
        chains = [[s, *index.ancestors(s)] for s in statements]
        for above in chains[0]:
            if all(above in chain for chain in chains[1:]):
                if isinstance(above, ast.If):
                    return above
                break
        raise CannotFix("the optimizer is made in several places")

    def _check_after(self, user: ast.expr, anchor: ast.stmt) -> None:
        if self.script.index.inside(user, anchor):
            text = self.script.text(user)
            raise CannotFix(f"`{text}` is made and used in one statement")

    def _make(self, anchor: ast.stmt, target: str) -> None:
        if anchor not in self._anchors:
            self._anchors.add(anchor)
            self.edits.append(InsertAfter(anchor, f"{target} = {self.make(anchor)}"))

    # Through parameters

    def _through(self, definition: Definition, depth: int) -> None:
        index = self.script.index
        function = index.parent(index.parent(definition.node) or definition.node)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            raise CannotFix("the step stands in a lambda")
        if function in self.passed:
            return
        self.passed.add(function)
        calls = self.script.resolver.calls.callers(function)
        self._check(function, calls)
        keyword = self._parameter(function)
        for call in calls:
            given = self._argument(function, definition.name, call)
            passed = self.reach(given, depth + 1)
            simple = not keyword and not call.keywords
            build = add_argument(passed) if simple else set_keywords(
                **{self.name: passed}
            )  # fmt: skip
            self.edits.append(Replace(call, build))

    def _check(self, function: Function, calls: list[ast.Call]) -> None:
        name = function.name
        if not calls:
            raise CannotFix(f"`{name}` is not called in this file")
        if function.decorator_list:
            raise CannotFix(f"`{name}` is decorated")
        if function.args.vararg or function.args.kwarg or function.args.kwonlyargs:
            raise CannotFix(f"`{name}` takes a variable number of arguments")
        index = self.script.index
        if sum(f.name == name for f in index.functions) > 1:
            raise CannotFix(f"there are several `{name}`")
        uses: list[ast.AST] = [n for n in index.all(ast.Name) if n.id == name]
        if self.script.resolver.self_name(function) is not None:
            uses += [n for n in index.all(ast.Attribute) if n.attr == name]
        callees = [c.func for c in calls]
        if any(use not in callees for use in uses):
            raise CannotFix(f"`{name}` is not only called")
        named = (c for c in index.all(ast.Constant) if c.value == name)
        if any(map(self._looks_up, named)):
            raise CannotFix(f"`{name}` is named in a string")
        if any(isinstance(a, ast.Starred) for c in calls for a in c.args) or any(
            k.arg is None for c in calls for k in c.keywords
        ):
            raise CannotFix(f"`{name}` is called with unpacked arguments")

    def _looks_up(self, name: ast.Constant) -> bool:
        """Whether a string finds a function: in `__all__`, `globals()`, `getattr`."""
        index = self.script.index
        above = index.parent(name)
        if isinstance(above, ast.Subscript):
            above = above.value
        if isinstance(above, ast.Call):
            return dotted(above.func) in ("globals", "locals", "vars", "getattr")
        statement = index.statement(name)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        return any(dotted(t) == "__all__" for t in targets)

    def _parameter(self, function: Function) -> bool:
        """Add the parameter; whether callers must name it."""
        args = [*function.args.posonlyargs, *function.args.args]
        last: ast.AST = args[-1]
        defaults = function.args.defaults
        if defaults:
            last = defaults[-1]
        text = self.script.text(last)
        extra = f"*, {self.name}" if defaults else self.name
        apart = len(args) > 1 and args[-1].lineno != args[-2].lineno
        joint = ",\n" if apart and not defaults else ", "
        self.edits.append(ReplaceCode(last, f"{text}{joint}{extra}"))  # type: ignore[arg-type]
        return bool(defaults)

    def _argument(self, function: Function, name: str, call: ast.Call) -> ast.expr:
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        names = [a.arg for a in [*function.args.posonlyargs, *function.args.args]]
        bound = self.script.resolver.self_name(function) is not None
        position = names.index(name) - bound
        if not 0 <= position < len(call.args):
            raise CannotFix(f"`{function.name}` is called without an optimizer")
        return call.args[position]
