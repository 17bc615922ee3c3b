"""`gpulint bench`: a script and its rewrite, run in turns and compared.

`variants` makes the two texts and `overlay` brings them to a child without writing
beside the script; `child` is the program of that process, in which `steps` takes the
times, `losses` the losses and, in a run of its own, `syncs` the waits for the device;
`runs` starts the children in turns; `statistics` and `compare` say what the
measurements show. `rows` puts that in words (a measure more is a line in its
`MEASURES`), `output` prints it, and `html` is the page with the drawings of `charts`.
"""
