"""What one file says of packages: requirements, environments, projects, locks."""

from __future__ import annotations

import ast
import configparser
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from gpulint.releases import TORCH, Range, allowed
from gpulint.settings import parse_toml

# Names in dependency files, and the package whose releases they bound.
PACKAGES = {
    "torch": TORCH,
    "pytorch": TORCH,  # Conda's name
    "lightning": "lightning",
    "pytorch-lightning": "lightning",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "keras": "keras",
    "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tensorflow-macos": "tensorflow",
    "tensorflow-rocm": "tensorflow",
    "intel-tensorflow": "tensorflow",
    "tf-nightly": "tensorflow",
    "tf-nightly-cpu": "tensorflow",
    "tf-nightly-gpu": "tensorflow",
    "pyyaml": "pyyaml",
    "albumentations": "albumentations",
    "mindspore": "mindspore",
    "mindspore-ascend": "mindspore",
    "mindspore-cpu": "mindspore",
    "mindspore-gpu": "mindspore",
    "numpy": "numpy",
    "torch-geometric": "torch_geometric",
    "python": "python",
}
_ANY = "|".join(sorted(PACKAGES, key=len, reverse=True)).replace("-", "[-_]")
_NAME = re.compile(rf"^({_ANY})(?![\w.-])", re.IGNORECASE)
_WHEEL = re.compile(rf"(?:^|[/\s@])({_ANY})-(\d+)\.(\d+)", re.IGNORECASE)
# A commit of a repository: `transformers @ git+https://…/transformers@0dcb46e`.
_COMMIT = re.compile(
    rf"\bgit\+\S*/({_ANY})(?:\.git)?@[0-9a-f]{{7,40}}\b", re.IGNORECASE
)
# A release of one, by its tag: `…/transformers.git@v4.36.0`.
_TAG = re.compile(rf"\bgit\+\S*/({_ANY})(?:\.git)?@v?(\d+)\.(\d+)", re.IGNORECASE)
_EXPLICIT = re.compile(r"^@EXPLICIT\s*$", re.MULTILINE)
OLDEST = (0, 0)  # of a commit, whose release nobody knows
OF_TRAINERS = ("transformers", "accelerate", "lightning")
_CONDA = re.compile(rf"^\s*-\s*['\"]?(?:[\w./-]+::)?({_ANY})(?![\w.-])(.*)$")
_PARTS = re.compile(r"^(dependencies|channels):", re.MULTILINE)
_LOCKED = re.compile(
    rf"""^name\s*=\s*["']({_ANY})["']\s*\r?\nversion\s*=\s*["']([^"']+)""",
    re.MULTILINE,
)
MENTIONED = re.compile(_ANY, re.IGNORECASE)
# `torch~=1.12.1+cu113`: no bound but an exact one has a local version.
_LOCAL = re.compile(r"((?:~=|[<>]=?)\s*[\d.]+)\+[\w.]+")
# `pytorch==1.0.1 cudatoolkit=9.0 -c pytorch`
_TOLD_CONDA = re.compile(r"([\w-]+(?:\s*[<>=!~]=?\s*[\d.*]+)?)(?=\s).* -c ")
# Of which package, what is allowed, and the text that says so, to find the row.
Bound = tuple[str, Range, str]
Reader = Callable[[str], list[Bound]]


def _requirement(text: str) -> list[Bound]:
    """The bound in one PEP 508 requirement, a URL of a wheel or a tag among them."""
    text = text.strip()
    wheel = _WHEEL.search(text) or _TAG.search(text)
    if wheel:
        version = (int(wheel[2]), int(wheel[3]))
        return [(_package(wheel[1]), Range(version, version), text)]
    name = _NAME.match(text) or _COMMIT.search(text)
    if name is None:
        return []
    package = _package(name[1])
    if _COMMIT.search(text) and package in OF_TRAINERS:
        return [(package, Range(OLDEST, OLDEST), text)]  # no release may be asked for
    from packaging.requirements import InvalidRequirement, Requirement

    plain = _LOCAL.sub(r"\1", text)
    told = _TOLD_CONDA.match(plain)
    try:
        its = allowed(str(Requirement(told[1] if told else plain).specifier))
    except InvalidRequirement:
        return []
    return [(package, its, text)]


def _package(name: str) -> str:
    """The package that a distribution's name belongs to."""
    return PACKAGES[name.lower().replace("_", "-")]


def each_of(requirements: Iterable[Any]) -> list[Bound]:
    """The bounds of PEP 508 requirements; what is none says nothing."""
    return [
        bound
        for requirement in requirements
        if isinstance(requirement, str)
        for bound in _requirement(requirement)
    ]


