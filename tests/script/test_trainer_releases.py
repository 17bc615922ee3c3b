"""What rules of trainers say depends on the releases that a project allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path, check_source
from gpulint.finding import Confidence, Finding, Severity
from gpulint.index import Projects
from gpulint.registry import select_rules
from gpulint.releases import Range
from gpulint.source import Source

HF = """\
from transformers import Trainer, TrainingArguments

arguments = TrainingArguments("out", evaluation_strategy="epoch", warmup_ratio=0.1)
trainer = Trainer(model, arguments, tokenizer=tokenizer)
"""
LIGHTNING = """\
import pytorch_lightning as pl

trainer = pl.Trainer(replace_sampler_ddp=False)
"""


def found(text: str, package: str, releases: Range, rule: str) -> list[Finding]:
    options = Options(select_rules((rule,)), packages=((package, releases),))
    return list(check_source(Source(Path("script.py"), text), options).findings)


@pytest.mark.parametrize(
    "package, found",
    [
        ("src/transformers", False),
        ("transformers", False),
        ("transformers/src/transformers", False),
        ("src/models", True),
    ],
)
def test_a_project_runs_with_its_own_package(
    package: str, found: bool, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    for path, text in ((f"{package}/__init__.py", ""), ("examples/run.py", HF)):
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_text(text)
    projects = Projects(lambda root: tuple(sorted(root.rglob("*.py"))))
    options = Options(select_rules(("GPU364",)), projects=projects)
    checked = check_path(tmp_path / "examples" / "run.py", options)
    assert bool(checked.findings) is found


@pytest.mark.parametrize(
    "line, rows",
    [
        ("from transformers import AdamW", [4]),
        ("from transformers.data.metrics import glue_compute_metrics", [4]),
        ("from transformers.tokenization_utils import PreTrainedTokenizer", [4, 5]),
        ("import transformers.onnx", [4]),
        ("from huggingface_hub import HfFolder", [4]),
        ("from transformers import TFAutoModel", [4]),
        ("from transformers import AutoModel", [4, 5]),
        ("def train():\n    from transformers import AdamW", [5, 6]),
    ],
)
def test_imports_that_only_an_older_release_has(line: str, rows: list[int]) -> None:
    """`tokenizer` is gone since transformers 5, which some programs cannot have."""
    findings = found(f"{line}\n{HF}", "transformers", Range(), "GPU364")
    assert sorted({f.place.start.row for f in findings}) == rows


@pytest.mark.parametrize(
    "highest, rows", [((4, 48), []), ((4, 999), [3]), ((5, 2), [3, 4])]
)
def test_only_what_the_newest_release_refuses(
    highest: tuple[int, int], rows: list[int]
) -> None:
    findings = found(HF, "transformers", Range(None, highest), "GPU364")
    assert [f.place.start.row for f in findings] == rows


def test_each_argument_is_reported_where_no_release_is_named() -> None:
    findings = found(HF, "transformers", Range(), "GPU364")
    assert [f.place.start.row for f in findings] == [3, 3, 4]
    assert {f.severity for f in findings} == {Severity.WARNING}
    assert {f.confidence for f in findings} == {Confidence.LOW}  # an older one runs it


def test_an_error_where_every_release_refuses_it() -> None:
    findings = found(HF, "transformers", Range((5, 23)), "GPU364")
    assert [f.severity for f in findings] == [Severity.ERROR] * 3
    assert {f.confidence for f in findings} == {Confidence.HIGH}


@pytest.mark.parametrize(
    "lowest, fixed", [((4, 40), [False, False]), ((4, 41), [True, False])]
)
def test_no_new_name_where_an_older_release_may_run_it(
    lowest: tuple[int, int], fixed: list[bool]
) -> None:
    findings = found(HF, "transformers", Range(lowest), "GPU364")
    its = [f.fix is not None for f in findings if "warmup" not in f.message]
    assert its == fixed


UNGROUPED = """\
from datasets import load_dataset
from transformers import Trainer, TrainingArguments


def tokenize(rows):
    return tokenizer(rows["text"], truncation=True)


train = load_dataset("imdb", split="train").map(tokenize, batched=True)
arguments = TrainingArguments("out")
Trainer(model, arguments, train_dataset=train, tokenizer=tokenizer).train()
"""


@pytest.mark.parametrize(
    "releases, argument",
    [
        (Range((4, 40), (4, 999)), "group_by_length=True"),
        (Range(None, (5, 0)), "group_by_length=True"),
        (Range((5, 23)), 'train_sampling_strategy="group_by_length"'),
        (Range((5, 0)), None),
        (Range((4, 40)), None),
        (Range(), None),
    ],
)
def test_lengths_are_grouped_by_the_argument_of_the_release(
    releases: Range, argument: str | None
) -> None:
    (finding,) = found(UNGROUPED, "transformers", releases, "GPU263")
    if argument is None:
        assert finding.fix is None
        assert "since transformers 5" in str(finding.fix_withheld)
    else:
        assert finding.fix is not None
        (edit,) = finding.fix.edits
        assert argument in edit.content


FUSED = """\
from datasets import load_dataset
from transformers import Trainer, TrainingArguments

