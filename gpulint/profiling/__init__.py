"""`gpulint profile`: where a few training steps spend their time, line by line.

In the child: `sampling` looks at the main thread's frames, `lines` sees which lines
run, `own` tells the user's files from others, and `child` puts them together. In the
command: `runs` starts the child, `recording` is what it brought, `gpu` reads the trace
of a GPU, `costs` says what is measured for each rule, `attribution` does it, and
`output` shows it.
"""
