"""Writes the pages of the documentation site: from the README, the rules, the settings.

`python docs/build.py FOLDER` fills FOLDER with `pages/` and an `mkdocs.yml` that takes
what stands in `docs/mkdocs.yml` and adds the navigation.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from gpulint.cli.config import settings_schema
from gpulint.cli.rules import record
from gpulint.registry import all_rules
from gpulint.rule import Rule

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "docs"
KINDS = {
    "GPU0": "gpulint itself",
    "GPU1": "Copies and waits",
    "GPU2": "Loading",
    "GPU3": "Precision",
    "GPU4": "Memory",
    "GPU5": "Compute",
    "GPU6": "Checkpoints and files",
    "GPU7": "More than one GPU",
    "GPU8": "Machine and job",
    "GPU9": "Settings files",
}
HARDWARE = {
    "any": "any machine",
    "gpu": "any accelerator",
    "pinned": "GPUs with copies beside other work",
    "cuda": "GPUs of NVIDIA and AMD",
    "mixed": "where lower precision is faster",
    "tf32": "GPUs with TF32",
}
COLUMNS = 84
PICTURES = {
    "pictures/check.svg": "check --select GPU101,GPU202 train.py",
    "pictures/fix.svg": "fix --diff --select GPU101,GPU102 train.py",
}
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
CODE = re.compile(
    r"(^ *(`{3,}|~{3,}).*?^ *\2[^\n]*$|`[^`\n]+`)", re.MULTILINE | re.DOTALL
)
Pages = dict[str, str]


class Section(NamedTuple):
    """A heading of the README, and what stands below it up to the next."""

    level: int
    title: str
    text: str

    @property
    def slug(self) -> str:
        """The page's name."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def sections(text: str) -> list[Section]:
    """A Markdown text by its headings up to the third level; code has none."""
    found: list[tuple[int, str, list[str]]] = []
    fence = False
    for line in text.splitlines(keepends=True):
        fence ^= line.startswith("```")
        heading = None if fence else re.match(r"(#{1,3}) (.*)\n", line)
        if heading:
            found.append((len(heading[1]), heading[2], []))
        else:
            found[-1][2].append(line)
    return [Section(level, title, "".join(its)) for level, title, its in found]


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with all changed that is not code."""
    parts = CODE.split(text)  # what lies between, code, its fence, and so on
    return "".join(
        change(part) if i % 3 == 0 else part
        for i, part in enumerate(parts)
        if i % 3 != 2 and part
    )


def linked(text: str, page: str) -> str:
    """Rules become links to their pages; links to files of the repository, names."""
    up = "../" * page.count("/")
    codes = {rule.code for rule in all_rules()}

    def local(found: re.Match[str]) -> str:
        name, target = found.groups()
        if "://" in target or target.startswith("#"):
            return found[0]
        known = {"docs/rules.md": "rules/index.md", "CHANGELOG.md": "changelog.md"}
        if target.startswith("docs/"):
            known.setdefault(target, f"guide/{target[5:]}")
        if target in known:
            return f"[{_called(name, target)}]({up}{known[target]})"
        return f"`{name}`"

    def code(found: re.Match[str]) -> str:
        own = page == f"rules/{found[0].lower()}.md"
        if found[0] not in codes or own:
            return found[0]
        return f"[{found[0]}]({up}rules/{found[0].lower()}.md)"

    def change(part: str) -> str:
        part = LINK.sub(local, part)
        return re.sub(r"(?<![\w\[/])GPU\d{3}(?![\w\]/])", code, part)

    # a heading with a link in it would be one in the table of contents
    lines = outside_code(text, change).splitlines(keepends=True)
    return "".join(
        LINK.sub(r"\1", line) if line.startswith("#") else line for line in lines
    )


def _called(name: str, target: str) -> str:
    """A link is called after what it shows, not after a file that no reader has."""
    stem = target.rpartition("/")[2].removesuffix(".md").lower()
    return f"the page on {stem}" if name == target else name


def build() -> tuple[Pages, list[Any]]:
    """All pages by their paths, and the navigation."""
    readme = sections((ROOT / "README.md").read_text("utf-8"))
    pages: Pages = {"index.md": home(readme[0])}
    guide: list[Any] = []
    in_use = False
    for section in readme[1:]:
        in_use = section.title == "Use" if section.level == 2 else in_use
        if not in_use or section.title == "Settings":
            continue
        path = f"guide/{section.slug}.md"
        pages[path] = linked(f"# {section.title}\n{section.text}", path)
        guide.append({section.title: path})
    for file in sorted(HERE.glob("*.md")):
        if file.name != "rules.md":
            path = f"guide/{file.name}"
            pages[path] = linked(file.read_text("utf-8"), path)
            guide.append(path)
    own = next((s.text for s in readme if s.title == "Settings"), "")
    pages["settings.md"] = linked(
        f"# Settings\n{own}\n{settings_table()}", "settings.md"
    )
    about = []
    for title in ("What it brings", "Limits"):
        text = next((s.text for s in readme if s.title == title), "")
        path = f"{title.lower().replace(' ', '-')}.md"
        pages[path] = linked(f"# {title}\n{text}", path)
        about.append({title: path})
    for name in ("CHANGELOG", "CONTRIBUTING"):
        path = f"{name.lower()}.md"
        pages[path] = linked((ROOT / f"{name}.md").read_text("utf-8"), path)
        about.append({name.capitalize(): path})
    rules = rule_pages(pages)
    nav = [
        {"Home": "index.md"},
        {"Guide": guide},
        {"Settings": "settings.md"},
        {"Rules": rules},
        {"About": about},
    ]
    return pages, nav


def home(intro: Section) -> str:
    """The README's beginning, after a picture of what the program prints."""
    first, _, example = linked(intro.text, "index.md").partition(" Of\n\n```python")
    picture = terminal("pictures/check.svg", "What gpulint check finds in a script")
    change = terminal("pictures/fix.svg", "What gpulint fix changes in it")
    count = sum(rule.code >= "GPU1" for rule in all_rules())
    links = (
        "[Get started](guide/use.md){ .md-button .md-button--primary } "
        f"[{count} rules](rules/index.md){{ .md-button }}"
    )
    return (
        "---\nhide: [navigation, toc]\n---\n\n"
        f"# gpulint\n{first}\n\n{links}\n\n{picture}\n\n"
        f"`gpulint fix` rewrites what changes no result:\n\n{change}\n\n"
        f"## A whole script\n\nOf\n\n```python{example}"
    )


