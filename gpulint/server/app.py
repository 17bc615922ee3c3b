"""The language server: what editors tell it, and what it tells them."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import click
from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import TextDocument, Workspace

from gpulint import __version__
from gpulint.baseline import BaselineError
from gpulint.cli import internal
from gpulint.cli.options import Flags
from gpulint.cli.run import STDIN
from gpulint.finding import Finding
from gpulint.report.places import Unit
from gpulint.server.actions import Actions
from gpulint.server.checker import Checker, Looked
from gpulint.server.diagnostics import Shown, diagnostics, in_settings, location
from gpulint.server.documents import Document, Point, Text, split_lines
from gpulint.server.hovers import about_comment, about_findings
from gpulint.server.watching import sort_out
from gpulint.settings import SettingsError

PAUSE = 0.3  # seconds without a key before a text is looked at
LATER = 1.0  # seconds before texts are looked at again that rest on another file
UNITS: dict[str, Unit] = {
    types.PositionEncodingKind.Utf8.value: Unit.UTF8,
    types.PositionEncodingKind.Utf16.value: Unit.UTF16,
    types.PositionEncodingKind.Utf32.value: Unit.CODE_POINTS,
}
NOTEBOOKS = types.NotebookDocumentSyncOptions(
    notebook_selector=[
        types.NotebookDocumentFilterWithCells(
            cells=[types.NotebookCellLanguage(language="python")],
            notebook="jupyter-notebook",
        )
    ],
    save=True,
)
WRONG_SETTINGS = (SettingsError, BaselineError, click.UsageError)
Answer = TypeVar("Answer")
Found = Looked | None


class _Text(TextDocument):
    """A text whose lines are those of the protocol; `splitlines` knows more ends."""

    @property
    def lines(self) -> Sequence[str]:
        """The lines with their ends."""
        return tuple(split_lines(self.source))


class _Workspace(Workspace):
    """The texts that the editor holds."""

    def _create_text_document(
        self,
        doc_uri: str,
        source: str | None = None,
        version: int | None = None,
        language_id: str | None = None,
    ) -> TextDocument:
        return _Text(
            doc_uri,
            source=source,
            version=version,
            language_id=language_id,
            position_codec=self.position_codec,
        )


class Server(LanguageServer):
    """Looks at texts in one thread, so that it always has an ear for the editor."""

    def __init__(self, flags: Flags) -> None:
        super().__init__("gpulint", __version__, notebook_document_sync=NOTEBOOKS)
        self._flags = flags
        self._worker = ThreadPoolExecutor(1, "gpulint")
        self._checker = Checker(flags)
        self.actions = Actions(self._checker)
        self._waiting: dict[str, tuple[asyncio.Task[None], bool]] = {}
        self._looking: dict[str, tuple[Document, asyncio.Task[Found]]] = {}
        self._shown: dict[str, set[str]] = {}  # texts with diagnostics, by document
        self._elsewhere: dict[str, tuple[Finding, ...]] = {}
        self._said: set[str] = set()

    def start(self) -> None:
        """The editor has said what it can do, and where it works."""
        its = self.workspace
        folders = list(its.folders.values())
        self.protocol._workspace = _Workspace(  # no public way to name the class
            its.root_uri,
            workspace_folders=folders,
            position_encoding=its.position_encoding,
        )
        roots = [to_fs_path(folder.uri) for folder in folders] or [its.root_path]
        self._checker = Checker(self._flags, [Path(root) for root in roots if root])
        can = self.client_capabilities.workspace
        edits = can.workspace_edit if can else None
        self.actions = Actions(self._checker, bool(edits and edits.document_changes))

    def stop(self) -> None:
        """The editor is gone."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    # What the editor holds

    def document(self, uri: str) -> Document | None:
        """A document of the editor, or that of a cell, as it is now; None: closed."""
        books = self.workspace
        book = books.get_notebook_document(
            notebook_uri=uri
        ) or books.get_notebook_document(cell_uri=uri)
        if book is None:
            if uri not in self.uris():
                return None
            its = self.workspace.get_text_document(uri)
            text = Text(uri, its.version, its.source)
            return Document(uri, _path(uri), (text,), its.version, self._unit)
        cells = tuple(self._cell(cell) for cell in book.cells)
        return Document(book.uri, _path(book.uri), cells, book.version, self._unit)

    def uris(self) -> list[str]:
        """The documents that are open, notebooks as one each."""
        its = self.workspace
        cells = {c.document for b in its.notebook_documents.values() for c in b.cells}
        texts = [t.uri for t in its.text_documents.values() if t.uri not in cells]
        return [*texts, *(book.uri for book in its.notebook_documents.values())]

    def held(self) -> list[Document]:
        """All documents that are open."""
        return [its for its in map(self.document, self.uris()) if its is not None]

    def _cell(self, cell: types.NotebookCell) -> Text:
        its = self.workspace.get_text_document(cell.document)
        language = its.language_id or "python"
        code = cell.kind == types.NotebookCellKind.Code and language == "python"
        return Text(cell.document, its.version, its.source, code, _tags(cell.metadata))

    @property
    def _unit(self) -> Unit:
        return UNITS[str(getattr(self._encoding, "value", self._encoding))]

    @property
    def _encoding(self) -> object:
        return self.workspace.position_encoding

    # Looking

    def look_later(self, uri: str, pause: float = PAUSE, anew: bool = False) -> None:
        """Look at a document after a pause, in the place of what was planned.

        `anew`: even if its own text is that which was looked at.
        """
        if uri in self._waiting:
            self._waiting.pop(uri)[0].cancel()
        work = self._look_after(uri, pause, anew)
        self._waiting[uri] = asyncio.get_running_loop().create_task(work), anew

    def look_at_others(self, uri: str = "") -> None:
        """Look again at what may rest on a document that has changed."""
        for other in self.uris():
            waits_for_itself = other in self._waiting and not self._waiting[other][1]
            if other != uri and not waits_for_itself:
                self.look_later(other, LATER, anew=True)

    async def _look_after(self, uri: str, pause: float, anew: bool) -> None:
        await asyncio.sleep(pause)
        document = self.document(uri)
        if document is not None:
            looked = await self.look(document, anew)  # a newer text cancels it
            found = await self.work(lambda: list(diagnostics(looked)) if looked else [])
            self._show(document, found or [])
            self._show_elsewhere(document.uri, looked.elsewhere if looked else ())
        self._waiting.pop(uri, None)
        await self.work(self._checker.rest)

    async def look(self, document: Document, anew: bool = False) -> Found:
        """What is found in a document; who asks at the same time shares the answer.

        None: it is left out, or cannot be looked at, of which the user was told.
        """
        known = self._looking.get(document.uri)
        if known is None or known[0] != document or (anew and known[1].done()):
            if known is not None:
                known[1].cancel()  # superseded; one that has begun ends unheard
            task = asyncio.get_running_loop().create_task(self._check(document))
            known = self._looking[document.uri] = document, task
        return await asyncio.shield(known[1])

    async def _check(self, document: Document) -> Found:
        held = self.held()
        return await self.work(lambda: self._checker.check(document, held))

    async def work(self, work: Callable[[], Answer]) -> Answer | None:
        """Do something in the thread of the checker.

        Whatever goes wrong is said in one line, and the server goes on.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)
        except WRONG_SETTINGS as error:
            self.say(str(error))
        except Exception as error:
            self.log(internal(error))
        return None

    def say(self, message: str) -> None:
        """Show the user what only they can put right, once."""
        if message not in self._said:
            self._said.add(message)
            kind = types.MessageType.Error
            self.window_show_message(
                types.ShowMessageParams(kind, f"gpulint: {message}")
            )

    def log(self, message: str) -> None:
        """One line among the editor's messages."""
        kind = types.MessageType.Error
        self.window_log_message(types.LogMessageParams(kind, f"gpulint: {message}"))

    def report_server_error(self, error: Exception, source: object) -> None:
        """What pygls tells of errors outside of requests."""
        self.log(internal(error))

    # Showing

    def _show(self, document: Document, found: list[Shown]) -> None:
        by_text: dict[str, list[types.Diagnostic]] = defaultdict(list)
        for uri, its in found:
            by_text[uri].append(its)
        versions = {text.uri: text.version for text in document.texts}
        for uri in self._shown.get(document.uri, set()) - versions.keys():
            self._publish(uri, [])
        for uri, version in versions.items():
            self._publish(uri, by_text[uri], version)
        self._shown[document.uri] = set(versions)

    def _show_elsewhere(self, uri: str, findings: tuple[Finding, ...]) -> None:
        """What all open scripts, together, say about settings files."""
        paths = {f.path for f in (*self._elsewhere.pop(uri, ()), *findings)}
        if findings:
            self._elsewhere[uri] = findings
        for path in sorted(paths):
            its = {
                (f.code, f.place): f
                for found in self._elsewhere.values()
                for f in found
                if f.path == path
            }
            shown = [in_settings(f, self._unit) for f in its.values()]
            self._publish(from_fs_path(str(path)) or "", shown)

    def _publish(
        self, uri: str, found: list[types.Diagnostic], version: int | None = None
    ) -> None:
        params = types.PublishDiagnosticsParams(uri, found, version)
        self.text_document_publish_diagnostics(params)

    @property
    def watches(self) -> bool:
        """Whether the editor can tell which files change on the disk."""
        can = self.client_capabilities.workspace
        watching = can.did_change_watched_files if can else None
        return bool(watching and watching.dynamic_registration)

    async def saved(self, uri: str) -> None:
        """A document is on the disk; what else changed there, some never say."""
        if not self.watches:
            await self.work(self._checker.forget)
        self.look_later(uri, 0, anew=not self.watches)

    def close(self, uri: str) -> None:
        """The editor lets go of a document."""
        if uri in self._waiting:
            self._waiting.pop(uri)[0].cancel()
        if uri in self._looking:
            self._looking.pop(uri)[1].cancel()
        for text in self._shown.pop(uri, set()):
            self._publish(text, [])
        self._show_elsewhere(uri, ())
        self.look_at_others(uri)

    # Asked for

    async def hover(self, uri: str, at: types.Position) -> types.Hover | None:
        """Why there is a finding, or what a comment switches off."""
        document = self.document(uri)
        looked = await self.look(document) if document is not None else None
        if document is None or looked is None:
            return None

        def describe() -> str | None:
            here = [f for f in looked.findings if _stands(document, f, uri, at)]
            text = next(text for text in document.texts if text.uri == uri)
            lines = split_lines(text.content)
            point = self.workspace.position_codec.position_from_client_units(lines, at)
            place = Point(uri, point.line, point.character)
            return about_findings(here) or about_comment(document, text, place)

        found = await self.work(describe)
        markdown = types.MarkupKind.Markdown
        return types.Hover(types.MarkupContent(markdown, found)) if found else None

    async def offer(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """What can be done about a range."""
        uri, only = params.text_document.uri, params.context.only
        document = self.document(uri)
        looked = await self.look(document) if document is not None else None
        if looked is None:
            return []
        kinds = None if only is None else [str(getattr(k, "value", k)) for k in only]
        held, lazily = self.held(), self._resolves

        def make() -> list[types.CodeAction]:
            actions = list(self.actions.at(looked, uri, params.range, kinds))
            if lazily:
                return actions
            whole = (
                a if a.edit else self.actions.resolve(a, looked, held) for a in actions
            )
            return [action for action in whole if action.edit is not None]

        return await self.work(make) or []

    async def resolve(self, action: types.CodeAction) -> types.CodeAction:
        """An action with its edit."""
        data = action.data
        uri = data.get("uri", "") if isinstance(data, dict) else ""
        document = self.document(uri)
        looked = await self.look(document) if document is not None else None
        if looked is None:
            return action
        held = self.held()
        made = await self.work(lambda: self.actions.resolve(action, looked, held))
        return made or action

    @property
    def _resolves(self) -> bool:
        """Whether the editor asks for the edit of an action when it is chosen."""
        can = self.client_capabilities.text_document
        actions = can.code_action if can else None
        support = actions.resolve_support if actions else None
        return bool(support and "edit" in support.properties)

    async def watched(self, events: Sequence[types.FileEvent]) -> None:
        """Files have changed on the disk."""
        todo = sort_out(events, [document.path for document in self.held()])

        def read() -> None:
            if todo.forget:
                self._checker.forget()
            for path in () if todo.forget else todo.reread:
                self._checker.reread(path)

        await self.work(read)
        self._said.clear()
        if todo.forget or todo.reread:
            self.look_at_others()


def _path(uri: str) -> Path:
    """Where a document lies; one that was never saved has no project around it."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return Path(os.path.normpath(path)) if path else Path(STDIN)


def _tags(metadata: Any) -> tuple[str, ...]:
    """The tags of a cell, as its file has them or one level below."""
    for level in (metadata, _member(metadata, "metadata")):
        tags = _member(level, "tags")
        if isinstance(tags, (list, tuple)):
            return tuple(map(str, tags))
    return ()


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _stands(document: Document, finding: Finding, uri: str, at: types.Position) -> bool:
    place = location(document, finding.place)
    if place is None or place.uri != uri:
        return False
    return place.range.start <= at < place.range.end
