"""The script model: what a training script is made of, and how to rewrite it.

`Script` (`model`) is what a rule gets. Its facts are found once. Those that all topics
need are here:

- what there is: `loops`, `batches`, `scalars`, with `bounds`, `reads`, `mutations`,
  `invariants`, `environments`
- what runs when: `runners`, `every_step`, `branches`, `given`, `call_modes`,
  `set_before`, `no_grad`
- other files: `outside`, `neighbours`, `by_name`, `named_calls`, `decorators`
- `identity`: what a finding is known by

And each topic has a package: `loading`, `samples`, `augmenting`, `copying`, `waiting`,
`numerics`, `modelling`, `training`, `saving`, `settings`, `frameworks`; `reaching`:
what no program comes to; `rewriting` makes text of edits, with names that are free.
"""

from __future__ import annotations

from gpulint.script.loading.loaders import Loader
from gpulint.script.loops import Loop
from gpulint.script.model import Script

__all__ = ["Loader", "Loop", "Script"]
