"""Modules that import torch, in a file that does not: functions define them later."""

from __future__ import annotations

import io
import textwrap
import tokenize

from gpulint.vendor.modules import Imported

ONCE = '''\
def _once(define: Callable[[], None]) -> Callable[[], None]:
    """Let a function run at its first call alone, whichever thread makes it."""
    lock, done = threading.RLock(), []

    def run() -> None:
        with lock:
            if not done:
                define()
                done.append(True)

    return run
'''
ONCE_IMPORTS = (
    Imported("threading", None, "threading"),
    Imported("collections.abc", "Callable", "Callable"),
)

GET = '''\
def __getattr__(name: str) -> object:
    """Define what needs torch when it is asked for: a worker process unpickles it."""
    define = {{
{entries}
    }}.get(name)
    if define is None:
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    define()
    return globals()[name]
'''


def definer(module: str) -> str:
    """The name of the function that defines what a module holds."""
    return f"_define_{module.strip('_')}"


def define_later(
    module: str, docstring: str, names: list[str], imports: list[str], body: str
) -> str:
    """The function that runs what was a module: imports, then statements."""
    listed = f"global {', '.join(names)}"
    lines = [f'"""{docstring}"""', *_wrapped(listed), "", *imports]
    text = "\n".join(lines).rstrip("\n") + "\n\n" + body
    return f"@_once\ndef {definer(module)}() -> None:\n{indented(text)}"


def get_later(names: dict[str, str]) -> str:
    """The module's `__getattr__`, for names and the modules that defined them."""
    entries = [f'        "{n}": {definer(module)},' for n, module in names.items()]
    return GET.format(entries="\n".join(entries))


def _wrapped(statement: str) -> list[str]:
    """A `global` statement as several, each of them on a line."""
    names = statement.removeprefix("global ")
    lines = textwrap.wrap(names, 70, break_on_hyphens=False)
    return [f"global {line.rstrip(',')}" for line in lines]


def indented(text: str) -> str:
    """A text four columns to the right, the content of strings as it is.

    Docstrings go along: what reads them takes their indentation away.
    """
    fixed: set[int] = set()  # rows that begin inside of a string
    opened: list[int] = []
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind.endswith("STRING_START"):
            opened.append(token.start[0])
        elif kind.endswith("STRING_END"):
            fixed.update(range(opened.pop() + 1, token.end[0] + 1))
        elif kind == "STRING" and before not in _STARTS:
            fixed.update(range(token.start[0] + 1, token.end[0] + 1))
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type
    lines = text.splitlines(keepends=True)
    return "".join(
        line if row in fixed or not line.strip() else f"    {line}"
        for row, line in enumerate(lines, 1)
    )


_STARTS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
