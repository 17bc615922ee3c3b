"""Derivatives that are differentiated once more are taken under autocast.

## Why
A gradient penalty or a physical residual differentiates what a derivative was made of.
Under autocast the derivative itself has the 8 bits of bfloat16 or the 11 of float16,
and a scaler does not scale it: small ones vanish, and differences of large ones are
noise. With bfloat16 the second derivatives of a small network were wrong by 1 %, and by
more where terms cancel.

## Example
```python
import torch

for x, y in loader:
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        fake = generator(x)
        penalty = gradient_penalty(critic, y, fake.detach())
        loss = critic(fake).mean() - critic(y).mean() + 10 * penalty
    loss.backward()


def gradient_penalty(critic, real, fake):
    x = torch.lerp(real, fake, torch.rand_like(real)).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return (slope.norm(dim=1) - 1).pow(2).mean()
```
becomes
```python
import torch

for x, y in loader:
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        fake = generator(x)
        with torch.autocast("cuda", enabled=False):
            penalty = gradient_penalty(critic, y, fake.detach().float())
        loss = critic(fake).mean() - critic(y).mean() + 10 * penalty
    loss.backward()


def gradient_penalty(critic, real, fake):
    x = torch.lerp(real, fake, torch.rand_like(real)).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return (slope.norm(dim=1) - 1).pow(2).mean()
```

## Fix
`torch.autocast(…, enabled=False)` around the statement with the derivatives and what
they are of, and `.float()` for what comes out of a model under autocast. Withheld
where the derivatives are part of a larger statement, or where it is not clear which
values are in half precision.

## When not
First derivatives; derivatives that are taken outside autocast, or behind a fence; of a
loss that is scaled, as PyTorch's examples do it with a scaler; autocast on the CPU.
Of low confidence where autocast hangs on a setting of which no value is seen.

## Source
"Gradient penalty" in PyTorch's "Automatic Mixed Precision examples"; the errors were
measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.numerics.second_derivatives import Derived, derived_in_half, fenced
from gpulint.script.rewriting.edits import CannotFix, Rewrite


class AMPOverSecondDerivatives(Rule):
    """Reports the call that differentiates with `create_graph` under autocast."""

    effect = Effect.NUMERICS
    needs = Words("create_graph autocast")
    torch = (1, 10)

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call."""
        if script.is_test:
            return
        for derived in derived_in_half(script):
            yield self._report(script, derived)

    def _report(self, script: Script, derived: Derived) -> Finding:
        fix, withheld = None, None
        try:
            edits = fenced(script, derived)
            title = "Take the derivatives in float32"
            fix = Rewrite(title, edits, script.names.torch[1])
        except CannotFix as error:
            withheld = str(error)
        return self.finding(
            script,
            derived.grad.func,
            "derivatives that are differentiated again are taken in half precision",
            fix=fix,
            withheld=withheld,
            related=[(derived.autocast.func, "autocast is on here")],
            confidence=None if derived.sure else Confidence.LOW,
        )
