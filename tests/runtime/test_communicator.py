"""How long a rank sleeps while it waits, by a clock that nobody else moves."""

from __future__ import annotations

import pytest

from runtime import communicator


class Clock:
    """Time in which a look takes 5 us and a sleep 50 us more than asked for."""

    def __init__(self) -> None:
        self.now, self.looks = 0.0, 0

    def perf_counter(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.looks * 5e-6

    def sleep(self, seconds: float) -> None:
        self.now += seconds + 50e-6

    def wait(self, comes_s: float, last_s: float = 0.0) -> tuple[float, float, int]:
        """How late something is noticed that comes after so long, what the wait returns, and how often it looked."""
        begin, self.looks = self.now, 0

        def test() -> bool:
            self.now += 5e-6
            self.looks += 1
            return self.now - begin >= comes_s

        waited_s = communicator.wait(test, last_s)
        return self.now - begin - comes_s, waited_s, self.looks


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(communicator, "time", made)
    monkeypatch.setattr(communicator, "core_share", lambda: 1.0)
    return made


@pytest.mark.parametrize("comes_s", [200e-6, 3e-3, 20e-3, 0.2, 2.0])
def test_what_comes_when_it_came_last_is_noticed_at_once(clock: Clock, comes_s: float) -> None:
    late_s, waited_s, looks = clock.wait(comes_s)
    assert late_s <= min(comes_s / 32, 1e-3) + 80e-6
    assert comes_s - 1.2e-3 < waited_s < comes_s
    again_s, _, more = clock.wait(comes_s, comes_s - 10e-6)
    assert again_s <= 10e-6
    assert more < 1.5 * looks + 60


@pytest.mark.parametrize("comes_s", [0.0, 5e-3, 60e-3, 1.0])
def test_what_comes_earlier_or_later_is_noticed_within_a_millisecond(clock: Clock, comes_s: float) -> None:
    late_s, _, _ = clock.wait(comes_s, 50e-3)
    assert late_s <= min(abs(comes_s - 50e-3) / 32, 1e-3) + 80e-6


def test_a_short_wait_does_not_sleep(clock: Clock) -> None:
    late_s, waited_s, _ = clock.wait(50e-6, 10.0)
    assert late_s <= 5e-6
    assert waited_s <= 50e-6


@pytest.mark.parametrize(("share", "comes_s"), [(0.05, 20e-3), (0.1125, 20e-3), (0.45, 20e-3), (0.1125, 3e-3)])
@pytest.mark.parametrize("known", [False, True])
def test_who_has_a_share_of_a_core_spends_little_of_it_on_looks(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, share: float, comes_s: float, known: bool
) -> None:
    monkeypatch.setattr(communicator, "core_share", lambda: share)
    late_s, waited_s, looks = clock.wait(comes_s, comes_s if known else 0.0)
    assert late_s <= 1.1e-3
    assert looks * 5e-6 <= share * (waited_s / communicator.LOOKS + communicator.SPIN_S)
