"""A settings file's tree: the values the loaders give, at the places they are written."""

from __future__ import annotations

import ast
import codecs
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpulint.index import Evaluator, Resolver, build_index, settings_file
from gpulint.index.settings_file import Dialect, parse_settings, read_settings
from gpulint.source import Source, SourceError, node_span

UNKNOWN = "<unknown>"
OMEGACONF = Dialect.OMEGACONF


def source_of(text: str) -> Source:
    return Source(Path("settings"), text)


def root_of(text: str, dialect: Dialect = Dialect.SAFE) -> ast.expr:
    (statement,) = parse_settings(source_of(text), dialect).body
    assert isinstance(statement, ast.Expr)
    return statement.value


def python(node: ast.expr) -> object:
    """The value a tree stands for; `<unknown>` for what only the program knows."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List):
        return [python(n) for n in node.elts]
    if isinstance(node, ast.Dict):
        assert len(node.keys) == len(node.values)
        made: dict[object, object] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            name = "<spread>" if key is None else python(key)
            assert name not in made, "a key is given twice"
            made[name] = python(value)
        return made
    assert isinstance(node, ast.Name)
    assert node.id == "__unknown__"
    return UNKNOWN


def load(text: str, dialect: Dialect = Dialect.SAFE) -> object:
    return python(root_of(text, dialect))


def same(one: object, other: object) -> bool:
    """Equality that tells the values 1, True and 1.0 apart, and knows nan."""
    return _typed(one) == _typed(other)


def _typed(value: object) -> object:
    if isinstance(value, dict):
        return {k: _typed(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_typed(v) for v in value]
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return type(value), value


def written(text: str, dialect: Dialect = Dialect.SAFE) -> list[str]:
    """The text under every constant and name, keys included, in source order."""
    source = source_of(text)
    nodes = [
        node
        for node in ast.walk(parse_settings(source, dialect))
        if isinstance(node, (ast.Constant, ast.Name))
    ]
    spans = sorted(node_span(source, node) for node in nodes)
    return [text[start:end] for start, end in spans]


def text_of(text: str, node: ast.AST) -> str:
    start, end = node_span(source_of(text), node)
    return text[start:end]


# Values as the loaders give them

SCALARS = """
    yes no on off Yes NO On OFF y n true false TRUE False tRUE
    null Null NULL ~ nULL
    0 1 -1 +1 1_000 1__0 0_1 0b101 -0b1 0x1F 0xdead_beef 017 08 0o17 00 -0
    1:30 190:20:30 -1:30 1:60 12:30:45.5
    1.5 1. .5 -.5 +1.5 1e3 1e-3 1E3 1.0e3 1.0e+3 1.0e-3 5.e+1 .5e+3 1_000.5
    .inf -.inf +.inf .Inf .INF .nan .NaN .NAN inf nan
    123456789012345678901234567890 1.2.3 v1.0 a-b http://x/y:z 1,000 -- -a
    ${x} ??? "" '' "1" '1' "a\\tb" 'it''s' "\\u4e2d" !!str 1 !!int "3" !!float 1
    !!bool "yes" !!null "" !!binary aGVsbG8= ! 12
