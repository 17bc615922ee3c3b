"""Texts that are made into numbers ahead of a training, and how they are padded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Argument, Function, Values
from gpulint.index.walk import dotted
from gpulint.script.frameworks.trainer_calls import Maker, trainer_calls
from gpulint.script.rewriting.edits import CannotFix, Edit, Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords, without_keywords
from gpulint.script.set_before import is_set_at

if TYPE_CHECKING:
    from gpulint.script.frameworks.hf_trainers import HfTrainer
    from gpulint.script.model import Script

COLLATOR = "DataCollatorWithPadding"
PADS = frozenset(
    f"transformers.DataCollator{n}"
    for n in "WithPadding ForTokenClassification ForSeq2Seq".split()
)
_TRUNCATES = (True, "longest_first", "only_first", "only_second")
# Of a call that gives a row for each text, and nothing that asks for one length.
_PLAIN = frozenset(
    "text text_pair truncation max_length padding add_special_tokens".split()
)
_CLASSIFIES = re.compile(
    r"^transformers\.(\w+\.)*\w+ForSequenceClassification(\.from_\w+)?$"
)
# Their result depends on how far a text is padded, or they take no other length.
_COUNTS_PADDING = re.compile(
    r"fnet|reformer|perceiver|nystrom|bigbird|big_bird|longformer|yoso|\bmra\b|canine",
    re.IGNORECASE,
)
# What else may take the rows, or depend on how far they are padded.
_TAKES_ROWS = re.compile(
    r"DataLoader|no_grad|inference_mode|padding_side|to_tf_dataset|pad_to_multiple_of"
    r"|model\(\*\*|save_to_disk|(?<!trainer)(?<!model)(?<!tokenizer)\.push_to_hub\("
    r"|\.to_(?:parquet|json|csv|pandas|polars|list|dict)\("
)
_COLUMNS = re.compile(r"columns\s*=\s*\[[^\]]*\]")
_IDS = re.compile(r"[\"'](?:input_ids|attention_mask)[\"']")
# Static shapes are wanted, or no text is shorter than the others.
_WANTS_ONE_LENGTH = re.compile(
    r"torch_compile|torch\.compile\(|\.compile\(\)|to_tf_dataset|group_texts|block_size"
    r"|return_overflowing_tokens|stride\s*=|torch_xla|\btpu\b|onnx",
    re.IGNORECASE,
)


class Tokenizing(NamedTuple):
    """A call of a tokenizer in a function that `maps` apply to rows of a dataset."""

    call: ast.Call
    function: Function | ast.Lambda
    maps: tuple[ast.Call, ...]

    @property
    def padding(self) -> ast.expr | None:
        """What the call says of padding."""
        found = (k.value for k in self.call.keywords if k.arg == "padding")
        return next(found, None)

    @property
    def is_all(self) -> bool:
        """Whether the function does nothing else than give back what the call gives."""
        if isinstance(self.function, ast.Lambda):
            return self.function.body is self.call
        body = [s for s in self.function.body if not _is_documentation(s)]
        only = body[0] if len(body) == 1 else None
        return isinstance(only, ast.Return) and only.value is self.call


def find_tokenizing(script: Script) -> list[Tokenizing]:
    """The calls of tokenizers by which datasets are mapped."""
    maps: dict[ast.AST, list[ast.Call]] = {}
    for mapped in script.index.calls_by_name.get("map", ()):
        given = script.evaluator.argument(mapped, "function", 0)
        for node in given.nodes if isinstance(mapped.func, ast.Attribute) else ():
            for origin in script.resolver.origins(node):
                maps.setdefault(origin.node, []).append(mapped)
    found = []
    for call in script.index.all(ast.Call):
        if _is_tokenizer(script, call):
            function = _function(script, call)
            if function is not None and function in maps:
                found.append(Tokenizing(call, function, tuple(maps[function])))
    return found


def values(script: Script, call: ast.Call, name: str) -> Values:
    """The constants that an argument by keyword can be; none where it is absent."""
    argument = script.evaluator.argument(call, name)
    known = [script.evaluator.values(n) for n in argument.nodes]
    flat = tuple(value for its in known for value in its.known)
    complete = argument.given and all(its.complete for its in known)
    return Values(flat, complete or argument.absent)


def wants_one_length(script: Script) -> bool:
    """Whether something in a file needs texts of one length, or has no others."""
    return script.source.has(_WANTS_ONE_LENGTH)


def pads_each_batch(script: Script, trainer: HfTrainer) -> bool:
    """Whether a Trainer surely pads each batch to its longest text."""
    collator = trainer.argument("data_collator")
    if collator.absent:
        return _is_something(script, trainer.tokenizer)
    calls = trainer.calls("data_collator")
    if not calls:
        return False
    for call in calls:
        if script.index.qualified(call.func) not in PADS:
            return False
        padding = script.evaluator.argument(call, "padding", 1)
        if not padding.absent and not values(script, call, "padding").all_in(
            True, "longest"
        ):
            return False
    return True


def padded_by_batch(
    script: Script, tokenizing: Tokenizing, trainers: Iterable[HfTrainer]
) -> Rewrite:
    """Leave the padding to the Trainers' collator, which gets one where it has none.

    Raises CannotFix with the guard that fails.
    """
    _check_call(script, tokenizing)
    text = _COLUMNS.sub("", script.source.text)
    if _TAKES_ROWS.search(text) or _IDS.search(text):
        raise CannotFix("something else than the Trainer may take the padded rows")
    if _COUNTS_PADDING.search(text):
        raise CannotFix("the model may need texts of one length")
    for made in trainer_calls(script, Maker.HF_ARGUMENTS):
        if not made.argument("remove_unused_columns").absent:
            raise CannotFix("`remove_unused_columns` is given, or may be")
    edits: list[Edit] = [Replace(tokenizing.call, without_keywords("padding"))]
    imports: tuple[str, ...] = ()
    for trainer in trainers:
        _check_model(script, trainer)
        if not _has_collator(script, trainer, tokenizing):
            name, imports = script.names.module(f"transformers.{COLLATOR}", COLLATOR)
            tokenizer = tokenizing.call.func
            if not is_set_at(script, tokenizer, trainer.call):
                raise CannotFix("the tokenizer is not known where the Trainer is made")
            collator = f"{name}({script.text(tokenizer)})"
            edits.append(Replace(trainer.call, set_keywords(data_collator=collator)))
    return Rewrite("Pad each batch to its longest text", tuple(edits), imports)


def _is_documentation(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant)


def _is_tokenizer(script: Script, call: ast.Call) -> bool:
    """Whether a call turns texts into numbers, as far as its name or origin says."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr not in (
        *("tokenizer", "batch_encode_plus", "encode_plus"),
    ):
        return False
    written = dotted(func) or ""
    if not written or written[:1].isupper():
        return False
    if "tokenizer" in written.lower() and script.resolver.calls.callee(call) is None:
        return True
    made = (o.call for o in script.resolver.origins(func))
    names = [script.index.qualified(c.func) or "" for c in made if c is not None]
    return bool(names) and all(_LOADS_TOKENIZER.search(n) for n in names)


