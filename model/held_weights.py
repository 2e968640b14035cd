"""Weights that devices hold, by kind of layer: what their memory is made of."""

from __future__ import annotations

from dataclasses import dataclass

from model import coefficients, costs
from model.graph import Graph
from model.priced import Priced


@dataclass(frozen=True)
class Held:
    """Bytes of weights on a device. by_kind: of layers; largest_bytes: of the shard that has most"""

    by_kind: dict[str, float]
    largest_bytes: float


def held_weights(graph: Graph, found: Priced) -> list[Held]:
    """Of each device, by the account of ``model.spending``, which coefficients have no part in."""
    cut, kept = costs.weights(graph, found.g)
    s = found.shards
    by_kind: list[dict[str, float]] = [{} for _ in found.account]
    largest = [0.0] * len(by_kind)
    for layer in graph.layers:
        task, kind = found.g.n_inputs + layer.index, coefficients.kind(graph, layer)
        for shard in range(s.ptr[task], s.ptr[task + 1]):
            split, device = s.kind[task], s.device[shard]
            share = (s.stop[shard] - s.start[shard]) / found.g.size[task, split]
            size = float(cut[task, split] * share + kept[task, split])
            if size:
                by_kind[device][kind] = by_kind[device].get(kind, 0.0) + size
                largest[device] = max(largest[device], size)
    return [Held(each, most) for each, most in zip(by_kind, largest, strict=True)]
