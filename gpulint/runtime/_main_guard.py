"""Find out whether worker processes may be started from the main script."""

from __future__ import annotations

import ast
import multiprocessing
import sys
import tokenize
from types import FrameType, ModuleType
from typing import Any

from ._ranks import bootstrapping


def why_no_workers(context: Any = None) -> str | None:
    """Return why starting worker processes would fail here, None where it works.

    `context` is DataLoader's `multiprocessing_context`: a start method's name, a
    context object or None.
    """
    if bootstrapping():
        return "a child process is importing the script"
    if multiprocessing.current_process().daemon:
        return "this process may not have children"
    method = start_method(context)
    if method == "fork":
        return None
    return _why_main_is_unsafe(method)


def start_method(context: Any = None) -> str:
    """Return how a loader with this `multiprocessing_context` starts its workers."""
    if isinstance(context, str):
        return context
    if context is not None:
        return str(context.get_start_method())
    # Asking without allow_none settles the method, and the script's own
    # set_start_method() would fail afterwards.
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]


def _why_main_is_unsafe(method: str) -> str | None:
    """Return why a child, which imports the main script again, would run it again."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if main is None or file is None:
        return f"an interactive session, and {method} imports the script anew"
    guards = _guarded_lines(file)
    line = _running_line(main)
    # Without the line, this is a thread or a child that is past the import.
    safe = any(line in lines for lines in guards) if line else bool(guards)
    if safe:
        return None
    return f'no `if __name__ == "__main__":` around this, and {method} needs it'


def _guarded_lines(file: str) -> list[range]:
    try:
        with tokenize.open(file) as stream:
            tree = ast.parse(stream.read())
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return []
    return [
        range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and _tests_main(node.test)
    ]


def _tests_main(test: ast.expr) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.In):
            texts = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            values = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
            if "__name__" in texts and "__main__" in values:
                return True
    return False


def _running_line(main: ModuleType) -> int | None:
    """Return the line of the main module's own code that this call comes from."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals is vars(main) and frame.f_code.co_name == "<module>":
            return frame.f_lineno
        frame = frame.f_back
    return None
