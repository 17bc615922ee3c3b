"""The pages of the documentation site: one for each rule, and no link that leads nowhere."""

from __future__ import annotations

import importlib.util
import posixpath
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from gpulint.cli import COMMANDS
from gpulint.registry import all_rules
from gpulint.settings import READERS

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module", name="site")
def _site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs/build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", name="pages")
def _pages(site: ModuleType) -> dict[str, str]:
    pages: dict[str, str] = site.build()[0]
    return pages


def targets(text: str) -> list[str]:
    """Where the links and pictures of a page lead."""
    found = []
    for block in MarkdownIt().enable("table").parse(text):
        for token in block.children or ():
            target = token.attrs.get("href", token.attrs.get("src"))
            found += [str(target)] if target is not None else []
    return found


def listed(nav: Any) -> list[str]:
    """The pages of a navigation."""
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [page for its in inner for page in listed(its)]


def test_each_rule_has_a_page(pages: dict[str, str]) -> None:
    for rule in all_rules():
        page = pages[f"rules/{rule.code.lower()}.md"]
        assert page.startswith(f"# {rule.code} {rule.name}\n")
        for fact in (rule.severity.value, rule.framework, "Hardware"):
            assert f">{fact}<" in page
        assert f"]({rule.code.lower()}.md)" in pages["rules/index.md"]


def test_no_link_leads_nowhere(site: ModuleType, pages: dict[str, str]) -> None:
    known = {*pages, *site.PICTURES}
    count = 0
    for page, text in pages.items():
        for target in targets(text):
            if "://" in target:
                continue
            count += 1
            path = posixpath.join(posixpath.dirname(page), target.partition("#")[0])
            assert posixpath.normpath(path) in known, (page, target)
    assert count > len(all_rules())


def test_every_page_is_in_the_navigation(site: ModuleType) -> None:
    pages, nav = site.build()
    assert sorted(listed(nav)) == sorted(pages)


def test_code_stays_as_it_is(site: ModuleType) -> None:
    text = "# GPU101\nGPU101 `GPU102` [a](x.py) [b](#c)\n```text\nGPU103 [d](e)\n```\nGPU999\n"
    assert site.linked(text, "guide/x.md") == (
        "# GPU101\n[GPU101](../rules/gpu101.md) `GPU102` `a` [b](#c)\n"
        "```text\nGPU103 [d](e)\n```\nGPU999\n"
    )


def test_all_settings_are_described(pages: dict[str, str]) -> None:
    for key in READERS:
        assert f"### `{key}`\n" in pages["settings.md"]


def test_files_for_mkdocs(
    site: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.main(tmp_path / "site")
    settings = yaml.safe_load((tmp_path / "site/mkdocs.yml").read_text("utf-8"))
    assert (tmp_path / "site" / settings["INHERIT"]).samefile(ROOT / "docs/mkdocs.yml")
    for path, words in site.PICTURES.items():
        picture = (tmp_path / "site/pages" / path).read_text("utf-8")
        text = re.sub(r"<[^>]*>|&#160;", " ", picture)
        assert words.split()[0] in COMMANDS
        assert "GPU101" in text
        assert "batch.to(device" in re.sub(r"\s+", "", text)
        assert "@font-face" not in picture
    with pytest.raises(RuntimeError, match="no-such-word"):
        site.picture("check --no-such-word", "")
