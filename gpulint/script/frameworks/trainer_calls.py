"""Calls that set up a trainer of Lightning or Hugging Face, and their arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from gpulint.index import Argument, Values
from gpulint.index.walk import dotted
from gpulint.releases import Version

if TYPE_CHECKING:
    from gpulint.script.model import Script


class Maker(Enum):
    """What a call makes; the value is the package whose release decides."""

    LIGHTNING_TRAINER = ("lightning", "Trainer")
    FABRIC = ("lightning", "Fabric")
    HF_ARGUMENTS = ("transformers", "TrainingArguments")
    HF_TRAINER = ("transformers", "Trainer")
    ACCELERATOR = ("accelerate", "Accelerator")

    @property
    def package(self) -> str:
        """As in `gpulint.dependencies.PACKAGES`."""
        return self.value[0]


NAMES = {
    "pytorch_lightning.Trainer": Maker.LIGHTNING_TRAINER,
    "pytorch_lightning.trainer.Trainer": Maker.LIGHTNING_TRAINER,
    "pytorch_lightning.trainer.trainer.Trainer": Maker.LIGHTNING_TRAINER,
    "lightning.Trainer": Maker.LIGHTNING_TRAINER,
    "lightning.pytorch.Trainer": Maker.LIGHTNING_TRAINER,
    "lightning.pytorch.trainer.Trainer": Maker.LIGHTNING_TRAINER,
    "lightning.pytorch.trainer.trainer.Trainer": Maker.LIGHTNING_TRAINER,
    "lightning.Fabric": Maker.FABRIC,
    "lightning.fabric.Fabric": Maker.FABRIC,
    "lightning_fabric.Fabric": Maker.FABRIC,
    "transformers.TrainingArguments": Maker.HF_ARGUMENTS,
    "transformers.training_args.TrainingArguments": Maker.HF_ARGUMENTS,
    "transformers.Seq2SeqTrainingArguments": Maker.HF_ARGUMENTS,
    "transformers.training_args_seq2seq.Seq2SeqTrainingArguments": Maker.HF_ARGUMENTS,
    "transformers.Trainer": Maker.HF_TRAINER,
    "transformers.trainer.Trainer": Maker.HF_TRAINER,
    "transformers.Seq2SeqTrainer": Maker.HF_TRAINER,
    "transformers.trainer_seq2seq.Seq2SeqTrainer": Maker.HF_TRAINER,
    "accelerate.Accelerator": Maker.ACCELERATOR,
    "accelerate.accelerator.Accelerator": Maker.ACCELERATOR,
}
# What each argument of `runtime.hf_args` lets it return.
HF_TOPICS = {
    "precision": ("bf16", "fp16"),
    "tf32": ("tf32",),
    "loading": (
        "dataloader_num_workers",
        "dataloader_persistent_workers",
        "dataloader_prefetch_factor",
    ),
}
HF_ARGS = "runtime.hf_args"
LIGHTNING_TWO = (2, 0)
UNSAID = "the project does not say which release it has (`package-versions` can)"


def names_of(*makers: Maker) -> tuple[str, ...]:
    """The qualified names under which these are called, for a rule's `needs`."""
    return tuple(name for name, maker in NAMES.items() if maker in makers)