_LOADS_TOKENIZER = re.compile(r"^transformers\..*Tokenizer(Fast)?\.from_pretrained$")


def _function(script: Script, call: ast.Call) -> Function | ast.Lambda | None:
    for above in script.index.ancestors(call):
        if isinstance(above, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)):
            return above
    return None


def _is_something(script: Script, argument: Argument) -> bool:
    """Whether an argument is surely given, and not as None."""
    if not argument.given:
        return False
    origins = [o for n in argument.nodes for o in script.resolver.origins(n)]
    nothing = (
        isinstance(o.node, ast.Constant) and o.node.value is None for o in origins
    )
    return not any(nothing)


def _check_call(script: Script, tokenizing: Tokenizing) -> None:
    """Raise CannotFix unless rows of any length may come out of the function."""
    call = tokenizing.call
    if not tokenizing.is_all:
        raise CannotFix("the function makes more than the tokenizer gives")
    if any(k.arg not in _PLAIN for k in call.keywords):
        raise CannotFix("other arguments of the tokenizer may ask for one length")
    truncates = values(script, call, "truncation")
    always = values(script, call, "padding").all_in("max_length")
    if always and not truncates.all_in(*_TRUNCATES):
        raise CannotFix("longer texts may not be cut off")
    if isinstance(tokenizing.function, ast.Lambda):
        return
    name = tokenizing.function.name
    reads = script.index.reads.get(name, ())
    if len(reads) != len(tokenizing.maps):
        raise CannotFix(f"`{name}` is used for more than the datasets")


def _check_model(script: Script, trainer: HfTrainer) -> None:
    """Raise CannotFix unless a Trainer has a model that padding changes nothing for."""
    if trainer.owner is not None:
        raise CannotFix("the Trainer is one of the project's own")
    calls = trainer.calls("model") or []
    names = [script.index.qualified(c.func) or "" for c in calls]
    if not names or not all(map(_CLASSIFIES.search, names)):
        raise CannotFix("the model is not known to give one answer for each text")


def _has_collator(script: Script, trainer: HfTrainer, tokenizing: Tokenizing) -> bool:
    """Whether a Trainer pads already, with the same tokenizer; CannotFix: otherwise."""
    collator = trainer.argument("data_collator")
    if collator.absent:
        given = trainer.tokenizer
        if given.absent:
            return False
        taken = list(given.nodes)
    else:
        calls = trainer.calls("data_collator") or []
        names = {script.index.qualified(c.func) for c in calls}
        if names != {f"transformers.{COLLATOR}"}:
            raise CannotFix("the Trainer has another collator, or may have")
        if any(len(c.args) + len(c.keywords) != 1 for c in calls):
            raise CannotFix("the collator has options of its own")
        taken = [a for c in calls for a in (*c.args, *(k.value for k in c.keywords))]
    own = script.text(tokenizing.call.func)
    if not taken or any(script.text(node) != own for node in taken):
        raise CannotFix("the Trainer has another tokenizer, or may have")
    return True
