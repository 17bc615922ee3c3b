"""Builders for `Replace`: changes of a call's arguments that keep its layout."""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gpulint.script.rewriting.edits import Build
from gpulint.source import Source, node_span

# A comment takes its newline with it: no match may end inside one.
_SPACE = r"(?:\s|\\|#[^\r\n]*[\r\n])*"
_SPACES = re.compile(_SPACE)
_CLOSED = re.compile(rf"(?:{_SPACE}\))*")
_EQUAL = re.compile(rf"{_SPACE}={_SPACE}")
_WORD = 20  # longer than any keyword
_BLANKS = " \t\f\r\n\\"
_KEYWORD = re.compile(rf"(?<!\w)(?:{'|'.join(keyword.kwlist)})\Z")
# A comment at the end of the last argument's line, and nothing but space behind it.
_SAID = re.compile(
    r"(?P<comma>,?)(?P<comment>[ \t]*#[^\r\n]*)(?P<rest>(?P<line>\r\n|\r|\n)\s*)\Z"
)
_COMMENT = re.compile(r"#[^\r\n]*")
_LINE = re.compile(r"(?:\r\n|\r|\n)[ \t\f]*")
# A comment behind the comma of an argument; lines below it, from where text begins.
_OWN_COMMENT = re.compile(
    r",[ \t\f]*(#[^\r\n]*)?(?:\r\n|\r|\n)\s*((?:#.*)?)", re.DOTALL
)
_NEXT_LINE = re.compile(
    rf"{_SPACE},(?:[ \t\f]|\\\r?\n)*(?:#[^\r\n]*)?(\r\n|\r|\n){_SPACE}?([ \t\f]*)\Z"
)


class Argument(NamedTuple):
    """One argument as it is written: `head` is `name=`, `*`, `**` or nothing.

    `end` is all that follows, up to the next argument or the closing parenthesis.
    """

    value: str
    head: str = ""
    name: str | None = None
    end: str = ""


class CallText(NamedTuple):
    """The text of a call in parts; `opening` ends where the first argument begins.

    `around` are the parentheses that the call stands in, with the space inside them;
    `receiver` and `method` are those of `receiver.method(…)`, else empty.
    """

    around: tuple[str, str]
    callee: str
    opening: str
    arguments: tuple[Argument, ...]
    receiver: str = ""
    method: str = ""

    @classmethod
    def of(cls, text: str) -> CallText:
        """Take a call apart."""
        source, call = parsed(text)
        assert isinstance(call, ast.Call)
        whole = source.text
        begin, after = node_span(source, call)
        around = whole[1:begin], whole[after:-1]
        end = node_span(source, call.func)[1]
        receiver, method = "", ""
        if isinstance(call.func, ast.Attribute):
            value = node_span(source, call.func.value)[1]
            receiver = whole[begin : _closed(whole, value, end)]
            method = call.func.attr
        end = _closed(whole, end, after - 1)
        first = _end(_SPACES, whole, end) + len("(")
        arguments = tuple(_arguments(source, call, first, after - 1))
        start = _end(_SPACES, whole, first)
        opening = whole[end:start]
        return cls(around, whole[begin:end], opening, arguments, receiver, method)

    def code(self, arguments: Iterable[Argument]) -> str:
        """The text of the call with other arguments."""
        inside = "".join(a.head + a.value + a.end for a in arguments)
        return f"{self.callee}{self.opening}{inside})".join(self.around)

    def in_place(self, value: str) -> str:
        """Another expression where the call is: in its parentheses or its own."""
        source, node = parsed(value)
        enclosed = node_span(source, node)[0] > len("(")
        return value if enclosed else value.join(self.around)


def parsed(text: str) -> tuple[Source, ast.expr]:
    """An expression that stands in parentheses of a file of its own."""
    source = Source(Path(), f"({text})")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return source, ast.parse(source.text, mode="eval").body


def spanned(source: Source, node: ast.expr) -> tuple[int, int]:
    """Offsets of an expression with the parentheses around it.

    Without them where that they are such, not those of a call, cannot be seen.
    """
    text = source.text
    start, end = node_span(source, node)
    while True:
        before = text[:start].rstrip(_BLANKS)
        after = _end(_SPACES, text, end)
        if not (before.endswith("(") and text.startswith(")", after)):
            return start, end
        line = text[source.starts[source.position(len(before)).row - 1] : len(before)]
        ahead = before[:-1].rstrip(_BLANKS)[-_WORD:]
        called = ahead and (ahead[-1].isalnum() or ahead[-1] in "_)]}'\"")
        if "#" in line or (called and not _KEYWORD.search(ahead)):
            return start, end
        start, end = len(before) - 1, after + 1


