"""The figures of links from probes that are made of known figures, with noise, outliers and clocks that are off."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from model.cost.samples import Arrival, Run, Sample
from model.fit.link_costs import BOTH, BURST, LATE, TWO, WAY, Estimate, LinkCosts, LinkSample, Path
from model.fit.links import _line, fit, one_way_s
from model.fit.sharing import Way, Wires
from runtime.errors import CleaveError

SIZES = (4, 16, 64, 1024, 4096, 16384, 65536, 262144, 917504, 2**20, 1179648, 2**22, 2**25)
COUNT = 16
TYPES = {"a_cpu0": "small", "b_cpu0": "small", "c_cpu0": "small"}
HOSTS = {name: name for name in TYPES}


@dataclass(frozen=True)
class Truth:
    """Two devices that are alike, and the link between them. noise: relative; outliers: part of the frames"""

    send: tuple[float, float] = (8e-6, 0.2e-9)
    receive: tuple[float, float] = (5e-6, 0.1e-9)
    gap: float = 20e-6
    overlap: float = 0.0
    latency: float = 80e-6
    bandwidth: float = 118e6
    clock: float = 30e-6
    noise: float = 0.0
    outliers: float = 0.0
    frames: int = 30
    seed: int = 0

    def samples(self, local: bool = False) -> list[LinkSample]:
        random = np.random.default_rng(self.seed)

        def times(seconds: float) -> tuple[float, ...]:
            found = seconds * np.exp(self.noise * random.standard_normal(self.frames))
            bad = random.random(self.frames) < self.outliers
            return tuple(np.where(bad, found * random.uniform(3, 100, self.frames), found))

        found = []
        for source, target, ahead in (("a_cpu0", "b_cpu0", self.clock), ("b_cpu0", "a_cpu0", -self.clock)):
            plain = LinkSample(WAY, source, target, local, 0, (), ())
            for size in SIZES:
                handed, whole = times(self.sending(size)), times(self.whole(size) + ahead)
                found.append(replace(plain, size_bytes=size, send_s=handed, times_s=whole))
            for size in (64, 65536, 2**20):
                taken, there = times(self.receive[0] + self.receive[1] * size), times(2 * self.whole(size))
                found.append(replace(plain, kind=LATE, size_bytes=size, send_s=taken, times_s=taken, there_s=there))
            more = (COUNT - 1) * (self.gap + self.receive[0])
            burst = times(self.whole(64) + ahead + more)
            found.append(replace(plain, kind=BURST, size_bytes=64, send_s=burst, times_s=burst, count=COUNT))
        return found

    def sending(self, size: int) -> float:
        return self.send[0] + self.send[1] * size

    def whole(self, size: int) -> float:
        bytes_s = size / self.bandwidth
        link = self.gap + max(self.latency - self.overlap * bytes_s, 0.0) + bytes_s
        return self.sending(size) + link + self.receive[0] + self.receive[1] * size


def assert_found(truth: Truth, tolerance: float) -> None:
    found = fit(truth.samples(), TYPES)
    device = found.devices["small"]
    seen = [e.value for e in vars(device).values()]
    wanted = [truth.send[0], truth.send[1], truth.receive[0], truth.receive[1], truth.gap, truth.overlap]
    assert seen == pytest.approx(wanted, rel=tolerance)
    for path in found.paths:
        assert path.latency_s.value == pytest.approx(truth.latency, rel=tolerance)
        assert path.bandwidth_bytes_per_s.value == pytest.approx(truth.bandwidth, rel=tolerance)


def test_figures_without_noise_come_back() -> None:
    assert_found(Truth(), 1e-3)


def test_figures_of_a_slow_link_come_back() -> None:
    assert_found(Truth(bandwidth=1.2e6, latency=2e-3), 1e-3)


@pytest.mark.parametrize("overlap", [0.25, 0.5, 0.75, 1.0])
def test_bytes_that_come_while_the_latency_passes_are_told_from_those_that_come_after_it(overlap: float) -> None:
    assert_found(Truth(overlap=overlap), 1e-3)
    assert_found(Truth(bandwidth=1.2e6, latency=2e-3, overlap=overlap), 1e-3)


@pytest.mark.parametrize("overlap", [0.0, 1.0])
def test_noise_is_taken_for_neither(overlap: float) -> None:
    for seed in range(5):
        found = fit(Truth(noise=0.05, overlap=overlap, seed=seed).samples(), TYPES)
        assert found.devices["small"].overlap.value == pytest.approx(overlap, abs=0.3)
        for path in found.paths:
            assert max(abs(error) for error in path.errors.values()) < 0.15


def test_a_third_of_disturbed_frames_does_not_move_them() -> None:
    calm, disturbed = (fit(Truth(noise=0.02, outliers=part).samples(), TYPES) for part in (0.0, 0.3))
    for one, other in zip(calm.paths, disturbed.paths, strict=True):
        assert other.bandwidth_bytes_per_s.value == pytest.approx(one.bandwidth_bytes_per_s.value, rel=0.03)
        assert other.latency_s.value == pytest.approx(one.latency_s.value, rel=0.2)
    assert disturbed.devices["small"].send_s.value == pytest.approx(calm.devices["small"].send_s.value, rel=0.05)


def test_intervals_cover_the_truth() -> None:
    held = 0
    for seed in range(12):
        truth = Truth(noise=0.05, seed=seed)
        found = fit(truth.samples(), TYPES, seed)
        for path in found.paths:
            held += covers(path.bandwidth_bytes_per_s, truth.bandwidth) + covers(path.latency_s, truth.latency)
        held += covers(found.devices["small"].send_s, truth.send[0])
    assert held >= 0.8 * 12 * 5


def covers(estimate: Estimate, value: float) -> bool:
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.high - estimate.low < 0.1 * estimate.value
    return estimate.low <= value <= estimate.high


def test_clocks_that_are_off_change_no_latency() -> None:
    exact, off = (fit(Truth(clock=clock).samples(), TYPES).paths[0].latency_s.value for clock in (0.0, 60e-6))
    assert off == pytest.approx(exact, rel=1e-3)


def test_on_one_host_there_is_no_latency_and_the_gap_stands_for_it() -> None:
    truth = Truth(bandwidth=4e9, clock=0.0)
    found = fit(truth.samples(local=True), TYPES)
    assert all(path.local and path.latency_s.value == 0 for path in found.paths)
    assert found.devices["small"].gap_s.value == pytest.approx(truth.gap + truth.latency, rel=1e-3)
    assert all(abs(error) < 0.01 for path in found.paths for error in path.errors.values())


def test_messages_to_other_hosts_say_what_they_cost_a_device_that_also_has_some_on_its_own() -> None:
    far, near = Truth(), Truth(send=(1e-6, 0.0), receive=(1e-6, 0.0), latency=0.0, gap=0.0, bandwidth=4e9)
    beside = [replace(s, target=s.target.replace("b_", "c_"), source=s.source.replace("b_", "c_"))
              for s in near.samples(local=True)]  # fmt: skip
    found = fit(far.samples() + beside, TYPES)
    assert found.devices["small"].send_s.value == pytest.approx(far.send[0], rel=1e-3)
    assert [path.local for path in found.paths] == [False, False, True, True]


def test_a_message_that_was_not_there_yet_says_nothing_about_taking_it() -> None:
    late = [replace(s, there_s=(0.0,) * len(s.there_s)) if s.kind == LATE else s for s in Truth().samples()]
    device = fit(late, TYPES).devices["small"]
    assert (device.receive_s.value, device.receive_s_per_byte.value) == (0, 0)


def test_a_pair_whose_frames_were_all_disturbed_does_not_make_taking_slow() -> None:
    """A millisecond more in each of the few frames of one direction, as where a share of a processor is used up."""
    samples = Truth(frames=6, noise=0.02).samples()
    disturbed = [
        replace(s, times_s=tuple(t + 1e-3 for t in s.times_s)) if (s.kind, s.source) == (LATE, "a_cpu0") else s
        for s in samples
    ]
    calm, found = (fit(of, TYPES) for of in (samples, disturbed))
    for one, other in zip(calm.paths, found.paths, strict=True):
        assert other.bandwidth_bytes_per_s.value == pytest.approx(one.bandwidth_bytes_per_s.value, rel=0.05)
        assert other.bandwidth_bytes_per_s.high < 1.1 * Truth.bandwidth
    assert found.devices["small"].receive_s.value == pytest.approx(calm.devices["small"].receive_s.value, rel=0.3)


def test_a_message_that_took_no_time_tells_nothing() -> None:
    """As a clock has it that was set meanwhile, or one that ticks seldom."""
    truth = Truth(clock=0.0)
    timeless = [
        replace(s, times_s=(0.0,) * len(s.times_s)) if (s.kind, s.size_bytes) == (WAY, 2**22) else s
        for s in truth.samples()
    ]
    together = (truth.whole(2**22),) * 6
    found = fit([*timeless, LinkSample(BOTH, "a_cpu0", "b_cpu0", False, 2**22, together, together, count=2)], TYPES)
    for path in found.paths:
        assert 2**22 not in path.errors
        assert path.bandwidth_bytes_per_s.value == pytest.approx(Truth.bandwidth, rel=0.05)
    assert np.isnan(found.sharing[0].share.value)


def test_where_no_message_took_any_time_it_is_said() -> None:
    timeless = [
        replace(s, times_s=(0.0,) * 6, send_s=(0.0,) * 6) if s.kind == WAY else s for s in Truth(frames=6).samples()
    ]
    with pytest.raises(CleaveError, match=r"^no message from a_cpu0 to b_cpu0 took any time by their clocks"):
        fit(timeless, TYPES)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_how_far_messages_hold_one_another_up(share: float) -> None:
    truth = Truth(clock=0.0)
    together = (truth.whole(2**22) * (1 + share),) * 6
    samples = truth.samples()
    third = [replace(s, source="c_cpu0") for s in samples if s.source == "a_cpu0" and s.kind == WAY]
    plain = LinkSample(BOTH, "a_cpu0", "b_cpu0", False, 2**22, together, together, count=2)
    found = fit([*samples, *third, plain, replace(plain, kind=TWO, also="c_cpu0")], TYPES)
    assert [(s.kind, s.also) for s in found.sharing] == [(BOTH, ""), (TWO, "c_cpu0")]
    assert [s.share.value for s in found.sharing] == pytest.approx([share, share], abs=1e-6)


def test_a_message_of_a_type_that_was_not_measured_takes_what_it_takes_the_slowest_that_was() -> None:
    truth = Truth()
    found = fit(truth.samples(), TYPES)
    slow = replace(found.devices["small"], gap_s=Estimate(1.0, 1.0, 1.0))
    both = replace(found, devices={**found.devices, "slow": slow})

    def took_s(kind: str) -> float:
        return one_way_s(both, Wires(both, HOSTS, {}).way("a_cpu0", "b_cpu0"), "small", kind, 64)

    assert took_s("small") == pytest.approx(truth.whole(64), rel=1e-3)
    assert took_s("unknown") == took_s("slow") > 1


def test_between_two_that_were_not_measured_it_goes_as_fast_as_the_slower_of_both_does_with_others() -> None:
    """A ring of four, one of which has a slow link; and two devices of one host, as those of another host."""

    def path(source: str, target: str, rate: float, latency: float, local: bool = False) -> Path:
        rate_, latency_, step = (Estimate(value, value, value) for value in (rate, latency, 0.0))
        return Path(source, target, local, rate_, latency_, step, {})

    ring = [("a0", "b0", 9e6, 1e-4), ("b0", "c0", 8e6, 2e-4), ("c0", "d0", 1e6, 4e-4), ("d0", "a0", 2e6, 3e-4)]
    paths = [path(*ends, *way) for a, b, *way in ring for ends in ((a, b), (b, a))]
    paths += [path("a0", "a1", 5e9, 0.0, local=True), path("a1", "a0", 4e9, 0.0, local=True)]
    wires = Wires(LinkCosts({}, tuple(paths), ()), {f"{host}{k}": host for host in "abcd" for k in (0, 1)}, {})
    assert wires.way("c0", "d0") == Way(1e6, 4e-4)
    assert wires.way("a0", "c0") == wires.way("c1", "a1") == Way(8e6, 2e-4)
    assert wires.way("b0", "d0") == Way(2e6, 3e-4)
    assert wires.way("a0", "a1") == Way(5e9, 0.0)
    assert wires.way("b0", "b1") == Way(5e9, 0.0)


def test_what_leaves_over_a_slow_link_holds_up_only_what_goes_there() -> None:
    """1 MB for a host with a slow link, then as much for another: that one leaves when the first would have by the
    sender's own link, the first goes on; a third, for the slow one again, comes after it."""

    def path(source: str, target: str, rate: float) -> Path:
        rate_, none = Estimate(rate, rate, rate), Estimate(0.0, 0.0, 0.0)
        return Path(source, target, False, rate_, none, none, {})

    paths = [path("a", "b", 1e8), path("b", "a", 1e8), path("b", "c", 1e7), path("c", "b", 1e7), path("a", "c", 1e7)]
    wires = Wires(LinkCosts({}, tuple(paths), ()), {name: name for name in "abc"}, {})
    sent = [("c", 0.0), ("b", 0.0), ("c", 0.05)]
    arrivals = tuple(Arrival("a", target, 10**6, None, None, at) for target, at in sent)
    samples = [Sample("segment", "a", "n", (), (0.01,), k / 100) for k in range(25)]
    run = Run("k", "a", "n", "python", "", "", "", "h", "", {}, (1.0,), (), tuple(samples), arrivals)
    leaving = wires.leaving(run)
    assert leaving == pytest.approx([1e5, 1.1e6, *[1e5] * 8, *[1e5] * 10, *[0] * 5])


