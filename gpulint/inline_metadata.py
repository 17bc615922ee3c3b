"""The packages that a script lists itself, for `uv run` and `pipx run` (PEP 723).

Tools that read such a block run the script in an environment of these packages alone.
"""

from __future__ import annotations

import re

from gpulint.settings import parse_toml

_BLOCK = re.compile(r"(?m)^# /// script$\s(?P<content>(?:^#(?:| .*)$\s)+)^# ///$")
_NAME = re.compile(r"^\s*([\w.-]+)")


def leaves_out(text: str, package: str) -> bool:
    """Whether a script has such a block, and a package is not in it."""
    block = _BLOCK.search(text)
    if block is None:
        return False
    content = "\n".join(line[2:] for line in block["content"].splitlines())
    try:
        listed = parse_toml(content.encode()).get("dependencies", [])
    except ValueError:
        return True
    names = (_NAME.match(given) for given in listed if isinstance(given, str))
    found = {name[1].lower().replace("_", "-") for name in names if name is not None}
    return package not in found
