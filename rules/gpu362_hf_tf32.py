"""The Hugging Face Trainer multiplies in full float32, with tensor cores idle.

## Why
From the Ampere generation on, NVIDIA's tensor cores multiply float32 matrices in TF32:
the same range, 10 bits of mantissa instead of 23 for the factors, sums in float32.
PyTorch does not do that for matrix products, and so linear layers and attention, until
it is asked to. Where a model does not bear mixed precision, TF32 is what is left to use
tensor cores at all.

## Example
```python
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments

model = AutoModelForSeq2SeqLM.from_pretrained("t5-base")
arguments = TrainingArguments("out", fp16=False)
trainer = Trainer(model, arguments, train_dataset=train)
trainer.train()
```
becomes
```python
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments
from gpulint import runtime

model = AutoModelForSeq2SeqLM.from_pretrained("t5-base")
arguments = TrainingArguments("out", fp16=False, **runtime.hf_args(tf32=True))
trainer = Trainer(model, arguments, train_dataset=train)
trainer.train()
```

## Fix
`runtime.hf_args(tf32=True)` gives `tf32=True` where the GPU has it, from compute
capability 8.0 on, and nothing elsewhere: the literal would raise ValueError on a
machine without such a GPU. A release of transformers that does not know the argument
does not get it. Results differ in rounding.

Withheld where the program uses linear algebra, complex numbers or Fourier transforms,
whose results may need all 23 bits.

## When not
`bf16` or `fp16` is on or may be, or GPU361 has a fix that switches it on: products are
then in those formats. `tf32` is given or may be; `torch_compile` is, which switches
TF32 on itself. The precision of products is set to whatever value in the program
(`set_float32_matmul_precision`, `allow_tf32`). The script loads weights in another
format, uses autocast or compiles the model itself, trains in float64, on the CPU, MPS
or a TPU, or asks for determinism; DeepSpeed or FSDP has a configuration of its own. The
newest PyTorch that the project allows is older than 1.12, which multiplied in TF32 by
default. Nothing is trained in this file. Of low confidence is a call that raises in all
allowed releases (GPU364), and one beside `from_pretrained` where all allowed releases
are of transformers 5, which loads a checkpoint in its own format.

## Source
Transformers documentation, `TrainingArguments`; PyTorch documentation, "CUDA semantics:
TensorFloat-32 (TF32) on Ampere (and later) devices". Measured with transformers 5.23:
`tf32=True` raises ValueError without such a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Calls, Hardware, Rule
from gpulint.script import Script
from gpulint.script.frameworks.hf_removed import unless_in_vain
from gpulint.script.frameworks.hf_trainers import (
    is_decided,
    is_split_up,
    let_decide,
    may_use_gpu,
    own_models,
    says_tpu,
)
from gpulint.script.frameworks.trainer_calls import (
    Maker,
    TrainerCall,
    names_of,
    trainer_calls,
)
from gpulint.script.frameworks.trainer_precision import is_not_in_float32, why_not_mixed
from gpulint.script.numerics.half import exact_mathematics
from gpulint.script.numerics.precision import matmul_set_nearby

FORMATS = ("bf16", "fp16")
DECIDE = (
    *("tf32", "torch_compile", "torchdynamo", "full_determinism"),
    *("torch_compile_backend", "torch_compile_mode"),
)
OFF_BY_DEFAULT = (1, 12)  # PyTorch 1.7 to 1.11 multiply in TF32 unless told not to
# A compiler that reads PyTorch's older settings fails where the newer one was used.
OTHERS = re.compile(
    r"torch\.compile\(|\.compile\(\)|use_deterministic_algorithms|autocast|GradScaler"
    r"|mixed_precision|\bapex\b"
)


class HfTf32(Rule):
    effect = Effect.NUMERICS
    severity = Severity.NOTE
    hardware = Hardware.TF32
    needs = Calls(*names_of(Maker.HF_ARGUMENTS))
    framework = "huggingface"
    torch = OFF_BY_DEFAULT

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call in a file that trains in float32 for good."""
        text = script.source.text
        if ".train(" not in text or says_tpu(script) or OTHERS.search(text):
            return
        if script.newest_torch is not None and script.newest_torch < OFF_BY_DEFAULT:
            return
        if is_not_in_float32(script) or script.precision.matmul is not None:
            return
        made_here = trainer_calls(script, Maker.HF_ARGUMENTS)
        calls = [made for made in made_here if _is_in_float32(made)]
        if not calls or matmul_set_nearby(script):
            return
        found = exact_mathematics(script, own_models(script))
        for made in calls:
            withheld = f"`{found}` may need full float32" if found else None
            title = "Let the machine choose TF32"
            yield self.finding(
                script,
                made.call.func,
                "float32 matrix products of this training run in full precision: "
                "`tf32` is not set",
                fix=None if withheld else let_decide(made, "tf32", title),
                withheld=withheld,
                confidence=unless_in_vain(made),
            )


def _is_in_float32(made: TrainerCall) -> bool:
    """Whether products are in float32, stay so, and nothing is said of TF32."""
    if not made.all_absent(*DECIDE) or is_decided(made, "precision"):
        return False
    if not may_use_gpu(made) or is_split_up(made):
        return False
    given = [name for name in FORMATS if not made.argument(name).absent]
    if given:
        return all(made.values(name).all_in(False) for name in given)
    return why_not_mixed(made.script) is not None
