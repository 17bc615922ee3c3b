"""The LibCST tree of a file, its positions, and the node for an `ast` node."""

from __future__ import annotations

import ast
import contextlib
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, TypeVar

import libcst as cst
from libcst._nodes.internal import CodegenState

from gpulint.script.edits import Build
from gpulint.source import Source, SourceError, node_span

STACK_BYTES = 512 * 1024 * 1024
RECURSION_LIMIT = 20_000
T = TypeVar("T")

_CLASSES: dict[type[ast.AST], tuple[type[cst.CSTNode], ...]] = {
    ast.Call: (cst.Call,),
    ast.Name: (cst.Name,),
    ast.Attribute: (cst.Attribute,),
    ast.Subscript: (cst.Subscript,),
    ast.keyword: (cst.Arg,),
    ast.Dict: (cst.Dict,),
}


class _Recorder(CodegenState):
    """A code generation that notes between which tokens each node stands."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline)
        self.outer: dict[cst.CSTNode, tuple[int, int]] = {}
        self.inner: list[tuple[cst.CSTNode, int, int]] = []
        self._open: list[int] = []

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._open.append(len(self.tokens))

    def after_codegen(self, node: cst.CSTNode) -> None:
        self.outer[node] = (self._open.pop(), len(self.tokens))

    @contextlib.contextmanager
    def record_syntactic_position(
        self, node: cst.CSTNode, *, start_node: Any = None, end_node: Any = None
    ) -> Iterator[None]:
        start = len(self.tokens)
        yield
        self.inner.append((node, start, len(self.tokens)))


class Tree:
    """A parsed file. `span(node)` includes a node's own parentheses."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.module = with_deep_stack(lambda: cst.parse_module(source.text))
        recorder = _Recorder(self.module)
        with_deep_stack(lambda: self.module._codegen(recorder))
        if "".join(recorder.tokens) != source.text:
            raise SourceError("not analysed: the parser does not give the text back")
        offsets = [0, *accumulate(map(len, recorder.tokens))]
        last = len(offsets) - 1
        self._outer = recorder.outer
        self._offsets = offsets
        self._last = last
        self._by_span: dict[tuple[int, int], list[cst.CSTNode]] = defaultdict(list)
        for node, start, end in recorder.inner:
            key = (offsets[min(start, last)], offsets[min(end, last)])
            self._by_span[key].append(node)

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Offsets of the text that code generation of this node gives back."""
        start, end = self._outer[node]
        return self._offsets[min(start, self._last)], self._offsets[
            min(end, self._last)
        ]

    def find(self, node: ast.expr | ast.keyword) -> cst.CSTNode:
        """The LibCST node of an `ast` expression or keyword argument.

        LookupError where there is none: an internal error, never a skip.
        """
        key = node_span(self.source, node)
        wanted = _CLASSES.get(type(node), (cst.BaseExpression,))
        for found in self._by_span.get(key, ()):
            if isinstance(found, wanted):
                return found
        place = f"{self.source.path}:{node.lineno}:{node.col_offset + 1}"
        raise LookupError(f"{place}: no LibCST node for {type(node).__name__}")

    def rebuilt(
        self, node: cst.CSTNode, builds: dict[cst.CSTNode, Build], indent: str
    ) -> str:
        """The text of a node after builders, in a statement indented by `indent`."""
        new = node.visit(_Builder(builds))
        assert isinstance(new, cst.CSTNode), "an expression cannot be removed"
        return self._code(new, indent)

    def _code(self, node: cst.CSTNode, indent: str) -> str:
        state = CodegenState(self.module.default_indent, self.module.default_newline)
        state.increase_indent(indent)
        with_deep_stack(lambda: node._codegen(state))
        return "".join(state.tokens)


class _Builder(cst.CSTTransformer):
    """Applies builders bottom-up, each to the node as its children left it."""

    def __init__(self, builds: dict[cst.CSTNode, Build]) -> None:
        super().__init__()
        self.builds = builds

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        build = self.builds.get(original_node)
        return updated_node if build is None else build(updated_node)


def with_deep_stack(work: Callable[[], T]) -> T:
    """Run LibCST work in a thread with a large stack and a raised recursion limit.

    SourceError when even that is too little, or when LibCST refuses the text.
    """
    answer: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, RECURSION_LIMIT))
        try:
            answer.append(work())
        except BaseException as error:
            failure.append(error)
        finally:
            sys.setrecursionlimit(limit)

    size = threading.stack_size(STACK_BYTES)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
    if failure:
        raise _as_source_error(failure[0])
    return answer[0]


def _as_source_error(error: BaseException) -> BaseException:
    if isinstance(error, (RecursionError, MemoryError)):
        return SourceError("not analysed: nested too deeply")
    if isinstance(error, cst.ParserSyntaxError):
        return SourceError(
            f"not analysed: {error.message.splitlines()[0]}", error.raw_line
        )
    return error
