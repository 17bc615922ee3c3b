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


def add_argument(code: str) -> Build:
    """Append a positional argument to a call that has no keywords."""

    def build(call: cst.Call) -> cst.CSTNode:
        import libcst as cst

        args = list(call.args)
        _append(args, cst.Arg(cst.parse_expression(code)), _separator(args))
        return call.with_changes(args=args)

    return build


def add_spread(code: str, drop: Iterable[str] = ()) -> Build:
    """Append `**code` to a call, without the keyword arguments in `drop`."""
    dropped = frozenset(drop)

    def build(call: cst.Call) -> cst.CSTNode:
        import libcst as cst

        args = _without(call, dropped)
        spread = cst.Arg(cst.parse_expression(code), star="**")
        _append(args, spread, _separator(list(call.args)))
        return call.with_changes(args=args)

    return build


def move_to_spread(code: str, names: Iterable[str], order: tuple[str, ...]) -> Build:
    """Append `**code` to a call, without the arguments that it takes over.

    Those are the ones called `names`, by keyword or position, and other `**kwargs`.
    `order` names the positions: arguments behind one that moves become keywords.
    """
    moved = frozenset(names)

    def build(call: cst.Call) -> cst.CSTNode:
        import libcst as cst

        args: list[cst.Arg] = []
        named = False
        for number, arg in enumerate(call.args):
            if arg.keyword is None and not arg.star:
                name = order[number]
                named = named or name in moved
                if named:
                    other = _keyword(name, arg.value)
                    arg = arg.with_changes(keyword=other.keyword, equal=other.equal)
            args.append(arg)
        plain = call.with_changes(args=[a for a in args if a.star != "**"])
        if call.args and call.args[-1].star == "**" and plain.args:
            last = plain.args[-1].with_changes(
                comma=call.args[-1].comma,
                whitespace_after_arg=call.args[-1].whitespace_after_arg,
            )
            plain = plain.with_changes(args=[*plain.args[:-1], last])
        kept = _without(plain, moved)
        spread = cst.Arg(cst.parse_expression(code), star="**")
        _append(kept, spread, _separator(list(call.args)))
        return call.with_changes(args=kept)

    return build


def drop_keywords(*names: str) -> Build:
    """Remove keyword arguments from a call."""

    def build(call: cst.Call) -> cst.CSTNode:
        return call.with_changes(args=_without(call, frozenset(names)))

    return build


def new_callee(
    callee: str, first: str | None, order: tuple[str, ...] = (), **more: str
) -> Build:
    """Call something else with the same arguments.

    `first` becomes the first argument; positional ones become keywords by `order`, if
    that is given; `more` are keywords that come last.
    """

    def build(call: cst.Call) -> cst.CSTNode:
        import libcst as cst

        args = list(call.args)
        for number, (arg, name) in enumerate(zip(args, order, strict=False)):
            if arg.keyword is None and not arg.star:
                named = _keyword(name, arg.value)
                args[number] = arg.with_changes(
                    keyword=named.keyword, equal=named.equal
                )
        if first is not None:
            new = cst.Arg(cst.parse_expression(first))
            args.insert(0, new.with_changes(comma=_separator(args)) if args else new)
        renamed = call.with_changes(func=cst.parse_expression(callee), args=args)
        return set_keywords(**more)(renamed)

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


def without_move(call: cst.Call) -> cst.CSTNode:
    """`x` for `x.to(device)` and `x.cuda()`; a dtype given with it stays."""
    import libcst as cst

    named = [a for a in call.args if a.keyword and a.keyword.value == "dtype"]
    plain = [a for a in call.args if a.keyword is None]
    has_device = any(a.keyword and a.keyword.value == "device" for a in call.args)
    casts = named or plain[0 if has_device else 1 : 2]
    assert isinstance(call.func, cst.Attribute)
    if call.func.attr.value == "cuda" or not casts:
        return receiver_of_call(call)
    space = cst.SimpleWhitespace("")
    cast = casts[0].with_changes(
        comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=space
    )
    return call.with_changes(args=[cast], whitespace_before_args=space)


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
    _append(args, new, _separator(args))


def _append(args: list[cst.Arg], new: cst.Arg, between: cst.Comma) -> None:
    """At the end; a trailing comma stays one, as does a line for each argument."""
    import libcst as cst

    if not args:
        args.append(new)
        return
    last = args[-1]
    if isinstance(last.comma, cst.Comma):
        args[-1] = last.with_changes(comma=between)
        args.append(new.with_changes(comma=last.comma))
    else:
        after = last.whitespace_after_arg
        empty = cst.SimpleWhitespace("")
        args[-1] = last.with_changes(comma=between, whitespace_after_arg=empty)
        args.append(new.with_changes(whitespace_after_arg=after))


def _separator(args: list[cst.Arg]) -> cst.Comma:
    """A comma as it stands between the arguments, without comments."""
    import libcst as cst

    for arg in args[:-1]:
        if not isinstance(arg.comma, cst.Comma):
            continue
        after = arg.comma.whitespace_after
        if isinstance(after, cst.ParenthesizedWhitespace):
            first = after.first_line.with_changes(
                comment=None, whitespace=cst.SimpleWhitespace("")
            )
            plain = after.with_changes(first_line=first, empty_lines=())
            return cst.Comma(whitespace_after=plain)
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _without(call: cst.Call, names: frozenset[str]) -> list[cst.Arg]:
    """Arguments without some keywords; the new last one ends as the old one did."""
    kept = [a for a in call.args if a.keyword is None or a.keyword.value not in names]
    if kept and kept[-1] is not call.args[-1]:
        last = call.args[-1]
        kept[-1] = kept[-1].with_changes(
            comma=last.comma, whitespace_after_arg=last.whitespace_after_arg
        )
    return kept
