"""A dataset fetches each sample over the network when it is asked for.

## Why
A request to a bucket or server takes tens of milliseconds before the first byte comes,
for every sample, and again in every epoch. Worker processes hide a part of it alone:
eight of them that wait 50 ms for each sample give 160 samples a second.

## Example
```python
import io

import requests
from PIL import Image
from torch.utils.data import Dataset


class Photos(Dataset):
    def __init__(self, urls, transform):
        self.urls = urls
        self.transform = transform

    def __len__(self):
        return len(self.urls)

    def __getitem__(self, index):
        answer = requests.get(self.urls[index])
        return self.transform(Image.open(io.BytesIO(answer.content)))
```

## Fix
None. By hand: copy the data to a local disk before training; where it is too large for
that, put many samples into each file and read these in order (WebDataset, MosaicML
Streaming), or keep each sample on the disk after it was fetched.

## When not
What is kept: a cache, a file that is looked for first, a value that is stored. Fetching
in `__init__` or before training. Paths of which nothing shows that they are remote, and
mounted network drives, which look like any folder. Datasets that are streams
(`IterableDataset`).

## Source
Gao et al., "An Empirical Study on Low GPU Utilization of Deep Learning Jobs", ICSE
2024: data that is read from remote storage; "Performance design patterns for Amazon
S3": latencies of 100–200 ms for small objects.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.samples.remote_samples import remote_reads

PACKAGES = ("requests", "urllib", "httpx", "boto3", "s3fs", "gcsfs", "fsspec", "wget")
SCHEMES = ("s3://", "gs://", "http://", "https://", "hdfs://")
CLIENTS = ("minio", "oss2", "google.cloud", "azure.storage", "adlfs")


class RemoteRead(Rule):
    effect = Effect.NONE
    needs = Words(*(f"__getitem__ {w}" for w in (*PACKAGES, *SCHEMES, *CLIENTS)))

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call."""
        for call, owner in remote_reads(script):
            yield self.finding(
                script,
                call.func,
                f"each sample of `{owner.name}` is fetched over the network: "
                f"`{script.text(call.func)}`",
                evidence=[(owner, "the dataset")],
            )
