"""What fits to the last byte fits, by every method, in whichever order sizes are summed."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest

from dse.place.methods import METHODS
from dse.place.placed import Method, Options
from dse.place.workload import Workload

ORDERS = list(permutations((0.1, 0.2, 0.3)))
"""Sizes that fill 0.6 bytes; 0.1 + 0.2 + 0.3 is more than that in floating point, 0.3 + 0.2 + 0.1 is not."""
OF_ALL = [method for methods in METHODS.values() for method in methods.values()]


def full(sizes: tuple[float, ...], accelerators: int = 1, cpus: int = 0) -> Workload:
    """A path of nodes that is best on one accelerator, which it fills."""
    node = {"supportedOnFpga": 1, "fpgaLatency": 1, "cpuLatency": 100}
    body = {
        "maxSizePerFPGA": 0.6,
        "maxFPGAs": accelerators,
        "maxCPUs": cpus,
        "nodes": [node | {"id": k, "size": size} for k, size in enumerate(sizes)],
        "edges": [{"sourceId": a, "destId": b, "cost": 1} for a, b in pairwise(range(len(sizes)))],
    }
    return Workload.of(body, "full")


@pytest.mark.parametrize("sizes", ORDERS)
@pytest.mark.parametrize("cpus", [0, 1])
@pytest.mark.parametrize("method", OF_ALL)
def test_an_accelerator_can_be_filled(method: Method, cpus: int, sizes: tuple[float, ...]) -> None:
    assert method(full(sizes, cpus=cpus), Options()).value == 3


@pytest.mark.parametrize("sizes", ORDERS)
@pytest.mark.parametrize("mode", ["sum", "overlap", "duplex"])
def test_an_accelerator_of_one_of_several_machines_can_be_filled(mode: str, sizes: tuple[float, ...]) -> None:
    on = full(sizes, accelerators=2)
    assert METHODS["period"]["dp"](on, Options(mode, machines=2, slow=1e6)).value == 3
