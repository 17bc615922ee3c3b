"""Which files are read: those that are named, and the Python files of folders."""

from __future__ import annotations

import functools
import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpulint.globs import Globs, gitignore, relative
from gpulint.runtime_name import is_vendored_file
from gpulint.settings import Resolver, Settings
from gpulint.source import NOTEBOOK

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SUFFIXES = (".py", NOTEBOOK)
# Passed by hooks for all files of a commit; not Python, so not an error either.
NOT_READ = frozenset({".json", ".yaml", ".yml"})
SUBMODULE = "160000"
# Set by git for its hooks; they would make git look at another work tree.
GIT_VARIABLES = frozenset({"GIT_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_WORK_TREE"})
Ignores = tuple[tuple[Path, "GitIgnoreSpec"], ...]


class FilesError(Exception):
    """A path that is not there; the message is one line for the user."""


@dataclass
class Listing:
    """Absolute paths in alphabetical order, and one line for each folder unread.

    `vendored`: files that `gpulint vendor` wrote, which are not among the others.
    """

    files: tuple[Path, ...] = ()
    vendored: list[Path] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Exclusion(NamedTuple):
    """Compiled patterns: plain names, which need no pathspec, and the others."""

    names: frozenset[str]
    specs: tuple[tuple[Path | None, GitIgnoreSpec], ...]

    def covers(self, path: Path, base: Path, folder: bool = False) -> bool:
        """Whether `path`, found while searching `base`, is left out."""
        parts = relative(path, base)
        if not self.names.isdisjoint(parts):
            return True
        return any(
            spec.match_file("/".join(relative(path, root or base)) + "/" * folder)
            for root, spec in self.specs
        )


def list_files(arguments: Iterable[str], resolver: Resolver) -> Listing:
    """All files to read. FilesError: an argument that does not exist."""
    listing = Listing()
    found: dict[Path, Path] = {}
    for argument in arguments:
        path = Path(os.path.normpath(Path.cwd() / argument))
        if not path.exists():
            raise FilesError(f"no such file or folder: {argument}")
        for file, is_link in _of_argument(path, resolver, listing):
            if is_vendored_file(file):
                listing.vendored.append(file)
                continue
            real = file.resolve() if is_link else file
            if real not in found or found[real] != real:
                found[real] = file
    listing.files = tuple(sorted(found.values(), key=str))
    return listing


def is_excluded(path: Path, settings: Settings, around: Path | None = None) -> bool:
    """Whether a path that the user named is excluded; asked for `--force-exclude`.

    `around`: the folder that counts where no settings file says which.
    """
    base = settings.file.parent if settings.file else around or Path.cwd()
    return _compile(settings.excludes).covers(path, base)


def _compile(globs: tuple[Globs, ...]) -> Exclusion:
    """The patterns of several settings as one."""
    names: set[str] = set()
    specs = []
    for group in globs:
        if all(_is_plain(pattern) for pattern in group.patterns):
            names.update(group.patterns)
        else:
            specs.append((group.root, gitignore(group.patterns)))
    return Exclusion(frozenset(names), tuple(specs))


def _is_plain(pattern: str) -> bool:
    return bool(pattern) and not set(pattern) & set("*?[]!/\\# ")


def _is_code(name: str) -> bool:
    """By the name of a file; `._train.py` is what macOS keeps beside another."""
    return name.endswith(SUFFIXES) and not name.startswith("._")


def _without(
    root: Path | None, spec: GitIgnoreSpec, base: Path
) -> tuple[Path | None, GitIgnoreSpec]:
    if root is None or root == base or root not in base.parents:
        return root, spec
    name = "/".join(relative(base, root)) + "/"
    kept = [p for p in spec.patterns if not type(spec)([p]).match_file(name)]
    return root, type(spec)(kept)


def _of_argument(
    path: Path, resolver: Resolver, listing: Listing
) -> Iterator[tuple[Path, bool]]:
    """Files with whether each is a symbolic link."""
    folder = path.is_dir()
    settings = resolver.of_folder(path if folder else path.parent)
    if settings.force_exclude and is_excluded(path, settings):
        return
    if not folder:
        if path.suffix not in NOT_READ:
            yield path, path.is_symlink()
    elif settings.respect_gitignore:
        yield from _of_repository(path, path, resolver, listing)
    else:
        yield from _walk(path, path, resolver, listing, None)


