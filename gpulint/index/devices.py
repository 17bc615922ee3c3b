"""Devices: what an argument of a move names, and the moves themselves."""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gpulint.index.build import FileIndex, Function
from gpulint.index.flow import enclosing_function
from gpulint.index.known import Value
from gpulint.index.module_search import is_run
from gpulint.index.resolve import Origin, Resolver
from gpulint.index.values import Evaluator
from gpulint.index.walk import dotted


class Where(enum.Flag):
    """What a value can be; several flags: on different paths."""

    NOTHING = 0
    PLAIN = enum.auto()  # a Python value, no tensor
    HOST = enum.auto()  # a host tensor or an array
    DEVICE = enum.auto()
    UNKNOWN = enum.auto()

    @property
    def device(self) -> bool:
        """On the device, on every path on which it is a tensor."""
        return Where.DEVICE in self and not self & (Where.HOST | Where.UNKNOWN)

    @property
    def host(self) -> bool:
        """On the host, on every path on which it is a tensor."""
        return Where.HOST in self and not self & (Where.DEVICE | Where.UNKNOWN)


class Target(enum.Enum):
    """What the device argument of a move names."""

    CPU = "cpu"
    CUDA = "cuda"
    MPS = "mps"
    OTHER = "other"  # an accelerator that is not CUDA's: `"hpu"`, `"xla"`
    ANY = "any"  # decided at run time, meant to be an accelerator
    NOT_A_DEVICE = "not a device"
    UNKNOWN = "unknown"


NOT_CUDA = frozenset((Target.CPU, Target.MPS, Target.OTHER))


class Move(NamedTuple):
    """A call that moves a tensor or module: `.to(…)`, `.cuda()`.

    `device` is the device expression as written (None for a bare `.cuda()`),
    `dtype` whether it converts as well.
    """

    call: ast.Call
    receiver: ast.expr
    device: ast.expr | None
    target: Target
    non_blocking: ast.expr | None
    dtype: bool


DTYPES = frozenset(
    "float32 float float64 double float16 half bfloat16 int8 uint8 int16 short int32 "
    "int int64 long bool complex64 complex128 cfloat cdouble uint16 uint32 "
    "uint64".split()
)
_OTHERS = frozenset("hpu npu xpu mlu xla tpu ipu".split())
_OF_GPUS = re.compile(r"gpu|cuda", re.IGNORECASE)  # what a branch asks for
_DEVICE_NAME = re.compile(
    r"^_?(dev|gpu|gpus|cuda|rank|local_rank|gpu_id|device_id|devices|.*device|.*_dev|"
    r"device.*|.*_gpu|.*local_rank|cuda_.*)$",
    re.IGNORECASE,
)
MAX_NAMES = 3  # from a test back to what decides it


