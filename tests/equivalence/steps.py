"""Epochs of training and evaluation in generated scripts."""

from __future__ import annotations

from .plan import Plan


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def train_epoch(plan: Plan, loader: str) -> list[str]:
    """One epoch of training."""
    lines = ["model.train()"]
    if plan.loader == "in_loop" and plan.layout == "flat":
        from .parts import build_loader

        lines = [*build_loader(plan, "train"), *lines]
    lines += {"list": ["step_losses = []"]}.get(plan.total, ["running = 0.0"])
    lines += ["correct = 0.0"] if plan.metric != "none" else []
    lines += ["count = 0"] if plan.total == "weighted" else []
    lines += ["optimizer.zero_grad()"] if plan.accumulate == "yes" else []
    head, first = loop_head(plan, loader)
    step = [*first, *unpack(plan), *constants(plan), *forward(plan)]
    step += [*backward(plan), *bookkeeping(plan)]
    lines += [*head, *indent(step)]
    return [*lines, *epoch_loss(plan, loader)]


def loop_head(plan: Plan, loader: str) -> tuple[list[str], list[str]]:
    """The loop's head, and what stands first in it."""
    form = {"tuple": "x, y", "dict": "batch", "whole": "batch"}[plan.batch]
    if plan.loop == "next":
        steps = [f"batches = iter({loader})", f"for step in range(len({loader})):"]
        return steps, [f"{form} = next(batches)"]
    counted = plan.loop == "enumerate" or plan.log == "yes" or plan.accumulate == "yes"
    if counted:
        form = f"({form})" if plan.batch == "tuple" else form
        return [f"for step, {form} in enumerate({loader}):"], []
    return [f"for {form} in {loader}:"], []


def move(plan: Plan, value: str) -> str:
    """The value on the device."""
    if plan.device == "cuda":
        return f"{value}.cuda()"
    late = ", non_blocking=True" if plan.move == "non_blocking" else ""
    return f"{value}.to(device{late})"


def unpack(plan: Plan) -> list[str]:
    """The batch's parts, on the device."""
    if plan.batch == "whole":
        lines = [
            f"first = {move(plan, 'batch[:, 0:4]')}",
            f"second = {move(plan, 'batch[:, 4:7]')}",
            f"y = {move(plan, 'batch[:, 7].unsqueeze(1)')}",
        ]
        plain = ["first, second = batch[:, 0:4], batch[:, 4:7]"]
        plain += ["y = batch[:, 7].unsqueeze(1)"]
        joined = ["x = torch.cat([first, second], dim=1)"]
        if plan.device == "cuda":
            lines = ["if use_cuda:", *indent(lines), "else:", *indent(plain)]
        return [*lines, *joined]
    x, y = ('batch["x"]', 'batch["y"]') if plan.batch == "dict" else ("x", "y")
    moved = [f"x = {move(plan, x)}", f"y = {move(plan, y)}"]
    if plan.move == "one_line":
        moved = [f"x, y = {move(plan, x)}, {move(plan, y)}"]
    elif plan.move == "helper" and plan.batch == "dict" and plan.device != "cuda":
        together = "batch = {key: value.to(device) for key, value in batch.items()}"
        return [together, 'x, y = batch["x"], batch["y"]']
    if plan.device == "cuda":
        first = [f"x, y = {x}, {y}"] if plan.batch == "dict" else []
        inner = [line.replace(x, "x").replace(y, "y") for line in moved]
        return [*first, "if use_cuda:", *indent(inner)]
    return moved


def constants(plan: Plan) -> list[str]:
    """Tensors that the step makes or moves."""
    where = "x.device" if plan.device == "cuda" else "device"
    if plan.constant == "weights":
        name = "CLASS_WEIGHTS" if plan.task == "images" else "TARGET_SCALE"
        return [f"weights = {name}.to({where})"]
    if plan.constant == "zeros":
        return [f"x = x + torch.zeros(x.size(0), 1).to({where}).mean()"]
    if plan.constant == "tensor":
        return [f"shift = torch.tensor([0.1, 0.2]).to({where})", "x = x + shift.mean()"]
    if plan.constant == "noise":
        return [f"x = x + 0.01 * torch.randn(x.shape).to({where})"]
    return []


def loss_expression(plan: Plan) -> list[str]:
    weighted = plan.constant == "weights"
    if plan.task == "images" and weighted:
        return ["out = model(x)", "loss = F.cross_entropy(out, y, weight=weights)"]
    if weighted:
        return ["out = model(x)", "loss = criterion(out * weights, y * weights)"]
    return ["out = model(x)", "loss = criterion(out, y)"]


def forward(plan: Plan) -> list[str]:
    """The forward pass and the loss."""
    lines = loss_expression(plan)
    lines += ["loss = loss / 2"] if plan.accumulate == "yes" else []
    kind = "device.type" if plan.device == "object" else "device"
    context = {
        "float32": "",
        "amp_old": "with torch.cuda.amp.autocast():",
        "amp_new": 'with torch.autocast("cuda", enabled=torch.cuda.is_available()):',
        "bf16": f"with torch.autocast({kind}, dtype=torch.bfloat16):",
    }[plan.precision]
    first = []
    if plan.accumulate == "no":
        first = {
            "before": ["optimizer.zero_grad()"],
            "filled": ["optimizer.zero_grad(set_to_none=False)"],
            "model": ["model.zero_grad()"],
            "loop": [
                "for p in model.parameters():",
                "    if p.grad is not None:",
                "        p.grad.zero_()",
            ],
        }.get(plan.zero, [])
    if plan.zero in ("model", "before"):
        return [*first, *([context, *indent(lines)] if context else lines)]
    return [*([context, *indent(lines)] if context else lines), *first]


