"""One run of a training script in a process of its own, and its losses."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OVERLAY = Path(__file__).resolve().parent / "overlay"

# No accelerator, and one thread: sums are split the same way in every run, and two
# runs side by side do not wait for each other's threads.
FIXED = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
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
) -> RunResult:
    """Run a script with `--json` in an empty folder, on the CPU.

    A string is the text of the script, a `Path` the file that holds it; files beside
    it are not there. `env` is added to this process's environment. The last line of
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
    with tempfile.TemporaryDirectory(prefix="equivalence-") as folder:
        script = Path(folder) / name
        script.write_bytes(text)
        try:
            done = subprocess.run(
                [sys.executable, str(script), *args, "--json"],
                cwd=folder,
                env=_environment(env or {}, moves_copy),
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            message = f"{name} did not end within {timeout:g} s"
            raise ScriptFailed(message) from error
    if done.returncode != 0:
        tail = _tail(done.stderr)
        raise ScriptFailed(f"{name} ended with status {done.returncode}:\n{tail}")
    return _result(name, done.stdout, done.stderr)


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


def _environment(added: Mapping[str, str], moves_copy: bool) -> dict[str, str]:
    environment = {**os.environ, **FIXED, **added}
    if moves_copy:
        paths = [str(OVERLAY), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return environment


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
