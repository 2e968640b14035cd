"""What CNNs are put together from: layers in the company that they keep."""

from __future__ import annotations

from collections.abc import Callable

from tests.drawn.drawing import Drawing, UnfitError, divisors
from tests.drawn.layers import LAYERS, activation, image, normalisation
from tests.drawn.moves import MOVES


def another_input(d: Drawing) -> None:
    """Joins what is there."""
    if len(d.inputs) > 2:
        raise UnfitError("input")
    begin = d.at
    other = d.input([size if d.chance(0.7) or k < 1 else 1 for k, size in enumerate(d.shape)])
    if d.values[other].shape == d.shape and d.chance(0.4):
        d.add("Concat", other, of=begin, axis=d.draw.randrange(len(d.shape)))
    else:
        d.add(d.draw.choice(["Add", "Mul", "Sub"]), other, of=begin)


def residual(d: Drawing) -> None:
    """What was there is added to what is made of it."""
    begin, channels = d.at, d.shape[1]
    for _ in range(d.draw.randint(1, 2)):
        same(d, channels)
    d.add(d.draw.choice(["Add", "Sum"]), begin)
    activation(d)


def same(d: Drawing, channels: int) -> None:
    """A convolution that keeps the image, with all that follows one."""
    kernel = [d.draw.choice([1, 3]) for _ in image(d)]
    groups = d.draw.choice([g for g in divisors(channels, [1, 1, 2]) if d.shape[1] % g == 0])
    fan_in = d.shape[1] // groups * 3
    weights = d.weight(channels, d.shape[1] // groups, *kernel, fan_in=fan_in)
    d.add("Conv", weights, kernel_shape=kernel, pads=[k // 2 for k in kernel] * 2, group=groups)
    if d.chance(0.4):
        normalisation(d)
    if d.chance(0.6):
        d.add("Relu")


def dense(d: Drawing) -> None:
    """What was there beside what is made of it, again and again."""
    for _ in range(d.draw.randint(1, 3)):
        begin = d.at
        same(d, d.draw.choice([2, 3, 4]))
        d.add("Concat", d.at, of=begin, axis=1)


def branches(d: Drawing) -> None:
    """Several ways from one place, side by side again or added."""
    begin, joined = d.at, d.chance(0.6)
    channels, ends = d.draw.randint(2, 6), []
    for _ in range(d.draw.randint(2, 3)):
        d.at = begin
        same(d, d.draw.randint(2, 6) if joined else channels)
        ends.append(d.at)
    if joined:
        d.add("Concat", *ends[1:], of=ends[0], axis=1)
    else:
        d.add("Sum", *ends[1:], of=ends[0])


def weighed(d: Drawing) -> None:
    """Squeeze and excitation, by convolutions or by fully connected layers."""
    begin, channels, ones = d.at, d.shape[1], [1] * len(image(d))
    narrow = max(1, channels // 2)
    d.add("GlobalAveragePool")
    if d.chance(0.5):
        d.add("Conv", d.weight(narrow, channels, *ones, fan_in=channels), d.weight(narrow))
        d.add("Conv", d.weight(channels, narrow, *ones, fan_in=narrow), of=d.add("Relu"))
    else:
        d.add("Flatten")
        d.add("Gemm", d.weight(narrow, channels, fan_in=channels), d.weight(narrow), transB=1)
        d.add("Gemm", d.weight(narrow, channels, fan_in=narrow), d.weight(channels), of=d.add("Relu"))
        d.add("Reshape", d.constant([d.shape[0], channels, *ones]))
    d.add("Mul", d.add(d.draw.choice(["Sigmoid", "HardSigmoid"])), of=begin)


def shuffle(d: Drawing) -> None:
    """Channels of one group to all others."""
    sizes, channels = image(d), d.shape[1]
    groups = d.draw.choice(divisors(channels, [2, 3, 4]) or [1])
    axes = [0, 2, 1, *range(3, 3 + len(sizes))]
    d.add("Reshape", d.constant([d.shape[0], groups, channels // groups, *sizes]))
    d.add("Transpose", perm=axes)
    d.add("Reshape", d.constant([d.draw.choice([0, -1]), channels, *sizes]))


def back(d: Drawing) -> None:
    """Go on from something that was made before."""
    d.at = d.draw.choice(d.made)


BLOCKS: tuple[Callable[[Drawing], None], ...] = (
    *LAYERS * 2, *MOVES * 2, *[residual] * 6, *[dense] * 4, *[branches] * 4, *[weighed] * 4, *[shuffle] * 4,
    *[another_input] * 3, *[back] * 3,
)  # fmt: skip
