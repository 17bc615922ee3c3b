"""Whether mixed precision suits a Keras training, and where its outputs are made."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.frameworks.tf_names import name_of
from gpulint.script.frameworks.tf_steps import fits, is_model_class, tapes
from gpulint.script.modelling.written_sizes import names_large
from gpulint.script.reaching.started import is_started
from gpulint.script.rewriting.edits import CannotFix

if TYPE_CHECKING:
    from gpulint.script.model import Script

_DECIDED = re.compile(
    r"mixed_precision|mixed_float16|mixed_bfloat16|bfloat16|float16|LossScale|"
    r"set_dtype_policy|set_floatx|TPUStrategy|CUDA_VISIBLE_DEVICES\W+\s*=\s*\W-1|"
    r"\bTFTrainingArguments\b|"  # whose `fp16` sets the policy
    r"\baimet|\btfmot\b|tensorflow_model_optimization"  # simulated in float32
)
# Networks that multiply enough for tensor cores to matter.
_LARGE = re.compile(
    r"\bConv[123]D\b|MultiHeadAttention|SeparableConv|keras\.applications|"
    r"applications\.\w+\(|TransformerBlock|from_pretrained\("
)
_GRAM = re.compile(r"\bdef (\w+_)?gram_?mat\w*\(|\bdef gram\(", re.IGNORECASE)
# Numbers that no half format holds: `tf.math.log(x + 1e-24)`, `mask * -(2 ** 32)`.
OUT_OF_RANGE = re.compile(r"\b1e-(?:1\d|2\d|3\d)\b|\b2\s*\*\*\s*(?:1[6-9]|[23]\d)\b")
# What makes numbers of a type of its own, or of the backend's.
_MAKES_NUMBERS = re.compile(
    r"\brandom\b|random_\w+\(|float32|float64|floatx|\b(?:tf|K|ops)\.(?:constant|eye|"
    r"fill|linspace|one_hot|ones|range|sequence_mask|zeros)\("
)
_COMPUTES = re.compile(r"\badd_weight\(|\b(?:tf|K|ops|backend)\.(?!keras\b)\w+")
_KERAS = frozenset("tensorflow keras tf_keras".split())
MOST = 12  # files of a program, or classes of a model, that are read
_FLOAT32 = ("float32", "float64")
_OUTPUTS = re.compile(r"^keras\.layers\.(Dense|Activation|Softmax|Conv\dD)$")


def is_decided(script: Script) -> bool:
    """Whether anything says what precision there is, in the files of the program."""
    return any(f.source.has(_DECIDED) for f in _files(script))


def is_large(script: Script) -> bool:
    """Whether convolutions or attention are seen in the files of the program."""
    return any(f.source.has(_LARGE) for f in _files(script))


def counts_on_float32(script: Script) -> bool:
    """Whether a layer of the program's own makes numbers that may be float32.

    Those of another type than its inputs raise where the two meet.
    """
    for file in _files(script):
        owners = file.classes.values()
        parts = [*filter(_is_layer, owners), *file.calls_by_name.get("Lambda", ())]
        if any(_MAKES_NUMBERS.search(script.of(part).text(part)) for part in parts):
            return True
    return False


def compares_styles(script: Script) -> bool:
    """Whether a program multiplies features by themselves: `gram_matrix(features)`.

    Such sums over all pixels pass what float16 holds, and meet float32 in the loss.
    """
    return any(file.source.has(_GRAM) for file in _files(script))


def has_own_layers(script: Script) -> bool:
    """Whether a program has layers of its own that may count on one type.

    They have weights of their own, or join by `tf.concat` what may be of two types.
    """
    return any(
        _is_layer(owner)
        and any((dotted(base) or "").endswith("Layer") for base in owner.bases)
        and _COMPUTES.search(script.of(owner).text(owner))
        for file in _files(script)
        for owner in file.classes.values()
    )


def is_of_a_package(script: Script, fit: ast.Call) -> bool:
    """Whether a model is made by a package that is neither Keras nor this project."""
    assert isinstance(fit.func, ast.Attribute)
    made = [origin.call for origin in script.resolver.origins(fit.func.value)]
    for call in filter(None, made):
        home = script.index.home(call)
        name = home.qualified(call.func) or ""
        own = name.partition(".")[0] in _KERAS or home.owns(name)
        if home.is_import(call.func) and not own:
            return True
    return False


def _is_layer(owner: ast.ClassDef) -> bool:
    """Whether a class is a layer, or a model, whatever it derives from."""
    return any(isinstance(f, ast.FunctionDef) and f.name == "call" for f in owner.body)


def is_unfit(script: Script, fit: ast.Call) -> bool:
    """Whether a model of the project's own is small, or counts on float32.

    By the code of its class, and of the classes that this makes.
    """
    assert isinstance(fit.func, ast.Attribute)
    made = [origin.call for origin in script.resolver.origins(fit.func.value)]
    owners = [script.resolver.classes.named(c.func) for c in made if c is not None]
    texts = [_code(script, owner) for owner in owners if owner is not None]
    return bool(texts) and all(
        not _LARGE.search(text)
        or not names_large(text)
        or OUT_OF_RANGE.search(text) is not None
        or "float32" in text
        for text in texts
    )


def _code(script: Script, owner: ast.ClassDef) -> str:
    """The code of a class, of the project's classes that it makes, and of its bases."""
    found = [owner]
    for known in found:
        home = script.of(known)
        calls = (n for n in walk(known) if isinstance(n, ast.Call))
        inner = (home.resolver.classes.named(call.func) for call in calls)
        for other in (*inner, *home.resolver.classes.bases(known)):
            if other is not None and other not in found and len(found) < MOST:
                found.append(other)
    return "\n".join(script.of(known).text(known) for known in found)


