"""Which definitions of a name can reach each place where it is read."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gpulint.index.build import FileIndex, Scope
from gpulint.index.walk import COMPREHENSIONS, FUNCTIONS, children, dotted

Kind = Literal[
    "assign", "augment", "parameter", "for", "with", "import", "function", "class",
    "except", "field",
]  # fmt: skip
Step = int | Literal["*", "key"]


@dataclass(eq=False, slots=True)
class Definition:
    """One place where a name, or an attribute such as `self.x`, gets a value.

    `value` is the expression it comes from: what is assigned, iterated (`for`),
    entered (`with`), added (`augment`), or a parameter's default; a `field` is what
    the call `node` of a dataclass unpacks into it. `path` leads from that value to this
    name by unpacking: `(1,)` for `y` in `x, y = pair`.
    """

    name: str
    node: ast.AST
    kind: Kind
    value: ast.expr | None = None
    path: tuple[Step, ...] = ()


Env = dict[str, tuple[Definition, ...]]

# On some path an attribute still has the value that it came with.
_AS_IT_WAS = Definition("", ast.Pass(), "assign")


class Flow:
    """Use-definition chains of one scope (function, lambda, class body or module).

    Branches are joined and loop bodies visited twice, so that a value from the end
    of an iteration reaches the start of the next one.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.uses: dict[ast.AST, tuple[Definition, ...]] = {}
        self.maybe_older: set[ast.AST] = set()  # attributes not set here on all paths
        self.definitions: defaultdict[str, list[Definition]] = defaultdict(list)
        # The names that a comprehension binds for itself alone.
        self.inner: dict[ast.AST, defaultdict[str, list[Definition]]] = {}
        self.outer: set[str] = set()  # declared global or nonlocal
        self.returns: list[ast.expr | None] = []
        self.yields: list[ast.expr] = []
        self._scope_names = self.definitions
        self._made: dict[tuple[int, tuple[Step, ...]], Definition] = {}
        self._owners: set[str] = set()  # names with attributes that are set here
        self._breaks: list[list[Env]] = []
        self._continues: list[list[Env]] = []
        env: Env = {}
        if isinstance(scope, FUNCTIONS):
            self._parameters(scope.args, env)
        if isinstance(scope, ast.Lambda):
            self._read(scope.body, env)
            self.returns.append(scope.body)
        else:
            self._block(scope.body, env)

    # Definitions

    def _define(
        self,
        env: Env,
        node: ast.AST,
        name: str,
        kind: Kind,
        value: ast.expr | None = None,
        path: tuple[Step, ...] = (),
    ) -> None:
        key = (id(node), path)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = Definition(name, node, kind, value, path)
            self._scope_names[name].append(made)
        if name in self._owners:
            prefix = name + "."
            for stale in [k for k in env if k.startswith(prefix)]:
                del env[stale]
        owner = name.rpartition(".")[0]
        while owner:
            self._owners.add(owner)
            owner = owner.rpartition(".")[0]
        env[name] = (made,)

    def _parameters(self, args: ast.arguments, env: Env) -> None:
        plain = [*args.posonlyargs, *args.args]
        defaults: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults))
        defaults.extend(args.defaults)
        pairs = list(zip(plain, defaults, strict=True))
        pairs += list(zip(args.kwonlyargs, args.kw_defaults, strict=True))
        for arg, default in pairs:
            self._define(env, arg, arg.arg, "parameter", default)
        for rest in (args.vararg, args.kwarg):
            if rest is not None:
                self._define(env, rest, rest.arg, "parameter", None, ("*",))

    def _bind(
        self,
        target: ast.AST,
        kind: Kind,
        value: ast.expr | None,
        env: Env,
        path: tuple[Step, ...] = (),
    ) -> None:
        if isinstance(target, ast.Name):
            self._define(env, target, target.id, kind, value, path)
        elif isinstance(target, (ast.Tuple, ast.List)):
            starred = False
            for number, item in enumerate(target.elts):
                starred = starred or isinstance(item, ast.Starred)
                step: Step = "*" if starred else number
                self._bind(item, kind, value, env, (*path, step))
        elif isinstance(target, ast.Starred):
            self._bind(target.value, kind, value, env, path)
        elif isinstance(target, ast.Attribute):
            self._read(target.value, env)
            name = dotted(target)
            if name is not None:
                self._define(env, target, name, kind, value, path)
        else:
            self._read(target, env)

    # Expressions

    def _read(self, node: ast.AST | None, env: Env) -> None:
        """Record which definitions reach the names below an expression."""
        if node is None:
            return
        kind = type(node)
        if kind is ast.Name:
            reaching = env.get(node.id)  # type: ignore[attr-defined]
            if reaching is not None:
                self._use(node, reaching)
        elif kind is ast.Attribute:
            name = dotted(node)
            if name is not None and name in env:
                self._use(node, env[name])
            self._read(node.value, env)  # type: ignore[attr-defined]
        elif kind is ast.Lambda:
            for default in node.args.defaults:  # type: ignore[attr-defined]
                self._read(default, env)
        elif kind is ast.Constant:
            return
        elif kind is ast.NamedExpr:
            self._read(node.value, env)  # type: ignore[attr-defined]
            self._bind(node.target, "assign", node.value, env)  # type: ignore[attr-defined]
        elif kind in COMPREHENSIONS:
            self._comprehension(node, env)
        elif isinstance(node, (ast.Yield, ast.YieldFrom)):
            if node.value is not None:
                self.yields.append(node.value)
                self._read(node.value, env)
        else:
            for child in children(node):
                self._read(child, env)

    def _use(self, node: ast.AST, reaching: tuple[Definition, ...]) -> None:
        if _AS_IT_WAS in reaching:
            self.maybe_older.add(node)
            reaching = tuple(d for d in reaching if d is not _AS_IT_WAS)
        known = self.uses.get(node)
        self.uses[node] = _join(known, reaching) if known else reaching

    def _comprehension(self, node: ast.AST, env: Env) -> None:
        inner = dict(env)
        for generator in node.generators:  # type: ignore[attr-defined]
            self._read(generator.iter, inner)
            self._scope_names = self.inner.setdefault(node, defaultdict(list))
            self._bind(generator.target, "for", generator.iter, inner)
            self._scope_names = self.definitions
            for test in generator.ifs:
                self._read(test, inner)
        for child in children(node):
            if not isinstance(child, ast.comprehension):
                self._read(child, inner)

    # Statements; each returns the environment after it, None when control leaves

    def _block(self, body: list[ast.stmt], env: Env | None) -> Env | None:
        for statement in body:
            if env is None:
                return None
            visit = _STATEMENTS.get(type(statement))
            if visit is not None:
                env = visit(self, statement, env)
            else:
                self._read(statement, env)
        return env

    def _assign(self, node: ast.Assign, env: Env) -> Env:
        self._read(node.value, env)
        for target in node.targets:
            self._bind_value(target, node.value, env)
        return env

    def _bind_value(self, target: ast.expr, value: ast.expr, env: Env) -> None:
        """`a, b = x, y` binds `a` to `x` and `b` to `y`."""
        pairwise = (
            isinstance(target, (ast.Tuple, ast.List))
            and isinstance(value, (ast.Tuple, ast.List))
            and len(target.elts) == len(value.elts)
            and not any(isinstance(e, ast.Starred) for e in target.elts + value.elts)
        )
        if pairwise:
            for item, its in zip(target.elts, value.elts, strict=True):  # type: ignore[attr-defined]
                self._bind_value(item, its, env)
        else:
            self._bind(target, "assign", value, env)

    def _ann_assign(self, node: ast.AnnAssign, env: Env) -> Env:
        if node.value is not None:
            self._read(node.value, env)
            self._bind(node.target, "assign", node.value, env)
        return env

    def _aug_assign(self, node: ast.AugAssign, env: Env) -> Env:
        self._read(node.value, env)
        target = dotted(node.target)
        if target is None:
            self._read(node.target, env)
            return env
        if target in env:
            self._use(node.target, env[target])
        before = env.get(target, ())
        self._define(env, node.target, target, "augment", node.value)
        env[target] = _join(env[target], before)
        return env

    def _if(self, node: ast.If, env: Env) -> Env | None:
        self._read(node.test, env)
        then = self._block(node.body, dict(env))
        otherwise = self._block(node.orelse, env)
        return _join_envs(then, otherwise)

    def _for(self, node: ast.For | ast.AsyncFor, env: Env) -> Env | None:
        self._read(node.iter, env)

        def enter(inner: Env) -> None:
            self._bind(node.target, "for", node.iter, inner)

        return self._loop(node, env, enter)

    def _while(self, node: ast.While, env: Env) -> Env | None:
        def enter(inner: Env) -> None:
            self._read(node.test, inner)

        return self._loop(node, env, enter)

    def _loop(
        self,
        node: ast.For | ast.AsyncFor | ast.While,
        env: Env,
        enter: Callable[[Env], None],
    ) -> Env | None:
        self._breaks.append([])
        self._continues.append([])
        start: Env | None = env
        for _ in range(2):
            inner = dict(start) if start is not None else {}
            enter(inner)
            end = self._block(node.body, inner)
            for early in self._continues[-1]:
                end = _join_envs(end, early)
            start = _join_envs(start, end)
        after = self._block(node.orelse, start)
        self._continues.pop()
        for early in self._breaks.pop():
            after = _join_envs(after, early)
        return after

    def _with(self, node: ast.With | ast.AsyncWith, env: Env) -> Env | None:
        for item in node.items:
            self._read(item.context_expr, env)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, "with", item.context_expr, env)
        return self._block(node.body, env)

    def _try(self, node: ast.Try, env: Env) -> Env | None:
        before = dict(env)
        end = self._block(node.body, env)
        broken = _join_envs(before, dict(end) if end is not None else None) or {}
        after = self._block(node.orelse, end)
        for handler in node.handlers:
            inner = dict(broken)
            if handler.name:
                self._define(inner, handler, handler.name, "except")
            after = _join_envs(after, self._block(handler.body, inner))
        if node.finalbody:
            if after is None:
                self._block(node.finalbody, dict(broken))
            else:
                after = self._block(node.finalbody, after)
        return after

    def _match(self, node: ast.Match, env: Env) -> Env | None:
        self._read(node.subject, env)
        after: Env | None = dict(env)
        for case in node.cases:
            inner = dict(env)
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self._define(inner, part, name, "assign")
            self._read(case.guard, inner)
            after = _join_envs(after, self._block(case.body, inner))
        return after

    def _definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, env: Env
    ) -> Env:
        for decorator in node.decorator_list:
            self._read(decorator, env)
        if isinstance(node, ast.ClassDef):
            for base in [*node.bases, *(k.value for k in node.keywords)]:
                self._read(base, env)
            self._define(env, node, node.name, "class")
        else:
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                self._read(default, env)
            self._define(env, node, node.name, "function")
        return env

    def _import(self, node: ast.Import | ast.ImportFrom, env: Env) -> Env:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._define(env, alias, name, "import")
        return env

    def _return(self, node: ast.Return, env: Env) -> None:
        self._read(node.value, env)
        self.returns.append(node.value)

    def _raise(self, node: ast.Raise, env: Env) -> None:
        self._read(node.exc, env)

    def _break(self, node: ast.Break, env: Env) -> None:
        if self._breaks:
            self._breaks[-1].append(dict(env))

    def _continue(self, node: ast.Continue, env: Env) -> None:
        if self._continues:
            self._continues[-1].append(dict(env))

    def _delete(self, node: ast.Delete, env: Env) -> Env:
        for target in node.targets:
            name = dotted(target)
            if name is None:
                self._read(target, env)
            else:
                env.pop(name, None)
        return env

    def _global(self, node: ast.Global | ast.Nonlocal, env: Env) -> Env:
        self.outer.update(node.names)
        return env