"""


def scalars() -> list[str]:
    words = SCALARS.split()
    joined: list[str] = []
    for word in words:  # a tag belongs to the word behind it
        if joined and joined[-1].startswith("!") and " " not in joined[-1]:
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


@pytest.mark.parametrize("scalar", scalars())
@pytest.mark.parametrize("form", ["{}", "a: {}", "- {}\n- 2\n", "{{a: {}, b: [{}]}}"])
def test_scalars_are_what_safe_load_makes_of_them(scalar, form):
    text = form.replace("{}", scalar).replace("{{", "{").replace("}}", "}")
    try:
        expected = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        with pytest.raises(SourceError):
            load(text)
    else:
        assert same(load(text), expected)


DOCUMENTS = {
    "empty": "",
    "only a comment": "# nothing\n",
    "only a marker": "---\n",
    "explicit end": "--- {a: 1}\n...\n",
    "directive": "%YAML 1.1\n---\na: 1\n",
    "null value": "a:\nb: 2\n",
    "null value at the end": "b: 2\na:",
    "null item": "-\n- 1\n-",
    "nested": "train:\n  loader:\n    num_workers: 4\n    pin_memory: yes\n  lr: 0.1\n",
    "list of dicts": "a:\n- b: 1\n  c: 2\n- - 3\n  - 4\n-\n  d: 5\n",
    "flow": "a: {b: [1, 2, {c: d}], 'e': \"f\"}\ng: [\n  1,\n  2,\n]\n",
    "empty flow": "a: {}\nb: []\n",
    "flow pair": "[a: 1 , b: [2] , {c: 3}]",
    "flow without values": "{a, b: , c: 1}",
    "json in yaml": '{"a": [1, true, null, "x\\ny"], "b": {"c": 1.5}}',
    "explicit key": "? a\n: 1\n? b\n",
    "keys of other types": "1: a\n1.5: b\ntrue: c\nnull: d\n'1': e\n~: f\n",
    "equal keys": "a: 1\nb: 2\na: 3\n",
    "equal keys of other types": "1: a\n1.0: b\n0: x\nno: y\n",
    "equal flow keys": "{a: 1, a: {b: 2, b: 3}}",
    "literal": "a: |\n  one\n   two\n\n  three\n\n\nb: 1\n",
    "literal, strip": "a: |-\n  one\n  two\n\nb: 1\n",
    "literal, keep": "a: |+\n  one\n\n\nb: 1\n",
    "literal, indented": "a: |2\n    one\n   two\nb: 1\n",
    "folded": "a: >\n  one\n  two\n\n  three\n# comment\nb: 1\n",
    "block at the end": "a: >-\n  one\n  two",
    "empty block": "a: |\nb: 1\n",
    "plain over lines": "a: one\n  two\n\n  three\nb: 1\n",
    "quoted over lines": "a: \"one\n  two \\\n  three\"\nb: 'four\n\n  five'\n",
    "comments": "# c\na: 1 # c\n# c\nb: # c\n  # c\n  c: x#y # c\n# c\n",
    "anchor": "a: &x 1\nb: *x\nc: [*x, *x]\n",
    "anchored collection": "a: &x\n  b: 1\nc: *x\nd: {e: *x}\n",
    "anchored and tagged": "a: &x !!str 1\nb: !!str &y 2\nc: [*x, *y]\n",
    "anchored nothing": "a: &x\nb: *x\nc: !!str\nd: {e: &y , f: *y}\n",
    "anchored key": "&k a: 1\nb: *k\n",
    "alias as key": "a: &k x\n*k : 2\n",
    "merge": "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\n",
    "merge behind": "a: &a {x: 1, y: 2}\nb: {y: 3, <<: *a}\n",
    "merge list": "- &a {x: 1, y: 1}\n- &b {x: 1, z: 2}\n- {<<: [*a, *b], z: 3}\n"
    "- {<<: [*b, *a]}\n",
    "merge twice": "- &a {x: 1, y: 1}\n- &b {z: 2}\n- {<<: *a, <<: *b}\n",
    "merge the same": "- &a {x: 1}\n- {<<: [{<<: *a}, {<<: *a, y: 1}]}\n",
    "merge of merges": "a: &a {x: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: *b, x: 3}\nd: *b\n",
    "merge in place": "a:\n  <<: {x: 1}\n  y: 2\n",
    "merge of nothing": "a: &a {}\nb: {<<: *a}\nc: {<<: []}\n",
    "merge, quoted": "a: {'<<': 1}\n",
    "merge of self": "&a {<<: *a, x: 1}\n",
    "equals sign as key": "{=: 1, b: 2}\n",
    "equals sign as value": "!!str {=: x}\n",
    "tagged collections": "a: !!map {b: 1}\nc: !!seq [1]\n",
    "CRLF": "a: 1\r\nb:\r\n  - x\r\n  - |\r\n    one\r\n    two\r\nc: 'x\r\n\r\n  y'\r\n",
    "CR": "a: 1\rb: 2\r",
    "Chinese": "批大小: 32 # 大小\n名称: 训练 集\n'引号': \"中\\u6587\"\n列表: [甲, 乙, 1]\n",
    "line separators": "a: 'x\x85y\u2028z'\nb: 1\x85c: 2\u2029d: 3\n",
    "astral": "😀: [😀, 1]\n",
}


@pytest.mark.parametrize("text", DOCUMENTS.values(), ids=DOCUMENTS)
def test_documents_are_what_safe_load_makes_of_them(text):
    expected = yaml.safe_load(text)
    loaded = load(text)
    if isinstance(loaded, dict) and "<spread>" in loaded:
        loaded.pop("<spread>")  # what a mapping takes from itself
    assert same(loaded, expected)


@pytest.mark.parametrize("text", DOCUMENTS.values(), ids=DOCUMENTS)
def test_the_text_under_a_constant_is_its_value(text):
    source = source_of(text)
    for node in ast.walk(parse_settings(source)):
        if not isinstance(node, ast.expr):
            continue
        start, end = node_span(source, node)
        assert 0 <= start <= end <= len(text)
        part = text[start:end]
        tagged = "!!" in text or part in ("=", "<<")
        if isinstance(node, ast.Constant) and "\n" not in part and not tagged:
            assert same(yaml.safe_load(part), node.value)


@pytest.mark.parametrize(
    "text", ["a: 2024-01-31", "2024-01-31: 1", "[2001-12-14t21:59:43.10-05:00]"]
)
def test_timestamps_are_not_known(text):
    assert UNKNOWN in repr(load(text))


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system [ls]",
        "!!python/tuple [1, 2]",
        "!!python/name:os.system",
        "!include other.yaml",
        "!Model {a: 1}",
        "!Model",
        "!!set {a, b}",
        "!!omap [a: 1]",
        "=",
    ],
)
def test_objects_are_not_known_and_do_no_harm_to_the_rest(text):
    assert load(f"a: {text}\nb: 1\n") == {"a": UNKNOWN, "b": 1}


def test_an_object_as_key_leaves_the_other_keys():
    root = root_of("? !!python/tuple [1]\n: 1\nb: 2\n")
    assert isinstance(root, ast.Dict)
    assert [type(key) for key in root.keys] == [ast.Name, ast.Constant]


def test_a_merged_object_is_spread_before_the_own_keys():
    root = root_of("a: 1\n<<: !include base.yaml\n")
    assert isinstance(root, ast.Dict)
    assert root.keys[0] is None
    assert python(root) == {"<spread>": UNKNOWN, "a": 1}


@pytest.mark.parametrize("merge", ["<<: [*one, *two]", "<<: *one, <<: *two"])
def test_what_several_merged_mappings_give_is_not_known(merge):
    """The first has the last word, or the last has: PyYAML's releases differ."""
    bases = "- &one {size: 1, workers: 1}\n- &two {size: 2, kept: 2}\n"
    known = {"workers": 1, "kept": 2}
    assert load(f"{bases}- {{{merge}}}\n")[2] == {"size": UNKNOWN, **known}
    assert load(f"{bases}- {{{merge}, size: 3}}\n")[2] == {"size": 3, **known}


