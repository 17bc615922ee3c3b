"""Which messages of editors the server answers to."""

from __future__ import annotations

from lsprotocol import types

from gpulint.cli.options import Flags
from gpulint.server.actions import KINDS
from gpulint.server.app import Server
from gpulint.server.watching import PATTERNS


def make_server(flags: Flags) -> Server:
    """A server that is not started yet."""
    server = Server(flags)
    _lifetime(server)
    _texts(server)
    _notebooks(server)
    _requests(server)
    return server


def _lifetime(server: Server) -> None:
    @server.feature(types.INITIALIZE)
    def initialize(_: types.InitializeParams) -> None:
        server.start()

    @server.feature(types.INITIALIZED)
    def initialized(_: types.InitializedParams) -> None:
        if not server.watches:
            return
        watchers = [types.FileSystemWatcher(pattern) for pattern in PATTERNS]
        method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        asked = types.Registration("gpulint-files", method, options)
        server.client_register_capability(types.RegistrationParams([asked]))

    @server.feature(types.SHUTDOWN)
    def shutdown(*_: object) -> None:
        server.stop()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def watched(params: types.DidChangeWatchedFilesParams) -> None:
        await server.watched(params.changes)


def _texts(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.look_later(params.text_document.uri, 0)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        server.look_later(params.text_document.uri)
        server.look_at_others(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: types.DidSaveTextDocumentParams) -> None:
        await server.saved(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.close(params.text_document.uri)


def _notebooks(server: Server) -> None:
    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenNotebookDocumentParams) -> None:
        server.look_later(params.notebook_document.uri, 0)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeNotebookDocumentParams) -> None:
        server.look_later(params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_SAVE)
    async def saved(params: types.DidSaveNotebookDocumentParams) -> None:
        await server.saved(params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseNotebookDocumentParams) -> None:
        server.close(params.notebook_document.uri)


def _requests(server: Server) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        return await server.hover(params.text_document.uri, params.position)

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=KINDS, resolve_provider=True),
    )
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        return await server.offer(params)

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        return await server.resolve(action)
