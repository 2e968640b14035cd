"""Windows that slide over rows: convolutions and pooling, with every way of saying how they are padded."""

from __future__ import annotations

from dataclasses import dataclass

from model.network.graph import Graph, Layer
from model.network.pools import POOLS
from model.network.rule import CHANNELS, ROWS, SAMPLES, WHOLE, Need, Rule, in_shape, length, others

CONVOLUTIONS = frozenset({"Conv", "QLinearConv", "ConvInteger"})
"""Of floats and of integers; transposed ones are another matter."""


@dataclass(frozen=True)
class Window:
    """A window along one axis: output i sees input ``i * stride - begin`` and ``window`` elements from there."""

    stride: int
    window: int
    begin: int
    size: int

    def pads(self, start: int, stop: int) -> tuple[int, int]:
        """Padding before and after, for outputs ``start..stop`` alone: none where the input goes on."""
        first = start * self.stride - self.begin
        last = (stop - 1) * self.stride - self.begin + self.window
        return max(0, -first), max(0, last - self.size)


def by_groups(graph: Graph, layer: Layer) -> tuple[Need, int, int]:
    """What output channels of a convolution need: the input channels of their group. Size and grain of the rule."""
    groups, size = layer.integer("group", 1), length(graph, layer, CHANNELS)
    if groups == 1:
        return WHOLE, size, 1
    return Need(CHANNELS, mul=in_shape(graph, layer)[1] // groups, div=size // groups), size, size // groups


def windowed(graph: Graph, layer: Layer, kind: int) -> Rule | None:
    """Samples are apart; rows need the rows under the kernel."""
    if kind == SAMPLES:
        return Rule((Need(0), *others(layer, WHOLE)), length(graph, layer, kind))
    if layer.op == "AveragePool" and layer.before and layer.after:  # of integers: another kernel for a single window
        return None
    row = of_rows(graph, layer)
    if row is None:
        return None
    need = Need(ROWS, mul=row.stride, lo=-row.begin, hi=row.window - row.stride - row.begin)
    return Rule((need, *others(layer, WHOLE)), length(graph, layer, kind))


def of_rows(graph: Graph, layer: Layer) -> Window | None:
    """The window over axis 2; None where a shard of rows would not be exact.

    Windows that lie in the padding alone have nothing to read. A last window that reaches beyond the padding
    (``ceil_mode``) must not count there. A dilated pooling that rounds up would need explicit pads as large as its
    kernel, which ONNX Runtime refuses. Where a stride leaves out more than an element, SAME_UPPER and SAME_LOWER mean
    no padding to ONNX, but less than none to ONNX Runtime.
    """
    if layer.attributes.get("ceil_mode", 0) and layer.attributes.get("count_include_pad", 0):
        return None
    every = _windows(graph, layer)
    if _how(layer).startswith("SAME") and any(same_total(w.size, w.stride, w.window) < -1 for w in every):
        return None
    found = every[0]
    rows = graph.tensors[layer.outputs[0]].shape[2]
    if layer.op in POOLS:
        kernel = layer.integers("kernel_shape", ())
        pads = padding(graph, layer, 0, rows)
        if any(pad >= k for pad, k in zip(pads, 2 * kernel, strict=True)):
            return None
    return found if max(found.pads(0, rows)) < found.window else None


def padding(graph: Graph, layer: Layer, start: int, stop: int) -> list[int]:
    """The ``pads`` attribute for output rows ``start..stop`` alone: begins of all axes, then ends."""
    out = graph.tensors[layer.outputs[0]].shape[2:]
    pads = [w.pads(0, n) for w, n in zip(_windows(graph, layer), out, strict=True)]
    pads[0] = _windows(graph, layer)[0].pads(start, stop)
    return [begin for begin, _ in pads] + [end for _, end in pads]


def _windows(graph: Graph, layer: Layer) -> list[Window]:
    sizes = graph.tensors[layer.inputs[0]].shape[2:]
    ones = (1,) * len(sizes)
    kernel = layer.integers("kernel_shape", ())
    if not kernel:
        kernel = graph.tensors[layer.inputs[3 if layer.op == "QLinearConv" else 1]].shape[2:]
    strides, dilations = layer.integers("strides", ones), layer.integers("dilations", ones)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    begins = _begins(layer, sizes, strides, reach)
    return [Window(s, w, b, n) for s, w, b, n in zip(strides, reach, begins, sizes, strict=True)]


def _begins(layer: Layer, sizes: tuple[int, ...], strides: tuple[int, ...], reach: list[int]) -> list[int]:
    """Padding before each axis."""
    how = _how(layer)
    if how == "NOTSET":
        return list(layer.integers("pads", (0,) * (2 * len(sizes)))[: len(sizes)])
    if how == "VALID":
        return [0] * len(sizes)
    total = [max(0, same_total(n, s, w)) for n, s, w in zip(sizes, strides, reach, strict=True)]
    return [t // 2 if how == "SAME_UPPER" else t - t // 2 for t in total]


def _how(layer: Layer) -> str:
    """How the layer is padded: NOTSET, SAME_UPPER, SAME_LOWER or VALID."""
    return str(layer.attributes.get("auto_pad", "") or "NOTSET")


def same_total(size: int, stride: int, window: int) -> int:
    """Padding with which there is a window for every ``stride`` elements; negative where a stride leaves some out."""
    return (-(-size // stride) - 1) * stride + window - size
