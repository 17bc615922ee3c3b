"""Rules of gpulint about Acme's own packages: one module a rule."""

from __future__ import annotations
