"""What a function that a dataset maps does to each element."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.build import last_name
from gpulint.index.walk import walk
from gpulint.script.frameworks.tf_names import name_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 6
_DRAWS = re.compile(
    r"(^|[._])(random|Random\w*|dropout|Dropout|multinomial|shuffle|GaussianNoise|"
    r"sample_\w+|\w*_sampler|RandAugment|MixUp|CutMix|AutoAugment|AugMix)(_|\.|$)"
)
_PYTHON = re.compile(r"\.(py_func|py_function|numpy_function|eager_py_func)$")
_ACTS = re.compile(r"\.(print|assign\w*|write_file|Variable|scalar|summary|insert)\b")
_ASSIGNS = re.compile("assign(_add|_sub)?|scatter_\\w+")
_PLAIN = frozenset(
    "len range zip enumerate tuple list dict set int float str bool isinstance min max "
    "sum abs sorted reversed type round slice print getattr hasattr repr".split()
)
_PLAIN_MODULES = ("numpy.", "math.", "os.path.", "functools.partial", "operator.")
# Of tensors, shapes, dicts and strings; they keep nothing.
_METHODS = frozenset(
    "set_shape get_shape pop get items keys values append extend update copy to_tensor "
    "to_sparse as_list lower upper format join split strip startswith endswith "
    "with_values lookup astype ref numpy index".split()
)
# What a function may call that only takes an element apart and puts it together, or
# gives its parts another shape.
_PICKS = frozenset(
    "pop get items keys values copy update dict list tuple len zip set_shape".split()
)
_SHAPES = re.compile(r"tensorflow\.(reshape|expand_dims|squeeze|identity|ensure_shape)")
_NESTED = frozenset("map batch take skip repeat prefetch filter interleave".split())
_ELEMENTWISE = re.compile(
    r"^tensorflow\.(cast|one_hot|clip_by_value|convert_to_tensor|identity|"
    r"to_float|divide|multiply|subtract|add|square|sqrt|abs|math\.\w+|"
    r"image\.(convert_image_dtype|per_image_standardization)|constant)$"
)
_REDUCES = re.compile(r"\.(reduce|segment|cumsum|argmax|top_k)")


class Mapped:
    """The facts of one function, read through the functions that it calls.

    `draws`: where it draws random numbers; `python`: where it goes back to Python;
    `unknown`: a call that might do either; `keeps`: where it changes what is left for
    the next element; `picks`: it only chooses among the parts of an element, or gives
    them another shape; `elementwise`: each number is computed from one number.
    """

    def __init__(self, script: Script, given: ast.expr) -> None:
        self.script = script
        self.draws: ast.AST | None = None
        self.python: ast.AST | None = None
        self.unknown: ast.AST | None = None
        self.keeps: ast.AST | None = None
        self.elementwise = True
        self.picks = True
        self._computes = False
        self._seen: set[ast.AST] = set()
        functions = _functions(script, given)
        if not functions:
            self._judge_name(given, name_of(script, given))
        for function in functions:
            self._read(function, 0)
        self.elementwise = self.elementwise and self._computes and not self.unknown

    @property
    def exact(self) -> bool:
        """Whether elements are the same, however many are made at a time."""
        return not (self.draws or self.python or self.unknown)

    def _read(self, function: Function | ast.Lambda, depth: int) -> None:
        if function in self._seen:
            return
        self._seen.add(function)
        if isinstance(function, ast.Lambda):
            body: list[ast.AST] = [function.body]
        else:
            body = list(function.body)
            for decorator in function.decorator_list:
                if not name_of(self.script, _callee(decorator)).endswith(
                    ("tensorflow.function", "staticmethod", "autograph.convert")
                ):
                    self.unknown = decorator
        for node in walk(*body):
            self._node(node, depth)

    def _node(self, node: ast.AST, depth: int) -> None:
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            self.unknown = self.keeps = node
        elif isinstance(node, ast.Call):
            self._call(node, depth)
        elif isinstance(node, ast.Compare):
            self.elementwise = False
        elif isinstance(node, (ast.BinOp, ast.UnaryOp)):
            number = getattr(node, "operand", None)
            self.picks = self.picks and isinstance(number, ast.Constant)  # `-1`
            plain = (ast.Add, ast.Sub, ast.Mult, ast.Div)
            operator = getattr(node, "op", None)
            self.elementwise = self.elementwise and isinstance(operator, plain)
            self._computes = True
        elif isinstance(node, ast.Subscript):
            key = node.slice
            named = isinstance(key, ast.Constant) and isinstance(key.value, str)
            self.elementwise = self.elementwise and named
        elif isinstance(node, (ast.If, ast.For, ast.While, ast.IfExp)):
            self.elementwise = False

    def _call(self, call: ast.Call, depth: int) -> None:
        if _ASSIGNS.fullmatch(last_name(call) or ""):
            self.unknown = self.keeps = call
        function = self.script.resolver.calls.callee(call)
        if function is not None and depth < MAX_DEPTH:
            self._read(function, depth + 1)
            return
        name = name_of(self.script, call.func)
        if not (_PYTHON.search(name) and self._takes_rows(call)):
            self._judge_name(call, name)

    def _takes_rows(self, call: ast.Call) -> bool:
        """`tf.py_func(get, …)`, of a function without calls: `return images[index]`."""
        functions = _functions(self.script, call.args[0]) if call.args else []
        return bool(functions) and not any(
            isinstance(node, ast.Call) for node in walk(*functions)
        )

    def _judge_name(self, node: ast.AST, name: str) -> None:
        last = name.rpartition(".")[2]
        if not _ELEMENTWISE.match(name) or _REDUCES.search(name):
            self.elementwise = False
        self._computes = True
        picks = last in _PICKS and not name.startswith("tensorflow.")
        self.picks = self.picks and (picks or bool(_SHAPES.fullmatch(name)))
        if "stateless" not in name and _DRAWS.search(name):
            if name.startswith(("numpy.", "random.")):
                self.unknown = node  # drawn once, when the function is traced
            elif name.startswith(("tensorflow", "keras")):
                self.draws = node
            else:
                self.unknown = node
        elif name.startswith("tensorflow.") and _PYTHON.search(name):
            self.python = node
        elif name.startswith("tensorflow.") and _ACTS.search(name):
            self.unknown = node
        elif name.startswith("keras."):
            if not (name.startswith("keras.applications.") and "preprocess" in last):
                self.unknown = node
        elif not (name.startswith(("tensorflow.", *_PLAIN_MODULES)) or name in _PLAIN):
            self._other(node)

    def _other(self, node: ast.AST) -> None:
        """A method of something, or a layer that is called."""
        if not isinstance(node, ast.Call):
            self.unknown = node
            return
        if isinstance(node.func, ast.Attribute):
            method = last_name(node)
            if method == "shuffle":
                self.draws = node
                return
            if method in _METHODS or method in _NESTED:
                return
        drawing = _drawing_layer(self.script, node.func)
        if drawing is not None:
            self.draws = drawing
        else:
            self.unknown = node


def gives_up_order(script: Script, call: ast.Call) -> bool:
    """Whether a call, or the script, lets elements come as they get ready."""
    own = [k.value for k in call.keywords if k.arg == "deterministic"]
    if own:
        return not (isinstance(own[0], ast.Constant) and own[0].value is True)
    names = script.index.attribute_writes
    return any(n in names for n in ("deterministic", "experimental_deterministic"))


def _functions(script: Script, given: ast.expr) -> list[Function | ast.Lambda]:
    """The functions of the project that an argument can be; none: not known."""
    if isinstance(given, ast.Lambda):
        return [given]
    found: list[Function | ast.Lambda] = []
    for origin in script.resolver.origins(given):
        node = origin.node
        if isinstance(node, ast.Call) and last_name(node) == "partial" and node.args:
            found += _functions(script, node.args[0])
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            found.append(node)
        elif isinstance(node, ast.Attribute):
            owners = script.resolver.classes.of(node.value)
            methods = [
                script.resolver.classes.methods(o).get(node.attr) for o in owners
            ]
            if not methods or None in methods:
                return []
            found += [m for m in methods if m is not None]
        else:
            return []
    return found


def _drawing_layer(script: Script, callee: ast.expr) -> ast.AST | None:
    """Where the layers that a callee stands for hold one that draws."""
    for origin in script.resolver.origins(callee):
        made = origin.call
        for call in walk(made) if made is not None else ():
            if isinstance(call, ast.Call):
                name = name_of(script, call.func)
                if name.startswith("keras.") and _DRAWS.search(name):
                    return call
    return None


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node
