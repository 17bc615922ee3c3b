"""Characters of code that would not show, or would disturb what stands around."""

from __future__ import annotations

TAB = "    "


def visible(text: str) -> str:
    """Tabs as spaces, other control characters as their pictures."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _picture(c) for c in text)


def _picture(character: str) -> str:
    code = ord(character)
    if character == "\t":
        return TAB
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    # Bidirectional overrides and the like reorder what stands behind them.
    return character if character.isspace() or code == 0x200D else "\ufffd"
