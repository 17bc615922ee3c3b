"""Nothing of its own."""

from __future__ import annotations
