"""What an account comes to when a frame is over: what hosts have drawn all the time, and memory at its peak."""

from __future__ import annotations

from model.compiled import inlined, kernel
from model.cost.costs import ACTIVE, BUFFER, NO_METER, PASS, RANK, SESSION, TWICE, WAITED, CostArrays
from model.cost.ledger import (
    ACTIVATIONS,
    BUFFERS,
    BUSY,
    COMMUNICATE,
    COMPUTE,
    ENERGY,
    MEMORY,
    OPENING,
    PASSED,
    WAIT,
    WEIGHTS,
    Ledger,
)
from model.mappings.arrays import Floats


@kernel()
def settle(c: CostArrays, out: Ledger, latency: float) -> None:
    """Energy of communication and waiting, and what hosts draw all the time, of a frame of so many seconds; what waits
    cost processors; resident memory (Eq. 4.9). For each device that takes part."""
    for device in range(len(c.pool)):
        a = out.account[device]
        a[ENERGY] += (a[COMMUNICATE] + a[WAIT]) * c.communication_w[device]
        if _takes_part(a):
            k, cold_s = c.memory[device], c.cold[device, WAITED] * max(latency - a[COMPUTE], 0.0)
            a[BUSY] += cold_s
            a[ENERGY] += cold_s * c.awake_w[device]
            a[OPENING] -= a[WEIGHTS]
            a[MEMORY] += k[RANK] + out.segments[device] * k[SESSION] + above(a, k)
    for device in range(len(c.pool)):
        if c.idle_w[device] != NO_METER and _takes_part(out.account[device]):
            _draw(c, out, device, latency)


@inlined
def _takes_part(a: Floats) -> bool:
    """Whether a device has anything to do. a: its account"""
    return bool(a[COMPUTE] + a[COMMUNICATE] + a[ACTIVATIONS] > 0)


@inlined
def _draw(c: CostArrays, out: Ledger, first: int, latency: float) -> None:
    """What a machine draws, if this is the first of its devices that take part and of which a meter told: each answers
    for all of it, as a meter has it."""
    total, idle_w = 0.0, 0.0
    for device in range(len(c.pool)):
        if c.machine_of[device] == c.machine_of[first] and _takes_part(out.account[device]):
            if device < first and c.idle_w[device] != NO_METER:
                return
            total, idle_w = total + out.account[device, ENERGY], max(idle_w, c.idle_w[device])
    for device in range(len(c.pool)):
        if c.machine_of[device] == c.machine_of[first] and _takes_part(out.account[device]):
            out.account[device, ENERGY] = total + latency * idle_w


def resident(a: Floats, k: Floats) -> dict[str, float]:
    """Of a device's memory what is of weights with their sessions, of activations and of buffers, bytes. The rest is
    the process, and what is there only while sessions are opened. a: its account; k: of its ``memory``"""
    return {
        "weights": float(a[MEMORY] - above(a, k) - k[RANK]),
        "activations": float(a[ACTIVATIONS] * k[ACTIVE]),
        "buffers": float(a[BUFFERS] * k[BUFFER] + a[PASSED] * k[PASS]),
    }


@inlined
def above(a: Floats, k: Floats) -> float:
    """Bytes of a device at most above what lasts: of frames, or while its sessions are opened. k: of its ``memory``"""
    frames = a[ACTIVATIONS] * k[ACTIVE] + a[BUFFERS] * k[BUFFER] + a[PASSED] * k[PASS]
    return max(frames, a[OPENING] * k[TWICE])