def terminal(path: str, alt: str) -> str:
    """A picture that scrolls where the window is narrower than its text."""
    return f'<div class="terminal" markdown>\n![{alt}]({path})\n</div>'


def settings_table() -> str:
    """Each key, with what `gpulint config KEY` says."""
    lines = ["## All settings\n"]
    for key, its in settings_schema()["properties"].items():
        lines.append(f"### `{key}`\n\n{its['description']}\n")
    return "\n".join(lines)


def rule_pages(pages: Pages) -> list[Any]:
    """A page for each rule and one that lists them, and their navigation."""
    nav: list[Any] = ["rules/index.md"]
    listing = ["# Rules\n"]
    for prefix, kind in KINDS.items():
        rules = [rule for rule in all_rules() if rule.code.startswith(prefix)]
        if not rules:
            continue
        listing += [
            f"## {kind}\n",
            "| Rule | Effect of the fix | Finds |",
            "|---|---|---|",
        ]
        inner = []
        for rule in rules:
            path = f"rules/{rule.code.lower()}.md"
            pages[path] = rule_page(rule, path)
            its = record(rule)
            name = f"[{rule.code}]({rule.code.lower()}.md)<br>{rule.name}"
            effect = "–" if its["effect"] == "none" else its["effect"]
            summary = its["summary"].replace("|", "\\|")
            listing.append(f"| {name} | {effect} | {summary} |")
            inner.append({f"{rule.code} {rule.name}": path})
        listing.append("")
        nav.append({kind: inner})
    pages["rules/index.md"] = "\n".join(listing)
    return nav


def rule_page(rule: Rule, path: str) -> str:
    """The rule's documentation below its facts."""
    effect = rule.effect.value
    facts = {
        "Severity": rule.severity.value,
        "Fix": "report only" if effect == "none" else f"effect {effect}",
        "Framework": rule.framework,
        "Hardware": HARDWARE[rule.hardware.value],
    }
    shown = "".join(f"<dt>{k}</dt><dd>{v}</dd>" for k, v in facts.items())
    return (
        f'# {rule.code} {rule.name}\n\n<dl class="facts">{shown}</dl>\n\n'
        f"{linked(rule.documentation, path)}\n"
    )


def picture(words: str, script: str) -> str:
    """A terminal in which `gpulint` runs on the README's script, as an SVG."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(script, "utf-8")
        kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "CI")}
        colored = {
            "FORCE_COLOR": "1",
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
        }
        done = subprocess.run(
            [sys.executable, "-m", "gpulint", *words.split(), "--isolated"],
            cwd=folder,
            env={**kept, **colored, "PYTHONPATH": str(ROOT), "GPULINT_NO_CACHE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 1:
        raise RuntimeError(f"gpulint {words}: {done.stderr}")
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True
    )
    console.print(Text(f"$ gpulint {words}", style="bold"))
    console.print(Text.from_ansi(done.stdout.rstrip()))
    name = words.partition(" ")[0]
    svg = console.export_svg(
        title="gpulint", theme=MONOKAI, unique_id=f"gpulint-{name}"
    )
    # the font would come from another address; a monospaced one is there
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def example_script() -> str:
    """The script with which the README begins."""
    found = re.search(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL
    )
    assert found is not None
    return found[1]


def main(folder: Path) -> None:
    """Write everything that mkdocs reads."""
    pages, nav = build()
    script = example_script()
    files = pages | {path: picture(words, script) for path, words in PICTURES.items()}
    files["extra.css"] = (HERE / "extra.css").read_text("utf-8")
    for path, text in files.items():
        target = folder / "pages" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    base = os.path.relpath(HERE / "mkdocs.yml", folder)
    settings = {"INHERIT": base, "nav": nav}
    (folder / "mkdocs.yml").write_text(
        yaml.safe_dump(settings, sort_keys=False), "utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
