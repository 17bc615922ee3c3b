"""What the Hugging Face Trainer does by itself is asked of no script that uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source, fix_source
from gpulint.finding import Effect
from gpulint.registry import all_rules, select_rules
from gpulint.source import Source

TEXTS = """\
import evaluate
import numpy as np
import torch
from datasets import load_dataset
from torch import nn
from torch.utils.data import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers import DataCollatorWithPadding, EarlyStoppingCallback
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

set_seed(42)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
metric = evaluate.load("accuracy")
tokenizer = AutoTokenizer.from_pretrained("roberta-large")


class Reviews(Dataset):
    def __init__(self, encodings, labels):
        self.encodings, self.labels = encodings, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        item = {k: torch.tensor(v[index]) for k, v in self.encodings.items()}
        item["labels"] = torch.tensor(self.labels[index])
        return item


class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        weight = torch.tensor([1.0, 3.0], device=model.device)
        loss = nn.CrossEntropyLoss(weight=weight)(outputs.logits, labels)
        return (loss, outputs) if return_outputs else loss

    def training_step(self, model, inputs, *args):
        loss = super().training_step(model, inputs, *args)
        self.seen = self.state.global_step
        return loss


class Printing(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        print(state.global_step, logs)


def compute_metrics(predicted):
    logits, labels = predicted
    return metric.compute(predictions=np.argmax(logits, axis=-1), references=labels)


def make_model():
    return AutoModelForSequenceClassification.from_pretrained("roberta-large")


def main():
    imdb = load_dataset("imdb")
    train = Reviews(tokenizer(imdb["train"]["text"]), imdb["train"]["label"])
    valid = Reviews(tokenizer(imdb["test"]["text"]), imdb["test"]["label"])
    arguments = TrainingArguments(
        output_dir="out",
        num_train_epochs=3,
        per_device_train_batch_size=8,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
    )
    trainer = Weighted(
        model_init=make_model,
        args=arguments,
        train_dataset=train,
        eval_dataset=valid,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=compute_metrics,
        callbacks=[Printing(), EarlyStoppingCallback(2)],
    )
    trainer.train()
    print(trainer.evaluate())
    trainer.save_model("best")


if __name__ == "__main__":
    main()
"""
PICTURES = """\
import torch
from datasets import load_dataset
from torchvision.transforms import Compose, Normalize, RandomResizedCrop, ToTensor
from transformers import AutoImageProcessor, AutoModelForImageClassification
from transformers import Trainer, TrainingArguments

processor = AutoImageProcessor.from_pretrained("google/vit-large-patch16-224")
normalize = Normalize(mean=processor.image_mean, std=processor.image_std)
augment = Compose([RandomResizedCrop(224), ToTensor(), normalize])


def transforms(examples):
    pictures = [augment(picture.convert("RGB")) for picture in examples["image"]]
    return {"pixel_values": pictures, "label": examples["label"]}


def collate(examples):
    pixel_values = torch.stack([example["pixel_values"] for example in examples])
    labels = torch.tensor([example["label"] for example in examples])
    return {"pixel_values": pixel_values, "labels": labels}


beans = load_dataset("beans").with_transform(transforms)
model = AutoModelForImageClassification.from_pretrained("google/vit-large-patch16-224")
arguments = TrainingArguments("out", remove_unused_columns=False, seed=0)
trainer = Trainer(
    model=model,
    args=arguments,
    data_collator=collate,
    train_dataset=beans["train"],
    eval_dataset=beans["validation"],
)
result = trainer.train()
trainer.log_metrics("train", result.metrics)
"""


@pytest.mark.parametrize(
    "text, own",
    [(TEXTS, {"GPU261", "GPU361"}), (PICTURES, {"GPU261", "GPU361"})],
    ids=["texts", "pictures"],
)
def test_only_rules_of_the_trainer_speak_of_it(text: str, own: set[str]) -> None:
    source = Source(Path("script.py"), text)
    findings = check_source(source, Options(all_rules())).findings
    assert {f.code for f in findings} == own


TOPICS = """\
from transformers import AutoModelForImageClassification, Trainer, TrainingArguments

from gpulint import runtime

model = AutoModelForImageClassification.from_pretrained("google/vit-base-patch16-224")


class Photos(Dataset):
    def __len__(self):
        return 9

    def __getitem__(self, index):
        return decode(open(self.paths[index]).read())


arguments = TrainingArguments("out", {call})
Trainer(model, arguments, train_dataset=Photos()).train()
"""


@pytest.mark.parametrize(
    "before, after",
    [
        (
            "**runtime.hf_args(precision=True)",
            "**runtime.hf_args(precision=True, loading=True)",
        ),
        (
            "**runtime.hf_args(loading=True)",
            "**runtime.hf_args(precision=True, loading=True)",
        ),
        (
            "dataloader_num_workers=0, **runtime.hf_args({'seed': 1}, precision=True)",
            "**runtime.hf_args({'seed': 1}, precision=True, loading=True)",
        ),
        (
            "**runtime.hf_args(\n    precision=True,  # as on the cluster\n)",
            "**runtime.hf_args(\n    precision=True, loading=True,  # as on the cluster\n)",
        ),
        (
            "dataloader_num_workers=0, seed=1",
            "seed=1, **runtime.hf_args(precision=True, loading=True)",
        ),
    ],
)
def test_what_the_machine_decides_stands_in_one_call(before: str, after: str) -> None:
    rules = select_rules(("GPU261", "GPU361"))
    source = Source(Path("script.py"), TOPICS.replace("{call}", before))
    together = fix_source(source, Options(rules, frozenset(Effect)))
    steps = source
    for effect in (Effect.NUMERICS, Effect.RANDOM):
        allow = frozenset({Effect.EXACT, effect})
        steps = steps.with_text(fix_source(steps, Options(rules, allow)).text)
    assert steps.text == together.text
    assert f"({after})" in together.text.replace('"out", ', "")
