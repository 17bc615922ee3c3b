"""Findings, suppressions, passes that grow, and passes that are taken back."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpulint import engine
from gpulint.engine import (
    Options,
    check_path,
    check_source,
    fix_again,
    fix_path,
    fix_source,
)
from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index.projects import Projects
from gpulint.registry import all_rules, find_rule, select_rules
from gpulint.rule import Calls, Present, Rule, StepLoops, Words
from gpulint.script import Script
from gpulint.script.rewriting.edits import (
    InsertBefore,
    Remove,
    Replace,
    ReplaceCode,
    Rewrite,
)
from gpulint.script.rewriting.syntax import code, set_keywords
from gpulint.source import MAX_BYTES, Source


class CallsOf(Rule):
    """Reports calls of one name, with a fix made by `rewrite`."""

    effect = Effect.EXACT
    needs = Words("")
    number = 900

    def __init__(
        self, name: str, number: int = 900, effect: Effect = Effect.EXACT
    ) -> None:
        self.wanted, self.number = name, number
        self.effect = effect  # type: ignore[misc]

    @property
    def _stem(self) -> str:
        return f"gpu{self.number}_calls_of"

    def rewrite(self, call: ast.Call, script: Script) -> Rewrite | None:
        return None

    def check(self, script: Script) -> Iterator[Finding]:
        for call in script.index.calls.get(self.wanted, ()):
            message = f"`{self.wanted}` is called"
            yield self.finding(
                script, call.func, message, fix=self.rewrite(call, script)
            )


class Renames(CallsOf):
    """`f(…)` → `g(…)`."""

    def rewrite(self, call: ast.Call, script: Script) -> Rewrite:
        new = {"f": "g", "g": "h"}[self.wanted]
        return Rewrite("Rename", (Replace(call.func, code(new)),), ("import os",))


class Breaks(CallsOf):
    """A fix whose result is no Python."""

    def rewrite(self, call: ast.Call, script: Script) -> Rewrite:
        return Rewrite("Break", (ReplaceCode(call, "f(("),))


class Marks(CallsOf):
    """`f()` → `f(a=1)`, again and again."""

    def rewrite(self, call: ast.Call, script: Script) -> Rewrite:
        count = len(call.keywords)
        return Rewrite("Mark", (Replace(call, set_keywords(**{f"a{count}": "1"})),))


def source(text: str) -> Source:
    return Source(Path("a.py"), text)


def everything(*rules: Rule) -> Options:
    return Options(rules, frozenset(Effect))


def test_a_finding_tells_where_and_how() -> None:
    (finding,) = check_source(
        source("x = 1\ny = f(x)\n"), Options((Renames("f"),))
    ).findings
    assert (finding.code, finding.name) == ("GPU900", "calls-of")
    assert (finding.place.start.row, finding.place.start.column) == (2, 5)
    assert finding.fix is not None
    assert finding.fix.imports == ("import os",)
    assert finding.severity is Severity.WARNING


def test_fingerprints_survive_line_moves_and_tell_twins_apart() -> None:
    def prints(text: str) -> list[str]:
        found = check_source(source(text), Options((CallsOf("f"),))).findings
        return [f.fingerprint for f in found]

    first = prints("def a():\n  f(1)\n  f(1)\n")
    moved = prints("# new\n\n\ndef a():\n    f(1)\n\n    f(1)\n")
    assert len(set(first)) == 2
    assert first == moved
    assert prints("def b():\n  f(1)\n")[0] not in first


def test_fixes_go_on_until_nothing_changes() -> None:
    fixed = fix_source(
        source("f(1)\ng(2)\n"), Options((Renames("f"), Renames("g", 901)))
    )
    assert fixed.text == "import os\nh(1)\nh(2)\n"
    assert len(fixed.applied) == 3
    assert fixed.remaining == ()
    assert fixed.undone == ()
    assert fixed.stable


class WhereOthersCall(Renames):
    """`f(…)` → `g(…)`, if another file of the project calls `h`."""

    def check(self, script: Script) -> Iterator[Finding]:
        project = script.index.project
        if project is not None and project.texts("h("):
            yield from super().check(script)


def test_a_fix_sees_what_fixes_have_made_of_other_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text("f(1)\n")
    second.write_text("g(2)\n")
    projects = Projects(lambda _: [first, second])
    (tmp_path / ".git").mkdir()
    here = Options((WhereOthersCall("f"), Renames("g", 901)), projects=projects)
    before = fix_path(first, here)
    assert isinstance(before, engine.Fixed)
    assert before.text == "f(1)\n"
    fix_path(second, here)  # writes nothing
    after = fix_again(before, here)
    assert after.text == "import os\nh(1)\n"
    assert after.source.text == "f(1)\n"
    assert len(after.applied) == 2
    assert fix_again(after, here) == after


def test_a_fix_without_end_stops() -> None:
    fixed = fix_source(source("f()\n"), Options((Marks("f"),)))
    assert not fixed.stable
    assert fixed.text.count("=1") == engine.MAX_PASSES


def test_a_result_that_does_not_compile_is_taken_back() -> None:
    fixed = fix_source(
        source("f(1)\ng(2)\n"), Options((Breaks("f"), Renames("g", 901)))
    )
    assert fixed.text == "import os\nf(1)\nh(2)\n"
    (finding,) = fixed.undone
    assert (finding.code, finding.place.start.row) == ("GPU900", 2)


def test_a_file_that_did_not_compile_before_may_still_be_fixed() -> None:
    fixed = fix_source(source("return f(1)\n"), Options((Renames("f"),)))
    assert "g(1)" in fixed.text


def test_only_allowed_effects_are_applied() -> None:
    rules = (Renames("f"), Renames("g", 901, Effect.NUMERICS))
    exact = fix_source(source("f(1)\n"), Options(rules))
    assert exact.text == "import os\ng(1)\n"
    assert [f.code for f in exact.remaining] == ["GPU901"]
    both = fix_source(source("f(1)\n"), everything(*rules))
    assert both.text == "import os\nh(1)\n"
    twice = fix_source(source(exact.text), everything(*rules))
    assert twice.text == both.text


def test_overlapping_fixes_wait_for_the_next_pass() -> None:
    class Outer(CallsOf):
        def rewrite(self, call: ast.Call, script: Script) -> Rewrite | None:
            if call.keywords:
                return None
            return Rewrite("Outer", (Replace(call, set_keywords(a="1")),))

    fixed = fix_source(source("o(f(2))\n"), Options((Outer("o"), Renames("f", 901))))
    assert fixed.text == "import os\no(g(2), a=1)\n"


@pytest.mark.parametrize(
    "text, hit",
    [
        ("f(1)  # gpulint: ignore[GPU900] -- warm-up\n", True),
        ("f(1)  # gpulint: ignore[calls-of]\n", True),
        ("f(1)  # gpulint: ignore[GPU101, gpu900]\n", True),
        ("f(1)  # noqa: GPU900\n", True),
        ("f(1)  # noqa: E501, GPU900\n", True),
        ("f(1)  # gpulint: ignore[GPU900] -- why  # noqa: E501\n", True),
        ("# gpulint: ignore[GPU900]\nf(1)\n", True),
        ("x = (f(1),\n  2)  # gpulint: ignore[GPU900]\n", True),
        ("x = (0,  # gpulint: ignore[GPU900]\n  f(2))\n", True),
        ("# gpulint: skip-file\n\nf(1)\n", True),
        ("f(1)  # gpulint: ignore[GPU101]\n", False),
        ("f(1)  # noqa\n", False),
        ("f(1)  # gpulint: ignore\n", False),
        ("# gpulint: ignore[GPU900]\n\nf(1)\n", False),
        ("s = '# gpulint: ignore[GPU900]'; f(1)\n", False),
        ("g(1)  # gpulint: ignore[GPU900]\nf(1)\n", False),
    ],
)
def test_suppressions(text: str, hit: bool) -> None:
    options = Options((Renames("f"),))
    (finding,) = check_source(source(text), options).findings
    assert (finding.suppressed == "inline") is hit
    assert (fix_source(source(text), options).text == text) is hit


LOGS = """
import torch

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "text, messages",
    [
        ("f(1)  # gpulint: ignore[GPU106]\n", ["GPU106 finds nothing here"]),
        ("f(1)  # gpulint: ignore[host-sync-in-loop]\n", ["GPU106 finds nothing"]),
        ("f(1)  # gpulint: ignore[GPU404]\n", []),  # not selected
        (
            "f(1)  # gpulint: ignore[GPU106, gpu998]\n",
            ["GPU106 finds", "no rule `GPU998`"],
        ),
        ("f(1)  # gpulint: ignore\n", ["names no rule"]),
        ("f(1)  # gpulint: ignore[GPU106, GPU002] -- later\n", []),
        ("f(1)  # noqa: GPU106\n", []),
        ("# gpulint: skip-file\nf(1)  # gpulint: ignore\n", []),
        ("s = '# gpulint: ignore'\n", []),
        (LOGS + "        print(loss.item())  # gpulint: ignore[GPU106]\n", []),
        (LOGS + "        # gpulint: ignore[GPU106]\n        print(loss.item())\n", []),
        (LOGS + "        print(x)  # gpulint: ignore[GPU106]\n", ["GPU106 finds"]),
    ],
)
def test_comments_that_switch_nothing_off(text: str, messages: list[str]) -> None:
    rules = select_rules(("GPU002", "GPU003", "GPU106"))
    findings = check_source(source(text), Options(rules)).findings
    active = [f for f in findings if f.suppressed is None]
    assert len(active) == len(messages)
    for finding, message in zip(active, messages, strict=True):
        assert message in finding.message
        assert finding.place.start.column == text.splitlines()[-1].index("#") + 1


