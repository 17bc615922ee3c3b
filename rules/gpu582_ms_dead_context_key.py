"""A setting that MindSpore refuses, or takes and does nothing with.

## Why
Keys such as `enable_mem_reuse` and `enable_dump` were settings of early releases; today
`set_context` raises `ValueError` for them, and the training does not start. Others,
such as `enable_auto_mixed_precision`, are accepted and ignored: what they stand for is
off, although the script reads as if it were on.

## Example
```python
import mindspore as ms

ms.set_context(mode=ms.GRAPH_MODE, enable_mem_reuse=True)
```

## Fix
None, as what was meant has moved: memory is reused without being asked, and
`mindspore.runtime.set_memory(optimize_level="O1")` asks for more of it, once in
a process; mixed precision is `amp_level` of a model or `mindspore.amp`; dumps are the
environment variable `MINDSPORE_DUMP_CONFIG`; compiled graphs are kept with
`MS_COMPILER_CACHE_ENABLE`.

## When not
Projects that allow no release from 2.10 on: older ones knew some of these keys. Of low
confidence is `enable_auto_mixed_precision` in a file that asks for mixed precision in
another way (`amp_level`, `mindspore.amp`, `to_float`).

## Source
MindSpore 2.10, `mindspore/context.py`, where all keys were set one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_context import allows, set_contexts

CHECKED = (2, 10)  # the release in which these keys were tried
REFUSED = frozenset(
    "enable_mem_reuse enable_dump save_dump_path enable_task_sink enable_ir_fusion "
    "enable_hccl enable_gpu_summary enable_loop_sink enable_dynamic_memory "
    "save_compile_cache load_compile_cache precompile_only grad_for_scalar".split()
)
MIXED = "enable_auto_mixed_precision"
IGNORED = frozenset({MIXED, "enable_sparse", "auto_tune_mode"})
_MIXES = re.compile(r"\bamp_level\b|auto_mixed_precision\(|\bto_float\(|\bamp\.\w")


class MsDeadContextKey(Rule):
    effect = Effect.NONE
    framework = "mindspore"
    needs = Words(
        *(f"mindspore set_context {key}" for key in sorted(REFUSED | IGNORED))
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each such key."""
        if not allows(script, CHECKED):
            return
        for call in set_contexts(script):
            for keyword in call.keywords:
                if keyword.arg in REFUSED:
                    what = "is refused by `set_context`: it raises ValueError"
                elif keyword.arg in IGNORED:
                    what = "is accepted by `set_context` and has no effect"
                else:
                    continue
                elsewhere = keyword.arg == MIXED and script.source.has(_MIXES)
                yield self.finding(
                    script,
                    keyword.value,
                    f"`{keyword.arg}` {what}",
                    confidence=Confidence.LOW if elsewhere else None,
                )
