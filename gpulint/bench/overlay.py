"""Give a process other texts for some files, without writing beside them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

SITE = Path(__file__).parent / "site" / "sitecustomize.py"


def environment(texts: Mapping[Path, bytes], folder: Path) -> dict[str, str]:
    """The variables of a process that reads these texts; `folder` has to outlive it.

    Processes that it starts inherit them.
    """
    if not texts:
        return dict(os.environ)
    names: dict[str, str] = {}
    for number, (file, text) in enumerate(texts.items()):
        (folder / f"{number}.text").write_bytes(text)
        for known in (file.absolute(), file.resolve()):
            names[str(known)] = f"{number}.text"
    (folder / "texts.json").write_text(json.dumps(names), encoding="utf-8")
    shutil.copy(SITE, folder)
    own = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(folder), *([own] if own else [])])
    return {**os.environ, "PYTHONPATH": path}
