"""Fingerprints of lines as GitHub computes them, so that alerts follow moved code.

The algorithm of `src/fingerprints.ts` in github/codeql-action: a rolling hash with base
37, modulo 2**64, over the first 100 UTF-16 units from the start of a line on that are
neither spaces nor tabs; every newline counts as a line feed, and the end of the file as
65535 followed by zeros. Equal hashes are numbered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

BLOCK = 100
BASE = 37
MASK = 2**64 - 1
END = 65535
_FIRST = pow(BASE, BLOCK, MASK + 1)
_TAB, _LF, _CR, _SPACE = 9, 10, 13, 32


def line_hashes(text: str) -> list[str]:
    """`hash:number` of each line, the one behind the last newline as well."""
    units = [*_units(text), END]
    starts = [0, *(i + 1 for i, unit in enumerate(units[:-1]) if unit == _LF)]
    hashes = dict.fromkeys(starts, 0)
    window = [0] * BLOCK + units + [0] * BLOCK
    value = 0
    for index, unit in enumerate(window[BLOCK:]):
        value = (BASE * value + unit - _FIRST * window[index]) & MASK
        start = index - BLOCK + 1
        if start in hashes:
            hashes[start] = value
    seen: Counter[int] = Counter()
    numbered = []
    for start in starts:
        seen[hashes[start]] += 1
        numbered.append(f"{hashes[start]:x}:{seen[hashes[start]]}")
    return numbered


def _units(text: str) -> Iterator[int]:
    """UTF-16 units with plain newlines, without spaces and tabs."""
    data = text.encode("utf-16-le", "surrogatepass")
    after_cr = False
    for low, high in zip(data[::2], data[1::2], strict=True):
        unit = low | high << 8
        if unit in (_SPACE, _TAB) or (after_cr and unit == _LF):
            after_cr = False
            continue
        after_cr = unit == _CR
        yield _LF if after_cr else unit