def test_a_device_takes_of_a_message_no_more_than_its_sender_leaves() -> None:
    """One hands over quickly, and takes quickly; of half a round trip its own sending would leave the other less."""
    truth, quick = Truth(send=(10e-6, 0.0), receive=(140e-6, 0.0), latency=20e-6, clock=0.0), {"a_cpu0": "quick"}

    def other(s: LinkSample) -> LinkSample:
        """What goes to the quick one."""
        if s.target != "a_cpu0" or s.kind == BURST:
            return s
        if s.kind == LATE:
            return replace(s, times_s=tuple(10e-6 for _ in s.times_s))
        return replace(s, send_s=tuple(100e-6 for _ in s.send_s), times_s=tuple(t - 40e-6 for t in s.times_s))

    found = fit([other(s) for s in truth.samples()], TYPES | quick).devices
    assert [found[name].send_s.value for name in ("quick", "small")] == pytest.approx([10e-6, 100e-6], rel=0.01)
    assert [found[name].receive_s.value for name in ("quick", "small")] == pytest.approx([10e-6, 140e-6], rel=0.01)


def test_the_same_samples_and_seed_give_the_same_figures() -> None:
    samples = Truth(noise=0.1, outliers=0.1).samples()
    assert fit(samples, TYPES, 3) == fit(samples, TYPES, 3)


def test_without_a_message_there_is_nothing_to_fit() -> None:
    with pytest.raises(CleaveError, match="no message was measured"):
        fit([s for s in Truth().samples() if s.kind != WAY], TYPES)


def test_messages_that_took_no_time_tell_nothing_of_what_they_take() -> None:
    points = [(4, 1e-5, 1e-4), (4000, 1.4e-5, 2e-4), (64000, 7.4e-5, 1e-3)]
    assert _line([(16, 3e-5, 0.0), *points]).tolist() == _line(points).tolist()
    assert _line([(16, 3e-5, 0.0)]).tolist() == [0, 0]
