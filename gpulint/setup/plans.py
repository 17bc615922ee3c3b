"""Which files `gpulint init` edits in a repository, and to what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from gpulint.setup import EditError, Origin, Plan, Text, read, texts
from gpulint.setup.toml_edit import add_table, add_to_list, table, tables
from gpulint.setup.yaml_edit import add_entry, add_item, compose, items, value

PRE_COMMIT = ".pre-commit-config.yaml"
WORKFLOWS = Path(".github", "workflows")
GITLAB = ".gitlab-ci.yml"
RUFF = (".ruff.toml", "ruff.toml")
OWN = (".gpulint.toml", "gpulint.toml")
EXTERNAL = "GPU"
Planner = Callable[[Path, Origin], Iterator[Plan]]


def planned(root: Path, names: tuple[str, ...], origin: Origin) -> list[Plan]:
    """All that is to be done. EditError, with the file's name: nothing can be."""
    return [plan for name in names for plan in PLANNERS[name](root, origin)]


def in_use(root: Path) -> tuple[str, ...]:
    """What a repository has already, and the settings."""
    found = {
        "pre-commit": (root / PRE_COMMIT).is_file(),
        "github": (root / ".github").is_dir(),
        "gitlab": (root / GITLAB).is_file(),
        "pyproject": True,
    }
    return tuple(name for name, used in found.items() if used)


def _pre_commit(root: Path, origin: Origin) -> Iterator[Plan]:
    path = root / PRE_COMMIT
    block = texts.pre_commit_item(origin)

    def edit(text: str) -> str:
        return add_item(text, "repos", block)

    known = read(path)
    if known is None:
        yield Plan(path, None, edit(""))
        return
    with _Named(path):
        hooks = {
            name.value
            for repo in items(value(compose(known.text), "repos"))
            for hook in items(value(repo, "hooks"))
            if (name := value(hook, "id")) is not None
        }
        there = sorted(hooks & {"gpulint-check", "gpulint-fix"})
        if there:
            yield known.plan(path, known.text, f"hook {there[0]}")
        else:
            yield known.plan(path, edit(known.text))


def _github(root: Path, origin: Origin) -> Iterator[Plan]:
    """A workflow; a job `gpulint` in any workflow is the user's own."""
    folder = root / WORKFLOWS
    for path in sorted((*folder.glob("*.yml"), *folder.glob("*.yaml"))):
        known = read(path)
        with _Named(path):
            jobs = value(compose(known.text), "jobs") if known else None
        if known and value(jobs, "gpulint") is not None:
            yield known.plan(path, known.text, "job gpulint")
            return
    path = folder / "gpulint.yml"
    known = read(path)
    if known is None:
        yield Plan(path, None, texts.github_workflow(origin))
    else:
        yield known.plan(path, known.text, "another workflow of this name")


def _gitlab(root: Path, origin: Origin) -> Iterator[Plan]:
    path = root / GITLAB
    known = read(path)
    if known is None:
        yield Plan(path, None, texts.gitlab_job(origin))
        return
    with _Named(path):
        whole = compose(known.text)
        if value(whole, "gpulint") is not None:
            yield known.plan(path, known.text, "job gpulint")
            return
        stages = [str(stage.value) for stage in items(value(whole, "stages"))]
        stage = "test" if "test" in stages or not stages else stages[0]
        job = texts.gitlab_job(origin, stage)
        yield known.plan(path, add_entry(known.text, job))


def _settings(root: Path, _: Origin) -> Iterator[Plan]:
    """Settings where there are none yet, and our codes made known to ruff."""
    path = root / "pyproject.toml"
    known = read(path)
    with _Named(path):
        data = tables(known.text) if known else {}
    own = next((name for name in OWN if (root / name).exists()), None)
    after, done = known.text if known else "", []
    if own is not None:
        plan = read(root / own)
        assert plan is not None
        yield plan.plan(root / own, plan.text, "settings")
    elif known is None:  # a pyproject.toml would say that this can be installed
        yield Plan(root / "gpulint.toml", None, texts.SETTINGS)
    elif table(data, "tool", "gpulint") is not None:
        done.append("[tool.gpulint]")
    else:
        with _Named(path):
            after = add_table(after, f"[tool.gpulint]\n{texts.SETTINGS}")
    ruff = next((root / name for name in RUFF if (root / name).is_file()), None)
    if ruff is not None:
        yield _ruff(ruff)
    elif table(data, "tool", "ruff") is not None:
        with _Named(path):
            after, what = _external(after, "tool", "ruff")
        done += what
    if known is not None and (done or after != known.text):
        yield known.plan(path, after, *done)


def _ruff(path: Path) -> Plan:
    known = read(path)
    assert isinstance(known, Text)
    with _Named(path):
        after, done = _external(known.text)
    return known.plan(path, after, *done)


def _external(text: str, *outer: str) -> tuple[str, list[str]]:
    """The text with our codes among those that ruff leaves alone, and what was there.

    The list stands under `lint`, or beside it in files for an older ruff.
    """
    its = table(tables(text), *outer) or {}
    lint = its.get("lint")
    old = "external" in its and not (isinstance(lint, dict) and "external" in lint)
    keys = (*outer, "external") if old else (*outer, "lint", "external")
    known = (table(tables(text), *keys[:-1]) or {}).get("external", [])
    if isinstance(known, list) and EXTERNAL in known:
        return text, [f'ruff\'s external = ["{EXTERNAL}"]']
    return add_to_list(text, keys, EXTERNAL), []


class _Named:
    """Errors in the block are said with the file's name."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, EditError):
            raise EditError(f"{self._path.name}: {error}") from None


PLANNERS: dict[str, Planner] = {
    "pre-commit": _pre_commit,
    "github": _github,
    "gitlab": _gitlab,
    "pyproject": _settings,
}