def test_a_fix_newer_than_the_projects_torch_is_withheld() -> None:
    class Newer(Renames):
        torch = (2, 4)

    def fix_of(version: tuple[int, int] | None) -> Finding:
        options = Options((Newer("f"),), torch_version=version)
        return check_source(source("f(1)\n"), options).findings[0]

    assert fix_of((2, 4)).fix is not None
    assert fix_of(None).fix is not None
    old = fix_of((1, 13))
    assert old.fix is None
    assert old.fix_withheld == "needs torch 2.4, the project allows 1.13"


def test_a_fix_that_the_text_does_not_allow_names_the_reason() -> None:
    class Inserts(CallsOf):
        def rewrite(self, call: ast.Call, script: Script) -> Rewrite:
            return Rewrite("Insert", (InsertBefore(script.index.statement(call), "x"),))

    (finding,) = check_source(source("if a: f(1)\n"), Options((Inserts("f"),))).findings
    assert finding.fix is None
    assert "shares its line" in (finding.fix_withheld or "")


def test_removal_of_a_line() -> None:
    class Removes(CallsOf):
        def rewrite(self, call: ast.Call, script: Script) -> Rewrite:
            return Rewrite("Remove", (Remove(script.index.statement(call)),))

    fixed = fix_source(source("a = 1\nf(1)  # x\nb = 2\n"), Options((Removes("f"),)))
    assert fixed.text == "a = 1\nb = 2\n"


