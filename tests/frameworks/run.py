"""Runs what needs a framework, each in a virtual environment of its own.

`run.py` runs all, `run.py tensorflow` one. Prints one line for each framework and
writes what ran, with versions, to `benchmarks/results/frameworks.json`. A framework
that cannot be installed here is said to be missing and fails nothing.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".frameworks"
RESULTS = ROOT / "benchmarks" / "results" / "frameworks.json"
RULES = ROOT / "rules"
HELPERS = ROOT / "gpulint" / "runtime"
HELPER = {
    "huggingface": "_frameworks",
    "lightning": "_frameworks",
    "mindspore": "_ms",
    "tensorflow": "_tf",
}
ALSO = {"huggingface": ("accelerate",)}  # whose tests are in the same folder
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef
COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped)")
VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


class Framework(NamedTuple):
    """Its tests stand in the folder `name`; `packages` are all it needs.

    `versions`: distributions whose versions are noted.
    """

    name: str
    packages: tuple[str, ...]
    versions: tuple[str, ...]


FRAMEWORKS = (
    Framework(
        "huggingface",
        ("torch==2.13.0", "transformers", "accelerate", "datasets"),
        ("torch", "transformers", "accelerate"),
    ),
    Framework("lightning", ("torch==2.13.0", "lightning"), ("torch", "lightning")),
    # Its operators in Python do not take NumPy 2.
    Framework("mindspore", ("mindspore==2.10.0", "numpy<2"), ("mindspore", "numpy")),
    Framework("tensorflow", ("tensorflow-cpu==2.21.0",), ("tensorflow-cpu", "keras")),
)


def main(names: list[str]) -> int:
    """The exit status: 0 unless a test failed."""
    unknown = set(names) - {f.name for f in FRAMEWORKS}
    if unknown:
        print(f"no such framework: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    failed = False
    for framework in FRAMEWORKS:
        if not names or framework.name in names:
            result, output = outcome(framework)
            failed = failed or "failed" in result
            print(f"{framework.name:<14}{line(result)}{output}", flush=True)
            results[framework.name] = result
    text = json.dumps(results, indent=2, sort_keys=True)
    RESULTS.write_text(text + "\n", "utf-8")
    return int(failed)


def state(name: str) -> str:
    """A digest of what its rules and helpers do: their code without documentation."""
    markers = [f'framework = "{its}"' for its in (name, *ALSO.get(name, ()))]
    files = [
        path
        for path in sorted(RULES.glob("gpu*.py"))
        if any(marker in path.read_text("utf-8") for marker in markers)
    ]
    files += [HELPERS / f"{HELPER[name]}.py"]
    code = []
    for file in files:
        tree = ast.parse(file.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        code.append(ast.dump(tree))
    return hashlib.sha256("\n".join(code).encode()).hexdigest()[:16]


def line(result: dict[str, object]) -> str:
    """What one framework's line says: `ran 12` or `not installed`."""
    if "ran" not in result:
        return "not installed"
    more = [f"{result[k]} {k}" for k in ("failed", "skipped") if k in result]
    return ", ".join([f"ran {result['ran']}", *more])


def outcome(framework: Framework) -> tuple[dict[str, object], str]:
    """What its tests give, and their output where they do not pass."""
    python = installed(framework)
    if python is None:
        return {"installed": False}, ""
    found = {d: said(python, "-c", VERSION, d) for d in framework.versions}
    result: dict[str, object] = {"versions": {"python": said(python, "-V"), **found}}
    result["rules"] = state(framework.name)
    result["machine"] = f"{platform.machine()}, {os.cpu_count()} CPUs"
    folder = Path(__file__).parent / framework.name
    tests = [python, "-m", "pytest", "-q", "-W", "default", str(folder)]
    done = subprocess.run(tests, cwd=ROOT, capture_output=True, text=True, check=False)
    counts = {word: int(n) for n, word in COUNTS.findall(done.stdout)}
    bad = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    result["ran"] = counts.get("passed", 0) + counts.get("failed", 0)
    if counts.get("skipped"):
        result["skipped"] = counts["skipped"]
    if done.returncode:
        result["failed"] = max(bad, 1)
    return result, f"\n{done.stdout}{done.stderr}" if done.returncode else ""


def installed(framework: Framework) -> Path | None:
    """The Python of its environment, made where it is not there yet."""
    folder = ENVIRONMENTS / framework.name
    python, stamp = folder / "bin" / "python", folder / ".installed"
    wanted = "\n".join(framework.packages)
    if stamp.exists() and stamp.read_text("utf-8") == wanted:
        return python
    install = [python, "-m", "pip", "install", "--quiet", *framework.packages]
    for command in (
        [sys.executable, "-m", "venv", folder],
        install,
        [python, "-m", "pip", "install", "--quiet", "--editable", ROOT, "pytest"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr[-2000:], file=sys.stderr)
            return None
    stamp.write_text(wanted, "utf-8")
    return python


def said(python: Path, *arguments: str) -> str:
    """What a Python prints."""
    command = [python, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
