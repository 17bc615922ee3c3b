"""Uses of `torch.cuda.amp` and `torch.cpu.amp`, and the imports they come by."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpulint.index import FileIndex, Resolver
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.script.model import Script

Role = Literal["call", "decorator", "check", "value"]
Import = ast.Import | ast.ImportFrom

_OLD = re.compile(
    r"torch\.(?P<device>cuda|cpu)\.amp(\.\w+)?"
    r"\.(?P<name>autocast|GradScaler|custom_fwd|custom_bwd)"
)
_OLD_MODULE = re.compile(r"torch\.(cuda|cpu)\.amp(\.(autocast_mode|grad_scaler))?")
_NAMES = frozenset("autocast GradScaler custom_fwd custom_bwd".split())


@dataclass(frozen=True, eq=False)
class Use:
    """A place where an old name is read.

    `node` is the name as written, `call` the call of it. `statement` binds it; None
    where it is written out from `torch`.
    """

    node: ast.expr
    name: str
    device: str
    role: Role
    call: ast.Call | None
    statement: Import | None

    @property
    def written(self) -> str:
        """The full old name, `torch.cuda.amp.autocast`."""
        return f"torch.{self.device}.amp.{self.name}"


class OldAmp:
    """The uses in one file, annotations and fallbacks for an older torch left out."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.index: FileIndex = resolver.index
        self._bound = self._bindings()
        self.uses = tuple(self._uses())

    def group(self, statement: Import) -> list[Use]:
        """All uses of what one import binds."""
        return [use for use in self.uses if use.statement is statement]

    def _bindings(self) -> dict[str, list[tuple[Import, str]]]:
        """Each imported name with the statements that bind it, and to what."""
        found: dict[str, list[tuple[Import, str]]] = {}
        for plain in self.index.all(ast.Import):
            for alias in plain.names:
                head = alias.name.partition(".")[0]
                its = alias.name if alias.asname else head
                found.setdefault(alias.asname or head, []).append((plain, its))
        for origin in self.index.all(ast.ImportFrom):
            for alias in origin.names:
                its = f"{'.' * origin.level}{origin.module or ''}.{alias.name}"
                found.setdefault(alias.asname or alias.name, []).append((origin, its))
        return found

    def _uses(self) -> list[Use]:
        nodes: list[ast.Attribute | ast.Name] = [
            *self.index.all(ast.Attribute),
            *self.index.all(ast.Name),
        ]
        found = []
        for node in sorted(nodes, key=lambda n: (n.lineno, n.col_offset)):
            match = _OLD.fullmatch(self.index.qualified(node) or "")
            if match and isinstance(node.ctx, ast.Load):
                use = self._use(node, match["name"], match["device"])
                if use is not None:
                    found.append(use)
        return found

    def _use(self, node: ast.expr, name: str, device: str) -> Use | None:
        if self._is_annotation(node) or self._is_fallback(node):
            return None
        head = (dotted(node) or "").partition(".")[0]
        statement: Import | None = None
        for binding, its in self._bound.get(head, ()):
            if its.startswith(("torch.cuda.amp", "torch.cpu.amp")):
                statement = binding
        if head in self.index.bound_names and not self._is_imported(node):
            return None
        if statement is not None and self._newer_exists(head):
            return None
        parent = self.index.parent(node)
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        return Use(node, name, device, self._role(node, name, call), call, statement)

    def _is_imported(self, node: ast.expr) -> bool:
        """Whether the first name of a chain can be an import where it is read."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return any(d.kind == "import" for d in self.resolver.definitions(node))

    def _newer_exists(self, name: str) -> bool:
        """Whether the name is bound to the new API as well: the old is a fallback."""
        return any(
            its.startswith(("torch.amp", "torch.autocast"))
            for _, its in self._bound.get(name, ())
        )

    def _role(self, node: ast.expr, name: str, call: ast.Call | None) -> Role:
        if call is not None:
            return "call"
        parent = self.index.parent(node)
        if name.startswith("custom_") and node in getattr(parent, "decorator_list", ()):
            return "decorator"
        above = self.index.ancestors(node)
        holder = next(a for a in above if isinstance(a, (ast.Call, ast.stmt)))
        checks = isinstance(holder, ast.Call) and dotted(holder.func) in _CHECKS
        return "check" if checks else "value"

    def _is_annotation(self, node: ast.AST) -> bool:
        child = node
        for above in self.index.ancestors(node):
            if isinstance(above, ast.arg):
                return True
            parts = ("annotation", "returns")
            if any(getattr(above, part, None) is child for part in parts):
                return True
            if isinstance(above, ast.stmt):
                break
            child = above
        return False

    def _is_fallback(self, node: ast.AST) -> bool:
        """Whether a test of the version, or a failed attempt, leads here."""
        for above in self.index.ancestors(node):
            if isinstance(above, ast.ExceptHandler):
                return True
            if isinstance(above, (ast.If, ast.IfExp)) and _tests_version(above.test):
                return True
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                return False
        return False

    def why_not_moved(self, statement: Import) -> str | None:
        """Why an import of old names cannot be changed to `torch.amp`; None: it can."""
        parent = self.index.parent(statement)
        if isinstance(parent, (ast.Try, ast.If, ast.ExceptHandler)):
            return "the import is tried or conditional"
        for name, bindings in self._bound.items():
            mine = any(binding is statement for binding, _ in bindings)
            if mine and (len(bindings) > 1 or name in self.index.bound_names):
                return f"`{name}` is bound more than once"
            if mine and self._is_exported(name):
                return f"`{name}` is exported by `__all__`"
        odd = [u for u in self.group(statement) if u.role in ("value", "check")]
        if odd:
            return f"`{odd[0].name}` is passed on without being called here"
        if isinstance(statement, ast.Import) and len(statement.names) > 1:
            return "the import statement brings other modules too"
        return None

    def _is_exported(self, name: str) -> bool:
        return any(
            isinstance(node.value, str) and node.value == name and self._in_all(node)
            for node in self.index.all(ast.Constant)
        )

    def _in_all(self, node: ast.AST) -> bool:
        statement = self.index.statement(node)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        return any(dotted(t) == "__all__" for t in targets)


_CHECKS = frozenset("isinstance issubclass".split())

# `torch.__version__`, `TORCH_2_4`, `hasattr(torch.amp, …)`
_VERSION = re.compile(r"version|torch_?\d|^hasattr$", re.IGNORECASE)


def _tests_version(test: ast.expr) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Name) and _VERSION.search(node.id):
            return True
        if isinstance(node, ast.Attribute) and _VERSION.search(node.attr):
            return True
    return False


def moved_import(statement: Import) -> str:
    """The import that brings the new names, and what else the old one brought."""
    if isinstance(statement, ast.Import):
        return f"import torch.amp as {statement.names[0].asname}"
    moved = [a for a in statement.names if _moves(statement, a)]
    kept = [a for a in statement.names if a not in moved]
    whole = statement.module in ("torch.cuda", "torch.cpu")
    lines = [_from("torch" if whole else "torch.amp", moved)]
    if kept:
        lines.append(_from(statement.module or "", kept))
    return "\n".join(lines)


def _moves(statement: ast.ImportFrom, alias: ast.alias) -> bool:
    if statement.module in ("torch.cuda", "torch.cpu"):
        return alias.name == "amp"
    return bool(_OLD_MODULE.fullmatch(statement.module or "")) and alias.name in _NAMES


def _from(module: str, names: list[ast.alias]) -> str:
    listed = ", ".join(f"{a.name} as {a.asname}" if a.asname else a.name for a in names)
    return f"from {module} import {listed}"


def takes_dtype(script: Script, use: Use) -> bool:
    """Whether the new `autocast` could take another dtype from a region around it."""
    if use.name != "autocast" or use.call is None:
        return False
    given = {k.arg: k.value for k in use.call.keywords}
    enabled = [*use.call.args[:1], *(v for k, v in given.items() if k == "enabled")]
    off = any(isinstance(e, ast.Constant) and e.value is False for e in enabled)
    if off or "dtype" in given or None in given or len(use.call.args) > 1:
        return False
    owner = script.index.owner(use.node)
    if owner is not None and script.modules.is_module_class(owner):
        return True
    if _sets_dtype(script):
        return True
    decorates = use.call in getattr(script.index.parent(use.call), "decorator_list", ())
    top = isinstance(script.index.scope(use.node), ast.Module) and not decorates
    return not (top or script.loops_around(use.node) or script.step_loop(use.node))


def _sets_dtype(script: Script) -> bool:
    """Whether the file chooses a dtype for autocast somewhere."""
    calls = script.index.calls
    if any(name.startswith("torch.set_autocast") for name in calls):
        return True
    return any(
        keyword.arg == "dtype"
        for name in (
            "torch.autocast",
            "torch.cuda.amp.autocast",
            "torch.cpu.amp.autocast",
        )
        for call in calls.get(name, ())
        for keyword in call.keywords
    )
