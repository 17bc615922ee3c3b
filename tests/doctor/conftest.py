"""Children that find fake modules on their path."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import gpulint

FAKE = Path(__file__).parent / "fake"
REPO = Path(gpulint.__file__).parent.parent


@pytest.fixture
def path_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Put fakes before everything else on the children's path."""

    def put(*names: str) -> None:
        folders = [str(FAKE / name) for name in names]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*folders, str(REPO)]))
        monkeypatch.chdir(tmp_path)

    put()
    return put