@dataclass(frozen=True, eq=False)
class TrainerCall:
    """One call of a known class. An argument that is not known is never absent."""

    call: ast.Call
    maker: Maker
    script: Script

    def argument(self, name: str) -> Argument:
        """An argument by keyword or through `**kwargs`.

        One of `TrainingArguments` that the file sets as an attribute is not known.
        """
        if self.maker is Maker.HF_ARGUMENTS and self._is_set_later(name):
            return Argument("unknown")
        decided = self.decided
        if decided is None:
            return self.script.evaluator.argument(self.call, name)
        if name in _returned(decided):
            return Argument("given", (decided,))
        others = [k for k in self.call.keywords if k.value is not decided]
        rest = ast.Call(self.call.func, self.call.args, others)
        return self.script.evaluator.argument(rest, name)

    def _is_set_later(self, name: str) -> bool:
        """Whether the file writes an attribute of that name, but not one of `self`."""
        writes = self.script.index.attribute_writes.get(name, ())
        return any(dotted(its.value) != "self" for its in writes)

    def all_absent(self, *names: str) -> bool:
        """Whether it is certain that none of some arguments is given."""
        return all(self.argument(name).absent for name in names)

    def values(self, name: str) -> Values:
        """The constants that can reach an argument; none where it is absent."""
        argument = self.argument(name)
        known = [self.script.evaluator.values(n) for n in argument.nodes]
        flat = tuple(value for its in known for value in its.known)
        complete = argument.given and all(its.complete for its in known)
        return Values(flat, complete or argument.absent)

    def written(self, name: str) -> ast.expr | None:
        """The expression of a keyword that stands in the call itself."""
        found = (k.value for k in self.call.keywords if k.arg == name)
        return next(found, None)

    @property
    def decided(self) -> ast.Call | None:
        """The `runtime.hf_args(…)` that is unpacked in the call."""
        for keyword in self.call.keywords:
            if keyword.arg is None and isinstance(keyword.value, ast.Call):
                name = self.script.index.qualified(keyword.value.func) or ""
                if name.endswith(HF_ARGS):
                    return keyword.value
        return None


def _returned(decided: ast.Call) -> set[str]:
    """The arguments that a call of `hf_args` may return."""
    return {
        name
        for keyword in decided.keywords
        for name in HF_TOPICS.get(keyword.arg or "", ())
    }


def trainer_calls(script: Script, *makers: Maker) -> Iterator[TrainerCall]:
    """The calls in a file that make one of these, unless an error is expected."""
    for name, maker in NAMES.items():
        if maker in makers:
            for call in script.index.calls.get(name, ()):
                if not _may_fail(script, call):
                    yield TrainerCall(call, maker, script)


def _may_fail(script: Script, call: ast.Call) -> bool:
    """Whether a call stands where an older or newer release is provided for."""
    child: ast.AST = call
    for above in script.index.ancestors(call):
        if isinstance(above, ast.Try) and (
            (child in above.body and above.handlers) or child in above.handlers
        ):
            return True
        if isinstance(above, (ast.If, ast.IfExp)) and _asks_release(script, above.test):
            return True
        child = above
    return False


def _asks_release(script: Script, test: ast.expr) -> bool:
    """`version.parse(pl.__version__) < …`, or whether there is such a parameter."""
    text = script.text(test).lower()
    return any(word in text for word in ("version", "signature", "hasattr"))


def may_have(script: Script, package: str, release: Version) -> bool:
    """Whether the newest release that the project allows is that one or a later."""
    newest = script.releases(package).highest
    return newest is None or newest >= release


def surely_has(script: Script, package: str, release: Version) -> bool:
    """Whether the project says that it needs that release or a later one."""
    oldest = script.releases(package).lowest
    return oldest is not None and oldest >= release


def allows_before(script: Script, package: str, release: Version) -> bool:
    """Whether the project says that it allows a release before that one."""
    oldest = script.releases(package).lowest
    return oldest is not None and oldest < release


def may_be_first_lightning(made: TrainerCall) -> str | None:
    """Why a call may be one of Lightning 1; None: it is not, as far as anybody says.

    Both major releases are called `pytorch_lightning`; `lightning` is the second.
    """
    script = made.script
    if allows_before(script, "lightning", LIGHTNING_TWO):
        return "the project allows Lightning 1"
    name = script.index.qualified(made.call.func) or ""
    return _may_be_any(script) if name.startswith("pytorch_lightning.") else None


def may_be_older(script: Script, release: Version) -> str | None:
    """Why a file may run with a Lightning before a release; None: it does not."""
    if allows_before(script, "lightning", release):
        return f"the project allows Lightning before {'.'.join(map(str, release))}"
    named = (*script.index.imported, *script.index.stars)
    if any(n.partition(".")[0] == "pytorch_lightning" for n in named):
        return _may_be_any(script)
    return None


def _may_be_any(script: Script) -> str | None:
    """That nothing is said of the release of what is called `pytorch_lightning`."""
    unsaid = script.releases("lightning").lowest is None
    return f"`pytorch_lightning` may be Lightning 1: {UNSAID}" if unsaid else None


def spreads(call: ast.Call) -> Iterable[ast.expr]:
    """What is unpacked into a call's keywords."""
    return [k.value for k in call.keywords if k.arg is None]
