"""What the fixes of the Trainer's rules write runs, and computes what it should."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from transformers import TrainingArguments
from transformers.trainer_pt_utils import LengthGroupedSampler

from gpulint import runtime
from gpulint.engine import Options, fix_source
from gpulint.finding import Effect
from gpulint.registry import select_rules
from gpulint.releases import Range
from gpulint.source import Source

HEAD = """
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertForSequenceClassification
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments, set_seed

set_seed(0)
words = WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3}, unk_token="[UNK]")
plain = Tokenizer(words)
plain.pre_tokenizer = Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]"
)
config = BertConfig(
    vocab_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)
model = BertForSequenceClassification(config)
texts = Dataset.from_dict(
    {"text": ["a " * n + "b" for n in range(1, 25)], "label": [0, 1] * 12}
)
"""
TAIL = """
trainer.train()
losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    runtime._reset()
    yield
    runtime._reset()


def fixed(code: str, *rules: str) -> str:
    """The code after some rules' fixes; each must have done something."""
    options = Options(
        select_rules(rules),
        frozenset(Effect),
        packages=(("transformers", Range((5, 23))),),
    )
    done = fix_source(Source(Path("script.py"), code), options)
    assert {f.code for f in done.applied} == set(rules)
    return done.text


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "script.py", "exec"), names)
    return names


def lengths_in(names: dict[str, Any]) -> list[int]:
    """How many tokens the batches have that a script's Trainer makes."""
    loader = names["trainer"].get_train_dataloader()
    return [batch["input_ids"].shape[1] for batch in loader]


PADDED = (
    HEAD
    + """
def tokenize(rows):
    return tokenizer(
        rows["text"], padding="max_length", truncation=True, max_length=40
    )

train = texts.map(tokenize, batched=True)
{format}
arguments = TrainingArguments(
    "out", num_train_epochs=1, logging_steps=1, use_cpu=False, tf32=False,
    dataloader_pin_memory=False, optim="adamw_torch",
    report_to="none", disable_tqdm=True, save_strategy="no",
)
trainer = Trainer(model, arguments, train_dataset=train{more})
"""
    + TAIL
)


@pytest.mark.parametrize(
    "format",
    [
        "",
        'train.set_format("torch")',
        'train.set_format("torch", columns=["input_ids", "attention_mask", "label"])',
    ],
)
@pytest.mark.parametrize("more", ["", ", processing_class=tokenizer"])
def test_padding_by_batch_computes_the_same(format: str, more: str) -> None:
    code = PADDED.replace("{format}", format).replace("{more}", more)
    before, after = run(code), run(fixed(code, "GPU262"))
    assert after["losses"] == pytest.approx(before["losses"], rel=1e-4)
    assert set(lengths_in(before)) == {40}
    assert max(lengths_in(after)) <= 25


def test_settings_that_were_slow_are_gone() -> None:
    code = PADDED.replace("{format}", "").replace("{more}", "")
    names = run(fixed(code, "GPU363"))
    assert names["arguments"].dataloader_pin_memory is True
    assert names["arguments"].optim == "adamw_torch_fused"
    assert names["losses"] == pytest.approx(run(code)["losses"], rel=1e-4)


UNGROUPED = (
    HEAD
    + """
def tokenize(rows):
    return tokenizer(rows["text"], truncation=True, max_length=100)

train = texts.map(tokenize, batched=True)
arguments = TrainingArguments(
    "out", num_train_epochs=1, logging_steps=1, per_device_train_batch_size=2, seed=1,
    report_to="none", disable_tqdm=True, save_strategy="no",
)
trainer = Trainer(model, arguments, train_dataset=train, processing_class=tokenizer)
"""
    + TAIL
)


def test_texts_of_similar_length_are_drawn_together() -> None:
    before, after = run(UNGROUPED), run(fixed(UNGROUPED, "GPU263"))
    assert sum(lengths_in(after)) < sum(lengths_in(before))
    sampler = after["trainer"]._get_train_sampler()
    assert isinstance(sampler, LengthGroupedSampler)


LOADING = (
    HEAD
    + """
from torch.utils.data import Dataset as OwnDataset

class Texts(OwnDataset):
    def __len__(self):
        return len(texts)

    def __getitem__(self, index):
        row = texts[index]
        return {"labels": row["label"], **tokenizer(row["text"])}

arguments = TrainingArguments(
    "out", num_train_epochs=2, logging_steps=1, fp16=False,
    report_to="none", disable_tqdm=True, save_strategy="no",
)
trainer = Trainer(
    model=model, args=arguments, train_dataset=Texts(), processing_class=tokenizer
)
"""
    + TAIL
)


def test_workers_live_on_and_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("GPULINT_NUM_WORKERS", "2")
    names = run(fixed(LOADING, "GPU261"))
    assert names["arguments"].dataloader_num_workers == 2
    assert names["arguments"].dataloader_persistent_workers is True
    assert names["losses"] == run(LOADING)["losses"]


def test_tf32_is_left_alone_without_a_gpu() -> None:
    assert not torch.cuda.is_available()
    names = run(fixed(LOADING, "GPU362"))
    assert names["arguments"].tf32 is None
    assert names["losses"] == run(LOADING)["losses"]


SHORT = (
    HEAD
    + """
model.save_pretrained("bert-base")
model = BertForSequenceClassification.from_pretrained("bert-base")

def tokenize(rows):
    return tokenizer(rows["text"], truncation=True, max_length=64)

train = texts.map(tokenize, batched=True)
arguments = TrainingArguments(
    "out", num_train_epochs=1, logging_steps=1,
    report_to="none", disable_tqdm=True, save_strategy="no",
)
trainer = Trainer(model, arguments, train_dataset=train, processing_class=tokenizer)
"""
    + TAIL
)


def test_a_larger_batch_comes_with_a_higher_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    after = fixed(SHORT, "GPU461")
    assert run(after)["losses"] == run(SHORT)["losses"]
    monkeypatch.setenv("GPULINT_BATCH_SIZE", "32")
    runtime._reset()
    arguments = run(after)["arguments"]
    assert arguments.per_device_train_batch_size == 32
    assert arguments.learning_rate == pytest.approx(1e-4)


def test_the_arguments_are_those_of_this_release() -> None:
    known = signature(TrainingArguments).parameters
    for name in ("train_sampling_strategy", "tf32", "auto_find_batch_size", "optim"):
        assert name in known
    assert "group_by_length" not in known
    for topics in ({"loading": True}, {"tf32": True}, {"precision": True}):
        assert set(runtime.hf_args(**topics)) <= set(known)


def test_what_an_older_release_lacks_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @dataclass
    class Older:
        dataloader_num_workers: int = 0

    monkeypatch.setenv("GPULINT_NUM_WORKERS", "2")
    monkeypatch.setattr("transformers.training_args.TrainingArguments", Older)
    assert runtime.hf_args(loading=True) == {"dataloader_num_workers": 2}
