"""A torch that waits for a driver that does not answer."""

from __future__ import annotations

import time

time.sleep(600)
