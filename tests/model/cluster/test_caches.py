"""What caches hold between frames: of layers that were not measured, in networks with quick frames."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cluster import coefficients
from model.cluster.caches import Caches
from model.cluster.coefficients import Kernel, LayerCost, UnitCost
from model.cost import layer_time
from model.cost.costs import WHOLE
from model.cost.layer_costs import rows
from model.cost.layer_time import Work
from model.fit.kinds import Measured, fit_kinds
from model.network import layer_kinds
from model.network.graph import Graph, Layer
from model.network.signature import signatures
from tests.tiny_cnn import graph_of, network, node, weight

DECLARED = coefficients.load("generic").unit("cpu")
SECONDS = st.floats(1e-6, 1e3)


@given(st.floats(0, 1), SECONDS, SECONDS, SECONDS)
def test_the_longer_a_frame_the_less_is_held(held: float, fade_s: float, one_s: float, other_s: float) -> None:
    caches = Caches(held, fade_s)
    shorter, longer = caches.part(min(one_s, other_s)), caches.part(max(one_s, other_s))
    assert 1 - held <= shorter <= longer <= 1


def test_what_is_held_falls_to_a_third_as_it_fades() -> None:
    assert Caches().part(0.0) == 1
    assert Caches(0.6, 1e-2).part(1e-2) == pytest.approx(1 - 0.6 / math.e)


@pytest.mark.parametrize("caches", [Caches(), Caches(0.6, 2e-2), Caches(0.4, 1e-2)])
def test_what_caches_hold_is_found_again(caches: Caches) -> None:
    """And coefficients are those of cold caches, as if all networks were slow."""
    known = LayerCost(4.0, 2e-5, 5.0, s_per_byte=2e-10, s_per_weight_byte=5e-10)
    table = [*kernels("slow", 0.4, caches, known), *kernels("quick", 5e-3, caches, known)]
    found = fit_kinds(table, DECLARED)
    assert found.caches == caches
    rates = [layer_time.rates(cost, DECLARED.frequency_hz) for cost in (found.layers["conv_im2col"], known)]
    assert rates[0] == pytest.approx(rates[1], rel=0.05)


def test_one_network_tells_nothing_of_caches() -> None:
    known = LayerCost(4.0, 2e-5, 5.0, s_per_byte=2e-10)
    assert fit_kinds([*kernels("quick", 5e-3, Caches(0.6, 2e-2), known)], DECLARED).caches == Caches()


@pytest.mark.parametrize("count", [30, 28, 2])
def test_an_error_is_told_where_networks_have_most_kernels_in_common(count: int) -> None:
    """All of them, nearly all, or few. None of a fit to none."""
    known = LayerCost(4.0, 2e-5, 5.0, s_per_byte=2e-10, s_per_weight_byte=5e-10)
    both = {"one": 0.4, "other": 0.4}
    table = [replace(kernel, networks=both if k < count else {"one": 0.4}) for k, kernel in
             enumerate(kernels("one", 0.4, Caches(), known))]  # fmt: skip
    assert fit_kinds(table, DECLARED).layers["conv_im2col"].error == pytest.approx(0, abs=0.05)


def kernels(name: str, frame_s: float, caches: Caches, cost: LayerCost) -> Iterator[Measured]:
    """Of a network whose frames take so long."""
    for k in range(30):
        done = Work(1e6 * (1 + k % 3), 0.0, 1e5 * (1 + k % 7), 1e4 * (1 + k % 5))
        seconds = sum(layer_time.seconds(done._replace(part=caches.part(frame_s)), cost, DECLARED.frequency_hz))
        yield Measured("conv_im2col", {name: frame_s}, done, seconds, {})


def test_only_layers_that_were_not_measured_are_told_by_it(tmp_path: Path) -> None:
    graph = chain(tmp_path)
    cold, warm = DECLARED, replace(DECLARED, caches=Caches(0.5, 1e9))
    assert wholes(graph, warm) == pytest.approx([told(graph, layer, 0.5) for layer in graph.layers])
    assert wholes(graph, cold) == pytest.approx([told(graph, layer, 1.0) for layer in graph.layers])
    first = {signatures(graph)[0]: Kernel("Relu", 1e-4)}
    measured = [wholes(graph, replace(unit, kernels=first)) for unit in (cold, warm)]
    assert [times[0] for times in measured] == pytest.approx([1e-4, 1e-4])
    assert measured[1][1] == pytest.approx(told(graph, graph.layers[1], 0.5))


def test_a_slow_device_forgets(tmp_path: Path) -> None:
    """What counts are seconds of a frame, however fast the device is; layers that were measured count, too."""
    graph = chain(tmp_path)
    unit = replace(DECLARED, caches=Caches(0.5, 1e-2))
    slow = replace(unit, kernels={signatures(graph)[0]: Kernel("Relu", 1.0)})
    assert wholes(graph, slow)[1] == pytest.approx(wholes(graph, DECLARED)[1])
    assert rows(graph, signatures(graph), unit, 1e6)[1][WHOLE] == pytest.approx(
        rows(graph, signatures(graph), DECLARED, 1e6)[1][WHOLE]
    )


def test_the_thesis_equations_know_nothing_of_it() -> None:
    figures = replace(coefficients.load("generic"), units={"cpu": replace(DECLARED, caches=Caches(0.5))})
    assert coefficients._by_paper(figures).unit("cpu").caches.held == 0


def told(graph: Graph, layer: Layer, part: float) -> float:
    """Seconds of a layer by its kind."""
    cost = DECLARED.layers[layer_kinds.kind(graph, layer)]
    return sum(layer_time.seconds(layer_time.work(graph, layer, 1)._replace(part=part), cost, DECLARED.frequency_hz))


def wholes(graph: Graph, unit: UnitCost) -> list[float]:
    """Seconds of each layer."""
    return [row[WHOLE] for row in rows(graph, signatures(graph), unit, 1.0)]


def chain(folder: Path) -> Graph:
    """Two layers that do no multiply-accumulates."""
    nodes = [node("Relu", ["x"], ["r"]), node("Concat", ["r", "c"], ["y"], axis=1)]
    return graph_of(folder, network(nodes, {"x": (1, 3, 8, 8)}, ["y"], {"c": weight(1, 2, 8, 8)}))