@pytest.mark.parametrize(
    "text, expected",
    [
        ("&a [1, *a]", [1, UNKNOWN]),
        ("a: &a {b: {c: *a}}", {"a": {"b": {"c": UNKNOWN}}}),
        ("&a {<<: *a, x: 1}", {"<spread>": UNKNOWN, "x": 1}),
        ("&a {<<: [*a], x: 1}", {"<spread>": UNKNOWN, "x": 1}),
        ("&a {b: &b {<<: *a, y: 1}}", {"b": {"<spread>": UNKNOWN, "y": 1}}),
        ("&b {<<: {<<: *b, y: 1}}", {"<spread>": UNKNOWN, "y": 1}),
    ],
)
def test_what_contains_itself_is_not_known(text, expected):
    assert load(text) == expected


# OmegaConf


@pytest.mark.parametrize(
    "scalar, expected",
    [
        ("1e-3", 0.001),
        ("1e3", 1000.0),
        ("-1E+3", -1000.0),
        ("1_0e3", 10000.0),
        ("1.5", 1.5),
        ("1.5e3", 1500.0),
        ("1", 1),
        ("1_000", 1000),
        ("0x1F", 31),
        ("yes", True),
        ("'1e-3'", "1e-3"),
        ("2024-01-31", "2024-01-31"),
        ("2001-12-14 21:59:43", "2001-12-14 21:59:43"),
        ("${lr}", UNKNOWN),
        ("x-${lr}-y", UNKNOWN),
        ("'${oc.env:HOME}'", UNKNOWN),
        ("???", UNKNOWN),
        ("'???'", UNKNOWN),
        ("$x", "$x"),
        ("~", None),
    ],
)
def test_omegaconf_reads_scalars_in_its_own_way(scalar, expected):
    assert same(load(f"a: {scalar}", OMEGACONF), {"a": expected})


