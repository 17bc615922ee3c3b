"""Run one probe in this process, and write down what it finds as it finds it."""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpulint.doctor.gpus import probe_gpus
from gpulint.doctor.host import probe_data, probe_host
from gpulint.doctor.probes import Facts, shorten
from gpulint.doctor.training import probe_torch

# A probe yields what it begins to do, and what it has found.
PROBES: dict[str, Callable[[Facts], Iterator[str | Facts]]] = {
    "data": probe_data,
    "gpus": probe_gpus,
    "host": probe_host,
    "torch": probe_torch,
}
GRACE_SECONDS = 5


def main(words: list[str]) -> int:
    """Run the probe `words[0]` with the options `words[1]`; its report is a file."""
    options = json.loads(words[1])
    # Ends this process whatever it hangs in, should the parent no longer be there.
    faulthandler.dump_traceback_later(options["timeout"] + GRACE_SECONDS, exit=True)
    with Path(options["report"]).open("a", encoding="utf-8") as report:

        def write(event: dict[str, Any]) -> None:
            report.write(json.dumps(event) + "\n")
            report.flush()

        try:
            for found in PROBES[words[0]](options):
                key = "stage" if isinstance(found, str) else "facts"
                write({key: found})
        # Whatever a broken installation raises, SystemExit included, is an answer.
        except BaseException as error:
            write({"error": shorten(f"{type(error).__name__}: {error}")})
    faulthandler.cancel_dump_traceback_later()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
