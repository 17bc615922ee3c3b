"""Settings of TensorFlow and Keras that depend on the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ._limits import available_cpus
from ._log import decide
from ._policy import CLOUD, Policy, choose_policy, policy
from ._settings import POLICIES, settings

MOST_THREADS_OF_FIT = 8  # for a PyDataset: they share one interpreter
LOCAL_CALLS = 4
LEAST_AHEAD = 2


class tf:
    """Helpers for TensorFlow and Keras, called as `runtime.tf.configure()`.

    By default they leave to TensorFlow what it does well itself. The policy
    `local-cloud` (`GPULINT_POLICY`, or `configure`) asks for these, by
    `environment().kind`:

    |  | local | cloud |
    |---|---|---|
    | TF32 | on | off |
    | threads of an operation, operations at a time | TensorFlow's own | at most 8, 4 |
    | batch of n samples | n / 100, 16 to 64 | n / 50, 64 to 128 |
    | elements of a map at a time | 4 | TensorFlow's own |
    | batches ahead | an eighth of the batch size, 2 at least | TensorFlow's own |
    | queue of a PyDataset | 2 | 10 |

    with fewer threads where there are fewer CPUs, and never more samples in a batch
    than there are. With the runtime off each of them gives what the script had.
    """

    @staticmethod
    def configure(
        policy: str | None = None,
        *,
        tf32: bool | None = None,
        threads: int | None = None,
        interop_threads: int | None = None,
        was: Mapping[str, Any] | None = None,
    ) -> None:
        """Let GPU memory grow as it is needed, and set TF32 and threads if asked.

        `tf32`, `threads` (of an operation) and `interop_threads` (operations at a
        time) win over the policy, which sets none by default. `was` holds what the
        script set itself under the same names: that is set with the runtime off and
        under GPULINT_DEBUG. TensorFlow refuses most of it once it has started: call
        this right after the imports; afterwards it is logged and skipped.

        Raises ValueError for another policy.
        """
        if policy is not None and policy not in POLICIES:
            raise ValueError(f"policy={policy!r} is not one of {', '.join(POLICIES)}")
        asked = {"tf32": tf32, "threads": threads, "interop_threads": interop_threads}
        choose_policy(policy, {k: v for k, v in asked.items() if v is not None})
        if settings().off or settings().debug:
            _set(dict(was or {}), "as the script had it")
            return
        _grow()
        its = _chosen()
        wanted = {name: getattr(its, name) for name in asked}
        given = {k: v for k, v in wanted.items() if v is not None}
        _set(given, its.why)
        if "threads" not in given and "interop_threads" not in given:
            decide("threads", f"TensorFlow's own ({its.why})")

    @staticmethod
    def batch_size(default: int, *, samples: int | None = None) -> int:
        """Return the number of samples in a batch.

        `GPULINT_BATCH_SIZE` comes first. Under the policy `local-cloud`, for a data set
        of `samples`, it is what the table above says; else `default`.
        """
        if settings().off or settings().debug:
            return default
        asked = settings().batch_sizes.get("train")
        size, why = default, "as the script has it"
        if asked is not None:
            size, why = asked, "GPULINT_BATCH_SIZE"
        elif samples is not None and _kind() is not None:
            its = _local_batch if _kind() == "local" else _cloud_batch
            size, why = (
                max(1, min(samples, its(samples))),
                f"{_kind()}, {samples} samples",
            )
        decide("batch size", f"{size} ({why})")
        return size

    @staticmethod
    def parallel_calls(was: int | None = None) -> int | None:
        """Return `num_parallel_calls` of a dataset's `map` or `interleave`.

        `tf.data.AUTOTUNE`; under `local-cloud` on a local machine at most 4. Off:
        `was`, None for one after another.
        """
        if settings().off or settings().debug:
            return was
        if _kind() == "local":
            number = max(1, min(LOCAL_CALLS, available_cpus()))
            decide("parallel calls", f"{number} (local)")
            return number
        decide("parallel calls", f"AUTOTUNE ({policy().why})")
        return _autotune()

    @staticmethod
    def prefetch(batch_size: int | None = None, *, was: int | None = None) -> int:
        """Return how many batches a dataset makes ahead.

        `tf.data.AUTOTUNE`; under `local-cloud` on a local machine an eighth of
        `batch_size`, and 2 at least. Off: `was`.
        """
        if (settings().off or settings().debug) and was is not None:
            return was
        if _kind() == "local" and not settings().off:
            number = max(LEAST_AHEAD, (batch_size or 0) // 8)
            decide("prefetch", f"{number} batches (local)")
            return number
        decide("prefetch", f"AUTOTUNE ({policy().why})")
        return _autotune()

    @staticmethod
    def pydataset_args(**was: Any) -> dict[str, Any]:
        """Return the arguments of a `keras.utils.PyDataset` about loading.

        Threads by the CPUs, 8 at most; under `local-cloud` one, and a queue of 2
        batches on a local machine, of 10 elsewhere, which does nothing with one
        worker. Samples come in the same order. Off: `was`.
        """
        if settings().off or settings().debug:
            return was
        kind = _kind()
        if kind is None:
            count = max(1, min(MOST_THREADS_OF_FIT, available_cpus()))
            decide(
                "workers of a PyDataset", f"{count} threads ({available_cpus()} CPUs)"
            )
            return {"workers": count, "use_multiprocessing": False}
        queue = LEAST_AHEAD if kind == "local" else CLOUD.queue
        decide("workers of a PyDataset", f"1, a queue of {queue} ({kind})")
        return {"workers": 1, "use_multiprocessing": False, "max_queue_size": queue}


def _chosen() -> Policy:
    return policy()


def _kind() -> str | None:
    """`local` or `cloud` where the policy asks for the place, else None."""
    place = policy().place
    return None if place is None else place.kind


def _local_batch(samples: int) -> int:
    return min(64, max(16, samples // 100))


def _cloud_batch(samples: int) -> int:
    return min(128, max(64, samples // 50))


def _autotune() -> int:
    import tensorflow

    return int(tensorflow.data.AUTOTUNE)


def _grow() -> None:
    """Take GPU memory as it is needed: others can use the rest."""
    import tensorflow

    devices = tensorflow.config.list_physical_devices("GPU")
    for device in devices:
        _tried(
            "memory",
            "grows as it is needed",
            lambda device=device: (  # type: ignore[misc]
                tensorflow.config.experimental.set_memory_growth(device, True)
            ),
        )
    if not devices:
        decide("memory", "as it was (no GPU)")


def _set(values: Mapping[str, Any], why: str) -> None:
    """TF32 and threads, where TensorFlow still takes them."""
    import tensorflow

    config = tensorflow.config
    setters: dict[str, tuple[str, Callable[[Any], None]]] = {
        "tf32": ("TF32", config.experimental.enable_tensor_float_32_execution),
        "threads": ("threads", config.threading.set_intra_op_parallelism_threads),
        "interop_threads": (
            "operations at a time",
            config.threading.set_inter_op_parallelism_threads,
        ),
    }
    for name, value in values.items():
        label, setter = setters[name]
        said = ("on" if value else "off") if name == "tf32" else value
        _tried(label, f"{said} ({why})", lambda v=value, s=setter: s(v))  # type: ignore[misc]


def _tried(label: str, said: str, act: Callable[[], None]) -> None:
    try:
        act()
    except RuntimeError:
        said = "skipped (TensorFlow had started before)"
    decide(label, said)
