"""The wheel holds the package with the rules inside it, and works unpacked."""

from __future__ import annotations

import configparser
import email
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable
from email.message import Message
from pathlib import Path

import pytest

import gpulint
from gpulint.vendor.header import render

REPO = Path(__file__).resolve().parent.parent
RULE_FILES = {path.name for path in REPO.glob("rules/gpu*.py")}
EXTRAS = {"runtime", "augment", "lsp", "init", "docs", "dev"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as an installer would without a published wheel."""
    dist = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist)]
    built = subprocess.run(
        [*command, str(REPO)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    [path] = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files in a folder that could be a `site-packages`."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def metadata(unpacked: Path) -> Message:
    """The fields that an index and an installer read."""
    [path] = unpacked.glob("*.dist-info/METADATA")
    return email.message_from_string(path.read_text("utf-8"))


def isolated(paths: Iterable[Path], *arguments: str, cwd: Path) -> str:
    """Output of a Python that knows the libraries and `paths`, but no `.pth` file."""
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    search = [str(path) for path in paths] + sorted(libraries)
    done = subprocess.run(
        [sys.executable, "-S", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_holds_the_rules_inside_the_package(unpacked: Path) -> None:
    assert RULE_FILES
    assert {p.name for p in (unpacked / "gpulint/rules").glob("gpu*.py")} == RULE_FILES


def test_holds_the_package_and_nothing_else(unpacked: Path) -> None:
    names = {path.name for path in unpacked.iterdir()}
    version = gpulint.__version__
    assert names == {"gpulint", f"gpulint-{version}.dist-info"}
    assert (unpacked / "gpulint/py.typed").is_file()
    assert (unpacked / "gpulint/doctor/schema.json").is_file()
    assert (unpacked / "gpulint/report/schema.json").is_file()
    assert not (unpacked / "gpulint/rules.py").exists()


def test_metadata(metadata: Message) -> None:
    assert metadata["Name"] == "gpulint"
    assert metadata["Version"] == gpulint.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.10"
    assert set(metadata.get_all("Provides-Extra", [])) == EXTRAS


def test_torch_is_an_extra(metadata: Message) -> None:
    requirements = metadata.get_all("Requires-Dist", [])
    core = {line for line in requirements if "extra ==" not in line}
    assert any(line.startswith("libcst") for line in core)
    assert not any(line.startswith(("torch", "nvidia")) for line in core)
    assert "torch>=2.3; extra == 'runtime'" in requirements


def test_has_one_command(unpacked: Path) -> None:
    [path] = unpacked.glob("*.dist-info/entry_points.txt")
    points = configparser.ConfigParser()
    points.read(path)
    assert dict(points["console_scripts"]) == {"gpulint": "gpulint.cli:main"}


@pytest.mark.parametrize("place", ["wheel", "checkout"])
def test_lists_all_rules(place: str, unpacked: Path, tmp_path: Path) -> None:
    root = unpacked if place == "wheel" else REPO
    where = isolated(
        [root], "-c", "import gpulint; print(gpulint.__file__)", cwd=tmp_path
    )
    assert Path(where.strip()) == root / "gpulint" / "__init__.py"

    listed = json.loads(
        isolated([root], "-m", "gpulint", "rules", "--json", cwd=tmp_path)
    )
    codes = {rule["code"] for rule in listed}
    assert codes >= {name[:6].upper() for name in RULE_FILES}


def test_vendors_its_runtime(unpacked: Path, tmp_path: Path) -> None:
    """The runtime's sources are in the wheel, and give what those here give."""
    script = tmp_path / "train.py"
    script.write_text("from gpulint import runtime\nruntime.TensorLoader()\n", "utf-8")
    isolated([unpacked], "-m", "gpulint", "vendor", "train.py", cwd=tmp_path)
    text = (tmp_path / "_gpulint_runtime.py").read_text("utf-8")
    assert text == render(["TensorLoader"])
    sources = {path.name for path in (REPO / "gpulint" / "runtime").glob("*.py")}
    assert {p.name for p in (unpacked / "gpulint/runtime").glob("*.py")} == sources


def test_import_loads_nothing(unpacked: Path, tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import gpulint; "
        "print(*sorted(set(sys.modules) - before))"
    )
    assert isolated([unpacked], "-c", code, cwd=tmp_path).split() == ["gpulint"]


def test_rules_and_commands_load_no_script_model(
    unpacked: Path, tmp_path: Path
) -> None:
    """What a check of cached files, or a list of rules, has no need of."""
    code = (
        "import sys, gpulint.rule, gpulint.registry, gpulint.cli.check; "
        "print('gpulint.script' in sys.modules)"
    )
    assert isolated([unpacked], "-c", code, cwd=tmp_path).strip() == "False"
