"""Where a tensor lives: on the host or on the device, at a place in the file."""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Iterable
from typing import NamedTuple

from gpulint.index.appended import appended_to
from gpulint.index.build import FileIndex, Function, last_name
from gpulint.index.flow import Definition, enclosing_function
from gpulint.index.known import Value
from gpulint.index.measured import measured
from gpulint.index.objects import Callers, Made, callers_of, made_by
from gpulint.index.resolve import OF_MODULES, Origin, Resolver
from gpulint.index.values import Evaluator
from gpulint.index.walk import FUNCTIONS, dotted, walk


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


MAX_LINKS = 600  # of what a value is made of, through all files that lead to it
NEAR = 40  # links from a question, up to which calls are told apart
MAX_ALONE = 2  # calls that are taken for the only ones, one within another
_FILLS = frozenset("update setdefault".split())
_NUMBERS = frozenset("item float int len bool round".split())


class Target(enum.Enum):
    """What the device argument of a move names."""

    CPU = "cpu"
    CUDA = "cuda"
    MPS = "mps"
    ANY = "any"  # decided at run time, meant to be an accelerator
    NOT_A_DEVICE = "not a device"
    UNKNOWN = "unknown"


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
FACTORIES = frozenset(
    f"torch.{n}"
    for n in (
        "tensor zeros ones full empty eye arange linspace logspace rand randn randint "
        "randperm normal as_tensor from_numpy tril_indices triu_indices scalar_tensor "
        "FloatTensor LongTensor Tensor IntTensor BoolTensor DoubleTensor ByteTensor "
        "HalfTensor hann_window hamming_window blackman_window bartlett_window"
    ).split()
)
_PLAIN_CALLS = frozenset(
    "float int bool len str repr range isinstance type print format round id hash "
    "open input hasattr callable issubclass time.time time.perf_counter".split()
)
_SAME_CALLS = frozenset(
    "sum max min abs zip list tuple sorted reversed enumerate iter next map filter "
    "dict set tqdm tqdm.tqdm torch.autograd.Variable itertools.chain copy.deepcopy "
    "copy.copy itertools.cycle tqdm.auto.tqdm".split()
)
_PASSED_ON = frozenset("list tuple sorted reversed iter".split())
_PLAIN_METHODS = frozenset(
    "item tolist size dim numel ndimension stride data_ptr element_size nelement "
    "is_contiguous get_device is_pinned storage_offset has_names is_floating_point "
    "state_dict keys format join split strip __len__".split()
)
_PLAIN_ATTRIBUTES = frozenset(
    "shape device dtype ndim requires_grad is_cuda is_leaf grad_fn layout name "
    "is_sparse itemsize nbytes __class__ __name__ training".split()
)
_TENSOR_ATTRIBUTES = frozenset("data grad T mT H mH real imag values indices".split())
_DEVICE_NAME = re.compile(
    r"^_?(dev|gpu|gpus|cuda|rank|local_rank|gpu_id|device_id|devices|.*device|.*_dev|"
    r"device.*|.*_gpu|.*local_rank|cuda_.*)$",
    re.IGNORECASE,
)
_GPU = re.compile(r"gpu|cuda", re.IGNORECASE)
# Classes that are loaded as models are, and are none.
_NO_MODEL = re.compile(r"Tokenizer|Processor|Config|Extractor|Scheduler\b")
_MODULE_NAME = re.compile(
    r"^(?!_?(?:unwrap|get|build|load|make|create|save|init|setup|prepare)_)"
    r"_?(model\w*|net\w*|\w*_?(model|net|network|module|loss|loss_fn|loss_func|"
    r"criterion|encoder|decoder|backbone|generator|discriminator|critic|actor|policy|"
    r"classifier|head|embedder|student|teacher|transformer|layer|unet|vae|gan|cnn|rnn|"
    r"lstm|mlp|resnet|bert|gpt|vgg\w*|embedding|ema|agent)\d?|criterion\w*|loss_\w+|"
    r"criteria|crit|ce|bce|mse|l1|net_?[dg]|[dg]|d_?[ab]|g_?(ab|ba)|loss|objective|"
    r"generator\w*|discriminator\w*|encoder\w*|decoder\w*|self|fc\d*|conv\d*)$",
    re.IGNORECASE,
)


