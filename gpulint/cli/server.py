"""`gpulint server`: the language server for editors, over stdin and stdout."""

from __future__ import annotations

from pathlib import Path

import click

from gpulint.cli.options import isolated


@click.command
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings for all files, instead of those found beside them.",
)
@isolated
def server(config: Path | None, isolated: bool) -> None:
    """Tell an editor what wastes the GPU, and offer it the fixes.

    Speaks the Language Server Protocol over the standard input and output; editors
    start it. Needs `pip install 'gpulint[lsp]'`.
    """
    from gpulint.cli.options import Flags
    from gpulint.cli.run import one_line_errors, rare_collections
    from gpulint.settings import Overrides

    try:
        from gpulint.server.features import make_server
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("lsprotocol", "pygls"):
            raise
        raise click.ClickException(
            "the server needs pygls 2 or newer: pip install 'gpulint[lsp]'"
        ) from None
    if config and isolated:
        raise click.UsageError("--config and --isolated exclude each other")
    flags = Flags(
        overrides=Overrides(),
        config=config,
        isolated=isolated,
        stdin_filename=None,
        exit_zero=False,
        quiet=True,
        verbose=False,
    )
    with one_line_errors(), rare_collections():
        make_server(flags).start_io()
