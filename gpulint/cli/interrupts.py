"""Ways in which a user ends a command that has started others."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def terminated() -> Iterator[None]:
    """`kill` and a closed terminal end the children too, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    kept = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            kept[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
