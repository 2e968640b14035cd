"""Devices that share a memory: parts of a layer that they compute at the same time read their weights more slowly.

What reads each weight once, as a fully connected layer does, takes what memory takes, however quick the processor is
(S. Williams, A. Waterman, D. Patterson: "Roofline", Communications of the ACM 52, 2009), and cores of one host share
that. Parts of a layer begin together: while the smaller of two is computed both read, so as many bytes of either as the
smaller one has take ``crowded_s_per_byte`` longer each. Each further part that is computed meanwhile adds as much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from model.compiled import inlined
from model.cost.costs import CostArrays
from model.cost.held_weights import Weights
from model.cost.samples import Sample
from model.mappings.arrays import GraphArrays, ix
from model.mappings.lowering import Shards, share_of


def crowded_bytes(weights: Weights, samples: Sequence[Sample], memories: Mapping[str, int]) -> list[float]:
    """(S,) bytes of weights of each segment of a run, as often as parts on other devices are computed meanwhile.

    memories: device → the memory that it computes in
    """
    of = defaultdict[int, list[tuple[str, float]]](list)
    for sample in samples:
        for part in sample.parts:
            of[part.layer].append((sample.device, weights.of(part)))

    def meanwhile(device: str, layer: int, mine: float) -> float:
        others = [size for other, size in of[layer] if other != device and memories[other] == memories[device]]
        return sum(min(mine, size) for size in others)

    return [sum(meanwhile(s.device, part.layer, weights.of(part)) for part in s.parts) for s in samples]


@inlined
def weights_of(c: CostArrays, task: int, kind: int, share: float) -> float:
    """Bytes of weights that a shard has."""
    return c.cut_bytes[ix(task), ix(kind)] * share + c.kept_bytes[ix(task), ix(kind)]


@inlined
def crowded_s(g: GraphArrays, s: Shards, c: CostArrays, task: int, share: float, device: int) -> float:
    """Seconds by which a shard of a task takes longer, for others on devices of the same memory: ``crowded_bytes``."""
    kind, size = s.kind[ix(task)], 0.0
    mine = weights_of(c, task, kind, share)
    for other in range(s.ptr[ix(task)], s.end[ix(task)]):
        there = s.device[ix(other)]
        if there != device and c.memory_of[ix(there)] == c.memory_of[ix(device)]:
            size += min(mine, weights_of(c, task, kind, share_of(g, s, task, other)))
    return c.crowded[ix(device)] * size
