"""Programs that may put new tensors on the GPU, wherever they say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index import build_index
from gpulint.script import Script
from gpulint.script.copying.default_device import makes_on_gpu
from gpulint.source import Source

TYPE = "torch.set_default_tensor_type"


@pytest.mark.parametrize(
    "lines, may",
    [
        ('torch.set_default_device("cuda")', True),
        ("torch.set_default_tensor_type(torch.cuda.FloatTensor)", True),
        ('torch.set_default_tensor_type("torch.cuda.FloatTensor")', True),
        ("kind = torch.cuda.HalfTensor\ntorch.set_default_tensor_type(kind)", True),
        (f"{TYPE}(torch.cuda.FloatTensor if gpus else torch.FloatTensor)", True),
        ("torch.set_default_device(args.device)", True),
        ("class T:\n  def __init__(self):\n    torch.set_default_device(0)\nT()", True),
        ("def f():\n  torch.set_default_device(0)\nf()", True),
        ("@run.command()\ndef f():\n  torch.set_default_device(0)", True),
        ("def f():\n  torch.set_default_device(0)", False),
        ("def f():\n  torch.set_default_device(0)\nfire.Fire()", True),
        ("def f():\n  torch.set_default_device(0)\nglobals()[sys.argv[1]]()", True),
        ("USE = False\nif USE:\n  torch.set_default_device(0)", False),
        ('torch.set_default_device("cpu")', False),
        ('torch.set_default_device(torch.device("cpu"))', False),
        ("torch.set_default_device(None)", False),
        ("torch.set_default_tensor_type(torch.DoubleTensor)", False),
        ('torch.set_default_tensor_type("torch.FloatTensor")', False),
        ("torch.set_default_dtype(torch.float64)", False),
    ],
)
def test_what_may_make_tensors_on_the_gpu(lines: str, may: bool) -> None:
    source = Source(Path("train.py"), f"import torch\n{lines}\n")
    assert makes_on_gpu(Script(source, build_index(source))) is may
