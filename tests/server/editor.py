"""An editor for tests: pygls' client, which speaks with a real server over stdio."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

REPO = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0
ARGUMENTS = ("-m", "gpulint", "server")
RESOLVES = types.ClientCodeActionResolveOptions(properties=["edit"])


class Editor:
    """Holds texts, applies edits as editors do, and keeps what the server says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient("editor", "1")
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.diagnostics: dict[str, list[types.Diagnostic]] = {}
        self.shown_for: dict[str, int | None] = {}
        self.published: list[str] = []
        self.messages: list[str] = []
        self.logged: list[str] = []
        self.registered: list[types.Registration] = []
        self._news = asyncio.Event()
        self._listen()

    def _listen(self) -> None:
        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.diagnostics[params.uri] = list(params.diagnostics)
            self.shown_for[params.uri] = params.version
            self.published.append(params.uri)
            self._news.set()

        @self.client.feature(types.WINDOW_SHOW_MESSAGE)
        def said(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)
            self._news.set()

        @self.client.feature(types.WINDOW_LOG_MESSAGE)
        def logged(params: types.LogMessageParams) -> None:
            self.logged.append(params.message)
            self._news.set()

        @self.client.feature(types.CLIENT_REGISTER_CAPABILITY)
        def register(params: types.RegistrationParams) -> None:
            self.registered += params.registrations

    async def start(
        self,
        lazily: bool = True,
        versioned: bool = True,
        watches: bool = True,
        encodings: list[types.PositionEncodingKind | str] | None = None,
        command: tuple[str, ...] = ARGUMENTS,
    ) -> types.InitializeResult:
        """Start a server in the folder and say hello."""
        env = {**os.environ, "PYTHONPATH": str(REPO)}
        await self.client.start_io(sys.executable, *command, cwd=self.folder, env=env)
        can = types.ClientCapabilities(
            workspace=types.WorkspaceClientCapabilities(
                workspace_edit=types.WorkspaceEditClientCapabilities(
                    document_changes=versioned
                ),
                did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(
                    dynamic_registration=watches
                ),
            ),
            text_document=types.TextDocumentClientCapabilities(
                code_action=types.CodeActionClientCapabilities(
                    resolve_support=RESOLVES if lazily else None
                )
            ),
            general=types.GeneralClientCapabilities(position_encodings=encodings),
        )
        uri = self.folder.as_uri()
        params = types.InitializeParams(
            can, root_uri=uri, workspace_folders=[types.WorkspaceFolder(uri, "folder")]
        )
        result = await self.client.initialize_async(params)
        self.client.initialized(types.InitializedParams())
        return result

    async def stop(self) -> int | None:
        """Say goodbye; the exit code of the server."""
        await self.client.shutdown_async(None)
        self.client.exit(None)
        server = self.client._server
        assert server is not None
        code = await asyncio.wait_for(server.wait(), PATIENCE)
        await self.client.stop()
        return code

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what the server is to say."""
        while not is_so():
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), PATIENCE)

    # Texts

    async def open(self, name: str, text: str | None = None) -> str:
        """Open a file, with another text than it has; its URI."""
        path = self.folder / name
        uri = path.as_uri()
        if text is None:
            text = path.read_text("utf-8")
        self.texts[uri], self.versions[uri] = text, 1
        item = types.TextDocumentItem(uri, "python", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        await self.shown(uri)
        return uri

    def type(self, uri: str, text: str, where: types.Range | None = None) -> None:
        """Replace a range of a text, or all of it."""
        self.versions[uri] += 1
        self.texts[uri] = (
            text if where is None else edited(self.texts[uri], where, text)
        )
        change: types.TextDocumentContentChangeEvent
        if where is None:
            change = types.TextDocumentContentChangeWholeDocument(text)
        else:
            change = types.TextDocumentContentChangePartial(where, text)
        its = types.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        params = types.DidChangeTextDocumentParams(its, [change])
        self.client.text_document_did_change(params)

    async def shown(self, uri: str) -> list[str]:
        """The codes that are shown for the newest text."""
        await self.until(lambda: self.shown_for.get(uri) == self.versions[uri])
        return self.codes(uri)

    def codes(self, uri: str) -> list[str]:
        """The codes that are shown in a text now."""
        return [str(its.code) for its in self.diagnostics.get(uri, [])]

    async def hover(self, uri: str, line: int, character: int) -> str | None:
        """What stands under the pointer."""
        its = types.TextDocumentIdentifier(uri)
        params = types.HoverParams(its, types.Position(line, character))
        found = await self.client.text_document_hover_async(params)
        if found is None:
            return None
        assert isinstance(found.contents, types.MarkupContent)
        return found.contents.value

    async def actions(
        self, uri: str, where: types.Range, *only: str
    ) -> dict[str, types.CodeAction]:
        """What is offered, by title."""
        params = types.CodeActionParams(
            types.TextDocumentIdentifier(uri),
            where,
            types.CodeActionContext([], only=only or None),
        )
        found = await self.client.text_document_code_action_async(params)
        actions = [its for its in found or [] if isinstance(its, types.CodeAction)]
        return {action.title: action for action in actions}

    async def resolve(self, action: types.CodeAction) -> types.CodeAction:
        """The action with its edit."""
        return await self.client.code_action_resolve_async(action)

    def apply(self, action: types.CodeAction) -> None:
        """Do what an action says, and tell the server as an editor does."""
        assert action.edit is not None
        edits: dict[str, Any] = dict(action.edit.changes or {})
        for change in action.edit.document_changes or []:
            assert isinstance(change, types.TextDocumentEdit)
            uri = change.text_document.uri
            assert change.text_document.version == self.versions[uri]
            edits[uri] = change.edits
        for uri, its in edits.items():
            for edit in sorted(its, key=lambda e: e.range.start, reverse=True):
                self.type(uri, edit.new_text, edit.range)


def everywhere(text: str) -> types.Range:
    """The whole of a text."""
    end = types.Position(text.count("\n") + 1, 0)
    return types.Range(types.Position(0, 0), end)


def edited(text: str, where: types.Range, content: str) -> str:
    """A text after an edit whose places count UTF-16."""
    start, end = (_offset(text, at) for at in (where.start, where.end))
    return text[:start] + content + text[end:]


def _offset(text: str, at: types.Position) -> int:
    lines = text.split("\n")
    before = sum(len(line) + 1 for line in lines[: at.line])
    units = lines[at.line].encode("utf-16-le")[: 2 * at.character]
    return before + len(units.decode("utf-16-le"))


def session(
    folder: Path, work: Callable[[Editor], Awaitable[None]], **options: Any
) -> Editor:
    """Start an editor with a server, work with them, and end both."""

    async def run() -> Editor:
        editor = Editor(folder)
        await editor.start(**options)
        await work(editor)
        assert await editor.stop() == 0
        return editor

    return asyncio.run(run())
