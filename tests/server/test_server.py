"""Sessions of an editor with the real server: what it shows, and what it offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from editor import REPO, Editor, everywhere, session
from lsprotocol import types

from gpulint.cli.server import server
from gpulint.source import Source
from gpulint.suppress import read_lines

SLICES = (REPO / "fixtures/gpu101_per_column_transfer/bad.py").read_text("utf-8")
LOADERS = (REPO / "fixtures/gpu203_restarting_workers/bad.py").read_text("utf-8")
# A form feed ends no line, and the emoji is two units of UTF-16.
COPIES = '''\
"""一个循环"""

import torch
\f
device = torch.device("cuda")


def epoch(model, loader, optimizer):
    for batch in loader:
        名 = "😀"; batch = batch.to(device); loss = model(batch); torch.cuda.synchronize()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
'''


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """A project of its own."""
    (tmp_path / "pyproject.toml").write_text("[tool.gpulint]\n", "utf-8")
    return tmp_path


def find(editor: Editor, uri: str, code: str) -> types.Diagnostic:
    return next(its for its in editor.diagnostics[uri] if its.code == code)


def text_in(text: str, where: types.Range) -> str:
    """What stands in a range of one line, which counts UTF-16."""
    line = text.split("\n")[where.start.line].encode("utf-16-le")
    return line[2 * where.start.character : 2 * where.end.character].decode("utf-16-le")


def test_fixed_until_nothing_is_shown(folder: Path) -> None:
    (folder / "train.py").write_text(SLICES, "utf-8")

    async def work(editor: Editor) -> None:
        uri = await editor.open("train.py")
        assert editor.codes(uri) == ["GPU101"]
        shown = find(editor, uri, "GPU101")
        assert shown.source == "gpulint"
        assert shown.severity == types.DiagnosticSeverity.Error
        assert shown.related_information
        at = shown.range.start
        told = await editor.hover(uri, at.line, at.character)
        assert told is not None
        assert "# GPU101 per-column-transfer" in told
        assert "## Why" in told
        assert await editor.hover(uri, 0, 0) is None
        offered = await editor.actions(uri, shown.range)
        fix = next(iter(offered.values()))
        assert fix.is_preferred
        assert fix.diagnostics == (shown,) or fix.diagnostics == [shown]
        editor.apply(fix)
        assert await editor.shown(uri) == []
        fixed = REPO / "fixtures/gpu101_per_column_transfer/bad.fixed.py"
        assert editor.texts[uri] == fixed.read_text("utf-8")

    editor = session(folder, work)
    assert editor.logged == editor.messages == []
    assert (folder / "train.py").read_text("utf-8") == SLICES  # the editor writes


def test_typing_and_places_in_utf16(folder: Path) -> None:
    async def work(editor: Editor) -> None:
        uri = await editor.open("train.py", COPIES)
        wait = find(editor, uri, "GPU107")
        assert text_in(COPIES, wait.range).startswith("torch.cuda.synchronize")
        before = len(editor.published)
        for _ in range(5):  # only the last of them is looked at
            at = types.Range(wait.range.start, wait.range.start)
            editor.type(uri, "a", at)
        end = types.Position(wait.range.start.line, wait.range.end.character + 7)
        editor.type(uri, "pass", types.Range(wait.range.start, end))
        assert editor.texts[uri].count("pass") == 1
        assert "GPU107" not in await editor.shown(uri)
        assert len(editor.published) == before + 1
        editor.type(uri, "def def")
        assert await editor.shown(uri) == []  # nothing about torch in it
        editor.type(uri, "import torch.optim\ndef def\n")
        assert await editor.shown(uri) == ["GPU000"]
        assert await editor.actions(uri, everywhere(editor.texts[uri])) == {}

    session(folder, work)


def test_utf8_where_an_editor_prefers_it(folder: Path) -> None:
    async def work(editor: Editor) -> None:
        uri = await editor.open("train.py", COPIES)
        where = find(editor, uri, "GPU107").range
        line = COPIES.split("\n")[where.start.line].encode()
        found = line[where.start.character : where.end.character].decode()
        assert found.startswith("torch.cuda.synchronize")

    session(folder, work, encodings=[types.PositionEncodingKind.Utf8])


@pytest.mark.parametrize("lazily", [True, False])
def test_all_fixes_of_a_rule_and_of_a_file(folder: Path, lazily: bool) -> None:
    async def work(editor: Editor) -> None:
        uri = await editor.open("train.py", LOADERS)
        assert editor.codes(uri).count("GPU203") == 2
        shown = find(editor, uri, "GPU203")
        offered = await editor.actions(uri, shown.range)
        assert list(offered) == [
            "Keep the workers between epochs (changes random draws)",
            "Fix all GPU203 in this file (changes random draws)",
            "Ignore GPU203 on this line",
            "Fix all that changes no result (gpulint)",
        ]
        assert not next(iter(offered.values())).is_preferred
        both = offered["Fix all GPU203 in this file (changes random draws)"]
        assert (both.edit is None) is lazily
        kind = "source.fixAll"
        whole = await editor.actions(uri, everywhere(LOADERS), kind)
        assert list(whole) == ["Fix all that changes no result (gpulint)"]
        [exact] = whole.values()
        assert await editor.actions(uri, everywhere(LOADERS), "refactor") == {}
        none = await editor.actions(uri, everywhere(LOADERS), "source.organizeImports")
        assert none == {}
        if lazily:
            both = await editor.resolve(both)
            exact = await editor.resolve(exact)
        editor.apply(exact)
        left = await editor.shown(uri)
        assert left.count("GPU203") == 2  # its fix changes what is drawn
        assert "GPU202" not in left
        offered = await editor.actions(uri, find(editor, uri, "GPU203").range)
        both = offered["Fix all GPU203 in this file (changes random draws)"]
        editor.apply(await editor.resolve(both) if lazily else both)
        assert "GPU203" not in await editor.shown(uri)
        compile(editor.texts[uri], "train.py", "exec")

    session(folder, work, lazily=lazily, versioned=lazily)


def test_ignored_on_its_line(folder: Path) -> None:
    async def work(editor: Editor) -> None:
        uri = await editor.open("train.py", SLICES)
        shown = find(editor, uri, "GPU101")
        offered = await editor.actions(uri, shown.range, "quickfix")
        editor.apply(offered["Ignore GPU101 on this line"])
        assert await editor.shown(uri) == []
        comments = read_lines(Source(folder, editor.texts[uri])).comments.values()
        [comment] = [c for c in comments if "ignore[" in c.text]
        at = comment.column - 1 + comment.text.index("GPU101]")
        told = await editor.hover(uri, comment.row - 1, at)
        assert told is not None
        assert told.startswith("# GPU101 per-column-transfer")
        start = comment.column - 1 + comment.text.index("ignore")
        assert await editor.hover(uri, comment.row - 1, start) == told
        assert await editor.hover(uri, comment.row - 1, comment.column - 3) is None

    session(folder, work)


def test_unsaved_texts_of_other_files_count(folder: Path) -> None:
    (folder / "options.py").write_text("WORKERS = 0\n", "utf-8")
    (folder / "train.py").write_text(
        LOADERS.replace(
            "import torch\n", "import torch\nfrom options import WORKERS\n", 1
        ).replace("num_workers=4", "num_workers=WORKERS"),
        "utf-8",
    )

    async def work(editor: Editor) -> None:
        train = await editor.open("train.py")
        assert "GPU201" in editor.codes(train)  # no workers
        options = await editor.open("options.py")
        editor.type(options, "WORKERS = 4\n")
        await editor.until(lambda: "GPU201" not in editor.codes(train))
        its = types.TextDocumentIdentifier(options)
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(its))
        await editor.until(lambda: "GPU201" in editor.codes(train))

    assert session(folder, work).logged == []


def test_settings_and_files_on_the_disk(folder: Path) -> None:
    settings = folder / "pyproject.toml"
    settings.write_text('[tool.gpulint]\nextend-exclude = ["train.py"]\n', "utf-8")

    async def work(editor: Editor) -> None:
        def changed(path: Path) -> None:
            kind = types.FileChangeType.Changed
            event = types.FileEvent(path.as_uri(), kind)
            editor.client.workspace_did_change_watched_files(
                types.DidChangeWatchedFilesParams([event])
            )

        uri = await editor.open("train.py", SLICES)
        assert editor.codes(uri) == []
        assert await editor.actions(uri, everywhere(SLICES)) == {}
        [asked] = editor.registered
        assert asked.method == "workspace/didChangeWatchedFiles"
        settings.write_text("[tool.gpulint]\n", "utf-8")
        changed(settings)
        await editor.until(lambda: editor.codes(uri) == ["GPU101"])
        settings.write_text("[tool.gpulint]\nselekt = []\n", "utf-8")
        changed(settings)
        await editor.until(lambda: bool(editor.messages) and not editor.codes(uri))
        assert "selekt" in editor.messages[0]
        settings.write_text("[tool.gpulint]\n", "utf-8")
        changed(settings)
        await editor.until(lambda: editor.codes(uri) == ["GPU101"])
        changed(folder / "other.py")
        changed(folder / "train.py")  # held by the editor, so not of interest
        its = types.TextDocumentIdentifier(uri)
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(its))
        await editor.until(lambda: editor.codes(uri) == [])

    assert session(folder, work).logged == []


def test_notebook_cells(folder: Path) -> None:
    texts = ["%matplotlib inline\nimport torch\n", "# words", SLICES.partition("\n")[2]]

    async def work(editor: Editor) -> None:
        book = (folder / "train.ipynb").as_uri()
        cells, items = [], []
        for number, text in enumerate(texts):
            uri = f"vscode-notebook-cell:{book[5:]}#{number}"
            code = types.NotebookCellKind.Code
            markup = types.NotebookCellKind.Markup
            cells.append(types.NotebookCell(markup if number == 1 else code, uri))
            items.append(types.TextDocumentItem(uri, "python", 1, text))
            editor.texts[uri], editor.versions[uri] = text, 1
        its = types.NotebookDocument(book, "jupyter-notebook", 1, cells)
        editor.client.notebook_document_did_open(
            types.DidOpenNotebookDocumentParams(its, items)
        )
        last = items[2].uri
        await editor.until(lambda: len(editor.published) == 3)
        assert [editor.codes(item.uri) for item in items] == [[], [], ["GPU101"]]
        shown = find(editor, last, "GPU101")
        assert text_in(texts[2], shown.range).startswith("batch[:, 0].to")
        told = await editor.hover(
            last, shown.range.start.line, shown.range.start.character
        )
        assert told is not None
        offered = await editor.actions(last, shown.range, "quickfix")
        fix = next(iter(offered.values()))
        assert fix.edit is not None
        [change] = fix.edit.document_changes or []
        assert isinstance(change, types.TextDocumentEdit)
        assert change.text_document.uri == last
        text = types.NotebookDocumentCellContentChanges(
            types.VersionedTextDocumentIdentifier(2, last),
            [types.TextDocumentContentChangeWholeDocument("print(1)\n")],
        )
        changes = types.NotebookDocumentCellChanges(text_content=[text])
        number = types.VersionedNotebookDocumentIdentifier(2, book)
        editor.client.notebook_document_did_change(
            types.DidChangeNotebookDocumentParams(
                number, types.NotebookDocumentChangeEvent(cells=changes)
            )
        )
        await editor.until(lambda: editor.codes(last) == [])
        editor.client.notebook_document_did_save(
            types.DidSaveNotebookDocumentParams(types.NotebookDocumentIdentifier(book))
        )
        editor.client.notebook_document_did_close(
            types.DidCloseNotebookDocumentParams(
                types.NotebookDocumentIdentifier(book),
                [types.TextDocumentIdentifier(item.uri) for item in items],
            )
        )
        await editor.until(lambda: len(editor.published) >= 9)

    assert session(folder, work).logged == []


def test_internal_error_is_logged_and_the_server_lives(folder: Path) -> None:
    broken = (
        "import sys\n"
        "from gpulint.server import checker\n"
        "check = checker.check_source\n"
        "def fails(source, options):\n"
        "    if 'BOOM' in source.text:\n"
        "        raise LookupError('lost')\n"
        "    return check(source, options)\n"
        "checker.check_source = fails\n"
        "from gpulint.cli import main\n"
        "main(['server'])\n"
    )

    async def work(editor: Editor) -> None:
        uri = await editor.open("train.py", f"{SLICES}# BOOM\n")
        assert editor.codes(uri) == []
        assert "internal error: LookupError: lost" in editor.logged[0]
        editor.type(uri, SLICES)
        assert await editor.shown(uri) == ["GPU101"]

    assert session(folder, work, command=("-c", broken)).messages == []


def test_without_pygls(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['pygls'] = sys.modules['lsprotocol'] = None\n"
        "from gpulint.cli import main\n"
        "main(['server'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPO)},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "gpulint: error: the server needs pygls 2 or newer: pip install 'gpulint[lsp]'\n"
    )


def test_settings_are_read_anew_on_saving_where_nobody_watches(folder: Path) -> None:
    async def work(editor: Editor) -> None:
        uri = await editor.open("train.py", SLICES)
        assert editor.codes(uri) == ["GPU101"]
        (folder / "pyproject.toml").write_text(
            '[tool.gpulint]\nignore = ["GPU101"]\n', "utf-8"
        )
        its = types.TextDocumentIdentifier(uri)
        editor.client.text_document_did_save(types.DidSaveTextDocumentParams(its))
        await editor.until(lambda: editor.codes(uri) == [])
        told = await editor.hover(uri, 0, 0)
        assert told is None

    assert session(folder, work, watches=False).registered == []


def test_options_that_exclude_each_other() -> None:
    result = CliRunner().invoke(server, ["--config", "a.toml", "--isolated"])
    assert result.exit_code == 2
    assert "--config and --isolated exclude each other" in result.output
