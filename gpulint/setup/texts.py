"""What `gpulint init` writes into files of pre-commit, GitHub, GitLab and pyproject."""

from __future__ import annotations

from gpulint.setup import Origin

SETTINGS = """\
# What fixes may change besides nothing: "random", "numerics", "hyperparams".
allow = ["exact"]
# From which severity on a check fails: "note", "warning", "error".
fail-level = "warning"
"""
REPORT = "gl-code-quality-report.json"
_LOCAL = """\
- repo: local
  hooks:
    - id: gpulint-check
      name: gpulint (check)
      entry: gpulint check --force-exclude
      language: system
      types_or: [python, jupyter]
      require_serial: true
"""
_WORKFLOW = """\
name: gpulint

on: [push, pull_request]

permissions:
  contents: read
  security-events: write

jobs:
"""
_STEPS = """\
      - uses: actions/setup-python@v6
        with:
          python-version: "3.12"
      - run: python -m pip install "{requirement}"
      - run: gpulint check -o sarif:gpulint.sarif --output-format github
      - uses: github/codeql-action/upload-sarif@v4
        if: always()
        with:
          sarif_file: gpulint.sarif
          category: gpulint
"""
_GITLAB = """\
gpulint:
  stage: {stage}
  image: python:3.12
  script:
    - python -m pip install "{requirement}"
    - gpulint check -o gitlab:{report} --output-format concise
  artifacts:
    when: always
    reports:
      codequality: {report}
"""


def pre_commit_item(origin: Origin) -> str:
    """An item of `repos`."""
    if origin.url is None:
        return _LOCAL
    return (
        f"- repo: {origin.url}\n"
        f"  rev: {origin.revision}\n"
        "  hooks:\n"
        "    - id: gpulint-check\n"
    )


def github_job(origin: Origin) -> str:
    """An item of `jobs`."""
    if origin.action is None:
        steps = _STEPS.format(requirement=origin.requirement)
    else:
        steps = f"      - uses: {origin.action}\n"
    return (
        "  gpulint:\n"
        "    runs-on: ubuntu-latest\n"
        "    steps:\n"
        "      - uses: actions/checkout@v5\n" + steps
    )


def github_workflow(origin: Origin) -> str:
    """A workflow of its own."""
    return _WORKFLOW + github_job(origin)


def gitlab_job(origin: Origin, stage: str = "test") -> str:
    """A job that shows findings in merge requests."""
    its = {"requirement": origin.requirement, "report": REPORT, "stage": stage}
    return _GITLAB.format(**its)
