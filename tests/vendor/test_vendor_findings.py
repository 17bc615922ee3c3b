"""A script that imports the runtime from a vendored file is judged as any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source, fix_source
from gpulint.finding import Effect, Finding
from gpulint.index.projects import Projects
from gpulint.registry import all_rules
from gpulint.source import Source, read_source
from gpulint.vendor.header import render
from gpulint.vendor.modules import runtime

FIXTURES = Path(__file__).parents[2] / "fixtures"
PACKAGE = "from gpulint import runtime\n"
VENDORED = "import _gpulint_runtime as runtime\n"
EVERYTHING = Options(all_rules(), frozenset(Effect))


def rewritten() -> list[Path]:
    """All fixtures that import the runtime as the fixes write it."""
    files = sorted(FIXTURES.glob("*/**/*.py"))
    return [path for path in files if PACKAGE in path.read_text("utf-8", "replace")]


def places(findings: tuple[Finding, ...]) -> list[tuple[str, int, str]]:
    return [(f.code, f.place.start.row, f.message) for f in findings]


@pytest.mark.parametrize(
    "path", rewritten(), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_both_forms_have_the_same_findings(path: Path) -> None:
    source = read_source(path)
    other = source.with_text(source.text.replace(PACKAGE, VENDORED))
    found = [check_source(its, EVERYTHING).findings for its in (source, other)]
    assert places(found[0]) == places(found[1])


def test_the_fixtures_are_there() -> None:
    assert len(rewritten()) > 50


@pytest.mark.parametrize("vendor", [True, False])
@pytest.mark.parametrize("form", [PACKAGE, VENDORED])
def test_a_form_that_is_there_stays(form: str, vendor: bool) -> None:
    path = FIXTURES / "scripts" / "pm25" / "after.exact.py"
    text = read_source(path).text.replace(PACKAGE, form)
    options = Options(all_rules(), frozenset(Effect), vendor=vendor)
    result = fix_source(Source(Path("train.py"), text), options)
    assert result.applied
    whole = read_source(path.with_name("after.all.py")).text
    assert result.text == whole.replace(PACKAGE, form)


def test_the_file_beside_a_script_tells_nothing_about_it(tmp_path: Path) -> None:
    """What a project's files mention decides findings; this one is not among them."""
    (tmp_path / ".git").mkdir()
    text = read_source(FIXTURES / "scripts" / "pm25" / "after.all.py").text
    script = tmp_path / "train.py"
    script.write_text(text.replace(PACKAGE, VENDORED), "utf-8")
    found = []
    for helpers in ((), runtime().helpers):
        if helpers:
            (tmp_path / "_gpulint_runtime.py").write_text(render(helpers), "utf-8")
        projects = Projects(lambda root: sorted(root.glob("*.py")))
        options = EVERYTHING._replace(projects=projects)
        found.append(places(check_source(read_source(script), options).findings))
        assert projects.of(script).files == (script,)
    assert found[0] == found[1]
