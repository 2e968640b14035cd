"""Errors of a calibration, carried to a mapping."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from model.cluster import coefficients
from model.cluster.coefficients import UnitCost
from model.cluster.platform import Platform
from model.cost.confidence import FEW, Expected, expected_error, of_mapping, untold
from model.cost.priced import priced
from model.mappings.mapping import Mapping, Shard, extent
from model.network.boxes import CHANNELS
from model.network.graph import Graph
from model.network.layer_kinds import kind
from tests.confident import COMPUTING, FRAMES, MEASURED, MEMORY, PERIOD, REGRESSED, calibrated
from tests.tiny_cnn import graph_of, platform, six_layers


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return graph_of(tmp_path, six_layers())


def together(graph: Graph, known: int, error: float) -> Expected:
    """Of six layers of a millisecond, so many measured: frames are off, and layers of a kind that were not measured
    are together, kinds by themselves."""
    others = Counter(kind(graph, layer) for layer in graph.layers[known:])
    latency, period, computing = (
        math.hypot(6 * frame, *(count * error for count in others.values())) / 6 for frame in astuple(FRAMES)
    )
    return Expected(latency, computing, MEMORY, period)


@pytest.mark.parametrize("known", [0, 2, 6])
def test_the_error_is_that_of_the_layers_by_their_time(tmp_path: Path, graph: Graph, known: int) -> None:
    cluster, mapping = platform(2), Mapping.whole(graph, [0, 1, 0, 1, 0, 1])
    cluster = calibrated(tmp_path, graph, cluster, known)
    found = expected_error(graph, cluster, priced(graph, cluster, mapping))
    assert found
    assert astuple(found) == pytest.approx(astuple(together(graph, known, REGRESSED)))
    assert of_mapping(graph, cluster, mapping) == found


def test_of_a_network_that_was_not_measured_frames_are_off_as_of_the_others(tmp_path: Path, graph: Graph) -> None:
    cluster = calibrated(tmp_path, graph, platform(2), 6)
    found = of_mapping(replace(graph, name="unseen"), cluster, Mapping.whole(graph, [0] * 6))
    assert found
    assert astuple(found) == pytest.approx((2 * MEASURED, 2 * COMPUTING, MEMORY, 2 * PERIOD))


def test_parts_of_a_layer_of_which_none_were_measured_are_off_as_their_kind_is(tmp_path: Path, graph: Graph) -> None:
    cluster = calibrated(tmp_path, graph, platform(2), 6)
    heavy = next(layer for layer in graph.layers if layer.op == "Conv")
    whole = Mapping.whole(graph, [0] * 6)
    cut = [Shard(heavy.index, 0, 1, 0), Shard(heavy.index, 1, extent(graph, heavy), 1)]
    split = Mapping.of([*(s for s in whole.shards if s.layer != heavy.index), *cut])
    path, frames = Path(cluster.devices[0].coefficients), (FRAMES.latency, FRAMES.period)

    def error() -> tuple[float | None, float | None]:
        found = of_mapping(graph, cluster, split)
        assert found
        return found.latency, found.period

    known = error()
    assert [a > b for a, b in zip(known, frames, strict=True)] == [True, True]
    found = coefficients.load(str(path))
    unknown = {
        name: replace(unit, layers={kind: replace(cost, error=None) for kind, cost in unit.layers.items()})
        for name, unit in found.units.items()
    }
    path.write_text(replace(found, units=unknown).to_json())
    assert [a > b for a, b in zip(error(), known, strict=True)] == [True, True]  # too few were measured to tell
    kernels = {
        name: replace(kernel, splits={CHANNELS: (5e-4, 5e-4)}) if kernel.op == "Conv" else kernel
        for name, kernel in found.unit("cpu").kernels.items()
    }
    units = {name: replace(unit, kernels=kernels) for name, unit in found.units.items()}
    path.write_text(replace(found, units=units).to_json())
    assert error() == pytest.approx(frames)


def test_what_a_host_draws_all_the_time_is_as_far_off_as_the_latency(tmp_path: Path, graph: Graph) -> None:
    """Half of the energy here."""
    cluster, mapping = calibrated(tmp_path, graph, platform(2), 6), Mapping.whole(graph, [0] * 6)
    path = Path(cluster.devices[0].coefficients)
    found, price = coefficients.load(str(path)), priced(graph, cluster, mapping)
    idle_w = price.energy_j / price.latency_s
    units = {name: _metered(unit, idle_w) for name, unit in found.units.items()}
    path.write_text(replace(found, units=units).to_json())
    assert priced(graph, cluster, mapping).energy_j == pytest.approx(2 * price.energy_j)
    error = of_mapping(graph, cluster, mapping)
    assert error
    assert error.energy == pytest.approx((MEASURED + COMPUTING) / 2)


def test_no_more_than_all_of_an_energy_is_drawn_all_the_time(tmp_path: Path, graph: Graph) -> None:
    """A file may say of an idle host that it draws more than a busy one."""
    cluster, mapping = calibrated(tmp_path, graph, platform(2), 6), Mapping.whole(graph, [0] * 6)
    path = Path(cluster.devices[0].coefficients)
    found = coefficients.load(str(path))
    units = {name: replace(unit, idle_w=1e4) for name, unit in found.units.items()}
    path.write_text(replace(found, units=units).to_json())
    error = of_mapping(graph, cluster, mapping)
    assert error
    assert error.energy == pytest.approx(MEASURED)


def test_a_machine_draws_no_more_all_the_time_than_its_devices_that_take_part_were_seen_with(
    tmp_path: Path, graph: Graph
) -> None:
    """Another of its devices was seen with a hundred times as much."""
    plain = calibrated(tmp_path, graph, platform(2), 6)
    path, mapping = Path(plain.devices[0].coefficients), Mapping.whole(graph, [0] * 6)
    found = coefficients.load(str(path))
    for name, idle_w in (("one", 1.0), ("other", 100.0)):
        units = {unit: _metered(cost, idle_w) for unit, cost in found.units.items()}
        (tmp_path / f"{name}.json").write_text(replace(found, name=name, units=units).to_json())
    lines = [
        f"{name}, address=localhost, slots={k}, coefficients={name}.json" for k, name in enumerate(("one", "other"))
    ]
    both = Platform.parse("\n".join(lines), str(tmp_path / "both.txt"))
    alone = Platform.parse(lines[0], str(tmp_path / "alone.txt"))
    assert of_mapping(graph, both, mapping) == of_mapping(graph, alone, mapping)


def _metered(unit: UnitCost, idle_w: float) -> UnitCost:
    """A unit whose host was seen to draw so much, and its layers as much more as before."""
    layers = {kind: replace(cost, power_w=cost.power_w + idle_w) for kind, cost in unit.layers.items()}
    return replace(unit, idle_w=idle_w, layers=layers)


def test_of_figures_that_nobody_measured_no_error_is_known(tmp_path: Path, graph: Graph) -> None:
    mapping = Mapping.whole(graph, [0] * 6)
    assert of_mapping(graph, platform(1), mapping) is None
    assert expected_error(graph, platform(1), priced(graph, platform(1), mapping)) is None


@pytest.mark.parametrize("known", [0, 5, 6])
def test_layers_unlike_all_that_was_measured_are_told(tmp_path: Path, graph: Graph, known: int) -> None:
    """By their operators; one of which another layer was measured is expected to be off by all of its time."""
    cluster, mapping = calibrated(tmp_path, graph, platform(2), known), Mapping.whole(graph, [0] * 6)
    assert untold(graph, cluster) == ()
    path = Path(cluster.devices[0].coefficients)
    found = coefficients.load(str(path))
    units = {
        name: replace(unit, layers={kind: replace(cost, error=None) for kind, cost in unit.layers.items()})
        for name, unit in found.units.items()
    }
    path.write_text(replace(found, units=units).to_json())
    ops = [layer.op for layer in graph.layers]
    unlike = dict.fromkeys(op for op in ops[known:] if op not in ops[:known])
    assert untold(graph, cluster) == tuple(unlike)
    error = expected_error(graph, cluster, priced(graph, cluster, mapping))
    assert error is not None
    if unlike:
        assert error == Expected(None, None, MEMORY, None)
    else:
        assert astuple(error) == pytest.approx(astuple(together(graph, known, FEW)))
    assert untold(graph, cluster.by_paper()) == ()  # equations that know of no layer that was measured
    assert untold(graph, platform(2)) == ()  # of figures that nobody measured all is unknown, and another line says so
