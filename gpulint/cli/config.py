"""`gpulint config`: the settings, and what programs need to know of gpulint's files."""

from __future__ import annotations

import importlib.resources
import json
import re
from typing import Any

import click


class Keys(click.Group):
    """A group where any word that is no command is a key of the settings."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """`gpulint config allow` describes `allow`."""
        if args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        return "describe", describe, args


@click.group(
    cls=Keys, invoke_without_command=True, subcommand_metavar="[KEY | schema [OPTIONS]]"
)
@click.pass_context
def config(ctx: click.Context) -> None:
    """List the settings, describe one, or print a JSON schema."""
    if ctx.invoked_subcommand is not None:
        return
    keys = settings_schema()["properties"]
    width = max(map(len, keys))
    for key, its in keys.items():
        click.echo(f"{key:{width}}  {its['description']}")


@click.command(hidden=True)
@click.argument("key")
def describe(key: str) -> None:
    """What a key of the settings means."""
    from gpulint.settings_values import closest

    keys = settings_schema()["properties"]
    known = key.replace("_", "-").lower()
    if known not in keys:
        raise click.UsageError(f"no setting is called {key!r}{closest(known, keys)}")
    its = keys[known]
    default = "-" if its["default"] is None else _toml(its["default"])
    click.echo(f"{its['description']}\n")
    click.echo(f"Type: {_type(its)}\nDefault: {default}")
    for example in its["examples"]:
        click.echo(f"Example: {known} = {_toml(example)}")


@config.command
@click.option("--output", is_flag=True, help="Of `check --output-format json`.")
@click.option("--config", "settings", is_flag=True, help="Of the settings.")
def schema(output: bool, settings: bool) -> None:
    """Print a JSON schema."""
    if output == settings:
        raise click.UsageError("say of what: --output or --config")
    name = "report/schema.json" if output else "settings.schema.json"
    click.echo(_read(name), nl=False)


def settings_schema() -> dict[str, Any]:
    """The JSON schema of the settings, which describes each."""
    found = json.loads(_read("settings.schema.json"))
    assert isinstance(found, dict)
    return found


def _read(name: str) -> str:
    file = importlib.resources.files("gpulint").joinpath(*name.split("/"))
    return file.read_text("utf-8")


def _type(its: dict[str, Any]) -> str:
    """In words: `list of strings`, `"a" | "b"`."""
    if "enum" in its:
        return " | ".join(map(_toml, its["enum"]))
    if "items" in its:
        words = {"object": "tables"}.get(its["items"].get("type", ""), "strings")
        words = _type(its["items"]) if "enum" in its["items"] else words
        return f"list of {words}" + (" or string" * isinstance(its["type"], list))
    if its["type"] == "object":
        values = its["additionalProperties"]
        if "enum" in values:
            return f"table of {_type(values)}"
        return "table of lists" if "items" in values else "table of strings"
    kinds = its["type"]
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _toml(value: Any) -> str:
    """A value as it is written in the settings; JSON writes all but tables alike."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    pairs = ", ".join(f"{_key(key)} = {_toml(its)}" for key, its in value.items())
    return f"{{ {pairs} }}" if pairs else "{}"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key)
