"""Edits become text: nested builders, wrapping, insertion, removal, imports."""

from __future__ import annotations

import ast
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpulint.finding import Effect
from gpulint.index import build_index
from gpulint.script import Script
from gpulint.script.rewriting.device_code import device_condition
from gpulint.script.rewriting.edits import (
    CannotFix,
    Edit,
    InsertAfter,
    InsertBefore,
    Remove,
    Replace,
    ReplaceCode,
    Rewrite,
    Wrap,
)
from gpulint.script.rewriting.syntax import (
    add_argument,
    code,
    move_to_spread,
    new_callee,
    set_keywords,
    without_move,
)
from gpulint.source import Source
from gpulint.text_edits import apply_fixes


def script_of(text: str) -> Script:
    source = Source(Path("a.py"), text)
    return Script(source, build_index(source))


def rewritten(script: Script, *edits: Edit, imports: tuple[str, ...] = ()) -> str:
    fix = script.compiler.compile(Rewrite("t", edits, imports), Effect.EXACT)
    return apply_fixes(script.source, [fix])


def call(script: Script, name: str) -> ast.Call:
    return script.index.calls[name][-1]


@pytest.mark.parametrize(
    "before, after",
    [
        ("f()\n", "f(a=1)\n"),
        ("f(x)\n", "f(x, a=1)\n"),
        ("f(x, a=0)\n", "f(x, a=1)\n"),
        ("f(x,)\n", "f(x, a=1,)\n"),
        ("f(x, **k)\n", "f(x, a=1, **k)\n"),
        ("f(**k)\n", "f(a=1, **k)\n"),
        ("f(\n    x,  # why\n    y,\n)\n", "f(\n    x,  # why\n    y,\n    a=1,\n)\n"),
        ("f(\n    x,\n    y\n)\n", "f(\n    x,\n    y,\n    a=1\n)\n"),
        ("f(x,\n  y)\n", "f(x,\n  y,\n  a=1)\n"),
        (
            "if c:\n\tf(\n\t\tx,\n\t\ty,\n\t)\n",
            "if c:\n\tf(\n\t\tx,\n\t\ty,\n\t\ta=1,\n\t)\n",
        ),
        ("f(x)\r\n", "f(x, a=1)\r\n"),
        ("(f)(x)\n", "(f)(x, a=1)\n"),
        ("z = (f(x))\n", "z = (f(x, a=1))\n"),
        ("s = '训练'; f(x)\n", "s = '训练'; f(x, a=1)\n"),
        ("f(\n    x,  # why\n    **k,\n)\n", "f(\n    x,  # why\n    a=1,\n    **k,\n)\n"),
        ("f(a = (0), x=2)\n", "f(a = 1, x=2)\n"),
        ("f((x))\n", "f((x), a=1)\n"),
        ("f(\n    (x)  # a ), b\n)\n", "f(\n    (x), a=1  # a ), b\n)\n"),
        ("f( x for x in y )\n", "f( ( x for x in y ), a=1)\n"),
        ("f((x for x in y))\n", "f((x for x in y), a=1)\n"),
        ("f(*x, r'\\d, )')\n", "f(*x, r'\\d, )', a=1)\n"),
        ("f(x,\r\n  y)\r\n", "f(x,\r\n  y,\r\n  a=1)\r\n"),
        ("f(\n  x,\n  y,  # why\n)\n", "f(\n  x,\n  y,  # why\n  a=1,\n)\n"),
        ("f(\n  x,\n  y  # why\n)\n", "f(\n  x,\n  y,  # why\n  a=1\n)\n"),
        (
            "f(\r\n  x,\r\n  y, # why\r\n)\r\n",
            "f(\r\n  x,\r\n  y, # why\r\n  a=1,\r\n)\r\n",
        ),
        ("f(\n  x,\n  y,\n  # why\n)\n", "f(\n  x,\n  y,\n  a=1,\n  # why\n)\n"),
    ],
)  # fmt: skip
def test_set_keywords(before: str, after: str) -> None:
    script = script_of(before)
    node = script.index.all(ast.Call)[0]
    assert rewritten(script, Replace(node, set_keywords(a="1"))) == after


