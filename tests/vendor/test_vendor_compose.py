"""What becomes of the statements of many modules in one file."""

from __future__ import annotations

import ast
import sys
import types
from pathlib import Path

import pytest

from gpulint.vendor.compose import compose
from gpulint.vendor.lazily import indented
from gpulint.vendor.modules import CannotVendor, Runtime
from gpulint.vendor.scopes import bound, module_names

ENTRY = '''\
"""Helpers."""

from __future__ import annotations

{imports}

__all__ = [{names}]
'''


@pytest.fixture
def made(tmp_path: Path) -> object:
    """Composes a file of made-up modules; `helper` of `_a` is public, or all named."""

    def make(
        helpers: tuple[str, ...] = ("helper",), **modules: str
    ) -> tuple[str, types.ModuleType]:
        folder = tmp_path / "runtime"
        folder.mkdir(exist_ok=True)
        origin = {
            name: stem
            for stem, text in modules.items()
            for name in helpers
            if f"def {name}(" in text or f"class {name}" in text
        }
        imports = "\n".join(f"from .{m} import {n}" for n, m in origin.items())
        names = ", ".join(f'"{name}"' for name in origin)
        entry = ENTRY.format(imports=imports, names=names)
        (folder / "__init__.py").write_text(entry, "utf-8")
        for stem, text in modules.items():
            head = f'"""Module {stem}."""\n\nfrom __future__ import annotations\n\n'
            (folder / f"{stem}.py").write_text(head + text, "utf-8")
        text = compose(helpers, Runtime(folder))
        module = types.ModuleType("made")
        exec(compile(text, "made.py", "exec"), vars(module))
        return text, module

    return make


def names_of(text: str) -> set[str]:
    """What a module's own level defines or assigns."""
    return bound(ast.parse(text).body)


def test_private_functions_of_one_name(made) -> None:
    text, module = made(
        _a="from ._b import other\n\n\ndef helper():\n    return _read(), other()\n\n\n"
        "def _read():\n    return 'a'\n",
        _b="def other():\n    return _read()\n\n\ndef _read():\n    return 'b'\n",
    )
    assert module.helper() == ("a", "b")
    assert {"_read", "_read_of_a", "helper", "other"} <= names_of(text)


def test_classes_and_constants_of_one_name(made) -> None:
    text, module = made(
        _a="from ._b import other\n\nLIMITS = (1,)\n\n\nclass Plan:\n    its = LIMITS\n\n\n"
        "def helper():\n    return Plan.its, other()\n",
        _b="LIMITS = (2,)\n\n\nclass Plan:\n    its = LIMITS\n\n\n"
        "def other():\n    return Plan.its\n",
    )
    assert module.helper() == ((1,), (2,))
    assert {"Plan", "PlanOfA", "LIMITS", "LIMITS_OF_A"} <= names_of(text)


def test_a_constant_that_is_defined_alike_is_there_once(made) -> None:
    text, module = made(
        _a="from ._b import other\n\nBYTES = 255\n\n\ndef helper():\n    return BYTES, other()\n",
        _b="BYTES = 255\n\n\ndef other():\n    return BYTES\n",
    )
    assert module.helper() == (255, 255)
    assert text.count("BYTES = 255") == 1


def test_state_that_is_written_alike_stays_apart(made) -> None:
    text, module = made(
        _a="from ._b import other\n\n_known = []\n\n\n"
        "def helper():\n    _known.append(1)\n    return _known, other()\n",
        _b="_known = []\n\n\ndef other():\n    return _known\n",
    )
    assert module.helper() == ([1], [])
    assert text.count("_known = []") == 1
    assert "_known_of_a = []" in text


def test_constants_that_rest_on_different_ones_stay_apart(made) -> None:
    _, module = made(
        _a="from ._b import other\n\n_one = 1\nTWO = _one + 1\n\n\n"
        "def helper():\n    return TWO, other()\n",
        _b="_one = 5\nTWO = _one + 1\n\n\ndef other():\n    return TWO\n",
    )
    assert module.helper() == (2, 6)


def test_local_names_are_left_alone(made) -> None:
    """Parameters, variables and attributes are no uses of a name that clashes."""
    _, module = made(
        _a="from ._b import other\n\n\n"
        "def _read(x=3):\n    return x\n\n\n"
        "class Its:\n    _read = 5\n\n    def get(self):\n        return self._read, _read()\n\n\n"
        "def helper(_reads=_read()):\n"
        "    def inner(_read):\n        return _read\n\n"
        "    squares = [_read * _read for _read in (2,)]\n"
        "    several = [(_read(), y) for y in (1,) if (lambda _read: _read)(y)]\n"
        "    return inner(1), squares, Its().get(), other(_read=4), several, _reads\n",
        _b="def other(_read):\n    return _read, _use()\n\n\n"
        "def _use():\n    return _read()\n\n\ndef _read():\n    return 'b'\n",
    )
    assert module.helper() == (1, [4], (5, 3), (4, "b"), [(3, 1)], 3)


