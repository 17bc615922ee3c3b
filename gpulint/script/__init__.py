"""The script model: what a training script is made of, and how to rewrite it."""

from __future__ import annotations

from gpulint.script.loaders import Loader
from gpulint.script.loops import Loop
from gpulint.script.model import Script

__all__ = ["Loader", "Loop", "Script"]
