"""Loaders."""

from __future__ import annotations

from .dataloader import DataLoader as DataLoader
