"""`gpulint clean`: removes what earlier runs kept."""

from __future__ import annotations

from pathlib import Path

import click

from gpulint.cli.options import caching


@click.command
@caching
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings that may name the folder, instead of those found here.",
)
def clean(cache_dir: Path | None, config: Path | None) -> None:
    """Remove the cache of this project.

    Only files that gpulint wrote are removed, and the folder where it is then empty.
    """
    from gpulint.cache import cache_folder, remove_cache
    from gpulint.cli.run import one_line_errors
    from gpulint.settings import Resolver

    here = Path.cwd()
    with one_line_errors():
        named = cache_dir or Resolver(config=config).of_folder(here).cache_dir
    folder = cache_folder(here, named)
    try:
        removed = remove_cache(folder)
    except OSError as error:
        why = error.strerror or error
        raise click.ClickException(f"{folder}: not removed: {why}") from None
    if not removed:
        click.echo(f"{folder}: no cache of gpulint")
    elif folder.exists():
        click.echo(f"{folder}: cleaned; files of others stay")
    else:
        click.echo(f"{folder}: removed")
