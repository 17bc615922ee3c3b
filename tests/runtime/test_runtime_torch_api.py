"""The helpers use what torch 2.3 has, and ask before they use anything newer."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpulint import runtime
from gpulint.index import FileIndex, build_index
from gpulint.index.walk import dotted
from gpulint.runtime._torch_api import OLDEST, SINCE
from gpulint.source import Source, read_source

FILES = sorted(Path(runtime.__file__).parent.glob("*.py"))
# Names under which functions hold a part of torch that they may not import.
HELD = {
    "cuda": "torch.cuda",
    "xpu": "torch.xpu",
    "distributed": "torch.distributed",
    "torch": "torch",
}


def meaning(index: FileIndex, node: ast.AST) -> str | None:
    """`torch.nn.Module` for an attribute chain on something of torch."""
    head, dot, rest = (dotted(node) or "").partition(".")
    origin = index.imports.get(head) or (HELD.get(head) if dot else None)
    if origin is None or origin.partition(".")[0] != "torch":
        return None
    return f"{origin}{dot}{rest}"


def used(index: FileIndex) -> Iterator[str]:
    """What a file imports from torch, and all chains on that."""
    for statement in index.all(ast.ImportFrom):
        if (statement.module or "").partition(".")[0] == "torch":
            yield from (f"{statement.module}.{a.name}" for a in statement.names)
    for kind in (ast.Name, ast.Attribute):
        for node in index.all(kind):
            if not isinstance(index.parent(node), ast.Attribute):
                name = meaning(index, node)
                if name is not None:
                    yield name


def asked_for(index: FileIndex) -> Iterator[str]:
    """What a file reads by `getattr(torch.mps, "name", None)`."""
    for call in index.calls_by_name["getattr"]:
        module = meaning(index, call.args[0])
        if module is not None and isinstance(call.args[1], ast.Constant):
            assert len(call.args) == 3, ast.unparse(call)
            yield f"{module}.{call.args[1].value}"


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_every_name_of_torch_is_in_the_table(file: Path) -> None:
    index = build_index(read_source(file))
    names = {*used(index), *asked_for(index)}
    unknown = names - SINCE.keys() - {"torch"}
    assert not unknown, "add them to gpulint/runtime/_torch_api.py, with their release"


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_what_is_newer_is_asked_for(file: Path) -> None:
    plain = set(used(build_index(read_source(file))))
    assert not {name for name in plain if SINCE.get(name, OLDEST) != OLDEST}


@pytest.mark.parametrize("name", sorted(SINCE))
def test_the_table_names_what_exists(name: str) -> None:
    found = importlib.import_module("torch")
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    assert tuple(map(int, SINCE[name].split("."))) >= (2, 3)


def test_the_walk_sees_what_it_should() -> None:
    code = (
        "import torch\nfrom torch import nn as layers\n"
        "def f(x: torch.Size):\n"
        "    cuda = torch.cuda\n"
        "    layers.Bilinear(1); cuda.ipc_collect(); getattr(torch.mps, 'seed', None)\n"
    )
    index = build_index(Source(Path("a.py"), code))
    seen = {"torch.Size", "torch.nn.Bilinear", "torch.cuda.ipc_collect"}
    assert seen <= set(used(index))
    assert set(asked_for(index)) == {"torch.mps.seed"}
