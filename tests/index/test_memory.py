"""What a project unloads is let go of, though syntax trees are in cycles."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from gpulint.index import project as module
from gpulint.index.project import Project


def test_trees_that_were_unloaded_are_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LOADED", 100)
    paths = [tmp_path / f"part{number}.py" for number in range(8)]
    for path in paths:
        path.write_text(f"# {'.' * 60}\nimport os\n")
    project = Project(tmp_path, lambda root: sorted(root.rglob("*.py")))
    gc.disable()
    try:
        first = project.index(paths[0])
        assert first is not None
        vars(first)["itself"] = first  # as answers about it are kept with it
        seen = weakref.ref(first)
        del first
        for path in paths[1:]:
            project.index(path)
            project.trim()
        assert seen() is None
    finally:
        gc.enable()
    assert project.index(paths[0]) is not None
