"""Tests that hold, or fail, for no value that the code gives."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpulint.index import Definition
from gpulint.index.flow import enclosing_function
from gpulint.script.given import is_always_given, is_handed_something, values_given
from gpulint.script.reaching.commands import option_of
from gpulint.script.reaching.merged_settings import is_merged_otherwise
from gpulint.script.reaching.offered import is_offered

if TYPE_CHECKING:
    from gpulint.index import Value
    from gpulint.script.model import Script

_COMPARED: dict[type[ast.cmpop], Callable[[object, object], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
# What is asked of numbers.
_ORDERED: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def is_excluded(script: Script, test: ast.expr, holds: bool) -> bool:
    """Whether no value is given for which a test holds, or for which it fails."""
    if holds and (_is_never_chosen(script, test) or _asks_a_truth(script, test)):
        return True
    return (
        _is_always(script, test, not holds)
        or _is_handed(script, test, not holds)
        or _is_written(script, test, not holds)
        or _is_given_by_all(script, test, holds)
        or is_merged_otherwise(script, test, holds)
    )


def _is_given_by_all(script: Script, test: ast.expr, holds: bool) -> bool:
    """`sizes is None`, for which all calls that are seen pass something else.

    And so do those of the functions that only hand it on. Not of a `forward`, whose
    callers are seldom all seen, nor of a library's function.
    """
    function = script.index.function(test)
    if getattr(function, "name", "forward") == "forward":
        return False
    if not is_always_given(script, test, holds) or is_offered(script):
        return False
    assert isinstance(test, ast.Compare)
    handed = [o for o in script.resolver.origins(test.left) if o.kind == "parameter"]
    return all(
        o.definition is not None and is_handed_something(script, o.definition)
        for o in handed
    )


def _is_written(script: Script, test: ast.expr, answer: bool) -> bool:
    """Whether `mode == 2` has one answer for all that a function sets `mode` to.

    Each of these values is written out in some function or class, and there are no
    others. What stands at the top of a file is for users to edit, and an attribute of
    what a library offers for them to set.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return False
    compared, asked = _COMPARED.get(type(test.ops[0])), test.comparators[0]
    if compared is None or not isinstance(asked, ast.Constant):
        return False
    if not isinstance(test.left, (ast.Name, ast.Attribute)):
        return False
    if any(d.kind != "assign" for d in script.definitions(test.left)):
        return False
    values = script.evaluator.values(test.left)
    return (
        values.complete
        and bool(values.known)
        and all(_is_set_inside(script, v) for v in values.known)
        and all(bool(compared(v.constant, asked.value)) is answer for v in values.known)
        and not (isinstance(test.left, ast.Attribute) and _is_open(script, test.left))
    )


def _is_open(script: Script, attribute: ast.Attribute) -> bool:
    """Whether other code than its class may set an attribute."""
    project = script.index.project
    return (
        project is None or project.writing(attribute.attr) != [] or is_offered(script)
    )


def _is_set_inside(script: Script, value: Value) -> bool:
    """Whether a value is written in a function or class, and is nobody's default."""
    index = script.index.home(value.node)
    return not value.default and not isinstance(index.scope(value.node), ast.Module)


def _is_always(script: Script, test: ast.expr, answer: bool) -> bool:
    """Whether `kind == "a"` has one answer for all that calls are seen to give.

    Of a parameter that a call writes out; what an option gives is for users to choose.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return False
    operator, asked = test.ops[0], test.comparators[0]
    if not isinstance(operator, (ast.Eq, ast.NotEq)):
        return False
    if not isinstance(asked, ast.Constant) or not isinstance(asked.value, str):
        return False
    if not any(d.kind == "parameter" for d in script.definitions(test.left)):
        return False
    known = values_given(script, script.evaluator.values(test.left).known)
    equal = isinstance(operator, ast.Eq)
    return (
        not all(v.default for v in known)
        and not any(option_of(script, v) for v in known)
        and all((v.constant == asked.value) is (equal is answer) for v in known)
    )


def _is_handed(script: Script, test: ast.expr, answer: bool) -> bool:
    """Whether `count > 0` has one answer for the numbers that all calls write out.

    Of a parameter, of no library's function, and of none that is given to what may call
    it: `mp.spawn(main_worker)`.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return False
    compared, asked = _ORDERED.get(type(test.ops[0])), _number(test.comparators[0])
    if compared is None or asked is None:
        return False
    if not any(d.kind == "parameter" for d in script.definitions(test.left)):
        return False
    values = script.evaluator.values(test.left)
    given = [_number(v.node) for v in values.known]
    return (
        values.complete
        and bool(given)
        and not any(v.default or option_of(script, v) for v in values.known)
        and all(n is not None and compared(n, asked) is answer for n in given)
        and not is_offered(script)
        and not any(_is_handed_on(script, d) for d in script.definitions(test.left))
    )


def _is_handed_on(script: Script, parameter: Definition) -> bool:
    function = enclosing_function(script.index, parameter)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    return script.resolver.outside.handed_on(function)


def _number(node: ast.AST | None) -> float | None:
    """A number that is written out, also with a sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value


def _is_never_chosen(script: Script, test: ast.expr) -> bool:
    """`args.data == "old"`, where that is none of the choices of the option."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    asked = test.comparators[0]
    if len(test.ops) > 1 or not isinstance(asked, ast.Constant):
        return False
    line = script.evaluator.command_line
    origins = script.resolver.origins(test.left)
    options = [o.expression for o in origins]
    offered = [
        line.choices(option.value, option.attr)
        for option in options
        if isinstance(option, ast.Attribute)
    ]
    return (
        bool(options)
        and len(offered) == len(options)
        and all(
            choices is not None and asked.value not in choices for choices in offered
        )
    )


def _asks_a_truth(script: Script, test: ast.expr) -> bool:
    """`args.train == "True"`, where `args.train = args.train == "True"` stands before.

    In the file that has the option: then it is a truth value, which equals no text.
    """
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    asked, left, project = test.comparators[0], test.left, script.index.project
    if not isinstance(asked, ast.Constant) or not isinstance(asked.value, str):
        return False
    if not isinstance(left, ast.Attribute) or project is None:
        return False
    files = map(project.index, project.mentioning(f"--{left.attr}"))
    writes = [
        w for f in files if f is not None for w in f.attribute_writes.get(left.attr, ())
    ]
    kept = [script.index.home(write).parent(write) for write in writes]
    return bool(kept) and all(
        isinstance(its, ast.Assign) and test is not its.value and _is_truth(its.value)
        for its in kept
    )


def _is_truth(node: ast.expr) -> bool:
    """Whether an expression is True or False."""
    if isinstance(node, ast.IfExp):
        return _is_truth(node.body) and _is_truth(node.orelse)
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    constant = isinstance(node, ast.Constant) and isinstance(node.value, bool)
    return negated or constant or isinstance(node, ast.Compare)
