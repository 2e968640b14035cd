"""The graph as flat arrays, which lowering and pricing run on.

*Tasks* are the graph's layers with one task before them for each input of the network and one after them for each
output, so that where a frame enters and leaves is part of the mapping like anything else. *Tensors* are numbered in
the order in which tasks make them. Boxes have an interval along each of the first three axes of a tensor (samples,
channels, rows); a tensor without an axis has size 1 there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.mappings.mapping import extent
from model.network import boxes
from model.network.graph import Graph

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]

ix = np.uint32
"""An index that is not negative. Of any other numba asks whether it counts from the end, a seventh of all the time."""


class GraphArrays(NamedTuple):
    """Shapes: ``T`` tasks, ``N`` tensors, ``E`` edges (one for each activation that a task reads).

    n_inputs, n_layers: tasks ``0..n_inputs`` are inputs, the layers follow, the rest are outputs
    size:  (T, KINDS) elements that each kind of split divides; grain: (T, KINDS) cuts are multiples of it;
           grain == size: stays whole in that way
    heavy: (T,) 1 for convolutions and fully connected layers that can be split by channels
    tensor_ptr: (T+1,) tensors of a task; tensor_task: (N,) the task that makes it
    tensor_bytes: (N,) of the whole tensor, float64; tensor_size: (N, AXES) elements along each axis
    edge_ptr: (T+1,) edges of a task, in input order; edge_tensor: (E,)
    edge_need: (E, KINDS, 5) ``axis, mul, div, lo, hi`` of ``boxes.Need`` for each kind of split of the reader;
               axis -1: everything
    use_ptr: (N+1,) readers of a tensor; use_edge: (E,) edge; use_task: (E,) task, ascending
    """

    n_inputs: int
    n_layers: int
    size: Ints
    grain: Ints
    heavy: Ints
    tensor_ptr: Ints
    tensor_task: Ints
    tensor_bytes: Floats
    tensor_size: Ints
    edge_ptr: Ints
    edge_tensor: Ints
    edge_need: Ints
    use_ptr: Ints
    use_edge: Ints
    use_task: Ints


def tensor_names(graph: Graph) -> list[str]:
    """Names of the tensors in the order of their numbers."""
    return [*graph.inputs, *[name for layer in graph.layers for name in layer.outputs]]


def arrays(graph: Graph) -> GraphArrays:
    """The graph as flat arrays."""
    names = tensor_names(graph)
    number = {name: i for i, name in enumerate(names)}
    makes = [[name] for name in graph.inputs] + [list(i.outputs) for i in graph.layers] + [[] for _ in graph.outputs]
    rules = [boxes.rules(graph, layer) for layer in graph.layers]
    ends = [[(name, [boxes.WHOLE] * boxes.KINDS)] for name in graph.outputs]
    reads: list[boxes.Reads] = (
        [[] for _ in graph.inputs] + [boxes.reads(graph, i, r) for i, r in zip(graph.layers, rules, strict=True)] + ends
    )
    edges = [(number[name], needs) for row in reads for name, needs in row]
    edge_task = np.repeat(np.arange(len(reads)), [len(row) for row in reads])
    edge_tensor = _ints([tensor for tensor, _ in edges])
    use_edge = np.argsort(edge_tensor, kind="stable")
    size, grain = _cuts(graph, rules)
    heavy = [0] * len(graph.inputs) + [int(boxes.is_heavy(graph, i)) for i in graph.layers] + [0] * len(graph.outputs)
    return GraphArrays(
        n_inputs=len(graph.inputs),
        n_layers=len(graph.layers),
        size=size,
        grain=grain,
        heavy=_ints(heavy),
        tensor_ptr=_pointers([len(row) for row in makes]),
        tensor_task=_ints(np.repeat(np.arange(len(makes)), [len(row) for row in makes])),
        tensor_bytes=np.array([graph.tensors[name].size_bytes for name in names], dtype=np.float64),
        tensor_size=_ints([boxes.sizes(graph.tensors[name].shape) for name in names]),
        edge_ptr=_pointers([len(row) for row in reads]),
        edge_tensor=edge_tensor,
        edge_need=_ints([[(n.axis, n.mul, n.div, n.lo, n.hi) for n in needs] for _, needs in edges]).reshape(
            -1, boxes.KINDS, 5
        ),
        use_ptr=_pointers(np.bincount(edge_tensor, minlength=len(names))),
        use_edge=_ints(use_edge),
        use_task=_ints(edge_task[use_edge]),
    )


def _cuts(graph: Graph, rules: list[boxes.Rules]) -> tuple[Ints, Ints]:
    """Size and grain of every task for every kind of split; inputs and outputs of the network stay whole."""
    sizes = [[extent(graph, layer, kind) for kind in range(boxes.KINDS)] for layer in graph.layers]
    grains = [
        [rule.grain if rule else size for rule, size in zip(row, of, strict=True)]
        for row, of in zip(rules, sizes, strict=True)
    ]
    ins = [[*boxes.sizes(graph.tensors[name].shape), 1] for name in graph.inputs]
    outs = [[*boxes.sizes(graph.tensors[name].shape), 1] for name in graph.outputs]
    return _ints(ins + sizes + outs), _ints(ins + grains + outs)


def _ints(values: object) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int32)


def _pointers(counts: object) -> Ints:
    return _ints(np.concatenate(([0], np.cumsum(np.asarray(counts, dtype=np.int64)))))


def edges(g: GraphArrays) -> Iterator[tuple[int, int, int]]:
    """Edges between layers: number, maker, reader; by reader."""
    for layer in range(g.n_layers):
        task = g.n_inputs + layer
        for edge in range(g.edge_ptr[task], g.edge_ptr[task + 1]):
            maker = int(g.tensor_task[g.edge_tensor[edge]]) - g.n_inputs
            if maker >= 0:
                yield edge, maker, layer
