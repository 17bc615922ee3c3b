"""Builders for `Replace`: changes of a call's arguments that keep its layout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gpulint.script.edits import Build

if TYPE_CHECKING:
    import libcst as cst


def set_keywords(**values: str) -> Build:
    """Set keyword arguments to code; new ones go before a `**kwargs`, else last."""

    def build(call: cst.Call) -> cst.CSTNode:
        import libcst as cst

        args = list(call.args)
        for name, code in values.items():
            value = cst.parse_expression(code)
            for number, arg in enumerate(args):
                if arg.keyword is not None and arg.keyword.value == name:
                    args[number] = arg.with_changes(value=value)
                    break
            else:
                _insert(args, _keyword(name, value))
        return call.with_changes(args=args)

    return build


def add_spread(code: str, drop: Iterable[str] = ()) -> Build:
    """Append `**code` to a call, without the keyword arguments in `drop`."""
    dropped = frozenset(drop)

    def build(call: cst.Call) -> cst.CSTNode:
        import libcst as cst

        args = [
            a for a in call.args if a.keyword is None or a.keyword.value not in dropped
        ]
        spread = cst.Arg(cst.parse_expression(code), star="**")
        _append(args, spread)
        return call.with_changes(args=_without_dangling(args, list(call.args)))

    return build


def drop_keywords(*names: str) -> Build:
    """Remove keyword arguments from a call."""

    def build(call: cst.Call) -> cst.CSTNode:
        args = [
            a for a in call.args if a.keyword is None or a.keyword.value not in names
        ]
        return call.with_changes(args=_without_dangling(args, list(call.args)))

    return build


def code(text: str) -> Build:
    """Replace the expression by code."""

    def build(_: Any) -> cst.CSTNode:
        import libcst as cst

        return cst.parse_expression(text)

    return build


def receiver_of_call(call: cst.Call) -> cst.CSTNode:
    """`x` for `x.to(device)`: drops a method call, keeps what it is called on."""
    import libcst as cst

    assert isinstance(call.func, cst.Attribute)
    value = call.func.value
    if call.lpar and not value.lpar:
        value = value.with_changes(lpar=call.lpar, rpar=call.rpar)
    return value


def _keyword(name: str, value: cst.BaseExpression) -> cst.Arg:
    import libcst as cst

    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(value, keyword=cst.Name(name), equal=tight)


def _insert(args: list[cst.Arg], new: cst.Arg) -> None:
    """Before the first `**kwargs` if there is one, else at the end."""
    for number, arg in enumerate(args):
        if arg.star == "**":
            import libcst as cst

            space = cst.SimpleWhitespace(" ")
            comma = cst.Comma(whitespace_after=space)
            if number and isinstance(args[number - 1].comma, cst.Comma):
                comma = args[number - 1].comma  # type: ignore[assignment]
            args.insert(number, new.with_changes(comma=comma))
            return
    _append(args, new)


def _append(args: list[cst.Arg], new: cst.Arg) -> None:
    """At the end; a call written one argument a line stays so."""
    import libcst as cst

    if not args:
        args.append(new)
        return
    last = args[-1]
    between = _separator(args)
    if isinstance(last.comma, cst.Comma):  # a trailing comma stays a trailing comma
        args[-1] = last.with_changes(comma=between)
        args.append(new.with_changes(comma=last.comma))
    else:
        after = last.whitespace_after_arg
        empty = cst.SimpleWhitespace("")
        args[-1] = last.with_changes(comma=between, whitespace_after_arg=empty)
        args.append(new.with_changes(whitespace_after_arg=after))


def _separator(args: list[cst.Arg]) -> cst.Comma:
    import libcst as cst

    for arg in args[:-1]:
        if isinstance(arg.comma, cst.Comma):
            first = arg.comma
            if isinstance(first.whitespace_after, cst.ParenthesizedWhitespace):
                plain = first.whitespace_after.with_changes(
                    first_line=first.whitespace_after.first_line.with_changes(
                        comment=None, whitespace=cst.SimpleWhitespace("")
                    ),
                    empty_lines=(),
                )
                return cst.Comma(whitespace_after=plain)
            return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _without_dangling(args: list[cst.Arg], before: list[cst.Arg]) -> list[cst.Arg]:
    """After a removal the last argument takes the old last one's comma and space."""
    if args and before and args[-1] not in before:
        return args
    if args and before and args[-1] is not before[-1]:
        last = before[-1]
        args[-1] = args[-1].with_changes(
            comma=last.comma, whitespace_after_arg=last.whitespace_after_arg
        )
    return args
