"""What an editor offers to do about findings: fix one, some or all, or ignore it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lsprotocol import types

from gpulint.finding import Effect, Finding
from gpulint.ignores import may_be_ignored
from gpulint.server.checker import Checker, Looked
from gpulint.server.diagnostics import location, shown, text_edit
from gpulint.server.documents import Document
from gpulint.source import SourceError

FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.gpulint"
QUICK_FIX = types.CodeActionKind.QuickFix.value
KINDS = (QUICK_FIX, FIX_ALL)
CHANGES = {
    Effect.RANDOM: "random draws",
    Effect.NUMERICS: "numerics",
    Effect.HYPERPARAMS: "hyperparameters",
}


class Actions:
    """Makes actions; `versioned`: whether edits may say which version they are for."""

    def __init__(self, checker: Checker, versioned: bool = True) -> None:
        self._checker = checker
        self._versioned = versioned

    def at(
        self, looked: Looked, uri: str, where: types.Range, only: Iterable[str] | None
    ) -> Iterator[types.CodeAction]:
        """All that applies to a range of a text, of the kinds that are asked for.

        Those that change a whole file have no edit yet: `resolve` makes it.
        """
        wanted = None if only is None else tuple(only)
        here = [f for f in looked.findings if _touches(looked, f, uri, where)]
        if _is_wanted(QUICK_FIX, wanted):
            yield from self._fixes(looked, here)
            yield from _rules(looked, here)
            yield from self._ignores(looked, here)
        exact = any(f.fix and f.fix.effect is Effect.EXACT for f in looked.findings)
        if exact and _is_wanted(FIX_ALL, wanted):
            yield types.CodeAction(
                "Fix all that changes no result (gpulint)",
                kind=FIX_ALL,
                data={"uri": looked.document.uri, "code": ""},
            )

    def resolve(
        self, action: types.CodeAction, looked: Looked, held: Iterable[Document]
    ) -> types.CodeAction:
        """The action with its edit; without one where nothing is left to do."""
        code = action.data.get("code") if isinstance(action.data, dict) else None
        text = self._checker.fixed_all(looked, held, code or "")
        action.edit = self._edit(looked, text)
        return action

    def _fixes(
        self, looked: Looked, here: Iterable[Finding]
    ) -> Iterator[types.CodeAction]:
        for finding in here:
            edit = self._edit(looked, self._checker.fixed(looked, finding))
            if finding.fix is not None and edit is not None:
                effect = finding.fix.effect
                title = f"{finding.fix.title}{_changes([effect])}"
                preferred = effect is Effect.EXACT
                yield _quick(title, looked, finding, edit=edit, is_preferred=preferred)

    def _ignores(
        self, looked: Looked, here: Iterable[Finding]
    ) -> Iterator[types.CodeAction]:
        alike = {(f.code, f.place.start.row): f for f in here if may_be_ignored(f)}
        for finding in alike.values():
            edit = self._edit(looked, self._checker.ignored(looked, finding))
            if edit is not None:
                title = f"Ignore {finding.code} on this line"
                yield _quick(title, looked, finding, edit=edit)

    def _edit(self, looked: Looked, text: str | None) -> types.WorkspaceEdit | None:
        """What makes another text of a document; None: it cannot have that one."""
        if text is None:
            return None
        try:
            changes = looked.document.changes(text)
        except SourceError:
            return None
        edits = {its: [text_edit(c) for c in found] for its, found in changes}
        if not edits:
            return None
        if not self._versioned:
            plain = {its.uri: found for its, found in edits.items()}
            return types.WorkspaceEdit(changes=plain)
        return types.WorkspaceEdit(
            document_changes=[
                types.TextDocumentEdit(
                    types.OptionalVersionedTextDocumentIdentifier(its.uri, its.version),
                    found,
                )
                for its, found in edits.items()
            ]
        )


def _rules(looked: Looked, here: Iterable[Finding]) -> Iterator[types.CodeAction]:
    """One action for each rule that has more than one fix in the file."""
    for finding in {f.code: f for f in here if f.fix is not None}.values():
        code = finding.code
        its = [f.fix.effect for f in looked.findings if f.code == code and f.fix]
        if len(its) > 1:
            title = f"Fix all {code} in this file{_changes(its)}"
            data = {"uri": looked.document.uri, "code": code}
            yield _quick(title, looked, finding, data=data)


def _quick(
    title: str, looked: Looked, finding: Finding, **more: Any
) -> types.CodeAction:
    its = shown(looked.document, finding)
    about = [its[1]] if its is not None else None
    return types.CodeAction(title, kind=QUICK_FIX, diagnostics=about, **more)


def _changes(effects: Iterable[Effect]) -> str:
    """What a title says of effects, the first in their order first."""
    found = sorted(set(effects) & CHANGES.keys(), key=lambda effect: effect.rank)
    names = " and ".join(CHANGES[effect] for effect in found)
    return f" (changes {names})" if names else ""


def _is_wanted(kind: str, only: tuple[str, ...] | None) -> bool:
    """Whether a kind, or one that includes it, is asked for; None: all are."""
    return only is None or any(
        not its or kind == its or kind.startswith(f"{its}.") for its in only
    )


def _touches(looked: Looked, finding: Finding, uri: str, where: types.Range) -> bool:
    """Whether a range meets the place of a finding, be it with its end."""
    place = location(looked.document, finding.place)
    if place is None or place.uri != uri:
        return False
    return place.range.start <= where.end and where.start <= place.range.end
