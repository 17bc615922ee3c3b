"""The base of all rules: what a rule declares, and how it makes a finding."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from gpulint.finding import Confidence, Effect, Evidence, Finding, Place, Severity
from gpulint.targets import Hardware

if TYPE_CHECKING:
    from gpulint.index import FileIndex
    from gpulint.script import Script
    from gpulint.script.rewriting.edits import Rewrite


# One of these stands in every file with a loop that trains or iterates batches.
STEP_WORDS = (
    *("backward", "oader", "batches", "iterator", "_iter", "train_data", "ing_data"),
    *("validation_data", " dl", "_dl", "(dl", "batch("),
)


def _called(name: str) -> str:
    """A call of what a name ends with, wherever its bracket stands, or another name.

    `BatchNorm2d (`, `(nn.BatchNorm2d)(` and `import BatchNorm2d as`, not the class
    alone that is passed on, and not its name in a text.
    """
    return rf"{name}[\s)]*(?:[(\\#]|as\b)"


# What stands for more than a word. They begin with plain letters, which `re` seeks.
_PATTERNS = {
    # The package, and no `sample` or `clamp`.
    "<amp>": re.compile(r"amp\b(?<!\wamp)"),
    "<batchnorm>": re.compile(_called(r"BatchNorm(?:[123]d)?")),
    "<convolution>": re.compile(_called(r"Conv(?:Transpose)?[123]d")),
    # The attribute, and no `requires_grad` or `grad_checkpointing`.
    "<gradient>": re.compile(r"grad\b(?<!\wgrad)"),
    # A file is read: no `loader`, no `load_state_dict`.
    "<load>": re.compile(r"loads?\b"),
    # A method, and no logarithm.
    "<log>": re.compile(
        r"\.log(?<!\bmath\.log)(?<!\btorch\.log)(?<!\bnp\.log)" + _called("(?:_dict)?")
    ),
    "<matmul>": re.compile(r"""[\w)\]"'][ \t]*@|^[ \t]*@[ \t]""", re.MULTILINE),
    # A `.cuda()`, or a `.to()` that does not just name a type or a layout.
    "<move>": re.compile(
        r"""\.cuda\(|\.to\((?!\s*(?:
            (?:dtype\s*=\s*)?
            (?: torch\.(?:b?float|half|double|u?int|short|long|bool)\w*
              | [\w.]*dtype )
          | memory_format\s*=\s*[\w.]+
        )?\s*\))""",
        re.VERBOSE,
    ),
    # Flips have words of their own.
    "<rotated>": re.compile(r"rot(?:90|ate)\b"),
    "<softmax>": re.compile(_called("oftmax")),
}


