"""What of a benchmark counts as a measurement of a mapping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dse.closing.figures import values
from runtime.bench import Bench
from runtime.trace import COMPUTE, Memory, Span, Trace, Usage

METERED = Usage(0, "a_cpu0", "CPU", 1, 300, 1.0, energy_j=1.5, energy_time_s=0.5, energy_source="measured")
BESIDE = Usage(1, "a_cpu1", "CPU", 1, 500, 1.0)
OTHER = replace(METERED, rank=2, device="b_cpu0", peak_bytes=400, energy_j=2.5)
HOSTS = {"a_cpu0": "a", "a_cpu1": "a", "b_cpu0": "b"}
ESTIMATED = replace(OTHER, energy_source="estimate")


def measured(*usages: Usage, hosts: dict[str, str] = HOSTS) -> list[float]:
    frames = tuple(tuple(Span(usage.rank, COMPUTE, "s", 0, end) for usage in usages) for end in (1, 3, 5))
    alone = Trace("measured", True, usages, frames)
    return list(values(Bench.from_trace(alone, replace(alone, barrier=False)), hosts))


def test_the_latency_is_the_mean_the_memory_the_largest_and_the_period_that_of_the_stream() -> None:
    latency, _, memory, period = measured(METERED, BESIDE, OTHER)
    assert (latency, memory, period) == (3.0, 500.0, 2.0)


def test_frames_that_only_the_measurement_keeps_are_no_memory_of_the_program() -> None:
    reading = replace(METERED, peak_bytes=900, memory=Memory(100, 50, 100, 600, 50))
    assert measured(reading, BESIDE)[2] == 500
    assert measured(replace(reading, peak_bytes=1200), BESIDE)[2] == 600


def test_the_energy_is_that_of_the_host_with_most_of_it() -> None:
    assert measured(METERED, BESIDE, OTHER)[1] == 2.5


@pytest.mark.parametrize("usages", [(METERED, ESTIMATED), (BESIDE,), (METERED, replace(OTHER, energy_j=None))])
def test_no_energy_is_known_where_a_host_has_no_meter(usages: tuple[Usage, ...]) -> None:
    assert np.isnan(measured(*usages)[1])


def test_a_host_has_the_devices_that_the_platform_gives_it_however_they_are_called() -> None:
    usages = (replace(METERED, device="first"), replace(BESIDE, device="a_second"))
    assert measured(*usages, hosts={"first": "a", "a_second": "a"})[1] == 1.5
    assert np.isnan(measured(*usages, hosts={"first": "a", "a_second": "b"})[1])


def test_meters_that_count_nothing_tell_nothing() -> None:
    still = [replace(each, energy_j=0.0) for each in (METERED, OTHER)]
    assert np.isnan(measured(*still)[1])
    assert measured(METERED, still[1])[1] == 1.5