def requirements(text: str) -> list[Bound]:
    """A file for `pip install -r`."""
    lines = (re.split(r"\s#|\s--|\\$", line)[0] for line in text.splitlines())
    return each_of(line for line in lines if not line.startswith("#"))


def explicit(text: str) -> list[Bound]:
    """The packages of `conda list --explicit`, an address a line."""
    return requirements(text) if _EXPLICIT.search(text) else []


def environment(text: str) -> list[Bound]:
    """Conda packages and the pip list under them, line by line."""
    bounds = []
    for line in text.splitlines():
        match = _CONDA.match(line)
        if not match:
            continue
        specifier = re.split(r"\s#|['\"]", match[2])[0].strip()
        version = re.sub(r"^(=?=?[\d.*]+)=.*$", r"\1", specifier).lstrip(" ")
        bounds.append((_package(match[1]), allowed(version), line))
    return bounds


def other_environment(text: str) -> list[Bound]:
    """The same of a file that only its content shows to be an environment."""
    return environment(text) if len(set(_PARTS.findall(text))) > 1 else []


def _pyproject(text: str) -> list[Bound]:
    data = parse_toml(text.encode("utf-8"))
    project = data.get("project", {})
    bounds = each_of(project.get("dependencies", ()))
    bounds += _python(project.get("requires-python"))
    groups = {"a": project.get("optional-dependencies", {})}
    groups["b"] = data.get("dependency-groups", {})
    for group in groups.values():
        for requirements in group.values():
            bounds += each_of(requirements)
    poetry = data.get("tool", {}).get("poetry", {})
    tables = [poetry, *poetry.get("group", {}).values()]
    for table in tables:
        for key in ("dependencies", "dev-dependencies"):
            for name, value in table.get(key, {}).items():
                if _NAME.fullmatch(name):
                    bounds += _poetry(_package(name), value)
    return bounds


def _poetry(package: str, value: Any) -> list[Bound]:
    """`"^2.1"`, `{version = "^2.1"}`, or a list of such tables."""
    if isinstance(value, list):
        return [bound for item in value for bound in _poetry(package, item)]
    if isinstance(value, dict):
        url = value.get("url")
        found = _poetry(package, value.get("version"))
        return found or each_of([url] if url else [])
    its = allowed(value) if isinstance(value, str) else Range()
    return [(package, its, f'"{value}"')] if its else []


def _python(specifier: object) -> list[Bound]:
    """The bound on Python that `requires-python` gives."""
    return each_of([f"python{specifier}"]) if isinstance(specifier, str) else []


def _setup_cfg(text: str) -> list[Bound]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    lines = parser.get("options", "install_requires", fallback="").splitlines()
    if parser.has_section("options.extras_require"):
        for _, value in parser.items("options.extras_require"):
            lines += value.splitlines()
    python = parser.get("options", "python_requires", fallback=None)
    return each_of(lines) + _python(python)


def _setup_py(text: str) -> list[Bound]:
    """String literals that are requirements; nothing is run.

    One without a bound may be a keyword, or a part of the package.
    """
    nodes = list(ast.walk(ast.parse(text)))
    strings = (n.value for n in nodes if isinstance(n, ast.Constant))
    found = each_of(strings)
    for node in nodes:
        if isinstance(node, ast.keyword) and node.arg == "python_requires":
            found += _python(getattr(node.value, "value", None))
    return [bound for bound in found if bound[1]]


def _toml_lock(text: str) -> list[Bound]:
    """`[[package]]` tables; read by pattern, as lock files are large."""
    found = ((m[1], allowed(m[2]), m[0]) for m in _LOCKED.finditer(text))
    return [(_package(name), its, written) for name, its, written in found if its]


def _pipfile_lock(text: str) -> list[Bound]:
    data = json.loads(text)
    bounds = []
    for section in ("default", "develop"):
        for name, entry in data.get(section, {}).items():
            its = allowed(entry.get("version", "")) if _NAME.fullmatch(name) else None
            if its:
                bounds.append((_package(name), its, f'"{name}"'))
    return bounds


LOCKS: dict[str, Reader] = {
    "Pipfile.lock": _pipfile_lock,
    "pdm.lock": _toml_lock,
    "poetry.lock": _toml_lock,
    "uv.lock": _toml_lock,
}
READERS: dict[str, Reader] = {
    "pyproject.toml": _pyproject,
    "setup.cfg": _setup_cfg,
    "setup.py": _setup_py,
    **LOCKS,
}
