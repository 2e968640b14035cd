"""What a rank notes of what it does."""

from __future__ import annotations

import time

import pytest

from runtime.inprocess import InProcessCommunicator, World
from runtime.options import Options
from runtime.rank import Place, Rank, Receive
from runtime.segment import CPU
from runtime.trace import COMPUTE, SEND, Span


def noted(kind: str, threads: int = 1, provider: str = CPU) -> Span:
    """Of something that passes 50 ms and computes next to nothing."""
    place = Place("rank_00.py", 0, 1, "a_cpu0", threads, provider)
    rank = Rank(place, InProcessCommunicator(World(1), 0), Options())
    with rank.doing(kind, "x"):
        time.sleep(0.05)
    return Span(0, *rank.records[0])


def test_a_processor_is_not_busy_with_what_it_does_not_compute() -> None:
    span = noted(COMPUTE)
    assert span.busy_s is not None
    assert 0 < span.busy_s < span.time_s / 2


@pytest.mark.parametrize(
    ("kind", "threads", "provider"), [(SEND, 1, CPU), (COMPUTE, 2, CPU), (COMPUTE, 1, "CUDAExecutionProvider")]
)
def test_of_what_one_thread_does_not_compute_it_does_not_tell(kind: str, threads: int, provider: str) -> None:
    span = noted(kind, threads, provider)
    assert (span.busy_s, span.kind, span.peer, span.size_bytes) == (None, kind, None, 0)


def test_a_message_comes_early_where_none_leaves_from_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the buffers are called: one may lie inside another, and two halves of one do not meet."""
    rank = Rank(Place("rank_00.py", 0, 1, "a_cpu0", 1, CPU), InProcessCommunicator(World(1), 0), Options())
    whole, other, free = (rank.buffer(name, (8, 4), "float32") for name in ("whole", "other", "free"))
    inside, beside = rank.part("inside", whole[2:4]), rank.part("beside", other[4:])
    rank.send(whole, 0, 0)
    rank.send(other[:4, ::2], 0, 1)
    receives = [rank.receive(buffer, 0, tag) for tag, buffer in enumerate((inside, whole, beside, other, free))]
    rank.fetch()
    posted: list[Receive] = []
    monkeypatch.setattr(Receive, "post", lambda receive: posted.append(receive))
    rank.post()
    assert posted == [receives[2], receives[4]]