def test_omegaconf_does_not_interpolate_keys():
    assert load("'${a}': 1", OMEGACONF) == {"${a}": 1}


def test_omegaconf_leaves_the_safe_loader_as_it_was():
    load("a: 1e-3", OMEGACONF)
    assert load("a: 1e-3") == yaml.safe_load("a: 1e-3") == {"a": "1e-3"}


# JSON

JSON_TEXTS = [
    "1", "-0", "-1.5", "1e5", "1E+5", "1.5e-3", "0", "NaN", "Infinity", "-Infinity",
    "1234567890123456789012345678901234567890", "true", "false", "null", '""',
    '"a\\/b\\n\\t\\"\\\\"', '"\\u4e2d\\ud83d\\ude00"', '"\\ud800"', '"中文😀"',
    "[]", "{}", "[ ]", "{ }", "[1,\t2 ,3]", '{"a":\t1, "b" : [true, null, {"c": -2}]}',
    '{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 2}, "": 0}', '\r\n{"a"\r\n:1}\r\n', " \t\n1 ",
    '{"学习率": 1e-3, "名": ["甲", "乙"]}', '{"yes": "no", "~": "1"}',
    '["\u2028\x85", 1]', '"\x7f"',
    '{"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": true}}',
]  # fmt: skip


@pytest.mark.parametrize("text", JSON_TEXTS)
def test_json_is_what_json_loads_makes_of_it(text):
    assert same(load(text, Dialect.JSON), json.loads(text))


@pytest.mark.parametrize("text", JSON_TEXTS)
def test_each_json_value_stands_where_it_is_written(text):
    for node in ast.walk(root_of(text, Dialect.JSON)):
        if isinstance(node, ast.expr):
            assert same(json.loads(text_of(text, node)), python(node))


BAD_JSON = [
    "", " ", "{", "[", "[1", "[1,", "[1,]", "[,]", "{,}", '{"a"', '{"a":', '{"a":1',
    '{"a":1,', '{"a":1,}', '{"a" 1}', "{a: 1}", "{1: 2}", "[1 2]", "1 2", "tru", "nul",
    "01", "1.", ".5", "+1", "1e", "-", "--1", "'a'", '"a', '"a\nb"', '"\\x"', '"\\u12"',
    "// c\n1", "1 // c", "/* c */ 1", '{"a": 1 // c\n}', "\ufeff1", "\xa01", "٣", "1٣",
    "[" + "1" * 5000 + "]", "]", "}", "[}", "{]",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_JSON, ids=lambda text: text[:20])
def test_what_json_loads_refuses_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the message is Python's
        json.loads(text)
    with pytest.raises(SourceError, match=r"^not valid JSON: .+$") as caught:
        load(text, Dialect.JSON)
    assert caught.value.code == "GPU000"
    assert "\n" not in str(caught.value)


# Places


