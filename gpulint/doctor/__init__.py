"""`gpulint doctor`: what this machine has, what the runtime makes of it, what is wrong.

Everything that may hang or crash (the import of torch, a stuck driver, a dead network
disk) is asked in child processes with a time limit; their answers are judged here.
"""

from __future__ import annotations
