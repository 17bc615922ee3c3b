"""Every rule on its fixture folder: findings at the marked lines, whole-file fixes."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from pathlib import Path

import pytest

from gpulint import runtime
from gpulint.engine import Options, check_source, fix_source
from gpulint.finding import Confidence, Effect, Finding
from gpulint.index import Projects, build_index
from gpulint.index.walk import dotted
from gpulint.registry import all_rules, find_rule
from gpulint.rule import Present, Rule
from gpulint.source import Source, read_source

FIXTURES = Path(__file__).parent.parent / "fixtures"
EXPECT = re.compile(r"# expect: (GPU\d{3})")
UNSURE = re.compile(r"# expect: GPU\d{3} \(low\)")
TWIN = re.compile(r"# twin: (\S+), (.+)")
EVERYTHING = frozenset(Effect)


def cases() -> list[Path]:
    """All input files of all rules' fixture folders."""
    folders = [f for f in sorted(FIXTURES.glob("gpu*")) if f.is_dir()]
    return [
        path
        for folder in folders
        for path in sorted(folder.glob("*.py"))
        if not path.stem.endswith((".fixed", ".exact.fixed"))
    ]


def rule_of(path: Path) -> Rule:
    """The rule whose folder a fixture lies in."""
    rule = find_rule(path.parent.name[:6])
    assert rule is not None, f"no rule for {path.parent.name}"
    return rule


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def unsure(text: str) -> set[int]:
    """The rows whose finding must be of low confidence; if any are, all others not."""
    return {n for n, line in enumerate(text.splitlines(), 1) if UNSURE.search(line)}


def expected(text: str) -> list[int]:
    return [n for n, line in enumerate(text.splitlines(), 1) if EXPECT.search(line)]


@functools.cache  # many silent cases name the same twin
def reported(path: Path) -> tuple[Finding, ...]:
    """What its rule finds; or that it could not be analysed."""
    rules = tuple(r for r in all_rules() if r in (rule_of(path), find_rule("GPU001")))
    result = check_source(read_source(path), Options(rules))
    return tuple(f for f in result.findings if f.suppressed is None)


def found(path: Path) -> list[int]:
    """The rows in which its rule finds something."""
    return sorted({f.place.start.row for f in reported(path)})


@pytest.mark.parametrize("path", cases(), ids=name)
def test_findings(path: Path) -> None:
    text = read_source(path).text
    assert found(path) == expected(text)
    sure = {f for f in reported(path) if f.confidence is not Confidence.LOW}
    if unsure(text):
        rows = {f.place.start.row for f in sure if f.code == rule_of(path).code}
        assert rows == set(expected(text)) - unsure(text)


def fixable() -> list[Path]:
    """The cases in which something is found, if only to be ignored; see `silent`."""
    return [p for p in cases() if p not in silent()]


@functools.cache
def silent() -> frozenset[Path]:
    """The cases in which nothing is found: there is nothing that a fix could do."""
    texts = ((path, path.read_text("utf-8")) for path in cases())
    return frozenset(
        path for path, text in texts if not expected(text) and "gpulint:" not in text
    )


def check_fix(path: Path, allow: frozenset[Effect], wanted: Path) -> None:
    source = read_source(path)
    fixed = fix_source(source, Options((rule_of(path),), allow))
    assert fixed.undone == ()
    target = read_source(wanted).text if wanted.exists() else source.text
    assert fixed.text == target
    if fixed.text == source.text:
        return
    again = fix_source(source.with_text(fixed.text), Options((rule_of(path),), allow))
    assert again.text == fixed.text, "a second fix changes something"
    check_runtime_calls(fixed.text)


@pytest.mark.parametrize("path", fixable(), ids=name)
def test_fix_with_all_effects(path: Path) -> None:
    check_fix(path, EVERYTHING, path.with_suffix(".fixed.py"))


@pytest.mark.parametrize("path", fixable(), ids=name)
def test_fix_with_default_effect(path: Path) -> None:
    wanted = path.with_suffix(".exact.fixed.py")
    rule = rule_of(path)
    if not wanted.exists() and rule.effect is Effect.EXACT:
        wanted = path.with_suffix(".fixed.py")
    check_fix(path, frozenset({Effect.EXACT}), wanted)


def test_silent_cases_have_no_fixed_form() -> None:
    kinds = (".fixed.py", ".exact.fixed.py")
    assert [p for p in silent() for k in kinds if p.with_suffix(k).exists()] == []


@pytest.mark.parametrize("rule", all_rules(), ids=lambda r: r.code)
def test_a_fix_leaves_a_silent_case_alone(rule: Rule) -> None:
    for path in sorted(silent()):
        if rule_of(path) is rule:
            check_fix(path, EVERYTHING, path)
            return


def check_runtime_calls(text: str) -> None:
    """Every `runtime.helper(…)` binds to the helper's real signature."""
    for call in (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)):
        name = dotted(call.func) or ""
        if not name.startswith(("runtime.", "gpulint_runtime.")):
            continue
        helper = functools.reduce(getattr, name.split(".")[1:], runtime)
        keywords = {k.arg: None for k in call.keywords if k.arg is not None}
        inspect.signature(helper).bind(*call.args, **keywords)


@pytest.mark.parametrize(
    "path", [p for p in cases() if not expected(p.read_text("utf-8"))], ids=name
)
def test_silent_case_has_a_twin_that_fires(path: Path) -> None:
    source = read_source(path)
    if rule_of(path).effect is Effect.NONE and not rule_of(path).needs.words:
        return
    twin = TWIN.match(source.text.partition("\n")[0])
    assert twin, "the first line must name the twin: `# twin: bad.py, what differs`"
    rule = rule_of(path)
    # what stands in it lets it through; what must not may be why it is silent
    assert rule.needs.without().among(Present(source.text))
    assert rule.needs.in_index(build_index(source)), "the rule never looks at it"
    assert found(path.with_name(twin.group(1)))


@pytest.mark.parametrize("rule", all_rules(), ids=lambda r: r.code)
def test_every_rule_has_fixtures_and_documentation(rule: Rule) -> None:
    folder = FIXTURES / f"{rule.code.lower()}_{rule.name.replace('-', '_')}"
    projects = list((FIXTURES / "projects").glob(f"{rule.code.lower()}_*"))
    assert (folder / "bad.py").exists() or projects or not rule.needs.words
    for heading in ("## Why", "## Example", "## Fix", "## When not", "## Source"):
        assert heading in rule.documentation


def example(rule: Rule) -> tuple[str, str | None]:
    """The example of a rule's documentation, and what it becomes."""
    section = rule.documentation.partition("## Example")[2].partition("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert blocks, "no example"
    return blocks[0], blocks[1] if len(blocks) > 1 else None


@pytest.mark.parametrize("rule", all_rules(), ids=lambda r: r.code)
def test_documented_example_fires_and_becomes_what_it_says(
    rule: Rule, tmp_path: Path
) -> None:
    before, after = example(rule)
    source = Source(tmp_path / "example.py", before)
    for text in re.findall(r"```yaml\n(.*?)```", rule.documentation, re.DOTALL):
        (tmp_path / text.split()[1]).write_text(text, "utf-8")  # `# train.yaml`
    source.path.write_text(before, "utf-8")
    options = Options((rule,), projects=Projects(lambda root: root.rglob("*.py")))
    codes = {f.code for f in check_source(source, options).findings}
    assert codes == {rule.code}
    if after is not None:
        assert fix_source(source, Options((rule,), EVERYTHING)).text == after
