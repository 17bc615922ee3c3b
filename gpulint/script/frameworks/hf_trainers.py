"""How a file uses the Hugging Face Trainer: its arguments, data and collators."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Argument
from gpulint.index.walk import dotted
from gpulint.script.frameworks.trainer_calls import (
    HF_TOPICS,
    Maker,
    TrainerCall,
    names_of,
    trainer_calls,
)
from gpulint.script.rewriting.edits import Build, Edit, Replace, Rewrite
from gpulint.script.rewriting.syntax import Argument as Written
from gpulint.script.rewriting.syntax import (
    CallText,
    move_to_spread,
    set_keywords,
    without_keywords,
)

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Where a Trainer's arguments stand when they have no names.
POSITIONS = {
    name: number
    for number, name in enumerate(
        ("model", "args", "data_collator", "train_dataset", "eval_dataset")
    )
}
# Of these, each takes the GPU away or has a configuration of its own.
_OFF_GPU = ("use_cpu", "no_cuda", "use_mps_device")
_OF_THEIR_OWN = ("deepspeed", "fsdp")
# Methods of the arguments that set several of them.
_SETTERS = frozenset("set_dataloader set_training set_optimizer set_testing".split())
_TPU = re.compile(r"torch_xla|\btpu\b", re.IGNORECASE)
_ORDER = ("",) * 200  # no positional argument moves


@dataclass(frozen=True, eq=False)
class HfTrainer:
    """One call of a Trainer; `owner` is the class of the project that it is, if any."""

    call: ast.Call
    owner: ast.ClassDef | None
    script: Script

    def argument(self, name: str) -> Argument:
        """An argument by its name, by position or through `**kwargs`."""
        position = POSITIONS.get(name)
        return self.script.evaluator.argument(self.call, name, position)

    @cached_property
    def tokenizer(self) -> Argument:
        """What turns texts into numbers, under its new name or its old one."""
        new, old = self.argument("processing_class"), self.argument("tokenizer")
        return old if new.absent else new

    def calls(self, name: str) -> list[ast.Call] | None:
        """The calls that make an argument; None where something else may."""
        argument = self.argument(name)
        if not argument.given:
            return None
        resolver = self.script.resolver
        made = [o.call for node in argument.nodes for o in resolver.origins(node)]
        return [c for c in made if c] if made and all(made) else None


def hf_trainers(script: Script) -> list[HfTrainer]:
    """The Trainers that a file makes and uses, of its own classes too."""
    return [its for its in _all_trainers(script) if not _is_left(script, its.call)]


def _is_left(script: Script, call: ast.Call) -> bool:
    """Whether nothing reads the name of what a call makes: a notebook's last cell."""
    above = script.index.parent(call)
    target = above.targets[0] if isinstance(above, ast.Assign) else None
    if not isinstance(above, ast.Assign) or len(above.targets) > 1:
        return isinstance(above, ast.Expr)
    if not isinstance(target, ast.Name):
        return False
    reads = script.index.reads.get(target.id, ())
    return not any(
        definition.node is target
        for read in reads
        if isinstance(read, ast.Name)
        for definition in script.definitions(read)
    )


def _all_trainers(script: Script) -> list[HfTrainer]:
    found = [
        HfTrainer(made.call, None, script)
        for made in trainer_calls(script, Maker.HF_TRAINER)
    ]
    names = frozenset(names_of(Maker.HF_TRAINER))
    resolver = script.resolver
    classes = script.index.all(ast.ClassDef)
    here = {c.name for c in classes if names & resolver.classes.base_names(c)}
    for call in script.index.all(ast.Call):
        name = (dotted(call.func) or "").rpartition(".")[2]
        given = (k.arg for k in call.keywords)
        if name in here or "Trainer" in name or "train_dataset" in given:
            owner = resolver.classes.named(call.func)
            if owner is not None and names & resolver.classes.base_names(owner):
                found.append(HfTrainer(call, owner, script))
    return found