@pytest.mark.parametrize(
    "before, after",
    [
        ("f(x, a=1)\n", "f(x, **k)\n"),
        ("f(a=1, x=2)\n", "f(x=2, **k)\n"),
        ("f(\n    x,\n    a=1,\n)\n", "f(\n    x,\n    **k,\n)\n"),
        ("f(\n    x,\n    a=1)\n", "f(\n    x,\n    **k)\n"),
        ("f(a=1)\n", "f(**k)\n"),
        ("f(x)\n", "f(x, **k)\n"),
        ("f(x, 1, (2))\n", "f(x, c=(2), **k)\n"),
        ("f(x, a=1, ** old)\n", "f(x, **k)\n"),
        ("f(\n  x,\n  a=1,  # old\n)\n", "f(\n  x,\n  **k,  # old\n)\n"),
        ("f(\n  x,\n  y=2,  # why\n)\n", "f(\n  x,\n  y=2,  # why\n  **k,\n)\n"),
        ("f(\n  x,  # why\n  a=1,  # so\n)\n", "f(\n  x,  # why\n  **k,  # so\n)\n"),
        ("f(\n  x,  # why\n  a=1)\n", "f(\n  x,  # why\n  **k)\n"),
        ("f(x\n  # why\n  , a=1)\n", "f(x\n  # why\n  , **k)\n"),
        ("f(x, a=1  # why\n  , c=3)\n", "f(x, c=3, # why\n  **k)\n"),
        ("f(a=1,  # why\n  x=2)\n", "f(x=2,\n  # why\n  **k)\n"),
        ("f(\n  a=1,  # why\n  x=2,\n)\n", "f(\n  x=2,\n  # why\n  **k,\n)\n"),
        (
            "f(\n  a=1,  # why\n  # of x\n  x=2  # so\n)\n",
            "f(\n  # of x\n  x=2,  # so\n  # why\n  **k\n)\n",
        ),
        (
            "f(\r\n  x,\r\n  a=1,\r\n  # of c\r\n  c=2)\r\n",
            "f(\r\n  x,\r\n  # of c\r\n  c=2,\r\n  **k)\r\n",
        ),
        (
            "f(\n  a=1  # why\n  , x=2,\n  c=3)\n",
            "f(\n  x=2,\n  c=3,\n  # why\n  **k)\n",
        ),
    ],
)
def test_move_to_spread(before: str, after: str) -> None:
    script = script_of(before)
    build = move_to_spread("k", ["a"], ("x", "a", "c"))
    assert rewritten(script, Replace(call(script, "f"), build)) == after


COMMENTS = ["", "", " ", "  # {}\n  ", "\n  ", "\n  # {}\n  ", " # {}\r\n  # {}\n"]


def calls_with_comments(number: int) -> Iterator[str]:
    """Calls of `f` with comments anywhere between their arguments."""
    rng = random.Random(7)
    for _ in range(number):
        names = rng.sample("abcx", rng.randint(1, 4))
        parts = [rng.choice(COMMENTS), *(f"{name}=(1)" for name in names)]
        around = (f"{rng.choice(COMMENTS)},{rng.choice(COMMENTS)}" for _ in names)
        code = "".join(p + a for p, a in zip(parts, ["", *around], strict=True))
        yield f"f({code})".format(*range(code.count("{}")))


def said(code: str) -> set[str]:
    return set(re.findall(r"# \d+", code))


def test_move_to_spread_keeps_all_comments() -> None:
    build = move_to_spread("k", ["a", "b"], ("x",))
    for before in calls_with_comments(400):
        after = build(before)
        call = ast.parse(after, mode="eval").body
        assert isinstance(call, ast.Call)
        assert not {"a", "b"} & {k.arg for k in call.keywords}
        assert call.keywords[-1].arg is None
        assert said(after) == said(before), (before, after)


def test_move_to_spread_may_keep_others() -> None:
    script = script_of("f(x, a=1, **old)\n")
    build = move_to_spread("k", ["a"], ("x", "a"), keep=True)
    edit = Replace(call(script, "f"), build)
    assert rewritten(script, edit) == "f(x, **old, **k)\n"