_TYPE = re.compile(r"\w+")
# Declared so, a parameter gets no tensor; what is declared as `float` often does.
_NO_TENSORS = frozenset({"int", "str", "bool"})
_PLAIN_COMPARISONS = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_DISPLAYS = (ast.List, ast.Tuple, ast.ListComp)
MAX_NAMES = 3  # from a test back to what decides it


class Tensors:
    """Host or device for the expressions of one file."""

    def __init__(self, resolver: Resolver, evaluator: Evaluator) -> None:
        self.resolver = resolver
        self.evaluator = evaluator
        self.index = resolver.index
        self._where: dict[ast.AST, Where] = {}
        self._depth = 0  # of questions for where a value lives
        self._moves: dict[ast.Call, Move | None] = {}
        self._targets: dict[ast.expr, Target] = {}
        self._objects: dict[Made, Tensors] = {}
        self.assumed: dict[ast.AST, Where] = {}  # set by the script model: batches
        self._alone: frozenset[ast.Call] = frozenset()  # what functions run for, if any

    # Devices and moves

    def move(self, call: ast.Call) -> Move | None:
        """The move that a call is, None for anything else (`.to(dtype)` too)."""
        if call not in self._moves:
            self._moves[call] = self._read_move(call)
        return self._moves[call]

    def _read_move(self, call: ast.Call) -> Move | None:
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda"):
            return None
        if dotted(func) == "torch.cuda" or self._is_import(func.value):
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

    def _is_import(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.index.home(node).imports

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
            elif found == {Target.MPS, Target.CPU}:
                result = Target.MPS  # no path leads to another accelerator
            else:
                result = found.pop() if len(found) == 1 else Target.ANY
            self._targets[node] = result
        return self._targets[node]

    def _origin_target(self, origin: Origin) -> Target:
        node = origin.node
        if origin.kind == "parameter":
            # A default such as "cpu" comes as an origin of its own.
            name = node.arg if isinstance(node, ast.arg) and not origin.path else ""
            return Target.ANY if _DEVICE_NAME.match(name) else Target.UNKNOWN
        if isinstance(node, ast.Constant):
            named = _named_target(node.value)
            free = named is Target.CPU and self._is_open_default(origin)
            return Target.ANY if free else named
        if isinstance(node, ast.JoinedStr):
            first = node.values[0] if node.values else None
            return _named_target(getattr(first, "value", None))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.target(node.left)
        if isinstance(node, ast.Call):
            return self._called_target(node)
        if isinstance(node, ast.Attribute) and node.attr == "device":
            made = isinstance(self.index.parent(node), ast.keyword)
            beside = self.where(node.value) if made else Where.UNKNOWN
            return Target.CPU if beside is Where.HOST else Target.ANY
        if isinstance(node, ast.expr) and self.is_dtype(node):
            return Target.NOT_A_DEVICE
        if isinstance(node, ast.expr):
            its = self.evaluator.values(node)
            if its.known:
                return _one_target(its.known)
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
        return function is None or not self.resolver.callers(function)

    def _never_holds(self, test: ast.expr, depth: int = 0) -> bool:
        """Whether nothing that a user or caller gives can make a test true.

        `not args.no_cuda and …`, where `--no-cuda` stores what it is by default.
        """
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return any(self._never_holds(part, depth) for part in test.values)
        its = self.evaluator.values(test)
        if its.known and its.complete:
            return not any(v.constant or v.default for v in its.known)
        chain = isinstance(test, (ast.Name, ast.Attribute)) and depth < MAX_NAMES
        reached = self.resolver.definitions(test) if chain else ()
        return bool(reached) and all(
            d.kind == "assign"
            and not d.path
            and d.value is not None
            and self._never_holds(d.value, depth + 1)
            for d in reached
        )

    def _is_open_default(self, origin: Origin) -> bool:
        """Whether a value is the default of a function that other files call."""
        function = self._defaulting(origin)
        return function is not None and not self.resolver.callers(function)

    def _defaulting(self, origin: Origin) -> Function | None:
        """The function of a parameter's default."""
        if not origin.default or origin.definition is None:
            return None
        function = enclosing_function(self.index, origin.definition)
        return function if isinstance(function, Function) else None

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
            return _one_target(its.known)
        if name.rpartition(".")[2] in ("zeros", "ones", "tensor", "stack", "cat"):
            return Target.NOT_A_DEVICE
        return Target.UNKNOWN

    # Where a value lives

    def where(self, node: ast.AST) -> Where:
        """Host, device, plain Python or unknown, for one expression."""
        known = self._where.get(node)
        if known is not None:
            return known
        if self._depth > MAX_LINKS:
            return Where.UNKNOWN
        self._where[node] = Where.NOTHING  # a cycle adds nothing
        self._depth += 1
        try:
            result = self.assumed.get(node) or self._compute(node)
        finally:
            self._depth -= 1
        self._where[node] = result
        return result

    def forget(self) -> None:
        """Drop answers, after the script model has added assumptions."""
        self._where.clear()
        self._objects.clear()

    def _compute(self, node: ast.AST) -> Where:
        if isinstance(node, (ast.Constant, ast.JoinedStr, ast.Lambda)):
            return Where.PLAIN
        if isinstance(node, ast.Name):
            return self._named(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.BinOp):
            return _mixed(self.where(node.left), self.where(node.right))
        if isinstance(node, ast.UnaryOp):
            plain = isinstance(node.op, ast.Not)
            return Where.PLAIN if plain else self.where(node.operand)
        if isinstance(node, ast.Compare):
            if all(isinstance(o, _PLAIN_COMPARISONS) for o in node.ops):
                return Where.PLAIN
            compared = [node.left, *node.comparators]
            if any(map(self._is_text, compared)):
                return Where.PLAIN  # a tensor that is compared with a text is not read
            return _mixed(*map(self.where, compared))
        if isinstance(node, (ast.Subscript, ast.Starred, ast.Await)):
            return self.where(node.value)
        if isinstance(node, ast.IfExp):
            sides = (node.body, node.orelse)
            back = filter(_comes_back, sides if _asks_for_gpu(node.test) else ())
            return _union(map(self.where, list(back) or sides))
        if isinstance(node, ast.NamedExpr):
            return self.where(node.value)
        return self._container(node)

    def _is_text(self, node: ast.expr) -> bool:
        """A text, or a parameter that is declared as one."""
        if not isinstance(node, ast.Name):
            kept = isinstance(node, ast.Constant) and isinstance(node.value, str)
            return kept or isinstance(node, ast.JoinedStr)
        reached = self.resolver.definitions(node)
        return bool(reached) and all(_declared(d) == {"str"} for d in reached)

    def _container(self, node: ast.AST) -> Where:
        items: Iterable[ast.expr] = ()
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            items = node.elts
        elif isinstance(node, (ast.Dict, ast.BoolOp)):
            items = node.values
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            items = (node.elt,)
        elif isinstance(node, ast.DictComp):
            items = (node.value,)
        else:
            return Where.UNKNOWN
        if isinstance(node, ast.List) and not items:
            items = appended_to(self.index, node)
        found = _union(map(self.where, items))
        return found or Where.PLAIN

    def _named(self, node: ast.Name) -> Where:
        definitions = self.resolver.definitions(node)
        if not definitions:
            return Where.UNKNOWN
        back = [d for d in definitions if self._is_brought_back(d)]
        return self._defined(back or definitions)

    def _is_brought_back(self, definition: Definition) -> bool:
        """`if cfg.gpus: preds = preds.cpu()`: without a GPU it lies there anyway."""
        value = definition.value
        if definition.kind != "assign" or value is None or not _comes_back(value):
            return False
        block = self.index.parent(self.index.statement(definition.node))
        return isinstance(block, ast.If) and _asks_for_gpu(block.test)

    def _defined(self, definitions: Iterable[Definition]) -> Where:
        found = Where.NOTHING
        added = Where.NOTHING
        for definition in definitions:
            if definition.kind == "augment":
                added |= self._from_definition(definition)
            else:
                found |= self._from_definition(definition)
        if Where.DEVICE in found | added:
            added &= ~Where.UNKNOWN  # `x *= weight` leaves a tensor where it is
        return found | added

    def _from_definition(self, definition: Definition) -> Where:
        node = definition.node
        assumed = self.assumed.get(node)
        if assumed is not None:
            return assumed
        if definition.value is not None and definition.kind == "assign":
            return self._unpacked(definition.value, definition.path)
        if definition.value is not None and definition.kind == "augment":
            return self.where(definition.value)
        if definition.value is not None and definition.kind == "for":
            if self._is_key(node, definition.value):
                return Where.PLAIN
            return self._element(definition.value, definition.path)
        if definition.kind == "parameter":
            return self._parameter(definition)
        return Where.UNKNOWN

    def _unpacked(self, value: ast.expr, path: tuple[object, ...]) -> Where:
        if path and isinstance(value, (ast.Tuple, ast.List)):
            step = path[0]
            if isinstance(step, int) and step < len(value.elts):
                return self._unpacked(value.elts[step], path[1:])
        if path and isinstance(value, ast.Call):
            part = self._part(value, path[0])
            if part is not None:
                return part
        if path and isinstance(value, (ast.Name, ast.Attribute)):
            written = self._written_tuples(value)
            if written:
                return _union(self._unpacked(part, path) for part in written)
        return self.where(value)

    def _written_tuples(self, value: ast.expr) -> list[ast.Tuple]:
        """The tuples that a name is bound to, if to nothing else but them and None."""
        bound = self.resolver.definitions(value)
        values = [d.value if d.kind == "assign" and not d.path else None for d in bound]
        tuples = [v for v in values if isinstance(v, ast.Tuple)]
        nothing = [v for v in values if isinstance(v, ast.Constant) and v.value is None]
        return tuples if len(tuples) + len(nothing) == len(values) else []

    def _part(self, call: ast.Call, step: object) -> Where | None:
        """Where one part of what a call returns is: `loss, count = …`; None: not clear.

        What a function returns is seen; of what a module does, only plain numbers are.
        """
        function = self.resolver.callee(call)
        functions = [function] if function is not None else self._forwards(call)
        returned = [v for f in functions for v in self.resolver.flow(f).returns if v]
        parts = [_at(value, step) for value in returned]
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        numbers = (_is_number(self.resolver.origins(part)) for part in known)
        if all(numbers) and not any(self._is_filled(part) for part in known):
            return Where.PLAIN
        its = _union(map(self.where, known)) if function is not None else Where.PLAIN
        if function is not None and all(map(self._is_passed_on, known)):
            return its or Where.UNKNOWN
        return its if its & ~Where.PLAIN else None

    def _is_passed_on(self, node: ast.expr) -> bool:
        """Whether a function gives back what it was given, or has counted up."""
        made = self.resolver.definitions(node) if isinstance(node, ast.Name) else ()
        kinds = {definition.kind for definition in made}
        return "parameter" in kinds and kinds <= {"parameter", "augment"}

    def _is_filled(self, name: ast.expr) -> bool:
        """Whether a function stores more in a dict of its own: `log["acc"] = acc`."""
        if not isinstance(name, ast.Name):
            return False
        function = self.index.home(name).function(name)
        return function is not None and any(
            getattr(node.value, "id", "") == name.id
            and (isinstance(node.ctx, ast.Store) or getattr(node, "attr", "") in _FILLS)
            for node in walk(function)
            if isinstance(node, (ast.Subscript, ast.Attribute))
        )

    def _forwards(self, call: ast.Call) -> list[Function]:
        """The `forward` methods that a call of a module of this project may run."""
        owners = self.resolver.classes_of(call.func)
        found = [self.resolver.methods(owner).get("forward") for owner in owners]
        return [f for f in found if f is not None] if None not in found else []

    def _element(self, iterable: ast.expr, path: tuple[object, ...]) -> Where:
        if isinstance(iterable, ast.Call):
            name = self.index.qualified(iterable.func) or ""
            if name == "range" or name.endswith("trange"):
                return Where.PLAIN
            if name == "enumerate" and iterable.args:
                if path[:1] == (0,):
                    return Where.PLAIN
                return self._element(iterable.args[0], path[1:])
            if _counts_aloud(self.index, iterable):
                return Where.PLAIN
            number = path[0] if path and name == "zip" else None
            if isinstance(number, int) and number < len(iterable.args):
                return self._element(iterable.args[number], path[1:])
            passed_on = name in _PASSED_ON or name.endswith("tqdm")
            passed_on = passed_on or measured(self.resolver, iterable) is not None
            if passed_on and len(iterable.args) == 1:
                return self._element(iterable.args[0], path)
            if _is_items(iterable) and path[:1] == (0,):
                return Where.PLAIN  # a key
            if _is_items(iterable) and len(path) > 1:
                return self._part_of_value(iterable, path[1:])
        if not path and self._is_mapping(iterable):
            return Where.PLAIN
        return self.where(iterable)

    def _part_of_value(self, items: ast.Call, path: tuple[object, ...]) -> Where:
        """`for name, (loss, weight) in losses.items()`: the second may be a number."""
        assert isinstance(items.func, ast.Attribute)
        origins = self.resolver.origins(items.func.value)
        values = [
            value
            for origin in origins
            if isinstance(origin.node, ast.Dict) and not origin.path
            for value in origin.node.values
        ]
        if values and all(isinstance(value, ast.Tuple) for value in values):
            return _union(self._unpacked(value, path) for value in values)
        return self.where(items) if path[0] == 0 else Where.UNKNOWN

    def _is_key(self, name: ast.AST, iterable: ast.expr) -> bool:
        """`for key in losses: total += losses[key]`: what iterates a dict are keys."""
        home = self.index.home(name)
        loop = home.parent(name)
        if not isinstance(loop, ast.For) or not isinstance(name, ast.Name):
            return False
        held = dotted(iterable)
        return held is not None and any(
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Name)
            and node.slice.id == name.id
            and dotted(node.value) == held
            for node in walk(*loop.body)
        )

    def _is_mapping(self, iterable: ast.expr) -> bool:
        """Whether an iterable is surely a dict: its elements are the keys."""
        origins = self.resolver.origins(iterable)
        return bool(origins) and all(
            isinstance(o.node, (ast.Dict, ast.DictComp)) and not o.path for o in origins
        )

    def _parameter(self, definition: Definition) -> Where:
        declared = _declared(definition)
        if declared and declared <= _NO_TENSORS:
            return Where.PLAIN
        function = self.index.parent(
            self.index.parent(definition.node) or definition.node
        )
        given = None
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = self.resolver.arguments(function, definition.name)
        if not given:
            return Where.UNKNOWN
        return _union(map(self.where, given)) or Where.UNKNOWN

    def _attribute(self, node: ast.Attribute) -> Where:
        if node.attr in _PLAIN_ATTRIBUTES:
            return Where.PLAIN
        name = self.index.qualified(node) or ""
        if name.startswith(("torch.", "numpy.", "math.")):
            return Where.PLAIN  # a dtype or constant
        definitions = self.resolver.definitions(node)
        if definitions:
            found = self._defined(definitions)
            return self._of_object(node) if Where.DEVICE in found else found
        if node.attr in _TENSOR_ATTRIBUTES:
            return self.where(node.value)
        inner = self.where(node.value)
        known = inner.device and not self._is_of_network(node)
        return inner if known else Where.UNKNOWN

    def _is_of_network(self, node: ast.Attribute) -> bool:
        """`model.num_layers`: a network on a device holds numbers and names as well.

        Not what is used as only a tensor is: `model.loss.item()`.
        """
        home = self.index.home(node)
        above = home.parent(node)
        if isinstance(above, (ast.Attribute, ast.Subscript)):
            return False
        name = dotted(node.value)
        asked = (c.func for m in OF_MODULES for c in home.calls_by_name.get(m, ()))
        return name is not None and any(
            isinstance(func, ast.Attribute) and dotted(func.value) == name
            for func in asked
        )

    def _of_object(self, node: ast.Attribute) -> Where:
        """An attribute as the calls set it that act on this object of its class."""
        definitions = self.resolver.definitions(node)
        made = made_by(self.resolver, node.value)
        if made not in self._objects:
            self._objects[made] = self
            callers = callers_of(self.resolver, made)
            if callers:
                self._objects[made] = self._with(callers)
        return self._objects[made]._defined(definitions)

    def _call(self, call: ast.Call) -> Where:
        move = self.move(call)
        if move is not None:
            return Where.HOST if move.target is Target.CPU else Where.DEVICE
        name = self.index.qualified(call.func) or ""
        head = name.partition(".")[0]
        if name in _PLAIN_CALLS or (
            name.startswith("torch.cuda.") and not (name.endswith("Tensor"))
        ):
            return Where.PLAIN
        if name in _SAME_CALLS or name.rpartition(".")[2] in ("tqdm", "trange"):
            return self._arguments(call) or Where.PLAIN
        if head in ("np", "numpy"):
            return Where.HOST
        if name == "typing.cast" and len(call.args) == 2:
            return self.where(call.args[1])
        if name.startswith("torch."):
            return self._torch(call, name)
        function = self.resolver.callee(call)
        if function is not None:
            return self._result(call, function)
        if isinstance(call.func, ast.Attribute):
            return self._method(call, call.func)
        return self._opaque(call, call.func)

    def _torch(self, call: ast.Call, name: str) -> Where:
        if name.endswith("nn.Parameter") or name == "torch.nn.parameter.Parameter":
            owner = self.index.owner(call)
            own = owner is not None and self.is_module_class(owner)
            if call.args and not own and self.where(call.args[0]) == Where.HOST:
                return Where.HOST
            return Where.UNKNOWN  # goes where its module goes
        if name.startswith("torch.nn.") and not name.startswith(
            ("torch.nn.functional.", "torch.nn.utils.rnn.")
        ):
            return Where.PLAIN  # a module
        if name.startswith(("torch.optim.", "torch.utils.", "torch.device")):
            return Where.PLAIN
        if name.startswith("torch.cuda.") and name.endswith("Tensor"):
            return Where.DEVICE
        for keyword in call.keywords:
            if keyword.arg == "device":
                return _on(self.target(keyword.value))
        if name in FACTORIES:
            if name in ("torch.tensor", "torch.as_tensor") and call.args:
                inner = self.where(call.args[0])
                anew = not inner.device or self._is_display(call.args[0])
                return Where.HOST if anew else inner
            return Where.HOST
        if name in ("torch.load", "torch.jit.load"):
            return Where.UNKNOWN
        found = self._arguments(call)
        return found or Where.HOST

    def _is_display(self, node: ast.expr) -> bool:
        """Whether a value is a list, which torch makes a tensor of on the host."""
        origins = self.resolver.origins(node)
        return bool(origins) and all(isinstance(o.node, _DISPLAYS) for o in origins)

    def _arguments(self, call: ast.Call) -> Where:
        values = [*call.args, *(k.value for k in call.keywords)]
        return _mixed(*map(self.where, values)) & ~Where.PLAIN

    def _result(self, call: ast.Call, function: ast.AST) -> Where:
        """What a function of this file returns; the caller's tensors if unclear."""
        assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        flow = self.resolver.flow(function)
        values = [v for v in [*flow.returns, *flow.yields] if v is not None]
        found = _union(map(self.where, values)) or Where.PLAIN
        if Where.DEVICE not in found or call in self._alone:
            return found
        if len(self._alone) >= MAX_ALONE or self._depth > NEAR:
            return found
        given = _union(map(self.where, [*call.args, *(k.value for k in call.keywords)]))
        if Where.HOST not in given or given & (Where.DEVICE | Where.UNKNOWN):
            return found
        its = self._for(call, function)  # others may give it what is on the device
        return _union(map(its.where, values)) or Where.PLAIN

    def _for(self, call: ast.Call, function: Function) -> Tensors:
        """The same, as if only one call were made of a function."""
        its = self._with({function: [call]})
        its._alone = self._alone | {call}
        return its

    def _with(self, callers: Callers) -> Tensors:
        """The same, as if only these calls were made of these functions."""
        resolver = self.resolver.called_only_by(callers)
        its = Tensors(resolver, Evaluator(resolver))
        its.assumed = self.assumed
        its._depth = self._depth
        return its

    def _method(self, call: ast.Call, func: ast.Attribute) -> Where:
        if func.attr in _PLAIN_METHODS:
            return Where.PLAIN
        if func.attr in ("cpu", "numpy", "pin_memory"):
            return Where.HOST
        if func.attr == "type" and call.args:
            return self._typed(call, func)
        receiver = self.where(func.value)
        tensors = receiver & (Where.HOST | Where.DEVICE)
        if tensors and Where.UNKNOWN not in receiver:
            return _mixed(tensors, self._arguments(call))
        result = self._opaque(call, func.value if func.attr != "forward" else func)
        # Another method of a model may move what it is given.
        return Where.UNKNOWN if result.host and func.attr != "forward" else result

    def _typed(self, call: ast.Call, func: ast.Attribute) -> Where:
        """`x.type(torch.cuda.FloatTensor)` moves; `x.type(torch.float32)` does not."""
        wanted = call.args[0]
        names = set()
        for origin in self.resolver.origins(wanted):
            node = origin.node
            text = node.value if isinstance(node, ast.Constant) else None
            names.add(str(text or self.index.qualified(node) or ""))
        if any("cuda" in name for name in names):
            return Where.DEVICE
        return self.where(func.value)

    def _opaque(self, call: ast.Call, callee: ast.expr) -> Where:
        """A call of something not known: a model or a loss keeps its inputs' device."""
        found = self._arguments(call)
        if self._augments(callee):
            return found
        if Where.DEVICE in found and self.is_module(callee):
            return Where.DEVICE
        if found == Where.HOST and self.is_module(callee):
            return Where.HOST
        return Where.UNKNOWN

    def _augments(self, callee: ast.expr) -> bool:
        """Whether a callee is what the runtime's `split_augmentation` gives second."""
        origins = self.resolver.origins(callee) if isinstance(callee, ast.Name) else ()
        return any(
            isinstance(o.node, ast.Call)
            and o.path == (1,)
            and (self.index.qualified(o.node.func) or "").endswith("split_augmentation")
            for o in origins
        )

    def is_module(self, callee: ast.expr) -> bool:
        """Whether a callee is a model or loss, by how it is made or by its name."""
        if isinstance(callee, ast.Subscript):
            callee = callee.value
        origins = self.resolver.origins(callee)
        for origin in origins:
            made = origin.call
            while made is not None and not self.makes_module(made):
                made = self._passed_through(made)
            if made is not None:
                return True
        if origins and all(isinstance(o.node, FUNCTIONS) for o in origins):
            return False
        name = (dotted(callee) or "").rpartition(".")[2]
        return (
            bool(name and _MODULE_NAME.match(name))
            and name not in self.index.home(callee).imports
        )

    @staticmethod
    def _passed_through(call: ast.Call) -> ast.Call | None:
        """`Net()` of `Net().to(device)`."""
        passes = isinstance(call.func, ast.Attribute) and call.func.attr in (
            "to", "cuda", "train", "eval", "float", "half", "double", "apply",
            "requires_grad_",
        )  # fmt: skip
        inner = call.func.value if passes else None  # type: ignore[attr-defined]
        return inner if isinstance(inner, ast.Call) else None

    def makes_module(self, call: ast.Call) -> bool:
        """Whether a call constructs an `nn.Module` (or wraps one)."""
        name = self.index.qualified(call.func) or ""
        if name.startswith(("torch.nn.", "torchvision.models.", "timm.create_model")):
            return not name.startswith(("torch.nn.functional.", "torch.nn.utils."))
        if name in ("torch.compile", "torch.jit.script", "torch.hub.load"):
            return True
        if name.endswith((".from_pretrained", ".from_config")):
            return _NO_MODEL.search(name) is None
        owner = self.resolver.class_of(call.func)
        return owner is not None and self.is_module_class(owner)

    def is_module_class(self, owner: ast.ClassDef) -> bool:
        """Whether a class of this file derives from `nn.Module`."""
        names = self.resolver.base_names(owner)
        return any(n.startswith("torch.nn.") or n.endswith("Module") for n in names)


