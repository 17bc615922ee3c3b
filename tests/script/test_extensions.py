"""Which torch builds the extensions that a program imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules

TRAIN = """\
from importlib import import_module

import torch
from torch.utils.data import DataLoader

model = import_module({name}).Net().cuda()
loader = DataLoader(points, batch_size=8, num_workers=4)
for epoch in range(100):
    for x in loader:
        model(x.cuda()).sum().backward()
"""
SETUP = """\
from setuptools import setup
from torch.utils.cpp_extension import CUDAExtension

setup(ext_modules=[CUDAExtension(name="ops._ext", sources=["src/group.cpp"])])
"""
KEPT = """\
from setuptools import setup
from torch.utils.cpp_extension import CppExtension, CUDAExtension


def extensions():
    extension = CppExtension
    if cuda:
        extension = CUDAExtension
    return [extension("ops._ext", ["src/group.cpp"])]


setup(ext_modules=extensions())
"""
NET = "import ops._ext as _ext\n\n\nclass Net:\n    run = _ext.run\n"
CHECKS = "#define CHECK_CUDA(x) AT_CHECK(x.is_cuda())\n"


@pytest.mark.parametrize(
    "files, name, confidence",
    [
        ({"ops/src/utils.h": CHECKS}, '"net"', Confidence.LOW),
        (
            {"ops/src/utils.h": CHECKS.replace("AT_", "TORCH_")},
            '"net"',
            Confidence.HIGH,
        ),
        ({"src/utils.h": CHECKS}, '"net"', Confidence.HIGH),
        ({"ops/src/utils.h": CHECKS, "ops/setup.py": KEPT}, '"net"', Confidence.LOW),
        (
            {
                "ops/src/utils.h": CHECKS,
                "ops/src/a.h": "#ifndef AT_CHECK\n#define AT_CHECK TORCH_CHECK\n#endif\n",
            },
            '"net"',
            Confidence.HIGH,
        ),
        ({"ops/src/utils.h": CHECKS}, "name", Confidence.HIGH),
        (
            {"ops/src/utils.h": CHECKS, "net.py": "class Net: ..."},
            '"net"',
            Confidence.HIGH,
        ),
        ({"ops/src/a.cu": "#include <THC/THC.h>\n"}, '"net"', Confidence.HIGH),
    ],
    ids=[
        "too old",
        "newer",
        "another folder",
        "under a name",
        "defined",
        "any",
        "not imported",
        "old enough",
    ],
)
def test_workers_cannot_stay_where_an_extension_needs_an_older_torch(
    tmp_path: Path, files: dict[str, str], name: str, confidence: Confidence
) -> None:
    given = {"train.py": TRAIN.format(name=name), "net.py": NET, "ops/setup.py": SETUP}
    for path, text in (given | files).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU203",)), projects=projects)
    (tmp_path / ".git").mkdir()
    (found,) = check_path(tmp_path / "train.py", options).findings
    assert found.confidence is confidence
