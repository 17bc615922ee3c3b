"""A torch whose libraries are not there."""

from __future__ import annotations

raise OSError("/home/jo/venv/lib/libcudnn.so.9: cannot open shared object file")
