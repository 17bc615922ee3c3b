"""`gpulint monitor`: what a training makes of its GPUs, seen from outside.

`host` reads the processes and `watch` brings them together with what `gpulint.nvml`
says of the GPUs; `diagnosis` judges a window of samples. `outputs` are the modes,
`view` is what they show people; `columns` names the figures for CSV, `document` for
JSON and `prometheus` for a scraper. `command` runs a training that is to be watched.
"""

from __future__ import annotations
