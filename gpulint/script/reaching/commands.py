"""The commands that start a project's programs, as its prose and scripts say."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.script.neighbours import programs, run_together
from gpulint.torch_prose import prose, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from gpulint.index import Value
    from gpulint.index.project import Project
    from gpulint.script.model import Script

# A line that starts a program, or goes on with the options of one.
_COMMAND = re.compile(
    r"(?m)^[ \t]*(?:--|.*\b(?:python[\d.]*|torchrun|accelerate launch|deepspeed)\b)"
    r"(?:\\\n|[^\n])*"
)
_CARDS = re.compile(r"CUDA_VISIBLE_DEVICES=['\"]?(<[^<>\n]*>|[\w,${}]*)")
# A number, or what stands for one: `$GPU`, `${gpu_id}`, `<DEVICE ID>`.
_ONE_CARD = re.compile(
    r"\d+|(\$\{?|<)\w*(gpu|device)([ _-]?(id|idx|index|num|number))?[}>]?",
    re.IGNORECASE,
)
_EXPORTED = re.compile(rf"export {_CARDS.pattern}")
_MIXED = re.compile(
    r"""(?m)^[ \t"']*mixed_precision["']?: *["']?(?i:bf16|fp16|fp8)\b"""
)
_INNER = ("scripts", "script")  # folders of shell scripts, beside the programs
MAX_FOLDERS = 6  # from a file up to the root of its project


def is_passed(script: Script, value: Value) -> bool:
    """Whether a known command gives the option whose default a value is."""
    option = option_of(script, value)
    name = getattr(long_name(option), "value", "") if option is not None else ""
    return bool(name) and passes_option(script, value.node, name)


def is_switched_on(script: Script, value: Value) -> bool:
    """Whether a command passes a switch that is off by default, or settings have it on.

    Commands that name a program of the script's file, if any does, and the settings
    files that these name; else all that have its name for a key, as programs do that
    read their options there.
    """
    option = option_of(script, value)
    name = getattr(long_name(option), "value", "") if option is not None else ""
    project = script.index.home(value.node).project
    if not name or project is None:
        return False
    if passes_option(script, value.node, name, alone=True):
        return True
    key = name.lstrip("-").replace("-", "_")
    named = rf"""["']?{re.escape(key)}["']?"""
    on = re.compile(rf"(?mi)(?:^|[{{,])\s*{named}\s*:\s*true\b")
    files = project.having_keys((key,))
    project.noted.files.update(files)
    commands = _commands(project, script.source.path)
    own = list(filter(_naming_programs(script).search, commands))
    if own:
        files = [path for path in files if any(path.name in text for text in own)]
    return any(on.search(text_of(path)) for path in files)


def option_of(script: Script, value: Value) -> ast.Call | None:
    """The `add_argument` call whose default a value is."""
    chain = [value.node, *script.index.ancestors(value.node)]
    calls = (n for n in chain if isinstance(n, ast.Call))
    return next(
        (c for c in calls if getattr(c.func, "attr", "") == "add_argument"), None
    )


def long_name(option: ast.Call) -> ast.expr:
    """The name of an option with two dashes, else its first one."""
    names = [a for a in option.args if isinstance(a, ast.Constant)]
    long = (a for a in names if str(a.value).startswith("--"))
    return next(long, option.args[0] if option.args else option.func)


def passes_option(
    script: Script, node: ast.AST, option: str, alone: bool = False
) -> bool:
    """Whether a known command gives an option, such as `--amp`, to a program.

    Of a project that `node` belongs to; in no known command it is for users to pass.
    `alone`: to a program of the script's file, if any command names one.
    """
    project = script.index.home(node).project
    if project is None:
        return False
    given = re.compile(rf"(?<![\w-]){re.escape(option)}(?![\w-])")
    found = _commands(project, script.index.home(node).source.path)
    if alone:
        named = _naming_programs(script)
        found = list(filter(named.search, found)) or found
    return any(map(given.search, found)) or _launches_with(project, option)


def says(script: Script, word: str) -> bool:
    """Whether a known command of a script's project has a word: `MODEL.DEPTH`."""
    project = script.index.project
    if project is None:
        return False
    found = re.compile(rf"(?<![\w.]){re.escape(word)}(?![\w.])")
    return any(map(found.search, _commands(project, script.source.path)))


def _launches_with(project: Project, option: str) -> bool:
    """Whether a Python file writes a command: `f"train.py --workers=16 {name}"`."""
    written = re.compile(rf"(?<![\w-]){re.escape(option)}(=|[ ]+)[\d{{]")
    found = [index for p in project.mentioning(option) if (index := project.index(p))]
    return any(index.source.has(written) for index in found)


def launches_mixed(script: Script) -> bool:
    """Whether a configuration for `accelerate launch` in the project asks for 16 bits.

    The launcher of a script that is started with it computes in that format.
    """
    project = script.index.project
    if project is None or "accelerate" not in script.frameworks:
        return False
    return _asks_for_mixed(project, ("mixed_precision", "num_processes"))


def sets_mixed(script: Script) -> bool:
    """Whether settings ask for 16 bits, and a program gives its `Accelerator` some.

    `Accelerator(mixed_precision=cfg.mixed_precision)`, which a class of its own makes.
    """
    project = script.index.project
    if project is None or not _asks_for_mixed(project, ("mixed_precision",)):
        return False
    return any(
        keyword.arg == "mixed_precision"
        and isinstance(keyword.value, (ast.Name, ast.Attribute))
        for index in run_together(script)
        for call in index.calls_by_name.get("Accelerator", ())
        for keyword in call.keywords
    )


def _asks_for_mixed(project: Project, keys: tuple[str, ...]) -> bool:
    """Whether one of the settings files with some keys asks for 16 bits."""
    for path in project.having_keys(keys):
        project.noted.files.add(path)
        if _MIXED.search(text_of(path)):
            return True
    return False


def name_one_card(script: Script) -> bool:
    """Whether all known commands for a file's programs leave one GPU visible.

    `CUDA_VISIBLE_DEVICES=0 python train.py`, or an `export` of it before; that in front
    of commands for others where none names these programs.
    """
    project = script.index.project
    if project is None:
        return False
    named = _naming_programs(script)
    found, others = [], []
    for path in _texts(project, script.source.path):
        project.noted.files.add(path)
        text = text_of(path)
        for command in _COMMAND.finditer(text):
            kept = _EXPORTED.findall(text[: command.start()])
            if named.search(command[0]):
                found.append([*kept, *_CARDS.findall(command[0])])
            elif kept:
                others.append(kept)
    visible = found or others
    return bool(visible) and all(
        cards and _ONE_CARD.fullmatch(cards[-1]) for cards in visible
    )


def _commands(project: Project, path: Path) -> list[str]:
    """The commands in the texts and shell scripts around a file."""
    found: list[str] = []
    for text in _texts(project, path):
        project.noted.files.add(text)
        found += (command[0] for command in _COMMAND.finditer(text_of(text)))
    return found


def _naming_programs(script: Script) -> re.Pattern[str]:
    """Finds a program that a script's file is a part of, by its name in a command."""
    names = {index.source.path.name for index in programs(script)}
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(names)))})\b")


def _texts(project: Project, path: Path) -> list[Path]:
    found: list[Path] = []
    for folder in [*path.parents][:MAX_FOLDERS]:
        found += [*prose(folder), *project.in_folder(folder / "docs", "README*")]
        for within in (folder, *(folder / name for name in _INNER)):
            found += project.in_folder(within, "*.sh")
        if folder == project.root:
            break
    return list(dict.fromkeys(found))
