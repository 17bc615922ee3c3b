"""The torch that READMEs, installation notes and Dockerfiles tell people to use."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.dependencies import find_torch_version

Version = tuple[int, int]


def found(folder: Path) -> tuple[Version | None, ...] | None:
    """The lowest and the highest release."""
    its = find_torch_version(folder)
    return its and (its.version, its.highest)


def readme(folder: Path, text: str, name: str = "README.md") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "text, release",
    [
        ("The code has been tested on Python 3.6 and PyTorch 1.6.", (1, 6)),
        ("switching to PyTorch(v1.6) for simplicity", (1, 6)),
        ("based on PyTorch (1.5.0) in Python (3.8)", (1, 5)),
        ("PyTorch (version 1.0)", (1, 0)),
        ("torch.__version__  = '1.1.0'", (1, 1)),
        ("PyTorch version: 1.7.1", (1, 7)),
        ("[PyTorch 1.0](https://pytorch.org)", (1, 0)),
        ("[PyTorch](https://pytorch.org) 1.4", (1, 4)),
        ("[PyTorch][1] 1.3", (1, 3)),
        ('<a href="https://pytorch.org">PyTorch</a> 1.4', (1, 4)),
        ("**PyTorch**: 1.7", (1, 7)),
        ("with `torch==1.8.0+cu111 torchvision==0.9.0+cu111`", (1, 8)),
        ("https://img.shields.io/badge/PyTorch-1.4.0-%23EE4C2C.svg", (1, 4)),
        ("Python 2.7 and pytorch 0.3.1.post2", (0, 3)),
        ("PyTorch 2.0 + CUDA 11.7", (2, 0)),
        ("PyTorch 1.7 / torchvision 0.8", (1, 7)),
        ("| torch                          | 1.8.1 |", (1, 8)),
        ("| PyTorch | 2.11.0+cu130 |", (2, 11)),
        ('ARG PYTORCH="1.6.0"', (1, 6)),
        ("1.python3.7.6\n            2.pytorch1.4.0", (1, 4)),
    ],
)
def test_release_that_is_named(tmp_path: Path, text: str, release: Version) -> None:
    assert found(readme(tmp_path, text)) == (release, None)


@pytest.mark.parametrize(
    "text, release",
    [
        ("* PyTorch >= 1.0", (1, 0)),
        ("- [PyTorch >= version 1.1](https://pytorch.org)", (1, 1)),
        ("PyTorch >=version 1.1", (1, 1)),
        ("* PyTorch >= 0.4 (1.2 recommended)", (0, 4)),
        ("[Pytorch](https://pytorch.org/)>=1.8.0, [torchvision](x)>=0.9.0", (1, 8)),
        ("Install [PyTorch](https://pytorch.org) 1.12+", (1, 12)),
        ("[**PyTorch>=1.8**](https://pytorch.org)", (1, 8)),
        ("`torch >= 1.12`", (1, 12)),
        ("PyTorch ≥ 1.9", (1, 9)),
        ("PyTorch &gt;= 1.9", (1, 9)),
        ("badge/pytorch-%3E%3D1.6-blue", (1, 6)),
        ("badge/PyTorch_2.0+-ee4c2c", (2, 0)),
        ("tested on Python 3.6+ and PyTorch 1.2.0+.", (1, 2)),
        ("torch 1.7.0 (or later) are required", (1, 7)),
        ("requires torch version 1.7.0 or later.", (1, 7)),
        ("PyTorch 2.0 or higher", (2, 0)),
        ("PyTorch 1.6 or a newer version", (1, 6)),
        ("PyTorch 1.10 and above", (1, 10)),
        ("At least PyTorch 1.6 is needed", (1, 6)),
        ("PyTorch version at least 1.4", (1, 4)),
        ("Pytorch1.10或以上", (1, 10)),
        ("要求torch版本在1.7.0及以上，如果", (1, 7)),
        ("Pytorch Geometric version>=`2.0.2`, torch version>=`1.10.1`", (1, 10)),
    ],
)
def test_release_and_what_comes_after(
    tmp_path: Path, text: str, release: Version
) -> None:
    assert found(readme(tmp_path, text)) == (release, None)


@pytest.mark.parametrize(
    "text",
    [
        "PyTorch Lightning 1.4",
        "pytorch-lightning>=1.2.0",
        "torch-geometric>=2.0.2 torch_scatter==2.0 torchmetrics==0.6.0",
        "pip install pytorch-lightning==1.0.2",
        "conda install pytorch-cuda=1.7 -c pytorch",
        "PyTorch (CUDA 1.1)",
        "PyTorch, Python 2.7",
        "PyTorch 3D 0.3",
        "torch.hub 1.3, libtorch 1.5",
        "PyTorch is 1.5x faster",
        "| PyTorch | 71.3 | 0.2 |",
        "| PyTorch | 1.25 s |",
        "PyTorch 0.93 accuracy",
        "FROM nvcr.io/nvidia/pytorch:18.03-py3",
        "FROM nvcr.io/nvidia/pytorch:99.01-py3",
        "docker pull name/pytorch-tool:v1.3",
        "pytorch==${PYTORCH_VERSION}",
        'ENV TORCH_CUDA_ARCH_LIST="2.0 2.1"',
        "If your PyTorch < 1.6, use apex",
        "pip install torch torchvision",
        "conda install pytorch torchvision cudatoolkit=12.1 -c pytorch",
        "Run it.",
    ],
)
def test_no_release(tmp_path: Path, text: str) -> None:
    assert found(readme(tmp_path, text)) is None


@pytest.mark.parametrize(
    "text, release",
    [
        ("pip install torch==1.8.0+cu111 torchvision==0.9.0+cu111", (1, 8)),
        ("Run `pip3 install --user 'torch==1.8.0'`.", (1, 8)),
        ("pip install numpy \\\n    torch==1.7", (1, 7)),
        ("conda install pytorch==1.7.1 torchvision cudatoolkit=11 -c pytorch", (1, 7)),
        ("conda create -n x python=3.6 pytorch=0.4.1=py36_cuda9 -c pytorch", (0, 4)),
        ("conda install -c pytorch pytorch::pytorch=1.2", (1, 2)),
        ("uv pip install torch == 1.12.1", (1, 12)),
        ("pip install https://x.org/whl/torch-0.4.1-cp36-cp36m-linux.whl", (0, 4)),
        ("FROM pytorch/pytorch:1.7.1-cuda11.0-cudnn8-devel", (1, 7)),
        ("FROM nvcr.io/nvidia/pytorch:22.03-py3", (1, 12)),
        ("ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:21.04-py3", (1, 9)),
        ("- [PyTorch](http://pytorch.org) install = 1.4.0", (1, 4)),
        ("* torch = 1.5", (1, 5)),
        ("Python >= 3.5.5, PyTorch == 0.3.1, torchvision == 0.2.0", (0, 3)),
        ("* **pytorch 1.2**", (1, 2)),
        ("- [PyTorch](https://pytorch.org/) 1.2", (1, 2)),
        ("1. PyTorch 1.3, torchvision 0.4", (1, 3)),
        ("* Pytorch1.10", (1, 10)),
        ("- pytorch1.6.0+cu101", (1, 6)),
        ("- torch2.0.1+cu118（建议）", (2, 0)),
    ],
)
def test_command_leaves_nothing_newer(
    tmp_path: Path, text: str, release: Version
) -> None:
    assert found(readme(tmp_path, text)) == (release, release)


@pytest.mark.parametrize(
    "text, expected",
    [
        # Several releases: the oldest must run.
        ("PyTorch 1.4.0, 1.5.0 and 1.6.0/1.6.1", ((1, 4), None)),
        ("PyTorch 0.4 or 0.5", ((0, 4), None)),
        ("* PyTorch 0.4 or 1.0", ((0, 4), None)),
        ("* pytorch 0.4.0", ((0, 4), (1, 0))),
        ("torch v0.3.1, torchvision v0.2.0", ((0, 3), (1, 0))),
        ("- PyTorch 1.1.0 (should work for 0.4.0 - 1.2.0)", ((0, 4), (1, 2))),
        ("- PyTorch 1.1.0 (with Python 2.7)", ((1, 1), (1, 1))),
        ("- PyTorch 1.1, tested", ((1, 1), (1, 1))),
        ("- Tested on PyTorch 1.1", ((1, 1), None)),
        ("- PyTorch 1.8 is supported now", ((1, 8), None)),
        ("* PyTorch 1.7 with CUDA 11", ((1, 7), (1, 7))),
        ("* PyTorch v0.4-1.1 (incl. torchvision)", ((0, 4), (1, 1))),
        ("- PyTorch 1.0 to 1.4", ((1, 0), (1, 4))),
        ("```\nPython 3.6\nPyTorch 1.1.0\nPillow 5.3.0\n```", ((1, 1), (1, 1))),
        ("PyTorch 1.1.0\r\nNumPy 1.15.3\r\n", ((1, 1), (1, 1))),
        ("Ran on\n\nPyTorch 1.1.0\n\nand others", ((1, 1), None)),
        ("Python 3.6\nPyTorch 1.1.0 or later", ((1, 1), None)),
        ("Python 3.6\nPyTorch 1.1.0 was used", ((1, 1), None)),
        ("- PyTorch 1.0 to 1.4 or later", ((1, 0), None)),
        ("- PyTorch 1.0, 1.4", ((1, 0), None)),
        ("It ran on PyTorch 1.0-1.4", ((1, 0), None)),
        ("PyTorch 1.6 (0.9 is slow)", ((1, 6), None)),
        ("PyTorch 1.4, and it ran on torch 1.2", ((1, 2), None)),
        ("torch ~=1.8.1", ((1, 8), (1, 8))),
        ("badge/PyTorch-2.x-red", ((2, 0), None)),
        # Both limits are written out.
        ("1. 1.1.0 =< PyTorch < 1.5.0", ((1, 1), (1, 4))),
        ("PyTorch >= 1.1.0, < 1.5.0", ((1, 1), (1, 4))),
        ("pytorch (>=1.4 and <= 1.6)", ((1, 4), (1, 6))),
        ("`torch` version > 1.7 & torch &lt; 2", ((1, 7), None)),
        ("PyTorch ≥ 1.7 and ≤ 1.13", ((1, 7), (1, 13))),
        ("PyTorch >=1.7,<1.9\n\nalso ran with PyTorch 1.10", ((1, 7), (1, 10))),
        # A command beside a sentence that allows more.
        (
            "PyTorch>=1.8, e.g.\n\npip install torch==1.9",
            ((1, 8), None),
        ),
        ("Ran on PyTorch 2.1.\npip install torch==1.9", ((1, 9), (2, 1))),
        ("pip install 'torch<1.9'", (None, (1, 8))),
        ("pip install torch>=1.7.0", ((1, 7), None)),
        # Who installs without a bound has the newest.
        ("Uses PyTorch 2.0.\npip install torch numpy", ((2, 0), None)),
        ("Ran on PyTorch 1.4.\npip install torch==$TORCH", ((1, 4), None)),
        ("pip install torch==1.7.1  # or higher", ((1, 7), None)),
        ("Needs PyTorch 1.4\n\nRecent changes", ((1, 4), None)),
        (
            "PyTorch 1.4\nconda install pytorch cudatoolkit=10.1",
            ((1, 4), (1, 8)),
        ),
    ],
)
def test_several_places(
    tmp_path: Path, text: str, expected: tuple[Version | None, ...]
) -> None:
    assert found(readme(tmp_path, text)) == expected


@pytest.mark.parametrize(
    "name",
    [
        "readme",
        "README.rst",
        "README_CN.md",
        "INSTALL.md",
        "installation.txt",
        "docs/INSTALL.md",
        "docs/installation.rst",
        "SETUP.md",
        "docs/setup_guide.rst",
        "get_started.md",
        "docs/getting-started.rst",
        "Dockerfile",
        "Dockerfile.gpu",
        "docker/Dockerfile",
        "install.sh",
        "setup.sh",
        "env.sh",
        "create_env.sh",
        "environment_setup.sh",
    ],
)
def test_files_that_are_read(tmp_path: Path, name: str) -> None:
    readme(tmp_path, "# Title\n\n    pip install torch==1.5.0\n", name)
    its = find_torch_version(tmp_path)
    assert its is not None
    assert (its.version, its.path, its.row) == ((1, 5), tmp_path / name, 3)


@pytest.mark.parametrize(
    "name",
    [
        "CHANGELOG.md",
        "install.py",
        "setup.txt",
        "notes/README.md",
        "train.sh",
        "envelope.sh",
    ],
)
def test_files_that_are_not_read(tmp_path: Path, name: str) -> None:
    assert found(readme(tmp_path, "PyTorch 1.5", name)) is None


def test_only_the_start_of_a_file_is_read(tmp_path: Path) -> None:
    assert found(readme(tmp_path, f"{' ' * 200_000}PyTorch 1.5")) is None


def test_file_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "README.md").mkdir()
    assert found(tmp_path) is None


def test_declaration_wins(tmp_path: Path) -> None:
    readme(tmp_path / "a" / "src", "PyTorch 1.5")
    (tmp_path / "a" / ".git").mkdir()
    (tmp_path / "a" / "requirements.txt").write_text("torch>=2.1\n")
    assert found(tmp_path / "a" / "src") == ((2, 1), None)


def test_declaration_without_a_bound_leaves_it_to_the_text(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch\n")
    assert found(readme(tmp_path, "PyTorch 1.5")) == ((1, 5), None)


def test_nearest_folder_decides(tmp_path: Path) -> None:
    readme(tmp_path, "PyTorch 1.5")
    (tmp_path / ".git").mkdir()
    readme(tmp_path / "a", "PyTorch 2.1")
    readme(tmp_path / "b" / "c", "How to run it.")
    assert found(tmp_path / "a") == ((2, 1), None)
    assert found(tmp_path / "b" / "c") == ((1, 5), None)


def test_without_a_repository_the_first_text_is_the_last(tmp_path: Path) -> None:
    readme(tmp_path, "PyTorch 1.5")
    readme(tmp_path / "a", "How to run it.")
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "requirements.txt").write_text("numpy\n")
    assert found(tmp_path / "a") is None
    assert found(tmp_path / "b") == ((1, 5), None)
    assert found(tmp_path / "c") is None


@pytest.mark.parametrize(
    "cuda, last",
    [
        ("cudatoolkit=10.0", (1, 4)),
        ("cudatoolkit==11.3", (1, 12)),
        ("cuda92", (1, 7)),
        ("cuda100", (1, 4)),
        ("cudatoolkit=12.1", None),
        ("cudatoolkit", None),
    ],
)
def test_a_cuda_for_which_no_newer_torch_was_built(
    tmp_path: Path, cuda: str, last: Version | None
) -> None:
    text = f"conda install pytorch torchvision {cuda} -c pytorch"
    its = found(readme(tmp_path, text))
    assert (its[1] if its is not None else None) == last


def test_a_quick_start_in_the_sources_of_the_documentation(tmp_path: Path) -> None:
    text = "pip install torch==1.8.0\n"
    assert found(readme(tmp_path, text, "docs/source/quick_start.md")) == (
        (1, 8),
        (1, 8),
    )
