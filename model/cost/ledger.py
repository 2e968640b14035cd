"""What a price is made of: seconds and bytes of shards and messages, and an account for each device (section 4.3 of the
thesis)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.compiled import allocating
from model.mappings.arrays import Floats, Ints
from model.mappings.lowering import Room

COMPUTE, COMMUNICATE, WAIT, ENERGY, WEIGHTS, ACTIVATIONS, BUFFERS, MEMORY, OPENING, PASSED, BUSY = range(11)
"""Columns of an account: seconds, seconds, seconds, joules, bytes; BUSY: seconds in which the processor is at what it
computes, which is what energy is of, see ``rest.busy_after``; OPENING: weights that are there twice while sessions are
opened, as far as what is opened later does not take their place: all that a session rebuilds and what that takes,
or the largest that it copies from the file. PASSED: what is passed on from segment to segment of a device, and its
inputs, as far as it is not in a message's buffer; 0 where nobody knows what that holds."""
COLUMNS = 11
FRESH = -2


class Ledger(NamedTuple):
    """What a price is made of. ``S`` shards, ``M`` messages, ``D`` devices; seconds from the start of the frame.

    seconds: (S,) that a shard takes; size: (M,) bytes of a message
    reader: (M,) the first shard that waits for a message; ready: (S,) seconds after they came, or after what its device
            does before, until it begins
    begins: (S,) 1 where a segment begins (``model.mappings.planning``)
    rested: (S,) 1 where its device has waited before it, see ``rest.begins_rested``
    cold: (S,) 1 where a segment begins before which its device has not computed, but waited or handed over
    start, stop: (S,) of a shard; depart, arrive: (M,) of a message
    account: (D, COLUMNS) what each device spends, see the column names
    segments, messages: (D,) how many a device runs, and hands over or takes
    alive: (D,) bytes held; since: (D,) shard that the open segment began with, -1: there is none, FRESH: nor was any
           layer before; spent: (D,) its seconds so far; largest, rebuilt, relaid: (D,) bytes of its largest weights, of
           those that are rebuilt, and of the largest of these; kept: (S,) 1 where what a shard makes is in a buffer
           (scratch)
    """

    seconds: Floats
    size: Floats
    reader: Ints
    ready: Floats
    begins: Ints
    rested: Ints
    cold: Ints
    start: Floats
    stop: Floats
    depart: Floats
    arrive: Floats
    account: Floats
    segments: Ints
    messages: Ints
    alive: Floats
    since: Ints
    spent: Floats
    largest: Floats
    rebuilt: Floats
    relaid: Floats
    kept: Ints


@allocating()
def ledger(r: Room) -> Ledger:
    """Room for prices of mappings as large as ``r`` says."""
    i = np.int32
    return Ledger(
        np.zeros(r.shards),
        np.zeros(r.messages),
        np.zeros(r.messages, i),
        np.zeros(r.shards),
        np.zeros(r.shards, i),
        np.zeros(r.shards, i),
        np.zeros(r.shards, i),
        np.zeros(r.shards),
        np.zeros(r.shards),
        np.zeros(r.messages),
        np.zeros(r.messages),
        np.zeros((r.devices, COLUMNS)),
        np.zeros(r.devices, i),
        np.zeros(r.devices, i),
        np.zeros(r.devices),
        np.zeros(r.devices, i),
        np.zeros(r.devices),
        np.zeros(r.devices),
        np.zeros(r.devices),
        np.zeros(r.devices),
        np.zeros(r.shards, i),
    )
