"""The best split over machines with slower links between them: that of brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dse.place import split
from dse.place.machines import Machines, spread
from dse.place.machines import devices as devices_of
from dse.place.period import dp, dpl
from dse.place.pipeline import Rules
from dse.place.placed import Options
from dse.place.reduced import reductions
from dse.place.split import MODES
from dse.place.workload import Workload
from runtime.errors import CleaveError
from tests.dse.place import brute, small
from tests.dse.place.test_period import wide
from tests.dse.place.test_pipeline import equal

SEEDS = st.integers(0, 2**32 - 1)
DEVICES = [(2, 2, 0), (2, 4, 0), (2, 2, 2), (3, 3, 0), (2, 0, 2), (3, 3, 3)]
"""Machines, accelerators, CPUs."""


def cluster(seed: int, devices: tuple[int, int, int], training: bool = False) -> Workload:
    """A small workload for them."""
    _, accelerators, cpus = devices
    on = small.workload(seed, nodes=4 if accelerators + cpus > 4 else 5, training=training)
    return replace(on, accelerators=accelerators, cpus=cpus)


@settings(max_examples=400, deadline=None)
@given(SEEDS, st.sampled_from(DEVICES), st.sampled_from(MODES), st.booleans(), st.sampled_from((1.0, 3.0)))
def test_machines_are_used_as_well_as_can_be(
    seed: int, devices: tuple[int, int, int], mode: str, training: bool, slow: float
) -> None:
    on = cluster(seed, devices, training)
    best = brute.best_over_machines(on, mode, devices[0], slow)
    try:
        found = dp(on, Options(mode, machines=devices[0], slow=slow))
    except CleaveError:
        assert best == np.inf
        return
    assert found.value == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert found.optimal
    assert split.faults(on, found.device) == []
    assert split.contiguous(on, found.device)
    assert split.contiguous(on, split.machine_of(on, devices[0])[found.device])
    assert found.value == split.load(on, found.device, devices[0], slow).of(mode).max()


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.sampled_from(DEVICES), st.sampled_from(MODES), st.sampled_from((1.0, 2.5)))
def test_loads_are_those_of_brute_force(seed: int, devices: tuple[int, int, int], mode: str, slow: float) -> None:
    on = cluster(seed, devices)
    device = brute.all_splits(on)
    rows = np.random.default_rng(seed).integers(0, len(device), 5)
    for row, load in zip(rows, brute.loads(on, device[rows], mode, devices[0], slow), strict=True):
        if np.isfinite(load).all():
            assert split.load(on, device[row], devices[0], slow).of(mode) == pytest.approx(load)


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.sampled_from(DEVICES), st.sampled_from(MODES), st.sampled_from((1.0, 9.0)))
def test_the_search_knows_what_its_splits_are_worth(
    seed: int, devices: tuple[int, int, int], mode: str, slow: float
) -> None:
    on, machines = cluster(seed, devices), Machines(devices[0], slow)
    assume(on.cpus or np.isfinite(on.acc).all())
    of = reductions(on)[0]
    value, rows, complete = spread(of.on, machines, Rules(mode), np.inf, lambda _done, _of: True)
    assert complete
    if rows:
        device = devices_of(of.on, rows, machines)[of.part]
        assert value == pytest.approx(split.load(on, device, devices[0], slow).of(mode).max())


def test_what_is_full_to_the_brim_is_found() -> None:
    value, rows, _ = spread(equal(8, [1.0], [4]), Machines(2, 5.0), Rules(), 2.0001, lambda _done, _of: True)
    assert value == 2
    assert [len(row) for row in rows] == [2, 2]


def test_after_the_time_limit_what_one_machine_would_do_is_dealt() -> None:
    on = replace(wide(4), accelerators=4, cpus=0)
    found, best = dp(on, Options(limit_s=0.0, machines=2, slow=2.0)), dp(on, Options(machines=2, slow=2.0))
    assert best.optimal
    assert not found.optimal
    assert "time limit" in found.note
    assert found.bound <= best.value <= found.value


def test_what_machines_cannot_be_is_told() -> None:
    on = wide()
    for options, said in (
        (Options(machines=3), "4 accelerators cannot be spread"),
        (Options(machines=2), "1 CPUs cannot be spread"),
        (Options(machines=2, bandwidth=1.0), "--replicate is for devices of one machine"),
    ):
        with pytest.raises(CleaveError, match=said):
            dp(on, options)
    with pytest.raises(CleaveError, match="knows of one machine alone"):
        dpl(on, Options(machines=2))