@pytest.mark.parametrize(
    "before, after",
    [
        ("f()\n", "m.g('cuda', b=2)\n"),
        ("f(True)\n", "m.g('cuda', x=True, b=2)\n"),
        ("(f) (\n    True,\n)\n", "m.g (\n    'cuda', x=True, b=2,\n)\n"),
    ],
)
def test_new_callee(before: str, after: str) -> None:
    script = script_of(before)
    node = script.index.all(ast.Call)[0]
    build = new_callee("m.g", "'cuda'", ("x",), b="2")
    assert rewritten(script, Replace(node, build)) == after


def test_add_argument() -> None:
    script = script_of("f(x)\n")
    assert rewritten(script, Replace(call(script, "f"), add_argument("y"))) == (
        "f(x, y)\n"
    )


def test_builders_see_what_inner_builders_made() -> None:
    script = script_of("outer(inner(x).to(d))\n")
    outer = Replace(call(script, "outer"), set_keywords(b="2"))
    inner = Replace(call(script, "inner"), set_keywords(a="1"))
    assert rewritten(script, outer, inner) == "outer(inner(x, a=1).to(d), b=2)\n"


@pytest.mark.parametrize(
    "before, after",
    [
        ("y = (x[0]).to('cuda')\n", "y = (x[0])\n"),
        ("y = ((x[0]).to('cuda'))\n", "y = (x[0])\n"),
        ("z = (\n    a + b\n).to('cuda')\n", "z = (\n    a + b\n)\n"),
        ("z = (\n    a\n    .to('cuda')\n)\n", "z = (\n    a\n)\n"),
        ("z = (  # f(\n    a.to('cuda'))\n", "z = (  # f(\n    a)\n"),
        ("z = g(a.to('cuda'))\n", "z = g(a)\n"),
        ("z = g (a.to('cuda'))\n", "z = g (a)\n"),
        ("z = not (a.to('cuda'))\n", "z = not (a)\n"),
        ("z = a.to('cuda', torch.half)\n", "z = a.to(torch.half)\n"),
        ("z = a.to('cuda', dtype = d,)\n", "z = a.to(dtype = d)\n"),
        ("z = a.to(d, device='cuda')\n", "z = a.to(d)\n"),
    ],
)
def test_without_move(before: str, after: str) -> None:
    script = script_of(before)
    node = next(
        c
        for c in script.index.all(ast.Call)
        if isinstance(c.func, ast.Attribute) and c.func.attr == "to"
    )
    assert rewritten(script, Replace(node, without_move)) == after


@pytest.mark.parametrize(
    "before, after",
    [
        ("z = (f(1)) + 2\n", "z = g + 2\n"),
        ("z = h((f(1)), 2)\n", "z = h(g, 2)\n"),
        ("z = h(f(1))\n", "z = h(g)\n"),
        ("z = x if (f(1)) else y\n", "z = x if g else y\n"),
    ],
)
def test_code_replaces_parentheses_too(before: str, after: str) -> None:
    script = script_of(before)
    assert rewritten(script, Replace(call(script, "f"), code("g"))) == after


def test_an_expression_of_another_text_is_an_error() -> None:
    node = call(script_of("a = 1; f(x)\n"), "f")
    for text in ("a = 1; g(x)\n", "a = 1;   f(x)\n"):
        with pytest.raises(LookupError, match=r"a.py:1:8: not the text of this Call"):
            rewritten(script_of(text), Replace(node, code("g")))


def test_code_replaces_expressions_and_statements() -> None:
    script = script_of("x = f(1) + 2  # keep\n")
    assert rewritten(script, Replace(call(script, "f"), code("g(3)"))) == (
        "x = g(3) + 2  # keep\n"
    )
    statement = script.index.tree.body[0]
    assert rewritten(script, ReplaceCode(statement, "y = 1\nz = 2")) == (
        "y = 1\nz = 2  # keep\n"
    )