@pytest.mark.parametrize(
    "text, parts",
    [
        ("num_workers: 4\n", ["num_workers", "4"]),
        ("a: 'x y' # c\nb: \"z\"\n", ["a", "'x y'", "b", '"z"']),
        ("a: one two  # c\n", ["a", "one two"]),
        ("a: one\n  two\n\nb: 1\n", ["a", "one\n  two", "b", "1"]),
        ("{a: 1, b : [x , 'y']}", ["a", "1", "b", "x", "'y'"]),
        ("a: &x 4\nb: !!str 5\nc: &y !!int # c\n  '6'\n", ["a", "4", "b", "5", "c", "'6'"]),
        ("a: ! 12\nb: !<tag:yaml.org,2002:str> 7\n", ["a", "12", "b", "7"]),
        ("&k a: 1\n", ["a", "1"]),
        ("a: &x:b\nc: [&y, &z ]\n", ["a", ":b", "c", "", ""]),
        ("a:\nb: &x\n", ["a", "", "b", ""]),
        ("a: |-\n  one\n  two\n\n\nb: >\n  x\n", ["a", "|-\n  one\n  two", "b", ">\n  x"]),
        ("a: !include x.yaml\nb: 2024-01-31\n", ["a", "x.yaml", "b", "2024-01-31"]),
        ("a: 1\r\nb: x\r\n  y\r\nc: 3\r\n", ["a", "1", "b", "x\r\n  y", "c", "3"]),
        ("a: 1\rb: 2", ["a", "1", "b", "2"]),
        ("批大小: 32 # 大小\n{}: x".format("'列 表'"), ["批大小", "32", "'列 表'", "x"]),
        ("[中文, 1, '甲', {乙: 2, c: 😀}, 3]", ["中文", "1", "'甲'", "乙", "2", "c", "😀", "3"]),
        ("a: 'x\x85y\u2028z'\nb: 1\x85c: 2\nd: 3", ["a", "'x\x85y\u2028z'", "b", "1", "c", "2", "d", "3"]),
    ],
)  # fmt: skip
def test_scalars_stand_where_they_are_written(text, parts):
    assert written(text) == parts


def test_rows_and_columns_are_those_of_ast():
    text = "{'批': 1, 'b': [2,\n '中', 3]}"
    ours, pythons = root_of(text), ast.parse(text, mode="eval").body
    assert ast.dump(ours, include_attributes=True) == ast.dump(
        pythons, include_attributes=True
    )


def test_json_rows_and_columns_are_those_of_ast():
    text = '{"批": 1, "b":\t[2.5,\r\n "中", {}, []],\r\n"c": [{"d": 3}]}'
    ours, pythons = root_of(text, Dialect.JSON), ast.parse(text, mode="eval").body
    assert ast.dump(ours, include_attributes=True) == ast.dump(
        pythons, include_attributes=True
    )


@pytest.mark.parametrize(
    "text, part",
    [
        ("a: &x\n  # c\n  b: 1\n\n# c\nc: 2\n", "b: 1"),
        ("a:\n  b:\n  - 1\n  - 2 # c\n\nc: 2\n", "b:\n  - 1\n  - 2"),
        ("a:\n- x\n- y\n\nb: 1\n", "- x\n- y"),
        ("a: !!map {b: 1} # c\n", "{b: 1}"),
        ("a: &x [1, 2 ]\nb: 1", "[1, 2 ]"),
        ("z: &z 1\na:\n  b: *z\n  c: *z  # c\nd: 1\n", "b: *z\n  c: *z"),
        ("a:\n  - [b: 1 , c]\n", "- [b: 1 , c]"),
    ],
)
def test_collections_end_with_their_last_value(text, part):
    root = root_of(text)
    assert isinstance(root, ast.Dict)
    index = [python(key) for key in root.keys if key].index("a")
    assert text_of(text, root.values[index]) == part


def test_a_pair_in_a_flow_list_ends_with_its_value():
    text = "[a: 1 , b: {c: 2} ]"
    root = root_of(text)
    assert isinstance(root, ast.List)
    assert [text_of(text, item) for item in root.elts] == ["a: 1", "b: {c: 2}"]


def test_an_alias_stands_where_its_anchor_does():
    text = "base: &n 4\nuse: *n\nmore:\n  <<: &m {workers: 2}\n"
    root = root_of(text)
    assert isinstance(root, ast.Dict)
    base, use, more = root.values
    assert (use.lineno, use.col_offset) == (base.lineno, base.col_offset) == (1, 9)
    assert use is not base
    assert isinstance(more, ast.Dict)
    (key,) = more.keys
    assert key is not None
    assert text_of(text, key) == "workers"