def own_models(script: Script) -> list[ast.AST]:
    """The classes of the project, with their bases, whose models Trainers train."""
    classes = script.resolver.classes
    found: list[ast.AST] = []
    for trainer in hf_trainers(script):
        for made in trainer.calls("model") or ():
            func = made.func
            owner = classes.named(func)
            if owner is None and isinstance(func, ast.Attribute):
                owner = classes.named(func.value)  # `Net.from_pretrained(…)`
            if owner is not None:
                found += classes.bases(owner)
    return found


def trained_with(script: Script) -> Iterator[tuple[TrainerCall, list[HfTrainer]]]:
    """Arguments for a GPU, with the Trainers of the file that may get them."""
    if ".train(" not in script.source.text or says_tpu(script):
        return
    if not _SETTERS.isdisjoint(script.index.calls_by_name):
        return
    trainers = hf_trainers(script)
    for made in trainer_calls(script, Maker.HF_ARGUMENTS):
        if not may_use_gpu(made):
            continue
        known = {t: t.calls("args") for t in trainers}
        its = [t for t, calls in known.items() if calls and made.call in calls]
        its = its or [t for t, calls in known.items() if calls is None]
        if its:
            yield made, its


def says_tpu(script: Script) -> bool:
    """Whether a file speaks of TPUs."""
    return script.source.has(_TPU)


def may_use_gpu(made: TrainerCall) -> bool:
    """Whether nothing says that the Trainer stays on the CPU, or may."""
    return all(
        made.argument(name).absent or made.values(name).all_in(False)
        for name in _OFF_GPU
    )


def is_split_up(made: TrainerCall) -> bool:
    """Whether DeepSpeed or FSDP lays the model out, or may."""
    return not made.all_absent(*_OF_THEIR_OWN)


def says_why(script: Script, node: ast.expr, about: str) -> bool:
    """Whether a comment at a value, or on the line above it, is about something."""
    source = script.source_of(node)
    above = source.said(node.lineno - 1) if node.lineno > 1 else ""
    rows = [source.said(node.lineno)]
    if above.lstrip().startswith("#"):
        rows.append(above)
    return any(re.search(f"#.*(?:{about})", row, re.IGNORECASE) for row in rows)


# `runtime.hf_args(…)` in the call


def is_decided(made: TrainerCall, topic: str) -> bool:
    """Whether the call unpacks a `runtime.hf_args(topic=True)` already."""
    decided = made.decided
    return decided is not None and topic in {k.arg for k in decided.keywords}


def let_decide(
    made: TrainerCall, topic: str, title: str, instead_of: tuple[str, ...] = ()
) -> Rewrite:
    """Unpack `runtime.hf_args(topic=True)` in the call, in one with other topics.

    The arguments `instead_of`, which stand in the call, are left out. Nothing else may
    give what the topic gives: a name that comes twice is a TypeError.
    """
    decided = made.decided
    if decided is None:
        runtime, imports = made.script.names.runtime
        code = f"{runtime}.hf_args({topic}=True)"
        edit = Replace(made.call, move_to_spread(code, instead_of, _ORDER, keep=True))
        return Rewrite(title, (edit,), imports)
    edits: list[Edit] = [Replace(decided, _with_topic(topic))]
    if instead_of:
        edits.append(Replace(made.call, without_keywords(*instead_of)))
    return Rewrite(title, tuple(edits))


def _with_topic(topic: str) -> Build:
    """Add a topic, where it stands whatever the order in which they are added."""

    def build(text: str) -> str:
        call = CallText.of(text)
        if "\n" in text or "\r" in text:
            return set_keywords(**{topic: "True"})(text)
        values = {a.name: a.value for a in call.arguments} | {topic: "True"}
        others = [a.head + a.value for a in call.arguments if a.name not in HF_TOPICS]
        named = [f"{name}={values[name]}" for name in HF_TOPICS if name in values]
        return call.code([Written(", ".join([*others, *named]))])

    return build