def _files(script: Script) -> list[FileIndex]:
    """This file, and those that it imports, and they."""
    found = [script.index]
    for index in found:
        if index.project is None or len(found) > MOST:
            continue
        for origin in [*index.imported, *index.stars]:
            if index.owns(origin):
                member = index.member(origin)
                if member is not None and member[0] not in found:
                    found.append(member[0])
    return found


def output_layers(script: Script) -> list[ast.Call]:
    """The calls that make the layers which give the model's outputs.

    Raises CannotFix with the reason why mixed precision cannot simply be switched on.
    """
    if tapes(script):
        raise CannotFix("the script's own steps would have to scale the loss")
    if not is_started(script) and not _fits_at_top(script):
        raise CannotFix("the file is imported: the line belongs where the run starts")
    if any(is_model_class(script, c) for c in script.index.all(ast.ClassDef)):
        raise CannotFix("which layer of its own model gives the outputs is not known")
    found: list[ast.Call] = []
    for call in fits(script):
        assert isinstance(call.func, ast.Attribute)
        origins = script.resolver.origins(call.func.value)
        made = [_outputs_of(script, o.call) for o in origins if o.call is not None]
        if not made or len(made) < len(origins) or not all(made):
            name = script.text(call.func.value)
            raise CannotFix(f"`{name}` may be a model with steps of its own")
        found += [layer for layers in made for layer in layers]
    if not found:
        raise CannotFix("the layer that gives the outputs, in float32, is not known")
    return [layer for layer in dict.fromkeys(found) if not _is_float32(layer)]


def _fits_at_top(script: Script) -> bool:
    """Whether the training stands in the file itself, in no function."""
    return any(script.index.function(call) is None for call in fits(script))


def _outputs_of(script: Script, call: ast.Call) -> list[ast.Call]:
    name = name_of(script, call.func)
    if name in ("keras.Sequential", "keras.models.Sequential"):
        layers = call.args[0] if call.args else None
        if isinstance(layers, ast.List) and layers.elts:
            return [_layer(script, layers.elts[-1])]
        return [_layer(script, _last_added(script, call))]
    if name in ("keras.Model", "keras.models.Model"):
        given = {k.arg: k.value for k in call.keywords}
        outputs = given.get("outputs") or (call.args[1] if len(call.args) > 1 else None)
        if isinstance(outputs, (ast.List, ast.Tuple)):
            return [_applied(script, part) for part in outputs.elts]
        return [_applied(script, outputs)]
    return []


def _last_added(script: Script, made: ast.Call) -> ast.expr | None:
    """The layer of the last `model.add(…)`, where all are in one block."""
    calls = [
        c
        for c in script.index.calls_by_name.get("add", ())
        if isinstance(c.func, ast.Attribute)
        and any(o.node is made for o in script.resolver.origins(c.func.value))
    ]
    blocks = {script.index.parent(script.index.statement(c)) for c in calls}
    last = calls[-1] if len(blocks) == 1 else None
    return last.args[0] if last is not None and last.args else None


def _applied(script: Script, node: ast.expr | None) -> ast.Call:
    """The layer in `outputs = Dense(10)(x)`."""
    origins = script.resolver.origins(node) if node is not None else ()
    call = origins[0].call if len(origins) == 1 else None
    return _layer(script, call.func if call is not None else None)


def _layer(script: Script, node: ast.expr | None) -> ast.Call:
    """A call of this file that makes a layer whose `dtype` can be given."""
    origins = script.resolver.origins(node) if node is not None else ()
    call = origins[0].call if len(origins) == 1 else None
    if call is None or not _OUTPUTS.match(name_of(script, call.func)):
        raise CannotFix("the layer that gives the outputs, in float32, is not known")
    if not script.index.holds(call) or any(k.arg is None for k in call.keywords):
        raise CannotFix("the layer that gives the outputs is not made here")
    return call


def _is_float32(layer: ast.Call) -> bool:
    given = [k.value for k in layer.keywords if k.arg == "dtype"]
    if not given:
        return False
    if isinstance(given[0], ast.Constant) and given[0].value in _FLOAT32:
        return True
    raise CannotFix(f"the type of `{last_name(layer)}` is given already")