def set_keywords(**values: str) -> Build:
    """Set keyword arguments to code; new ones go before a `**kwargs`, else last."""

    def build(text: str) -> str:
        call = CallText.of(text)
        return call.code(_with_keywords(list(call.arguments), values))

    return build


def without_last(text: str) -> str:
    """Leave out the last argument of a call that has others; comments stay."""
    call = CallText.of(text)
    *before, kept, last = call.arguments
    end = last.end
    if "#" in kept.end:
        end = kept.end + last.end.lstrip(", \t\r\n")
    return call.code([*before, kept._replace(end=end)])


def without_call(text: str) -> str:
    """`x` for `x.method(…)`."""
    call = CallText.of(text)
    return call.in_place(call.receiver)


def add_argument(code: str) -> Build:
    """Append a positional argument to a call that has no keywords."""

    def build(text: str) -> str:
        call = CallText.of(text)
        between = _separator(call.arguments)
        return call.code(_appended(call.arguments, Argument(code), between))

    return build


def move_to_spread(
    code: str, names: Iterable[str], order: tuple[str, ...], *, keep: bool = False
) -> Build:
    """Append `**code` to a call, without the arguments that it takes over.

    Those are the ones called `names`, by keyword or position, and other `**kwargs`
    unless they are to `keep`. `order` names the positions: arguments behind one that
    moves become keywords.
    """
    moved = frozenset(names)

    def build(text: str) -> str:
        call = CallText.of(text)
        between = _separator(call.arguments)
        arguments: list[Argument] = []
        said = ""  # of those that move
        named = stays = False
        for number, argument in enumerate(call.arguments):
            if not argument.head:
                named = named or order[number] in moved
                if named:
                    argument = _named(argument, order[number])
            spread = argument.head.startswith("**") and not keep
            stays = argument.name not in moved and not spread
            if stays:
                arguments.append(argument)
            elif argument is not call.arguments[-1]:
                own, of_next = _comments(argument.end)
                gap = between[1:] if _LINE.search(between) else ""
                for comment in own:
                    line = _LINE.search(argument.end)
                    assert line is not None, "a comment ends with its line"
                    said += comment + (gap or line[0])
                if of_next and arguments:
                    end = arguments[-1].end + of_next
                    arguments[-1] = arguments[-1]._replace(end=end)
                elif of_next:
                    call = call._replace(opening=call.opening + of_next)
        last = Argument(code, head=f"{said}**")
        end = call.arguments[-1].end if call.arguments else ""
        if not arguments or (not stays and "#" in arguments[-1].end):  # its comment
            return call.code([*arguments, last._replace(end=end)])
        arguments[-1] = arguments[-1]._replace(end=end)
        return call.code(_appended(arguments, last, between, says=stays))

    return build


def without_keywords(*names: str) -> Build:
    """Leave keyword arguments out of a call."""

    def build(text: str) -> str:
        call = CallText.of(text)
        kept = [a for a in call.arguments if a.name not in names]
        if kept and call.arguments[-1].name in names:
            kept[-1] = _as_last(kept[-1], call.arguments[-1].end)
        return call.code(kept)

    return build


def new_callee(
    callee: str, first: str | None, order: tuple[str, ...] = (), **more: str
) -> Build:
    """Call something else with the same arguments.

    `first` becomes the first argument; positional ones become keywords by `order`, if
    that is given; `more` are keywords that come last.
    """

    def build(text: str) -> str:
        call = CallText.of(text)._replace(callee=callee)
        arguments = list(call.arguments)
        for number, (argument, name) in enumerate(zip(arguments, order, strict=False)):
            if not argument.head:
                arguments[number] = _named(argument, name)
        if first is not None:
            end = _separator(arguments) if arguments else ""
            arguments.insert(0, Argument(first, end=end))
        return call.code(_with_keywords(arguments, more))

    return build


def code(text: str) -> Build:
    """Replace the expression by code."""
    return lambda _: text


def without_move(text: str) -> str:
    """`x` for `x.to(device)` and `x.cuda()`; a dtype given with it stays."""
    call = CallText.of(text)
    named = [a for a in call.arguments if a.name == "dtype"]
    plain = [a for a in call.arguments if a.name is None]
    has_device = any(a.name == "device" for a in call.arguments)
    casts = named or plain[0 if has_device else 1 : 2]
    if call.method == "cuda" or not casts:
        return call.in_place(call.receiver)
    tight = call._replace(opening=call.opening[: call.opening.index("(") + 1])
    return tight.code([casts[0]._replace(end="")])


