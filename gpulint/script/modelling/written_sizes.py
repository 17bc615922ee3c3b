"""Whether a program is seen to have a large network, by what is written in its texts.

For what is not followed as the layers of PyTorch are: other frameworks, whole programs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Convolutions of 128 features or more: `Conv2D(256, …`, `conv(norm, 64, 128, …`; other
# layers of 512 or more, `units=512`, and of 1000 or more, `Dense(1024`: they use a
# weight once for a row.
_MANY = r"(?:12[89]|1[3-9]\d|[2-9]\d\d|\d{4,})\b"
_MORE = r"(?:51[2-9]|5[2-9]\d|[6-9]\d\d|\d{4,})\b"
_GIVEN = r"\((?:[\w.]+\s*=\s*)?(?:\d+,\s*(?:\w+\s*=\s*)?)?"
_WIDE = re.compile(
    rf"\b(?:Separable)?Conv(?:\d[dD])?(?:Transpose)?{_GIVEN}{_MANY}"
    rf"|\b\w*(?:conv|block|layer)\w*\((?:[\w.]+,\s*)?\d+,\s*{_MANY}"
    rf"|\b(?:Dense|LSTM|GRU){_GIVEN}\d{{4,}}\b"
    rf"|\b(?:filters|out_channels)\s*=\s*{_MANY}"
    rf"|\b(?:units|d_model|hidden_size|embed_dim|num_hiddens)\s*=\s*{_MORE}"
)
# Models of packages, and of papers, that are large by their names.
_HEAVY = re.compile(
    r"\bapplications\.\w+\(|applications import|from_pretrained\(|mindcv"
    r"|MultiHead(?:ed)?Attention|TransformerBlock|(?i:\bbert|\bvit\b|\bgpt)"
    r"|\bCLIP|open_clip|\bclip\.load"
    r"|(?i:resne[tx]t?|\bvgg|yolo|inception|efficientnet|densenet|deeplab|\brcnn)"
)
# Others that are large by their work, and often have few weights.
_LARGE = re.compile(
    rf"{_HEAVY.pattern}|(?i:residual_?(?:block|unit|layer|stage)|u-?net|mobilenet"
    r"|cycle_?gan|pix2pix)"
)


# How many features the models of a program are told to have.
_FEATURES = re.compile(
    r"\b(?:hidden_size|hidden_dim|hidden_channels|d_model|embed_dim|n_embd|n_neurons)"
    r"[\"']?\s*(?::\s*(?:int\s*=\s*)?|=\s*)(\d+)\b"
)
NARROW = 64  # features: such products wait for memory, whatever their format


def is_told_narrow(script: Script) -> bool:
    """Whether all sizes that a file itself writes for its models are small.

    `hidden_dim=64`, `hidden_dim: int = 64`, `"n_neurons": 64` of a perceptron.
    """
    sizes = [int(found[1]) for found in _FEATURES.finditer(script.source.text)]
    return bool(sizes) and max(sizes) <= NARROW


def is_seen_large(script: Script) -> bool:
    """Whether a file of the program names wide layers or a large model."""
    return any(
        index.source.has(_WIDE) or index.source.has(_LARGE)
        for index in run_together(script)
    )


def is_seen_heavy(script: Script) -> bool:
    """Whether a file of the program names wide layers or a model of many weights."""
    return any(
        index.source.has(_WIDE) or index.source.has(_HEAVY)
        for index in run_together(script)
    )


def names_large(text: str) -> bool:
    """The same, of the code of one model."""
    return bool(_WIDE.search(text) or _LARGE.search(text))
