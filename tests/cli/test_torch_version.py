"""The lowest torch of a project, from what its files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.dependencies import find_torch_version, find_versions, forget
from gpulint.engine import Options, check_source
from gpulint.finding import Confidence
from gpulint.registry import find_rule
from gpulint.releases import (
    ANY_MINOR,
    TORCH,
    Declared,
    Range,
    allowed,
    for_numpy,
    for_python,
    lower_bound,
)
from gpulint.script.rewriting.fixes import WITHOUT_TORCH
from gpulint.source import Source, read_source

ATTENTION = Path("fixtures/gpu505_handwritten_attention/bad.py")
UNGUARDED = Path("fixtures/gpu210_unguarded_main/bad.py")
SUMS = """
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 8).to(device)
for epoch in range(5):
    total = 0.0
    for x in loader:
        loss = model(x.to(device)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(total)
"""


@pytest.mark.parametrize(
    "text,bound",
    [
        ("2.1", (2, 1)),
        ("2", (2, 0)),
        ("==2.1.*", (2, 1)),
        ("==2.1.0+cu118", (2, 1)),
        ("===2.1.0", (2, 1)),
        ("~=2.1", (2, 1)),
        (">=1.13,<3", (1, 13)),
        ("<3,>=1.13,!=2.0.1", (1, 13)),
        (">=1.13 <3", (1, 13)),
        (">2.0", (2, 0)),
        (">=1.8,>=2.0", (2, 0)),
        ("^2.1", (2, 1)),
        ("~2.1.3", (2, 1)),
        ("=2.1", (2, 1)),
        ("^1.13 || ^2.0", (1, 13)),
        ("<3", None),
        ("!=2.0", None),
        ("*", None),
        ("", None),
        ("new", None),
    ],
)
def test_lower_bound(text: str, bound: tuple[int, int] | None) -> None:
    assert lower_bound(text) == bound


@pytest.mark.parametrize(
    "text,bound",
    [
        ("2.1", (2, 1)),
        ("==2.1.0+cu118", (2, 1)),
        ("==2.1.*", (2, 1)),
        ("==2.*", (2, ANY_MINOR)),
        ("<=2.3", (2, 3)),
        ("<2.3", (2, 2)),
        ("<2.3.1", (2, 3)),
        ("<2", (1, ANY_MINOR)),
        (">=1.8,<2", (1, ANY_MINOR)),
        ("<2.4,<2.1", (2, 0)),
        ("~=1.13", (1, ANY_MINOR)),
        ("~=2.1.0", (2, 1)),
        ("^1.13", (1, ANY_MINOR)),
        ("^0.4.1", (0, 4)),
        ("~1.13.1", (1, 13)),
        ("~1", (1, ANY_MINOR)),
        ("=2.1.2", (2, 1)),
        ("=1", (1, ANY_MINOR)),
        ("~1.13 || ^2.0", (2, ANY_MINOR)),
        ("~1.13 || >=2.0", None),
        (">=1.8", None),
        (">1.8,!=2.0.*", None),
        ("*", None),
    ],
)
def test_highest_release(text: str, bound: tuple[int, int] | None) -> None:
    assert allowed(text).highest == bound


PYPROJECT = "[project]\nname = 'x'\ndependencies = [\n  'numpy',\n  '%s',\n]\n"
POETRY = "[tool.poetry.dependencies]\nnumpy = '*'\ntorch = %s\n"
SETUP_CFG = "[options]\ninstall_requires =\n    numpy\n    %s\n"
LOCK = "[[package]]\nname = 'torch%s\n\n[[package]]\nname = 'triton'\nversion = '3.1'\n"

BUILDS = """\
https://x/pytorch/noarch/pytorch-mutex-1.0-cuda.tar.bz2
https://x/pytorch/linux-64/pytorch-1.11.0-py3.7_cuda11.3_cudnn8.2.0_0.tar.bz2
https://x/pytorch/linux-64/torchaudio-0.11.0-py37_cu113.tar.bz2
"""
PROJECTS = [
    ("pyproject.toml", PYPROJECT % "torch>=2.1", (2, 1), 5),
    ("pyproject.toml", PYPROJECT % "Torch[opt] >= 1.13, < 3", (1, 13), 5),
    ("pyproject.toml", PYPROJECT % 'torch==2.2.*; sys_platform=="linux"', (2, 2), 5),
    ("pyproject.toml", PYPROJECT % "torchvision>=0.15", None, 0),
    ("pyproject.toml", PYPROJECT % "torch-geometric>=2.1", None, 0),
    ("pyproject.toml", PYPROJECT % "torch", None, 0),
    ("pyproject.toml", PYPROJECT % "torch >= what", None, 0),
    (
        "pyproject.toml",
        "[project.optional-dependencies]\ngpu = ['torch>=2.3']\n",
        (2, 3),
        2,
    ),
    (
        "pyproject.toml",
        "[dependency-groups]\ntest = [{include-group = 'a'}, 'torch~=2.4']\n",
        (2, 4),
        2,
    ),
    ("pyproject.toml", POETRY % '"^2.1"', (2, 1), 3),
    ("pyproject.toml", POETRY % '{version = "~1.13", optional = true}', (1, 13), 3),
    ("pyproject.toml", POETRY % '[{version="2.2"}, {version="2.0.1"}]', (2, 0), 3),
    ("pyproject.toml", POETRY % '{git = "https://x"}', None, 0),
    (
        "pyproject.toml",
        POETRY % '{url = "https://x/torch-2.0.1-cp310-linux.whl"}',
        (2, 0),
        3,
    ),
    (
        "pyproject.toml",
        '[tool.poetry.group.dev.dependencies]\ntorch = "^1.9"\n',
        (1, 9),
        2,
    ),
    ("pyproject.toml", "[project\ntorch", None, 0),
    ("pyproject.toml", "project = ['torch>=2']", None, 0),
    ("setup.cfg", SETUP_CFG % "torch>=1.10", (1, 10), 4),
    (
        "setup.cfg",
        "[options.extras_require]\na = torch==1.12.1\n",
        (1, 12),
        2,
    ),
    ("setup.cfg", "torch without a section", None, 0),
    (
        "setup.py",
        "from setuptools import setup\nsetup(\n    install_requires=['torch>=1.7'])\n",
        (1, 7),
        3,
    ),
    ("setup.py", "setup(install_requires=['torch>=%s' % MINIMUM])", None, 0),
    ("setup.py", "def torch(:", None, 0),
    (
        "requirements.txt",
        "# torch==1.0\n-r other.txt\nnumpy\ntorch==2.1.0  # pinned\n",
        (2, 1),
        4,
    ),
    ("requirements.txt", "torch==2.1.0 \\\n    --hash=sha256:00\n", (2, 1), 1),
    ("requirements.txt", "torch>=1.8 --hash=sha256:00\n", (1, 8), 1),
    (
        "requirements.txt",
        "torch @ https://x/torch-2.0.1%2Bcu118-cp310-cp310-linux_x86_64.whl\n",
        (2, 0),
        1,
    ),
    ("requirements.txt", "https://x/torch-1.13.1+cpu-cp310-linux.whl\n", (1, 13), 1),
    ("requirements.txt", "torch @ git+https://x/pytorch\n", None, 0),
    ("requirements.txt", "torch==1.13; python_version<'3.8'\ntorch>=2\n", (1, 13), 1),
    ("requirements-gpu.txt", "\ufefftorch~=2.2\n", (2, 2), 1),
    ("requirements", "numpy\ntorch==1.2\n", (1, 2), 2),
    ("requirements/train.txt", "torch>=2.5\n", (2, 5), 1),
    (
        "environment.yml",
        "dependencies:\n  - pytorch-cuda=12.1\n  - pytorch=2.1.0=py3.10_cuda\n",
        (2, 1),
        3,
    ),
    ("environment.yaml", "dependencies:\n- conda-forge::pytorch>=2.0,<3\n", (2, 0), 2),
    ("environment.yml", "- pip:\n    - 'torch==1.12.1'  # x\n", (1, 12), 2),
    ("environment-gpu.yml", "- pytorch 2.3.*\n- pytorch\n", (2, 3), 1),
    ("environment.yml", "- pytorch\n", None, 0),
    ("scripts/requirements_conda.yaml", "- python=3.8\n- pytorch=1.9\n", (1, 9), 2),
    ("env.yml", "- pytorch=2.2\n", (2, 2), 1),
    ("docker/requirements.txt", "torch==2.1\n", (2, 1), 1),
    ("docker/notes.txt", "torch==2.1\n", None, 0),
    ("configs/train.yaml", "- pytorch=2.2\n", None, 0),
    ("uv.lock", LOCK % "'\nversion = '2.4.1'", (2, 4), 2),
    ("poetry.lock", (LOCK % "'\nversion = '2.3.0'").replace("\n", "\r\n"), (2, 3), 2),
    ("pdm.lock", LOCK % "vision'\nversion = '0.4.1'", None, 0),
    ("uv.lock", LOCK % "'\nversion = 'none'", None, 0),
    (
        "Pipfile.lock",
        '{"default": {\n"torch": {"version": "==2.2.0"}}}',
        (2, 2),
        2,
    ),
    ("Pipfile.lock", '{"torch"', None, 0),
    ("Pipfile.lock", '["torch"]', None, 0),
    ("notes.txt", "torch==2.1", None, 0),
    ("spec-file.txt", "# platform: linux-64\n@EXPLICIT\n" + BUILDS, (1, 11), 4),
    ("conda-linux.txt", "@EXPLICIT\n" + BUILDS, (1, 11), 3),
    ("spec-file.txt", BUILDS, None, 0),
]


@pytest.mark.parametrize("name,text,version,row", PROJECTS)
def test_file(
    tmp_path: Path, name: str, text: str, version: tuple[int, int] | None, row: int
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode("utf-8"))
    expected = Declared(version, path, row) if version else None
    assert find_torch_version(tmp_path) == expected


def write(folder: Path, **files: str) -> None:
    """Files by their stems, with the usual endings."""
    folder.mkdir(exist_ok=True)
    endings = {"requirements": "txt", "pyproject": "toml", "uv": "lock", "setup": "py"}
    for stem, text in files.items():
        (folder / f"{stem}.{endings[stem]}").write_text(text)


def test_lowest_of_all_that_is_declared(tmp_path: Path) -> None:
    write(
        tmp_path,
        requirements="torch==2.4.1\n",
        pyproject=PYPROJECT % "torch>=2.0",
        uv=LOCK % "'\nversion = '1.9.0'",
    )
    found = find_torch_version(tmp_path)
    assert found is not None
    assert (found.version, found.path.name) == ((2, 0), "pyproject.toml")


@pytest.mark.parametrize(
    "requirements, wanted, highest",
    [
        ("torch<2.3\n", None, (2, 2)),
        ("torch~=1.13\n", (1, 13), (1, ANY_MINOR)),
        ("torch~=1.12.1+cu113\n", (1, 12), (1, 12)),
        ("pytorch==1.0.1 cudatoolkit=9.0 -c pytorch\n", (1, 0), (1, 0)),
        ("pytorch == 1.0.1 cudatoolkit=9.0 -c pytorch\n", (1, 0), (1, 0)),
        ("torch==1.13.1\ntorch<=2.1\n", (1, 13), (2, 1)),
        ("torch==1.13.1\ntorch>=1.8\n", (1, 8), None),
        ("https://x/torch-1.13.1+cpu-cp310-linux.whl\n", (1, 13), (1, 13)),
    ],
)
def test_newest_release_that_any_declaration_allows(
    tmp_path: Path,
    requirements: str,
    wanted: tuple[int, int] | None,
    highest: tuple[int, int] | None,
) -> None:
    write(tmp_path, requirements=requirements)
    found = find_torch_version(tmp_path)
    assert found is not None
    assert (found.version, found.highest) == (wanted, highest)


def test_lock_decides_where_nothing_is_declared(tmp_path: Path) -> None:
    write(tmp_path, pyproject=PYPROJECT % "torch", uv=LOCK % "'\nversion = '2.4.1'")
    found = find_torch_version(tmp_path)
    assert found is not None
    assert found.version == (2, 4)


def test_looks_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    write(tmp_path, requirements="torch==1.5\n")
    root = tmp_path / "repository"
    write(root, requirements="torch==2.1\n")
    (root / ".git").mkdir()
    write(root / "part", pyproject="[project]\nname = 'part'\n")
    (root / "part" / "src").mkdir()
    found = find_torch_version(root / "part" / "src")
    assert found is not None
    assert found.version == (2, 1)
    (root / "requirements.txt").unlink()
    other = tmp_path / "other"
    write(other)
    (other / ".git").mkdir()
    assert find_torch_version(other) is None


def test_without_a_repository_the_nearest_project_decides(tmp_path: Path) -> None:
    write(tmp_path, requirements="torch==1.5\n")
    write(tmp_path / "project", setup="setup()")
    write(tmp_path / "project" / "src")
    assert find_torch_version(tmp_path / "project" / "src") is None
    write(tmp_path / "scripts")
    found = find_torch_version(tmp_path / "scripts")
    assert found is not None
    assert found.version == (1, 5)


def test_unreadable_folder_says_nothing(tmp_path: Path) -> None:
    assert find_torch_version(tmp_path / "missing") is None
    (tmp_path / "requirements.txt").mkdir()
    assert find_torch_version(tmp_path) is None


OTHERS = """\
torch==2.1
tensorflow-cpu>=2.16
pytorch-lightning~=2.1
transformers
accelerate==0.30.1 # pinned
keras-tuner==1.4
"""


def test_releases_of_other_packages(tmp_path: Path) -> None:
    write(tmp_path, requirements=OTHERS, pyproject=POETRY % "'^2.0'\nkeras = '<3'")
    write(
        tmp_path / "src", uv=LOCK.replace("torch", "mindspore") % "'\nversion = '2.3'"
    )
    (tmp_path / ".git").mkdir()
    assert find_versions(tmp_path / "src") == {
        "lightning": Range((2, 1), (2, ANY_MINOR)),
        "accelerate": Range((0, 30), (0, 30)),
        "mindspore": Range((2, 3), (2, 3)),
        "tensorflow": Range((2, 16)),
        "keras": Range(None, (2, ANY_MINOR)),
    }


@pytest.mark.parametrize("name", ["requirements.yml", "environment.yaml", "env.yml"])
def test_lists_of_conda_by_any_of_their_names(tmp_path: Path, name: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text("dependencies:\n  - pytorch=1.11\n")
    found = find_torch_version(tmp_path)
    assert found is not None
    assert found.highest == (1, 11)


def test_lists_of_conda_of_any_name(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    path = tmp_path / "linux_cuda10.yml"
    path.write_text("training:\n- pytorch=1.4\n")
    assert find_torch_version(tmp_path) is None
    forget()
    path.write_text("channels:\n- pytorch\ndependencies:\n- pytorch=1.5.1\n")
    found = find_torch_version(tmp_path)
    assert found is not None
    assert found.highest == (1, 5)


@pytest.mark.parametrize("beside, known", [("INSTALL.md", True), ("notes.md", False)])
def test_lists_of_conda_in_one_of_several_projects(
    tmp_path: Path, beside: str, known: bool
) -> None:
    """Its name says nothing: it counts in a folder that says what it is."""
    (tmp_path / ".git").mkdir()
    project = tmp_path / "language"
    (project / "tasks").mkdir(parents=True)
    (project / beside).write_text("How to train.\n")
    listed = "channels:\n- pytorch\ndependencies:\n- pytorch=1.12.1\n"
    (project / "vl.yml").write_text(listed)
    found = find_torch_version(project / "tasks")
    assert (found is not None and found.highest == (1, 12)) is known


def test_commits_of_trainers_are_of_no_known_release(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(
        tmp_path,
        requirements="transformers @ git+https://x/huggingface/transformers.git@0dcb46e7\n"
        "git+https://x/huggingface/accelerate@f9b2e6769b12\n"
        "lightning @ git+https://x/lightning@master\ntorch @ git+https://x/torch@abcdef1\n",
    )
    unknown = Range((0, 0), (0, 0))
    assert find_versions(tmp_path) == {"transformers": unknown, "accelerate": unknown}
    assert find_torch_version(tmp_path) is None


@pytest.mark.parametrize("name", ["", "transformers @ "])
def test_tags_of_trainers_are_releases(tmp_path: Path, name: str) -> None:
    (tmp_path / ".git").mkdir()
    write(
        tmp_path,
        requirements=f"{name}git+https://x/huggingface/transformers.git@v4.36.0\n",
    )
    assert find_versions(tmp_path) == {"transformers": Range((4, 36), (4, 36))}


@pytest.mark.parametrize(
    "name, text, highest",
    [
        ("environment.yml", "dependencies:\n  - python=3.8.13=h1\n", (3, 8)),
        ("README.md", "```\nconda create -n seg python=3.9 -y\n```\n", (3, 9)),
        ("Dockerfile", "FROM python:3.8-slim\nCOPY . .\n", (3, 8)),
        ("Dockerfile", "FROM docker.io/library/python:3.12 AS base\n", None),
        ("Dockerfile", "FROM python:3-slim\n", None),
        ("README.md", "    python3.8 -m venv env\n", (3, 8)),
        ("README.md", "`virtualenv -p python3.9 env` or python3.12 -m venv x", None),
        ("README.md", "```\nvirtualenv --python=/usr/bin/python3.7 env\n```\n", (3, 7)),
        ("setup.sh", "uv venv --seed --python 3.9\n", (3, 9)),
        ("install.md", "pyenv install 3.8.10\npyenv local 3.8.10\n", (3, 8)),
        ("README.md", "Tested with python3.8; python3.8 train.py\n", None),
        ("README.md", "- PyTorch\n- python == 3.7\n", (3, 7)),
        ("README.md", "- python >= 3.7\n", None),
        ("pyproject.toml", '[project]\nrequires-python = ">=3.8,<3.9"\n', (3, 8)),
        ("pyproject.toml", '[project]\nrequires-python = ">=3.8"\n', None),
        ("setup.cfg", "[options]\npython_requires = ==3.9.*\n", (3, 9)),
        ("setup.py", 'setup(python_requires="==3.9.*")\n', (3, 9)),
        ("requirements.txt", "python-dateutil==2.8\n", None),
    ],
)
def test_a_python_that_the_runtime_does_not_run_on(
    tmp_path: Path, name: str, text: str, highest: tuple[int, int] | None
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    found = find_versions(tmp_path).get("python", Range())
    assert highest == (found.highest if found.highest != (3, 12) else None)
    rules = (find_rule("GPU106"),)
    options = Options(rules, packages=tuple(find_versions(tmp_path).items()))
    (result,) = check_source(Source(tmp_path / "train.py", SUMS), options).findings
    old = highest is not None
    its = ".".join(map(str, highest or ()))
    why = f"needs Python 3.10, the project has {its}" if old else None
    assert (result.fix is None, result.fix_withheld) == (old, why)


@pytest.mark.parametrize(
    "guard, fixed",
    [
        ("try:\n    import torch\nexcept ImportError:\n    torch = None\n", False),
        ("try:\n    import torch\nexcept:\n    print('no torch')\n", False),
        ("try:\n    import torch, json\nexcept Exception:\n    pass\n", False),
        (
            "import torch\ntry:\n    import torch._dynamo\nexcept ImportError:\n    1\n",
            True,
        ),
        (
            "try:\n    import torch\nexcept ImportError:\n    import keras as torch\n",
            True,
        ),
        ("try:\n    import torch\nexcept ImportError:\n    raise SystemExit\n", True),
        ("try:\n    import torch\nexcept ImportError:\n    exit(1)\n", True),
        ("try:\n    import torch\nexcept OSError:\n    pass\n", True),
        ("import torch\ntry:\n    import apex\nexcept ImportError:\n    pass\n", True),
    ],
)
def test_files_that_are_read_without_torch(guard: str, fixed: bool) -> None:
    options = Options((find_rule("GPU106"),))
    text = guard + SUMS.replace("import torch\n", "")
    (result,) = check_source(Source(Path("a.py"), text), options).findings
    assert (result.fix is not None) is fixed
    assert (result.fix_withheld == WITHOUT_TORCH) is not fixed


@pytest.mark.parametrize(
    "python, torch, found",
    [
        ((3, 7), Range(), (1, 13)),
        ((3, 9), Range((1, 8)), (2, 8)),
        ((3, 9), Range((1, 8), (1, 9)), (1, 9)),
        ((3, 8), Range((2, 6)), None),
        ((3, 12), Range((1, 8)), None),
        (None, Range((1, 8)), None),
    ],
)
def test_the_last_torch_of_a_python(
    python: tuple[int, int] | None, torch: Range, found: tuple[int, int] | None
) -> None:
    """An old Python is a bound on torch, unless the two do not go together."""
    its = for_python(torch, Range(None, python))
    assert (its.lowest, its.highest) == (torch.lowest, found)


@pytest.mark.parametrize(
    "numpy, python, found",
    [
        ((1, 21), Range(), (3, 10)),
        ((1, 14), Range(), (3, 7)),
        ((1, 26), Range((3, 9)), (3, 12)),
        ((1, 26), Range(None, (3, 8)), (3, 8)),
        ((1, 16), Range((3, 9)), None),
        ((2, 3), Range(), None),
        (None, Range((3, 9)), None),
    ],
)
def test_the_last_python_of_a_numpy(
    numpy: tuple[int, int] | None, python: Range, found: tuple[int, int] | None
) -> None:
    """As above, of the Python that an old NumPy was built for."""
    its = for_numpy(python, Range(None, numpy))
    assert (its.lowest, its.highest) == (python.lowest, found)


def test_a_pinned_numpy_bounds_the_torch(tmp_path: Path) -> None:
    """Unless somebody says which Python it is."""
    rules = (find_rule("GPU505"),)
    source = Source(tmp_path / "model.py", ATTENTION.read_text(encoding="utf-8"))
    old = Options(rules, packages=(("numpy", Range((1, 16), (1, 16))),))
    assert not check_source(source, old).findings
    said = (*old.packages, ("python", Range((3, 12), (3, 12))))
    new = old._replace(packages=said, said=frozenset({"python"}))
    assert len(check_source(source, new).findings) == 1


@pytest.mark.parametrize(
    "package, release, confidence",
    [
        ("numpy", (1, 21), Confidence.LOW),
        ("python", (3, 13), Confidence.LOW),
        ("numpy", (2, 3), Confidence.HIGH),
        ("python", (3, 14), Confidence.HIGH),
    ],
)
def test_a_python_that_forks_its_workers(
    package: str, release: tuple[int, int], confidence: Confidence
) -> None:
    source = read_source(UNGUARDED)
    its = Options((find_rule("GPU210"),), packages=((package, Range(None, release)),))
    assert [f.confidence for f in check_source(source, its).findings] == [confidence]


def test_advice_that_no_torch_of_the_python_can_follow(tmp_path: Path) -> None:
    rules = (find_rule("GPU505"),)
    source = Source(tmp_path / "model.py", ATTENTION.read_text(encoding="utf-8"))
    old = Options(rules, packages=(("python", Range(None, (3, 7))),))
    assert len(check_source(source, Options(rules)).findings) == 1
    assert not check_source(source, old).findings
    said = old._replace(newest_torch=(2, 4), said=frozenset({TORCH}))
    assert len(check_source(source, said).findings) == 1


@pytest.mark.parametrize("name", ["tf-nightly", "tf_nightly-gpu", "intel-tensorflow"])
def test_other_names_of_tensorflow(tmp_path: Path, name: str) -> None:
    write(tmp_path, requirements=f"dm-acme==0.1.7\n{name}==2.3.0.dev20200616\n")
    assert find_versions(tmp_path) == {"tensorflow": Range((2, 3), (2, 3))}


def test_a_nearer_file_without_a_bound_ends_the_search(tmp_path: Path) -> None:
    """Who installs what lies beside the script gets the newest release."""
    write(tmp_path, requirements="tensorflow==1.15\ntorch==1.4\nkeras==2.2\n")
    write(tmp_path / "tf2", requirements="tensorflow\ntorch\n")
    (tmp_path / ".git").mkdir()
    assert find_versions(tmp_path) == {
        "tensorflow": Range((1, 15), (1, 15)),
        "keras": Range((2, 2), (2, 2)),
    }
    assert find_versions(tmp_path / "tf2") == {"keras": Range((2, 2), (2, 2))}
    assert find_torch_version(tmp_path / "tf2") is None


def test_pinned_commands_of_a_readme_count_where_nothing_declares_a_package(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text(
        "```\npip3 install pytorch-lightning==1.7.2\npip install 'transformers>=4'\n"
        "pip install accelerate==0.20 tensorflow\n```\nWe used keras==2.3.\n"
        "    pip install mindspore-gpu==2.3\n    pip install mindspore==1.9.0\n"
        "    pip install tensorflow==2.3\n"
    )
    (tmp_path / "src").mkdir()
    assert find_versions(tmp_path / "src") == {
        "lightning": Range((1, 7), (1, 7)),
        "accelerate": Range((0, 20), (0, 20)),
        "mindspore": Range((1, 9), (2, 3)),  # tensorflow is the newest for some
    }
    write(tmp_path, requirements="accelerate\nmindspore\n")
    forget()
    assert find_versions(tmp_path / "src") == {
        "lightning": Range((1, 7), (1, 7)),
        "accelerate": Range((0, 20)),  # who follows the README has it
        "mindspore": Range((1, 9)),
    }


def test_blocks_of_pins_in_a_readme_count_as_commands(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "To fine-tune:\n```bash\naccelerate==0.17.1\ntorch==1.13.1+cu117\n"
        "transformers[torch]==4.25.1\n```\n```python\nlightning==1.5\nrun()\n```\n"
    )
    assert find_versions(tmp_path) == {
        "accelerate": Range((0, 17), (0, 17)),
        "transformers": Range((4, 25), (4, 25)),
    }


def test_a_bound_counts_beside_names_without_one(tmp_path: Path) -> None:
    lock = LOCK % "'\nversion = '2.3'"
    write(tmp_path, requirements="torch\n", uv=lock)
    found = find_torch_version(tmp_path)
    assert found is not None
    assert found.version == (2, 3)


@pytest.mark.parametrize(
    "image, release",
    [
        ("22.12-tf2-py3", (2, 10)),
        ("20.06-tf2-py3", (2, 2)),
        ("21.10-tf1-py3", None),
        ("99.01-tf2-py3", None),
    ],
)
def test_images_of_tensorflow(
    tmp_path: Path, image: str, release: tuple[int, int] | None
) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM nvcr.io/nvidia/tensorflow:{image}\n")
    wanted = {} if release is None else {"tensorflow": Range(release, release)}
    assert find_versions(tmp_path) == wanted


@pytest.mark.parametrize(
    "declared, prose, lowest, highest",
    [
        ("torchvision==0.9.1", "", (1, 8), (1, 8)),
        ("torchvision==0.14.0", "", (1, 13), (1, 13)),
        ("torchvision==0.15.2", "", (2, 0), (2, 0)),
        ("torchvision==0.4.2", "", (1, 2), (1, 3)),
        ("torchvision==0.3", "", (1, 1), (1, 1)),
        ("torch==2.2\ntorchvision==0.3", "", (2, 2), (2, 2)),
        ("torch==2.2\ntorchvision==0.3", "* PyTorch v1.1.0", (1, 1), (1, 1)),
        ("torch==2.2\ntorchvision==0.3", "* PyTorch v2.2.0", (2, 2), (2, 2)),
        ("torchaudio==0.13.1", "", (1, 13), (1, 13)),
        ("torchaudio==2.4.0", "", (2, 4), (2, 4)),
        ("timm==0.3.4", "", None, (1, 8)),
        ("timm==0.4.12", "", None, None),
        ("torchvision>=0.9", "", None, None),
        ("# torchvision==0.9.1", "", None, None),
        ("torch>=2.1  # not torchvision==0.9.1", "", (2, 1), None),
        ("torch>=1.4\ntorchvision==0.9.1", "", (1, 8), (1, 8)),
        ("torch>=1.4", "pip install timm==0.3.2", (1, 4), (1, 8)),
        ("torch>=2.0", "pip install timm==0.3.2", (2, 0), None),
        ("torch>=1.10,<1.14", "pip install torchvision==0.13.0", (1, 10), (1, 12)),
        ("torch<1.14", "With CUDA 11: pip install torchvision==0.13.0", None, (1, 12)),
        ("torch==1.7.1", "pip install torchvision==0.9.1", (1, 7), (1, 7)),
        ("", "[timm](https://x.y), pip install timm==0.3.4", None, (1, 8)),
        ("torchvision==0.9.1", "pip install torchvision==0.10.0", (1, 8), (1, 9)),
        ("", "    pip install torch torchvision==0.9.1", (1, 8), (1, 8)),
        ("", "- torchvision==0.9.1", (1, 8), (1, 8)),
        ("", "    conda install pytorch \\\\\n  torchvision=0.9.1", (1, 8), (1, 8)),
        ("", "Tested with torchvision==0.9.1", None, None),
        ("", "    pip install my-timm==0.3.2", None, None),
    ],
)
def test_packages_that_need_a_torch_of_their_own(
    tmp_path: Path,
    declared: str,
    prose: str,
    lowest: tuple[int, int] | None,
    highest: tuple[int, int] | None,
) -> None:
    forget()
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text(f"{declared}\n")
    (tmp_path / "README.md").write_text(f"# Title\n\n{prose}\n")
    found = find_torch_version(tmp_path)
    its = (found.version, found.highest) if found is not None else (None, None)
    assert its == (lowest, highest)


@pytest.mark.parametrize(
    "pinned, lowest",
    [("torch==1.11.0", (1, 11)), ("torch>=1.11", (1, 12)), ("numpy", (1, 12))],
    ids=["of its own", "open", "none"],
)
def test_what_is_pinned_for_another_environment(
    tmp_path: Path, pinned: str, lowest: tuple[int, int]
) -> None:
    forget()
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text(f"{pinned}\n")
    conda = "dependencies:\n  - pytorch=1.12.1\n  - torchvision=0.13\n"
    (tmp_path / "environment.yml").write_text(conda)
    found = find_torch_version(tmp_path)
    assert found is not None
    assert (found.version, found.highest) == (lowest, (1, 12))


ENVIRONMENT = """\
channels:
  - pytorch
dependencies:
  - python=3.7
  - pytorch
  - cudatoolkit=9.0
  - pip:
    - tensorboard
"""


@pytest.mark.parametrize(
    "old, new, highest",
    [
        ("", "", (1, 1)),
        ("=9.0", "=10.1.243=h6bb024c_0", (1, 8)),
        ("- cuda", "- pytorch::cuda", (1, 1)),
        ("=9.0", "=11.3", None),
        ("=9.0", ">=9.0", None),
        ("tensorboard", "torchvision", None),
        ("  - pytorch\n  - cuda", "  - numpy\n  - cuda", None),
    ],
)
def test_conda_has_no_new_torch_for_an_old_cuda(
    tmp_path: Path, old: str, new: str, highest: tuple[int, int] | None
) -> None:
    assert old in ENVIRONMENT
    text = ENVIRONMENT.replace(old, new, 1)
    (tmp_path / "environment.yml").write_text(text)
    (tmp_path / ".git").mkdir()
    found = find_torch_version(tmp_path)
    assert (found.highest if found is not None else None) == highest
    if highest is not None and found is not None:
        assert "cudatoolkit" in text.splitlines()[found.row - 1]


@pytest.mark.parametrize(
    "name, read",
    [
        ("requirements.txt", True),
        ("requirement.txt", True),
        ("requirments.txt", True),
        ("REQUIREMENTS.txt", True),
        ("Requirements", True),
        ("requriments-dev.txt", True),
        ("requests.txt", False),
        ("requirements.md", False),
    ],
)
def test_names_of_lists_of_requirements(tmp_path: Path, name: str, read: bool) -> None:
    forget()
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text("torch==1.9.1\n")
    assert (find_torch_version(tmp_path) is not None) is read
