"""An evaluation loop records a graph of every batch that nobody differentiates.

## Why
Outside `torch.no_grad()` each operation on the model's parameters keeps its inputs for
a backward pass. In an evaluation that pass never comes: the activations of every layer
take memory until the outputs are gone, so that the evaluation batch can be no larger
than the training batch, and recording costs host time for every operation.
`model.eval()` only switches layers such as dropout; it does not stop the recording.

## Example
```python
import torch
from torchvision.models import resnet18

model = resnet18().cuda()


def validate(loader):
    model.eval()
    correct = 0
    for images, labels in loader:
        predicted = model(images.cuda()).argmax(dim=1)
        correct += (predicted == labels.cuda()).sum()
    return correct.item() / len(loader.dataset)
```
becomes
```python
import torch
from torchvision.models import resnet18

model = resnet18().cuda()


@torch.no_grad()
def validate(loader):
    model.eval()
    correct = 0
    for images, labels in loader:
        predicted = model(images.cuda()).argmax(dim=1)
        correct += (predicted == labels.cuda()).sum()
    return correct.item() / len(loader.dataset)
```

## Fix
`@torch.no_grad()` on a function that does nothing but evaluate; `with torch.no_grad():`
around the loop where the function does more. The outputs are the same, bit for bit. If
the model may hold `nn.Transformer…` layers or `nn.MultiheadAttention`, these take
another path in evaluation mode without gradients, which rounds differently, as
`scaled_dot_product_attention` does on MPS; with a padding mask that path also fills
padded positions with zeros, so there is no fix then. Nor where other code would run
without gradients in between: while a task waits, or before a generator goes on.
A single call of the model after `model.eval()`, outside loops over batches, is wrapped
alone. There is no fix for a loop that trains or evaluates as a parameter says.
`torch.inference_mode()` saves a little more, but tensors made under it can never take
part in training.

## When not
Evaluations that need gradients are not reported: `autograd.grad`, `backward` or
`requires_grad` in the loop or in what it calls (physics residuals, adversarial attacks,
saliency maps, adaptation at test time), loops that zero gradients or hand the optimizer
to a call, whose update may lie out of sight (`scaler(loss, optimizer)`), nor losses
that are collected for a later `backward()`, nor functions whose callers, tests aside,
switch gradients off (`no_grad`, also in a decorator of the program, or
`torch.set_grad_enabled(False)` before the call), nor
`Variable(x, volatile=True)` of a project for torch 0.3, nor a single pass in a function
that is handed on, as a factory of step functions does. Pipelines of diffusers and
transformers switch gradients off themselves, as do modules whose `forward` runs all its
parts under `no_grad`, and a model none of whose parameters asks for one
(`requires_grad_(False)`) builds no graph; one of which only the parameters of some list
do builds that of a layer. So are models that may take derivatives of what they give, as
forces of energies: the project does somewhere, and which model it is is not known, or
it does in the model's files. A single pass that is made once, such as a last test
behind the training, is of low confidence.

## Source
"Autograd mechanics, Locally disabling gradient computation" in the PyTorch
documentation; the conditions of the fast path stand in that of
`torch.nn.TransformerEncoderLayer` and `torch.nn.MultiheadAttention`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index.walk import FUNCTIONS, walk, walk_scope
from gpulint.rule import Rule, StepLoops
from gpulint.script import Loop, Script
from gpulint.script.frameworks.lightning import runs_without_grad
from gpulint.script.modelling.attention import may_hold_attention, takes_padding_mask
from gpulint.script.rewriting.edits import InsertBefore, Rewrite, Wrap
from gpulint.script.training.evaluation import (
    asks_for_volatile,
    called_module,
    graph_builder,
    leaves_evaluation,
)
from gpulint.script.training.single_pass import modes_without_grad, single_passes
from gpulint.script.training.step_calls import is_backward, is_step

CALLS = 2  # that are followed back from a single pass
MASKED = "attention with a padding mask gives other values without gradients"


class GradInEval(Rule):
    """Fires on the `for` statement of the evaluation loop, or on a single call."""

    effect = Effect.EXACT
    torch = (1, 0)
    needs = StepLoops(
        *(
            f"{moves} {name} for torch"
            for name in ("eval", "val", "test", "infer", "pred")
            for moves in ("<move>", "cuda")
        )
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a loop, or a call outside loops."""
        for loop in script.eval_loops:
            call = graph_builder(script, loop)
            if call is not None and not runs_without_grad(script, loop.node):
                yield self._finding(script, loop, call)
        for call in single_passes(script):
            if not runs_without_grad(script, call):
                yield self._single(script, call)
        for loop, call, switched in modes_without_grad(script):
            yield self.finding(
                script,
                loop.node,
                f"`{script.text(switched)}` runs this loop without a backward pass, "
                f"but `{script.text(call.func)}` builds a graph for every batch",
                withheld="the loop trains when it is called in another way",
                related=[
                    (call.func, "the model runs here"),
                    (switched.func, "nothing is differentiated in this call"),
                ],
            )

    def _single(self, script: Script, call: ast.Call) -> Finding:
        attention = may_hold_attention(script, called_module(call))
        statement = script.index.statement(call)
        withheld = None
        if attention and takes_padding_mask(script):
            withheld = MASKED
        elif not _binds_locally(script, statement):
            withheld = "the call is part of a larger statement"
        torch, imports = script.names.torch
        wrap = Wrap((statement,), f"with {torch}.no_grad():")
        rewrite = Rewrite("Run the model without gradients", (wrap,), imports)
        return self.finding(
            script,
            call.func,
            f"`{script.text(call.func)}` builds a graph in an evaluation, and nothing "
            "differentiates it",
            fix=None if withheld else rewrite,
            withheld=withheld,
            effect=Effect.NUMERICS if attention else Effect.EXACT,
            confidence=Confidence.LOW if _runs_once(script, call, CALLS) else None,
        )

    def _finding(self, script: Script, loop: Loop, call: ast.Call) -> Finding:
        attention = may_hold_attention(script, called_module(call))
        masked = attention and takes_padding_mask(script)
        withheld = _pauses(script, loop)
        if masked:
            withheld = MASKED
        if script.torch_version is None and asks_for_volatile(loop):
            withheld = "`volatile` is of torch 0.3, which has no `no_grad`"
        return self.finding(
            script,
            loop.node,
            f"`{script.text(call.func)}` builds a graph for every evaluation batch, "
            "and nothing differentiates it",
            fix=None if withheld else _rewrite(script, loop),
            withheld=withheld,
            related=[(call.func, "the model runs here")],
            effect=Effect.NUMERICS if attention else Effect.EXACT,
        )


