"""Layers of CNNs with random attributes, each as an exporter may write it for the opset."""

from __future__ import annotations

import math
from typing import Any

from tests.drawn.drawing import Drawing, UnfitError, divisors


def image(d: Drawing) -> tuple[int, ...]:
    """Sizes of the image; without any, convolutions and the like do not fit."""
    if len(d.shape) < 3:
        raise UnfitError("image")
    return d.shape[2:]


def window(d: Drawing, kernel: list[int], dilated: bool = True) -> dict[str, Any]:
    """Strides, dilations and padding of a kernel."""
    rank = len(kernel)
    found: dict[str, Any] = {"strides": d.several(rank, 1, d.draw.choice([1, 2, 3]))}
    if dilated:
        found["dilations"] = d.several(rank, 1, d.draw.choice([1, 1, 2]))
    how = d.draw.choice(["pads", "pads", "", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if how == "pads":
        found["pads"] = [d.draw.randint(0, k - 1) for k in kernel * 2]
    elif how:
        found["auto_pad"] = how
    return found


def conv(d: Drawing) -> None:
    """Plain, grouped or depthwise."""
    kernel = [d.draw.randint(1, min(4, size + 1)) for size in image(d)]
    channels = d.shape[1]
    groups = d.draw.choice(divisors(channels, [1, 1, 1, 2, 3, 4, channels]))
    made = groups * d.draw.randint(1, max(1, 12 // groups))
    weights = [d.weight(made, channels // groups, *kernel, fan_in=channels // groups * math.prod(kernel))]
    weights += [d.weight(made)] if d.chance(0.6) else []
    shape: dict[str, Any] = {"kernel_shape": kernel} if d.chance(0.8) else {}
    d.add("Conv", *weights, group=groups, **shape, **window(d, kernel))


def pointwise(d: Drawing) -> None:
    """A convolution of one position, which keeps the image."""
    made = d.draw.randint(2, 16)
    d.add("Conv", d.weight(made, d.shape[1], *[1] * len(image(d)), fan_in=d.shape[1]), d.weight(made))


def conv_transpose(d: Drawing) -> None:
    """Back to a larger image."""
    kernel = [d.draw.randint(1, min(4, size + 1)) for size in image(d)]
    groups = d.draw.choice(divisors(d.shape[1], [1, 1, 2, d.shape[1]]))
    made = d.draw.randint(1, 6)
    weights = [d.weight(d.shape[1], made, *kernel, fan_in=d.shape[1] // groups * 4)]
    weights += [d.weight(made * groups)] if d.chance(0.5) else []
    how = window(d, kernel)
    if d.chance(0.3):
        how["output_padding"] = [d.draw.randint(0, stride - 1) for stride in how["strides"]]
    elif d.chance(0.2):
        how["output_shape"] = [size * stride for size, stride in zip(d.shape[2:], how["strides"], strict=True)]
    d.add("ConvTranspose", *weights, group=groups, kernel_shape=kernel, **how)


def gemm(d: Drawing) -> None:
    """A fully connected layer, in all ways of writing it."""
    if len(d.shape) != 2:
        flatten(d)
    a, b, made = d.chance(0.1), d.chance(0.5), d.draw.randint(2, 20)
    rows, inner = d.shape[::-1] if a else d.shape
    more = [d.weight(*((made, inner) if b else (inner, made)), fan_in=inner)]
    if d.opset < 11 or d.chance(0.7):
        more.append(d.weight(*d.draw.choice([(made,), (1, made), (rows, made), (1,), (rows, 1)])))
    factors: dict[str, Any] = {"alpha": 0.5, "beta": 2.0} if d.chance(0.2) else {}
    d.add("Gemm", *more, transA=int(a), transB=int(b), **factors)


def matmul(d: Drawing) -> None:
    """A fully connected layer over the last axis."""
    made = d.draw.randint(2, 12)
    d.add("MatMul", d.weight(d.shape[-1], made, fan_in=d.shape[-1]))
    if d.chance(0.5):
        d.add("Add", d.weight(made))


def product(d: Drawing) -> None:
    """What was made times itself turned, as attention has it."""
    if len(d.shape) < 3:
        raise UnfitError("MatMul")
    begin, rank = d.at, len(d.shape)
    turned = d.add("Transpose", perm=[*range(rank - 2), rank - 1, rank - 2])
    d.add("MatMul", turned, of=begin)
    d.add("Mul", d.constant(1 / math.sqrt(d.values[begin].shape[-1])))
    d.add("MatMul", begin, of=d.add("Softmax", axis=rank - 1))


def normalisation(d: Drawing) -> None:
    """Of one of many kinds."""
    channels = d.shape[1]
    kinds = ["batch", "batch", "batch", "instance", "lrn", "lp", "mean"]
    match d.draw.choice([*kinds, *["layer"] * (d.opset >= 17), *["group"] * (d.opset >= 21)]):
        case "batch":
            rest = [d.weight(channels) for _ in range(3)]
            d.add("BatchNormalization", *rest, d.weight(channels, positive=True), epsilon=1e-3)
        case "instance":
            d.add("InstanceNormalization", d.weight(channels), d.weight(channels))
        case "lrn":
            d.add("LRN", size=d.draw.choice([1, 3, 5]), alpha=0.5, beta=0.75)
        case "layer":
            axis = d.draw.randrange(1, len(d.shape))
            d.add("LayerNormalization", *(d.weight(*d.shape[axis:]) for _ in range(2)), axis=axis)
        case "group":
            groups = d.draw.choice(divisors(channels, [1, 2, 3, 4]))
            rest = [d.weight(channels) for _ in range(2)]
            d.add("GroupNormalization", *rest, num_groups=groups)
        case "lp":
            d.add("LpNormalization", axis=d.draw.randrange(len(d.shape)), p=2)
        case "mean":
            image(d)
            d.add("MeanVarianceNormalization", axes=[*d.draw.choice([[], [0]]), *range(2, len(d.shape))])


def pool(d: Drawing) -> None:
    """Of neighbours, or of the whole image."""
    op = d.draw.choice(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool", "Global"])
    if op == "Global":
        image(d)
        d.add(d.draw.choice(["GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"]))
        return
    kernel = [d.draw.randint(1, min(4, size)) for size in image(d)]
    newest = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]
    how = window(d, kernel, dilated=d.opset >= newest)
    if d.opset >= max(10, newest if op == "LpPool" else 10) and d.chance(0.4):
        how["ceil_mode"] = 1
    if op == "AveragePool" and d.chance(0.5):
        how["count_include_pad"] = 1
    d.add(op, kernel_shape=kernel, outputs=2 if op == "MaxPool" and d.chance(0.1) else 1, **how)


SINCE: dict[str, int] = {"Celu": 12, "HardSwish": 14, "Mish": 18, "Gelu": 20, "Erf": 9}
ACTIVATIONS = (
    *("Relu", "Relu", "Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "HardSwish", "Gelu"),
    *("Softplus", "Softsign", "ThresholdedRelu", "Celu", "Mish", "Erf", "Exp", "Abs", "Neg"),
)


def activation(d: Drawing) -> None:
    """Element by element, or with one slope a channel, between two bounds, or over an axis."""
    kind = d.draw.choice([*ACTIVATIONS, *["Clip"] * 4, *["PRelu"] * 3, *["Softmax"] * 2, "LogSoftmax", "swish", "gelu"])
    begin = d.at
    match kind:
        case "Clip":
            if d.opset >= 11 and d.chance(0.3):
                d.add("Clip", *d.draw.choice([("", d.constant(1.0)), (d.constant(-0.5),)]))
            else:
                d.given("Clip", 11, min=d.draw.choice([0.0, -1.0]), max=d.draw.choice([6.0, 1.0]))
        case "PRelu":
            slopes = [1] * (len(d.shape) - 2)
            d.add("PRelu", d.weight(*d.draw.choice([(d.shape[1], *slopes), (1, d.shape[1], *slopes), (1,), d.shape])))
        case "Softmax" | "LogSoftmax":
            axis: dict[str, Any] = {"axis": d.draw.randrange(-1, len(d.shape))} if d.chance(0.8) else {}
            d.add(kind, **axis)
        case "swish":
            d.add("Mul", d.add("Sigmoid"), of=begin)
        case "gelu":
            d.add("Erf", of=d.add("Div", d.constant(math.sqrt(2))))
            d.add("Mul", d.add("Add", d.constant(1.0)), of=begin)
            d.add("Mul", d.constant(0.5))
        case _ if d.opset >= SINCE.get(kind, 7):
            d.add(kind)


def with_constant(d: Drawing) -> None:
    """Element by element with a constant that is broadcast, on either side."""
    shape = [size if d.chance(0.5) else 1 for size in d.shape][d.draw.randrange(len(d.shape)) :]
    op = d.draw.choice(["Add", "Add", "Mul", "Mul", "Sub", "Div", "Max", "Min"])
    pair = [d.at, d.weight(*(shape if d.chance(0.8) else ()), positive=op == "Div")]
    if d.chance(0.3) and op != "Div":
        pair.reverse()
    d.add(op, *pair[1:], of=pair[0])


def with_other(d: Drawing) -> None:
    """Element by element with something that was made before and can be broadcast."""
    d.add(d.draw.choice(["Add", "Add", "Mul", "Sub", "Max", "Sum", "Mean"]), d.draw.choice(d.made))


def chosen(d: Drawing) -> None:
    """One of two things, by the sign."""
    begin = d.at
    positive = d.add("Greater", d.constant(0.0))
    d.add("Where", begin, d.add("Mul", d.constant(0.1), of=begin), of=positive)


def reduce(d: Drawing) -> None:
    """Over some axes."""
    axes = sorted(d.draw.sample(range(len(d.shape)), d.draw.randint(1, min(2, len(d.shape)))))
    op = d.draw.choice(["ReduceMean"] * 3 + ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp"])
    d.given(op, 13 if op == "ReduceSum" else 18, axes=axes, rest={"keepdims": int(d.chance(0.7))})


def flatten(d: Drawing) -> None:
    """To a matrix: by its own operator, by a constant shape, or by one that is computed."""
    match d.draw.choice(["own", "shape", "computed"]):
        case "own":
            d.add("Flatten", axis=1)
        case "shape":
            d.add("Reshape", d.constant([d.draw.choice([0, d.shape[0]]), -1]))
        case "computed":
            begin = d.at
            d.add("Gather", d.constant([0]), of=d.add("Shape"), axis=0)
            d.add("Reshape", d.add("Concat", d.constant([-1]), axis=0), of=begin)


def dropout(d: Drawing) -> None:
    """What does nothing when a network is used."""
    d.add(d.draw.choice(["Dropout", "Identity"]))


def recast(d: Drawing) -> None:
    """In double precision, or from there in single, for one operator."""
    types = {"float16": 10, "float32": 1, "float64": 11}
    d.add("Cast", to=types["float64" if d.dtype == "float32" else "float32"])
    d.add(d.draw.choice(["Relu", "Tanh", "Neg"]))
    d.add("Cast", to=types[d.dtype])


LAYERS = (
    *[conv] * 8, *[activation] * 6, *[normalisation] * 3, *[pool] * 4, *[with_constant] * 3, *[with_other] * 3,
    conv_transpose, conv_transpose, pointwise, pointwise, gemm, matmul, product, chosen, reduce, flatten, dropout,
    recast,
)  # fmt: skip
