"""One file with the helpers of `gpulint.runtime` that scripts use, beside them.

- `scopes`, `modules`: what the statements of the runtime's modules bind and read
- `names`: what things are called where many modules become one
- `compose`: the statements that some helpers need, as one text
- `lazily`: modules that import torch, as functions that define their content later
- `header`: what the file says of itself, and whether that is still true
- `uses`: which helpers scripts use, and where they look for the file
- `files`: the file beside scripts, on the disk and as it should be

The runtime is read as text, never imported.
"""