TROUBLE = select_rules(("GPU0",))


@pytest.mark.parametrize(
    "data, code, message",
    [
        (b"import torch\nx = (1\n", "GPU000", "syntax error: '(' was never closed"),
        (b"x = '\xff'\n", "GPU000", "not utf-8"),
        (b"# Databricks notebook source\nimport torch\n!ls\n", "GPU001", "Databricks"),
        (b"import torch\nx = 1\x00\n", "GPU000", "null byte"),
        (b"x = " + b"(" * 2000 + b")" * 2000, "GPU001", "nested 2000 deep"),
        (b"x = a" + b".f()" * 1000, "GPU001", "links"),
        (b"x = " + b"1 + " * 1000 + b"1", "GPU001", "links"),
        (b"if a: x\n" + b"elif a: x\n" * 400, "GPU001", "links"),
        (b"x = " + b"-" * 5000 + b"1", "GPU001", "not analysed"),
        (b"x = (a\n" + b"  .f()\n" * 300 + b")", "GPU001", "links"),
    ],
)
def test_a_file_that_cannot_be_analysed_is_one_finding(
    data: bytes, code: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.py"
    data = data if b"torch" in data else b"import torch\n" + data
    path.write_bytes(data)
    options = Options((*TROUBLE, Renames("a")))
    (finding,) = check_path(path, options).findings
    assert finding.code == code
    assert message in finding.message
    assert "\n" not in finding.message
    fixed = fix_path(path, options)
    assert getattr(fixed, "text", data.decode("latin-1")) == data.decode("latin-1")
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "path, text, newest",
    [
        ("old.py", "print 'no training'\n", None),
        ("old.py", "import torch\nprint 'of another time'\n", (0, 4)),
        ("old.py", "import tensorflow\nprint 'of Python 2'\n", None),
        ("{{name}}/train.py", "import torch\nx = {{ cookiecutter.x }\n", None),
    ],
)
def test_a_syntax_error_that_hides_no_training_is_none(
    path: str, text: str, newest: tuple[int, int] | None, tmp_path: Path
) -> None:
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    options = Options((*TROUBLE, Renames("print")), newest_torch=newest)
    assert check_path(file, options).findings == ()


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nprint 'of Python 2'\n",
        "import torch\ny = x.cuda(async=True)\n",
        "import tensorflow\nmodel.fit(keras_data\n",
    ],
)
def test_a_syntax_error_that_may_hide_training(text: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(text)
    (finding,) = check_path(file, Options(TROUBLE)).findings
    assert finding.code == "GPU000"
    old = "torch" in text  # which releases for Python 2 may run
    assert (finding.confidence is Confidence.LOW) is old


def test_a_file_that_is_gone_is_one_finding(tmp_path: Path) -> None:
    (finding,) = check_path(tmp_path / "gone.py", Options(TROUBLE)).findings
    assert finding.code == "GPU001"
    assert "cannot be read" in finding.message


def test_trouble_is_silent_when_its_rule_is_not_selected() -> None:
    assert check_source(source("x = (\n"), Options((Renames("f"),))).findings == ()


def test_a_newer_grammar_is_not_a_syntax_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(its: Source) -> None:
        raise SyntaxError("invalid syntax", ("a.py", 1, 1, its.text))

    monkeypatch.setattr(engine, "check_syntax", refuse)
    checked = check_source(source("import torch\n"), Options(TROUBLE))
    (finding,) = checked.findings
    assert (finding.code, "newer Python" in finding.message) == ("GPU001", True)
    for other in ("import json  # of a training in torch\n", "WHEEL = 'torch==2.8'\n"):
        assert check_source(source(other), Options(TROUBLE)).findings == ()


def test_texts_that_no_python_reads_are_syntax_errors() -> None:
    text = 'import torch\nhint = "C:\\new\\users\\uXXXX"\n'
    (finding,) = check_source(source(text), Options(TROUBLE)).findings
    assert (finding.code, finding.message[:12]) == ("GPU000", "syntax error")


@pytest.mark.parametrize(
    "clause, codes",
    [
        ("except IOError, error:", {"torch": ["GPU000"], "tensorflow": []}),
        ("except IOError, OSError:", {"torch": ["GPU001"], "tensorflow": ["GPU001"]}),
    ],
)
def test_two_names_in_an_except_are_of_python_2_or_of_a_newer_one(
    clause: str, codes: dict[str, list[str]]
) -> None:
    for framework, expected in codes.items():
        text = f"import {framework}\ntry:\n    run()\n{clause}\n    pass\n"
        checked = check_source(source(text), Options(TROUBLE))
        found = [f.code for f in checked.findings]
        assert found == ([] if sys.version_info >= (3, 14) else expected)


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "keras", "mindspore"])
def test_syntax_counts_where_a_framework_is_named(framework: str) -> None:
    (finding,) = check_source(
        source(f"import {framework}\nx = (\n"), Options(TROUBLE)
    ).findings
    assert finding.code == "GPU000"


