"""Hybrid mappings for a cluster: some layers split over hosts, others whole, every host at work."""

from __future__ import annotations

from collections import Counter

import numpy as np

from dse.evaluation import OBJECTIVES, evaluate
from dse.inputs import Cnn
from dse.run import Coding, prepare
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping

DRAWS = 2000
MOST_PARTS = 4


def hybrid(cnn: Cnn, platform: Platform, seed: int = 0) -> Mapping:
    """Of random mappings in the split-point chromosome, the fastest (as predicted) that ``is_hybrid``."""
    devices = len(platform.devices)
    encoding, costs = prepare(cnn, platform, Coding("hybrid", min(MOST_PARTS, devices)))
    draw, shape = np.random.default_rng(seed), (DRAWS, encoding.n_genes)
    genes = draw.integers(0, encoding.upper + 1, shape) * draw.integers(0, 2, shape)  # 0 takes no part: half do not
    latencies = evaluate(encoding, costs, genes)[0][:, OBJECTIVES.index("latency_s")]
    drawn = (encoding.decode(genes[i]) for i in np.argsort(latencies, kind="stable"))
    return next(mapping for mapping in drawn if is_hybrid(mapping, devices))


def is_hybrid(mapping: Mapping, devices: int) -> bool:
    """Whether all devices take part, some layers are split in two and some further, and others are whole apart."""
    parts = Counter(shard.layer for shard in mapping.shards)
    whole = {shard.device for shard in mapping.shards if parts[shard.layer] == 1}
    ways = set(parts.values())
    return len(mapping.devices) == devices and len(whole) > 1 and 2 in ways and max(ways) > 2
