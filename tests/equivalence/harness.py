"""One run of a training script in a process of its own, and its losses."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .client import plain_server

SHOWN_LINES = 30


class ScriptFailed(AssertionError):
    """The script ended with an error, ran too long or reported no losses."""


@dataclass(frozen=True)
class RunResult:
    """What a script reported in its last line, and all that it printed."""

    losses: tuple[float, ...]
    samples: int
    seconds: float
    stdout: str
    stderr: str


def run_script(
    text_or_path: str | Path,
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    moves_copy: bool = True,
    timeout: float = 120.0,
    beside: Mapping[str, str] | None = None,
    on_gpu: bool = False,
) -> RunResult:
    """Run a script with `--json` in an empty folder, on the CPU unless `on_gpu`.

    A string is the text of the script, a `Path` the file that holds it; beside it are
    only the files of `beside`, texts by their names. `env` is added to this process's environment. The last line of
    the output must be a JSON object with `losses`; `samples` and `seconds` may be
    left out. With `moves_copy` a move to the device really copies, as it does where
    the device is a GPU: see `overlay/sitecustomize.py`, also for its limits. Without
    it `.to("cpu")` returns the same tensor, and rewrites that are wrong because two
    names share memory cannot be told from right ones.

    Raises `ScriptFailed` with the end of the script's output.
    """
    name = text_or_path.name if isinstance(text_or_path, Path) else "script.py"
    text = (
        text_or_path.read_bytes()
        if isinstance(text_or_path, Path)
        else text_or_path.encode()
    )
    job = {
        "name": name,
        "text": text.decode("utf-8"),
        "beside": dict(beside or {}),
        "arguments": [*args, "--json"],
        "environment": dict(env or {}),
        "moves_copy": moves_copy and not on_gpu,
        "timeout": timeout,
    }
    done = plain_server(on_gpu=on_gpu).ask(job)
    if done["status"] is None:
        raise ScriptFailed(f"{name} did not end within {timeout:g} s")
    if done["status"] != 0:
        tail = _tail(done["stderr"])
        raise ScriptFailed(f"{name} ended with status {done['status']}:\n{tail}")
    return _result(name, done["stdout"], done["stderr"])


def assert_same_losses(before: RunResult, after: RunResult) -> None:
    """Both runs report the same losses, bit for bit.

    NaN equals NaN of the same bits, and 0.0 differs from -0.0.
    """
    pairs = zip(before.losses, after.losses, strict=False)
    for index, (old, new) in enumerate(pairs):
        if struct.pack("<d", old) != struct.pack("<d", new):
            raise AssertionError(
                f"losses differ from index {index} on (of {len(before.losses)}):"
                f" {old!r} before, {new!r} after, difference {new - old:.3g}"
            )
    if len(before.losses) != len(after.losses):
        raise AssertionError(
            f"{len(before.losses)} losses before, {len(after.losses)} after;"
            " the common ones are the same"
        )


def _result(name: str, stdout: str, stderr: str) -> RunResult:
    lines = stdout.splitlines() or [""]
    try:
        report = json.loads(lines[-1])
        losses = tuple(float(loss) for loss in report["losses"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"{name} reports no losses in its last line:\n{_tail(stdout)}"
        raise ScriptFailed(message) from error
    samples, seconds = report.get("samples", 0), report.get("seconds", 0.0)
    return RunResult(losses, int(samples), float(seconds), stdout, stderr)


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-SHOWN_LINES:])