def without_cast(text: str) -> str:
    """`x` for `x.to(device, dtype)`, of which something else takes both."""
    call = CallText.of(text)
    return call.in_place(call.receiver)


# Taking apart


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    assert found is not None, "it may match nothing"
    return found.end()


def _closed(text: str, end: int, limit: int) -> int:
    """The end of an expression with the parentheses around it."""
    found = _CLOSED.match(text, end, limit)
    assert found is not None, "it may match nothing"
    return found.end()


def _arguments(
    source: Source, call: ast.Call, first: int, close: int
) -> Iterator[Argument]:
    """The arguments between the offsets behind `(` and before `)`."""
    text = source.text
    nodes = sorted([*call.args, *call.keywords], key=lambda n: node_span(source, n))
    at = first
    for number, node in enumerate(nodes):
        start, end = node_span(source, node)
        if start < first:  # a generator shares the parentheses of the call
            yield Argument(text[start:end])
            return
        start, end = _end(_SPACES, text, at), _closed(text, end, close)
        at = _end(_SPACES, text, end)
        at += text.startswith(",", at)
        following = _end(_SPACES, text, at) if number + 1 < len(nodes) else close
        name = node.arg if isinstance(node, ast.keyword) else None
        value = start
        if name is not None:
            value = _end(_EQUAL, text, start + len(name))
        elif isinstance(node, ast.keyword):
            value = _end(_SPACES, text, start + len("**"))
        elif isinstance(node, ast.Starred):
            value = _end(_SPACES, text, start + len("*"))
        yield Argument(text[value:end], text[start:value], name, text[end:following])


# Putting together


def _named(argument: Argument, name: str) -> Argument:
    return argument._replace(head=f"{name}=", name=name)


def _with_keywords(arguments: list[Argument], values: dict[str, str]) -> list[Argument]:
    for name, code in values.items():
        for number, argument in enumerate(arguments):
            if argument.name == name:
                arguments[number] = argument._replace(value=code)
                break
        else:
            arguments = _inserted(arguments, _named(Argument(code), name))
    return arguments


def _inserted(arguments: list[Argument], new: Argument) -> list[Argument]:
    """Before the first `**kwargs` if there is one, else at the end."""
    for number, argument in enumerate(arguments):
        if argument.head.startswith("**"):
            before = arguments[:number]
            end = before[-1].end if before else ", "
            end = _separator(arguments[: number + 1]) if "#" in end else end
            return [*before, new._replace(end=end), *arguments[number:]]
    return _appended(arguments, new, _separator(arguments))


def _as_last(argument: Argument, end: str) -> Argument:
    """An argument before one that ended a call; comments stay with their own."""
    own, cut = argument.end, max(argument.end.rfind("\n"), argument.end.rfind("\r")) + 1
    after = max(end.rfind("\n"), end.rfind("\r")) + 1
    if cut and (after or "#" in own):
        return argument._replace(end=own[:cut] + (end[after:] if after else own[cut:]))
    return argument._replace(end=re.sub(r"\s*#[^\r\n]*", "", end))


def _appended(
    arguments: Sequence[Argument], new: Argument, between: str, *, says: bool = True
) -> list[Argument]:
    """At the end; a trailing comma stays one, as does a line for each argument.

    A comment at the last argument stays with it if that `says` it.
    """
    if not arguments:
        return [new]
    *others, last = arguments
    said = _SAID.match(last.end) if says else None
    if said and between[1:].isspace() and said["line"] in between:
        own = last._replace(end=f",{said['comment']}{between[1:]}")
        return [*others, own, new._replace(end=said["comma"] + said["rest"])]
    return [*others, last._replace(end=between), new._replace(end=last.end)]


def _comments(end: str) -> tuple[list[str], str]:
    """Comments on what an end follows, and the lines of those on what comes next."""
    if (found := _OWN_COMMENT.fullmatch(end)) is None:
        return _COMMENT.findall(end), ""
    own, below = found.groups()
    return [own] if own else [], below if "#" in below else ""


def _separator(arguments: Sequence[Argument]) -> str:
    """A comma as it stands between the arguments, without comments."""
    for argument in arguments[:-1]:
        if found := _NEXT_LINE.match(argument.end):
            return f",{found.group(1)}{found.group(2)}"
    return ", "
