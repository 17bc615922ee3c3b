"""Running a training script in a child process that counts its steps.

`processes` starts and ends the child, `reports` is what it tells, `script` and `device`
are parts of the program that runs in it. `gpulint tune` and `gpulint bench` use them.
"""
