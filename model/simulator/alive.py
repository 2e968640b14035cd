"""Memory over time: what of its activations a device holds, as a simulation has it run.

What a shard makes is there when it begins. A piece goes when the last shard of the last task that reads it on its own
device is done, or the one that made it where none does: the account of ``model.cost.spending``, with times.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.cost.case import Case
from model.network import boxes
from model.simulator.simulated import Events, Ticks


class Change(NamedTuple):
    """Bytes more or less, when a shard begins or, with ``done``, is done."""

    shard: int
    done: bool
    size_bytes: float


def levels(case: Case, events: Events, first: int = 0) -> dict[int, tuple[Ticks, NDArray[np.float64]]]:
    """By device: ``(k,)`` times, ascending, and ``(k,)`` bytes of activations from then on; from frame ``first`` on."""
    begin = events.start[first:, events.segment] + events.begin
    found = {}
    for device, changes in sorted(_changes(case).items()):
        shard, done, size = (np.array(column) for column in zip(*sorted(changes), strict=True))
        times = begin[:, shard] + np.where(done, events.ticks[shard], 0)
        found[device] = (times.ravel(), np.tile(np.cumsum(size), len(begin)))
    return found


def _changes(case: Case) -> dict[int, list[Change]]:
    """What happens on each device in a frame. It works through its shards in the order of their numbers."""
    g, s, m = case.g, case.shards, case.messages
    last = {(task, int(s.device[k])): k for task in range(len(g.size)) for k in range(s.ptr[task], s.ptr[task + 1])}
    found: dict[int, list[Change]] = defaultdict(list)
    for tensor, maker in enumerate(map(int, g.tensor_task)):
        for slot, shard in enumerate(range(s.ptr[maker], s.ptr[maker + 1]), m.slot_ptr[tensor]):
            device, size = int(s.device[shard]), float(g.tensor_bytes[tensor] * _made(case, maker, shard))
            user = int(m.last_use[slot])
            found[device].append(Change(shard, False, size))
            found[device].append(Change(last[maker if user < 0 else user, device], True, -size))
    return found


def _made(case: Case, task: int, shard: int) -> float:
    """The part of its task's output that a shard makes: all of it, where shards make partial sums."""
    return 1.0 if case.shards.kind[task] == boxes.PARTIAL else case.share(task, shard)
