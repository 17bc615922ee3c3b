"""A file is not valid Python, so nothing in it was checked.

## Why
A file that does not parse, or is not text in its declared encoding, cannot be
analysed: its training code may waste anything. It is reported so that the gap is
seen, and it never stops the other files from being checked.

## Example
```python
import torch

print("one"
```

## Fix
None.

## When not
A file written for a newer Python than the one that runs gpulint is GPU001. A file that
imports no framework has nothing for gpulint to check: an old script for Python 2 beside
the training code. Neither has one for Python 2 and other frameworks than PyTorch, which
have left it long ago, nor a project for torch 0.x, nor a template, whose path has `{{`
in it. A Databricks notebook with commands beside its Python is GPU001. Of low
confidence are programs of PyTorch and notebooks for Python 2, or for one in which
`async` is a name, files in which nothing has to do with training, in which a line ends
in ` ...` where the rest is left out or leaves a value to its readers (`path = # your
data`), notebooks that leave a place for their readers: `model = `, `model = <yours>`, a
`TODO`, a function of comments alone, and pointers of Git LFS, or what holds no object
of JSON, where notebooks are to be.

## Source
The message is that of Python's own parser.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script


class SyntaxErrors(Rule):
    """Found by the engine, before there is a script to look at."""

    effect = Effect.NONE
    severity = Severity.ERROR
    needs = Words()
    framework = "any"
    in_tests = True

    def check(self, script: Script) -> Iterator[Finding]:
        """Nothing: a file that has a script model has no syntax error."""
        yield from ()
