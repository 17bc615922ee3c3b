"""Where the host waits for the device, or the run for something else.

`waits` (GPU106, 109), with `timed`, `drained` and `members`: which waits cost nothing,
and `accumulators` and `device_sums`: how sums stay on the device; `forced` (107),
`slow_logs` (604), `idle` (804), `epoch_figures` (805).
"""
