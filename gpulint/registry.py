"""All rules: every module in `rules/` whose name starts with a code."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from gpulint.rule import Rule


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """One instance of each rule, in the order of their codes."""
    package = importlib.import_module("gpulint.rules")
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    return tuple(_load(name) for name in names if name.startswith("gpu"))


def _load(name: str) -> Rule:
    module = importlib.import_module(f"gpulint.rules.{name}")
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Rule)
        and value.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise TypeError(f"{module.__name__}: one Rule expected, found {len(own)}")
    return own[0]()


def find_rule(code_or_name: str) -> Rule | None:
    """The rule with this code or kebab-case name, in any case."""
    wanted = code_or_name.strip().lower()
    for rule in all_rules():
        if wanted in (rule.code.lower(), rule.name):
            return rule
    return None


def select_rules(
    select: tuple[str, ...], ignore: tuple[str, ...] = ()
) -> tuple[Rule, ...]:
    """Rules chosen by codes, code prefixes, names or `ALL`.

    Raises ValueError with one line for a selector that matches no rule.
    """
    chosen = set().union(*(_matching(selector) for selector in select))
    dropped: set[str] = set().union(*(_matching(selector) for selector in ignore))
    return tuple(r for r in all_rules() if r.code in chosen - dropped)


def _matching(selector: str) -> set[str]:
    wanted = selector.strip()
    codes = {
        rule.code
        for rule in all_rules()
        if wanted.upper() == "ALL"
        or rule.name == wanted.lower()
        or (wanted.upper().startswith("GPU") and rule.code.startswith(wanted.upper()))
    }
    if not codes:
        raise ValueError(f"no rule matches {selector!r}; see `gpulint rules`")
    return codes
