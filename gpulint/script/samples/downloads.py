"""Files that a training script fetches anew each time it is started."""

from __future__ import annotations

import ast
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.walk import FUNCTIONS, dotted, walk
from gpulint.script.reaching.started import is_started, trains_on_gpu

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_CALLERS = 3  # functions between the top of the script and the call
# Functions that fetch whatever is there already, and the options that make them look.
_FETCHES: dict[str, tuple[str, ...]] = {
    "urllib.request.urlretrieve": (),
    "wget.download": (),
    "gdown.download": ("resume",),
    "gdown.download_folder": ("resume", "remaining_ok"),
    "torch.hub.download_url_to_file": (),
}
_SHELL = frozenset(
    "os.system os.popen subprocess.run subprocess.call subprocess.check_call "
    "subprocess.check_output subprocess.Popen subprocess.getoutput".split()
)
# Commands that fetch, with the options by which they look what is there.
_COMMANDS: dict[tuple[str, ...], re.Pattern[str]] = {
    ("wget",): re.compile(r"^(-\w*[cN]|-nc|--continue|--no-clobber|--timestamping)$"),
    ("curl",): re.compile(r"^(-\w*[Cz]|--continue-at|--time-cond)$"),
    ("gdown",): re.compile(r"^(-c|--continue)$"),
    ("aws", "s3", "cp"): re.compile(r"^$"),
    ("gsutil", "cp"): re.compile(r"^-n$"),
    ("kaggle", "datasets", "download"): re.compile(r"^$"),
    ("kaggle", "competitions", "download"): re.compile(r"^$"),
}
_SAVES = re.compile(r"^(-\w*[oO]|--output.*|--remote-name.*)$")
_UNLESS = (ast.Try, ast.While, ast.IfExp, ast.BoolOp, ast.With)
_LEAVES = (ast.Return, ast.Raise)


class Download(NamedTuple):
    """A call that fetches, and what it fetches with: `wget`, `urlretrieve`."""

    call: ast.Call
    tool: str


def find_downloads(script: Script) -> list[Download]:
    """The calls of a script that trains on a GPU, where nothing may spare them."""
    found = [*_by_functions(script), *_by_commands(script)]
    found = [d for d in found if _always_runs(script, d.call, 0)]
    if not found or not is_started(script):
        return []
    if not script.training_loops or not trains_on_gpu(script):
        return []
    return sorted(found, key=lambda d: (d.call.lineno, d.call.col_offset))


def _by_functions(script: Script) -> list[Download]:
    return [
        Download(call, name.rpartition(".")[2])
        for name, options in _FETCHES.items()
        for call in script.index.calls.get(name, ())
        if not any(k.arg is None or k.arg in options for k in call.keywords)
    ]


def _by_commands(script: Script) -> list[Download]:
    found = []
    for name in _SHELL:
        for call in script.index.calls.get(name, ()):
            words = _words(call.args[0]) if call.args else []
            if (tool := _fetching(words)) is not None:
                found.append(Download(call, tool))
    return found


def _words(command: ast.expr) -> list[str]:
    """A command as words; what is put in at run time is left out."""
    if isinstance(command, (ast.List, ast.Tuple)):
        return [w for part in command.elts for w in _constants(part)]
    text = " ".join(_constants(command))
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _constants(node: ast.expr) -> list[str]:
    return [
        part.value
        for part in walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


def _fetching(words: list[str]) -> str | None:
    """What fetches, unless it looks whether the file is there, or tests for it."""
    if any(word in ("||", "[", "test") for word in words):
        return None
    for command, looks in _COMMANDS.items():
        if tuple(words[: len(command)]) == command:
            saves = command != ("curl",) or any(map(_SAVES.match, words))
            return command[0] if saves and not any(map(looks.match, words)) else None
    return None


def _always_runs(script: Script, node: ast.AST, depth: int) -> bool:
    """Whether each start of the script comes by, and no test stands before."""
    statement = script.index.statement(node)
    for above in script.index.ancestors(node):
        if isinstance(above, _UNLESS):
            return False
        if isinstance(above, ast.If) and not _is_main_guard(above):
            return False
        if isinstance(above, FUNCTIONS):
            if isinstance(above, ast.Lambda) or depth >= MAX_CALLERS:
                return False
            calls = script.resolver.calls.callers(above)
            here = [c for c in calls if script.index.holds(c)]
            leaves = any(
                isinstance(n, _LEAVES) and n.lineno < statement.lineno
                for n in walk(*above.body)
            )
            return not leaves and any(_always_runs(script, c, depth + 1) for c in here)
        if isinstance(above, ast.ClassDef):
            return False
    return True


def _is_main_guard(branch: ast.If) -> bool:
    return "__name__" in map(dotted, walk(branch.test))
