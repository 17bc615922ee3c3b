"""The Python that people are told to run a project with: images and environments."""

from __future__ import annotations

import re

_RELEASE = r"(3\.\d{1,2})(?!\d)"
_SAID = re.compile(
    rf"""
    ^[ \t]*FROM[ ](?:--platform=\S+[ ])?(?:[\w.-]+/)*python:{_RELEASE}
    |\bpython{_RELEASE}[ ]-m[ ](?:venv|virtualenv)\b
    |\bvirtualenv\b[^\n`]*[ ](?:-p|--python)[ =](?:\S*/)?(?:python)?{_RELEASE}
    |\buv[ ](?:venv|sync|run)\b[^\n`]*[ ](?:-p|--python)[ =](?:python)?{_RELEASE}
    |^[ \t]*[-*+][ \t]+[`*_]*python[`*_]*[ ]*={{1,2}}[ ]*{_RELEASE}
    |\bpyenv[ ](?:local|global|install|shell|virtualenv)[ ](?:-\w[ ])?{_RELEASE}
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)


def pythons(text: str) -> list[str]:
    """The releases of images and of environments that commands make.

    `FROM python:3.8-slim`, `python3.8 -m venv env`, `virtualenv -p python3.8 env`,
    `uv venv --python 3.8`, `pyenv local 3.8.10`, and of lists of requirements:
    `* python == 3.8`. `3.8` of each.
    """
    return [
        release for said in _SAID.finditer(text) for release in said.groups() if release
    ]
