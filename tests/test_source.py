"""Bytes in, the same bytes out: encodings, marks, newlines, columns, atomic writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpulint.index import build_index
from gpulint.script.by_name import chooses_among_its_own, chooses_by_name
from gpulint.source import (
    MAX_BYTES,
    Source,
    SourceError,
    check_syntax,
    decode,
    parse,
    read_source,
    shield,
    write_source,
)

SAMPLES = {
    "plain": b"x = 1\ny = 2\n",
    "crlf": b"x = 1\r\ny = 2\r\n",
    "old mac": b"x = 1\ry = 2\r",
    "bom": b"\xef\xbb\xbfx = '\xc3\xa9'\n",
    "latin-1 cookie": b"# -*- coding: latin-1 -*-\nx = '\xe9'\n",
    "gbk cookie": "# coding: gbk\nx = '训练'\n".encode("gbk"),
    "tabs and form feed": b"if 1:\n\tx = 1\n\x0c\ndef f(): pass\n",
    "no newline at the end": b"x = 1",
    "mixed newlines": b"x = 1\r\ny = 2\nz = 3\r",
    "empty": b"",
}


@pytest.mark.parametrize("data", SAMPLES.values(), ids=SAMPLES.keys())
def test_writing_the_text_back_gives_the_same_bytes(
    data: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(data)
    source = read_source(path)
    assert source.encode(source.text) == data
    write_source(source, source.text)
    assert path.read_bytes() == data


def test_mode_and_link_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "real.py"
    target.write_text("x = 1\n")
    target.chmod(0o755)
    link = tmp_path / "link.py"
    link.symlink_to(target)
    write_source(read_source(link), "x = 2\n")
    assert link.is_symlink()
    assert target.read_text() == "x = 2\n"
    assert target.stat().st_mode & 0o777 == 0o755


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    source = read_source(path)

    def full(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_source(source, "x = 2\n")
    assert path.read_text() == "x = 1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_text_that_the_encoding_cannot_hold_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(SAMPLES["latin-1 cookie"])
    with pytest.raises(UnicodeEncodeError):
        write_source(read_source(path), "x = '训练'\n")
    assert path.read_bytes() == SAMPLES["latin-1 cookie"]


@pytest.mark.parametrize(
    "data, message, code",
    [
        (b"x = '\xff'\n", "not utf-8: byte 0xff", "GPU000"),
        (b"# coding: klingon\n", "encoding not known", "GPU000"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "encoding not known", "GPU000"),
        (b"#" * (MAX_BYTES + 1), "the limit is", "GPU001"),
    ],
)
def test_what_cannot_be_decoded_is_one_line(
    data: bytes, message: str, code: str
) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        decode(data, Path("a.py"))
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["future_fstrings", "future-fstrings"])
def test_the_codec_that_brought_f_strings_to_older_pythons(name: str) -> None:
    data = f"#!/usr/bin/env python\n# -*- coding: {name} -*-\nx = 'é'\n".encode()
    source = decode(data, Path("a.py"))
    assert source.encode(source.text) == data
    check_syntax(source)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        read_source(tmp_path / "gone.py")


@pytest.mark.parametrize(
    "text, deep",
    [
        ("(" * 99 + ")" * 99, False),
        ("(" * 2000 + ")" * 2000, True),
        ("[{(" * 40 + ")}]" * 40, True),
        ("()" * 5000, False),
        ("print('((((')\n" * 10, False),
        ("x = ')('\n" * 300, False),
        ('"' + "[" * 300 + '"', False),
        ("rb'''\n" + "([" * 300 + "\n''' # " + "(" * 300, False),
        ("f'{" + "(" * 300 + ")" * 300 + "}'", True),
        ("f'{{" + "(" * 300 + "{x}'", False),
        ("f'({x[0]:>{width}} '\n" * 300, False),
        ("f'{ {0: {1: 2}}[0]} ('\n" * 300, False),
        ("'it\\'s ' + " + "(" * 300 + ")" * 300 + " + ' ('", True),
    ],
)
def test_shield_against_nesting(text: str, deep: bool) -> None:
    source = Source(Path("a.py"), text)
    if deep:
        with pytest.raises(SourceError, match="deep"):
            shield(source)
    else:
        shield(source)


TEXTS = [
    *("x = 1\n", "x = '\\d'\n", "x = (\n", "x = 1 +\n", "x = '\0'\n", "if x:\ny\n"),
    *("nonlocal x\n", "def f(a):\n    global a\n", "return 1\n", "x = -" + "-" * 3000),
    *("x = a" + ".b()" * 4000 + "\n", "def f(): yield; await x\n", "f(**a, *b)\n"),
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_cheap_look_at_the_syntax_refuses_what_the_parser_refuses(
    text: str,
) -> None:
    source = Source(Path("a.py"), text)
    try:
        parse(source)
    except Exception as error:
        with pytest.raises(type(error)):
            check_syntax(source)
    else:
        check_syntax(source)


def test_columns_count_code_points() -> None:
    source = Source(Path("a.py"), 'x = "训练"; y = 1\nz = 2\n')
    assert source.offset(1, 12) == 8
    assert source.text[source.offset(1, 14) :].startswith("y")
    position = source.position(source.offset(1, 14))
    assert (position.row, position.column) == (1, 11)
    assert source.offset(2, 0) == source.text.index("z")


def test_lines_break_where_python_breaks_them() -> None:
    source = Source(Path("a.py"), "a = 1\x0c\r\nb = '\x85'\nc = '\u2028'\rd = 4")
    assert [source.line(n) for n in range(1, 5)] == [
        "a = 1\x0c",
        "b = '\x85'",
        "c = '\u2028'",
        "d = 4",
    ]
    assert source.newline == "\r\n"
    assert Source(Path("a.py"), "x").newline == "\n"


@pytest.mark.parametrize(
    "line, makes",
    [
        ("globals()['x'] = 1", True),
        ("exec(code)", True),
        ("vars()['x'] = 1", True),
        ("sys.modules[name]", True),
        ("import __main__\n__main__.__dict__.update(x=1)", True),
        ("# %run parts.py", True),
        ("# %pylab", True),
        ("# %load parts.py", True),
        ("# %store", True),
        ("execute(code)", False),
        ("print(x)", False),
    ],
)
def test_files_that_make_names(line: str, makes: bool) -> None:
    source = Source(Path("a.py"), f"{line}\n")
    assert build_index(source).makes_names is makes


@pytest.mark.parametrize(
    "line, others, own",
    [
        ("models.__dict__[name]()", True, True),
        ("import models\nmodels.__dict__[name]()", True, False),
        ("import torchvision\ntorchvision.models.__dict__[name]()", True, False),
        ("import sys\nsys.modules[__name__].__dict__[name]()", True, True),
        ("self.__dict__[name]()", True, False),
        ("globals()[name]()", True, True),
        ("globals()['__name__']", False, True),
        ("fire.Fire(train)", True, True),
        ("getattr(models, name)()", True, False),
        ("getattr(models, 'net')()", False, False),
        ("getattr(sys.modules[__name__], 'net')()", False, True),
        ("eval(name)()", True, True),
        ("model.eval()", False, False),
    ],
)
def test_files_that_choose_by_name(line: str, others: bool, own: bool) -> None:
    index = build_index(Source(Path("a.py"), f"{line}\n"))
    assert chooses_by_name(index) is others
    assert chooses_among_its_own(index) is own
