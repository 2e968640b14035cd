"""What a workload is reduced to: colours, cycles, the order of a backward part, nets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.place.reduced import MIRROR, PARALLEL, Reduction, reduced, reductions
from dse.place.workload import Workload
from tests.dse.place import small


def workload(
    n: int, edges: list[tuple[int, int]], backward: tuple[int, ...] = (), **colors: tuple[int, ...]
) -> Workload:
    """Node k takes 2 ** k, so that sums say which are in them. colors: nodes of each"""
    rows: list[dict[str, Any]] = [
        {"id": k, "supportedOnFpga": 1, "fpgaLatency": 2**k, "cpuLatency": 2**k, "size": 2**k} for k in range(n)
    ]
    for color, nodes in enumerate(colors.values()):
        for k in nodes:
            rows[k]["colorClass"] = color
    for k in backward:
        rows[k]["isBackwardNode"] = 1
    costs = [{"sourceId": a, "destId": b, "cost": 1 + a} for a, b in edges]
    head = {"maxSizePerFPGA": 9, "maxFPGAs": 1, "maxCPUs": 1}
    return Workload.of({**head, "nodes": rows, "edges": costs}, "made")


def sets(of: Reduction) -> list[int]:
    """Which nodes are in each, as bits."""
    return of.on.time[:, 0].astype(int).tolist()


def nets(of: Reduction) -> dict[tuple[int, tuple[int, ...]], float]:
    on = of.on
    pins = [tuple(on.pin[a:b].tolist()) for a, b in zip(on.pin_ptr, on.pin_ptr[1:], strict=False)]
    return dict(zip(zip(on.source.tolist(), pins, strict=True), on.cost[:, 0].tolist(), strict=True))


def test_what_lies_between_nodes_of_a_colour_is_with_them() -> None:
    found = reduced(workload(5, [(0, 1), (1, 2), (2, 3), (3, 4)], red=(1, 3)))
    assert sets(found) == [0b00001, 0b01110, 0b10000]
    assert found.on.edge.tolist() == [[0, 1], [1, 2]]
    assert nets(found) == {(0, (0, 1)): 1, (1, (1, 2)): 4}
    assert found.part.tolist() == [0, 1, 1, 1, 2]


def test_a_backward_part_is_turned_round() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    found = reduced(workload(6, edges, backward=(3, 4, 5), a=(0, 5), b=(1, 4), c=(2, 3)), MIRROR)
    assert sets(found) == [0b100001, 0b010010, 0b001100]
    assert found.on.edge.tolist() == [[0, 1], [1, 2]]
    assert nets(found) == {(0, (0, 1)): 1, (1, (0, 1)): 5, (1, (1, 2)): 2, (2, (1, 2)): 4}


def test_a_backward_part_in_the_same_order_is_one_node_when_turned_round() -> None:
    on = workload(4, [(0, 1), (2, 3)], backward=(2, 3), a=(0, 2), b=(1, 3))
    assert sets(reduced(on, MIRROR)) == [0b1111]
    assert sets(reduced(on, PARALLEL)) == [0b0101, 0b1010]
    assert [len(of.on) for of in reductions(on)] == [2, 1]


def test_backward_nodes_without_a_forward_one_lie_where_their_mirror_image_would() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    found = reduced(workload(6, edges, backward=(3, 4, 5), a=(0, 5), c=(2, 3)), MIRROR)
    assert sets(found) == [0b100001, 0b010000, 0b000010, 0b001100]
    assert sorted(map(tuple, found.on.edge.tolist())) == [(0, 1), (0, 2), (1, 3), (2, 3)]


def test_nets_of_the_same_nodes_are_one() -> None:
    found = reduced(workload(4, [(0, 2), (1, 2), (2, 3)], red=(0, 1)))
    assert nets(found) == {(0, (0, 1)): 3, (1, (1, 2)): 3}


def test_inference_has_one_order() -> None:
    assert len(reductions(workload(2, [(0, 1)]))) == 1


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from((MIRROR, PARALLEL)))
def test_nothing_is_lost_and_edges_lead_upwards(seed: int, training: bool, order: str) -> None:
    on = small.workload(seed, training=training)
    found = reduced(on, order)
    assert (found.on.edge[:, 0] < found.on.edge[:, 1]).all()
    assert np.array_equal(found.on.time.sum(axis=0), [on.acc.sum(), on.cpu.sum()])
    assert found.on.size.sum() == on.size.sum()
    assert sorted(set(found.part.tolist())) == list(range(len(found.on)))
    for color in np.unique(on.color):
        assert len(set(found.part[on.color == color].tolist())) == 1
    read = np.unique(on.edge[found.part[on.edge[:, 0]] != found.part[on.edge[:, 1]], 0])
    assert found.on.cost[:, 0].sum() == pytest.approx(on.cost[read].sum())