def test_imports_are_merged_and_sorted(made) -> None:
    text, _ = made(
        _a="import sys\nfrom typing import Any\n\nfrom ._b import other\n\n\n"
        "def helper(x: Any = sys):\n    return other(x)\n",
        _b="import os\nimport sys\nfrom typing import NamedTuple\n\n\n"
        "class Two(NamedTuple):\n    x: int\n\n\ndef other(x):\n    return Two, os, sys\n",
    )
    assert text.startswith(
        '"""Helpers.\n"""\n\nfrom __future__ import annotations\n\nimport os\nimport sys\n'
        "from typing import Any, NamedTuple\n\n__all__ = [\n"
    )
    assert text.count("import") == 4


def test_imports_of_one_name_that_mean_different_things(made) -> None:
    _, module = made(
        _a="from copy import copy\n\nfrom ._b import other\n\n\n"
        "def helper():\n    return copy([1]), other()\n",
        _b="import shutil as copy\n\n\ndef other():\n    return copy.copy.__module__\n",
    )
    assert module.helper() == ([1], "shutil")


def test_only_what_is_needed_is_there(made) -> None:
    text, _ = made(
        _a="import os\n\n\ndef helper():\n    return _used()\n\n\n"
        "def _used():\n    return 1\n\n\ndef _idle():\n    return os\n",
    )
    assert names_of(text) == {"__all__", "annotations", "helper", "_used"}


def test_statements_that_act_on_what_is_there_come_along(made) -> None:
    text, module = made(
        _a="from ._b import mark\n\n\ndef helper():\n    return helper.marked\n\n\n"
        "mark(helper)\n\n\ndef _idle():\n    return 1\n\n\nmark(_idle)\n",
        _b="def mark(function):\n    function.marked = True\n",
    )
    assert module.helper() is True
    assert "_idle" not in text


def test_comments_stay_with_their_statements(made) -> None:
    text, _ = made(
        _a="# Why there are two.\n# And no more.\nLIMIT = 2  # of them\n\n\n"
        "# Decorated, too.\n@staticmethod\ndef helper():\n    # inside\n    return LIMIT\n",
    )
    assert "# Why there are two.\n# And no more.\nLIMIT = 2  # of them\n" in text
    assert "# Decorated, too.\n@staticmethod\ndef helper():\n    # inside\n" in text


def test_the_same_helpers_in_any_order_give_the_same_text(made) -> None:
    code = "def {0}():\n    return {0}\n"
    one, _ = made(("x", "y"), _a=code.format("x"), _b=code.format("y"))
    two, _ = made(("y", "x", "y"), _a=code.format("x"), _b=code.format("y"))
    assert one == two


LAZY = '''\
import fakelib
from fakelib import Base

from ._c import other

LIMIT: int = 2
TEXT = """one
two"""


class Rows(Base):
    """Rows
    of a table."""

    def get(self):
        return LIMIT, TEXT, fakelib.VALUE, other()


def _read():
    return "lazy"


def rows():
    return Rows().get(), _read()
'''