def _of_repository(
    folder: Path, base: Path, resolver: Resolver, listing: Listing
) -> Iterator[tuple[Path, bool]]:
    """Python files below `folder` that git does not ignore, else by our own walk."""
    entries = _entries(folder)
    if entries is None:
        ignores = _ignores_above(folder)
        if _ignored(folder, True, ignores):
            ignores = ()  # the user asked for it
        yield from _walk(folder, base, resolver, listing, ignores)
        return
    exclusions: dict[str, Exclusion] = {}  # by folder
    for name in entries:
        if not name.endswith("/") and not _is_code(name.rpartition("/")[2]):
            continue
        path = folder / name
        above = name.rstrip("/").rpartition("/")[0]
        if above not in exclusions:
            exclusions[above] = _below(resolver.of_folder(path.parent).excludes, base)
        if exclusions[above].covers(path, base):
            continue
        if name.endswith("/"):
            if (path / ".git").exists():
                yield from _of_repository(path, base, resolver, listing)
        else:
            try:
                mode = path.lstat().st_mode
            except OSError:  # deleted, but not yet for git
                continue
            if stat.S_ISREG(mode) or path.is_file():
                yield path, stat.S_ISLNK(mode)


@functools.lru_cache(maxsize=256)
def _below(globs: tuple[Globs, ...], base: Path) -> Exclusion:
    """Without the patterns that exclude `base`, which the user asked for."""
    exclusion = _compile(globs)
    specs = tuple(_without(root, spec, base) for root, spec in exclusion.specs)
    return Exclusion(exclusion.names, specs)


def _entries(folder: Path) -> list[str] | None:
    """Names below `folder`, other repositories with a slash; None: git cannot say."""
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return None
    output = run_git(folder, "ls-files", "-co", "-s", "--exclude-standard", "-z")
    if output is None:
        return None
    if not output and run_git(folder, "check-ignore", "-q", ".") is not None:
        return None  # the folder itself is ignored
    entries = set()
    for line in os.fsdecode(output).split("\0"):
        head, tab, name = line.partition("\t")
        if not tab:
            entries.add(line)
        elif head.startswith(SUBMODULE):
            entries.add(f"{name}/")
        else:
            entries.add(name)
    return sorted(entries - {""})


def run_git(folder: Path, *arguments: str) -> bytes | None:
    """What git prints; None where it is missing or fails."""
    try:
        done = git_process(folder, *arguments)
    except OSError:
        return None
    return None if done.returncode else done.stdout


def git_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """A run of git. OSError: it is missing."""
    environment = {k: v for k, v in os.environ.items() if k not in GIT_VARIABLES}
    return subprocess.run(
        ("git", *arguments),
        cwd=folder,
        env=environment,
        capture_output=True,
        check=False,
    )


def _ignores_above(folder: Path) -> Ignores:
    """The .gitignore files between the repository's root and `folder`, outermost first.

    Needed where `folder` lies in a repository and git cannot be asked.
    """
    parents = list(folder.parents)
    for index, parent in enumerate((folder, *parents)):
        if (parent / ".git").exists():
            above = reversed(parents[:index])
            return tuple(i for p in above if (i := _read_ignore(p)) is not None)
    return ()


def _read_ignore(folder: Path) -> tuple[Path, GitIgnoreSpec] | None:
    try:
        data = (folder / ".gitignore").read_bytes()
    except OSError:
        return None
    lines = data.decode("utf-8", "replace").splitlines()
    try:
        return folder, gitignore(lines)
    except ValueError:  # a pattern that git would not take either
        return None


def _ignored(path: Path, folder: bool, ignores: Ignores) -> bool:
    """The innermost .gitignore that knows the path decides."""
    for root, spec in reversed(ignores):
        name = "/".join(relative(path, root)) + "/" * folder
        included = spec.check_file(name).include
        if included is not None:
            return included
    return False


def _walk(
    folder: Path,
    base: Path,
    resolver: Resolver,
    listing: Listing,
    ignores: Ignores | None,
) -> Iterator[tuple[Path, bool]]:
    """Python files below `folder`; links to folders are not followed."""
    entries = _scan(folder, listing)
    names = {entry.name for entry in entries}
    if "pyvenv.cfg" in names and folder != base:
        return
    if ignores is not None and ".gitignore" in names:
        own = _read_ignore(folder)
        ignores = (*ignores, own) if own else ignores
    exclusion = _below(resolver.of_folder(folder).excludes, base)
    for entry in entries:
        path = folder / entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if not is_folder and not (_is_code(entry.name) and entry.is_file()):
            continue
        if entry.name == ".git" or exclusion.covers(path, base, is_folder):
            continue
        if _ignored(path, is_folder, ignores or ()):
            continue
        if is_folder:
            yield from _walk(path, base, resolver, listing, ignores)
        else:
            yield path, entry.is_symlink()


def _scan(folder: Path, listing: Listing) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as scanned:
            return sorted(scanned, key=lambda entry: entry.name)
    except OSError as error:
        listing.errors.append(f"{folder}: {error.strerror or error}")
        return []
