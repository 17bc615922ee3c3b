"""What MindSpore's rules say by the releases that a project allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source, fix_source
from gpulint.finding import Effect
from gpulint.registry import find_rule
from gpulint.releases import allowed
from gpulint.source import Source

OPTION = """\
import mindspore as ms

ms.set_context(mode=ms.GRAPH_MODE, device_target=args.device, device_id=3)
"""
DEAD = "import mindspore as ms\n\nms.set_context(enable_mem_reuse=True)\n"
FUSED = "import mindspore as ms\n\nms.set_context(enable_graph_kernel=True)\n"
ROWS = """\
import mindspore.dataset as ds

data = ds.GeneratorDataset(source, ["x"], num_parallel_workers=4, max_rowsize=64)
"""
UNSUNK = """\
import mindspore as ms

model = ms.Model(network, loss_fn, optimizer)
model.train(3, dataset)
"""


def options(code: str, releases: str) -> Options:
    rule = find_rule(code)
    assert rule is not None
    packages = (("mindspore", allowed(releases)),) if releases else ()
    return Options((rule,), frozenset(Effect), packages=packages)


def fixed(code: str, text: str, releases: str) -> str:
    return fix_source(Source(Path("train.py"), text), options(code, releases)).text


@pytest.mark.parametrize(
    "code, text, releases, found",
    [
        *[("GPU881", OPTION, "", 0), ("GPU881", OPTION, ">=2.2", 0)],
        *[("GPU881", OPTION, ">=2.5", 1), ("GPU582", DEAD, "<2.6", 0)],
        *[("GPU582", DEAD, "", 1), ("GPU582", DEAD, ">=2.2", 1)],
        *[("GPU583", FUSED, "==2.2.14", 0), ("GPU583", FUSED, ">=2.2", 1)],
        *[("GPU283", ROWS, "==2.2.14", 0), ("GPU283", ROWS, ">=2.2", 1)],
        *[("GPU584", UNSUNK, ">=1.8", 0), ("GPU584", UNSUNK, ">=2.2", 1)],
    ],
)
def test_findings_follow_the_releases(
    code: str, text: str, releases: str, found: int
) -> None:
    source = Source(Path("train.py"), text)
    assert len(check_source(source, options(code, releases)).findings) == found


def test_a_device_that_was_chosen_is_set_by_the_newer_function() -> None:
    assert fixed("GPU881", OPTION, ">=2.5") == (
        "import mindspore as ms\n\n"
        "ms.set_device(args.device, 3)\n"
        "ms.set_context(mode=ms.GRAPH_MODE)\n"
    )


def test_no_second_device_is_set_by_it() -> None:
    text = f"{OPTION}ms.set_context(device_id=args.number)\n"
    assert fixed("GPU881", text, ">=2.5") == text


def test_the_level_of_compiling_is_written_where_all_releases_have_it() -> None:
    assert fixed("GPU583", FUSED, ">=2.2") == FUSED
    level = 'ms.set_context(jit_config={"jit_level": "O1"})'
    assert level in fixed("GPU583", FUSED, ">=2.3")
