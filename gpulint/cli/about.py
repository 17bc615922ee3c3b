"""`gpulint version` and `gpulint completion`: for scripts and shells."""

from __future__ import annotations

import json
import platform
from importlib import metadata

import click

SHELLS = ("bash", "zsh", "fish")
PACKAGES = ("click", "libcst", "rich", "torch")


@click.command
@click.option("--json", "as_json", is_flag=True, help="With those of Python and more.")
def version(as_json: bool) -> None:
    """Show the version.

    Packages are looked up where gpulint is installed, and not imported; null: missing.
    """
    from gpulint import __version__

    if not as_json:
        click.echo(f"gpulint {__version__}")
        return
    found = {
        "gpulint": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _release(name) for name in PACKAGES},
    }
    click.echo(json.dumps(found, indent=2))


def _release(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@click.command
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete the words of gpulint.

    \b
    bash: eval "$(gpulint completion bash)"                  in ~/.bashrc
    zsh:  eval "$(gpulint completion zsh)"                   in ~/.zshrc
    fish: gpulint completion fish > ~/.config/fish/completions/gpulint.fish
    """
    from click.shell_completion import get_completion_class

    from gpulint.cli import main

    made = get_completion_class(shell)
    assert made is not None, "click knows all of them"
    its = made(main, {}, "gpulint", "_GPULINT_COMPLETE")
    # not .source(): for bash it would start one here, to look at its release
    click.echo(its.source_template % its.source_vars())
