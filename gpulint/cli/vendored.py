"""The files that rewritten scripts import the runtime from, kept up with them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpulint.runtime_name import ENDING, is_vendored

if TYPE_CHECKING:
    from gpulint.index import Project, Projects
    from gpulint.vendor.files import VendoredFile


def behind(projects: Projects, texts: dict[Path, str]) -> list[VendoredFile]:
    """Vendored files that lack what scripts use now; they are not yet written.

    `texts`: the scripts that changed, of which the projects know already. Raises
    ClickException where such a file cannot be made.
    """
    from gpulint.vendor.files import VendorError

    scripts = [path for path, text in texts.items() if ENDING in text]
    found: list[VendoredFile] = []
    try:
        for project in {id(p): p for p in map(projects.of, scripts)}.values():
            its = {path for path in scripts if projects.of(path) is project}
            found += _of_project(project, its)
    except VendorError as error:
        raise click.ClickException(str(error)) from None
    return found


def _of_project(project: Project, scripts: set[Path]) -> Iterable[VendoredFile]:
    from gpulint.vendor.files import project_files
    from gpulint.vendor.uses import read_uses

    indexes = filter(None, map(project.index, sorted(scripts)))
    modules = {module for index in indexes for module in read_uses(index).modules}
    for name in sorted({m.rpartition(".")[2] for m in modules if is_vendored(m)}):
        for file in project_files(project, scripts, f"{name}.py"):
            if not file.scripts.isdisjoint(scripts):
                file = file.keeping_more()  # other scripts may need it, unseen
                if file.fault is not None:
                    yield file