def test_statements_are_inserted_at_their_indentation() -> None:
    script = script_of("def f():\n    # about g\n    g()  # end\n    h()")
    g = script.index.statement(call(script, "g"))
    h = script.index.statement(call(script, "h"))
    text = rewritten(script, InsertBefore(g, "a()\nb()"), InsertAfter(h, "c()"))
    assert text == (
        "def f():\n    # about g\n    a()\n    b()\n    g()  # end\n    h()\n    c()\n"
    )


def test_insertion_stands_before_decorators() -> None:
    script = script_of("@d\ndef f():\n    pass\n")
    assert rewritten(script, InsertBefore(script.index.tree.body[0], "x = 1")) == (
        "x = 1\n@d\ndef f():\n    pass\n"
    )


def test_wrapping_indents_all_but_the_insides_of_strings() -> None:
    script = script_of(
        'if a:\n    x = """one\n  two"""\n\n    # why\n    y = f(\n        1)\n    z = 3\n'
    )
    block = script.index.tree.body[0].body  # type: ignore[attr-defined]
    edits = (
        Wrap((block[0], block[1]), "with c:"),
        Replace(call(script, "f"), set_keywords(b="2")),
    )
    assert rewritten(script, *edits) == (
        'if a:\n    with c:\n        x = """one\n  two"""\n\n        # why\n'
        "        y = f(\n            1, b=2)\n    z = 3\n"
    )


def test_wrapping_goes_as_deep_as_the_lines_around() -> None:
    script = script_of(
        "def f():\n  g()\nfor x in y:\n    z = 3\n    for a in x:\n        b = a\n"
    )
    outer = script.index.tree.body[1]
    plain, inner = outer.body  # type: ignore[attr-defined]
    text = rewritten(script, Wrap((inner,), "with c:"))
    assert text.endswith("    with c:\n        for a in x:\n            b = a\n")
    text = rewritten(script, Wrap((plain,), "with c:"))
    assert "    with c:\n        z = 3\n" in text


def test_lines_of_a_string_are_no_block() -> None:
    script = script_of(
        'add("--rank", help="""of:\n            this process""")\nfor x in y:\n  z = 3\n'
    )
    block = script.index.tree.body[1].body  # type: ignore[attr-defined]
    text = rewritten(script, Wrap((block[0],), "with c:"))
    assert text.endswith("for x in y:\n  with c:\n    z = 3\n")


def test_a_long_string_in_a_changed_call_is_not_indented() -> None:
    script = script_of('if a:\n    x = f("""one\ntwo""")\n')
    block = script.index.tree.body[0].body  # type: ignore[attr-defined]
    change = Replace(call(script, "f"), set_keywords(b="2"))
    with pytest.raises(CannotFix, match="several lines"):
        rewritten(script, Wrap((block[0],), "with c:"), change)


def test_checking_imports_no_libcst() -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from gpulint.engine import Options, check_source;"
        "from gpulint.registry import all_rules; from gpulint.source import Source;"
        "text = 'import torch\\nfor x, y in train_loader:\\n  loss = model(x.cuda())'"
        "'\\n  loss.backward()\\n  optimizer.step()\\n';"
        "found = check_source(Source(Path('a.py'), text), Options(all_rules()));"
        "print(any(f.fix for f in found.findings), 'libcst' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]