def _declared(definition: Definition) -> set[str]:
    """The types that a parameter is declared to have, but for None: `int | None`."""
    node = definition.node
    written = node.annotation if isinstance(node, ast.arg) else None
    if written is None:
        return set()
    text = written.value if isinstance(written, ast.Constant) else ast.unparse(written)
    return set(_TYPE.findall(str(text))) - {"Optional", "Union", "None", "typing"}


def _at(value: ast.expr, step: object) -> ast.expr | None:
    """One part of a written tuple."""
    if not isinstance(value, ast.Tuple) or not isinstance(step, int):
        return None
    plain = not any(isinstance(part, ast.Starred) for part in value.elts)
    return value.elts[step] if plain and step < len(value.elts) else None


def _is_number(origins: tuple[Origin, ...]) -> bool:
    """Whether a value is surely a number of Python, or a dict of such: as they log."""
    return bool(origins) and all(
        isinstance(origin.expression, ast.Constant)
        or (origin.call is not None and last_name(origin.call) in _NUMBERS)
        or _holds_numbers(origin.expression)
        for origin in origins
    )


def _holds_numbers(node: ast.expr | None) -> bool:
    """`{"loss": loss.item()}`: all that it holds are numbers, written or read.

    Or a list of such.
    """
    if isinstance(node, (ast.List, ast.Tuple)):
        return bool(node.elts) and all(map(_holds_numbers, node.elts))
    return (
        isinstance(node, ast.Dict)
        and bool(node.values)
        and all(
            isinstance(value, ast.Constant)
            or (isinstance(value, ast.Call) and last_name(value) in _NUMBERS)
            for value in node.values
        )
    )


