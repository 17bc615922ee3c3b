"""Writes small training scripts as people write them, from a plan."""

from __future__ import annotations

import textwrap

from . import parts
from .plan import Plan, plan_of

HEAD = """\
import copy
import json
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

SEED = 7
EPOCHS = 2
BATCH_SIZE = 32
"""
SEEDS = ["random.seed(SEED)", "np.random.seed(SEED)", "torch.manual_seed(SEED)"]
WEIGHTS = "CLASS_WEIGHTS = torch.tensor([1.0, 1.5, 0.5, 1.0])"
SCALE = "TARGET_SCALE = torch.tensor([0.5])"


def script_of(seed: int) -> str:
    """The script of a seed."""
    return write_script(plan_of(seed))


def write_script(plan: Plan) -> str:
    """The script of a plan."""
    if plan.task == "gan":
        definitions = [parts.GAN_CLASSES, parts.dataset_class(plan)]
    else:
        data = parts.DATA[plan.task]
        definitions = [data, parts.dataset_class(plan), parts.network(plan)]
    head = HEAD
    if plan.constant == "weights":
        head += (WEIGHTS if plan.task == "images" else SCALE) + "\n"
    body = {"flat": flat, "main": in_main, "trainer": in_trainer}[plan.layout](plan)
    pieces = [head, *filter(None, definitions), body]
    return "\n\n".join(piece.rstrip("\n") + "\n" for piece in pieces)


def indent(lines: list[str], depth: int = 1) -> list[str]:
    return [textwrap.indent(line, "    " * depth) for line in lines]


def text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def flat(plan: Plan) -> str:
    """A script whose training stands at module level."""
    epoch = [*train_lines(plan), *evaluate_lines(plan), *end_of_epoch(plan)]
    lines = [*SEEDS, *setup(plan), *loop_over_epochs(plan, epoch), *finish(plan)]
    if plan.loader == "workers" or plan.dataset in ("work", "augment"):
        return text(['if __name__ == "__main__":', *indent(lines)])
    return text(lines)


def in_main(plan: Plan) -> str:
    """A script with functions for an epoch of training and of evaluation."""
    if plan.task == "gan":
        return wrapped_main(plan)
    arguments = ["model", "loader", "criterion", "optimizer"]
    arguments += ["device"] if plan.device != "cuda" else ["use_cuda"]
    extra = ["scaler"] if plan.precision.startswith("amp") else []
    extra += ["scheduler"] if plan.scheduler == "step" else []
    names = ", ".join([*arguments, *extra])
    train = [f"def train_epoch({names}):", *indent(train_lines(plan, "loader"))]
    train += indent(["return epoch_loss"])
    calls = [f"epoch_loss = train_epoch({names.replace('loader', 'train_loader')})"]
    if plan.loader == "in_loop":
        calls = [*parts.build_loader(plan, "train"), *calls]
    pieces = [text(train)]
    if plan.evaluation != "none":
        given = ["model", "loader", "criterion", arguments[-1]]
        signature = f"def evaluate({', '.join(given)}):"
        decorator = ["@torch.no_grad()"] if plan.evaluation == "decorated" else []
        body = [*indent(evaluate_lines(plan, "loader")), *indent(["return val_loss"])]
        pieces.append(text([*decorator, signature, *body]))
        call = ", ".join(given).replace("loader", "val_loader")
        calls.append(f"val_loss = evaluate({call})")
    epoch = [*calls, *end_of_epoch(plan)]
    lines = [*SEEDS, *setup(plan), *loop_over_epochs(plan, epoch), *finish(plan)]
    pieces.append(text(["def main():", *indent(lines)]))
    pieces.append('if __name__ == "__main__":\n    main()\n')
    return "\n\n".join(pieces)


def wrapped_main(plan: Plan) -> str:
    """A script with all of its training in one function."""
    epoch = [*train_lines(plan), *evaluate_lines(plan), *end_of_epoch(plan)]
    lines = [*SEEDS, *setup(plan), *loop_over_epochs(plan, epoch), *finish(plan)]
    main = text(["def main():", *indent(lines)])
    return main + '\n\nif __name__ == "__main__":\n    main()\n'


def in_trainer(plan: Plan) -> str:
    """A script with a class that trains."""
    if plan.task == "gan":
        return wrapped_main(plan)
    names = ["model", "criterion", "optimizer", "train_loader"]
    names += ["val_loader"] if plan.evaluation != "none" else []
    names += ["scaler"] if plan.precision.startswith("amp") else []
    names += ["scheduler"] if plan.scheduler == "step" else []
    names += ["device"] if plan.device != "cuda" else ["use_cuda"]
    given = ", ".join(names)
    body = [f"def __init__(self, {given}):"]
    body += indent([f"self.{name} = {name}" for name in names])
    train = with_self(train_lines(plan, "train_loader"), names)
    body += ["", "def train_epoch(self):", *indent(train)]
    body += indent(["return epoch_loss"])
    calls = ["epoch_loss = trainer.train_epoch()"]
    if plan.loader == "in_loop":
        calls = [
            *parts.build_loader(plan, "train"),
            "trainer.train_loader = train_loader",
            *calls,
        ]
    if plan.evaluation != "none":
        lines = with_self(evaluate_lines(plan, "val_loader"), names)
        decorator = ["@torch.no_grad()"] if plan.evaluation == "decorated" else []
        body += ["", *decorator, "def evaluate(self):", *indent(lines)]
        body += indent(["return val_loss"])
        calls.append("val_loss = trainer.evaluate()")
    epoch = [*calls, *end_of_epoch(plan)]
    made = [*setup(plan), f"trainer = Trainer({given})"]
    lines = [*SEEDS, *made, *loop_over_epochs(plan, epoch), *finish(plan)]
    main = text(["def main():", *indent(lines)])
    trainer = text(["class Trainer:", *indent(body)])
    return "\n\n".join([trainer, main, 'if __name__ == "__main__":\n    main()\n'])


