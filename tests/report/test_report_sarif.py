"""SARIF: the standard's schema, what GitHub demands beyond it, and its fingerprints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from golden_report import FOLDER, render, sample
from samples import edit, entry, finding, place, source_of

from gpulint import report
from gpulint.finding import Effect, Fix, Place, Position, Severity
from gpulint.registry import all_rules
from gpulint.report import sarif
from gpulint.report.line_hashes import line_hashes
from gpulint.report.rule_texts import fit, section, summary
from gpulint.source import Source
from gpulint.text_edits import apply_fixes

SCHEMA = Path(__file__).parent / "schemas" / "sarif-2.1.0.json"

# From src/fingerprints.test.ts of github/codeql-action.
GREETINGS = (
    "e9496ae3ebfced30:1 fb7c023a8b9ccb3f:1 ce8ba1a563dcdaca:1 e20e36e16fcb0cc8:1 "
    "b3edc88f2938467e:1 c8e28b0b4002a3a0:1 c129715d7a2bc9a3:1"
)
VECTORS = [
    ("", "c129715d7a2bc9a3:1"),
    (
        " a\nb\n  \t\tc\n d",
        "271789c17abda88f:1 54703d4cd895b18:1 180aee12dab6264:1 a23a3dc5e078b07b:1",
    ),
    (
        " hello; \t\nworld!!!\n\n\n  \t\tGreetings\n End",
        "8b7cf3e952e7aeb2:1 b1ae1287ec4718d9:1 bff680108adb0fcc:1 c6805c5e1288b612:1 b86d3392aea1be30:1 e6ceba753e1a442:1",
    ),
    (" hello; \t\nworld!!!\n\n\n  \t\tGreetings\n End\n", GREETINGS),
    (" hello; \t\nworld!!!\r\r\r  \t\tGreetings\r End\r", GREETINGS),
    (" hello; \t\r\nworld!!!\r\n\r\n\r\n  \t\tGreetings\r\n End\r\n", GREETINGS),
    (" hello; \t\nworld!!!\r\n\n\r  \t\tGreetings\r End\r\n", GREETINGS),
    (
        "Lorem ipsum dolor sit amet.\n" * 10,
        " ".join(f"a7f2ff13bc495cf2:{n}" for n in range(1, 7))
        + " a7f2ff1481e87703:1 a9cf91f7bbf1862b:1 55ec222b86bcae53:1"
        + " cc97dc7b1d7d8f7b:1 c129715d7a2bc9a3:1",
    ),
    (
        "x = 2\nx = 1\nprint(x)\nx = 3\nprint(x)\nx = 4\nprint(x)\n",
        "e54938cc54b302f1:1 bb609acbe9138d60:1 1131fd5871777f34:1 5c482a0f8b35ea28:1 54517377da7028d2:1 2c644846cb18d53e:1 f1b89f20de0d133:1 c129715d7a2bc9a3:1",
    ),
]


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft4Validator.check_schema(schema)
    return jsonschema.Draft4Validator(schema)


def run_of(told: report.Report | None = None) -> dict[str, Any]:
    [run] = json.loads(render("sarif", told))["runs"]
    assert isinstance(run, dict)
    return run


def one(*found: Any, source: Source | None = None) -> report.Report:
    return report.Report((entry(source, *found),), folder=FOLDER)


@pytest.mark.parametrize("text,hashes", VECTORS)
def test_line_hashes_are_those_of_github(text: str, hashes: str) -> None:
    assert line_hashes(text) == hashes.split()


def test_line_hashes_count_utf16_units() -> None:
    """As codeql-action computes them: an emoji is two units, `\\ufffd` one."""
    unit, pair = ord("慢"), ("😀".encode("utf-16-le"))
    high, low = (int.from_bytes(pair[i : i + 2], "little") for i in (0, 2))

    def by_hand(*units: int) -> str:
        value = 0
        for its in [*units, *[0] * (100 - len(units))]:
            value = (37 * value + its) % 2**64
        return f"{value:x}:1"

    assert line_hashes("慢😀") == [by_hand(unit, high, low, 65535)]


@pytest.mark.parametrize("newline,bom", [("\n", b""), ("\r\n", b"\xef\xbb\xbf")])
def test_valid(validator: Any, newline: str, bom: bytes) -> None:
    log = json.loads(render("sarif", sample(newline, bom)))
    validator.validate(log)
    assert log["$schema"] == json.loads(SCHEMA.read_text("utf-8"))["id"]


def test_the_schema_refuses(validator: Any) -> None:
    log = json.loads(render("sarif"))
    log["runs"][0]["results"][2]["fixes"][0].pop("artifactChanges")
    assert not validator.is_valid(log)


def test_what_github_demands_of_results() -> None:
    run = run_of()
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == sorted(set(rules))
    assert run["automationDetails"]["id"] == "gpulint/"
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"][-1] == "."
        [location] = result["locations"]
        its = location["physicalLocation"]
        assert its["region"].keys() == {
            "startLine",
            "startColumn",
            "endLine",
            "endColumn",
        }
        assert its["region"]["startLine"] == its["region"]["endLine"]
        assert its["artifactLocation"]["uriBaseId"] in run["originalUriBaseIds"]
        assert not its["artifactLocation"]["uri"].startswith(("/", "file:"))


def test_what_github_demands_of_rules(validator: Any) -> None:
    """All rules as they are documented, in one log."""
    source = source_of("x\n", FOLDER / "a.py")
    at = place(source, "x")
    told = one(
        *(finding(at, code=rule.code, name=rule.name) for rule in all_rules()),
        source=source,
    )
    log = sarif.Log(told, list(sarif.rows(told)), len(all_rules())).document
    validator.validate(log)
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [rule.code for rule in all_rules()]
    for rule in rules:
        assert len(rule["name"]) <= 255
        for key in ("shortDescription", "fullDescription"):
            assert 20 < len(rule[key]["text"]) <= 1024
        assert rule["help"]["text"]
        assert "## Why" in rule["help"]["markdown"] or rule["id"] < "GPU100"
        its = rule["properties"]
        assert its["precision"] in ("low", "medium", "high", "very-high")
        assert its["problem.severity"] in ("error", "warning", "recommendation")
        assert its["tags"][:2] == ["performance", "gpu"]
        assert len(its["tags"]) <= 10
        assert "any" not in its["tags"]
        assert "security-severity" not in its


def test_fingerprints() -> None:
    told = sample()
    source = told.entries[-1].source
    assert source is not None
    results = run_of(told)["results"]
    hashes = line_hashes(source.text)
    for result, row in zip(results[2:], (7, 9, 10, 12), strict=True):
        prints = result["partialFingerprints"]
        assert prints["primaryLocationLineHash"] == hashes[row - 1]
    found = [f for e in told.entries for f in e.findings]
    own = [r["partialFingerprints"]["gpulint/v1"] for r in results]
    assert own == [f.fingerprint for f in found]
    # A file that could not be read has no lines to hash.
    assert results[0]["partialFingerprints"].keys() == {"gpulint/v1"}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", "\r \n", "\n\r", "\x0c\n"])
def test_there_is_a_hash_for_each_line(newline: str) -> None:
    source = Source(FOLDER / "a.py", newline.join(["", "x", " ", ""]))
    assert len(line_hashes(source.text)) == len(source.starts)


@pytest.mark.parametrize("newline,bom", [("\n", b""), ("\r\n", b"\xef\xbb\xbf")])
def test_fixes_do_what_the_fixes_do(newline: str, bom: bytes) -> None:
    told = sample(newline, bom)
    source = told.entries[-1].source
    assert source is not None
    fixed = [r for r in run_of(told)["results"] if "fixes" in r]
    found = [f for f in told.entries[-1].findings if f.fix]
    assert len(fixed) == len(found) == 2
    for result, its in zip(fixed, found, strict=True):
        [fix] = result["fixes"]
        [change] = fix["artifactChanges"]
        uri = change["artifactLocation"]["uri"]
        assert FOLDER / unquote(uri) == source.path
        text = source.text
        for replacement in reversed(change["replacements"]):
            region = replacement["deletedRegion"]
            start, end = (
                source.starts[region[f"{k}Line"] - 1] + region[f"{k}Column"] - 1
                for k in ("start", "end")
            )
            text = text[:start] + replacement["insertedContent"]["text"] + text[end:]
        assert its.fix is not None
        assert text == apply_fixes(source, [its.fix])
    described = [r["fixes"][0]["description"]["text"] for r in fixed]
    assert described == ["Copy `batch` once, then slice", "Wait later (numerics)"]


def test_a_place_of_several_lines_is_related_in_whole() -> None:
    result = run_of()["results"][3]
    [whole] = result["relatedLocations"]
    region = whole["physicalLocation"]["region"]
    assert (region["startLine"], region["endLine"]) == (9, 11)
    assert whole["id"] == 1
    assert result["locations"][0]["physicalLocation"]["region"]["endLine"] == 9


def test_messages_hold_no_links() -> None:
    result = run_of()["results"][3]
    assert "`x[0] (1)`" in result["message"]["text"]
    assert result["message"]["text"].startswith("The host waits")


def test_suppressions(monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub opens alerts for what is suppressed, so it does not get it."""
    kinds = [result["suppressions"] for result in run_of()["results"]]
    assert kinds == [[], [], [], [], [], [{"kind": "inSource"}]]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert [result["suppressions"] for result in run_of()["results"]] == [[]] * 5


