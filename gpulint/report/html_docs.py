"""The Markdown of rules' documentation as HTML: the little of it that they use."""

from __future__ import annotations

import re
from html import escape

_FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")


def markdown(text: str) -> str:
    """Headings, paragraphs, blocks of code and `code`; everything else is text."""
    parts = []
    for number, part in enumerate(_FENCE.split(text)):
        if number % 2:
            parts.append(f'<pre class="doc">{escape(part)}</pre>')
        else:
            parts += [_block(block) for block in _blocks(part)]
    return "\n".join(parts)


def inline(text: str) -> str:
    """One line with `code` in it."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _blocks(text: str) -> list[str]:
    """Paragraphs and headings; a heading ends with its line."""
    text = re.sub(r"^(#+ .*)$", r"\n\1\n", text, flags=re.MULTILINE)
    return [block.strip() for block in re.split(r"\n\s*\n", text) if block.strip()]


def _block(block: str) -> str:
    if block.startswith("#"):
        return f"<h4>{inline(block.lstrip('# '))}</h4>"
    return f"<p>{inline(' '.join(block.split()))}</p>"