def test_the_kept_one_of_equal_keys_has_its_own_place():
    root = root_of("a: 1\nb: 2\na: 3\n")
    assert isinstance(root, ast.Dict)
    assert [key.lineno for key in root.keys if key] == [2, 3]


def test_an_empty_file_is_none_at_its_beginning():
    root = root_of("")
    assert (root.lineno, root.col_offset, root.end_lineno, root.end_col_offset) == (
        1,
        0,
        1,
        0,
    )


def test_one_long_line_of_chinese_is_read_in_good_time():
    text = json.dumps([{"名称": "训练"}] * 30_000, ensure_ascii=False)
    root = root_of(text, Dialect.JSON)
    assert isinstance(root, ast.List)
    assert text_of(text, root.elts[-1]) == '{"名称": "训练"}'


# Use by the evaluator


def test_the_evaluator_follows_a_value_into_the_tree():
    tree = parse_settings(source_of("loader:\n  num_workers: 0\n  other: !x 1\n"))
    evaluator = Evaluator(Resolver(build_index(source_of(""), tree)))
    (statement,) = tree.body
    assert isinstance(statement, ast.Expr)
    (loader,) = evaluator.mapping(statement.value).items["loader"]
    mapping = evaluator.mapping(loader)
    assert mapping.complete
    (workers,) = mapping.items["num_workers"]
    (other,) = mapping.items["other"]
    assert evaluator.values(workers).all_in(0)
    assert not evaluator.values(other).complete


def test_a_spread_of_the_unknown_leaves_the_mapping_open():
    tree = parse_settings(source_of("<<: !include base.yaml\nworkers: 4\n"))
    evaluator = Evaluator(Resolver(build_index(source_of(""), tree)))
    (statement,) = tree.body
    assert isinstance(statement, ast.Expr)
    mapping = evaluator.mapping(statement.value)
    assert not mapping.complete
    assert not mapping.replaced
    assert evaluator.values(mapping.items["workers"][0]).all_in(4)


# Errors


@pytest.mark.parametrize(
    "text, row",
    [
        ("a: 1\nb: [1\n", 3),
        ("a: 1\n b: 2\n", 2),
        ("a: 1\nb: 'x\n", 3),
        ("a: 1\n\tb: 2\n", 2),
        ("a: 1\nb:\t2\n", 2),
        ("a: 1\nb: *x\n", 2),
        ("a: &x 1\nb: &x 1\n", 2),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: 1\n\nb: \x00\n", 3),
        ("a: 1\nb: \x07\n", 2),
        ("a: 1\nb: 2024-99-99\n", 2),
        ("a: 1\nb: !!int x\n", 2),
        ("a: 1\nb: !!int ''\n", 2),
        ("a: 1\nb: !!bool x\n", 2),
        ("a: 1\nb: !!timestamp x\n", 2),
        ("a: 1\nb: !!binary 中\n", 2),
        ("a: 1\nb: !!str [1]\n", 2),
        ("a: 1\nb: !!map [1]\n", 2),
        ("a: 1\nb: !!seq {c: 1}\n", 2),
        ("a: 1\nb: !!str &b {=: *b}\n", 2),
        ("a: 1\nb: !u!x 1\n", 2),
        ("a: 1\n[b]: 2\n", 2),
        ("a: 1\n{b: 1}: 2\n", 2),
        ("a: 1\n<<: 2\n", 2),
        ("a: 1\n<<:\n", 2),
        ("a: 1\n<<: [1]\n", 2),
        ("a: 1\n<<: [[{b: 1}]]\n", 2),
        ("a: '\u2028\u2028'\nb: ]\n", 2),
        ("%YAML 2.0\n---\na: 1\n", 1),
        ("a: @b\n", 1),
        ("a: b: c\n", 1),
    ],
)
def test_what_safe_load_refuses_is_refused_in_one_line(text, row):
    with pytest.raises(
        (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError)
    ):
        yaml.safe_load(text)
    with pytest.raises(SourceError, match=r"^not valid YAML: .+$") as caught:
        load(text)
    assert "\n" not in str(caught.value)
    assert (caught.value.row, caught.value.code) == (row, "GPU000")


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("opening, closing", ["[]", ('{"a":', "}")])
def test_nesting_is_limited(dialect, opening, closing):
    load(opening * 100 + "1" + closing * 100, dialect)
    for depth in (101, 50_000):
        with pytest.raises(SourceError, match="nested more than 100 deep"):
            load("\n" + opening * depth + "1" + closing * depth, dialect)


