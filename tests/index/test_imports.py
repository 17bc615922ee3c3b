"""Whether a name is an import's, or that of something nearer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpulint.index import build_index
from gpulint.source import Source


def qualified(text: str) -> list[str | None]:
    """What `name.used` stands for, each time that a file has it."""
    source = Source(Path("train.py"), text)
    index = build_index(source)
    return [
        index.qualified(node)
        for node in index.all(ast.Attribute)
        if node.attr == "used"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    np.used()\n",
        "def f():\n    return [np for np in x], np.used\n",
        "def f(x=np.used, np=None):\n    pass\n",
        "def f(np: np.used):\n    pass\n",
        "@np.used\ndef f(np):\n    pass\n",
        "g = lambda np=np.used: np\n",
        "class A:\n    np = 3\n\n    def f(self):\n        np.used()\n",
        "class A:\n    np: int = 3\n    x = [np.used]\n",
        "try:\n    import x\nexcept ImportError:\n    np = None\nnp.used\n",
        "def f():\n    global np\n    np = 3\n    np.used\n",
        "def f(np):\n    def g():\n        import numpy as np\n        np.used\n",
        "for np in np.used:\n    pass\n",
    ],
)
def test_imports_that_are_meant(text: str) -> None:
    assert qualified(f"import numpy as np\n{text}") == ["numpy.used"]


@pytest.mark.parametrize(
    "text",
    [
        "def f(np):\n    np.used()\n",
        "def f(x):\n    for np in x:\n        np.used()\n",
        "def f(x):\n    np, y = x\n    np.used()\n",
        "def f(x):\n    with x as np:\n        np.used()\n",
        "def f(np):\n    return [np.used for _ in x]\n",
        "def f(np):\n    def g():\n        np.used\n",
        "for np, y in x:\n    np.used()\n",
        "g = lambda np: np.used\n",
    ],
)
def test_names_that_are_bound_anew(text: str) -> None:
    assert qualified(f"import numpy as np\n{text}") == ["np.used"]


def test_part_of_a_package_that_a_function_imports() -> None:
    text = "def f():\n    try:\n        import torch.nn\n    except ImportError:\n"
    text += "        torch = None\n    torch.used()\n"
    assert qualified(f"import torch\n{text}") == ["torch.used"]
    text = "import numpy.linalg as np\ndef f():\n    import numpy as np\n    np.used\n"
    assert qualified(text) == ["numpy.used"]
