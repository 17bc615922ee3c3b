"""What a model's `forward` waits for before any of its layers has work."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index import Function, Target, Where
from gpulint.index.walk import LOOPS, compares_values, dotted, walk
from gpulint.script.copying.asked_values import asked_of, picks_by_list
from gpulint.script.copying.creations import creation
from gpulint.script.loading.sent import is_cast
from gpulint.script.neighbours import run_together
from gpulint.script.reaching.evaluated import evaluated, heads
from gpulint.script.training.evaluation import called_module
from gpulint.script.waiting.drained import ON_THE_HOST, runs_modules
from gpulint.script.waiting.reading import READS
from gpulint.script.waiting.stops import normalizes

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 5  # of modules and functions, one in the other
# They take lists: of a tensor, most would give the same one.
_OF_LISTS = frozenset(
    f"torch.{n}" for n in "tensor Tensor FloatTensor LongTensor DoubleTensor".split()
)
_MAKES = frozenset({"torch.tensor", "torch.as_tensor"})
_DETECTOR = re.compile(
    r"torchvision\.models\.detection\.(\w+\.)?"
    r"(\w*(rcnn|retinanet|ssd|ssdlite|fcos)\w*_\w+|\w*(RCNN|RetinaNet|SSD|FCOS))$"
)
SETS = frozenset("to cuda train requires_grad_ load_state_dict apply".split())
# Layers and functions of one small operation: the host is soon behind them.
_SINGLE = re.compile(
    r"torch\.nn\.(Embedding|Dropout\w*|Identity|Flatten|Unflatten|\w*ReLU\w*|Sigmoid"
    r"|Tanh|GELU|SiLU|Softmax|LayerNorm|BatchNorm\w*|InstanceNorm\w*|GroupNorm"
    r"|\w+Pad[123]d)$"
)
_WORKS = re.compile(
    r"torch\.(fft\.\w+|utils\.checkpoint\.checkpoint\w*|(nn\.functional\.)?(conv\w+"
    r"|linear|bilinear|matmul|mm|bmm|einsum|baddbmm|addmm|stft|istft|cdist|unfold"
    r"|grid_sample|multi_head_attention_forward|scaled_dot_product_attention))$"
)
_PRODUCTS = frozenset("matmul mm bmm addmm baddbmm mv einsum".split())
_Known = dict[tuple[Function, frozenset[str], int], bool | None]
_PLAIN = frozenset("shape dtype device ndim is_cuda requires_grad layout".split())
_SIZES = frozenset("size dim numel stride get_device element_size".split())
_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def begins_with_wait(script: Script, call: ast.Call) -> bool:
    """Whether all models that a call may run wait first of all.

    By a read of what they are given or of a weight, a copy from ordinary memory, or
    what asks for a number of values; also in the modules that they run first, and in
    functions. Torchvision's detectors copy the mean of their pictures from a list.
    """
    return _Code(script, frozenset(), MAX_DEPTH, {}).module(call) is True


def copies_from_host(script: Script, call: ast.Call) -> bool:
    """Whether a call copies what surely lies in ordinary memory, and waits.

    Nothing of the batch, which may be queued as well, but what is made anew of its
    lists or cast to a type of the host, and nothing that the device could have made
    itself.
    """
    if _is_written_there(script.of(call), call):
        return True
    move = script.devices.move(call)
    if move is None or move.target is Target.CPU or move.non_blocking is not None:
        return False
    its = script.of(call)
    made = creation(its, move.receiver)
    if its.where(move.receiver) != Where.HOST or (made and not made.computed):
        return False
    source = move.receiver
    func = source.func if isinstance(source, ast.Call) and source.args else None
    if func is not None and its.index.qualified(func) in _OF_LISTS:
        return True  # `torch.tensor(batch["labels"]).to(device)`
    if is_cast(its, source):
        return True
    names = (n for n in walk(move.receiver) if isinstance(n, ast.Name))
    return all(its.batches.loop_of(name) is None for name in names)


def _is_written_there(script: Script, call: ast.Call) -> bool:
    """`torch.tensor([0.485, 0.456, 0.406], device=x.device)`, copied from the host."""
    values = call.args[0] if call.args else None
    if not isinstance(values, (ast.List, ast.Tuple)) or not values.elts:
        return False
    makes = script.index.qualified(call.func) in _MAKES
    return makes and script.where(call) == Where.DEVICE


def _is_detector(script: Script, made: ast.Call) -> bool:
    """`torchvision.models.detection.fasterrcnn_resnet50_fpn(…)`."""
    while isinstance(made.func, ast.Attribute) and made.func.attr in SETS:
        if not isinstance(made.func.value, ast.Call):
            break
        made = made.func.value  # of `detector(…).to(device)`
    owner = script.resolver.classes.named(made.func)
    bases = script.resolver.classes.bases(owner) if owner is not None else ()
    named = [made.func, *(base for its in bases for base in its.bases)]
    names = (script.index.home(part).qualified(part) or "" for part in named)
    return any(map(_DETECTOR.match, names))


def _is_given_pictures(script: Script, call: ast.Call) -> bool:
    """`model(images, targets)` of a list of pictures, where detectors are used.

    Of a model that is not known, in a program that imports torchvision's.
    """
    given = script.resolver.origins(call.args[0]) if call.args else ()
    made = [origin.expression for origin in given]
    if not made or not all(map(_is_list_of_parts, made)):
        return False
    if not script.mentions("torchvision.models.detection"):
        return False
    return any(
        origin.startswith("torchvision.models.detection")
        for index in run_together(script)
        for origin in index.imported
    )


def _is_list_of_parts(node: ast.expr | None) -> bool:
    """`[x.to(device) for x in images]`, or `list(…)` of such."""
    if isinstance(node, ast.Call) and dotted(node.func) == "list" and node.args:
        return isinstance(node.args[0], (ast.GeneratorExp, ast.ListComp))
    return isinstance(node, ast.ListComp)


def _perhaps(node: ast.AST) -> list[ast.expr]:
    """The parts of an expression that may not be evaluated where it is."""
    if isinstance(node, ast.BoolOp):
        return node.values[1:]
    if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp)):
        return [node.elt]
    return []


class _Code:
    """Code of which `there` are the parameters that are tensors on the device.

    What it comes to first is True, a wait; False, work for the device; or None where it
    ends without either.
    """

    def __init__(
        self, script: Script, there: frozenset[str], depth: int, known: _Known
    ) -> None:
        self.script = script
        self.there = there
        self.depth = depth
        self.known = known  # what functions came to that were looked at before

    def module(self, call: ast.Call) -> bool | None:
        """What a call of a module comes to first."""
        callee = called_module(call)
        origins = self.script.resolver.origins(callee)
        made = [origin.call for origin in origins if origin.call is not None]
        known = len(made) == len(origins) > 0
        if known and all(_is_detector(self.script, c) for c in made):
            return True
        classes = self.script.resolver.classes
        methods = [classes.methods(o).get("forward") for o in classes.of(callee)]
        if not methods and _is_given_pictures(self.script, call):
            return True
        if not methods and known:
            names = [self._name(c.func) for c in made]
            return None if all(map(_SINGLE.match, names)) else False
        if not methods:
            return False
        return self._one_of(
            self._function(method, call) if method is not None else False
            for method in methods
        )

    def _function(self, function: Function, call: ast.Call) -> bool | None:
        """What a function comes to first that a call runs."""
        its = self.script.of(function)
        if self.depth == 0:
            return False if runs_modules(its, function) else None
        arguments = function.args
        names = [
            a.arg
            for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            for given, _ in [self.script.resolver.calls.given(call, function, a.arg)]
            if any(map(self.is_there, given))
        ]
        asked = function, frozenset(names), self.depth - 1
        if asked not in self.known:
            self.known[asked] = None  # should it call itself
            code = _Code(its, asked[1], asked[2], self.known)
            self.known[asked] = code.block(function.body)
        return self.known[asked]

    @staticmethod
    def _one_of(found: Iterable[bool | None]) -> bool | None:
        """What of some ways one is taken comes to first: work, if one comes to that."""
        ways = set(found)
        return ways.pop() if len(ways) == 1 else (False if False in ways else None)

    def block(self, body: Iterable[ast.stmt]) -> bool | None:
        """What some statements come to first, in all their branches."""
        for statement in body:
            its = self._statement(statement)
            if its is not None:
                return its
            if isinstance(statement, _LEAVES):
                return None
        return None

    def _statement(self, statement: ast.stmt) -> bool | None:
        for head in heads(statement):
            its = self._expression(head)
            if its is not None:
                return its
        if isinstance(statement, ast.If):
            known = self.script.evaluator.values(statement.test)
            if known.all_in(True):
                return self.block(statement.body)
            return self._one_of(map(self.block, (statement.body, statement.orelse)))
        if isinstance(statement, LOOPS):  # perhaps of no round
            return self._one_of((self.block(statement.body), None))
        if isinstance(statement, ast.Match):
            return self._one_of([None, *(self.block(c.body) for c in statement.cases)])
        if isinstance(statement, (ast.With, ast.AsyncWith, ast.Try)):
            return self.block(statement.body)
        return None

    def _expression(self, root: ast.AST) -> bool | None:
        for node in evaluated(root):
            if self._waits(node):
                return True
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                return False
            if isinstance(node, ast.IfExp):
                its = self._one_of(map(self._expression, (node.body, node.orelse)))
            elif isinstance(node, ast.Call):
                its = self._call(node)
            else:
                its = self._one_of([None, *map(self._expression, _perhaps(node))])
            if its is not None:
                return its
        return None

    def _call(self, call: ast.Call) -> bool | None:
        if _WORKS.match(self.script.index.qualified(call.func) or ""):
            return False
        if self.script.modules.is_module(called_module(call)):
            return self.module(call)
        function = self.script.resolver.calls.callee(call)
        if function is not None:
            return self._function(function, call)
        return False if self._may_work(call) else None

    def _may_work(self, call: ast.Call) -> bool:
        """Whether what is not known may give the device work: it is given a tensor.

        `block(x)` of a list of layers, `self.clip.encode_image(x)`, `x.matmul(y)`.
        """
        func, name = call.func, self.script.index.qualified(call.func) or ""
        if isinstance(func, ast.Attribute) and self.is_there(func.value):
            return func.attr in _PRODUCTS
        if name.startswith("torch.") or name.partition(".")[0] in ON_THE_HOST:
            return False
        names = (n for n in walk(*call.args) if isinstance(n, ast.Name))
        return any(self.is_there(n) or self._may_be(n) for n in names)

    def _may_be(self, name: ast.Name) -> bool:
        """Whether a name is such a parameter on some path, as behind a loop."""
        made = self.script.definitions(name)
        return any(d.kind == "parameter" and d.name in self.there for d in made)

    def _waits(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):
            return picks_by_list(self.script, node) or self._picks_by_mask(node)
        if not isinstance(node, ast.Call):
            return False
        if copies_from_host(self.script, node) or normalizes(self.script, node):
            return True
        asked = asked_of(self.script, node)
        return asked is not None and self.is_there(asked)

    def is_there(self, node: ast.expr, depth: int = 4) -> bool:
        """Whether an expression is a tensor on the device, or made of one there."""
        if self._is_weight(node):
            return True
        its = self.script.where(node)
        if its == Where.DEVICE:
            return True
        if its in (Where.PLAIN, Where.HOST) or depth == 0:
            return False
        if isinstance(node, ast.Attribute):
            return node.attr not in _PLAIN and self.is_there(node.value, depth)
        if isinstance(node, ast.Subscript):
            return self.is_there(node.value, depth)
        if isinstance(node, ast.UnaryOp):
            return self.is_there(node.operand, depth)
        if isinstance(node, ast.BinOp):
            return any(self.is_there(n, depth) for n in (node.left, node.right))
        if isinstance(node, ast.Compare):
            return compares_values(node) and self.is_there(node.left, depth)
        if isinstance(node, ast.Call):
            return self._gives_tensor(node, depth)
        made = self.script.definitions(node) if isinstance(node, ast.Name) else ()
        return bool(made) and all(
            d.name in self.there
            if d.kind == "parameter"
            else d.value is not None and self.is_there(d.value, depth - 1)
            for d in made
        )

    def _gives_tensor(self, call: ast.Call, depth: int) -> bool:
        func = call.func
        of_torch = (self.script.index.qualified(func) or "").startswith("torch.")
        if of_torch or self.script.modules.is_module(called_module(call)):
            return any(self.is_there(value, depth) for value in call.args)
        if not isinstance(func, ast.Attribute) or func.attr in READS | _SIZES:
            return False
        return self.is_there(func.value, depth)

    def _is_weight(self, node: ast.expr) -> bool:
        """`self.scale`, where that is a parameter of the module."""
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            return False
        if self.script.resolver.self_name(self.script.index.scope(node)) is None:
            return False
        made = [o.call for o in self.script.resolver.origins(node)]
        names = {self._name(c.func) for c in made if c is not None}
        return bool(made) and names == {"torch.nn.Parameter"}

    def _name(self, func: ast.expr) -> str:
        name = self.script.index.home(func).qualified(func) or ""
        return name.replace("torch.nn.parameter.", "torch.nn.")

    def _picks_by_mask(self, node: ast.Subscript) -> bool:
        """`x[x > 0]`, as large as the values say."""
        mask = node.slice
        return (
            isinstance(node.ctx, ast.Load)
            and isinstance(mask, ast.Compare)
            and self.is_there(mask)
            and self.is_there(node.value)
        )