def test_related_places_of_other_files_and_no_end_of_them() -> None:
    source = source_of("x = slow()\n", FOLDER / "a.py")
    other = Place(FOLDER / "conf ig.yaml", Position(3, 1), Position(3, 5), "set here")
    found = finding(place(source, "slow"), related=(other,) * 200)
    [result] = run_of(one(found, source=source))["results"]
    assert len(result["relatedLocations"]) == 100
    first = result["relatedLocations"][0]
    assert first["message"] == {"text": "set here"}
    uri = first["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "conf%20ig.yaml"


def test_a_file_outside_has_an_absolute_uri(validator: Any) -> None:
    source = source_of("x\n", Path("/elsewhere/数 据.py"))
    told = one(finding(place(source, "x")), source=source)
    [result] = run_of(told)["results"]
    where = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert where == {"uri": "file:///elsewhere/%E6%95%B0%20%E6%8D%AE.py"}
    validator.validate(json.loads(render("sarif", told)))


def test_file_names_that_are_no_text(validator: Any) -> None:
    source = source_of("x\n", FOLDER / "a\udcff:b.py")
    told = one(finding(place(source, "x")), source=source)
    [result] = run_of(told)["results"]
    where = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert where["uri"] == "a%FF%3Ab.py"
    validator.validate(json.loads(render("sarif", told)))


def many(count: int) -> tuple[report.Report, list[str]]:
    """As many notes, then a warning and an error; and what is warned of."""
    source = source_of("x\n", FOLDER / "a.py")
    at = place(source, "x")
    note = finding(at, severity=Severity.NOTE)
    found = [note._replace(context=str(i)) for i in range(count)]
    found += [finding(at), finding(at, severity=Severity.ERROR)]
    found.append(finding(at, severity=Severity.ERROR, suppressed="baseline"))
    said: list[str] = []
    entries = (entry(source, *found),)
    return report.Report(entries, folder=FOLDER, warn=said.append), said


@pytest.mark.parametrize("limit", ["MAX_RESULTS", "MAX_BYTES"])
def test_the_worst_findings_where_github_takes_no_more(
    limit: str, monkeypatch: pytest.MonkeyPatch, validator: Any
) -> None:
    monkeypatch.setattr(sarif, limit, {"MAX_RESULTS": 5, "MAX_BYTES": 1500}[limit])
    told, said = many(100)
    log = json.loads(render("sarif", told))
    validator.validate(log)
    [run] = log["runs"]
    levels = [result["level"] for result in run["results"]]
    assert levels == ["note"] * (len(levels) - 2) + ["warning", "error"]
    assert all(result["suppressions"] == [] for result in run["results"])
    assert len(levels) == 5 if limit == "MAX_RESULTS" else 2 < len(levels) < 100
    [line] = said
    assert f"the worst {len(levels)} of 103 findings are written" in line
    [invocation] = run["invocations"]
    [notification] = invocation["toolExecutionNotifications"]
    assert notification["message"]["text"] in line


def test_nothing_is_said_where_all_are_written() -> None:
    told, said = many(10)
    assert "invocations" not in run_of(told)
    assert said == []


def test_a_suppression_by_a_baseline() -> None:
    told, _ = many(0)
    assert run_of(told)["results"][-1]["suppressions"] == [{"kind": "external"}]


def test_a_fix_that_needs_another_effect_is_shown_as_such() -> None:
    source = source_of("x = 1\n", FOLDER / "a.py")
    fix = Fix("Drop it", Effect.RANDOM, (edit(source, "x", "y"),))
    [result] = run_of(one(finding(place(source, "x"), fix=fix), source=source))[
        "results"
    ]
    assert result["fixes"][0]["description"]["text"] == "Drop it (random)"


def test_documentation_in_parts() -> None:
    text = "# Slow\n\nA copy\nwaits.\n\n## Why\nIt is slow.\n\n## Fix\nNone."
    assert summary(text) == "A copy waits."
    assert section(text, "Why") == "It is slow."
    assert section(text, "Source") == summary("") == ""
    assert fit("One. Two. Three.", 10) == "One. Two."
    assert fit("One. Two.", 100) == "One. Two."
    assert fit("x" * 50, 10) == "x" * 9 + "…"
