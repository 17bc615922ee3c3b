"""Loaders in scripts that a spawned worker imports again, guarded or not."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from gpulint import runtime
from gpulint.runtime._main_guard import start_method, why_no_workers

UNGUARDED = """
import multiprocessing
from gpulint import runtime
from torch.utils.data import DataLoader

if multiprocessing.parent_process() is None:
    multiprocessing.set_start_method({method!r})
options = runtime.loader_kwargs("cpu", batch_size=2)
print("workers", options["num_workers"])
for batch in DataLoader(range(4), **options):
    print(batch.tolist())
"""
GUARDED = """
import multiprocessing
from gpulint import runtime
from torch.utils.data import DataLoader

def main():
    options = runtime.loader_kwargs("cpu", batch_size=2)
    print("workers", options["num_workers"])
    for batch in DataLoader(range(4), **options):
        print(batch.tolist())

if __name__ == "__main__":
    multiprocessing.set_start_method({method!r})
    main()
"""


def run_script(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(text)
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "GPULINT_NUM_WORKERS": "1",
            "PYTHONPATH": str(Path(runtime.__file__).parents[2]),
        },
    )


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_guarded_script_gets_workers(method: str, tmp_path: Path) -> None:
    done = run_script(GUARDED.format(method=method), tmp_path)
    assert done.stdout.splitlines() == ["workers 1", "[0, 1]", "[2, 3]"], done.stderr
    assert done.stderr.count("gpulint: loader: 1 worker (GPULINT_NUM_WORKERS)") == 1


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_unguarded_script_works_without(method: str, tmp_path: Path) -> None:
    done = run_script(UNGUARDED.format(method=method), tmp_path)
    assert done.stdout.splitlines() == ["workers 0", "[0, 1]", "[2, 3]"], done.stderr
    assert (
        'gpulint: loader: 0 workers (no `if __name__ == "__main__":` around this, '
        f"and {method} needs it)" in done.stderr
    )


def test_unguarded_script_under_fork_gets_workers(tmp_path: Path) -> None:
    done = run_script(UNGUARDED.format(method="fork"), tmp_path)
    assert done.stdout.splitlines() == ["workers 1", "[0, 1]", "[2, 3]"], done.stderr


def test_asking_does_not_settle_the_start_method(tmp_path: Path) -> None:
    script = """
    import multiprocessing
    from gpulint import runtime
    runtime.loader_kwargs("cpu")
    multiprocessing.set_start_method("spawn")  # raises if it is settled
    """
    done = run_script(textwrap.dedent(script), tmp_path)
    assert done.returncode == 0, done.stderr


def test_start_method() -> None:
    assert start_method() == multiprocessing.get_all_start_methods()[0]
    assert start_method("spawn") == "spawn"
    assert start_method(multiprocessing.get_context("spawn")) == "spawn"


Run = Callable[[str], str | None]


@pytest.fixture
def as_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a text as the main script and return its `reason`, asked under spawn."""

    def run(text: str) -> str | None:
        file = tmp_path / "train.py"
        file.write_text(text)
        main = types.ModuleType("__main__")
        main.__file__ = str(file)
        vars(main)["why"] = lambda: why_no_workers("spawn")
        monkeypatch.setitem(sys.modules, "__main__", main)
        exec(compile(text, str(file), "exec"), vars(main))
        reason: str | None = vars(main)["reason"]
        return reason

    return run


@pytest.mark.parametrize(
    "text",
    [
        'if __name__ == "__main__":\n    reason = why()\n',
        'if "__main__" == __name__ and True:\n    reason = why()\n',
        'if __name__ in ("__main__", "train"):\n    reason = why()\n',
        'def f():\n    return why()\nif __name__ == "__main__":\n    reason = f()\n',
        'try:\n    if __name__ == "__main__":\n        reason = why()\nfinally: pass\n',
    ],
)
def test_guards(text: str, as_main: Run) -> None:
    assert as_main(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "reason = why()\n",
        'reason = why()\nif __name__ == "__main__":\n    print()\n',
        'if __name__ != "__main__":\n    pass\nelse:\n    reason = why()\n',
        'if __name__ == "train":\n    pass\nreason = why()\n',
        'if len("__main__") == 8:\n    reason = why()\n',
    ],
)
def test_no_guards(text: str, as_main: Run) -> None:
    assert "and spawn needs it" in (as_main(text) or "")


@pytest.mark.parametrize("guarded", [True, False])
def test_a_thread_of_the_script(guarded: bool, as_main: Run) -> None:
    text = (
        "import threading\n"
        "answers = []\n"
        "thread = threading.Thread(target=lambda: answers.append(why()))\n"
        "thread.start()\n"
        "thread.join()\n"
        "reason = answers[0]\n"
    )
    guard = 'if __name__ == "__main__":\n    print()\n' if guarded else ""
    assert (as_main(text + guard) is None) == guarded


def test_a_script_whose_source_is_gone(as_main: Run) -> None:
    text = 'import os\nos.remove(__file__)\nif __name__ == "__main__":\n    '
    assert "and spawn needs it" in (as_main(text + "reason = why()\n") or "")


def test_an_interactive_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    assert why_no_workers("fork") is None
    assert "an interactive session" in (why_no_workers("spawn") or "")
    options = runtime.loader_kwargs("cpu", multiprocessing_context="spawn")
    assert options["num_workers"] == 0
    assert "multiprocessing_context" not in options
