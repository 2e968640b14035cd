"""Seconds of a shard in its segment: the formula of ``model.cost.segment_time``, compiled, on the arrays of
``model.cost.costs``.
"""

from __future__ import annotations

import numpy as np

from model.compiled import inlined
from model.cost.costs import GAIN, JOIN, KEPT, QUARTER, SPLIT, VECTOR, WHOLE, CostArrays
from model.cost.crowding import crowded_s
from model.cost.rest import saved, unrested
from model.cost.vectors import filled, split_of
from model.mappings.arrays import GraphArrays, ix
from model.mappings.lowering import Shards, alone
from model.network import boxes, relayout
from model.network.relayout import SINGLY

filled_last = inlined(filled)
line_of = inlined(split_of)


@inlined
def seconds_of(
    g: GraphArrays,
    s: Shards,
    c: CostArrays,
    task: int,
    share: float,
    device: int,
    since: int,
    spent: float,
    rested: bool,
) -> float:
    """What a shard with a share of a task adds to the ``spent`` seconds of a segment that began with shard ``since``.

    See ``model.cost.segment_time``: less than 0 where it saves what was made before it more than it takes, but never
    more than was spent. rested: see ``rest.begins_rested``
    """
    before = unrested(c, device, spent) if rested else spent
    work = c.work[ix(task), ix(device)]
    seconds = work[WHOLE]
    if not alone(s, task):
        kind, computed = s.kind[ix(task)], share
        line = kind
        if kind == boxes.CHANNELS:
            channels = np.rint(share * g.size[ix(task), ix(kind)])
            line = line_of(kind, channels, work[QUARTER])
            if line != SINGLY:
                computed *= filled_last(channels, work[VECTOR])
        seconds = work[ix(SPLIT + 2 * line)] + work[ix(SPLIT + 2 * line + 1)] * computed
        if c.crowded[ix(device)] > 0:
            seconds += crowded_s(g, s, c, task, share, device)
    if len(c.beside) > 0:
        seconds = max(-before, seconds + _beside(g, s, c, task, share, device, since))
    return seconds - saved(c, device, before + seconds) + saved(c, device, before) if rested else seconds


@inlined
def _beside(g: GraphArrays, s: Shards, c: CostArrays, task: int, share: float, device: int, since: int) -> float:
    """Seconds besides the work of a share of a task: parts are put together, edges in the segment save something."""
    seconds = 0.0
    for edge in range(g.edge_ptr[ix(task)], g.edge_ptr[ix(task + 1)]):
        maker = ix(g.tensor_task[ix(g.edge_tensor[ix(edge)])])
        if not alone(s, maker):
            kind = s.kind[maker]
            parts = s.end[maker] - s.ptr[maker] if kind == boxes.PARTIAL else 1
            read = share if g.edge_need[ix(edge), ix(s.kind[ix(task)]), 0] >= 0 else 1.0
            seconds += c.beside[ix(edge), ix(device), ix(JOIN + kind)] * parts * read
        if _made(s, maker, device, since):
            seconds -= c.beside[ix(edge), ix(device), GAIN] * share
            origin = c.origin[ix(edge)]
            if origin != relayout.NONE and _made(s, ix(origin), device, since):
                seconds -= c.beside[ix(edge), ix(device), KEPT] * share
    return seconds


@inlined
def _made(s: Shards, task: int, device: int, since: int) -> bool:
    """Whether a shard of a task is among those of a device from one on."""
    shard = max(since, s.ptr[ix(task)])
    while shard < s.end[ix(task)] and s.device[ix(shard)] != device:
        shard += 1
    return shard < s.end[ix(task)]