def with_self(lines: list[str], names: list[str]) -> list[str]:
    """The lines with the trainer's own things as attributes."""
    import re

    pattern = re.compile(rf"(?<![\w.\"])({'|'.join(names)})\b(?!=)")
    return [pattern.sub(r"self.\1", line) for line in lines]


def setup(plan: Plan) -> list[str]:
    """Data, loaders, model, optimizer and what else lives as long as the training."""
    lines = ["rng = np.random.default_rng(0)", *parts.pick_device(plan)]
    lines += parts.build_dataset(plan, "train", parts.ROWS)
    if plan.evaluation != "none":
        lines += parts.build_dataset(plan, "val", parts.VALIDATION_ROWS)
    if plan.loader != "in_loop":
        lines += parts.build_loader(plan, "train")
    elif plan.layout == "trainer" and plan.task != "gan":
        lines += ["train_loader = None"]
    if plan.evaluation != "none":
        lines += parts.build_loader(plan, "val")
    if plan.task == "gan":
        return [*lines, *gan_setup(plan)]
    if plan.device == "cuda":
        lines += ["model = Network()", "if use_cuda:", "    model = model.cuda()"]
    else:
        lines += ["model = Network().to(device)"]
    lines += [f"criterion = {criterion(plan)}"]
    lines += [f"optimizer = {parts.OPTIMIZERS[plan.optimizer]}"]
    lines[-1] = lines[-1].format("model.parameters()")
    if plan.scheduler != "none":
        scheduler = parts.SCHEDULERS[plan.scheduler]
        lines += [f"scheduler = torch.optim.lr_scheduler.{scheduler}"]
    if plan.precision == "amp_old":
        lines += ["scaler = torch.cuda.amp.GradScaler()"]
    elif plan.precision == "amp_new":
        kind = "enabled=torch.cuda.is_available()"
        lines += [f'scaler = torch.amp.GradScaler("cuda", {kind})']
    if plan.checkpoint == "best":
        lines += ['best_loss, best_state = float("inf"), None']
    return lines


def criterion(plan: Plan) -> str:
    if plan.task == "images":
        return "nn.CrossEntropyLoss()"
    return "nn.SmoothL1Loss()" if plan.optimizer == "adam" else "nn.MSELoss()"


def gan_setup(plan: Plan) -> list[str]:
    move = ".to(device)"
    lines = []
    if plan.device == "cuda":
        move = ""
    lines += [f"generator = Generator(){move}", f"critic = Discriminator(){move}"]
    if plan.device == "cuda":
        lines += ["if use_cuda:", "    generator.cuda()", "    critic.cuda()"]
    adam = parts.OPTIMIZERS["adam"]
    lines += [f"opt_g = {adam.format('generator.parameters()')}"]
    lines += [f"opt_d = {adam.format('critic.parameters()')}"]
    return [*lines, "criterion = nn.BCEWithLogitsLoss()"]


def loop_over_epochs(plan: Plan, epoch: list[str]) -> list[str]:
    return ["losses = []", "for epoch in range(EPOCHS):", *indent(epoch)]


def train_lines(plan: Plan, loader: str = "train_loader") -> list[str]:
    from .steps import gan_epoch, train_epoch

    return (gan_epoch if plan.task == "gan" else train_epoch)(plan, loader)


def evaluate_lines(plan: Plan, loader: str = "val_loader") -> list[str]:
    from .steps import evaluate_epoch

    return evaluate_epoch(plan, loader) if plan.evaluation != "none" else []


def end_of_epoch(plan: Plan) -> list[str]:
    """What is done once an epoch."""
    lines = []
    seen = "val_loss" if plan.evaluation != "none" else "epoch_loss"
    if plan.scheduler == "epoch":
        lines += ["scheduler.step()"]
    elif plan.scheduler == "plateau":
        lines += [f"scheduler.step({seen})"]
    lines += ["losses.append(epoch_loss)"]
    if plan.evaluation != "none":
        lines += ["losses.append(val_loss)"]
    if plan.checkpoint == "best":
        lines += [f"if {seen} < best_loss:", f"    best_loss = {seen}"]
        lines += ["    best_state = copy.deepcopy(model.state_dict())"]
    elif plan.checkpoint == "file":
        state = '{"model": model.state_dict(), "epoch": epoch}'
        lines += [f'torch.save({state}, "last.pt")']
    shown = 'f"epoch {epoch}: {epoch_loss:.6f}"'
    if plan.evaluation != "none":
        shown = 'f"epoch {epoch}: {epoch_loss:.6f} {val_loss:.6f}"'
    return [*lines, f"print({shown})"]


def finish(plan: Plan) -> list[str]:
    lines = []
    if plan.checkpoint == "best":
        lines += ["model.load_state_dict(best_state)"]
    elif plan.checkpoint == "file":
        lines += ['model.load_state_dict(torch.load("last.pt")["model"])']
    return [*lines, 'print(json.dumps({"losses": losses}))']
