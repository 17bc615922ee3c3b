"""Samples that a dataset takes over the network, one by one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import FUNCTIONS, dotted, walk_scope
from gpulint.script.samples.per_sample import keeps_results

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_HELPERS = 8
_METHODS = frozenset(["__getitem__", "__getitems__"])
_REMOTE = re.compile(r"(s3a?|gs|gcs|https?|ftp|hdfs|abfss?|az|oss|cos)://")
_CALLS = frozenset(
    "requests.get requests.request httpx.get urllib.request.urlopen "
    "urllib.request.urlretrieve wget.download".split()
)
# Methods of a client, in a file that imports its package.
_CLIENTS = {
    "boto3": "get_object download_file download_fileobj",
    "botocore": "get_object",
    "minio": "get_object fget_object",
    "oss2": "get_object get_object_to_file",
    "google": "download_as_bytes download_as_string download_to_filename",
    "azure": "download_blob",
}
_SYSTEMS = frozenset(
    "s3fs.S3FileSystem gcsfs.GCSFileSystem adlfs.AzureBlobFileSystem".split()
)
_SAYS = frozenset(
    "print debug info warning error join format append startswith".split()
)


def remote_reads(script: Script) -> Iterator[tuple[ast.Call, ast.ClassDef]]:
    """The calls that fetch a sample each time it is asked for, with the dataset."""
    for owner in script.index.all(ast.ClassDef):
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name in _METHODS:
                for call in _fetches(script, method, []):
                    yield call, owner


def _fetches(
    script: Script, function: Function, seen: list[Function]
) -> Iterator[ast.Call]:
    """Calls of a function, and of those that it calls, that nothing may spare."""
    seen.append(function)
    if len(seen) > MAX_HELPERS or keeps_results(script, function):
        return
    for node in walk_scope(function):
        if not isinstance(node, ast.Call) or _is_spared(script, node, function):
            continue
        if _is_remote(script, node):
            yield node
            continue
        helper = script.resolver.calls.callee(node)
        if helper is not None and helper not in seen:
            inside = _fetches(script.of(helper), helper, seen)
            if script.index.holds(helper):
                yield from inside
            elif any(inside):
                yield node


def _is_spared(script: Script, call: ast.Call, function: Function) -> bool:
    """Whether a call stands behind a test, such as for a file that is there."""
    for above in script.index.ancestors(call):
        if above is function:
            break
        if isinstance(above, (ast.If, ast.IfExp, ast.BoolOp, ast.ExceptHandler)):
            return True
        if isinstance(above, FUNCTIONS):
            return True
    return any(
        isinstance(node, ast.If)
        and isinstance(node.body[-1], ast.Return)
        and node.lineno < call.lineno
        for node in walk_scope(function)
    )


def _is_remote(script: Script, call: ast.Call) -> bool:
    index = script.index
    if index.qualified(call.func) in _CALLS:
        return True
    func = call.func
    if isinstance(func, ast.Attribute):
        heads = {origin.partition(".")[0] for origin in index.imported}
        if any(func.attr in _CLIENTS[h].split() for h in heads & _CLIENTS.keys()):
            return True
        if func.attr in ("open", "cat", "cat_file", "get") and _is_system(script, func):
            return True
        if func.attr in _SAYS:
            return False
    name = (dotted(func) or "").rpartition(".")[2]
    given = call.args[:1] if name not in _SAYS else []
    return any(_REMOTE.match(_beginning(script, argument)) for argument in given)


def _is_system(script: Script, func: ast.Attribute) -> bool:
    """`s3fs.S3FileSystem()`, `fsspec.filesystem("s3")`."""
    for origin in script.resolver.origins(func.value):
        name = script.index.qualified(origin.call.func) if origin.call else None
        if name in _SYSTEMS:
            return True
        if name == "fsspec.filesystem" and origin.call and origin.call.args:
            first = origin.call.args[0]
            kind = first.value if isinstance(first, ast.Constant) else ""
            return isinstance(kind, str) and bool(_REMOTE.match(f"{kind}://"))
    return False


def _beginning(script: Script, node: ast.expr) -> str:
    """What a text surely starts with: `"s3://…" + name`, `f"s3://{name}"`."""
    if isinstance(node, ast.BinOp):
        return _beginning(script, node.left)
    if isinstance(node, ast.JoinedStr):
        first = node.values[0] if node.values else None
        if isinstance(first, ast.FormattedValue):
            return _beginning(script, first.value)
        return _beginning(script, first) if first is not None else ""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    known = script.evaluator.values(node)
    texts = [v.constant for v in known.known if not v.default]
    alone = known.complete and len(texts) == 1 == len(known.known)
    return texts[0] if alone and isinstance(texts[0], str) else ""
