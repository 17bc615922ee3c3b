"""Rewrites whole public repositories and checks what came of it.

Each folder is a checkout named OWNER__NAME; a copy of it is rewritten with every effect
allowed. A file fails if it no longer compiles, gives an option beside a helper that may
return it, or uses a name that nothing binds; a repository fails if gpulint reports an
internal error or a second run changes anything. Standard output gets a line for each
repository; `--write` keeps the table, without any code, as JSON.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
FIX = ("fix", "--isolated", "--allow", "all", "--allow-dirty", "--exit-zero", "-q")
OPTIONS = frozenset(
    "num_workers pin_memory persistent_workers prefetch_factor timeout "
    "multiprocessing_context".split()
)
Texts = dict[str, bytes]


@dataclass
class Outcome:
    """What rewriting did to one repository."""

    repository: str
    commit: str
    files: int
    rewritten: int
    lines_added: int
    failures: list[str]


def main() -> None:
    """Rewrite copies of the given checkouts; exit with 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--torch-version", default="2.6", help="torch to write for")
    parser.add_argument(
        "--select", help="rules, `ALL` for findings of low confidence too"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="JSON to write")
    given = parser.parse_args()
    words = ["--torch-version", given.torch_version]
    words += ["--select", given.select] if given.select else []
    outcomes = []
    for folder in given.folders:
        outcome = rewrite(folder, words)
        outcomes.append(outcome)
        shown = "; ".join(outcome.failures) or "fine"
        print(f"{outcome.repository}: {outcome.rewritten} of {outcome.files}", shown)
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    print(f"{len(outcomes)} repositories, {failed} with failures")
    if given.write is not None:
        record = {
            "torch": given.torch_version,
            "select": given.select,
            "repositories": [asdict(o) for o in outcomes],
        }
        given.write.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    sys.exit(bool(failed))


def rewrite(folder: Path, words: Sequence[str]) -> Outcome:
    """Rewrite a copy of one checkout, twice."""
    name = folder.name.replace("__", "/")
    with tempfile.TemporaryDirectory(prefix="gpulint-") as parent:
        copy = Path(parent) / folder.name
        unwanted = shutil.ignore_patterns(".git", ".*_cache")
        shutil.copytree(folder, copy, symlinks=True, ignore=unwanted)
        (copy / ".git").mkdir()  # the root of a project
        before = texts_of(copy)
        failures = list(fix(copy, words))
        after = texts_of(copy)
        changed = [path for path in before if after.get(path) != before[path]]
        for path in changed:
            failures += (
                f"{path}: {why}" for why in check(before[path], after.get(path, b""))
            )
        failures += fix(copy, words)
        failures += (
            f"{path}: changes again"
            for path, text in texts_of(copy).items()
            if after.get(path) != text
        )
    added = sum(
        len(after[p].splitlines()) - len(before[p].splitlines()) for p in changed
    )
    return Outcome(name, commit_of(folder), len(before), len(changed), added, failures)


def commit_of(folder: Path) -> str:
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def texts_of(folder: Path) -> Texts:
    """The Python files of a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*.py"))
        if path.is_file() and not path.is_symlink()
    }


def fix(folder: Path, words: Sequence[str]) -> Iterator[str]:
    """Run `gpulint fix` with more options, and yield what went wrong."""
    command = [sys.executable, "-m", "gpulint", *FIX, *words]
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, check=False, cwd=REPO
    )
    if done.returncode not in (0, 1):
        yield f"exit code {done.returncode}"
    yield from (line for line in done.stderr.splitlines() if "internal error" in line)


def check(before: bytes, after: bytes) -> Iterator[str]:
    """What is wrong with a rewritten file that was not wrong before."""
    try:
        tree = ast.parse(after)
        compile(after, "train.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        yield f"does not compile: {error}"
        return
    for call in calls(tree):
        spread = [k.value for k in call.keywords if k.arg is None]
        helped = any(
            isinstance(value, ast.Call)
            and ast.unparse(value.func).rpartition(".")[2] == "loader_kwargs"
            for value in spread
        )
        twice = OPTIONS & {k.arg for k in call.keywords if k.arg} if helped else ()
        yield from (f"`{name}` beside loader_kwargs" for name in twice)
    old = ast.parse(before)
    free = used(tree) - used(old) - bound(tree) - set(dir(builtins))
    yield from (f"`{name}` is not bound" for name in sorted(free))


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def used(tree: ast.AST) -> set[str]:
    """The names that a file reads."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def bound(tree: ast.AST) -> set[str]:
    """The names that a file binds anywhere, imports and parameters among them."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            found.add(node.name)
    return found


if __name__ == "__main__":
    main()
