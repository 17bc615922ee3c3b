"""An argument of `Accelerator` that newer releases of Accelerate refuse.

## Why
`fp16`, `logging_dir` and the options of loaders left the signature of `Accelerator`.
The call raises TypeError before anything is trained.

## Example
```python
from accelerate import Accelerator

accelerator = Accelerator(fp16=True, logging_dir="runs")
```
becomes
```python
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="fp16", project_dir="runs")
```

## Fix
`fp16=True` becomes `mixed_precision="fp16"`, `fp16=False` becomes
`mixed_precision="no"`; `logging_dir` becomes `project_dir`. The options of loaders go
into `DataLoaderConfiguration`, which the finding says.

Withheld where the project allows a release that does not know the new name, where the
new argument may be given too, and where the value is not written in the call.

## When not
The project allows no release that refuses the argument; where it allows one that takes
it, or says nothing, the finding is of low confidence: that one runs the program. The
argument may come from `**kwargs` that cannot be read. The call stands in a `try` or
behind a test of the version. `split_batches`, which is still taken, though it does
nothing from 1.0 on.

## Source
The signatures of `Accelerator` in Accelerate 0.14 to 1.15, compared with each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Calls, Rule
from gpulint.script import Script
from gpulint.script.frameworks.removed_arguments import (
    Removed,
    Use,
    in_place_of,
    removed_uses,
)
from gpulint.script.frameworks.trainer_calls import Maker, names_of, trainer_calls
from gpulint.script.rewriting.edits import Replace, Rewrite

LOADING = "`dataloader_config=DataLoaderConfiguration(…)` has it"
REMOVED = {
    "fp16": Removed((0, 16), "mixed_precision", (0, 14)),
    "logging_dir": Removed((0, 20), "project_dir", (0, 16)),
    "dispatch_batches": Removed((1, 0), instead=LOADING),
    "even_batches": Removed((1, 0), instead=LOADING),
    "use_seedable_sampler": Removed((1, 0), instead=LOADING),
}


class AccelerateRemovedArgument(Rule):
    effect = Effect.EXACT
    needs = Calls(*names_of(Maker.ACCELERATOR))
    framework = "accelerate"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each argument."""
        for made in trainer_calls(script, Maker.ACCELERATOR):
            for use in removed_uses(script, made, REMOVED):
                withheld = use.why_not_renamed() or _has_config(use)
                fix = None if withheld else use.renamed()
                if fix and use.name == "fp16":
                    fix = _mixed(use)
                    withheld = None if fix else "its value is not a constant"
                yield self.finding(
                    script,
                    use.at,
                    use.message,
                    fix=fix,
                    withheld=withheld,
                    related=use.related,
                    severity=use.severity,
                    confidence=use.confidence,
                )


def _has_config(use: Use) -> str | None:
    """Before 0.21, `project_dir` beside a configuration sets no folder for trackers."""
    if use.name != "logging_dir" or use.made.argument("project_config").absent:
        return None
    return "`project_config` is given, whose `ProjectConfiguration` has `logging_dir=`"


def _mixed(use: Use) -> Rewrite | None:
    """`mixed_precision=` with what `fp16` said."""
    if not isinstance(use.written, ast.Constant):
        return None
    value = '"fp16"' if use.written.value else '"no"'
    edit = Replace(use.made.call, in_place_of("fp16", mixed_precision=value))
    return Rewrite(f"Write `mixed_precision={value}`", (edit,))
