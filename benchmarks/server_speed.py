"""How long the language server takes to look again at a long script while one types.

A real server over stdio holds a file of 1500 lines: a training script of the scenarios
with modules of the runtime, as long files have more than training in them; then all
scripts of the scenarios in one file, which is more than anybody writes. 50 characters
are typed, each after the findings for the one before it; the times go to
results/server_speed.json, and nothing is asserted.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from gpulint.server.app import PAUSE

REPO = Path(__file__).resolve().parent.parent
RESULT = REPO / "benchmarks" / "results" / "server_speed.json"
LINES = 1500
EMPTY = ""  # the first such line is where one types
NAME = "losses_of_the_training_batches_" * 4  # a name is Python after every key


def main() -> None:
    """Print the times and write them to the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=50, help="How many to type.")
    keys = parser.parse_args().keys
    result = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "pause_ms": round(1000 * PAUSE),
        "one_script": typed(long_script(1), keys),
        "all_scripts": typed(long_script(None), keys),
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(json.dumps(result, indent=2))


def typed(text: str, keys: int) -> dict[str, object]:
    """What typing into a text costs, in ms without the pause that the server makes."""
    with tempfile.TemporaryDirectory() as folder:
        first, seconds, findings = asyncio.run(measure(Path(folder), text, keys))
    checks = sorted(second - PAUSE for second in seconds)
    return {
        "lines": text.count("\n"),
        "findings": findings,
        "keys": len(checks),
        "first_ms": round(1000 * first),
        "p50_ms": round(1000 * statistics.median(checks)),
        "p95_ms": round(1000 * checks[int(0.95 * (len(checks) - 1))]),
    }


def long_script(scripts: int | None) -> str:
    """Whole statements of so many scripts that train, and of code around training."""
    lines: list[str] = []
    for statement in _statements(scripts):
        if len(lines) + len(statement) <= LINES:
            lines += statement
        if len(lines) > LINES // 2 and EMPTY not in lines:
            lines.append(EMPTY)
    return "".join(f"{line}\n" for line in lines)


def _statements(number: int | None) -> Iterator[list[str]]:
    scripts = sorted(
        (REPO / "fixtures" / "scripts").glob("*/before.py"),
        key=lambda path: -path.stat().st_size,
    )
    for path in (
        *scripts[:number],
        *sorted((REPO / "gpulint" / "runtime").glob("_*.py")),
    ):
        text = path.read_text("utf-8")
        for node in ast.parse(text).body:
            if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
                yield [line or "#" for line in lines]  # only one line is empty


async def measure(folder: Path, text: str, keys: int) -> tuple[float, list[float], int]:
    """Seconds to the first findings, from each key to its findings, and how many."""
    client = LanguageClient("bench", "1")
    shown: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # type: ignore[untyped-decorator]
    def show(params: types.PublishDiagnosticsParams) -> None:
        shown.put_nowait(params)

    command = ("-m", "gpulint", "server", "--isolated")
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    await client.start_io(sys.executable, *command, cwd=folder, env=environment)
    params = types.InitializeParams(
        types.ClientCapabilities(), root_uri=folder.as_uri()
    )
    await client.initialize_async(params)
    client.initialized(types.InitializedParams())
    uri = (folder / "train.py").as_uri()
    start = time.perf_counter()
    item = types.TextDocumentItem(uri, "python", 0, text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    findings = len((await shown.get()).diagnostics)
    first = time.perf_counter() - start
    line = next(n for n, its in enumerate(text.split("\n")) if its == EMPTY)
    seconds = []
    for version, letter in enumerate(NAME[:keys], 1):
        at = types.Position(line, version - 1)
        start = time.perf_counter()
        client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version, uri),
                [types.TextDocumentContentChangePartial(types.Range(at, at), letter)],
            )
        )
        while (await shown.get()).version != version:
            pass
        seconds.append(time.perf_counter() - start)
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()  # type: ignore[no-untyped-call]
    return first, seconds, findings


if __name__ == "__main__":
    main()
