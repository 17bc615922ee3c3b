"""Where the host waits for the device, or the run for something else.

`waits` (GPU106, 109), of what `reading` finds: expressions that need a number, and
`located` and `members`: which values are on the device; `timed` and `drained`: which
waits cost nothing, `accumulators` and `device_sums`: how sums stay on the device;
`forced` (107), `slow_logs` (604), `idle` (804), `epoch_figures` (805).
"""