def test_nesting_of_aliases_is_limited():
    lines = ["a0: &a0 []", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 200))]
    load("\n".join(lines[:99]))
    with pytest.raises(SourceError, match="nested more than 100 deep"):
        load("\n".join(lines))


@pytest.mark.parametrize(
    "first, item",
    [("[]", "[{}]"), ("{}", "{{<<: [{}]}}"), ("{x: 1}", "{{<<: [{}]}}"), ("x", "[{}]")],
)
def test_aliases_of_aliases_do_not_blow_up(first, item):
    lines = [f"a0: &a0 {first}"]
    for n in range(1, 12):
        aliases = ", ".join([f"*a{n - 1}"] * 10)
        lines.append(f"a{n}: &a{n} {item.format(aliases)}")
    with pytest.raises(SourceError, match="more than 100000 values") as caught:
        load("\n".join(lines))
    assert caught.value.code == "GPU000"


@pytest.mark.parametrize("dialect", Dialect)
def test_data_is_not_taken_for_settings(dialect, monkeypatch):
    monkeypatch.setattr(settings_file, "MAX_NODES", 1000)
    load("[" + "1," * 998 + "1]", dialect)
    with pytest.raises(SourceError, match="more than 1000 values"):
        load("[" + "1," * 10_000 + "1]", dialect)


@pytest.mark.parametrize("dialect", Dialect)
def test_a_large_text_is_refused(dialect):
    with pytest.raises(SourceError, match="the limit is 2000000") as caught:
        load('"' + "中" * 700_000 + '"', dialect)
    assert caught.value.code == "GPU000"


# Files


@pytest.mark.parametrize(
    "data, encoding",
    [
        ("学: 1".encode(), "utf-8"),
        (codecs.BOM_UTF8 + "学: 1".encode(), "utf-8"),
        (codecs.BOM_UTF16_LE + "学: 1".encode("utf-16-le"), "utf-16-le"),
        (codecs.BOM_UTF16_BE + "学: 1".encode("utf-16-be"), "utf-16-be"),
    ],
)
def test_files_are_read_by_their_byte_order_mark(tmp_path, data, encoding):
    path = tmp_path / "a.yaml"
    path.write_bytes(data)
    source = read_settings(path)
    assert (source.text, source.encoding, source.path) == ("学: 1", encoding, path)
    assert source.encode(source.text) == data
    root = parse_settings(source).body[0]
    assert (root.lineno, root.col_offset, root.end_col_offset) == (1, 0, 6)


def test_a_cookie_in_a_comment_means_nothing(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes("# -*- coding: latin-1 -*-\na: é\n".encode())
    assert read_settings(path).text.endswith("a: é\n")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(SourceError, match="not utf-8: byte 0xff") as caught:
        read_settings(path)
    assert caught.value.code == "GPU000"


def test_a_large_file_is_refused_unread(tmp_path):
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(10_000_000_000)
    with pytest.raises(SourceError, match="10000000000 bytes, the limit is 2000000"):
        read_settings(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        read_settings(tmp_path / "a.yaml")


def test_yaml_is_imported_only_when_a_yaml_file_is_read():
    code = (
        "import sys, pathlib\n"
        "from gpulint.source import Source\n"
        "from gpulint.index.settings_file import Dialect, parse_settings\n"
        "parse_settings(Source(pathlib.Path('a'), '{}'), Dialect.JSON)\n"
        "assert 'yaml' not in sys.modules\n"
        "parse_settings(Source(pathlib.Path('a'), '{}'))\n"
        "assert 'yaml' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