@pytest.fixture
def fakelib(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A library that is not the standard one."""
    module = types.ModuleType("fakelib")
    vars(module).update(Base=type("Base", (), {}), VALUE=7)
    monkeypatch.setitem(sys.modules, "fakelib", module)
    return module


def test_what_imports_a_library_is_defined_later(made, fakelib, monkeypatch) -> None:
    text, module = made(
        _a="from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import fakelib\n\n"
        "    from ._b import Rows\n\n    Like = fakelib.Base | int\n\n\n"
        "def helper(x: Like | Rows | None = None):\n"
        "    if x is None:\n        from ._b import rows\n\n        return rows(), _read()\n"
        "    from ._b import Rows\n\n    return Rows\n\n\n"
        "def _read():\n    return 'plain'\n",
        _b=LAZY,
        _c="def other():\n    return _read()\n\n\ndef _read():\n    return 'c'\n",
    )
    monkeypatch.setitem(sys.modules, "made", module)
    assert not {"Rows", "LIMIT"} & vars(module).keys()
    assert module.helper() == (((2, "one\ntwo", 7, "c"), "lazy"), "plain")
    rows = module.helper(1)
    assert rows is module.Rows is module.__getattr__("Rows")
    assert (rows.__qualname__, rows.__doc__) == ("Rows", "Rows\n        of a table.")
    assert (
        "if TYPE_CHECKING:\n    import fakelib\n\n    Like = fakelib.Base | int\n"
        in text
    )


def test_lazy_modules_need_one_another(made, fakelib) -> None:
    _, module = made(
        _a="def helper():\n    from ._d import more\n\n    return more()\n",
        _b=LAZY,
        _c="def other():\n    return 1\n",
        _d="from ._b import Rows\n\nLIMIT: int = 2\n\n\n"
        "class More(Rows):\n    its = LIMIT\n\n\ndef more():\n    return More().get(), More.its\n",
    )
    assert module.helper() == ((2, "one\ntwo", 7, 1), 2)


def test_an_annotation_that_goes_names_what_clashes(made, fakelib) -> None:
    _, module = made(
        _a="class Kind:\n    name = 'a'\n\n\ndef helper():\n    from ._d import more\n\n"
        "    return Kind.name, more()\n",
        _d="import fakelib\n\n\nclass Kind:\n    name = 'd'\n\n\n"
        "FIRST: list[Kind] = [Kind()]\n\n\nclass More(fakelib.Base):\n    its = FIRST\n\n\n"
        "def more():\n    return More.its[0].name\n",
    )
    assert module.helper() == ("a", "d")


def test_an_import_of_what_is_there_anyway_goes(made) -> None:
    text, module = made(
        _a="def helper():\n    from ._b import other as another\n\n    return another()\n",
        _b="def other():\n    from ._c import last\n    return last()\n",
        _c="def last():\n    return 3\n",
    )
    assert module.helper() == 3
    assert "def helper():\n    return other()\n" in text
    assert "def other():\n    return last()\n" in text


@pytest.mark.parametrize(
    "code,reason",
    [
        (
            "from . import _b\n\n\ndef helper():\n    return _b\n",
            "from ._module import",
        ),
        ("import os.path\n\n\ndef helper():\n    return os\n", "a dotted name"),
        (
            (
                "def helper():\n    from ._b import x\n    return x\n\n\n"
                "def y():\n    from ._b import z as x\n    return x\n"
            ),
            "two meanings",
        ),
        (
            "from ._b import x\n\n\ndef helper():\n    return x\n\n\ndef x():\n    return 1\n",
            "`x` has two meanings",
        ),
        (
            "def helper(x):\n    from ._b import x as y\n    return y(x)\n",
            "a variable is called `x`",
        ),
        ("def len():\n    return 1\n\n\ndef helper():\n    return len()\n", None),
        (
            "from ._b import x\n\n_n = 1\n\n\ndef helper():\n    global _n\n    _n = x\n",
            "clashes",
        ),
    ],
)
def test_what_one_file_cannot_hold(made, code: str, reason: str | None) -> None:
    others = "_n = 2\nx = z = _n\n"
    if reason is None:
        made(_a=code, _b=others)
        return
    with pytest.raises(CannotVendor, match=reason):
        made(_a=code, _b=others)


def test_a_helper_that_others_need_as_a_builtin(made) -> None:
    with pytest.raises(CannotVendor, match="name of a builtin: sum"):
        made(
            ("sum", "helper"),
            _a="def sum():\n    return 1\n",
            _b="def helper():\n    return sum([1])\n",
        )


def test_a_private_function_that_others_need_as_a_builtin(made) -> None:
    _, module = made(
        _a="from ._b import other\n\n\ndef sum():\n    return 1\n\n\n"
        "def helper():\n    return sum(), other()\n",
        _b="def other():\n    return sum([2])\n",
    )
    assert module.helper() == (1, 2)


@pytest.mark.parametrize(
    "code,expected",
    [
        ("x = y", "x y"),
        ("def f(a, *b, c=d, **e): return a, b, c, e, g", "d g"),
        ("def f():\n    x = 1\n    return [x for z in x if z]", ""),
        ("def f():\n    global x\n    x = y", "x y"),
        ("def f():\n    import x\n    from y import z as w\n    return x, w, z", "z"),
        ("def f():\n    from ._y import z\n    return z", "z"),
        ("class A(B):\n    c = d\n    def e(self): return c, d", "B c d d"),
        ("f = lambda a, b=c: (a, b, d)", "c d f"),
        ("x = {k: v for k, v in y.items() if z(k)}", "x y z"),
        ("try:\n    a\nexcept B as e:\n    e", "B a e"),
        ("def f(x):\n    try: pass\n    except B as e: return e", "B"),
        (
            (
                "def f(x):\n    match x:\n        case {'k': v, **rest}: return v, rest\n"
                "        case [a, *b]: return a, b\n        case C(d) as e: return d, e, g"
            ),
            "C g",
        ),
        ("def f(x):\n    if any((y := z) for z in x): return y, w", "any w"),
        ("@a\ndef f(x: b) -> c: ...", "a b c"),
    ],
)
def test_names_of_the_modules_level(code: str, expected: str) -> None:
    [statement] = ast.parse(code).body
    assert " ".join(sorted(n.id for n in module_names(statement))) == expected


def test_indentation_leaves_strings_alone() -> None:
    text = 'x = """a\n b"""\n\n\ndef f():\n    """Say\n    it."""\n    return f"""{x}\n"""\n'
    code = f"def outer():\n{indented(text)}\n    return x, f(), f.__doc__\n"
    names: dict[str, object] = {}
    exec(code, names)
    outer = names["outer"]
    assert callable(outer)
    assert outer() == ("a\n b", "a\n b\n", "Say\n        it.")
