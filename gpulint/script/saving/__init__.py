"""Checkpoints that training waits for, and who reads them (GPU601, 602).

`checkpoints` finds them, `checkpoint_paths` and `path_parts` follow their files,
`async_saves` rewrites.
"""
