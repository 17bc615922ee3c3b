"""Which files have changes that git could not bring back, and commits of rewrites."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import click

from gpulint.files import git_process, run_git


def uncommitted(paths: Iterable[Path]) -> set[Path]:
    """Those that git reports as changed or untracked, as `cargo fix` counts them.

    Files outside a repository and ignored files are not among them.
    """
    repositories: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        root = find_repository(path.resolve())
        if root:
            repositories[root].append(path)
    found: set[Path] = set()
    for root, members in repositories.items():
        changed = _changed(root)
        found.update(path for path in members if path.resolve() in changed)
    return found


def find_repository(path: Path) -> Path | None:
    """The root of the work tree that a file lies in."""
    return next((p for p in path.parents if (p / ".git").exists()), None)


def _changed(root: Path) -> set[Path]:
    output = run_git(root, "status", "--porcelain", "-z", "-uall", "--no-renames")
    lines = os.fsdecode(output or b"").split("\0")
    return {root / line[3:] for line in lines if line}


def check_clean(paths: Iterable[Path]) -> None:
    """ClickException where one lies in no repository, or others have changes in it."""
    files = list(paths)
    roots = {path: find_repository(path.resolve()) for path in files}
    for path, root in roots.items():
        if root is None:
            raise click.ClickException(f"{path} lies in no git repository")
    for root in filter(None, dict.fromkeys(roots.values())):
        tracked = run_git(root, "status", "--porcelain", "-z", "--untracked-files=no")
        if tracked is None:
            raise click.ClickException(f"git cannot read {root}")
        if tracked:
            raise click.ClickException(f"{root} has uncommitted changes; commit first")
    new = sorted(uncommitted(files))
    if new:
        raise click.ClickException(f"{new[0]} is not under version control yet")


def commit(paths: Iterable[Path], message: str) -> None:
    """Commit files, in each of their repositories. ClickException: git says why not."""
    repositories: dict[Path, list[str]] = defaultdict(list)
    for path in paths:
        root = find_repository(path.resolve())
        if root is not None:
            repositories[root].append(str(path.resolve()))
    for root, names in repositories.items():
        for words in (("add",), ("commit", "-q", "-m", message)):
            done = git_process(root, *words, "--", *names)
            if done.returncode:
                said = (done.stderr or done.stdout).decode(errors="replace").split("\n")
                last = next((line for line in reversed(said) if line.strip()), "")
                raise click.ClickException(
                    f"git {words[0]} failed in {root}, its files are rewritten: {last}"
                )
