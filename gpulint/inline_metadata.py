"""The packages that a script lists itself, for `uv run` and `pipx run` (PEP 723).

Tools that read such a block run the script in an environment of these packages alone.
"""

from __future__ import annotations

import re

from gpulint.settings import parse_toml

_BLOCK = re.compile(r"(?m)^# /// script$\s(?P<content>(?:^#(?:| .*)$\s)+)^# ///$")
_NAME = re.compile(r"^\s*([\w.-]+)")


def listed(text: str) -> tuple[str, ...] | None:
    """The requirements in such a block, none of one that cannot be read.

    None where a script has no block.
    """
    block = _BLOCK.search(text.replace("\r\n", "\n"))
    if block is None:
        return None
    content = "\n".join(line[2:] for line in block["content"].splitlines())
    try:
        given = parse_toml(content.encode()).get("dependencies", [])
    except ValueError:
        return ()
    found = given if isinstance(given, list) else []
    return tuple(one for one in found if isinstance(one, str))


def leaves_out(text: str, package: str) -> bool:
    """Whether a script has such a block, and a package is not in it."""
    requirements = listed(text)
    if requirements is None:
        return False
    names = filter(None, map(_NAME.match, requirements))
    return package not in {n[1].lower().replace("_", "-") for n in names}