arguments = TrainingArguments("out", optim="adamw_torch")
Trainer(model, arguments, train_dataset=load_dataset("imdb", split="train")).train()
"""


@pytest.mark.parametrize("lowest, fixed", [((4, 20), False), ((4, 31), True)])
def test_the_fused_optimizer_where_transformers_has_it(
    lowest: tuple[int, int], fixed: bool
) -> None:
    (finding,) = found(FUSED, "transformers", Range(lowest), "GPU363")
    assert (finding.fix is not None) is fixed


@pytest.mark.parametrize(
    "torch, newest, fixes",
    [((2, 1), (2, 9), [False]), ((2, 8), (2, 9), [True]), ((2, 1), (2, 7), [])],
)
def test_the_fused_optimizer_where_torch_has_it(
    torch: tuple[int, int], newest: tuple[int, int], fixes: list[bool]
) -> None:
    rules = select_rules(("GPU363",))
    options = Options(rules, torch_version=torch, newest_torch=newest)
    findings = check_source(Source(Path("script.py"), FUSED), options).findings
    assert [f.fix is not None for f in findings] == fixes


def test_old_torch_multiplies_in_tf32_by_itself() -> None:
    text = FUSED.replace("optim=", "fp16=False, optim=")
    for newest, count in (((1, 11), 0), ((1, 12), 1)):
        options = Options(select_rules(("GPU362",)), newest_torch=newest)
        findings = check_source(Source(Path("script.py"), text), options).findings
        assert len(findings) == count


def test_lightning_2_has_the_new_name() -> None:
    assert found(LIGHTNING, "lightning", Range((1, 5), (1, 9)), "GPU357") == []
    (finding,) = found(LIGHTNING, "lightning", Range((1, 5)), "GPU357")
    assert finding.fix is None
    (finding,) = found(LIGHTNING, "lightning", Range((2, 0)), "GPU357")
    assert finding.fix is not None
    (finding,) = found(LIGHTNING, "lightning", Range(), "GPU357")
    assert "no release of lightning knows both names" in str(finding.fix_withheld)


PRECISION = """\
import {package} as pl
from torch import nn


class Classifier(pl.LightningModule):
    def __init__(self):
        self.net = nn.Sequential(nn.Conv2d(3, 256, 3), nn.Conv2d(256, 256, 3))


pl.Trainer({given}).fit(Classifier(), loader)
"""


@pytest.mark.parametrize("rule, given", [("GPU351", ""), ("GPU352", "precision=16")])
@pytest.mark.parametrize(
    "package, releases, fixed",
    [
        ("pytorch_lightning", Range(), False),
        ("pytorch_lightning", Range(None, (2, 5)), False),
        ("pytorch_lightning", Range((1, 9)), False),
        ("pytorch_lightning", Range((2, 0)), True),
        ("lightning", Range(), True),
        ("lightning", Range((1, 9)), False),
    ],
)
def test_precision_of_lightning_2(
    rule: str, given: str, package: str, releases: Range, fixed: bool
) -> None:
    text = PRECISION.format(package=package, given=given)
    (finding,) = found(text, "lightning", releases, rule)
    assert (finding.fix is not None) is fixed


def test_accelerate_queues_copies_from_its_release_that_can() -> None:
    folder = Path(__file__).parents[2] / "fixtures/gpu162_accelerate_blocking_transfer"
    text = (folder / "bad.py").read_text("utf-8")
    assert found(text, "accelerate", Range(None, (0, 29)), "GPU162") == []
    (finding,) = found(text, "accelerate", Range((0, 29)), "GPU162")
    assert "without `non_blocking`" in str(finding.fix_withheld)
    for releases in (Range((0, 30)), Range(), Range(None, (0, 30))):
        (finding,) = found(text, "accelerate", releases, "GPU162")
        assert finding.fix is not None


@pytest.mark.parametrize("newest, number", [((1, 5), 0), ((1, 6), 1), (None, 1)])
def test_lightning_has_mixed_precision_from_torch_1_6_on(
    newest: tuple[int, int] | None, number: int
) -> None:
    text = PRECISION.format(package="pytorch_lightning", given="")
    options = Options(select_rules(("GPU351",)), newest_torch=newest)
    findings = check_source(Source(Path("script.py"), text), options).findings
    assert len(findings) == number
