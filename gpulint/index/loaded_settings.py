"""Settings files that a script loads: YAML and JSON by path, hydra by its names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index.build import FileIndex, Function, last_name
from gpulint.index.flow import Definition
from gpulint.index.known import Mapping
from gpulint.index.matching_settings import matching
from gpulint.index.paths import candidates
from gpulint.index.settings_file import Dialect

if TYPE_CHECKING:
    from gpulint.index.project import Project
    from gpulint.index.values import Evaluator

_LOADS = {
    "yaml.safe_load": Dialect.SAFE,
    "yaml.load": Dialect.SAFE,
    "yaml.full_load": Dialect.SAFE,
    "yaml.unsafe_load": Dialect.SAFE,
    "json.load": Dialect.JSON,
    "json.loads": Dialect.JSON,
    "omegaconf.OmegaConf.load": Dialect.OMEGACONF,
    "OmegaConf.load": Dialect.OMEGACONF,
}
_OPENS = frozenset("open read read_text decode Path".split())


class LoadedSettings:
    """The contents of settings files, where it is clear which file is read."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.resolver = evaluator.resolver
        self.index = evaluator.index
        self._known: dict[ast.Call, ast.expr | None] = {}
        self._matching: dict[ast.Call, list[ast.expr]] = {}
        self.matched: set[FileIndex] = set()  # files of which any may be the one

    def loaded(self, call: ast.Call) -> list[Mapping]:
        """What `yaml.safe_load(open(path))` may give; empty where it is not known."""
        return [self.evaluator.mapping(root) for root in self.roots(call)]

    def roots(self, call: ast.Call) -> list[ast.expr]:
        """The value of the file that a call loads, else of those with its keys."""
        root = self.root(call)
        if root is not None:
            return [root]
        dialect = _LOADS.get(self.index.qualified(call.func) or "")
        if dialect is None:
            return []
        if call not in self._matching:
            self._matching[call] = []  # a cycle adds nothing
            unnamed = call.args and not self._files(call.args[0])
            found = matching(self.resolver, call, dialect) if unnamed else []
            self._matching[call] = found
            self.matched.update(self.index.home(node) for node in found)
        return self._matching[call]

    def is_matched(self, node: ast.AST) -> bool:
        """Whether a value is of a file that only its keys speak for."""
        return bool(self.matched) and self.index.home(node) in self.matched

    def root(self, call: ast.Call) -> ast.expr | None:
        """The value of the file that a call loads; None where none can be named."""
        dialect = _LOADS.get(self.index.qualified(call.func) or "")
        if dialect is None or not call.args:
            return None
        if call not in self._known:
            self._known[call] = None  # a cycle adds nothing
            roots = list(self._roots(call.args[0], dialect))
            self._known[call] = roots[0] if len(roots) == 1 else None
        return self._known[call]

    def _roots(self, node: ast.expr, dialect: Dialect) -> Iterator[ast.expr]:
        project = self.index.project
        for path in self._files(node) if project is not None else ():
            assert project is not None
            index = project.settings(path, dialect)
            if index is not None:
                yield root_of(index)

    def _files(self, node: ast.expr, depth: int = 0) -> list[Path]:
        """The existing file that a path, or an open file, is: none if not clear."""
        home = self.index.home(node)
        if home.project is None or depth > 4:
            return []
        for origin in self.resolver.origins(node):
            call = origin.call
            if call is not None and last_name(call) in _OPENS:
                inner = call.args[0] if call.args else None
                if last_name(call) != "open" or inner is None or _is_mode(inner):
                    inner = getattr(call.func, "value", inner)
                if inner is not None:
                    found = self._files(inner, depth + 1)
                    if found:
                        return found
        return self._existing(home, node)

    def _existing(self, home: FileIndex, node: ast.expr) -> list[Path]:
        assert home.project is not None
        project = home.project
        paths = candidates(home, node, project.root)
        values = self.evaluator.values(node)
        for value in values.known if values.complete and not paths else ():
            if isinstance(value.constant, str):
                text = ast.Constant(value.constant)
                paths += candidates(home, text, project.root)
        return [p for p in dict.fromkeys(paths) if project.is_file(p)][:1]

    # hydra

    def given(self, function: Function, definition: Definition) -> Mapping | None:
        """The settings that `@hydra.main` passes to a function's first parameter."""
        if not function.args.args or function.args.args[0] is not definition.node:
            return None
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and last_name(decorator) == "main":
                name = self.index.qualified(decorator.func) or ""
                if name.startswith("hydra"):
                    return self._hydra(decorator)
        return None

    def _hydra(self, call: ast.Call) -> Mapping | None:
        home = self.index.home(call)
        keywords = {k.arg: k.value for k in call.keywords}
        texts = [
            self.evaluator.constant(keywords[n]) if n in keywords else None
            for n in ("config_path", "config_name")
        ]
        folder, name = texts
        if home.project is None or not isinstance(name, str):
            return None
        base = home.source.path.parent / (folder if isinstance(folder, str) else ".")
        return self._composed(home, base, name.removesuffix(".yaml"), 0)

    def _composed(
        self, home: FileIndex, base: Path, name: str, depth: int
    ) -> Mapping | None:
        """One file of a hydra folder with what its `defaults` list puts in it."""
        assert home.project is not None
        path, index = _load(home.project, Path(f"{base / name}.yaml"))
        if index is None or depth > 6:
            return None
        own = self.evaluator.mapping(root_of(index))
        items: dict[str, list[ast.expr]] = {}
        for group, option in _defaults(own):
            folder = base if depth == 0 else path.parent
            inner = Path(f"{folder / group / option}.yaml")
            its = _load(home.project, inner)[1]
            if its is not None:
                items.setdefault(group, []).append(root_of(its))
        for key, nodes in own.items.items():
            items[key] = [*nodes] if key not in items else [*items[key], *nodes]
        return Mapping(items, own.maybe, complete=False)


def _load(project: Project, path: Path) -> tuple[Path, FileIndex | None]:
    """A file of a hydra folder, where its links lead to."""
    if not project.is_file(path):
        return path, None
    path = path.resolve()
    return path, project.settings(path, Dialect.OMEGACONF)


def root_of(index: FileIndex) -> ast.expr:
    """The value that a settings file holds."""
    statement = index.tree.body[0]
    assert isinstance(statement, ast.Expr)
    return statement.value


def is_settings(index: FileIndex) -> bool:
    """Whether an index is that of a settings file."""
    return index.source.path.suffix in (".yaml", ".yml", ".json")


def _is_mode(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("r", "rb", "rt")


def _defaults(mapping: Mapping) -> Iterator[tuple[str, str]]:
    """`- data: mnist` of a `defaults` list, as group and option."""
    for node in mapping.items.get("defaults", ()):
        for item in node.elts if isinstance(node, ast.List) else ():
            if not isinstance(item, ast.Dict) or len(item.keys) != 1:
                continue
            key, value = item.keys[0], item.values[0]
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                words = str(key.value).split()
                if value.value is not None and words[0] != "override":
                    yield words[-1].lstrip("/"), str(value.value).removesuffix(".yaml")
