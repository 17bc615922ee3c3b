"""As if the library were not installed."""

from __future__ import annotations

raise ImportError("no pynvml here")
