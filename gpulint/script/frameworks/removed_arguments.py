"""Arguments that newer releases of a trainer refuse, and what took their place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gpulint.finding import Confidence, Severity
from gpulint.releases import Version
from gpulint.script.frameworks.trainer_calls import (
    UNSAID,
    TrainerCall,
    allows_before,
    may_have,
    surely_has,
)
from gpulint.script.rewriting.edits import Build, Replace, Rewrite
from gpulint.script.rewriting.syntax import Argument, CallText

if TYPE_CHECKING:
    from gpulint.script.model import Script


class Removed(NamedTuple):
    """An argument that is gone.

    `since`: a release that has it no more. `new`: another name of the same argument,
    or of another where `instead` says so; `needs`: the first release that has it.
    `instead`: for a person, what to do.
    """

    since: Version
    new: str = ""
    needs: Version = (0, 0)
    instead: str = ""


@dataclass(frozen=True)
class Use:
    """A removed argument in a call. `written`: its value, in the call itself."""

    made: TrainerCall
    name: str
    removed: Removed
    written: ast.expr | None
    nodes: tuple[ast.expr, ...]

    @property
    def at(self) -> ast.expr:
        """Where to report it."""
        return self.written if self.written is not None else self.made.call.func

    @property
    def message(self) -> str:
        """`Trainer` of lightning 2.0 has no `gpus`: the call raises TypeError."""
        package, of = self.made.maker.value
        release = ".".join(map(str, self.removed.since))
        return (
            f"`{of}` of {package} {release} has no `{self.name}`: "
            "the call raises TypeError"
        )

    @property
    def severity(self) -> Severity:
        """An error where the project allows no release that still has it."""
        return Severity.ERROR if self._certain else Severity.WARNING

    @property
    def confidence(self) -> Confidence | None:
        """Low where a release that still has it may run the program, as it did."""
        return None if self._certain else Confidence.LOW

    @property
    def _certain(self) -> bool:
        script, package = self.made.script, self.made.maker.package
        return surely_has(script, package, self.removed.since)

    @property
    def related(self) -> list[tuple[ast.AST, str]]:
        """Where the value comes from, if not from the call."""
        return [] if self.written is not None else [(n, "set here") for n in self.nodes]

    def why_not_renamed(self) -> str | None:
        """The guard that fails for a plain change of the name."""
        if self.written is None:
            return f"`{self.name}` comes with `**`"
        if not self.removed.new:
            return self.removed.instead or "nothing took its place"
        if not self.made.argument(self.removed.new).absent:
            return f"`{self.removed.new}` is given too, or may be"
        return self.why_too_old()

    def why_too_old(self) -> str | None:
        """That the project still allows releases without what is new, or may.

        A script with the old name runs on releases that know it: where none of them
        knows the new one too, silence about the release is no leave to write it.
        """
        script, package = self.made.script, self.made.maker.package
        lowest = script.releases(package).lowest
        if lowest is None and self.removed.needs >= self.removed.since:
            return f"no release of {package} knows both names, and {UNSAID}"
        if not allows_before(script, package, self.removed.needs):
            return None
        return f"the project allows releases of {package} without `{self.removed.new}`"

    def renamed(self) -> Rewrite:
        """The same value under the new name."""
        new = self.removed.new
        edit = Replace(self.made.call, renamed(self.name, new))
        return Rewrite(f"Name it `{new}`", (edit,))


def removed_uses(
    script: Script, made: TrainerCall, table: Mapping[str, Removed]
) -> Iterator[Use]:
    """Removed arguments that a call surely gets, in a release the project allows.

    None where the project has the package itself: that is the one that it installs.
    """
    if _is_its_own(script, made.call):
        return
    for name, removed in table.items():
        if not may_have(script, made.maker.package, removed.since):
            continue
        argument = made.argument(name)
        if argument.given:
            yield Use(made, name, removed, made.written(name), argument.nodes)


def _is_its_own(script: Script, call: ast.Call) -> bool:
    """Whether the package of a callee lies beside the script, or above it.

    Also as `transformers/src/transformers`, a checkout in a folder of its own.
    """
    project = script.index.project
    package = (script.index.qualified(call.func) or "").partition(".")[0]
    if project is None or not package:
        return False
    around = [f for f in script.source.path.parents if f.is_relative_to(project.root)]
    return any(
        project.lists(folder / place / package / "__init__.py")
        for folder in around
        for place in ("", "src", package, f"{package}/src")
    )


def renamed(old: str, new: str) -> Build:
    """A keyword by another name, its value and place as they are."""

    def build(text: str) -> str:
        call = CallText.of(text)
        arguments = [
            a._replace(head=a.head.replace(old, new, 1), name=new)
            if a.name == old
            else a
            for a in call.arguments
        ]
        return call.code(arguments)

    return build


def in_place_of(old: str, **new: str) -> Build:
    """Other keywords, in their order, where one stands."""

    def build(text: str) -> str:
        call = CallText.of(text)
        arguments: list[Argument] = []
        for argument in call.arguments:
            if argument.name != old:
                arguments.append(argument)
                continue
            put = [Argument(code, f"{name}=", name, ", ") for name, code in new.items()]
            arguments += [*put[:-1], put[-1]._replace(end=argument.end)]
        return call.code(arguments)

    return build
