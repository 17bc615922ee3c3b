"""Notebooks: cells as one text, and back into the JSON with every other byte kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from gpulint.cli import main
from gpulint.engine import Options, check_path, check_source, fix_source
from gpulint.finding import Confidence, Effect, Position
from gpulint.notebook import Notebook, decode_notebook
from gpulint.registry import select_rules
from gpulint.source import SourceError, decode, read_source

PATH = Path("/a/train.ipynb")
ALL = Options(select_rules(("ALL",)), frozenset(Effect))
TRAINING = """\
device = torch.device("cuda")
model = torchvision.models.resnet50().to(device)
for x, y in loader:
    loss = criterion(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
Source = str | list[str]


def code(source: Source, **more: Any) -> dict[str, Any]:
    """A code cell with an output in it."""
    outputs = [{"output_type": "stream", "name": "stdout", "text": ["é 1\n"]}]
    cell = {"cell_type": "code", "execution_count": 3, "id": "a1", "metadata": {}}
    return cell | {"outputs": outputs, "source": source} | more


def lines(text: str) -> list[str]:
    """A source as Jupyter writes it: one string a line."""
    return text.splitlines(keepends=True)


def dump(*cells: dict[str, Any], indent: int | None = 1, ascii: bool = False) -> bytes:
    """The bytes of a notebook."""
    book = {"cells": cells, "metadata": {"language_info": {"name": "python"}}}
    book |= {"nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=indent, ensure_ascii=ascii).encode()


def book(*sources: Source) -> Notebook:
    """A notebook with these code cells."""
    return decode_notebook(dump(*map(code, sources)), PATH)


def python(*sources: Source) -> str:
    """The text of all cells."""
    return book(*sources).text


MARKDOWN = {"cell_type": "markdown", "metadata": {}, "source": ["# 标题 `x`\n"]}


def test_cells_are_one_text() -> None:
    data = dump(MARKDOWN, code(["import torch\n", "x = 1"]), code(""), code("y = x\n"))
    read = decode_notebook(data, PATH)
    assert read.text == "# --- cell 2\nimport torch\nx = 1\n# --- cell 4\ny = x\n\n"
    assert [cell.number for cell in read.cells] == [2, 4]
    assert [cell.row for cell in read.cells] == [2, 5]
    assert read.encode(read.text) == data


def test_marker_is_in_no_cell() -> None:
    assert python("# --- cell 1\nx = 1").startswith("# ---- cell 1\n# --- cell 1\n")


MAGICS = [
    ("%matplotlib inline\nx = 1", "# %matplotlib inline\nx = 1"),
    ("%%time\nx = 1", "# %%time\nx = 1"),
    ("\n%%capture out\nx = 1", "\n# %%capture out\nx = 1"),
    ("!ls *.py\n!!ls", "# !ls *.py\n# !!ls"),
    ("if x:\n    !ls\n", "if x:\n    pass  # !ls\n"),
    ("files = !ls *.py", "files = get_ipython()  # files = !ls *.py"),
    ("a = b = %time f(1)", "a = b = get_ipython()  # a = b = %time f(1)"),
    ("torch.nn?\nx??\n?x", "# torch.nn?\n# x??\n# ?x"),
    ("!pip install \\\n    torch \\\n  x\ny = 1", None),
    ("pip install -q torch\ncd ..\nls", "# pip install -q torch\n# cd ..\nls"),
    ("!echo 'it\nx = 1", "# !echo 'it\nx = 1"),
    ('x = """\n!ls\n%d"""\n!ls', 'x = """\n!ls\n%d"""\n# !ls'),
    ("print('%d'\n      % x)\n!ls", "print('%d'\n      % x)\n# !ls"),
    ("  x = 1\n  y = 2", "x = 1\ny = 2"),
    ("time = 3\nls = [1]\npip", "time = 3\nls = [1]\npip"),
]


@pytest.mark.parametrize("text,expected", MAGICS)
def test_magics_are_comments(text: str, expected: str | None) -> None:
    expected = expected or "# !pip install \\\n    # torch \\\n  # x\ny = 1"
    assert book(text).cells[0].python == expected


@pytest.mark.parametrize("text,_", MAGICS)
@pytest.mark.parametrize("form", [str, lines])
def test_changed_cell_keeps_its_magics(text: str, _: object, form: Any) -> None:
    read = book("import torch", form(text))
    new = read.encode(read.text.rstrip("\n") + "\nadded = 'é'\n")
    source = json.loads(new)["cells"][1]["source"]
    assert isinstance(source, str if form is str else list)
    indent = "  " if text.startswith("  ") else ""
    before = text if text.endswith("\n") else text + "\n"
    assert "".join(source) == f"{before}{indent}added = 'é'"


@pytest.mark.parametrize(
    "shell",
    [
        "curl https://sdk.cloud.google.com | bash\nexec zsh -l",
        "# in a terminal\ngcloud compute ssh here \\\n--zone=there",
        "$ pip3 install jupyter  --upgrade",
        "# on one GPU\nCUDA_VISIBLE_DEVICES=0 \\\nMAX_PIXELS=1 \\\nswift sft --rank 8",
        "NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 2 train.py",
        "swift export \\\n    --adapters output",
    ],
)
def test_cells_for_another_terminal_are_no_code(shell: str) -> None:
    read = book("import torch", shell, "x = 1")
    assert [cell.number for cell in read.cells] == [1, 3]
    new = json.loads(read.encode(read.text.replace("x = 1", "x = 2")))["cells"]
    assert ["".join(cell["source"]) for cell in new] == ["import torch", shell, "x = 2"]


@pytest.mark.parametrize(
    "python", ["git = 3", "export (x)", "wget -x", "RANK = 0", "not x --y"]
)
def test_names_that_are_commands_too(python: str) -> None:
    assert len(book("import torch", python).cells) == 2


def test_magic_in_a_block_that_is_indented_further() -> None:
    read = book("for x in y:\n    !ls\n    f(x)")
    text = read.text.replace("for", "with z:\n    for").replace(
        "\n    pass", "\n        pass"
    )
    text = text.replace("\n    f(x)", "\n        f(x)")
    source = json.loads(read.encode(text))["cells"][0]["source"]
    assert source == "with z:\n    for x in y:\n        !ls\n        f(x)"


@pytest.mark.parametrize(
    "source",
    [
        "%%bash\nls",
        "%%writefile train.py\nimport torch",
        "%%timex\n",
        " \n",
        [],
        "%%js\n",
    ],
)
def test_other_cells_are_left_out(source: Source) -> None:
    assert python(source, "x = 1") == "# --- cell 2\nx = 1\n"


@pytest.mark.parametrize(
    "metadata,expected",
    [
        ({}, True),
        ({"kernelspec": {"language": "python"}}, True),
        ({"kernelspec": {"language": "julia"}}, False),
        ({"kernelspec": {"name": "x"}, "language_info": {"name": "R"}}, False),
        ({"language_info": {"name": "ipython"}}, False),
        ({"language": "lua"}, False),
    ],
)
def test_language(metadata: dict[str, Any], expected: bool) -> None:
    data = json.dumps({"cells": [code("x = 1")], "metadata": metadata}).encode()
    assert bool(decode_notebook(data, PATH).text) is expected


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:1f\nsize 12\n"


@pytest.mark.parametrize(
    "data,message",
    [
        (b"x", "no notebook: not JSON (Expecting value)"),
        (b"[]", "no notebook"),
        (b'{"worksheets": {}}', "no notebook"),
        (b'{"cells": [{"cell_type": "code"', "no notebook"),
        (b'{"cells": [1]}', "no notebook"),
        (POINTER, "a pointer of Git LFS"),
        (b'{"cells": []} and more', "no notebook: not JSON (Extra data)"),
        (b'{"cells": [{"cell_type": "code",}],}', "no notebook"),
        (dump(code(["import torch", 1])), "no notebook"),  # type: ignore[list-item]
        (dump(code(None)), "no notebook"),  # type: ignore[arg-type]
        (b'{"cells": "\xff"}', "not utf-8 notebook"),
        (
            dump(code("import torch.optim\nx = (")),
            "syntax error: '(' was never closed (cell 1",
        ),
        (dump(MARKDOWN, code("import keras"), code("x\ny z")), "(cell 3, line 2)"),
    ],
)
def test_what_cannot_be_read(data: bytes, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        decode_notebook(data, PATH)
    assert message in str(caught.value)
    assert caught.value.code == "GPU000"
    assert caught.value.meant is (data in (POINTER, b"x"))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="reads `type` by itself")
def test_a_cell_of_a_newer_python_is_no_syntax_error() -> None:
    data = dump(code("import torch"), code("type Batch = list[int]"))
    with pytest.raises(SourceError, match="needs a newer Python") as caught:
        decode_notebook(data, PATH)
    assert "(cell 2, line 1)" in str(caught.value)
    assert caught.value.code == "GPU001"


def test_an_empty_file_holds_no_cells() -> None:
    assert not decode_notebook(b"\n", PATH).text


def test_notebooks_of_format_3() -> None:
    with pytest.raises(
        SourceError, match="not analysed: a notebook of format 3"
    ) as old:
        decode_notebook(b'{"worksheets": [{"cells": []}], "nbformat": 3}', PATH)
    assert old.value.code == "GPU001"
    lua = b'{"worksheets": [{"cells": []}], "metadata": {"language": "lua"}}'
    assert not decode_notebook(lua, PATH).text


def test_where_it_is_no_json() -> None:
    with pytest.raises(SourceError) as caught:
        decode_notebook(b'{"cells": [],\n<<<<<<< HEAD\n}', PATH)
    assert caught.value.row == 2


@pytest.mark.parametrize(
    "line, meant",
    [
        ("model = ", True),
        ("    D_X = # TODO: make it", True),
        ("x, y[0] =", True),
        ("model = )", False),
        ("model == ", False),
        ("def f(:", False),
        ("words = <all words of the texts>", True),
        ("loss = nn.functional.mse_loss(out, <>)", True),
        ("words = a <> b", False),
        ("print(a =< 3, b > 2", False),
        ("print 'of Python 2'", True),
        ("x = x.cuda(async=True)", True),
    ],
)
def test_what_an_exercise_leaves_to_its_reader(line: str, meant: bool) -> None:
    text = f"import torch\nif x:\n    y = 1\n{line}"
    with pytest.raises(SourceError) as caught:
        decode_notebook(dump(code("loss.backward()"), code(text)), PATH)
    assert caught.value.meant is meant


@pytest.mark.parametrize(
    "other, meant", [("loss.backward()", False), ("scaler.fit(rows)", True)]
)
def test_a_notebook_that_trains_nothing(other: str, meant: bool) -> None:
    with pytest.raises(SourceError) as caught:
        decode_notebook(dump(code("import torch\nfor"), code(other)), PATH)
    assert caught.value.meant is meant


@pytest.mark.parametrize(
    "said, meant",
    [("# TODO: count them", True), ("# The sum of all rows", True), ("", False)],
)
def test_a_cell_that_an_exercise_leaves(said: str, meant: bool) -> None:
    with pytest.raises(SourceError) as caught:
        decode_notebook(
            dump(code(f"import torch.optim\ndef count(x):\n  {said}\n\ncount(3)")), PATH
        )
    assert caught.value.meant is meant


def test_what_is_missing_or_of_no_use_in_the_form() -> None:
    cells = [{"cell_type": "code", "source": "x = 1", "metadata": None}]
    cells += [
        {"cell_type": "code"},
        {"source": "y"},
        {"cell_type": "code", "source": []},
    ]
    for metadata in ([], {"language_info": "x", "kernelspec": None}, None):
        data = json.dumps({"cells": cells, "metadata": metadata}).encode()
        assert decode_notebook(data, PATH).text == "# --- cell 1\nx = 1\n"
    twice = (
        b'{"cells": [], "cells": [{"cell_type": "code", "source": "a", "source": "b"}]}'
    )
    read = decode_notebook(twice, PATH)
    assert read.encode(read.text.replace("b", "c")) == twice.replace(b'"b"', b'"c"')


@pytest.mark.parametrize("text", ["x = '\ud83d'", f"x = {'(' * 300}1{')' * 300}"])
def test_what_is_not_analysed(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.ipynb"
    path.write_bytes(dump(code(f"import torch\n{text}"), ascii=True))
    checked = check_path(path, Options(select_rules(("GPU0",))))
    assert [finding.code for finding in checked.findings] == ["GPU001"]


def test_wrong_cell_is_named_by_its_line_in_the_file() -> None:
    data = dump(code(["import torch\n"]), code(["x\n", "y z\n"]))
    with pytest.raises(SourceError) as caught:
        decode_notebook(data, PATH)
    assert '"y z' in data.decode().splitlines()[caught.value.row - 1]


def test_other_notebooks_may_hold_what_is_no_python() -> None:
    assert python("x y z").endswith("x y z\n")


def test_places() -> None:
    source = ["x = 1\n", 'y = "é\\"\\t" + z\n']
    for form in (source, "".join(source)):
        for ascii in (True, False):
            data = dump(MARKDOWN, code("a"), code(form), ascii=ascii)
            read = decode_notebook(data, PATH)
            at = read.position(read.text.index("z"))
            assert read.in_cell(at) == (3, Position(2, 15))
            row, column = read.in_file(at)
            assert data.decode().splitlines()[row - 1][column - 1 :].startswith("z")
            before = read.position(read.text.index("# --- cell 3"))
            assert read.in_cell(before) == (3, Position(1, 1))


def test_form_of_the_file_is_kept() -> None:
    sources = ["import torch\n", "x = '中'\n", "y = 1"]
    for data in (
        dump(code(sources), MARKDOWN, indent=1),
        dump(code(sources), MARKDOWN, indent=None),
        dump(code("".join(sources)), MARKDOWN, ascii=True),
        dump(code(sources), MARKDOWN).replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + dump(code(sources)) + b"\n",
    ):
        read = decode_notebook(data, PATH)
        new = read.encode(read.text.replace("y = 1", "y = 2"))
        assert new == data.replace(b"y = 1", b"y = 2")
        longer = read.encode(read.text.replace("y = 1", "y = 1\nz = '中'"))
        assert decode_notebook(longer, PATH).text.count("z = '中'") == 1
        assert longer.isascii() is data.isascii()


@pytest.mark.parametrize(
    "source", [["x = 1\ny", " = 2\n", "z"], ["x\r\n", "y = 1"], ["q"]]
)
def test_lines_broken_in_unusual_ways(source: list[str]) -> None:
    read = book(source)
    new = json.loads(read.encode(read.text + "a\n"))["cells"][0]["source"]
    text = "".join(source)
    assert "".join(new) in (f"{text}\na", f"{text}\r\na")


def test_fix_changes_only_sources() -> None:
    loader = "loader = DataLoader(data, batch_size=64, num_workers=2)"
    head = "import torch\nimport torchvision\nfrom torch.utils.data import DataLoader"
    data = dump(
        MARKDOWN,
        code("%matplotlib inline"),
        code(lines(head)),
        code(lines(f"%%time\n{loader}  # 中文")),
        code(lines(TRAINING)),
    )
    fixed = fix_source(decode_notebook(data, PATH), ALL)
    old, new = json.loads(data), json.loads(fixed.source.encode(fixed.text))
    before = [cell.pop("source") for cell in old["cells"]]
    after = [cell.pop("source") for cell in new["cells"]]
    assert old == new
    assert after[:2] == before[:2]
    assert after[3][0] == "%%time\n"
    assert "pin_memory" in after[3][1] or "loader_kwargs" in after[3][1]
    assert "non_blocking" in "".join(after[4])
    again = decode_notebook(fixed.source.encode(fixed.text), PATH)
    assert fix_source(again, ALL).text == again.text


SUM = """\
for epoch in range(9):
    total = 0.0
    for x, y in loader:
        loss = model(x.to(device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(total)
"""


@pytest.mark.parametrize(
    "cells, at",
    [
        (["import torch\n", "x = 1\n", SUM], [0]),
        (["import torch\n", "x = 1\nimport torch\n", SUM], [1]),
        (["import torch\n", SUM, "import torch\n", SUM], [0, 2]),
        (["import torch\n", SUM, "import numpy\n", SUM], [0]),
        (["import torch\n", SUM, "import torch\n"], [0]),
        (["import torch\n", SUM, "import torch._dynamo as dynamo\n", SUM], [0]),
        (["import torch\n", SUM, "from torch import nn\n", SUM], [0, 2]),
    ],
    ids=["one", "behind others", "two parts", "none", "later", "module", "part"],
)
def test_each_part_of_a_notebook_imports_what_it_needs(
    cells: list[str], at: list[int]
) -> None:
    chosen = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    given = book(lines(cells[0] + chosen), *map(lines, cells[1:]))
    options = Options(select_rules(("GPU106",)), frozenset(Effect))
    fixed = fix_source(given, options)
    made = json.loads(fixed.source.encode(fixed.text))["cells"]
    imports = "from gpulint import runtime\n"
    assert [n for n, cell in enumerate(made) if imports in cell["source"]] == at
    again = decode_notebook(fixed.source.encode(fixed.text), PATH)
    assert fix_source(again, options).text == again.text


def test_workers_need_no_main_guard() -> None:
    head = "import torch\nfrom torch.utils.data import DataLoader\n"
    loader = "loader = DataLoader(Images(), 64, num_workers=4, pin_memory=True)\n"
    read = book(head, loader, TRAINING)
    found = {f.code for f in fix_source(read, ALL).remaining}
    script = decode(f"{head}{loader}{TRAINING}".encode(), Path("/a/train.py"))
    assert "GPU210" in {f.code for f in fix_source(script, ALL).remaining}
    assert "GPU210" not in found


INSTALLS = [
    (
        "!pip install -q transformers==4.30.2 datasets",
        {"transformers": ((4, 30), (4, 30))},
    ),
    (
        '!pip install --upgrade \\\n  "transformers[torch]==4.37.2" \\\n  "trl==0.7"',
        {"transformers": ((4, 37), (4, 37))},
    ),
    ("%pip install 'accelerate>=0.30'", {"accelerate": ((0, 30), None)}),
    (
        "if colab:\n    !python -m pip install keras~=2.15.0",
        {"keras": ((2, 15), (2, 15))},
    ),
    ("pip install lightning<2.1 torch==1.13", {"torch": ((1, 13), (1, 13))}),
    ("!pip install transformers", {}),
    ("# pip install torch==1.0 was what it took", {}),
    ("!pip uninstall transformers==4.30", {}),
    ("!pip install a  # transformers==4.30", {}),
    ("!conda install -y pytorch=1.12", {"torch": ((1, 12), (1, 12))}),
]


@pytest.mark.parametrize("text, expected", INSTALLS)
def test_releases_that_a_notebook_installs(text: str, expected: dict[str, Any]) -> None:
    found = {n: (r.lowest, r.highest) for n, r in book(text).installed.items()}
    assert expected.items() <= found.items()
    assert bool(found) is bool(expected)


@pytest.mark.parametrize(
    "pin, said, fixed",
    [
        ("==4.30", "", False),
        ("==4.57", "", True),
        ("", "", True),
        ("==4.30", "transformers", True),
    ],
)
def test_fixes_keep_to_what_it_installs(pin: str, said: str, fixed: bool) -> None:
    call = "args = TrainingArguments('out', evaluation_strategy='epoch')"
    head = "from transformers import TrainingArguments\n"
    read = book(f"!pip install transformers{pin}", head + call)
    options = ALL._replace(said=frozenset([said]))
    assert ("eval_strategy='" in fix_source(read, options).text) is fixed


def test_tagged_cell_is_left_alone() -> None:
    head = "import torch\nimport torchvision\nfrom torch.utils.data import DataLoader"
    loader = "loader = DataLoader(data, batch_size=64, num_workers=2)"
    skip = {"metadata": {"tags": ["gpulint-skip"]}}
    data = dump(code(f"{head}\n{loader}"), code(TRAINING, **skip))
    fixed = fix_source(decode_notebook(data, PATH), ALL)
    assert json.loads(fixed.source.encode(fixed.text))["cells"][1]["source"] == TRAINING
    inside = [f for f in fixed.remaining if fixed.source.is_skipped(f.place.start.row)]
    assert inside
    assert all(finding.suppressed for finding in inside)


def error(name: str, said: str) -> dict[str, Any]:
    """What Jupyter keeps of an exception."""
    return {"output_type": "error", "ename": name, "evalue": said, "traceback": []}


def shown(*text: str) -> dict[str, Any]:
    """An exception's text as a result, as books print it."""
    data = {"text/plain": list(text)}
    return {"output_type": "execute_result", "data": data, "metadata": {}}


DONE = {"output_type": "stream", "name": "stdout", "text": ["0 1.0\n"]}
WARNED = DONE | {"name": "stderr"}


@pytest.mark.parametrize(
    "outputs, raised",
    [
        ([error("ValueError", "sizes differ")], True),
        ([error("RuntimeError", "shape '[2]' is invalid")], True),
        ([shown("a trace\n", "'TypeError: only size-1 arrays'")], True),
        ([WARNED, error("KeyError", "'image'")], True),
        ([DONE, error("ValueError", "x and y must have same first dimension")], False),
        ([error("KeyboardInterrupt", "")], False),
        ([error("RuntimeError", "CUDA out of memory.")], False),
        ([error("RuntimeError", "No CUDA GPUs are available")], False),
        ([error("ModuleNotFoundError", "No module named 'apex'")], False),
        ([error("NameError", "name 'loader' is not defined")], False),
        ([error("FileNotFoundError", "data.csv")], False),
        ([shown("ValueError: of an earlier line\n", "0.5")], False),
        ([shown()], False),
        ([], False),
    ],
)
def test_a_cell_whose_output_is_an_error(
    outputs: list[dict[str, Any]], raised: bool
) -> None:
    cells = [code("import torch, torchvision"), code(TRAINING, outputs=outputs)]
    its = decode_notebook(dump(*cells), PATH)
    assert [cell.raised for cell in its.cells] == [False, raised]
    found = check_source(its, ALL).findings
    waits = {f.confidence for f in found if f.code == "GPU301"}
    assert waits == {Confidence.LOW if raised else Confidence.HIGH}


def test_text_without_one_of_the_cells_is_refused() -> None:
    read = book("x = 1", "y = 2")
    assert read.accepts(read.text.replace("1", "3"))
    assert not read.accepts(read.text.replace("# --- cell 2\n", ""))
    assert not read.accepts(read.text.replace("y = 2", ""))
    assert not book("import torch", "x = 1").accepts(
        "# --- cell 1\nimport torch\n# --- cell 2\nx y\n"
    )


def test_reading_goes_by_the_name(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_bytes(dump(code("x = 1")))
    assert isinstance(read_source(path), Notebook)


# What users and programs see


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A notebook with a finding in its third cell, that names another cell."""
    monkeypatch.chdir(tmp_path)
    head = "import torch\nimport torchvision\nfrom torch.utils.data import DataLoader\n"
    loader = "# 数据 😀\nloader = DataLoader(data, batch_size=64, num_workers=2)"
    cells = code(lines(head)), MARKDOWN, code(lines(loader)), code(lines(TRAINING))
    path = tmp_path / "train.ipynb"
    path.write_bytes(dump(*cells))
    return path


def run(*words: str) -> str:
    """What a command prints."""
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code < 2, result.output
    return result.stdout


def check(form: str, *more: str) -> str:
    """A report on all files."""
    return run("check", "--select", "GPU202,GPU102", "--output-format", form, *more)


@pytest.mark.usefixtures("written")
def test_text_names_cells() -> None:
    assert "train.ipynb:cell 3:2:10: GPU202 [*] " in check("concise")
    assert "\n  cell 3:2:10  GPU202 [*] " in check("grouped")
    full = check("full")
    assert "--> train.ipynb:cell 3:2:10\n" in full
    assert "\n1 | # 数据 😀\n2 | loader = DataLoader(" in full
    assert "---" not in full.replace("---^", "").replace("-->", "").replace("----", "")
    page = check("html")
    assert "cell 3:2:10" in page
    assert '<span class="at">2</span>loader' in page


@pytest.mark.usefixtures("written")
def test_json_has_cells() -> None:
    schema = json.loads(run("config", "schema", "--output"))
    found = json.loads(check("json"))
    jsonschema.validate(found, schema)
    pinned = next(finding for finding in found if finding["code"] == "GPU202")
    assert (pinned["cell"], pinned["location"]) == (3, {"row": 2, "column": 10})
    assert pinned["fix"]["edits"][0]["cell"] == 3
    assert {place["cell"] for place in pinned["related"]} <= {1, 3, 4}


def test_programs_get_the_line_of_the_file(written: Path) -> None:
    raw = written.read_text("utf-8").splitlines()
    row = next(n for n, line in enumerate(raw, 1) if "loader = DataLoader" in line)
    sarif = json.loads(check("sarif"))["runs"][0]["results"]
    result = next(its for its in sarif if its["ruleId"] == "GPU202")
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["endLine"]) == (row, row)
    cut = raw[row - 1][region["startColumn"] - 1 : region["endColumn"] - 1]
    assert cut == "DataLoader"
    assert "fixes" not in result
    assert f"line={row}," in check("github")
    assert f'"begin": {row}' in check("gitlab")
    diagnostics = json.loads(check("rdjson", "--allow", "all"))["diagnostics"]
    assert {its["location"]["range"]["start"]["line"] for its in diagnostics} > {row}
    assert not any("suggestions" in its for its in diagnostics)


def test_fix_and_its_diff(written: Path) -> None:
    before = written.read_bytes()
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@x")
    subprocess.run([*git, "init", "-q"], check=True)
    diff = run("fix", "--select", "GPU2", "--diff", "train.ipynb")
    assert written.read_bytes() == before
    assert "fixed: " in run("fix", "--select", "GPU2", "train.ipynb")
    after = written.read_bytes()
    assert after != before
    written.write_bytes(before)
    subprocess.run(["git", "apply", "-p0"], input=diff.encode(), check=True)
    assert written.read_bytes() == after


@pytest.mark.parametrize(
    "strategy, sure", [("ddp", False), ("ddp_notebook", True), ("auto", True)]
)
def test_no_notebook_launches_processes(strategy: str, sure: bool) -> None:
    module = """
class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 256, 3), nn.ReLU(), nn.Conv2d(256, 256, 3), nn.ReLU()
        )

    def training_step(self, batch, index):
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images).mean((2, 3)), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
"""
    given = book(
        "import lightning as L\nimport torch\nfrom torch import nn",
        module,
        f'trainer = L.Trainer(accelerator="gpu", strategy="{strategy}")\n'
        "trainer.fit(Classifier(), loader)",
    )
    options = Options(select_rules(("GPU351",)))
    (finding,) = check_source(given, options).findings
    assert (finding.confidence is not Confidence.LOW) is sure
