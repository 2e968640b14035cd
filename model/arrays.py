"""The graph as flat arrays, which lowering and pricing run on.

*Tasks* are the graph's layers with one task before them for each input of the network and one after them for each
output, so that where a frame enters and leaves is part of the mapping like anything else. *Tensors* are numbered in
the order in which tasks make them. Intervals run along the channel axis; a tensor that cannot be split has size 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model import boxes
from model.graph import Graph, Layer
from model.mapping import extent

Ints = NDArray[np.int32]


class GraphArrays(NamedTuple):
    """Shapes: ``T`` tasks, ``N`` tensors, ``E`` edges (one for each activation that a task reads).

    n_inputs, n_layers: tasks ``0..n_inputs`` are inputs, the layers follow, the rest are outputs
    size:  (T,) elements along the channel axis; grain: (T,) cuts are multiples of it; grain == size: stays whole
    heavy: (T,) 1 for convolutions and fully connected layers that can be split
    tensor_ptr: (T+1,) tensors of a task; tensor_task: (N,) the task that makes it
    tensor_bytes: (N,) of the whole tensor, float64; tensor_size: (N,) elements along the channel axis
    edge_ptr: (T+1,) edges of a task, in input order; edge_tensor: (E,)
    edge_need: (E, 5) ``axis, mul, div, lo, hi`` of ``boxes.Need``; axis -1: everything
    use_ptr: (N+1,) readers of a tensor; use_edge: (E,) edge; use_task: (E,) task, ascending
    """

    n_inputs: int
    n_layers: int
    size: Ints
    grain: Ints
    heavy: Ints
    tensor_ptr: Ints
    tensor_task: Ints
    tensor_bytes: NDArray[np.float64]
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
    reads: list[list[tuple[str, boxes.Need]]] = (
        [[] for _ in graph.inputs]
        + [_reads(graph, i) for i in graph.layers]
        + [[(o, boxes.WHOLE)] for o in graph.outputs]
    )
    edges = [(number[name], need) for row in reads for name, need in row]
    edge_task = np.repeat(np.arange(len(reads)), [len(row) for row in reads])
    edge_tensor = _ints([tensor for tensor, _ in edges])
    use_edge = np.argsort(edge_tensor, kind="stable")
    size, grain, heavy = _cuts(graph)
    return GraphArrays(
        n_inputs=len(graph.inputs),
        n_layers=len(graph.layers),
        size=size,
        grain=grain,
        heavy=heavy,
        tensor_ptr=_pointers([len(row) for row in makes]),
        tensor_task=_ints(np.repeat(np.arange(len(makes)), [len(row) for row in makes])),
        tensor_bytes=np.array([graph.tensors[name].size_bytes for name in names], dtype=np.float64),
        tensor_size=_ints([_tensor_size(graph, name) for name in names]),
        edge_ptr=_pointers([len(row) for row in reads]),
        edge_tensor=edge_tensor,
        edge_need=_ints([(n.axis, n.mul, n.div, n.lo, n.hi) for _, n in edges]).reshape(-1, 5),
        use_ptr=_pointers(np.bincount(edge_tensor, minlength=len(names))),
        use_edge=_ints(use_edge),
        use_task=_ints(edge_task[use_edge]),
    )


def _reads(graph: Graph, layer: Layer) -> list[tuple[str, boxes.Need]]:
    """Activations that the layer reads, each with what a box of the output needs of it."""
    rule = boxes.rule(graph, layer)
    needs = rule.needs if rule else (boxes.WHOLE,) * len(layer.inputs)
    return [(n, need) for n, need in zip(layer.inputs, needs, strict=True) if n and not graph.is_constant(n)]


def _cuts(graph: Graph) -> tuple[Ints, Ints, Ints]:
    """Size, grain and heaviness of every task; inputs and outputs of the network stay whole."""
    rules = [boxes.rule(graph, layer) for layer in graph.layers]
    sizes = [extent(graph, layer) for layer in graph.layers]
    grains = [rule.grain if rule else size for rule, size in zip(rules, sizes, strict=True)]
    heavy = [int(boxes.is_heavy(graph, layer)) for layer in graph.layers]
    ins = [_tensor_size(graph, name) for name in graph.inputs]
    outs = [_tensor_size(graph, name) for name in graph.outputs]
    none = [0] * len(outs)
    return _ints(ins + sizes + outs), _ints(ins + grains + outs), _ints([0] * len(ins) + heavy + none)


def _tensor_size(graph: Graph, name: str) -> int:
    shape = graph.tensors[name].shape
    return shape[boxes.CHANNELS] if len(shape) > boxes.CHANNELS else 1


def _ints(values: object) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int32)


def _pointers(counts: object) -> Ints:
    return _ints(np.concatenate(([0], np.cumsum(np.asarray(counts, dtype=np.int64)))))
