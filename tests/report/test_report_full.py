"""The full format: what stands where, in any width, script and terminal."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from samples import (
    DATASET,
    columns,
    edit,
    entry,
    finding,
    place,
    render,
    source_of,
)

from gpulint.finding import Effect, Finding, Fix, Place, Position, Severity
from gpulint.report.characters import visible
from gpulint.report.frame import crop, wrap
from gpulint.source import Source


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def block(text: str) -> str:
    """A sample without its indentation and first line break."""
    return textwrap.dedent(text).lstrip("\n")


COLUMNS = block(
    """
    GPU101 per-column-transfer [*] 2 columns of `batch_data` are copied to the
    device one by one
     --> a.py:5:31
      |
    4 |     def process(self, batch_data):
    5 |         lat = batch_data[:, 0].to(self.device)
      |                               ^^^^^^^^^^^^^^^^ 1 of 2 copies
    6 |         lon = batch_data[:, 1].to(self.device)
      |                               ---------------- 2 of 2
      |
      = severity: warning · effect: exact · confidence: high
      = because: `process` runs once a step (a.py:4)
    help: Copy `batch_data` once, then slice
      |
    + | from gpulint import runtime
    - |         lat = batch_data[:, 0].to(self.device)
    - |         lon = batch_data[:, 1].to(self.device)
    + |         batch_data = batch_data.to(self.device)
    + |         lat = batch_data[:, 0]
    + |         lon = batch_data[:, 1]
      |

    Found 1 finding in 1 file (1 warning)
    [*] 1 fixable with `gpulint fix`
    """
)


def test_everything() -> None:
    source = source_of(DATASET)
    assert render(entry(source, columns(source))) == COLUMNS


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_newlines_do_not_show(newline: str) -> None:
    source = source_of(DATASET)
    found = columns(source)
    other = source_of(DATASET.replace("\n", newline))
    moved = columns_like(found, other, newline)
    assert render(entry(other, moved)) == COLUMNS


def columns_like(found: Finding, other: Source, newline: str) -> Finding:
    """The same finding in the text with other newlines."""
    lat = "        lat = batch_data[:, 0].to(self.device)"
    new = (
        "        batch_data = batch_data.to(self.device)"
        f"{newline}        lat = batch_data[:, 0]"
    )
    edits = (edit(other, lat, new), edit(other, ".to(self.device)", "", 1))
    assert found.fix is not None
    fix = found.fix._replace(edits=edits)
    return found._replace(fix=fix)


def test_sixty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    source = source_of(DATASET)
    shown = render(entry(source, columns(source)))
    assert all(len(line) <= 60 for line in shown.splitlines())
    expected = COLUMNS.replace(
        "copied to the\ndevice one by one", "\ncopied to the device one by one"
    )
    expected = expected.replace("are \n", "are\n").replace(
        "^ 1 of 2 copies", "^\n  |                               1 of 2 copies"
    )
    assert shown == expected


def test_without_a_known_width_messages_stay_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS")
    source = source_of(DATASET)
    found = finding(place(source, "lat"), message="very slow " * 20)
    assert "very slow " * 19 in render(entry(source, found)).splitlines()[0]


def test_chinese_text_and_tabs_keep_the_carets_in_place() -> None:
    source = source_of('if x:\n\t标签 = "数据"; loss = model(数据)  # 慢\n')
    shown = render(entry(source, finding(place(source, "model(数据)", "慢"))))
    assert (
        block(
            """
             --> a.py:2:20
              |
            1 | if x:
            2 |     标签 = "数据"; loss = model(数据)  # 慢
              |                           ^^^^^^^^^^^ 慢
              |
            """
        )
        in shown
    )


def test_effect_that_is_not_allowed_and_note_without_fix() -> None:
    source = source_of("step(loss)\n\n\nload(x)\n")
    amp = finding(
        place(source, "step"),
        code="GPU301",
        name="missing-amp",
        message="the training loop runs in float32",
        effect=Effect.NUMERICS,
        fix=Fix("Use autocast", Effect.NUMERICS, (edit(source, "step", "amp_step"),)),
    )
    note = finding(
        place(source, "load"),
        code="GPU401",
        name="fixed-small-batch",
        message="the batch size is 8",
        severity=Severity.NOTE,
        effect=Effect.HYPERPARAMS,
        fix_withheld="the learning rate is not known",
    )
    assert render(entry(source, amp, note)) == block(
        """
        GPU301 missing-amp [**] the training loop runs in float32
         --> a.py:1:1
          |
        1 | step(loss)
          | ^^^^
          |
          = severity: warning · effect: numerics → needs --allow numerics · confidence:
            high
        help: Use autocast
          |
        - | step(loss)
        + | amp_step(loss)
          |

        GPU401 fixed-small-batch the batch size is 8
         --> a.py:4:1
          |
        4 | load(x)
          | ^^^^
          |
          = severity: note · confidence: high
          = no fix: the learning rate is not known

        Found 2 findings in 1 file (1 warning, 1 note)
        [**] 1 with `--allow numerics`   1 shown only
        """
    )
    allowed = render(entry(source, amp, allow=(Effect.NUMERICS,)))
    assert "missing-amp [*] the" in allowed
    assert "effect: numerics · confidence" in allowed


def test_summary_of_several_files() -> None:
    one, two = source_of("a\nb\n"), source_of("a\n", Path.cwd() / "b.py")
    fix = Fix("Drop it", Effect.EXACT, (edit(one, "a", "c"),))
    risky = Fix("Drop it", Effect.RANDOM, (edit(one, "b", "c"),))
    riskier = Fix("Drop it", Effect.NUMERICS, (edit(one, "b", "c"),))
    shown = render(
        entry(
            one,
            finding(place(one, "a"), fix=fix, severity=Severity.ERROR),
            finding(place(one, "b"), fix=riskier),
            finding(place(one, "b"), fix=risky),
            finding(place(one, "b"), suppressed="inline"),
        ),
        entry(two, finding(place(two, "a"))),
    )
    assert shown.splitlines()[-3:] == [
        "Found 4 findings in 2 files (1 error, 3 warning)",
        "[*] 1 fixable with `gpulint fix`   [**] 2 more with `--allow random,numerics`",
        "1 shown only",
    ]


def test_nothing_found() -> None:
    source = source_of("x\n")
    silent = finding(place(source, "x"), suppressed="inline")
    assert render(entry(source, silent)) == "All checks passed!\n"
    assert render(entry(source), quiet=True) == ""


def test_long_lines_are_cut_around_the_place() -> None:
    row = "1234567, " * 60
    source = source_of(f"y = [{row}slow(), {row}]\n")
    shown = render(entry(source, finding(place(source, "slow()", "here"))))
    lines = shown.splitlines()
    source_row = next(line for line in lines if line.startswith("1 | "))
    carets = lines[lines.index(source_row) + 1]
    assert len(source_row) == 80
    assert source_row[carets.index("^") :].startswith("slow()")
    assert source_row[4] == source_row[-1] == "…"


def test_long_lines_of_a_fix_are_folded_and_whole() -> None:
    row = "1234567, " * 20
    source = source_of(f"y = [{row}slow()]\n")
    fix = Fix("Speed up", Effect.EXACT, (edit(source, "slow", "fast"),))
    shown = render(entry(source, finding(place(source, "slow"), fix=fix)))
    helped = shown.partition("help:")[2].partition("Found")[0]
    code = "".join(line[4:] for line in helped.splitlines()[2:-2])
    assert code == f"y = [{row}slow()]y = [{row}fast()]"
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_place_over_several_lines_and_places_far_apart() -> None:
    source = source_of("x = 1\ncall(\n  a,\n)\n" + "\n" * 120 + "y = loss.item()\n")
    found = finding(
        place(source, "call(\n  a,\n)"),
        related=(place(source, "loss.item()", "read"), place(source, "x = 1")),
    )
    assert block(
        """
               --> a.py:2:1
                |
              1 | x = 1
                | -----
              2 | call(
                | ^^^^^
            ...
            125 | y = loss.item()
                |     ----------- read
                |
            """
    ) in render(entry(source, found))


def test_line_between_two_places_is_shown() -> None:
    source = source_of("a\n\nb\n")
    shown = render(
        entry(source, finding(place(source, "a"), related=(place(source, "b"),)))
    )
    assert "1 | a\n  | ^\n2 |\n3 | b\n  | -\n" in shown


def test_two_places_on_a_line() -> None:
    source = source_of("f(a), f(b)\n")
    at = place(source, "f", "second", 1)
    shown = render(entry(source, finding(at, related=(place(source, "f", "first"),))))
    assert "1 | f(a), f(b)\n  |       ^ second\n  | - first\n" in shown


def test_place_in_another_file(tmp_path: Path) -> None:
    settings = tmp_path / "settings.py"
    settings.write_text("WORKERS = 0\n")
    source, other = source_of("load(0)\n"), source_of("WORKERS = 0\n", settings)
    gone = source_of("x = 1\n", tmp_path / "gone.py")
    related = (place(other, "0", "set here"), place(gone, "x"))
    shown = render(entry(source, finding(place(source, "load"), related=related)))
    assert (
        block(
            """
             ::: settings.py:1:11
              |
            1 | WORKERS = 0
              |           - set here
              |
             ::: gone.py:1:1
              = severity: warning
            """
        ).rstrip()
        in shown
    )


def test_many_places_are_counted() -> None:
    source = source_of("f(x)\n" * 20)
    related = tuple(place(source, "f", "", n) for n in range(1, 20))
    shown = render(entry(source, finding(place(source, "f"), related=related)))
    assert shown.count("| -") == 8
    assert "= and 11 more places" in shown


def test_file_without_a_text(tmp_path: Path) -> None:
    at = Place(tmp_path / "a.py", Position(1, 1), Position(1, 1))
    outside = Place(Path("/elsewhere/b.py"), Position(3, 7), Position(3, 7))
    shown = render(
        entry(None, finding(at, message="cannot be read")),
        entry(None, finding(outside, fix=Fix("Never", Effect.EXACT, ()))),
    )
    assert "cannot be read\n --> a.py:1:1\n  = severity: warning" in shown
    assert f" --> {outside.path}:3:7\n" in shown


def test_place_behind_the_end() -> None:
    source = source_of("x = (\n")
    at = Place(source.path, Position(9, 1), Position(9, 2))
    shown = render(entry(source, finding(at)))
    assert " --> a.py:9:1\n  = severity" in shown
    at = Place(source.path, Position(2, 1), Position(2, 1))
    assert "1 | x = (\n2 |\n  | ^\n" in render(entry(source, finding(at)))


def test_control_characters_do_not_reach_the_terminal() -> None:
    source = source_of("\x0cx = '\x1b[31m\x7f\u202e'\n")
    found = finding(place(source, "x"), message="bad\x1b[31m\nword")
    shown = render(entry(source, found))
    assert "bad [31m word" in shown
    assert "1 | ␌x = '␛[31m␡\ufffd'\n  |  ^\n" in shown
    assert "\x1b" not in shown


def test_changes_apart_from_each_other() -> None:
    text = "a = 1\n" + "".join(f"x{n} = 0\n" for n in range(6)) + "b = 1\nc = 1\n"
    source = source_of(text)
    whole = edit(source, text, text.replace("a = 1", "a = 2").replace("b =", "d ="))
    fix = Fix("Change both", Effect.EXACT, (whole,))
    apart = Fix(
        "Change both",
        Effect.EXACT,
        (edit(source, "a = 1", "a = 2"), edit(source, "b =", "d =")),
    )
    for chosen in (fix, apart):
        shown = render(entry(source, finding(place(source, "a"), fix=chosen)))
        assert "- | a = 1\n+ | a = 2\n...\n- | b = 1\n+ | d = 1\n  |\n" in shown


def test_line_that_stays_between_two_changes() -> None:
    source = source_of("a\nb\nc\n")
    fix = Fix("Change", Effect.EXACT, (edit(source, "a\nb\nc", "A\nb\nC"),))
    shown = render(entry(source, finding(place(source, "a"), fix=fix)))
    assert "- | a\n+ | A\n  | b\n- | c\n+ | C\n" in shown


class TestColours:
    """Escapes appear on terminals only, and never against the user's wish."""

    @pytest.fixture(autouse=True)
    def _terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm-256color")

    def test_forced(self) -> None:
        source = source_of(DATASET)
        shown = render(entry(source, columns(source)))
        assert "\x1b[1;33mGPU101\x1b[0m" in shown
        assert "\x1b[31m-\x1b[0m" in shown
        assert "\x1b[39m" not in shown

    @pytest.mark.parametrize("name,value", [("NO_COLOR", "1"), ("TERM", "dumb")])
    def test_unwanted(
        self, monkeypatch: pytest.MonkeyPatch, name: str, value: str
    ) -> None:
        monkeypatch.setenv(name, value)
        source = source_of(DATASET)
        assert render(entry(source, columns(source))) == COLUMNS


@pytest.mark.parametrize(
    "text,shift,width,cropped",
    [
        ("abcdef", 0, 6, "abcdef"),
        ("abcdef", 0, 4, "abc…"),
        ("abcdef", 2, 4, "…def"),
        ("abcdefgh", 2, 4, "…de…"),
        ("数据加载", 1, 5, "…据…"),
        ("数据加载", 2, 4, "… …"),
        ("数据加载", 0, 4, "数…"),
    ],
)
def test_crop(text: str, shift: int, width: int, cropped: str) -> None:
    assert crop(text, shift, width) == cropped


@pytest.mark.parametrize(
    "text,width,lines",
    [
        ("one two", None, ["one two"]),
        ("one two", 7, ["one two"]),
        ("one two three", 8, ["one two", "three"]),
        ("数据加载 慢", 6, ["数据加", "载 慢"]),
        ("a 1234567890", 5, ["a", "12345", "67890"]),
    ],
)
def test_wrap(text: str, width: int | None, lines: list[str]) -> None:
    assert wrap(text, width) == lines


def test_visible() -> None:
    assert visible("a\tb\u200d\xa0") == "a    b\u200d\xa0"


def test_code_to_put_in_by_hand_keeps_its_lines() -> None:
    source = source_of("step(loss)\n")
    withheld = "line 1 is not understood\nif not self.on_batches:\n    step(loss)"
    only = finding(place(source, "step"), message="two steps", fix_withheld=withheld)
    assert render(entry(source, only), quiet=True) == block(
        """
        GPU101 per-column-transfer two steps
         --> a.py:1:1
          |
        1 | step(loss)
          | ^^^^
          |
          = severity: warning · confidence: high
          = no fix: line 1 is not understood
        help: By hand
          |
          | if not self.on_batches:
          |     step(loss)
          |

        """
    )
