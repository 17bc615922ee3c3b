"""`gpulint tune`: short runs of a training script in child processes.

`search` decides what to try next and is told what came of it; `runs` runs the script
with a candidate's environment variables; `child` is the program of that process, in
which `steps` and `device` take the times and the memory; `store` writes what was found
to `gpulint.tuned.json`.
"""
