"""Running a training script in a child process that counts its steps.

`processes` starts and ends the child, `reports` is what it tells, `script` and `device`
are parts of the program that runs in it: `tune`, `bench` and `profile` use them.
`children` and `child` are the two sides of what `bench` and `profile` have in common,
`steps` the times that both take.
"""
