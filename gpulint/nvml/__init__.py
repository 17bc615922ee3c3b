"""NVIDIA's management library (NVML), asked about GPUs: once or again and again.

`library` opens it and bears what it refuses, `figures` reads one GPU, `gpm` how busy
its multiprocessors are. A driver can hang, so `child` reads in a process of its own and
`sampler` listens to it. `gpulint doctor`, `monitor` and `bench` use them.
"""

from __future__ import annotations
