"""Networks of what CNNs are made of, to calibrate with: layers of all kinds in the company that they usually keep.

Nothing that anybody trained. They go from 112 x 112 positions down to 7 x 7, and on every size of image run the
blocks of well-known families: with normalisation, grouped and depthwise convolutions, shuffled channels, branches that
are added, concatenated or multiplied, flat and long kernels; with channels that vector instructions like and others.
There is a large one, and one whose frames take so little time that caches still hold what the last one left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSET = 9
STEPS = (1, 2, 2, 2)
"""With which each size of image begins."""


class Widths(NamedTuple):
    """Channels: of the stem, of each size of image, and of the layer before the last. lrn: whether there are LRN, which
    take longer than all else of a small network."""

    stem: int
    sizes: tuple[int, ...]
    hidden: int
    lrn: bool


NETWORKS: dict[str, Widths] = {
    "operators": Widths(40, (64, 120, 232, 384), 2048, lrn=True),
    "operators_small": Widths(24, (16, 24, 48, 72), 256, lrn=False),
}


class Drawing:
    """A network while it grows. Weights have shapes here and no values, as in the graphs of the onnx package."""

    def __init__(self, channels: int, size: int, with_lrn: bool) -> None:
        self.nodes: list[NodeProto] = []
        self.shapes: list[TensorProto] = []
        self.at, self.channels, self.size, self.with_lrn = "data", channels, size, with_lrn

    def add(self, op: str, *more: str, of: str | None = None, **attributes: Any) -> str:
        """A node that reads ``of``, or what was made last, and then some more."""
        out = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [of or self.at, *more], [out], **attributes))
        self.at = out
        return out

    def weight(self, *shape: int) -> str:
        """A tensor of weights."""
        name = f"w_{len(self.nodes)}"
        self.shapes.append(numpy_helper.from_array(np.array(shape, np.int64), f"{name}_shape"))
        self.nodes.append(helper.make_node("ConstantOfShape", [f"{name}_shape"], [name]))
        return name

    def constant(self, values: Iterable[int]) -> str:
        """What Reshape wants to know."""
        name = f"target_{len(self.nodes)}_{len(self.shapes)}"
        self.shapes.append(numpy_helper.from_array(np.array([*values], np.int64), name))
        return name

    def conv(self, channels: int, *kernel: int, step: int = 1, group: int = 1, gap: int = 1, bias: bool = False) -> str:
        """A convolution that keeps the size of the image, but for its step. kernel: height and width, or both"""
        sides = [kernel[0], kernel[-1]]
        pads = [gap * (side - 1) // 2 for side in sides]
        weights = [self.weight(channels, self.channels // group, *sides), *([self.weight(channels)] if bias else [])]
        self.size, self.channels = -(-self.size // step), channels
        return self.add("Conv", *weights, kernel_shape=sides, strides=[step] * 2, pads=pads * 2, group=group,
                        dilations=[gap] * 2)  # fmt: skip

    def norm(self) -> str:
        """A normalisation, with its four weights."""
        return self.add("BatchNormalization", *(self.weight(self.channels) for _ in range(4)))

    def scale(self) -> str:
        """What follows a normalisation in networks from Caffe: times one weight a channel, and one more added."""
        shape = (1, self.channels, 1, 1)
        self.add("Mul", self.weight(*shape))
        return self.add("Add", self.weight(*shape))

    def relu(self) -> str:
        """The usual activation."""
        return self.add("Relu")

    def lrn(self) -> None:
        """A normalisation over channels, where there shall be any."""
        if self.with_lrn:
            self.add("LRN", size=5, alpha=1e-4, beta=0.75)

    def pool(self, op: str, side: int, step: int) -> str:
        """Of neighbours."""
        pads = [(side - 1) // 2] * 4
        self.size = -(-self.size // step)
        return self.add(op, kernel_shape=[side] * 2, strides=[step] * 2, pads=pads)

    def shuffle(self, group: int) -> str:
        """Channels of one group to all others."""
        rows, each = self.channels // group, (self.size, self.size)
        self.add("Reshape", self.constant((1, group, rows, *each)))
        self.add("Transpose", perm=[0, 2, 1, 3, 4])
        return self.add("Reshape", self.constant((1, self.channels, *each)))


def model(name: str) -> ModelProto:
    """One of ``NETWORKS``, weights still to be drawn: opset 9, input ``(1, 3, 224, 224)``, output ``(1, 1000)``."""
    widths = NETWORKS[name]
    d = Drawing(3, 224, widths.lrn)
    _stem(d, widths.stem)
    for channels, step in zip(widths.sizes, STEPS, strict=True):
        _narrow(d, channels, step)
        for block in BLOCKS:
            block(d)
    _head(d, widths.hidden)
    info = helper.make_tensor_value_info
    inputs = [info("data", TensorProto.FLOAT, (1, 3, 224, 224))]
    graph = GraphProto(name=name, node=d.nodes, initializer=d.shapes, input=inputs)
    graph.output.append(info(d.at, TensorProto.FLOAT, (1, 1000)))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def _stem(d: Drawing, channels: int) -> None:
    d.conv(channels, 7, step=2, bias=True)
    d.relu()
    d.pool("MaxPool", 3, 2)
    d.lrn()


def _narrow(d: Drawing, channels: int, step: int) -> None:
    """To the channels of a size of image, by a grouped convolution with a large kernel."""
    d.conv(channels, 5, step=step, group=2, bias=True)
    d.relu()


def _plain(d: Drawing) -> None:
    """Convolution after convolution, then across channels."""
    d.conv(d.channels, 3, bias=True)
    d.relu()
    d.conv(d.channels, 3, group=2, bias=True)
    d.relu()
    d.lrn()
    d.pool("MaxPool", 3, 1)


def _bottleneck(d: Drawing) -> None:
    begin, channels = d.at, d.channels
    for wide, side in ((channels // 4, 1), (channels // 4, 3)):
        d.conv(wide, side)
        d.norm()
        d.relu()
    d.conv(channels, 1)
    d.add("Sum", begin, of=d.norm())
    d.relu()


def _dense(d: Drawing) -> None:
    """What was there beside what is made of it, again and again, then narrow."""
    channels = d.channels
    d.conv(channels, 1)
    d.pool("MaxPool", 3, 1)
    for _ in range(2):
        begin, before = d.at, d.channels
        for wide, side in ((96, 1), (40, 3)):
            d.norm()
            d.scale()
            d.relu()
            d.conv(wide, side)
        d.add("Concat", d.at, of=begin, axis=1)
        d.channels = before + 40
    d.norm()
    d.relu()
    d.conv(channels, 1)


def _shuffled(d: Drawing) -> None:
    """Half of it passed by."""
    channels = d.channels
    d.conv(channels // 2, 1, group=4)
    d.norm()
    begin = d.relu()
    d.shuffle(4)
    d.conv(d.channels, 3, group=d.channels)
    d.norm()
    d.conv(channels // 2, 1, group=4)
    made = d.norm()
    d.at = begin
    d.pool("MaxPool", 3, 1)
    d.add("Concat", made, axis=1)
    d.channels = channels
    d.relu()


def _inverted(d: Drawing) -> None:
    """Wide inside, depthwise, weighed by what the whole image holds."""
    begin, channels = d.at, d.channels
    for wide, side in ((2 * channels, 1), (2 * channels, 5)):
        d.conv(wide, side, group=1 if side == 1 else wide)
        d.norm()
        d.add("Clip", min=0.0, max=6.0)
    _weighed(d)
    d.conv(channels, 1)
    d.add("Add", begin, of=d.norm())


def _weighed(d: Drawing) -> None:
    begin, channels, size = d.at, d.channels, d.size
    d.add("GlobalAveragePool")
    d.size = 1
    d.conv(channels // 4, 1, bias=True)
    d.relu()
    d.conv(channels, 1, bias=True)
    d.add("Mul", d.add("Sigmoid"), of=begin)
    d.size = size


def _branches(d: Drawing) -> None:
    """Several ways side by side, and once more."""
    channels = d.channels
    d.pool("MaxPool", 3, 1)
    for _ in range(2):
        _side_by_side(d, channels // 4)
    d.conv(channels, 3, gap=2)
    d.add("LeakyRelu", alpha=0.1)


def _side_by_side(d: Drawing, wide: int) -> None:
    begin, channels, ends = d.at, d.channels, []
    for kernels in BRANCHES:
        d.at, d.channels = begin, channels
        if not kernels:
            d.pool("AveragePool", 3, 1)
        for kernel in kernels or ((1,),):
            d.conv(wide, *kernel, bias=True)
            d.relu()
        ends.append(d.at)
    d.add("Concat", *ends[1:], of=ends[0], axis=1)
    d.channels = len(ends) * wide


BRANCHES: tuple[tuple[tuple[int, ...], ...], ...] = (((1,),), ((1,), (3,)), ((1,), (5,)), ((1,), (1, 7), (7, 1)), ())
"""Kernels, one after the other; without any: of what neighbours have in common."""
BLOCKS: tuple[Callable[[Drawing], None], ...] = (_plain, _bottleneck, _dense, _shuffled, _inverted, _branches)


def _head(d: Drawing, hidden: int) -> None:
    d.pool("AveragePool", 3, 2)
    d.add("Reshape", d.constant((1, d.channels * d.size**2)))
    d.add("Gemm", d.weight(hidden, d.channels * d.size**2), d.weight(hidden), transB=1)
    d.relu()
    d.add("Gemm", d.weight(1000, hidden), d.weight(1000), transB=1)
    d.add("Softmax", axis=1)
