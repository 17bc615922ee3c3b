"""The models that a Hugging Face Trainer is given, and what their samples are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpulint.script.samples.tokenized import find_tokenizing, values

if TYPE_CHECKING:
    from gpulint.script.frameworks.hf_trainers import HfTrainer
    from gpulint.script.model import Script

PATCHES = 197  # of a picture of 224 x 224 in squares of 16, and a token for the class
_FROM = re.compile(r"^transformers\.(\w+\.)*(?P<cls>\w+)\.from_pretrained$")
_OF_TEXTS = re.compile(r"For(Sequence|Token)Classification$")
_OF_PICTURES = re.compile(r"ForImageClassification$")
# Checkpoints whose names say that they have some hundred million weights, or fewer.
_SMALL = re.compile(
    r"distil|(?:^|[-_/])(?:tiny|mini|small|base)(?:[-_/.\d]|$)", re.IGNORECASE
)
_LARGE = re.compile(
    r"large|huge|giant|xl\b|xxl|(?:^|[-_/])\d+(?:\.\d+)?b(?:[-_/]|$)", re.IGNORECASE
)


def small_checkpoint(script: Script, trainers: list[HfTrainer]) -> str | None:
    """The name of a checkpoint that is surely small, where all Trainers have such."""
    found = [name or "" for _, name in _checkpoints(script, trainers)]
    small = [n for n in found if _SMALL.search(n) and not _LARGE.search(n)]
    return small[0] if small and len(small) == len(found) else None


def samples_in_words(
    script: Script, trainers: list[HfTrainer]
) -> tuple[str, int] | None:
    """What small models are trained on, and how many tokens of a sample they see.

    None for other models, and for texts whose greatest length is not written.
    """
    classes = {cls for cls, _ in _checkpoints(script, trainers)}
    if classes and all(map(_OF_PICTURES.search, classes)):
        return "pictures", PATCHES
    if not classes or not all(map(_OF_TEXTS.search, classes)):
        return None
    longest = longest_text(script)
    return (f"texts of at most {longest} tokens", longest) if longest else None


def classifies(script: Script, trainers: list[HfTrainer]) -> bool:
    """Whether all Trainers have models that classify texts or pictures."""
    classes = {cls for cls, _ in _checkpoints(script, trainers)}
    return bool(classes) and all(
        _OF_TEXTS.search(cls) or _OF_PICTURES.search(cls) for cls in classes
    )


def longest_text(script: Script) -> int | None:
    """The greatest length, in tokens, to which all texts of a file are cut."""
    found: list[int] = []
    for tokenizing in find_tokenizing(script):
        lengths = values(script, tokenizing.call, "max_length")
        numbers = [v.constant for v in lengths.known if isinstance(v.constant, int)]
        truncated = values(script, tokenizing.call, "truncation")
        known = lengths.complete and numbers and truncated.known
        if not known or truncated.any_in(False):
            return None
        found += numbers
    return max(found, default=None)


def _checkpoints(
    script: Script, trainers: list[HfTrainer]
) -> list[tuple[str, str | None]]:
    """The class and the checkpoint of each model; `("", None)` where not known."""
    found: list[tuple[str, str | None]] = []
    for trainer in trainers:
        calls = trainer.calls("model")
        if not calls:
            found.append(("", None))
        for call in calls or ():
            known = _FROM.match(script.index.qualified(call.func) or "")
            if known is None:
                found.append(("", None))
                continue
            its = script.evaluator.argument(call, "pretrained_model_name_or_path", 0)
            names = [script.evaluator.constant(n) for n in its.nodes]
            text = names[0] if len(names) == 1 and isinstance(names[0], str) else None
            found.append((known["cls"], text))
    return found