@pytest.mark.parametrize(
    "line, low",
    [
        ("print(x)", True),
        ("loss.backward()", False),
        ("loss = first(x) + second(x) ...", True),
        ("loss =  # the one you like", True),
        ("optimizer.loss =", True),
        ("loss = (  # the one you like", False),
    ],
)
def test_syntax_of_files_that_train_nothing_is_of_low_confidence(
    line: str, low: bool
) -> None:
    text = f"import torch\n{line}\nx = (\n"
    (finding,) = check_source(source(text), Options(TROUBLE)).findings
    assert (finding.confidence is Confidence.LOW) is low


def test_syntax_of_other_files_does_not_count() -> None:
    assert check_source(source('print "old"\n'), Options(TROUBLE)).findings == ()


def test_files_without_the_words_are_not_indexed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Needy(Renames):
        needs = Words("DataLoader")

    def fail(*_: object) -> None:
        raise AssertionError("indexed")

    monkeypatch.setattr(engine, "build_index", fail)
    assert check_source(source("f(1)\n"), Options((Needy("f"),))).findings == ()


def test_screens() -> None:
    needs = Calls("torch.utils.data.DataLoader")
    assert needs.among(Present("import torch\nDataLoader(x)"))
    assert not needs.among(Present("import torch\nLoader(x)"))
    assert not needs.among(Present("DataLoader(x)")), "of another package"
    assert Words("a b", "c").among(Present("c"))
    assert Words("a b", "c").among(Present("b a"))
    assert not Words("a b", "c").among(Present("a"))
    assert Words("a").without("c").among(Present("a b"))
    assert not Words("a").without("b", "c").among(Present("a b"))


