"""The HTML page: one file, nothing of it made by those whose code it shows."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser

import pytest
from golden_report import FOLDER, one_rule, render, sample
from samples import edit, entry, finding, place, source_of

from gpulint import report
from gpulint.finding import Effect, Evidence, Fix, Place, Position
from gpulint.registry import all_rules
from gpulint.report.html_docs import markdown
from gpulint.report.html_frame import MAX_WIDTH, frame

VOID = {"meta", "wbr"}
EVIL = "<script>alert('1')</script>"
KNOWN = set(
    "a article body code details div h1 h2 h3 h4 head header html li mark meta p pre "
    "section span style summary table td th title tr ul wbr".split()
)


class Page(HTMLParser):
    """The elements of a page, which must be closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in KNOWN
        names = {name: value or "" for name, value in attrs}
        assert names.keys().isdisjoint({"src", "style", "onclick", "onload"})
        self.ids += [names["id"]] if "id" in names else []
        self.links += [names["href"]] if "href" in names else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def told_of(text: str, name: str = "a.py", **changes: object) -> report.Report:
    source = source_of(text, FOLDER / name)
    found = finding(place(source, "x"), **changes)
    return report.Report((entry(source, found),), folder=FOLDER)


def test_page() -> None:
    page = Page(render("html"))
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links} == set(page.ids)
    assert "标签" in page.text
    assert "1 suppressed" in page.text


def test_needs_nothing_from_elsewhere() -> None:
    stream = io.StringIO()
    with one_rule():
        report.write(sample(), "html", stream)
    text = stream.getvalue()
    Page(text)
    assert re.search(r"(https?:|//|@import|url\()", text) is None
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert 'content="width=device-width' in text


def test_everything_is_escaped() -> None:
    source = source_of(f"x = 1  # {EVIL}\ny = '{EVIL}'\n", FOLDER / f"{EVIL[:8]}.py")
    other = Place(FOLDER / f"{EVIL[:8]}.yaml", Position(1, 1), Position(1, 2), EVIL)
    found = finding(
        place(source, "x", EVIL),
        name=EVIL,
        message=f"{EVIL} `{EVIL}`",
        related=(place(source, "y", EVIL), other),
        evidence=(Evidence(source.path, 1, EVIL),),
        fix=Fix(EVIL, Effect.EXACT, (edit(source, "x", EVIL),), (f"import {EVIL}",)),
        fix_withheld=f"{EVIL}\n{EVIL}",
    )
    folder = FOLDER / EVIL[:8]
    told = report.Report((entry(source, found),), folder=folder)
    text = render("html", told)
    page = Page(text)
    assert "<script" not in text
    assert page.text.count(EVIL) >= 10
    assert f"gpulint · {EVIL[:8]}" in page.text


def test_a_code_of_a_rule_without_documentation() -> None:
    page = Page(render("html", told_of("x\n", code="GPU999", name="own-rule")))
    assert "GPU999" in page.ids


def test_long_lines_are_cut_around_the_place() -> None:
    row = "1234567, " * 200
    source = source_of(f"y = [{row}x, {row}]\n", FOLDER / "a.py")
    shown = frame(source, finding(place(source, "x")))
    code = Page(shown).text
    assert "…" in code[:5]
    assert code[-1] == "…"
    assert "<mark>x</mark>" in shown
    assert len(code) < MAX_WIDTH + 10


def test_lines_between_places_are_left_out() -> None:
    source = source_of("\n\nx = 1\n" + "#\n" * 30 + "y = 2\n", FOLDER / "a.py")
    found = finding(place(source, "x"), related=(place(source, "y", "here"),))
    text = Page(frame(source, found)).text
    assert text == "3x = 14#5#⋯34y = 2here"


def test_a_place_behind_the_text_has_no_frame() -> None:
    source = source_of("", FOLDER / "a.py")
    at = Position(1, 1)
    assert "<mark" not in frame(source, finding(Place(source.path, at, at)))


def test_places_of_one_row_lie_beside_each_other() -> None:
    source = source_of("f(x, y)\n", FOLDER / "a.py")
    inner = place(source, "x, y", "both")
    found = finding(place(source, "x"), related=(inner, inner, place(source, "f")))
    shown = frame(source, found)
    assert '<mark class="near">f</mark>(<mark>x</mark>' in shown
    assert shown.count("both") == 1
    assert Page(shown).text == "1f(x, y)both"


def test_places_of_many_lines_end_somewhere() -> None:
    text = "x = (\n" + "1,\n" * 50 + ")\n"
    source = source_of(text, FOLDER / "a.py")
    shown = frame(source, finding(place(source, text[:-1])))
    assert shown.count("<mark>") == 8


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: str(rule.code))
def test_documentation_of_all_rules_is_shown(rule: object) -> None:
    text = rule.documentation  # type: ignore[attr-defined]
    shown = markdown(text)
    plain = Page(shown).text

    def words(words: str) -> list[str]:
        return re.sub(r"```\w*|[`#]", " ", words).split()

    assert "".join(words(plain)) == "".join(words(text))
    assert "```" not in shown
