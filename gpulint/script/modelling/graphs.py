"""Whether a script trains a graph network, and which batches are graph objects."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.walk import dotted, walk
from gpulint.script.modelling.models import makers
from gpulint.script.modelling.network import network
from gpulint.script.neighbours import used_by

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script
    from gpulint.script.training.training_step import Step

LIBRARIES = frozenset(
    "chemprop dgl dgllife e3nn metatensor metatomic ogb schnetpack torch_cluster "
    "torch_geometric torch_scatter torch_sparse".split()
)
# What a DGL graph has and no tensor.
_OF_DGL = frozenset(
    "ndata edata srcdata dstdata update_all apply_edges apply_nodes batch_num_nodes "
    "batch_num_edges local_scope number_of_nodes number_of_edges".split()
)
# What message passing is told about who is connected.
_CONNECTIONS = re.compile(
    r"(^|_)(adjs?|adjacency|edge_index|edge_attr|edge_weight|edge_type|laplacian|"
    r"graphs?)(_|$|\d)"
)
# Layers of a program's own that multiply by who is connected.
_LAYER = re.compile(
    r"(^|\.)(Graph(?!Transf|ormer|Module)[A-Z]\w*|\w*G[CN]N|GAT|GIN)(V?\d|Layer|Conv|Block)?$"
)
# What most of the work is where it is beside them.
_DENSE = (
    *("torch.nn.Conv", "torch.nn.functional.conv", "torchvision.", "timm."),
    *("transformers.", "torch.nn.Transformer", "torch.nn.MultiheadAttention"),
    *("torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN"),
)
_GRAPH_NAME = re.compile(r"(^|_)(graphs?|dgl\w*)(_|$|\d)|^g\d?$")


def is_graph_network(script: Script, step: Step) -> bool:
    """Whether messages are passed along edges: gathers and scatters, few products."""
    return (
        _passes_messages(script, step)
        or uses_graphs(script)
        or _has_graph_layers(script, step)
    )


def _has_graph_layers(script: Script, step: Step) -> bool:
    """Whether the model holds layers that are called after graphs, no larger ones."""
    made = makers(script, step.forward.func) if step.forward is not None else ()
    models = [network(script, call).names for call in made if call is not None]
    return bool(models) and all(
        any(map(_LAYER.search, names))
        and not any(name.startswith(_DENSE) for name in names)
        for names in models
    )


def uses_graphs(script: Script) -> bool:
    """Whether a file, or one that it uses, imports a library for graph networks."""
    if imports_graphs(script.index):
        return True
    project = script.index.project
    if project is None or not any(map(project.mentions, LIBRARIES)):
        return False
    return any(map(imports_graphs, used_by(script)))


def imports_graphs(index: FileIndex) -> bool:
    """Whether a file imports a library for graph networks."""
    heads = {v.partition(".")[0] for v in (*index.imported, *index.stars)}
    return not LIBRARIES.isdisjoint(heads)


def _passes_messages(script: Script, step: Step) -> bool:
    """Whether the step hands edges or graphs to the model, or reads a DGL graph."""
    if iterates_graphs(script, step.loop):
        return True
    if step.forward is None:
        return False
    values = [*step.forward.args, *(k.value for k in step.forward.keywords)]
    names = [n.id for n in walk(*values) if isinstance(n, ast.Name)]
    names += [n.attr for n in walk(*values) if isinstance(n, ast.Attribute)]
    names += [k.arg for k in step.forward.keywords if k.arg is not None]
    return any(map(_CONNECTIONS.search, names))


def iterates_graphs(script: Script, loop: Loop) -> bool:
    """Whether a loop's batches are, or hold, graphs of DGL: not tensors."""
    targets = {target.id for target in loop.targets}
    targets |= {name.id for name in _taken_apart(loop, targets)}
    read = (n for n in walk(loop.node) if isinstance(n, ast.Attribute))
    if any(n.attr in _OF_DGL and dotted(n.value) in targets for n in read):
        return True
    if not any(map(_GRAPH_NAME.search, targets)):
        return False
    project = script.index.project
    if project is None or not project.mentions("dgl"):
        return _imports_dgl(script.index)
    return any(map(_imports_dgl, used_by(script)))


def _taken_apart(loop: Loop, targets: set[str]) -> Iterator[ast.Name]:
    """`graph` and `labels` of `graph, labels = batch` in a loop over batches."""
    for node in walk(loop.node):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id in targets:
            yield from (n for n in walk(*node.targets) if isinstance(n, ast.Name))


def _imports_dgl(index: FileIndex) -> bool:
    return any(v.partition(".")[0] == "dgl" for v in index.imported)
