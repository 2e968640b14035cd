"""Layers that move elements or choose some, and what exporters compute their shapes by."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.drawn.drawing import Drawing, UnfitError, divisors
from tests.drawn.layers import image


def transpose(d: Drawing) -> None:
    """Axes in another order; samples stay first mostly."""
    axes = [*range(len(d.shape))]
    first = 0 if d.chance(0.2) else 1
    d.add("Transpose", perm=axes[:first] + d.draw.sample(axes[first:], len(axes) - first))


def cut(d: Drawing) -> None:
    """A part of some axes, maybe with steps or backwards."""
    axis = d.draw.randrange(len(d.shape))
    start = d.draw.randrange(d.shape[axis])
    stop = d.draw.randint(start + 1, d.shape[axis])
    if d.opset >= 10 and d.chance(0.3):
        step = d.draw.choice([2, -1])
        ends = (start, stop) if step > 0 else (stop - 1, start - d.shape[axis] - 1)
        d.given("Slice", 10, starts=[ends[0]], ends=[ends[1]], axes=[axis - len(d.shape)], steps=[step])
    else:
        stop = d.draw.choice([stop, 2**31 if stop == d.shape[axis] else stop])
        d.given("Slice", 10, starts=[start], ends=[stop], axes=[axis])


def split(d: Drawing) -> None:
    """In parts, of which some go on, each in its own way."""
    axis = d.draw.randrange(len(d.shape))
    at = d.draw.randrange(1, max(2, d.shape[axis]))
    if d.opset >= 18 and d.chance(0.3):
        first = d.add("Split", axis=axis, num_outputs=2, outputs=2)
    else:
        first = d.given("Split", 13, outputs=2, split=[at, d.shape[axis] - at], rest={"axis": axis})
    second = f"{first}_1"
    if d.chance(0.3):
        d.at = d.draw.choice([first, second])
        return
    made = d.add(d.draw.choice(["Relu", "Tanh", "Sigmoid"]), of=second)
    d.add("Concat", *d.draw.sample([first, made, second], 2), of=first, axis=axis)


def pad(d: Drawing) -> None:
    """Around the image or along other axes, in each mode."""
    rank = len(d.shape)
    mode = d.draw.choice(["constant", "constant", "reflect", "edge", *["wrap"] * (d.opset >= 19)])
    free = 2 if mode != "constant" or d.chance(0.7) else 0
    pads = [d.draw.randint(0, min(2, d.shape[k % rank] - 1)) if k % rank >= free else 0 for k in range(2 * rank)]
    filled: dict[str, Any] = {"value": d.draw.choice([0.0, 0.5])} if mode == "constant" else {}
    d.given("Pad", 11, pads=pads, **filled, rest={"mode": mode})


def gather(d: Drawing) -> None:
    """Some elements of an axis, in any order."""
    axis = d.draw.randrange(len(d.shape))
    chosen = d.constant(d.several(d.draw.randint(1, 6), 0, d.shape[axis] - 1))
    d.add("Gather", chosen, axis=axis)


def space(d: Drawing) -> None:
    """Channels to positions or back."""
    image(d)
    if d.shape[1] % 4 == 0 and d.chance(0.5):
        mode: dict[str, Any] = {"mode": d.draw.choice(["DCR", "CRD"])} if d.opset >= 11 else {}
        d.add("DepthToSpace", blocksize=2, **mode)
    else:
        d.add("SpaceToDepth", blocksize=2)


def axes(d: Drawing) -> None:
    """One more axis, or all of length one gone but the first two, or channels in two axes."""
    lone = [k for k in range(2, len(d.shape)) if d.shape[k] == 1]
    if lone:
        d.given("Squeeze", 13, axes=lone)
    elif d.chance(0.5):
        d.given("Unsqueeze", 13, axes=[d.draw.randrange(len(d.shape) + 1)])
    else:
        groups = d.draw.choice(divisors(d.shape[1], [1, 2, 3, 4]))
        d.add("Reshape", d.constant([d.shape[0], groups, d.shape[1] // groups, *d.shape[2:]]))


def back_to_image(d: Drawing) -> None:
    """Four axes again, where there are others."""
    if len(d.shape) == 4:
        raise UnfitError("Reshape")
    size = int(np.prod(d.shape[1:]))
    side = d.draw.choice(divisors(size, [1, 2, 3, 4, 5, 6]))
    d.add("Reshape", d.constant([d.shape[0], -1, side, 1 if size % side**2 else side]))


def resize(d: Drawing) -> None:
    """By factors or to sizes, which may be computed."""
    sizes = image(d)
    mode = d.draw.choice(["nearest", "nearest", "linear", "cubic"])
    factors = np.array([1, 1, *(d.draw.choice([1, 2, 2, 3, 0.5, 1.5]) for _ in sizes)], np.float32)
    if d.opset < 10:
        d.given("Upsample", 9, scales=np.maximum(factors, 1), rest={"mode": mode})
    elif d.opset < 11:
        d.add("Resize", d.constant(factors), mode=mode)
    else:
        _resize(d, mode, factors)


COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
ROUNDED = ("round_prefer_floor", "floor", "ceil", "round_prefer_ceil")


def _resize(d: Drawing, mode: str, factors: np.ndarray) -> None:
    begin, none = d.at, "" if d.opset >= 13 else d.constant(np.zeros(0, np.float32))
    how: dict[str, Any] = {"coordinate_transformation_mode": d.draw.choice(COORDINATES)}
    how["nearest_mode"] = d.draw.choice(ROUNDED)
    if d.opset >= 18:
        how |= {"antialias": 1} if mode != "nearest" and d.chance(0.3) else {}
        if d.chance(0.3):
            how["axes"] = [*range(2, len(d.shape))]
            d.add("Resize", none, d.constant(factors[2:]), mode=mode, **how)
            return
    if d.chance(0.6):
        d.add("Resize", none, d.constant(factors), mode=mode, **how)
        return
    wanted = [max(1, int(size * factor)) for size, factor in zip(d.shape[2:], factors[2:], strict=True)]
    d.add("Gather", d.constant([0, 1]), of=d.add("Shape"), axis=0)
    sizes = d.add("Concat", d.constant(wanted), axis=0)
    d.add("Resize", none, none, sizes, of=begin, mode=mode, **how)


def tile(d: Drawing) -> None:
    """The same again, or spread to a larger shape."""
    if 1 in d.shape and d.chance(0.7):
        d.add("Expand", d.constant([3 if size == 1 and k else size for k, size in enumerate(d.shape)]))
    else:
        d.add("Tile", d.constant([d.draw.choice([1, 1, 2]) for _ in d.shape]))


def depth_sum(d: Drawing) -> None:
    """Sums of all elements before."""
    d.add(
        "CumSum", d.constant(d.draw.randrange(len(d.shape))), exclusive=int(d.chance(0.3)), reverse=int(d.chance(0.3))
    )


MOVES = (
    transpose, transpose, cut, cut, split, split, pad, pad, gather, space, axes, axes, back_to_image, back_to_image,
    resize, resize, resize, tile, depth_sum,
)  # fmt: skip