class Devices:
    """Moves and device expressions of one file.

    `where` tells where another value lives: a tensor's own `device` is asked for.
    """

    def __init__(
        self,
        resolver: Resolver,
        evaluator: Evaluator,
        where: Callable[[ast.AST], Where],
    ) -> None:
        self.resolver = resolver
        self.evaluator = evaluator
        self.index = resolver.index
        self.where = where
        self._moves: dict[ast.Call, Move | None] = {}
        self._targets: dict[ast.expr, Target] = {}

    def move(self, call: ast.Call) -> Move | None:
        """The move that a call is, None for anything else (`.to(dtype)` too)."""
        if call not in self._moves:
            self._moves[call] = self._read_move(call)
        return self._moves[call]

    def _read_move(self, call: ast.Call) -> Move | None:
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda"):
            return None
        its = func.value
        if dotted(func) == "torch.cuda" or (
            isinstance(its, ast.Name) and self.index.is_import(its)
        ):
            return None
        keywords = {k.arg: k.value for k in call.keywords}
        non_blocking = keywords.get("non_blocking")
        if func.attr == "cuda":
            device = call.args[0] if call.args else keywords.get("device")
            if non_blocking is None and len(call.args) > 1:
                non_blocking = call.args[1]
            if isinstance(device, ast.Constant) and isinstance(device.value, bool):
                device, non_blocking = None, device  # the old `async` position
            return Move(call, func.value, device, Target.CUDA, non_blocking, False)
        return self._read_to(call, func.value, keywords, non_blocking)

    def _read_to(
        self,
        call: ast.Call,
        receiver: ast.expr,
        keywords: dict[str | None, ast.expr],
        non_blocking: ast.expr | None,
    ) -> Move | None:
        if any(isinstance(a, ast.Starred) for a in call.args) or None in keywords:
            return None
        device = keywords.get("device")
        dtype = "dtype" in keywords
        positional = list(call.args)
        if device is None and positional:
            if self.is_dtype(positional[0]):
                return None
            device = positional.pop(0)
        if device is None:
            return None
        target = self.target(device)
        if target in (Target.NOT_A_DEVICE, Target.UNKNOWN):
            return None
        if positional:
            dtype = True
        if non_blocking is None and len(positional) > 1:
            non_blocking = positional[1]
        return Move(call, receiver, device, target, non_blocking, dtype)

    def spread_target(self, call: ast.Call) -> Target | None:
        """Where `x.to(**options)` moves, by the device among the options.

        No `Move`: no expression beside the call names the device.
        """
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "to":
            return None
        spread = [k.value for k in call.keywords if k.arg is None]
        given = [self.evaluator.mappings.of(node).items for node in spread]
        found = {self.target(d) for items in given for d in items.get("device", ())}
        if not found or found <= {Target.NOT_A_DEVICE, Target.UNKNOWN}:
            return None
        return found.pop() if len(found) == 1 else Target.ANY

    def is_dtype(self, node: ast.expr) -> bool:
        """Whether an argument of `.to` is a dtype: `torch.float32`, `x.dtype`."""
        name = self.index.qualified(node) or dotted(node) or ""
        head, _, last = name.rpartition(".")
        if head == "torch":
            return last in DTYPES
        return last.endswith("dtype") or last.startswith("dtype")

    def target(self, node: ast.expr) -> Target:
        """What a device expression names, on all paths together."""
        if isinstance(node, ast.IfExp) and _asks_for_gloo(node.test):
            return Target.CPU
        if node not in self._targets:
            self._targets[node] = Target.UNKNOWN
            origins = self.resolver.origins(node)
            named = [o for o in origins if self._is_meant(o)] or origins
            found = {self._origin_target(o) for o in named}
            if Target.UNKNOWN in found or not found:
                last = (dotted(node) or "").rpartition(".")[2]
                others = found - {Target.UNKNOWN}
                if Target.NOT_A_DEVICE in others:
                    result = Target.NOT_A_DEVICE
                else:
                    meant = _DEVICE_NAME.match(last) or others
                    result = Target.ANY if meant else Target.UNKNOWN
            elif found - {Target.CPU} in ({Target.MPS}, {Target.OTHER}):
                (result,) = found - {Target.CPU}  # no path leads to CUDA's
            else:
                result = found.pop() if len(found) == 1 else Target.ANY
            self._targets[node] = result
        return self._targets[node]

    def is_surely_cuda(self, node: ast.expr) -> bool:
        """Whether it names CUDA, and no caller or user may name another device."""
        return self.target(node) is Target.CUDA and not self.is_free(node)

    def is_free(self, node: ast.expr) -> bool:
        """Whether it is a default, in whose place a caller or user may name another."""
        return any(origin.default for origin in self.resolver.origins(node))

    def _origin_target(self, origin: Origin) -> Target:
        node = origin.node
        if origin.kind == "parameter":
            # A default such as "cpu" comes as an origin of its own.
            name = node.arg if isinstance(node, ast.arg) and not origin.path else ""
            return Target.ANY if _DEVICE_NAME.match(name) else Target.UNKNOWN
        if isinstance(node, (ast.Constant, ast.Call)):
            named = (
                _named_target(node.value)
                if isinstance(node, ast.Constant)
                else self._called_target(node)
            )
            free = named is Target.CPU and self._is_open_default(origin)
            return Target.ANY if free else named
        if isinstance(node, ast.JoinedStr):
            first = node.values[0] if node.values else None
            return _named_target(getattr(first, "value", None))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.target(node.left)
        if isinstance(node, ast.Attribute) and node.attr == "device":
            made = isinstance(self.index.parent(node), ast.keyword)
            beside = self.where(node.value) if made else Where.UNKNOWN
            return Target.CPU if beside is Where.HOST else Target.ANY
        if isinstance(node, ast.expr) and self.is_dtype(node):
            return Target.NOT_A_DEVICE
        if isinstance(node, ast.expr):
            its = self.evaluator.values(node)
            if its.known:
                return self._one_target(its.known)
        return Target.UNKNOWN

    def _is_meant(self, origin: Origin) -> bool:
        """Whether a value is no None that callers may leave out, and ever taken."""
        node = origin.node
        if not isinstance(node, ast.Constant):
            return True
        above = self.index.parent(node)
        if isinstance(above, ast.IfExp) and node is above.body:
            return not self._never_holds(above.test)
        function = self._defaulting(origin) if node.value is None else None
        return function is None or not self.resolver.calls.callers(function)

    def _never_holds(self, test: ast.expr, depth: int = 0) -> bool:
        """Whether nothing that a user or caller gives can make a test true.

        `not args.no_cuda and …`, where `--no-cuda` stores what it is by default.
        """
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return any(self._never_holds(part, depth) for part in test.values)
        its = self.evaluator.values(test)
        if its.known and its.complete:
            fixed = not any(v.default for v in its.known) or self._is_left(test)
            return fixed and not any(v.constant for v in its.known)
        chain = isinstance(test, (ast.Name, ast.Attribute)) and depth < MAX_NAMES
        reached = self.resolver.definitions(test) if chain else ()
        return bool(reached) and all(
            d.kind == "assign"
            and not d.path
            and d.value is not None
            and self._never_holds(d.value, depth + 1)
            for d in reached
        )

    def _is_left(self, test: ast.expr) -> bool:
        """Whether it is a default of this program's own that no call replaces.

        `not config.no_cuda`, of `Config()` alone with `no_cuda=True` in its class.
        """
        node = test.operand if isinstance(test, ast.UnaryOp) else test
        if not isinstance(node, (ast.Name, ast.Attribute)) or not is_run(self.index):
            return False
        made = [self._defaulting(origin) for origin in self.resolver.origins(node)]
        return bool(made) and all(
            function is not None
            and self.index.holds(function)
            and bool(self.resolver.calls.callers(function))
            for function in made
        )

    def _is_open_default(self, origin: Origin) -> bool:
        """Whether a value is the default of a function that other files call."""
        function = self._defaulting(origin)
        return function is not None and not self.resolver.calls.callers(function)

    def _defaulting(self, origin: Origin) -> Function | None:
        """The function of a parameter's default."""
        if not origin.default or origin.definition is None:
            return None
        function = enclosing_function(self.index, origin.definition)
        return function if isinstance(function, Function) else None

    def _one_target(self, values: Iterable[Value]) -> Target:
        """The target of all these values; a user may replace an option's `"cpu"`."""
        targets = set()
        for value in values:
            named = _named_target(value.constant)
            if named is Target.CPU:
                home = self.index.home(value.node)
                other = _written_otherwise(home, value.node)
                named = Target.ANY if value.default or other is not None else named
            targets.add(named)
        return targets.pop() if len(targets) == 1 else Target.ANY

    def _called_target(self, call: ast.Call) -> Target:
        name = self.index.qualified(call.func) or ""
        if name == "torch.device" and (call.args or call.keywords):
            inner = call.args[0] if call.args else call.keywords[0].value
            found = self.target(inner)
            return Target.ANY if found is Target.UNKNOWN else found
        if name == "torch.cuda.current_device":
            return Target.CUDA
        if name.endswith(("runtime.device", "get_device", "current_accelerator")):
            return Target.ANY
        its = self.evaluator.values(call)
        if its.known:
            return self._one_target(its.known)
        if name.rpartition(".")[2] in ("zeros", "ones", "tensor", "stack", "cat"):
            return Target.NOT_A_DEVICE
        return Target.UNKNOWN


