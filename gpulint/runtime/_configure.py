"""Let a script choose the policy by which the helpers decide."""

from __future__ import annotations

from ._hardware import introduce
from ._policy import choose_policy, follow_policy
from ._settings import POLICIES


def configure(
    policy: str | None = None,
    *,
    tf32: bool | None = None,
    threads: int | None = None,
    interop_threads: int | None = None,
) -> None:
    """Choose the policy of this process, and settings that it shall not decide.

    "measured", the default: what the machine has decides, what it is called does not.
    "local-cloud": different settings for `environment().kind`:

    |  | local | cloud |
    |---|---|---|
    | TF32 in matrix products and convolutions | on | off |
    | CPU threads of an operation | torch's own | at most 8 |
    | CPU operations at a time | torch's own | at most 4 |
    | workers of a training loader | at most 4 | as measured |
    | batches that its workers have ready together | 2 | 10 |

    with fewer where there are fewer CPUs or little shared memory, and at least one
    batch a worker. TF32 that depends on the place makes results differ between
    machines: that is what this policy is asked to do, and why it is not the default.

    `policy` wins over `GPULINT_POLICY`, `tf32`, `threads` and `interop_threads` over
    the policy; `GPULINT_ENV` says where the script runs. TF32 and threads are set at
    this call, or with `GPULINT_POLICY` at the first helper's; a later line of the
    script wins. Off, under GPULINT_DEBUG and in workers nothing is set.

    Raises ValueError for another policy, and for a number of threads below 1.
    """
    if policy is not None and policy not in POLICIES:
        raise ValueError(f"policy={policy!r} is not one of {', '.join(POLICIES)}")
    numbers = {"threads": threads, "interop_threads": interop_threads}
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ValueError(f"{name}={number!r} is not a number of 1 or more")
    asked = {"tf32": tf32, **numbers}
    overrides = {name: value for name, value in asked.items() if value is not None}
    choose_policy(policy, overrides)
    introduce()
    follow_policy()
