"""All rules: every module in `rules/` whose name starts with a code, and of plugins."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Iterable, Iterator

from gpulint.finding import Severity
from gpulint.rule import Rule
from gpulint.settings import Choice
from gpulint.settings_values import closest

_named: list[str] = []  # the plugins that settings have named in this process


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """One instance of each built-in rule, in the order of their codes."""
    package = importlib.import_module("gpulint.rules")
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    return tuple(
        load_rule(f"{package.__name__}.{name}")
        for name in names
        if name.startswith("gpu")
    )


def load_rule(name: str) -> Rule:
    """The rule that a module holds. TypeError: it holds none, or several."""
    module = importlib.import_module(name)
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


def use_plugins(names: Iterable[str]) -> None:
    """Let `find_rule` know the rules of these plugins as well.

    ValueError with one line: one is not installed, broken, or clashes with others.
    """
    for name in names:
        plugin_rules(name)
        if name not in _named:
            _named.append(name)


@functools.cache
def plugin_rules(name: str) -> tuple[Rule, ...]:
    """The rules of a plugin. ValueError: it is not there, or broken."""
    from gpulint.plugins import load_plugin  # of metadata: 20 ms that few need

    modules = load_plugin(name)
    try:
        rules = tuple(load_rule(module) for module in modules)
    except Exception as error:  # whatever a plugin does when it is imported
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"plugin `{name}` cannot be used: {why}") from None
    known = {rule.name: rule.code for rule in all_rules()}
    for rule in rules:
        if known.setdefault(rule.name, rule.code) != rule.code:
            clash = f"{rule.code} and {known[rule.name]} are both called {rule.name}"
            raise ValueError(f"plugin `{name}` cannot be used: {clash}")
    return rules


def known_rules(plugins: Iterable[str] | None = None) -> tuple[Rule, ...]:
    """Built-in rules and those of `plugins` (None: all that were named so far)."""
    names = _named if plugins is None else plugins
    return all_rules() + tuple(rule for name in names for rule in plugin_rules(name))


def find_rule(code_or_name: str) -> Rule | None:
    """The rule with this code or kebab-case name, in any case."""
    wanted = code_or_name.strip().lower()
    for rule in known_rules():
        if wanted in (rule.code.lower(), rule.name):
            return rule
    return None


def select_rules(
    select: tuple[str, ...],
    ignore: tuple[str, ...] = (),
    plugins: tuple[str, ...] = (),
) -> tuple[Rule, ...]:
    """Rules chosen by codes, code prefixes, names or `ALL`.

    Raises ValueError with one line for a selector that matches no rule.
    """
    return choose_rules((Choice(select, ignore),), plugins)


def choose_rules(
    choices: Iterable[Choice], plugins: tuple[str, ...] = ()
) -> tuple[Rule, ...]:
    """What is left after choices that follow one another. ValueError: see above."""
    rules = known_rules(plugins)
    codes: set[str] = set()
    for choice in choices:
        decided = dict(_decisions(choice, rules))
        codes |= {code for code, wanted in decided.items() if wanted}
        codes -= {code for code, wanted in decided.items() if wanted is False}
    return tuple(rule for rule in rules if rule.code in codes)


def severities(
    table: Iterable[tuple[str, Severity | None]], plugins: tuple[str, ...] = ()
) -> tuple[tuple[str, Severity], ...]:
    """The severities of rules by their codes; the most exact word decides."""
    rules = known_rules(plugins)
    words = sorted(table, key=lambda pair: _exactness(pair[0], rules))
    found = {code: its for word, its in words for code in _matching(word, rules)}
    return tuple((code, its) for code, its in found.items() if its is not None)


def check_words(words: Iterable[str], plugins: tuple[str, ...] = ()) -> None:
    """ValueError with one line for a selector that matches no rule."""
    rules = known_rules(plugins)
    for word in words:
        _matching(word, rules)


def _decisions(
    choice: Choice, rules: tuple[Rule, ...]
) -> Iterator[tuple[str, bool | None]]:
    """Codes and whether they are wanted (None: as before); the last answer counts."""
    words: list[tuple[str, bool | None]] = [(word, True) for word in choice.select]
    words += [(word, None) for word in choice.keep]
    words += [(word, False) for word in choice.ignore]
    for word, wanted in sorted(words, key=lambda pair: _exactness(pair[0], rules)):
        yield from ((code, wanted) for code in _matching(word, rules))


def _exactness(word: str, rules: tuple[Rule, ...]) -> int:
    """More for a longer prefix, most for a code or a name, nothing for `ALL`."""
    wanted = word.strip()
    if any(wanted.upper() == r.code or wanted.lower() == r.name for r in rules):
        return sys.maxsize
    return 0 if wanted.upper() == "ALL" else len(wanted)


def _matching(selector: str, rules: tuple[Rule, ...]) -> set[str]:
    wanted = selector.strip()
    codes = {
        rule.code
        for rule in rules
        if wanted.upper() == "ALL"
        or rule.name == wanted.lower()
        or (
            wanted.upper().startswith(rule.prefix)
            and rule.code.startswith(wanted.upper())
        )
    }
    if not codes:
        is_code = any(wanted.upper().startswith(rule.prefix) for rule in rules)
        near = "" if is_code else near_rule(wanted, rules)
        raise ValueError(
            f"no rule matches {selector!r}{near or '; see `gpulint rules`'}"
        )
    return codes


def near_rule(word: str, rules: Iterable[Rule]) -> str:
    """`; did you mean …?` with a code or a name, or nothing."""
    names = [name for rule in rules for name in (rule.code, rule.name)]
    upper = word.upper()
    return closest(upper if upper[-1:].isdigit() else word.lower(), names)
