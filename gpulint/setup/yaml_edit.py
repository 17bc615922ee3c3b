"""Puts one more item into a YAML file, and leaves every other byte as it is.

PyYAML says where things stand; the item is put in as text. The result is read again: it
must be what was there and the item, or the file is left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import yaml
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from gpulint.setup import EditError, appended

_NULL = "tag:yaml.org,2002:null"
_BY_HAND = "cannot be edited without changing more; add this by hand: "


def compose(text: str) -> MappingNode | None:
    """The mapping that a file holds, None for an empty file. EditError: neither."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise EditError(f"not YAML: {_one_line(error)}") from None
    except RecursionError:
        raise EditError("not YAML: nested too deeply") from None
    if node is None or (isinstance(node, ScalarNode) and node.tag == _NULL):
        return None
    if not isinstance(node, MappingNode):
        raise EditError("expected a mapping")
    return node


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f"line {mark.line + 1}: " if mark is not None else ""
    return " ".join(f"{where}{problem}".split())


def value(mapping: Node | None, key: str) -> Node | None:
    """What stands under a key."""
    for name, its in mapping.value if isinstance(mapping, MappingNode) else ():
        if isinstance(name, ScalarNode) and name.value == key:
            assert isinstance(its, Node)
            return its
    return None


def items(node: Node | None) -> Iterator[Node]:
    """The items of a sequence; nothing where it is none."""
    if isinstance(node, SequenceNode):
        yield from node.value


def add_entry(text: str, block: str) -> str:
    """The text with `block`, one key and what stands under it, at its end."""
    root = compose(text)
    after = appended(text, block)
    added = compose(block)
    assert added is not None
    _prove(root, after, None, added.value[0], block)
    return after


def add_item(text: str, key: str, block: str) -> str:
    """The text with `block`, one item of a list, at the end of the list under `key`."""
    root = compose(text)
    its = value(root, key)
    if its is None:
        return add_entry(text, f"{key}:\n{_indented(block, 2)}")
    if isinstance(its, SequenceNode) and its.value and not its.flow_style:
        after = _after_last(text, its, block)
    elif isinstance(its, SequenceNode) and its.value:
        end, item = _end(its.value[-1]), yaml.safe_load(block)[0]
        after = f"{text[:end]}, {json.dumps(item)}{text[end:]}"
    else:  # `repos: []`, `repos:`
        end = its.end_mark.index
        rest = text[end:].partition("\n")
        lines = f"{rest[0]}\n{_indented(block, 2)}"
        after = f"{text[: its.start_mark.index].rstrip(' ')}{lines}{rest[2]}"
    added = yaml.compose(block, Loader=yaml.SafeLoader)
    assert isinstance(added, SequenceNode)
    _prove(root, after, key, added.value[0], block)
    return after


def _after_last(text: str, its: SequenceNode, block: str) -> str:
    """Below the last item, and comments that are part of it; spaced as the others."""
    column = its.start_mark.column
    end = text.find("\n", _end(its.value[-1]) - 1)
    if end < 0:
        text, end = f"{text}\n", len(text)
    end += 1
    for line in re.findall(r"[^\n]*\n|[^\n]+", text[end:]):
        comment = line.lstrip(" ")
        if not comment.startswith("#") or len(line) - len(comment) <= column:
            break
        end += len(line)
    head = text[:end] if text[:end].endswith("\n") else f"{text[:end]}\n"
    start = text.rfind("\n", 0, its.value[-1].start_mark.index) + 1
    spaced = len(its.value) > 1 and text[:start].endswith("\n\n")
    return f"{head}{chr(10) * spaced}{_indented(block, column)}{text[end:]}"


def _end(node: Node) -> int:
    """Where a node's text ends: blocks count what follows them as theirs."""
    if not isinstance(node, CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    start, ends = node.start_mark.index, []
    for child in node.value:
        ends += [_end(c) for c in (child if isinstance(child, tuple) else (child,))]
    return max(end for end in ends if end >= start)


def _prove(
    root: MappingNode | None, text: str, key: str | None, added: object, block: str
) -> None:
    """EditError unless the text holds what `root` is, with `added` at its place."""
    try:
        after = compose(text)
    except EditError:
        after = None
    holder = after if key is None else value(after, key)
    if holder is None or not holder.value or not _same(holder.value.pop(), added):
        raise EditError(_BY_HAND + " ".join(block.split()))
    before = value(root, key) if key else root
    if before is None:
        same = not holder.value
    elif before.tag == _NULL:
        same = not holder.value and _same_but(root, after, key)
    else:
        same = _same(root, after)
    if not same:
        raise EditError(_BY_HAND + " ".join(block.split()))


def _same_but(a: Node | None, b: Node | None, key: str | None) -> bool:
    """Whether two mappings hold the same under all keys but one."""
    rest = [
        [pair for pair in node.value if pair[0].value != key]
        for node in (a, b)
        if node is not None
    ]
    return len(rest) == 2 and _same(rest[0], rest[1])


def _same(a: object, b: object, seen: set[tuple[int, int]] | None = None) -> bool:
    """Whether two nodes, or lists of them, hold the same; anchors may make rings."""
    seen = set() if seen is None else seen
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        pairs = zip(a, b, strict=False)
        return len(a) == len(b) and all(_same(x, y, seen) for x, y in pairs)
    if not (isinstance(a, Node) and isinstance(b, Node)):
        return a == b
    if (id(a), id(b)) in seen:
        return True
    seen.add((id(a), id(b)))
    return a.tag == b.tag and _same(a.value, b.value, seen)


def _indented(block: str, column: int) -> str:
    lines = block.splitlines(keepends=True)
    return "".join(" " * column + line if line.strip() else line for line in lines)
