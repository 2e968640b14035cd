"""Messages, put together from what two ranks noted."""

from __future__ import annotations

import pytest

from runtime.trace import COMPUTE, SEND, WAIT, Span
from runtime.transfers import transfers


def sent(start_s: float, tag: int = 0, rank: int = 0, peer: int = 1) -> Span:
    return Span(rank, SEND, "x", start_s, start_s + 0.5, peer, tag, 10)


def awaited(start_s: float, stop_s: float, tag: int = 0, rank: int = 1, peer: int = 0) -> Span:
    return Span(rank, WAIT, "x", start_s, stop_s, peer, tag, 10)


def test_the_two_ends_of_a_message_are_those_of_one_tag_between_the_same_two_ranks() -> None:
    frame = [
        sent(0, tag=0), sent(1, tag=1), sent(2, tag=0, peer=2), sent(3, tag=0, rank=1, peer=0),
        awaited(4, 5, tag=1), awaited(6, 7, tag=0), awaited(8, 9, tag=0, rank=2), awaited(5, 6, tag=0, rank=0, peer=1),
    ]  # fmt: skip
    found = [(t.link, t.send.tag, t.start_s, t.stop_s) for t in transfers(frame)]
    assert found == [((0, 1), 1, 1, 5), ((0, 1), 0, 0, 7), ((0, 2), 0, 2, 9), ((1, 0), 0, 3, 6)]


def test_messages_of_one_tag_come_in_the_order_in_which_they_were_sent() -> None:
    found = transfers([sent(0), sent(1), awaited(2, 3), awaited(4, 5)])
    assert [(t.start_s, t.stop_s) for t in found] == [(0, 3), (1, 5)]


def test_what_has_one_end_or_no_peer_is_no_message() -> None:
    rest = [Span(0, SEND, "the rest", 0, 1), Span(1, COMPUTE, "s", 0, 1), Span(1, WAIT, "y", 0, 1)]
    assert transfers([sent(0, tag=3), awaited(1, 2, tag=4), *rest]) == []


@pytest.mark.parametrize(
    ("wait", "wire_s", "stop_s", "seen"),
    [
        ((0, 5), 3, 5, True),  # was there before the message was sent: first for the sender, then for the wire
        ((3, 5), 2, 5, True),  # came while it was under way
        ((7, 7 + 2**-14), 2**-14, 7 + 2**-14, False),  # looked late: the message was there
        ((0, 1.75), 0, 2, True),  # clocks that are a little wrong
    ],
)
def test_a_wait_is_for_the_sender_or_for_the_wire(wait: tuple, wire_s: float, stop_s: float, seen: bool) -> None:
    (found,) = transfers([sent(2), awaited(*wait)])
    assert (found.wire_s, found.stop_s, found.seen) == (wire_s, stop_s, seen)