@pytest.mark.parametrize(
    "need,present,absent",
    [
        ("<amp>", "from torch.cuda import amp", "from timm.data import sample, clamp"),
        ("<batchnorm>", "nn.BatchNorm2d (64)", "norm_layer=nn.BatchNorm2d,"),
        ("<batchnorm>", "(nn.BatchNorm2d)(64)", "BatchNormAct2d(64)"),
        ("<batchnorm>", "import BatchNorm2d as Norm", "import BatchNorm2d"),
        ("<batchnorm>", "nn.SyncBatchNorm(\n    64)", "# BatchNorm2d"),
        ("<convolution>", "nn.ConvTranspose2d(3, 8, 3)", "create_conv2d(3, 8, 3)"),
        ("<gradient>", "p.grad.zero_()", "requires_grad=True, grad_scaler"),
        ("<load>", "yaml.safe_load(file)", "loader = load_state_dict"),
        ("<log>", "self.log('loss', loss)", "math.log(2) + torch.log(x)"),
        ("<log>", "self.log_dict(\n    losses)", "self.log_step, logger.info('')"),
        ("<matmul>", "scores = q @ k", "@property"),
        ("<move>", "x.to(device)", "x.to(torch.float16), x.to(), x.to(y.dtype)"),
        ("<rotated>", "F.rotate(image, 90)", "rotate_half(x), rotary"),
        ("<softmax>", "F.softmax(x, -1)", "softmax_scale"),
    ],
)
def test_needs_for_more_than_a_word(need: str, present: str, absent: str) -> None:
    assert Words(need).among(Present(present))
    assert not Words(need).among(Present(absent))


def test_a_word_behind_a_blank_begins_a_piece_of_the_text() -> None:
    assert StepLoops("x").among(Present("dl = x"))
    assert not StepLoops("x").among(Present("midl = x"))


