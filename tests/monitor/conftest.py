"""Children that find a made-up driver, in a folder of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from monitor_helpers import FAKE, REPO


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Choose the driver of the children, and what GPU 0 of `card` answers."""

    def choose(name: str, **changes: Any) -> None:
        path = os.pathsep.join([str(FAKE / name), str(REPO)])
        monkeypatch.setenv("PYTHONPATH", path)
        monkeypatch.setenv("FAKE_NVML", json.dumps(changes))
        monkeypatch.chdir(tmp_path)

    return choose
