"""A file was left out: too deep, too large, or written for a newer Python.

## Why
Some texts cannot be analysed within bounds: expressions of more than 150 links,
brackets nested more than 100 deep, files over 2 MB, or grammar that only a newer
Python knows. Generated code is the usual case. Saying so is better than silence.

## Example
```python
x = ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))
```

## Fix
None. Exclude generated files with `exclude` in the settings.

## When not
Files without training code are reported too, since what is in them is not known.

## Source
Measured: code generation by LibCST fails from chains of 250 links, and its parser
crashes at about 1300 nested brackets.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script


class NotAnalysed(Rule):
    """Found by the engine, before there is a script to look at."""

    effect = Effect.NONE
    severity = Severity.NOTE
    needs = Words()
    framework = "any"
    in_tests = True

    def check(self, script: Script) -> Iterator[Finding]:
        """Nothing: a file that has a script model was analysed."""
        yield from ()
