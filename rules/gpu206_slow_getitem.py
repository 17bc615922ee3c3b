"""A dataset does for every sample what it could do once: read a file, load a model.

## Why
`__getitem__` runs for each sample of each batch. A table that it reads to take one row
of it is read and parsed 256 times for a batch of 256, and a search through the list of
all samples takes longer the more there are. Worker processes do this work at the same
time, each for itself; where they do not keep up, the GPU waits in every step.

## Example
```python
import pandas as pd
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, table, transform):
        self.table, self.transform = table, transform
        self.length = len(pd.read_csv(table))

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        row = pd.read_csv(self.table).iloc[index]
        return self.transform(Image.open(row["file"])), row["label"]


device = torch.device("cuda")
loader = DataLoader(Photos("train.csv", transform), batch_size=256, num_workers=8)
for images, labels in loader:
    loss = criterion(model(images.to(device)), labels.to(device))
    loss.backward()
    optimizer.step()
```

## Fix
None. By hand: read the file and load the model in `__init__`, and keep them on the
dataset; open HDF5 files and archives once for each worker (`if self.file is None:` in
`__getitem__`). Run a frozen model on whole batches on the GPU, or once over the data
before training. Look samples up in a dict or an index that `__init__` makes. Loops over
pixels are operations on whole arrays.

## When not
Files that the index chooses, handles that are opened at the first sample, what a cache
or a test spares most samples, and files of which a part is read (`mmap_mode`, `nrows`,
`seek`). Lists and tables of which nothing shows that they hold all samples. Datasets
of no more than one batch, and those that no loader is seen to train with on a GPU.

## Source
PyTorch documentation, `torch.utils.data`: map-style datasets, and multi-process data
loading; "Writing Custom Datasets, DataLoaders and Transforms" in the PyTorch tutorials:
the table is read in `__init__`, images in `__getitem__`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.samples.slow_samples import slow_samples


class SlowGetitem(Rule):
    effect = Effect.NONE
    needs = Words("__getitem")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each thing that is done anew."""
        for slow in slow_samples(script):
            yield self.finding(
                script,
                slow.place,
                f"for each sample of `{slow.owner.name}` {slow.cost}",
                evidence=[(slow.loader.call, "trains with this dataset")],
            )