def _named_target(name: object) -> Target:
    if isinstance(name, bool) or name is None:
        return Target.UNKNOWN
    if isinstance(name, int):
        return Target.CUDA
    if not isinstance(name, str):
        return Target.UNKNOWN
    kind = name.partition(":")[0].strip()
    if kind in ("cuda", "cpu", "mps"):
        return Target(kind)
    if kind in _OTHERS:
        return Target.OTHER
    return Target.ANY if kind in ("hip", "gpu", "auto") else Target.UNKNOWN


def _asks_for_gloo(test: ast.expr) -> bool:
    """`backend == "gloo"`: what objects are gathered through lies on the host then."""
    constants = (n.value for n in ast.walk(test) if isinstance(n, ast.Constant))
    return "gloo" in constants


def _written_otherwise(index: FileIndex, value: ast.AST) -> ast.expr | None:
    """What the other side of a branch stores where one stores a constant.

    `if use_cuda: config["device"] = torch.device(0)`, `else: config["device"] = "cpu"`.
    """
    statement = index.parent(value)
    branch = index.parent(statement) if isinstance(statement, ast.Assign) else None
    if not isinstance(statement, ast.Assign) or not isinstance(branch, ast.If):
        return None
    if not _OF_GPUS.search(ast.unparse(branch.test)):
        return None
    other = branch.body if statement in branch.orelse else branch.orelse
    wanted = [ast.dump(target) for target in statement.targets]
    for its in other:
        if isinstance(its, ast.Assign) and list(map(ast.dump, its.targets)) == wanted:
            return None if isinstance(its.value, ast.Constant) else its.value
    return None
