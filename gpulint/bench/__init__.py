"""`gpulint bench`: a script and its rewrite, run in turns and compared.

`variants` makes the two texts and `overlay` brings them to a child without writing
beside the script; `child` is the program of that process, in which `steps` takes the
times and `losses` the losses; `runs` starts the children in turns; `statistics` and
`compare` say what the measurements show; `table`, `markdown` and `html` print it.
"""
