"""Where a tensor lives: on the host or on the device, at a place in the file."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable

from gpulint.index.appended import appended_to
from gpulint.index.build import FileIndex, Function, last_name
from gpulint.index.calls import OF_MODULES
from gpulint.index.devices import Devices, Target, Where
from gpulint.index.flow import Definition
from gpulint.index.measured import measured
from gpulint.index.modules import Modules
from gpulint.index.objects import Callers, Made, callers_of, made_by
from gpulint.index.plain_numbers import is_computed_number, is_number
from gpulint.index.put_back import PutBack, put_back
from gpulint.index.resolve import Resolver
from gpulint.index.targets import item_of
from gpulint.index.tensor_names import (
    FACTORIES,
    JOINING_METHODS,
    KEEPING_METHODS,
    PLAIN_ATTRIBUTES,
    PLAIN_METHODS,
    is_parameter,
    keeps_place,
    result_of,
)
from gpulint.index.values import Evaluator
from gpulint.index.walk import dotted, walk

MAX_LINKS = 600  # of what a value is made of, through all files that lead to it
MAX_ROUNDS = 6  # until what comes from itself is known
NEAR = 40  # links from a question, up to which calls are told apart
MAX_PASSED = 2  # functions that return what another one gives
MAX_ALONE = 2  # calls that are taken for the only ones, one within another
_FILLS = frozenset("update setdefault append extend insert".split())
_PASSED_ON = frozenset("list tuple sorted reversed iter".split())
_TENSOR_ATTRIBUTES = frozenset("data grad T mT H mH real imag values indices".split())
_GPU = re.compile(r"gpu|cuda", re.IGNORECASE)
_TYPE = re.compile(r"\w+")
# Declared so, a parameter gets no tensor; what is declared as `float` often does.
_NO_TENSORS = frozenset({"int", "str", "bool"})
_PLAIN_COMPARISONS = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_LITERALS = (ast.List, ast.Tuple, ast.Dict, ast.Set)
_DISPLAYS = (ast.List, ast.Tuple, ast.ListComp)


class Tensors:
    """Host or device for the expressions of one file."""

    def __init__(self, resolver: Resolver, evaluator: Evaluator) -> None:
        self.resolver = resolver
        self.evaluator = evaluator
        self.index = resolver.index
        self.devices = Devices(resolver, evaluator, self.where)
        self.modules = Modules(resolver)
        self._where: dict[ast.AST, Where] = {}
        self._depth = 0  # of questions for where a value lives
        self._lowest = MAX_LINKS  # the outermost question that the last answers rest on
        self._rests_on: dict[ast.AST, int] = {}  # of what is not known for good
        self._circular: list[ast.AST] = []  # what rests on a question that is open
        self._before: dict[ast.AST, Where] = {}  # what a round before found for it
        self._objects: dict[Made, Tensors] = {}
        # Set by the script model: where batches are, of this file and of another.
        self.assumed: dict[ast.AST, Where] = {}
        self.beside: Callable[[ast.AST], dict[ast.AST, Where]] | None = None
        self._alone: frozenset[ast.Call] = frozenset()  # what functions run for, if any

    def where(self, node: ast.AST) -> Where:
        """Host, device, plain Python or unknown, for one expression.

        A value may come from itself, round a loop or through calls. What is being asked
        for adds nothing at first, then what was found for it, until nothing changes.
        """
        known = self._where.get(node)
        if known is not None:
            self._lowest = min(self._lowest, self._rests_on.get(node, MAX_LINKS))
            return known
        if self._depth > MAX_LINKS:
            return Where.UNKNOWN
        own, around, start = self._depth, self._lowest, len(self._circular)
        self._depth += 1
        try:
            for _ in range(MAX_ROUNDS):
                self._where[node] = before = self._before.get(node, Where.NOTHING)
                self._rests_on[node] = own
                self._lowest = MAX_LINKS
                result = self.assumed.get(node) or self._compute(node)
                its = self._circular[start:]
                stable = result == before and all(
                    self._where[n] == self._before.get(n) for n in its
                )
                if self._lowest != own or stable:
                    break
                for other in its:
                    self._before[other] = self._where.pop(other)
                self._before[node] = result
                del self._circular[start:]
        finally:
            self._depth -= 1
        self._where[node] = result
        if self._lowest < own:
            self._rests_on[node] = self._lowest
            self._circular.append(node)
        else:
            for other in (node, *self._circular[start:]):
                self._rests_on.pop(other, None)
                self._before.pop(other, None)
            del self._circular[start:]
            self._lowest = MAX_LINKS
        self._lowest = min(self._lowest, around)
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
            if any(self._is_text(x) or isinstance(x, _LITERALS) for x in compared):
                return Where.PLAIN  # a tensor is no text and no list, without a look
            return _mixed(*map(self.where, compared))
        if isinstance(node, ast.Subscript):
            return self._item(node)
        if isinstance(node, (ast.Starred, ast.Await)):
            return self.where(node.value)
        if isinstance(node, ast.IfExp):
            sides = (node.body, node.orelse)
            back = filter(_comes_back, sides if _asks_for_gpu(node.test) else ())
            return _union(map(self.where, list(back) or sides))
        if isinstance(node, ast.NamedExpr):
            return self.where(node.value)
        return self._container(node)

    def _item(self, node: ast.Subscript) -> Where:
        """An item lives where what holds it does, or where it was moved before.

        Not what lies under a name beside all kinds of things, as a setting beside a
        network: `parts["rate"]`.
        """
        moved = self._moved(node.value, node.slice)
        if moved is not None and moved.sure:
            return Where.DEVICE
        found = self.where(node.value) | (Where.DEVICE if moved else Where.NOTHING)
        if (Where.PLAIN | Where.DEVICE) not in found or not self._is_text(node.slice):
            return found
        written = self._under_key(node)
        return written or (Where.UNKNOWN if Where.UNKNOWN in found else found)

    def _under_key(self, node: ast.Subscript) -> Where:
        """Where the value is that a dict is written with; nothing if one has none.

        Nor where a statement of the file gives the dict items.
        """
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        given = dotted(node.value) in self.index.home(node).item_writes
        if given or not isinstance(key, str):
            return Where.NOTHING
        dicts = [origin.expression for origin in self.resolver.origins(node.value)]
        values = [item_of(its, key) for its in dicts]
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return Where.NOTHING
        return _union(map(self.where, known))

    def _moved(self, holder: ast.expr, key: ast.expr | None) -> PutBack | None:
        """What lies under a key, or all of a dict, if it was moved and put back."""
        if not isinstance(holder, ast.Name) or not isinstance(holder.ctx, ast.Load):
            return None
        if holder.id not in self.index.home(holder).item_writes:
            return None
        its = put_back(self.resolver, holder, key)
        call = its.value if its is not None else None
        move = self.devices.move(call) if isinstance(call, ast.Call) else None
        return its if move is not None and _on(move.target) is Where.DEVICE else None

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
        found = self._defined(back or definitions)
        moved = self._moved(node, None) if Where.HOST in found else None
        if moved is None:
            return found
        return (found & ~Where.HOST if moved.sure else found) | Where.DEVICE

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
        assumed = self.assumed.get(node) or self._elsewhere(definition)
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

    def _elsewhere(self, definition: Definition) -> Where | None:
        """Where the batch of another file's loop is, which calls a step of this one."""
        node = definition.node
        if definition.kind != "for" or self.beside is None or self.index.holds(node):
            return None
        return self.beside(node).get(node)

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
        function = self.resolver.calls.callee(call)
        functions = [function] if function is not None else self._forwards(call)
        returned = [v for f in functions for v in self._returned(f, MAX_PASSED)]
        parts = [_at(value, step) for value in returned]
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        numbers = [
            is_number(self.resolver.origins(part)) or self._is_added_up(part)
            for part in known
        ]
        if not any(self._is_filled(part) for part in known) and (
            all(numbers) or (function and all(map(self._is_list_of_numbers, known)))
        ):
            return Where.PLAIN
        its = _union(map(self.where, known)) if function is not None else Where.PLAIN
        if function is not None and all(map(self._is_passed_on, known)):
            return its or Where.UNKNOWN
        return its if its & ~Where.PLAIN else None

    def _returned(self, function: Function, depth: int) -> list[ast.expr]:
        """What a function returns, or what the function does that it hands on to."""
        found: list[ast.expr] = []
        for value in filter(None, self.resolver.flow(function).returns):
            call = value if isinstance(value, ast.Call) else None
            inner = self.resolver.calls.callee(call) if call is not None else None
            passed = inner is not None and depth > 0
            found += self._returned(inner, depth - 1) if inner and passed else [value]
        return found

    def _is_list_of_numbers(self, node: ast.expr) -> bool:
        """`[len(x) for x in texts]`, which nothing else is made of."""
        made = [origin.node for origin in self.resolver.origins(node)]
        return bool(made) and all(
            isinstance(m, ast.ListComp) and self.where(m.elt) == Where.PLAIN
            for m in made
        )

    def _is_added_up(self, node: ast.expr) -> bool:
        """`total = 0.0`, `total += loss.item()`: a number, and numbers are added."""
        made = self.resolver.definitions(node) if isinstance(node, ast.Name) else ()
        return bool(made) and all(
            d.kind in ("assign", "augment")
            and not d.path
            and is_computed_number(d.value)
            for d in made
        )

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
        owners = self.resolver.classes.of(call.func)
        found = [
            self.resolver.classes.methods(owner).get("forward") for owner in owners
        ]
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
            given = self.resolver.calls.arguments(function, definition.name)
        if not given:
            return Where.UNKNOWN
        return _union(map(self.where, given)) or Where.UNKNOWN

    def _attribute(self, node: ast.Attribute) -> Where:
        if node.attr in PLAIN_ATTRIBUTES:
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

        Also one in a wrapper, `model.module.scale`. Not what is used as only a tensor
        is: `model.loss.item()`.
        """
        home = self.index.home(node)
        above = home.parent(node)
        if isinstance(above, (ast.Attribute, ast.Subscript)):
            return False
        name = dotted(node.value)
        if name is not None and name.endswith(".module"):
            return True
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
        move = self.devices.move(call)
        target = move.target if move is not None else self.devices.spread_target(call)
        if target is not None:
            return Where.HOST if target is Target.CPU else Where.DEVICE
        name = self.index.qualified(call.func) or ""
        known = result_of(name)
        if known is not None:
            return known
        if keeps_place(name):
            return self._arguments(call) or Where.PLAIN
        if name == "typing.cast" and len(call.args) == 2:
            return self.where(call.args[1])
        if name.startswith("torch."):
            return self._torch(call, name)
        function = self.resolver.calls.callee(call)
        if function is not None:
            return self._result(call, function)
        if isinstance(call.func, ast.Attribute):
            return self._method(call, call.func)
        return self._opaque(call, call.func)

    def _torch(self, call: ast.Call, name: str) -> Where:
        if is_parameter(name):
            owner = self.index.owner(call)
            own = owner is not None and self.modules.is_module_class(owner)
            if call.args and not own and self.where(call.args[0]) == Where.HOST:
                return Where.HOST
            return Where.UNKNOWN  # goes where its module goes
        for keyword in call.keywords:
            if keyword.arg == "device":
                return _on(self.devices.target(keyword.value))
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
        its.beside = self.beside
        its._depth = self._depth
        return its

    def _method(self, call: ast.Call, func: ast.Attribute) -> Where:
        if func.attr in PLAIN_METHODS:
            return Where.PLAIN
        if func.attr in ("cpu", "numpy", "astype", "pin_memory"):
            return Where.HOST
        if func.attr == "type" and call.args:
            return self._typed(call, func)
        receiver = self.where(func.value)
        tensors = receiver & (Where.HOST | Where.DEVICE)
        if tensors and Where.UNKNOWN not in receiver:
            in_place = func.attr.endswith("_") and not func.attr.endswith("__")
            kept = in_place or func.attr in KEEPING_METHODS  # `host.copy_(there)`
            return _mixed(tensors, Where.NOTHING if kept else self._arguments(call))
        if func.attr in JOINING_METHODS and self._arguments(call) is Where.DEVICE:
            return Where.DEVICE
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
        if Where.DEVICE in found and self.modules.is_module(callee):
            return Where.DEVICE
        if found == Where.HOST and self.modules.is_module(callee):
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


def _asks_for_gpu(test: ast.expr) -> bool:
    """`cfg.num_gpus`, `torch.cuda.is_available()`."""
    names = (dotted(n) or "" for n in ast.walk(test))
    return any(_GPU.search(name) for name in names)


def _comes_back(node: ast.expr) -> bool:
    """`preds.detach().cpu()`."""
    func = node.func if isinstance(node, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr == "cpu"


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
