"""A training script fetches its data over the network at each start.

## Why
What is fetched again at every start is paid for again: the GPU is reserved, and has
nothing to do until the last byte is there. A run that is started anew after a failure,
and each trial of a search, waits as long as the first one; the copies of several
processes write over each other.

## Example
```python
import os

import torch
from torch import nn

os.system("wget https://example.org/images.npz -O images.npz")
device = torch.device("cuda")
model = nn.Linear(64, 10).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix
None: where the file may lie, and whether it changes, is not in the script. By hand, put
`if not os.path.exists("images.npz"):` before it, use `wget -nc` or `aws s3 sync`, or
fetch in a step of its own that needs no GPU.

## When not
A test, a loop or a `try` around it, or a `return` before it: something may spare the
call. Commands that look whether the file is there (`wget -c`, `-N`, `-nc`). Downloads
of datasets and of pretrained weights by packages that keep what they have fetched
(`download=True`, `from_pretrained`, `load_state_dict_from_url`). Scripts that train on
the CPU, and files that are only imported.

## Source
Python documentation, `urllib.request.urlretrieve`; GNU Wget manual, "Download Options".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.samples.downloads import find_downloads

WORDS = (
    *("urlretrieve", "wget", "gdown", "download_url_to_file", "curl", "s3"),
    *("gsutil", "kaggle"),
)


class DownloadAtStart(Rule):
    """Reports the first download of a script, with the others as related places."""

    effect = Effect.NONE
    needs = Words(*(f"backward( {word}" for word in WORDS))

    def check(self, script: Script) -> Iterator[Finding]:
        """At most one finding for a file."""
        found = find_downloads(script)
        if not found:
            return
        first, *others = found
        yield self.finding(
            script,
            first.call.func,
            f"`{first.tool}` fetches anew at each start of the training, whatever is "
            "there already; the GPU waits for it",
            related=[(other.call.func, "fetches as well") for other in others],
            evidence=[(script.training_loops[0].node, "trains on a GPU")],
        )
