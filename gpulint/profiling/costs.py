"""What is measured for a rule's findings: the one place that says it.

The hundreds of a code say what is wasted, so they decide; what differs is listed below
them. No figure is a promise: it is the time in which the waste takes place, all of it.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Measure(enum.Enum):
    """A time of a step; the value completes "at most 12 % of a step: ..."."""

    LINES = "its lines"
    SAMPLES = "its lines, which run for each sample"
    WAIT = "the wait for its loader"
    STARTS = "the wait for the first batch of a pass"
    ALL_WAITS = "the wait for data"
    OPTIMIZER = "the optimizer's step"
    MATRIX = "matrix products and convolutions on the GPU"
    TO_DEVICE = "copies from the host to the GPU"
    COMPUTE = "all but the wait for data"
    # and what is no time that could be measured
    PART = "it is no work of its own, so its share of a step cannot be told"
    BATCH = "it is about the whole step; `gpulint tune` tries other batch sizes"
    MEMORY = "it costs memory, not time"
    OUTSIDE = "it is no part of a step"
    RESULTS = "it is about results, errors or warnings, not about time"


class Cost(NamedTuple):
    """What is measured, and whether it can be without a GPU."""

    measure: Measure
    needs_gpu: bool = False


COSTS = {
    # Copies and waits: without a GPU neither takes place.
    "GPU1": Cost(Measure.LINES, needs_gpu=True),
    "GPU103": Cost(Measure.LINES),  # rows are read on the host
    "GPU108": Cost(Measure.RESULTS),
    "GPU109": Cost(Measure.LINES),  # a loop of Python's
    # Loading.
    "GPU2": Cost(Measure.WAIT),
    "GPU202": Cost(Measure.TO_DEVICE, needs_gpu=True),
    "GPU203": Cost(Measure.STARTS),
    "GPU205": Cost(Measure.STARTS),
    "GPU206": Cost(Measure.SAMPLES),
    "GPU207": Cost(Measure.SAMPLES),
    "GPU208": Cost(Measure.TO_DEVICE, needs_gpu=True),
    "GPU209": Cost(Measure.PART),
    "GPU210": Cost(Measure.RESULTS),
    "GPU212": Cost(Measure.RESULTS),
    # Precision.
    "GPU3": Cost(Measure.MATRIX, needs_gpu=True),
    "GPU303": Cost(Measure.RESULTS),
    "GPU304": Cost(Measure.RESULTS),
    "GPU305": Cost(Measure.RESULTS),
    # Batch and memory.
    "GPU4": Cost(Measure.MEMORY),
    "GPU401": Cost(Measure.BATCH),
    "GPU402": Cost(Measure.BATCH),
    "GPU403": Cost(Measure.LINES),
    "GPU405": Cost(Measure.LINES),
    # Compute.
    "GPU5": Cost(Measure.PART),
    "GPU501": Cost(Measure.COMPUTE, needs_gpu=True),
    "GPU502": Cost(Measure.MATRIX, needs_gpu=True),
    "GPU503": Cost(Measure.MATRIX, needs_gpu=True),
    "GPU504": Cost(Measure.OPTIMIZER, needs_gpu=True),
    "GPU505": Cost(Measure.LINES),
    "GPU508": Cost(Measure.RESULTS),
    # Checkpoints and files.
    "GPU6": Cost(Measure.LINES),
    "GPU603": Cost(Measure.SAMPLES),
    "GPU605": Cost(Measure.OUTSIDE),
    # More than one GPU: the wrapper's own work is outside the lines of the script.
    "GPU7": Cost(Measure.PART, needs_gpu=True),
    # Machine and job.
    "GPU8": Cost(Measure.OUTSIDE),
    "GPU801": Cost(Measure.RESULTS),
    "GPU802": Cost(Measure.PART),
    # Settings files.
    "GPU9": Cost(Measure.PART),
    "GPU901": Cost(Measure.ALL_WAITS),
    "GPU902": Cost(Measure.MATRIX, needs_gpu=True),
    "GPU903": Cost(Measure.BATCH),
    "GPU904": Cost(Measure.RESULTS),
}


def cost_of(code: str) -> Cost:
    """What is measured for a rule: its own entry, or that of its hundred."""
    return COSTS.get(code) or COSTS[code[:4]]
