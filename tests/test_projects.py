"""Ways in which a value travels through the files of a project, one folder each.

`# expect: GPU201` ends a line with a finding; `# expect-in: train.json:3: GPU201` says
the same for a file that has no comments; `# select: GPU201` restricts the rules. A
folder named `…_unknown` is a look-alike of its twin whose value nobody can know.
"""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpulint.cli import main
from gpulint.engine import Options, check_path
from gpulint.finding import Confidence, Effect
from gpulint.index import Projects
from gpulint.registry import all_rules

PROJECTS = Path(__file__).parent.parent / "fixtures" / "projects"
EXPECT = re.compile(r"# expect: (GPU\d{3}(?:, GPU\d{3})*)$", re.MULTILINE)
EXPECT_IN = re.compile(
    r"# expect-in: (\S+):(\d+): (GPU\d{3}(?:, GPU\d{3})*)$", re.MULTILINE
)
SELECT = re.compile(r"# select: (GPU\d{3}(?:, ?GPU\d{3})*)$", re.MULTILINE)
COMMENTED = (".py", ".yaml", ".yml")
FOLDERS = sorted(p for p in PROJECTS.iterdir() if p.is_dir())
Found = set[tuple[str, int, str]]


@pytest.fixture(params=FOLDERS, ids=lambda p: p.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one project, with a root of its own."""
    copy = tmp_path / request.param.name
    shutil.copytree(
        request.param, copy, ignore=shutil.ignore_patterns("__pycache__", ".*_cache")
    )
    if not (copy / "pyproject.toml").exists():
        (copy / "pyproject.toml").touch()
    return copy


def files(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix in suffixes)


def expected(folder: Path) -> Found:
    found: Found = set()
    for path in files(folder, *COMMENTED):
        text = path.read_text("utf-8")
        for match in EXPECT.finditer(text):
            row = text.count("\n", 0, match.start()) + 1
            name = path.relative_to(folder).as_posix()
            found |= {(name, row, code) for code in match[1].split(", ")}
        for match in EXPECT_IN.finditer(text):
            found |= {(match[1], int(match[2]), code) for code in match[3].split(", ")}
    return found


def selected(folder: Path) -> frozenset[str]:
    """The codes that count in a folder."""
    texts = [p.read_text("utf-8") for p in files(folder, ".py")]
    codes = {c.strip() for t in texts for m in SELECT.findall(t) for c in m.split(",")}
    return frozenset(codes) or frozenset(rule.code for rule in all_rules())


def found(folder: Path) -> Found:
    projects = Projects(lambda root: files(root, ".py"))
    options = Options(tuple(all_rules()), frozenset(Effect), projects=projects)
    sure = folder.name.endswith("_unknown")  # what is not known is never sure
    return {
        (f.place.path.relative_to(folder).as_posix(), f.place.start.row, f.code)
        for path in files(folder, ".py")
        for f in check_path(path, options).findings
        if f.suppressed is None and f.code in selected(folder)
        if not (sure and f.confidence is Confidence.LOW)
    }


def test_findings(folder: Path) -> None:
    assert found(folder) == expected(folder)
    assert bool(expected(folder)) is not folder.name.endswith("_unknown")


@pytest.mark.parametrize("path", FOLDERS, ids=lambda p: p.name)
def test_every_way_has_a_look_alike(path: Path) -> None:
    twin = path.name.removesuffix("_unknown")
    assert any(p.name == twin for p in FOLDERS), "which way does it look like?"
    others = [p for p in FOLDERS if p.name in (f"{twin}_unknown", twin)]
    assert len(others) == 2, f"{twin} has no look-alike"


def test_fix_leaves_a_project_that_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    run = ["fix", "--allow", "all", "--no-cache"]
    before = {p: p.read_bytes() for p in files(folder, *COMMENTED, ".json")}
    result = CliRunner().invoke(main, run, catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    after = {p: p.read_bytes() for p in before}
    for path in files(folder, ".py"):
        if before[path] != after[path]:
            check_rewritten(after[path].decode("utf-8"))
    CliRunner().invoke(main, run, catch_exceptions=False)
    assert {p: p.read_bytes() for p in before} == after, "a second fix changes files"


def check_rewritten(text: str) -> None:
    """It compiles, no keyword is given twice, and what it names is imported."""
    tree = ast.parse(text)
    compile(text, "<fixed>", "exec", dont_inherit=True)
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        names = [k.arg for k in call.keywords if k.arg is not None]
        assert len(names) == len(set(names)), ast.unparse(call)
    imported = {
        alias.asname or alias.name.partition(".")[0]
        for n in ast.walk(tree)
        if isinstance(n, (ast.Import, ast.ImportFrom))
        for alias in n.names
    }
    used = {
        n.value.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    }
    assert used & {"runtime", "torch"} <= imported
