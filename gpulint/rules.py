"""Lets a checkout import the folder `rules/` beside the package as `gpulint.rules`.

The wheel holds that folder as `gpulint/rules/` and leaves this module out.
"""

from __future__ import annotations

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parent.parent / "rules")]
