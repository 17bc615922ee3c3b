"""Trains a script of a framework and notes when its passes begin.

    python seeds_child.py tensorflow train.py fit
    python seeds_child.py mindspore train.py Trainer.evaluate

`seeds_frameworks.py` starts it with the framework's own Python. The passes begin where
Keras' `fit` begins one, or where a method of the script is called. Nothing of the
script is changed but that; it runs as `main()`. The last line it prints is JSON: for
each beginning the seconds of a clock and the optimizer's steps until then, and with
what it ran.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

KERAS = "fit"  # in place of a method
PACKAGES = {"tensorflow": ("tensorflow", "keras"), "mindspore": ("mindspore", "numpy")}


class Marks:
    """When passes begin: seconds of a clock, and the steps until then."""

    def __init__(self) -> None:
        self.found: list[tuple[float, int]] = []
        self.steps: Callable[[], int] = int

    def note(self) -> None:
        """Here begins one. The steps are read first, which waits for them."""
        steps = self.steps()
        self.found.append((time.perf_counter(), steps))

    def count_steps(self, optimizer: Any, counter: str) -> None:
        """Read the steps from a counter of the optimizer that is made last."""
        start = optimizer.__init__

        @functools.wraps(start)
        def started(its: Any, *args: Any, **options: Any) -> None:
            start(its, *args, **options)
            self.steps = lambda: int(getattr(its, counter))

        optimizer.__init__ = started

    def follow_fit(self, tf: Any) -> None:
        """Passes begin where a training by Keras says so."""
        marks = self
        fit = tf.keras.Model.fit

        class Passes(tf.keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                marks.note()

        @functools.wraps(fit)
        def followed(
            model: Any, *args: Any, callbacks: Any = (), **options: Any
        ) -> Any:
            both = [*(callbacks or ()), Passes()]
            return fit(model, *args, callbacks=both, **options)

        tf.keras.Model.fit = followed

    def follow_method(self, script: ModuleType, where: str) -> None:
        """Passes begin where `Class.method` of a script is called."""
        owner, _, name = where.partition(".")
        its_class = getattr(script, owner)
        method = its_class.__dict__[name]

        def followed(its: Any, *args: Any, **options: Any) -> Any:
            self.note()
            return method.__get__(its, its_class)(*args, **options)

        setattr(its_class, name, followed)


def load(path: Path) -> ModuleType:
    """The module of a script, not run as a program; what lies beside it is found."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def device(framework: str, package: Any) -> str:
    """What the training ran on."""
    if framework == "tensorflow":
        return "GPU" if package.config.list_physical_devices("GPU") else "CPU"
    return str(package.get_context("device_target"))


def main(framework: str, path: str, where: str) -> None:
    package = importlib.import_module(framework)
    marks = Marks()
    if framework == "tensorflow":
        marks.count_steps(package.keras.optimizers.Optimizer, "iterations")
    else:
        nn = importlib.import_module("mindspore.nn")
        marks.count_steps(nn.Optimizer, "global_step")
    sys.argv = [path]
    script = load(Path(path).resolve())
    if where == KERAS:
        marks.follow_fit(package)
    else:
        marks.follow_method(script, where)
    script.main()
    modules = {name: importlib.import_module(name) for name in PACKAGES[framework]}
    versions = {name: module.__version__ for name, module in modules.items()}
    versions["python"] = sys.version.split()[0]
    said = {"device": device(framework, package), "versions": versions}
    print(json.dumps({"marks": marks.found, **said}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
