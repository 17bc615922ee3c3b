"""A torch that takes its process down."""

from __future__ import annotations

import os
import signal

os.kill(os.getpid(), signal.SIGSEGV)
