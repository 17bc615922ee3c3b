"""`gpulint init`: switches gpulint on in a repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gpulint.setup import Origin, Plan

COLORS = {"-": "red", "+": "green", "@": "cyan"}


@click.command
@click.option("--pre-commit", is_flag=True, help="A hook in .pre-commit-config.yaml.")
@click.option("--github", is_flag=True, help="A workflow of GitHub Actions.")
@click.option("--gitlab", is_flag=True, help="A job in .gitlab-ci.yml.")
@click.option(
    "--pyproject", is_flag=True, help="Settings, and our codes in those of ruff."
)
@click.option("--all", "everything", is_flag=True, help="All of these.")
@click.option(
    "--repo",
    metavar="URL",
    help="The git repository that pre-commit and CI take gpulint from; without it, "
    "they use an installed package.",
)
@click.option(
    "--rev", metavar="TAG", help="Its revision.  [default: v and this version]"
)
@click.option("-y", "--yes", is_flag=True, help="Write without asking.")
def init(
    everything: bool,
    repo: str | None,
    rev: str | None,
    yes: bool,
    **flags: bool,
) -> None:
    """Switch gpulint on in this repository.

    Shows what it would write, and asks. Without an option: the settings, and whatever
    of pre-commit, GitHub and GitLab the repository uses. What is there already stays
    as it is, as do comments, ends of lines and indentation.

    Exit codes: 0 written, nothing to do or refused, 2 error: nothing is written.
    """
    from gpulint.cli.git import find_repository
    from gpulint.setup import EditError
    from gpulint.setup.plans import PLANNERS, in_use, planned

    origin = _origin(repo, rev)
    here = Path.cwd()
    root = find_repository(here / "any") or here
    chosen = tuple(n for n in PLANNERS if everything or flags[n.replace("-", "_")])
    try:
        plans = planned(root, chosen or in_use(root), origin)
    except EditError as error:
        raise click.ClickException(str(error)) from None
    changed = [plan for plan in plans if plan.changes]
    for plan in plans:
        _show(plan, root)
    if not changed:
        click.echo("Nothing to do.")
    elif yes or _agreed(len(changed)):
        _write(changed, root)
    else:
        click.echo("Nothing is written.")


def _origin(url: str | None, revision: str | None) -> Origin:
    from gpulint.setup import Origin

    if revision is not None and url is None:
        raise click.UsageError("--rev is one of --repo")
    for option, text in (("--repo", url), ("--rev", revision)):
        if text is not None and (not text or set(text) & set(" \t\r\n\"'#\\${}`")):
            raise click.UsageError(f"{option}: {text!r} is not what git can fetch")
    return Origin(url, revision) if revision else Origin(url)


def _show(plan: Plan, root: Path) -> None:
    from gpulint.report.diff import created, unified
    from gpulint.source import Source

    name = plan.path.relative_to(root).as_posix()
    for what in plan.done:
        click.echo(f"{name}: has {what} already")
    if not plan.changes:
        return
    if plan.before is None:
        diff = created(name, plan.after)
    else:
        diff = unified(name, Source(plan.path, plan.before), plan.after)
    for line in diff.replace("\r\n", "\n").splitlines():
        click.secho(line, fg=COLORS.get(line[:1]))


def _agreed(files: int) -> bool:
    """Whether the user wants it. UsageError where nobody can be asked."""
    from gpulint.cli.interactive import is_terminal
    from gpulint.report import count

    if not is_terminal():
        raise click.UsageError("nobody can be asked: -y writes without asking")
    return click.confirm(f"Write {count(files, 'file')}?")


def _write(plans: list[Plan], root: Path) -> None:
    from gpulint.atomic import replace_file

    for plan in plans:
        name = plan.path.relative_to(root).as_posix()
        try:
            plan.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(plan.path, plan.data)
        except OSError as error:
            why = error.strerror or error
            raise click.ClickException(f"{name}: not written: {why}") from None
        click.echo(f"{name}: written")
