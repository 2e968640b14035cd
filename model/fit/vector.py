"""How many output channels of a convolution are computed at a time: that by which shards of channels are told best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from model.cost.samples import Run
from model.cost.segment_time import Network
from model.cost.vectors import filled, quarter_of, split_of, vector_of
from model.mappings.arrays import Floats
from model.network.boxes import CHANNELS
from model.network.relayout import SINGLY

POSSIBLE = (1, 4, 8, 16, 32)
LEAST = 3
"""Shards of a layer, of as many sizes, from which something is told."""
MOST_OFF, CLEARLY = 0.5, 0.9
"""A shard that is far off counts so much; the number that is found leaves less than this part of what 1 does."""

Shards = dict[str, list[tuple[int, float]]]
"""By signature, channels of each shard that was alone in a segment, and its seconds."""


def fit_vector(networks: Mapping[str, Network], runs: Iterable[Run]) -> int:
    """One of ``POSSIBLE``; 1 where no other tells shards clearly better. networks: by ``Run.network``"""
    shards: Shards = {}
    for run in runs:
        _add(shards, networks[run.network], run)
    told = [of for of in shards.values() if len({channels for channels, _ in of}) >= LEAST]
    off = {vector: sum(_misfit(of, vector) for of in told) for vector in POSSIBLE}
    best = min(POSSIBLE, key=off.__getitem__)
    return best if off[best] < CLEARLY * off[1] else 1


def _add(shards: Shards, network: Network, run: Run) -> None:
    for sample in run.samples:
        part, *others = sample.parts
        if others or part.axis != CHANNELS or part.share(network.graph) == 1:
            continue
        layer, most, channels = network.graph.layers[part.layer], max(POSSIBLE), part.stop - part.start
        singly = split_of(CHANNELS, channels, quarter_of(network.graph, layer, most)) == SINGLY
        if vector_of(network.graph, layer, most) > 1 and not singly:
            shards.setdefault(network.names[part.layer], []).append((channels, sample.time_s))


def _misfit(of: Sequence[tuple[int, float]], vector: int) -> float:
    """Relative errors of the shards of a layer, if whole vectors of it are what takes time."""
    channels, seconds = np.array(of).T
    computed: Floats = np.array([each * filled(each, vector) for each in channels])
    rows = np.stack([np.ones(len(of)), computed], axis=1) / seconds[:, None]
    found = np.linalg.lstsq(rows, np.ones(len(of)), rcond=None)[0]
    return float(np.minimum(np.abs(rows @ found - 1), MOST_OFF).sum())