def _counts_aloud(index: FileIndex, call: ast.Call) -> bool:
    """`logger.log_every(range(steps), 50)`: numbers, with a report now and then."""
    first = call.args[0] if call.args else None
    return (
        last_name(call) in ("log_every", "tqdm", "track", "progress_bar")
        and isinstance(first, ast.Call)
        and index.qualified(first.func) == "range"
    )


def _is_items(call: ast.Call) -> bool:
    """`batch.items()`, whose elements are pairs of a key and a value."""
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr == "items" and not call.args


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
    return (
        Target.ANY if kind in ("xpu", "hip", "npu", "gpu", "auto") else Target.UNKNOWN
    )


def _asks_for_gpu(test: ast.expr) -> bool:
    """`cfg.num_gpus`, `torch.cuda.is_available()`."""
    names = (dotted(n) or "" for n in ast.walk(test))
    return any(_GPU.search(name) for name in names)


def _comes_back(node: ast.expr) -> bool:
    """`preds.detach().cpu()`."""
    func = node.func if isinstance(node, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr == "cpu"


def _asks_for_gloo(test: ast.expr) -> bool:
    """`backend == "gloo"`: what objects are gathered through lies on the host then."""
    constants = (n.value for n in ast.walk(test) if isinstance(n, ast.Constant))
    return "gloo" in constants


def _one_target(values: Iterable[Value]) -> Target:
    """The target of all these values; a user may replace an option's `"cpu"`."""
    targets = {
        Target.ANY if v.default and v.constant == "cpu" else _named_target(v.constant)
        for v in values
    }
    return targets.pop() if len(targets) == 1 else Target.ANY


def _on(target: Target) -> Where:
    if target is Target.CPU:
        return Where.HOST
    if target in (Target.UNKNOWN, Target.NOT_A_DEVICE):
        return Where.UNKNOWN
    return Where.DEVICE


def _union(parts: Iterable[Where]) -> Where:
    found = Where.NOTHING
    for part in parts:
        found |= part
    return found


def _mixed(*parts: Where) -> Where:
    """The result of an operation on several values: on the device if one is."""
    found = _union(parts)
    if Where.DEVICE in found:
        return Where.DEVICE
    if Where.UNKNOWN in found:
        return Where.UNKNOWN
    return found