def _join(
    a: tuple[Definition, ...], b: tuple[Definition, ...]
) -> tuple[Definition, ...]:
    if a is b:
        return a
    return a + tuple(d for d in b if d not in a)


def _join_envs(a: Env | None, b: Env | None) -> Env | None:
    if a is None or b is None:
        return b if a is None else a
    joined = dict(a)
    for name, reaching in b.items():
        mine = joined.get(name, (_AS_IT_WAS,) if "." in name else ())
        joined[name] = _join(mine, reaching)
    for name, mine in a.items():
        if "." in name and name not in b:
            joined[name] = _join(mine, (_AS_IT_WAS,))
    return joined


_STATEMENTS: dict[type, Callable[[Flow, ast.AST, Env], Env | None]] = {
    ast.Assign: Flow._assign,  # type: ignore[dict-item]
    ast.AnnAssign: Flow._ann_assign,  # type: ignore[dict-item]
    ast.AugAssign: Flow._aug_assign,  # type: ignore[dict-item]
    ast.If: Flow._if,  # type: ignore[dict-item]
    ast.For: Flow._for,  # type: ignore[dict-item]
    ast.AsyncFor: Flow._for,  # type: ignore[dict-item]
    ast.While: Flow._while,  # type: ignore[dict-item]
    ast.With: Flow._with,  # type: ignore[dict-item]
    ast.AsyncWith: Flow._with,  # type: ignore[dict-item]
    ast.Try: Flow._try,  # type: ignore[dict-item]
    ast.Match: Flow._match,  # type: ignore[dict-item]
    ast.FunctionDef: Flow._definition,  # type: ignore[dict-item]
    ast.AsyncFunctionDef: Flow._definition,  # type: ignore[dict-item]
    ast.ClassDef: Flow._definition,  # type: ignore[dict-item]
    ast.Import: Flow._import,  # type: ignore[dict-item]
    ast.ImportFrom: Flow._import,  # type: ignore[dict-item]
    ast.Return: Flow._return,  # type: ignore[dict-item]
    ast.Raise: Flow._raise,  # type: ignore[dict-item]
    ast.Break: Flow._break,  # type: ignore[dict-item]
    ast.Continue: Flow._continue,  # type: ignore[dict-item]
    ast.Delete: Flow._delete,  # type: ignore[dict-item]
    ast.Global: Flow._global,  # type: ignore[dict-item]
    ast.Nonlocal: Flow._global,  # type: ignore[dict-item]
}
if hasattr(ast, "TryStar"):
    _STATEMENTS[ast.TryStar] = Flow._try  # type: ignore[assignment]


def enclosing_function(index: FileIndex, definition: Definition) -> ast.AST | None:
    """The function (or lambda) whose parameter a definition is."""
    arguments = index.parent(definition.node)
    function = index.parent(arguments) if arguments is not None else None
    return function if isinstance(function, FUNCTIONS) else None