def _runs_once(script: Script, node: ast.AST, calls: int) -> bool:
    """Whether a place is known to be in no loop, nor what leads to it."""
    if script.loops_around(node):
        return False
    function = script.index.function(node)
    if function is None:
        return True
    callers = script.resolver.calls.callers(function) if calls else ()
    return bool(callers) and all(
        _runs_once(script.of(call), call, calls - 1) for call in callers
    )


def _binds_locally(script: Script, statement: ast.stmt) -> bool:
    """Whether a statement is simple, and binds nothing but a function's own names."""
    if isinstance(statement, ast.Expr):
        return True
    scope = script.index.scope(statement)
    declared = {
        name
        for node in walk_scope(scope)
        if isinstance(node, (ast.Global, ast.Nonlocal))
        for name in node.names
    }
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    parts = [p for t in targets for p in walk(t) if not isinstance(p, ast.expr_context)]
    names = [p.id for p in parts if isinstance(p, ast.Name)]
    plain = all(isinstance(p, (ast.Name, ast.Tuple, ast.List)) for p in parts)
    return bool(names) and plain and declared.isdisjoint(names)


def _rewrite(script: Script, loop: Loop) -> Rewrite:
    torch, imports = script.names.torch
    function = loop.function
    if function is not None and _only_evaluates(script, loop, function):
        edit = InsertBefore(function, f"@{torch}.no_grad()")
        return Rewrite(f"Run `{function.name}` without gradients", (edit,), imports)
    wrap = Wrap((loop.node,), f"with {torch}.no_grad():")
    return Rewrite("Run the loop without gradients", (wrap,), imports)


def _pauses(script: Script, loop: Loop) -> str | None:
    """Why other code would run without gradients while the loop is under way."""
    function = loop.function
    if isinstance(loop.node, ast.AsyncFor) or any(
        isinstance(n, (ast.Await, ast.AsyncFor, ast.AsyncWith))
        for n in walk_scope(loop.node)
    ):
        return "other tasks run while it waits"
    gives = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(loop.node))
    if gives and not (function and _only_evaluates(script, loop, function)):
        return "the code that takes what is yielded would run without gradients"
    return None


def _only_evaluates(
    script: Script, loop: Loop, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> bool:
    """Whether a decorator changes nothing but the evaluation.

    A generator under the decorator keeps gradients off only while it runs itself.
    """
    if isinstance(function, ast.AsyncFunctionDef) or function.decorator_list:
        return False
    if loop.node not in function.body:
        return False
    if any(isinstance(n, (*FUNCTIONS, ast.ClassDef)) for n in walk(*function.body)):
        return False
    return not any(
        (isinstance(node, ast.Call) and (is_backward(node) or is_step(node)))
        or (isinstance(node, ast.Attribute) and node.attr == "requires_grad_")
        for node in walk_scope(function)
    ) and not leaves_evaluation(script, loop, function)