def test_showing_new_keywords_imports_no_libcst() -> None:
    bad = Path(__file__).parents[2] / "fixtures/gpu202_unpinned_loader/bad.py"
    code = (
        "import atexit, sys; from gpulint.cli import main;"
        "atexit.register(lambda: print('libcst' in sys.modules, file=sys.stderr));"
        f"main(['check', '--isolated', '--no-cache', '--select', 'GPU202', {str(bad)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pin_memory=" in done.stdout
    assert done.stderr.split() == ["False"]


def test_a_statement_goes_with_its_line() -> None:
    script = script_of("a()\nb()  # gone\r\nc()\n")
    node = script.index.statement(call(script, "b"))
    assert rewritten(script, Remove(node)) == "a()\nc()\n"


@pytest.mark.parametrize(
    "text", ["a(); b()\n", "if a(): b()\n", "b(); a()\n", "while 1: b()\n"]
)
def test_shared_lines_cannot_be_fixed(text: str) -> None:
    script = script_of(text)
    node = script.index.statement(call(script, "b"))
    with pytest.raises(CannotFix, match="shares its line"):
        rewritten(script, InsertBefore(node, "x"), InsertAfter(node, "y"))


def test_edits_that_meet_are_refused() -> None:
    script = script_of("f(g(1))\n")
    with pytest.raises(CannotFix, match="overlap"):
        rewritten(
            script,
            ReplaceCode(call(script, "f"), "x"),
            ReplaceCode(call(script, "g"), "y"),
        )


@pytest.mark.parametrize(
    "before, after",
    [
        ("x = 1\n", "import torch\nx = 1\n"),
        ('"""Doc."""\nx = 1\n', '"""Doc."""\n\nimport torch\nx = 1\n'),
        ('"""Doc."""\n\nimport os\n\nx = 1\n', '"""Doc."""\n\nimport os\nimport torch\n\nx = 1\n'),
        ("#!/usr/bin/env python\n# -*- coding: utf-8 -*-\nx = 1\n",
         "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\nimport torch\nx = 1\n"),
        ("from __future__ import annotations\nx = 1\n",
         "from __future__ import annotations\nimport torch\nx = 1\n"),
        ("import os", "import os\nimport torch\n"),
        ("import os\r\nx = 1\r\n", "import os\r\nimport torch\r\nx = 1\r\n"),
        ("import os\nos.environ['A'] = '1'\nimport sys\n",
         "import os\nimport torch\nos.environ['A'] = '1'\nimport sys\n"),
    ],
)  # fmt: skip
def test_imports_stand_after_the_first_block(before: str, after: str) -> None:
    script = script_of(before)
    assert rewritten(script, imports=("import torch", "import torch")) == after


@pytest.mark.parametrize(
    "text, name, missing",
    [
        ("import torch\n", "torch", ()),
        ("import torch as th\n", "th", ()),
        ("from torch import nn\n", "torch", ("import torch",)),
        (
            "def f():\n  import torch\n",
            "gpulint_torch",
            ("import torch as gpulint_torch",),
        ),
        ("torch = None\n", "gpulint_torch", ("import torch as gpulint_torch",)),
    ],
)
def test_names_of_modules(text: str, name: str, missing: tuple[str, ...]) -> None:
    assert script_of(text).names.torch == (name, missing)


def test_the_runtime_keeps_clear_of_other_names() -> None:
    assert script_of("x = 1\n").names.runtime == (
        "runtime",
        ("from gpulint import runtime",),
    )
    assert script_of("from gpulint import runtime as r\n").names.runtime == ("r", ())
    taken = script_of("runtime = 1\n").names.runtime
    assert taken == (
        "gpulint_runtime",
        ("from gpulint import runtime as gpulint_runtime",),
    )


@pytest.mark.parametrize(
    "text, device, condition",
    [
        ("import torch\nd = torch.device('cuda', 0)\nx.to(d)\n", True, "True"),
        ("import torch\nd = torch.device('cuda' if a else 'cpu')\nx.to(d)\n", True,
         'd.type == "cuda"'),
        ("import torch\nd = 'cuda' if a else 'cpu'\nx.to(d)\n", True,
         'd == "cuda"'),
        ("import torch\nd = 'cuda:1' if a else 'cpu'\nx.to(d)\n", True,
         'd.startswith("cuda")'),
        ("import torch\ndef f(device):\n  x.to(device)\n", True,
         'torch.device(device).type == "cuda"'),
        ("import torch\ny = torch.ones(3)\nx.to(y.device)\n", True, 'y.device.type == "cuda"'),
        ("import torch\nx.cuda()\n", False, "torch.cuda.is_available()"),
    ],
)  # fmt: skip
def test_condition_for_cuda(text: str, device: bool, condition: str) -> None:
    script = script_of(text)
    found, _ = device_condition(script, script.moves[-1].device if device else None)
    assert found == condition