@pytest.mark.parametrize(
    "text, multiplies",
    [
        ("q @ k", True),
        ("q@k", True),
        ("(\n    q\n    @ k\n)", True),
        ("f(x) @ w[0]", True),
        ("@register\ndef f(): ...", False),
        ("class A:\n    @property\n    def f(self): ...", False),
    ],
)
def test_a_product_is_looked_for_as_such(text: str, multiplies: bool) -> None:
    assert Words("<matmul>").among(Present(text)) is multiplies


@pytest.mark.parametrize(
    "text, moves",
    [
        ("x.to(device)", True),
        ("x.to(\n    'cuda')", True),
        ("x.to(y)", True),
        ("x.to(device, dtype)", True),
        ("x.to(torch.float32, device=d)", True),
        ("x.to(torch.device('cuda'))", True),
        ("x.to(y.dtype) + z.to(device=y.device)", True),
        ("x.cuda()", True),
        ("x.to(y.dtype)", False),
        ("x.to(dtype=torch.float16)", False),
        ("x.to( torch.bfloat16 )", False),
        ("x.to(memory_format=torch.channels_last)", False),
        ("x.tolist()", False),
    ],
)
def test_a_move_is_looked_for_as_such(text: str, moves: bool) -> None:
    assert Words("<move>").among(Present(text)) is moves


def test_rules_are_found_by_code_prefix_and_name() -> None:
    assert find_rule("gpu000") is find_rule("syntax-error") is all_rules()[0]
    assert find_rule("GPU999") is None
    chosen = select_rules(("GPU0",), ("not-analysed",))
    assert [r.code for r in chosen] == ["GPU000", "GPU002", "GPU003"]
    assert select_rules(("ALL",)) == all_rules()
    exact = select_rules(("gpu001", "GPU00"), ("GPU0", "bare-ignore", "GPU003"))
    assert [r.code for r in exact] == ["GPU000", "GPU001", "GPU002"]
    with pytest.raises(ValueError, match="no rule matches 'GPU7X'"):
        select_rules(("GPU7X",))


def test_effects_grow_in_order() -> None:
    ranks = [e.rank for e in (Effect.EXACT, Effect.RANDOM, Effect.NUMERICS)]
    assert ranks == sorted(ranks)
    assert Severity.NOTE.rank < Severity.WARNING.rank < Severity.ERROR.rank


@pytest.mark.parametrize(
    "data", [b"x = " + b"(" * 2000 + b")" * 2000, b"x = a" + b".f()" * 1000]
)
def test_what_is_not_analysed_and_names_no_framework_loses_nothing(
    data: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(data)
    assert not check_path(path, Options((*TROUBLE, Renames("a")))).findings


def test_a_large_table_without_a_framework_is_told_of_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    confidence = {}
    for head in ("", "import torch\n"):
        path.write_text(head + "#" * (MAX_BYTES + 1))
        (finding,) = check_path(path, Options(TROUBLE)).findings
        confidence[head] = finding.confidence
    assert list(confidence.values()) == [Confidence.LOW, Confidence.HIGH]


def test_findings_are_data() -> None:
    (finding,) = check_source(source("f(1)\n"), Options((CallsOf("f"),))).findings
    assert finding._replace(message="m").message == "m"
    assert finding.fix is None
    assert finding.fix_withheld is None


@pytest.mark.parametrize(
    "text, told",
    [("", engine.LOST), (f"work('{'a' * 600}')\n", "nested too deeply")],
    ids=["plain", "a long line"],
)
def test_an_analysis_without_end_is_our_error(text: str, told: str) -> None:
    class Endless(CallsOf):
        def check(self, script: Script) -> Iterator[Finding]:
            yield from self.check(script)

    told_of = find_rule("GPU001")
    assert told_of is not None
    options = Options((Endless("work"), told_of))
    source = Source(Path("a.py"), f"import torch\nwork(1)\n{text}")
    (finding,) = check_source(source, options).findings
    assert finding.code == "GPU001"
    assert told in finding.message
