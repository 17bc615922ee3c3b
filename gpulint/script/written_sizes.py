"""Whether a program is seen to have a large network, by what is written in its texts.

For frameworks whose layers are not followed as those of PyTorch are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Layers of 128 features or more: `Conv2D(256, …`, `nn.Conv2d(64, 128, …`, `units=512`.
_WIDE = re.compile(
    r"\b(?:(?:Separable)?Conv(?:\d[dD])?(?:Transpose)?|Dense|LSTM|GRU)\("
    r"(?:[\w.]+\s*=\s*)?(?:\d+,\s*(?:\w+\s*=\s*)?)?(?:12[89]|1[3-9]\d|[2-9]\d\d|\d{4,})\b"
    r"|\b(?:filters|units|out_channels|d_model|hidden_size|embed_dim|num_hiddens)"
    r"\s*=\s*(?:12[89]|1[3-9]\d|[2-9]\d\d|\d{4,})\b"
)
# Models of packages, and of papers, that are large by their names.
_LARGE = re.compile(
    r"\bapplications\.\w+\(|applications import|KerasLayer|from_pretrained\(|mindcv"
    r"|MultiHead(?:ed)?Attention|TransformerBlock|(?i:\bbert|\bvit\b|\bclip\b|\bgpt)"
    r"|(?i:res(?:ne[tx]t?|idual)|\bvgg|yolo|u-?net|inception|efficientnet|mobilenet"
    r"|densenet|cycle_?gan|deeplab|\brcnn|pix2pix)"
)


def is_seen_large(script: Script) -> bool:
    """Whether a file of the program names wide layers or a large model."""
    return any(
        index.source.has(_WIDE) or index.source.has(_LARGE)
        for index in run_together(script)
    )