def backward(plan: Plan) -> list[str]:
    """The backward pass and the optimizer's step."""
    scaled = plan.precision.startswith("amp")
    run = ["scaler.scale(loss).backward()" if scaled else "loss.backward()"]
    update: list[str] = []
    if plan.clip != "none" and scaled:
        update += ["scaler.unscale_(optimizer)"]
    if plan.clip == "norm":
        update += ["nn.utils.clip_grad_norm_(model.parameters(), 1.0)"]
    elif plan.clip == "value":
        update += ["nn.utils.clip_grad_value_(model.parameters(), 0.5)"]
    if scaled:
        update += ["scaler.step(optimizer)", "scaler.update()"]
    else:
        update += ["optimizer.step()"]
    if plan.zero == "after":
        update += ["optimizer.zero_grad()"]
    if plan.scheduler == "step":
        update += ["scheduler.step()"]
    if plan.accumulate == "yes":
        return [*run, "if (step + 1) % 2 == 0:", *indent(update)]
    return [*run, *update]


def bookkeeping(plan: Plan) -> list[str]:
    """Sums and messages of the step."""
    lines = {
        "item": ["running += loss.item()"],
        "weighted": ["running += loss.item() * x.size(0)", "count += x.size(0)"],
        "tensor": ["running += loss"],
        "detached": ["running += loss.detach()"],
        "list": ["step_losses.append(loss.item())"],
    }[plan.total]
    if plan.metric != "none":
        value = "(out.argmax(dim=1) == y).sum()"
        if plan.task != "images":
            value = "(out - y).abs().mean()"
        read = f"float({value})" if plan.metric == "float" else f"{value}.item()"
        lines = [*lines, f"correct += {read}"]
    if plan.log == "yes":
        shown = 'print(f"step {step}: {loss.item():.4f}")'
        lines = [*lines, "if step % 2 == 0:", f"    {shown}"]
    return lines


def epoch_loss(plan: Plan, loader: str) -> list[str]:
    lines = {
        "weighted": ["epoch_loss = running / count"],
        "list": ["epoch_loss = sum(step_losses) / len(step_losses)"],
        "tensor": [f"epoch_loss = float(running) / len({loader})"],
        "detached": [f"epoch_loss = running.item() / len({loader})"],
    }.get(plan.total, [f"epoch_loss = running / len({loader})"])
    if plan.metric != "none":
        lines = [*lines, 'print(f"metric {correct:.6f}")']
    return lines


def evaluate_epoch(plan: Plan, loader: str) -> list[str]:
    """One pass over the validation data."""
    form = {"tuple": "x, y", "dict": "batch", "whole": "batch"}[plan.batch]
    summed = ["out = model(x)", "val_loss += criterion(out, y).item()"]
    if plan.total == "weighted":
        summed[-1] = "val_loss += criterion(out, y).item() * x.size(0)"
    loop = [f"for {form} in {loader}:", *indent([*unpack(plan), *summed])]
    if plan.evaluation == "no_grad" or (
        plan.evaluation == "decorated" and plan.layout == "flat"
    ):
        loop = ["with torch.no_grad():", *indent(loop)]
    size = f"len({loader}.dataset)" if plan.total == "weighted" else f"len({loader})"
    return ["model.eval()", "val_loss = 0.0", *loop, f"val_loss = val_loss / {size}"]


def gan_epoch(plan: Plan, loader: str) -> list[str]:
    """One epoch of a generator against a critic."""
    lines = ["total_d, total_g = 0.0, 0.0"]
    if plan.loader == "in_loop":
        from .parts import build_loader

        lines = [*build_loader(plan, "train"), *lines]
    x = 'batch["x"]' if plan.batch == "dict" else "x"
    head = f"for {'batch' if plan.batch == 'dict' else 'x, _'} in {loader}:"
    if plan.device == "cuda":
        step = [f"real = {x}.cuda() if use_cuda else {x}"]
        where = "real.device"
    else:
        step = [f"real = {move(plan, x)}"]
        where = "device"
    step += [
        f"ones = torch.ones(real.size(0), 1).to({where})",
        f"zeros = torch.zeros(real.size(0), 1, device={where})",
        f"noise = torch.randn(real.size(0), 6).to({where})",
        "fake = generator(noise)",
        "opt_d.zero_grad()",
        "loss_d = criterion(critic(real), ones)",
        "loss_d = loss_d + criterion(critic(fake.detach()), zeros)",
        "loss_d.backward()",
        "opt_d.step()",
        "opt_g.zero_grad()",
        "loss_g = criterion(critic(fake), ones)",
        "loss_g.backward()",
        "opt_g.step()",
        "total_d += loss_d.item()",
        "total_g += loss_g.item()",
    ]
    end = f"epoch_loss = (total_d + total_g) / len({loader})"
    return [*lines, head, *indent(step), end]
