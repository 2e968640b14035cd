"""Messages of a trace: what was under way between two ranks when, and what a rank that waited was waiting for.

Each is put together from what its two ranks have noted, by one clock; the devices note nothing more for it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from runtime.trace import SEND, WAIT, Span

LOOK_S = 100e-6
"""A wait that is shorter may have found the message there: taking it takes some time, too."""


@dataclass(frozen=True)
class Transfer:
    """One message of one frame, as its sender and its receiver saw it."""

    send: Span
    wait: Span

    @property
    def link(self) -> tuple[int, int]:
        """From which rank to which."""
        return self.send.rank, self.wait.rank

    @property
    def start_s(self) -> float:
        """When the sender began with it; if it is not in one piece, by copying it into one."""
        return self.send.start_s

    @property
    def stop_s(self) -> float:
        """When the receiver had it; if nobody saw it come, when the receiver looked, and it came some time before.
        Clocks are not exact: never before ``start_s``.
        """
        return max(self.wait.stop_s, self.start_s)

    @property
    def seen(self) -> bool:
        """Whether the receiver waited for it, and so saw it come. Else it had other things to do."""
        return self.wait.time_s > LOOK_S

    @property
    def wire_s(self) -> float:
        """How long the receiver waited while it was under way; the rest of its wait it waited for the sender's part."""
        return max(self.wait.stop_s - max(self.wait.start_s, self.start_s), 0.0)


def transfers(frame: Iterable[Span]) -> list[Transfer]:
    """The messages of a frame in the order in which they were waited for, rank by rank. Those of which one end alone
    was noted are left out.
    """
    spans = [span for span in frame if span.peer is not None]
    sent: dict[tuple[int, int | None, int], deque[Span]] = defaultdict(deque)
    for span in spans:
        if span.kind == SEND:
            sent[span.rank, span.peer, span.tag].append(span)
    found = []
    for span in spans:
        if span.kind == WAIT and sent[span.peer or 0, span.rank, span.tag]:
            found.append(Transfer(sent[span.peer or 0, span.rank, span.tag].popleft(), span))
    return found