class Present(dict[str, bool]):
    """Whether a word occurs in a text; each is looked for once, and only if asked.

    A word stands between two blanks, and code repeats itself: its different pieces
    are less than half of it, through which a hundred words are looked for.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self._pieces = f" {' '.join(set(text.split()))}"  # each behind a blank

    def __missing__(self, word: str) -> bool:
        pattern = _PATTERNS.get(word)
        found = (
            pattern.search(self._text) is not None if pattern else word in self._pieces
        )
        self[word] = found
        return found


@dataclass(frozen=True)
class Needs:
    """What must stand in a file for a rule to have a chance there.

    `words`: alternatives; each lists strings that must all occur in the text. They are
    looked for in this order, so what many rules ask for and few files have comes first.
    A word such as `<move>` stands for a pattern, of which `_PATTERNS` says what it is.
    `calls`: qualified names, one of which must be called (aliases resolved); empty
    means that the words decide alone. `step_loop`: a loop that trains or evaluates.
    `packages`: one of them must be imported; empty means any file. `no`: words that
    must not occur.
    """

    words: tuple[tuple[str, ...], ...]
    calls: frozenset[str] = field(default_factory=frozenset)
    step_loop: bool = False
    packages: frozenset[str] = field(default_factory=frozenset)
    no: tuple[str, ...] = ()

    def among(self, present: Present) -> bool:
        """Whether the words that are present let a file through."""
        if self.step_loop and not any(present[w] for w in STEP_WORDS):
            return False
        for group in self.words:  # every file comes here: the fastest form
            for word in group:
                if not present[word]:
                    break
            else:
                return not any(present[word] for word in self.no)
        return False

    def without(self, *words: str) -> Needs:
        """The same, where none of these words occurs."""
        return dataclasses.replace(self, no=words)

    def in_index(self, index: FileIndex) -> bool:
        """Whether the imports and calls let the file through."""
        if self.packages and self.packages.isdisjoint(index.packages):
            return False
        return not self.calls or not self.calls.isdisjoint(index.called_names)


def Words(*groups: str) -> Needs:
    """Each group is one alternative: words separated by spaces, all of them needed."""
    return Needs(tuple(tuple(group.split()) for group in groups))


def StepLoops(*groups: str) -> Needs:
    """Like `Words`, in a file that may hold a training or evaluation loop."""
    return dataclasses.replace(Words(*groups), step_loop=True)


def TensorFlow(*groups: str) -> Needs:
    """Like `Words`, in a file that imports TensorFlow or Keras."""
    packages = frozenset(("tensorflow", "keras", "tf_keras"))
    return dataclasses.replace(Words(*groups), packages=packages)


def Calls(*names: str) -> Needs:
    """One of these qualified names must be called; its package stands in the file."""
    words = {(n.partition(".")[0], n.rpartition(".")[2]): None for n in names}
    return Needs(tuple(words), frozenset(names))


def Loaders() -> Needs:
    """A DataLoader, or a class whose name ends so, must be called or derived from."""
    return _Loaders((("DataLoader",), ("TensorLoader",)))


class _Loaders(Needs):
    def in_index(self, index: FileIndex) -> bool:
        if any(name.endswith("DataLoader") for name in index.called_names):
            return True
        bases = (b for c in index.all(ast.ClassDef) for b in c.bases)
        return any((index.qualified(b) or "").endswith("DataLoader") for b in bases)


class Rule:
    """One pattern that wastes the GPU. The module's docstring is its documentation.

    A subclass sets `effect`, `needs` and, where they differ, `severity`,
    `confidence` and `torch` (the lowest torch release of what its fix emits).
    `in_tests`: whether it speaks of test code, where time and memory do not count.
    `of_switches`: whether it speaks of what is off, so that this is no doubt.
    `hardware`: what a machine needs for the rule to be about it.
    `code` and `name` come from the module's file name.
    """

    effect: ClassVar[Effect]
    needs: ClassVar[Needs]
    severity: ClassVar[Severity] = Severity.WARNING
    confidence: ClassVar[Confidence] = Confidence.HIGH
    torch: ClassVar[tuple[int, int]] = (1, 6)
    framework: ClassVar[str] = "pytorch"
    in_tests: ClassVar[bool] = False
    of_switches: ClassVar[bool] = False
    hardware: ClassVar[Hardware] = Hardware.ANY

    @property
    def code(self) -> str:
        """`GPU203` for `gpu203_restarting_workers.py`."""
        return self._stem.partition("_")[0].upper()

    @property
    def name(self) -> str:
        """`restarting-workers` for `gpu203_restarting_workers.py`."""
        return self._stem.partition("_")[2].replace("_", "-")

    @property
    def prefix(self) -> str:
        """`GPU`: the letters that the codes of one package begin with."""
        return self.code.rstrip("0123456789")

    @property
    def _stem(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    @property
    def documentation(self) -> str:
        """The module's docstring: Markdown with `## Why`, `## Example` …"""
        module = inspect.getmodule(type(self))
        return inspect.cleandoc((module.__doc__ if module else "") or "")

    def check(self, script: Script) -> Iterator[Finding]:
        """All findings of this rule in one script, in any order."""
        raise NotImplementedError

    def finding(
        self,
        script: Script,
        at: ast.AST,
        message: str,
        *,
        fix: Rewrite | None = None,
        withheld: str | None = None,
        related: Iterable[tuple[ast.AST, str]] = (),
        evidence: Iterable[tuple[ast.AST, str]] = (),
        severity: Severity | None = None,
        confidence: Confidence | None = None,
        effect: Effect | None = None,
    ) -> Finding:
        """A finding at the narrowest node `at` (a callee or an argument).

        `fix` is compiled to text edits here; where that is impossible, or the
        project's torch is too old for what it emits, the finding has none and says
        why. Where nothing shows that a program comes there, its confidence is low.
        """
        from gpulint.script.rewriting.fixes import compile_fix  # rules are listed alone

        confidence = confidence or self.confidence
        if confidence is not Confidence.LOW and not self.of_switches:
            confidence = Confidence.LOW if script.is_doubtful(at) else confidence
        effect = effect or self.effect
        compiled, reason = compile_fix(script, self, fix, effect)
        return Finding(
            code=self.code,
            name=self.name,
            message=message,
            severity=severity or self.severity,
            effect=effect,
            confidence=confidence,
            place=script.place(at),
            related=tuple(script.place(node, note) for node, note in related),
            evidence=tuple(
                Evidence(script.source_of(node).path, getattr(node, "lineno", 1), note)
                for node, note in evidence
            ),
            fix=compiled,
            fix_withheld=None if compiled else (withheld or reason),
            context=script.context(at),
        )


__all__ = [
    "Calls",
    "Hardware",
    "Loaders",
    "Needs",
    "Place",
    "Rule",
    "StepLoops",
    "TensorFlow",
    "Words",
]
