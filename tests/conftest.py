"""What every test starts from: no settings, colours or caches of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Two workers share the cores: more threads in each would only take turns. Set before
# the first test module imports torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")

FOREIGN = (
    "CI",
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "GITHUB_ACTIONS",
    "NO_COLOR",
    "PRE_COMMIT",
    "PY_COLORS",
    "TERM",
)
DISTRIBUTED = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK", "WORLD_SIZE")


@pytest.fixture(autouse=True)
def clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Neither the terminal nor the user's settings reach a test or its processes."""
    for name in list(os.environ):
        if name in FOREIGN + DISTRIBUTED or name.startswith(("GIT_", "GPULINT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GPULINT_NO_CACHE", "1")
    settings: Path = tmp_path_factory.getbasetemp() / "settings"
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CACHE_HOME", str(settings / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(settings / "config"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A developer")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "developer@example.invalid")
